"""The test inputs at the sizes that a user names: zeros for the readings, plain numbers, and numbers
with masks and options.
"""

from math import prod

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operation import Arguments, Operation
from properties.contract.packing import lengths
from properties.contract.wanted_shapes import Wanted, as_text
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices
from properties.strategies.domains import DOMAINS
from properties.strategies.plain_calls import exact_call
from properties.strategies.sizes import UnsupportedError

__all__ = ["MOST_PRODUCTS", "WantedCases"]

MOST_PRODUCTS = 2**32
"""The largest number of products in the scores of a call. The oracle takes half a minute for it."""

_PRODUCTS_FOR_A_NUMBER = 32  # so that the arrays of a call have at most 2²⁷ numbers, one gigabyte of float64
_CHEAP = 2**22  # products in the scores: the oracle takes some hundredths of a second
_CASES = 4, 2  # of cheap sizes, and of others


class WantedCases:
    """The test inputs of an operation at exactly the sizes that a user names.

    text     the sizes as a user writes them
    zeros    arguments of zeros, for the laws that measure
    cheap    whether other laws than agreement are checked on these inputs too
    number   the number of test inputs with numbers

    Raises UnsupportedError, a sentence, if the implementation does not take the sizes, or if the
    arrays are too large to be compared.
    """

    def __init__(self, operation: Operation, shape: Wanted, implementation: Implementation, most: int) -> None:
        self.operation, self.shape, self.implementation = operation, shape, implementation
        self.text = as_text(shape)
        zeros = exact_call(operation, implementation, shape, lambda shape, seed: np.zeros(shape))
        if zeros is None:
            raise UnsupportedError(f"{implementation.name} does not take these sizes.")
        self.zeros = zeros
        self._require_comparable(zeros, most)
        self.cheap = _products(operation, zeros) <= _CHEAP
        self.number = _CASES[not self.cheap]

    def _require_comparable(self, arguments: Arguments, most: int) -> None:
        numbers = sum(argument.size for argument in arguments if isinstance(argument, np.ndarray))
        if max(numbers * _PRODUCTS_FOR_A_NUMBER, products := _products(self.operation, arguments)) > most:
            raise UnsupportedError(
                f"A call has {numbers:,} numbers in its arrays and {products:,} products in its scores. attnspec "
                f"compares at most {most // _PRODUCTS_FOR_A_NUMBER:,} and {most:,}: name a smaller batch."
            )

    def draw(self, seed: int, place: int) -> Arguments:
        """Return a test input that a seed determines. The first has no mask and no options."""
        if not place:
            inputs = self.implementation.resolved_arithmetic.operands
            numbers = exact_call(
                self.operation,
                self.implementation,
                self.shape,
                lambda shape, parameter: Choices(seed + parameter).numbers(shape, inputs, "normal"),
            )
            assert numbers is not None
            return numbers
        everyday = Cases(self.operation, DOMAINS[self.operation.name]["everyday"], self.implementation)
        sizes, lead = self.operation.sizes(self.zeros), self.operation.lead(self.zeros)
        with_options = everyday.of_sizes(sizes, lead, Choices(seed))
        taken = self.implementation.takes(self.operation, with_options)
        return with_options if taken else self.draw(seed, 0)


def _products(operation: Operation, arguments: Arguments) -> int:
    """The number of products of two numbers in the scores of a call; its number of rows times their
    width, if it has no scores.
    """
    sizes = operation.sizes(arguments)
    if operation.is_packed:
        sizes["n_q"] = sum(n_q * n_k for n_q, n_k in lengths(operation.named(arguments)))
    names = ["batch", "num_heads", "n_q", "n_k", "seq_len", "head_dim", *["seq_len"] * bool(operation.widths)]
    return prod(sizes.get(name, 1) for name in names)
