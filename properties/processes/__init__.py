"""Runs implementations in child processes, so that a crash, a hang or a leak of memory becomes a
verdict.
"""
