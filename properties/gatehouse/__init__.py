"""The gate: it accepts or rejects an untrusted kernel, which may try to deceive it."""
