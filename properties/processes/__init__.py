"""Runs implementations in child processes, so that a crash, a hang or too much memory ends only the
child, and becomes a verdict.
"""
