"""Checks laws: draws cases, finds causes, shrinks inputs, and reports failures with a script that
reproduces each.
"""
