"""Certified vectors: calls with what must come of them, for every language, and whether a file of them is right."""
