"""What becomes of laws: cases, diagnosis, shrinking, and the report with a script that reproduces what it shows."""
