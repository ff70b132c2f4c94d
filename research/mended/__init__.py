"""Kernels with one planted mistake each, the JSON of their verdicts, and the kernels as they were mended from it."""
