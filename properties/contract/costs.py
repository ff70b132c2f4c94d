"""Predicts how long a call will take, so that calls that are too slow are not made."""

from dataclasses import dataclass, field
from math import inf

import numpy as np

from oracles.ball import Array
from properties.contract.operations import Arguments, Operation

__all__ = ["COSTS", "Costs"]

COSTS = {"small": 0.2, "normal": 1.0, "large": 10.0}
"""The words of `--cost`, and the seconds that a call may take."""


_OF_TIME = (
    *(("batch", "sequences"), ("num_heads",), ("n_q", "total_q", "seq_len"), ("n_k", "total_k")),
    ("head_dim", "embed_dim", "model_dim"),
)
"""The sizes on which the time of a call depends; of several names, the larger size counts."""
_LENGTHS = slice(2, 4)  # the numbers of queries and of keys among them

_SMALL = 1024  # entries of the arrays and scores of a call that is always made
_TRIES = 4  # calls that are left out before a first one that is not small is made
_FIRST = 2  # calls that are made so: the time of the very first has what a library prepares
_LONGER = 10.0  # seconds for slow calls of an operation that are longer than all faster ones


@dataclass
class Costs:
    """The times of the calls so far, by operation, and the most seconds that a call may take. In an
    interpreter, the time of a call is the time that a processor worked.

    A call that should take longer is not made, unless it is small, or has more queries or keys than every
    call within the limit: such calls may take `_LONGER` seconds in all. The kernel may take the others all
    the same. `left_out` counts them by operation. Some kernels take no small call. Their first `_FIRST` calls
    are not larger than the smallest of `_TRIES` or more calls that were left out.
    """

    most: float
    left_out: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, list[tuple[Array, float]]] = field(default_factory=dict, repr=False)
    _smallest: dict[str, float] = field(default_factory=dict, repr=False)
    _spent: dict[str, float] = field(default_factory=dict, repr=False)

    def refusal(self, operation: Operation, arguments: Arguments) -> str:
        """Return a sentence that says that a call would take too long; "" if it may be made."""
        seconds, work = self.predicted(operation, arguments), _work(operation, arguments)
        if seconds <= self.most or work <= _SMALL:
            return ""
        left = _LONGER - self._spent.get(operation.name, 0.0)
        if seconds <= left and self._is_longer(operation, _sizes(operation, arguments)):
            return ""
        count, smallest = self.left_out.get(operation.name, 0), self._smallest.get(operation.name, inf)
        if len(self._seen.get(operation.name, ())) < _FIRST and count >= _TRIES and work <= smallest:
            return ""
        self.left_out[operation.name], self._smallest[operation.name] = count + 1, min(work, smallest)
        if seconds == inf:
            return "The call is large, and no smaller call has shown yet how long such calls take."
        return f"The call would take up to {seconds:.2g} s, and --cost allows {self.most:g} s."

    def predicted(self, operation: Operation, arguments: Arguments) -> float:
        """Return an upper bound of the seconds of a call; ∞ before the first call of the operation.

        The time of a call is a sum of products of some of its sizes, with factors that are not negative.
        So an earlier call with the sizes s' and the time t' bounds it by t'·∏ max(1, s/s').
        """
        sizes, earlier = _sizes(operation, arguments), self._seen.get(operation.name, ())
        return min((seconds * float(np.maximum(sizes / before, 1).prod()) for before, seconds in earlier), default=inf)

    def add(self, operation: Operation, arguments: Arguments, seconds: float) -> None:
        """Record the time of a call. A call that needed its length to be made is charged."""
        sizes = _sizes(operation, arguments)
        if self.predicted(operation, arguments) > self.most and _work(operation, arguments) > _SMALL:
            self._spent[operation.name] = self._spent.get(operation.name, 0.0) + seconds
        self._seen.setdefault(operation.name, []).append((sizes, seconds))

    def _is_longer(self, operation: Operation, sizes: Array) -> bool:
        """Return whether a call has more queries or more keys than every call within the limit, or than
        every call if none is within it.
        """
        seen = self._seen.get(operation.name, [])
        usual = [each for each, seconds in seen if seconds <= self.most] or [each for each, _ in seen]
        return bool(usual) and bool((sizes > np.max(usual, axis=0))[_LENGTHS].any())


def _sizes(operation: Operation, arguments: Arguments) -> Array:
    """Return the sizes of a call on which its time depends, each at least 1."""
    sizes = operation.sizes_with_longest_keys(arguments)
    return np.array([max(1, *(sizes.get(name, 1) for name in names)) for names in _OF_TIME], float)


def _work(operation: Operation, arguments: Arguments) -> float:
    """Return the number of entries of the arrays of a call and of its scores."""
    sizes = operation.sizes_with_longest_keys(arguments)
    problems = sizes.get("batch", 1) * sizes.get("num_heads", 1)
    queries, keys = (sizes.get(name, sizes.get(total, 0)) for name, total in (("n_q", "total_q"), ("n_k", "total_k")))
    entries = sum(argument.size for argument in arguments if isinstance(argument, np.ndarray))
    return float(1 + entries + problems * queries * keys)
