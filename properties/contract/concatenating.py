"""A cache of a function with past keys, which is called on all that are held."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from properties.contract.caches import Decoder

__all__ = ["concatenating"]


class Concatenating:
    """A cache of a function with past keys:
    `attention(q, k, v, causal=True, offset=…, window=(left, None))`, with one head, which gives
    out, or (out, lse), is called on all keys that are held. `concatenate` joins arrays of its kind
    along their first axis."""

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
        """Add positions."""
        self._k, self._v = ([self._concatenate([*x, new])] for x, new in ((self._k, k), (self._v, v)))

    def attend(self, q: Any) -> Any:
        """The output of queries at the last positions, and the log-sum-exp, if the function gives it."""
        past = self._require(len(q))
        found = self._attention(q[None], self._k[0][None], self._v[0][None], causal=True, offset=past, **self._options)
        return (found[0][0], found[1][0]) if isinstance(found, tuple) else found[0]

    def rollback(self, n: int) -> None:
        """The newest positions go."""
        left = self._require(n)
        self._k, self._v = ([x[:left] for x in each] for each in (self._k, self._v))

    def evict(self, n: int) -> None:
        """The oldest positions go."""
        self._require(n)
        self._k, self._v = ([x[n:] for x in each] for each in (self._k, self._v))

    def _require(self, n: int) -> int:
        """How many positions are held besides the last n; raises ValueError where there are fewer."""
        held = len(self._k[0]) if self._k else 0
        if n > held:
            raise ValueError(f"It is about {n} positions, but there are {held}.")
        return held - n


def concatenating(attention: Callable[..., Any], concatenate: Callable[..., Any] = np.concatenate) -> Decoder:
    """The operation `decode` of a function with past keys, as `Concatenating` calls it."""
    return Decoder(partial(Concatenating, attention=attention, concatenate=concatenate))
