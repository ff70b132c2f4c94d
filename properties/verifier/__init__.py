"""Checks laws (properties of operations): draws test inputs, finds the causes of failures, shrinks
the inputs that show them, and writes a script that reproduces each failure.
"""
