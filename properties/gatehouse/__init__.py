"""The gate: it accepts or rejects an untrusted kernel, whose code may try to deceive it."""
