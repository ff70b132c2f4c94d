"""What a finding is: a promise, and the smallest input on which something else comes out."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Finding", "Findings", "Seen", "outcome"]


@dataclass(frozen=True)
class Seen:
    """An input, what was to be expected of it, and what came out."""

    input: str
    expected: str
    actual: str


@dataclass(frozen=True)
class Finding:
    """A sentence about a system, what its documentation promises, where that stands or was reported, and the measurement."""

    system: str
    title: str
    detail: str
    promised: str
    source: str
    measure: Callable[[], Seen]


class Findings:
    """A decorator that turns a measurement into a finding: its name is the title, its docstring the detail.

    @finding(promised="A matrix of shape (dim, seq_len).", source="the docstring of compute_frequencies")
    def frequencies_have_half_the_rows_that_are_promised(): ...
    """

    def __init__(self, system: str) -> None:
        self.system = system
        self.found: list[Finding] = []

    def __call__(self, promised: str, source: str) -> Callable[[Callable[[], Seen]], Callable[[], Seen]]:
        """The decorator; its arguments are fields of `Finding`."""

        def register(measure: Callable[[], Seen]) -> Callable[[], Seen]:
            title = measure.__name__.replace("_", " ")
            detail = " ".join((measure.__doc__ or "").split())
            self.found.append(Finding(self.system, title[0].upper() + title[1:], detail, promised, source, measure))
            return measure

        return register


def outcome(call: Callable[[], Any]) -> str:
    """What a call returns, or the exception that it raises, with the first line of its message."""
    try:
        return shown(call())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".removesuffix(": ")


def shown(x: Any) -> str:
    """An array or a number in few digits; booleans as 0 and 1."""
    with suppress(AttributeError):
        x = x.detach().numpy()
    x = np.asarray(x)
    if x.dtype == np.bool_:
        x = x.astype(int)
    return re.sub(r" +(?=[],])|(?<=\[) +", "", " ".join(np.array2string(x, precision=5, separator=", ").split()))
