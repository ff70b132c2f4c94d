"""Families of packed sequences, and of keys in pages: what is drawn, and with `plain` numbers. Each
sequence is attention, whose families are attacked by themselves.
"""

from dataclasses import replace

from numpy.random import Generator

from oracles import Conventions
from research.benchmarks.attack.calls import Call, changed_array, conventions, drawn, everyday, fitting, mixed
from research.benchmarks.attack.inputs import plain

__all__ = ["PACKED", "changed", "packed"]

PACKED = ("everyday", "drawn", "plain")
_SETTINGS = ("scale", "causal", "window", "softcap", "conventions")
"""The options that do not belong to the lengths of the sequences."""


def packed(operation: str, family: str, rng: Generator) -> Call:
    """A call of a family."""
    meaning = _meaning(operation, rng)
    call = everyday(operation, rng, meant=meaning) if family == "everyday" else drawn(operation, rng, meant=meaning)
    if family == "plain":
        call = replace(call, arrays={name: plain(rng, x.shape) for name, x in call.arrays.items()})
    return _laid_out(call)


def changed(call: Call, rng: Generator) -> Call:
    """The call with something of an array changed, or a setting as in another call."""
    if rng.random() < 0.75 and any(x.size for x in call.arrays.values()):
        return changed_array(call, rng)
    fresh = drawn(call.operation, rng, meant=_meaning(call.operation, rng)).options
    settings = {name: x for name, x in mixed(call.options, fresh, rng).items() if name in _SETTINGS}
    lengths = {name: x for name, x in call.options.items() if name not in _SETTINGS}
    return _laid_out(replace(call, options=fitting(lengths | settings)))


def _meaning(operation: str, rng: Generator) -> Conventions:
    """Conventions under which drawn pages have their layout."""
    return replace(conventions(operation, rng), page_layout="slots_first")


def _laid_out(call: Call) -> Call:
    """The call with the cotangent of the log-sum-exp in the layout of its conventions."""
    shape = call.arrays["q"].shape[:2]
    if call.options["conventions"].packed_lse == "heads_first":
        shape = shape[::-1]
    return replace(
        call, arrays={name: x.T if name == "grad_lse" and x.shape != shape else x for name, x in call.arrays.items()}
    )
