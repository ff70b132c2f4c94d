"""Certified vectors: calls with what must come of them, written for every language, chosen so that they kill the known bugs."""
