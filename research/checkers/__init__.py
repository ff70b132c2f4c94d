"""What the checks in use today let through: each is a row of a table, the whole catalogue of bugs
is put to it. `make checkers`.
"""
