"""Measurements of `oracles`: how fast (`timing`), how sound (`soundness`), how sharp (`sharpness`),
and what others see (`criteria`).

None of them is a test: each prints a table, writes what it found to a file if asked to, and exits
with 1 if something is not as promised.
"""
