"""What is claimed of the suite is measured: the kill matrix, false alarms, processors, findings, benchmarks."""
