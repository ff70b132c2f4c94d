"""The text that a script should print, computed again from exact values: by the expression `oracle` of a finding."""

from typing import Any

import numpy as np

import oracles
from research.findings.measuring import shown

__all__ = ["attention", "computed", "frequencies", "lse", "rotated_pair", "shown", "sinusoids"]


def computed(expression: str) -> str:
    """The value of a Python expression that uses this module's names, as scripts print it: numbers
    have four digits after the point.
    """
    x = eval(expression, globals())
    return x if isinstance(x, str) else str(np.round(np.asarray(x, dtype=np.float64), 4).tolist())


def _one_channel(*rows: Any) -> list[Any]:
    return [np.array(x, dtype=np.float64).reshape(1, -1, 1) for x in rows]


def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """The output of attention with one head of one channel."""
    return oracles.attention(*_one_channel(q, k, v), scale=1.0, **options)[0].mid.ravel()


def lse(q: Any, k: Any, **options: Any) -> Any:
    """The log-sum-exp of the scores of one head of one channel."""
    return oracles.attention(*_one_channel(q, k, k), scale=1.0, **options)[1].mid.ravel()


def frequencies(*kind: Any, **parameters: Any) -> Any:
    """The rotary frequencies of a kind."""
    return oracles.rotary_frequencies(*kind, **parameters)[0].mid


def rotated_pair(position: int, frequency: float = 1.0) -> Any:
    """The pair (1, 0) at a position, rotated: its cosine and its sine."""
    cos, sin = oracles.rotary_tables(np.array([position]), np.array([frequency]))
    return [cos.mid[0, 0], sin.mid[0, 0]]


def sinusoids(position: int) -> Any:
    """The sinusoids of two channels at a position, to one digit."""
    return np.round(oracles.sinusoidal_positional_encoding(1, 2, position).mid[0], 1)
