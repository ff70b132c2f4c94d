"""Measures which bugs today's checkers miss: each checker is a row of a table, and judges every bug
of the catalogue. `make checkers`.
"""
