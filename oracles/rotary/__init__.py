"""Rotary embeddings: the rotation, its angles and tables, and the frequencies of each kind."""
