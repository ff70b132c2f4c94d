"""Draws test inputs: their sizes, numbers, masks and options. Each choice follows from a seed."""
