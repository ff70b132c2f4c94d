"""The error analysis. The same terms bound the error of the oracle itself and the error of any code
in a stated arithmetic.
"""
