"""The contracts in bits that an implementation may declare: changes of a call that leave each bit of
a problem's output unchanged.
"""

__all__ = ["BIT_CONTRACTS"]

BIT_CONTRACTS = {
    "run to run": "the same call again",
    "batch size": "a larger batch",
    "place in the batch": "another place in the batch",
    "padding": "masked keys at the end",
    "chunked prefill": "half of the queries",
    "decode equals prefill": "the last query alone",
}
"""What changes around a problem, by the name of the contract. A kernel with another number of splits
is another path, a `Twin(exactly=True)`.
"""
