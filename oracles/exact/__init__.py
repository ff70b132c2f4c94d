"""Exact values by ball arithmetic of any precision, for elements whose fast radius is too wide."""
