"""The gate: a verdict on a kernel that may try to deceive it."""
