"""Test vectors for every language: calls with their certified results, and a check of the files
that hold them.
"""
