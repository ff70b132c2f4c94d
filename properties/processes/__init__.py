"""Runs implementations in child processes: a crash, a hang or a leak of memory is a verdict."""
