"""The quick plan, written by `make mutants`: few laws that kill all known bugs between them, on few cases."""

QUICK: tuple[str, ...] = ()
