"""The gate, measured: which right candidates it accepts, which adversaries it does not, and how
long a verdict takes.
"""
