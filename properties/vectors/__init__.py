"""Test vectors for every programming language: calls with results that are proved to lie within
stated bounds, and a check of the files that hold them.
"""
