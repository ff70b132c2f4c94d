"""Families of packed sequences, and of keys in pages: what is drawn, and with `plain` numbers. Each
sequence is attention, whose families are attacked by themselves.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from research.benchmarks.attack.calls import Call, changed_array, conventions, drawn, everyday, fitting, mixed
from research.benchmarks.attack.inputs import plain

__all__ = ["PACKED", "changed", "packed", "with_layout"]

PACKED = ("everyday", "drawn", "plain")
_SETTINGS = ("scale", "causal", "window", "softcap", "conventions")
"""The options that do not belong to the lengths of the sequences."""


def packed(operation: str, family: str, rng: Generator) -> Call:
    """A call of a family."""
    meaning = conventions(operation, rng)
    drawn_as = replace(meaning, page_layout="slots_first")
    call = everyday(operation, rng, meant=drawn_as) if family == "everyday" else drawn(operation, rng, meant=drawn_as)
    if family == "plain":
        call = replace(call, arrays={name: plain(rng, x.shape) for name, x in call.arrays.items()})
    return _laid_out(with_layout(call, meaning.page_layout))


def changed(call: Call, rng: Generator) -> Call:
    """The call with something of an array changed, or a setting as in another call."""
    if rng.random() < 0.75 and any(x.size for x in call.arrays.values()):
        return changed_array(call, rng)
    layout = call.options["conventions"].page_layout
    meaning = replace(conventions(call.operation, rng), page_layout="slots_first")
    fresh = drawn(call.operation, rng, meant=meaning).options
    settings = {name: x for name, x in mixed(call.options, fresh, rng).items() if name in _SETTINGS}
    lengths = {name: x for name, x in call.options.items() if name not in _SETTINGS}
    settings["conventions"] = replace(settings["conventions"], page_layout=layout)
    return _laid_out(replace(call, options=fitting(lengths | settings)))


def with_layout(call: Call, page_layout: Any) -> Call:
    """The call with its pages, whose slots come first, and their scales in a layout."""
    options = call.options | {"conventions": replace(call.options["conventions"], page_layout=page_layout)}
    names = [
        name for name in ("k_pages", "v_pages", "k_scale", "v_scale") if getattr(call.exact.get(name), "ndim", 0) == 4
    ]
    swapped = {name: np.ascontiguousarray(call.exact[name].swapaxes(1, 2)) for name in names}
    if page_layout != "heads_first":
        return replace(call, options=options)
    arrays, options = ({name: swapped.get(name, x) for name, x in those.items()} for those in (call.arrays, options))
    return replace(call, arrays=arrays, options=options)


def _laid_out(call: Call) -> Call:
    """The call with the cotangent of the log-sum-exp in the layout of its conventions."""
    shape = call.arrays["q"].shape[:2]
    if call.options["conventions"].packed_lse == "heads_first":
        shape = shape[::-1]
    return replace(
        call, arrays={name: x.T if name == "grad_lse" and x.shape != shape else x for name, x in call.arrays.items()}
    )
