"""Makes a key-value cache from an attention function without a cache: each call gets all keys that
the cache holds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from properties.contract.caches import Decoder
from properties.contract.wording import shown

__all__ = ["concatenating"]


class Concatenating:
    """A key-value cache that calls an attention function on all keys that it holds.

    The call is `attention(q, k, v, causal=True, offset=…, window=(left, None))`, with one head. It
    returns out or (out, lse). `concatenate` joins arrays along their first axis.
    """

    def __init__(
        self,
        d: int,
        d_v: int,
        window: int | None = None,
        *,
        attention: Callable[..., Any],
        concatenate: Callable[..., Any],
    ) -> None:
        self._attention, self._concatenate = attention, concatenate
        self._options = {} if window is None else {"window": (window, None)}
        self._k: list[Any] = []
        self._v: list[Any] = []

    def append(self, k: Any, v: Any) -> None:
        """Add keys and values at the next positions."""
        self._k, self._v = ([self._concatenate([*x, new])] for x, new in ((self._k, k), (self._v, v)))

    def attend(self, q: Any) -> Any:
        """Return the output of queries at the last positions, with the log-sum-exp if the function
        returns it.
        """
        past_count = self._require(len(q))
        results = self._attention(
            q[None], self._k[0][None], self._v[0][None], causal=True, offset=past_count, **self._options
        )
        return (results[0][0], results[1][0]) if isinstance(results, tuple) else results[0]

    def rollback(self, n: int) -> None:
        """Remove the newest n positions."""
        left = self._require(n)
        self._k, self._v = ([x[:left] for x in each] for each in (self._k, self._v))

    def evict(self, n: int) -> None:
        """Remove the oldest n positions."""
        self._require(n)
        self._k, self._v = ([x[n:] for x in each] for each in (self._k, self._v))

    def _require(self, n: int) -> int:
        """Return the number of positions without the last n. Raises ValueError if the cache holds
        fewer than n positions.
        """
        held_count = len(self._k[0]) if self._k else 0
        if n > held_count:
            raise ValueError(f"The step needs {n} positions, but the cache holds {held_count}.")
        return held_count - n


def concatenating(attention: Callable[..., Any], concatenate: Callable[..., Any] = np.concatenate) -> Decoder:
    """Return the operation `decode` of an attention function without a cache. `Concatenating` says
    how the function is called. Raises TypeError for what cannot be called.
    """
    for name, value in (("attention", attention), ("concatenate", concatenate)):
        if not callable(value):
            raise TypeError(f"{name}={shown(value)}, but should be a function.")
    return Decoder(partial(Concatenating, attention=attention, concatenate=concatenate))
