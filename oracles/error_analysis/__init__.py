"""The error analysis: the same terms bound the oracle's own error and the error of any code in a stated arithmetic."""
