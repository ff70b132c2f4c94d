"""Measures the gate: which right candidates it accepts, which adversaries it rejects, and how long
a verdict takes.
"""
