"""Predicts how long a call will take, so that calls that are too slow are not made."""

from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from properties.contract.operations import Operation

__all__ = ["COSTS", "Costs"]

COSTS = {"small": 0.2, "normal": 1.0, "large": 10.0}
"""The words of `--cost`, and the seconds that a call may take."""


_SMALL = 512  # entries of the arrays and scores of a call that is always made


@dataclass
class Costs:
    """The times of the calls so far, by operation, and the most seconds that a call may take. In an
    interpreter, the time of a call is the time that a processor worked.

    A call that should take longer is not made, unless it is small. This is no claim that the kernel does not take it.
    `left_out` counts such calls by operation.
    """

    most: float
    left_out: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, list[tuple[float, float]]] = field(default_factory=dict, repr=False)

    def refusal(self, operation: Operation, arguments: tuple[Any, ...]) -> str:
        """Return a sentence that says that a call would take too long; "" if it may be made."""
        seconds = self.predicted(operation, arguments)
        if seconds <= self.most or _work(operation, arguments) <= _SMALL:
            return ""
        self.left_out[operation.name] = self.left_out.get(operation.name, 0) + 1
        if seconds == inf:
            return "The call is large, and no smaller call has shown yet how long such calls take."
        return f"The call would take up to {seconds:.2g} s, and --cost allows {self.most:g} s."

    def predicted(self, operation: Operation, arguments: tuple[Any, ...]) -> float:
        """Return an upper bound of the seconds of a call; ∞ before the first call of the operation.

        A call takes a + b·w seconds, where w is its work, and a and b are not negative. So an earlier
        call with the work w' and the time t' bounds it by t'·max(1, w/w').
        """
        work = _work(operation, arguments)
        earlier = self._seen.get(operation.name, ())
        return min((seconds * max(1.0, work / before) for before, seconds in earlier), default=inf)

    def add(self, operation: Operation, arguments: tuple[Any, ...], seconds: float) -> None:
        """Record the time of a call."""
        self._seen.setdefault(operation.name, []).append((_work(operation, arguments), seconds))


def _work(operation: Operation, arguments: tuple[Any, ...]) -> float:
    """Return the number of entries of the arrays of a call and of its scores."""
    sizes = operation.sizes(arguments)
    problems = sizes.get("batch", 1) * sizes.get("num_heads", 1)
    queries, keys = (sizes.get(name, sizes.get(total, 0)) for name, total in (("n_q", "total_q"), ("n_k", "total_k")))
    entries = sum(argument.size for argument in arguments if isinstance(argument, np.ndarray))
    return float(1 + entries + problems * queries * keys)
