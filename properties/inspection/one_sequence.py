"""Attention of one sequence, through a kernel that takes packed sequences or keys in pages. The
instruments that measure attention, such as its scale, measure such a kernel by it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from properties.contract.caller import Caller, Observer
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.packing import with_longest
from properties.contract.support import OutsideError
from properties.inspection.array import Array

__all__ = ["OneSequence"]

_OPTIONS = ("scale", "causal", "window", "softcap", "sink", "alibi")
_QUERIES, _KEYS = (2, 1), 5


class OneSequence(Caller):
    """A caller of `attention` that calls packed or paged attention with one sequence.

    With keys in pages the queries are the last of the sequence, and see no later keys unless causal is
    False. `small` has the arguments of a small call, with the heads, widths and options of a given call.
    """

    def __init__(
        self, implementation: Implementation, operation: Operation, given: Arguments, observe: Observer | None = None
    ) -> None:
        self.inner, self.called = Caller(implementation, operation.name, observe), operation
        sizes, options = operation.sizes(given), operation.named(given)
        self.page_size, self.takes_causal = sizes.get("page_size", 1), "causal" in implementation.features
        features, conventions = (
            {name for name in _OPTIONS if name in implementation.features},
            implementation.conventions,
        )
        is_causal = "causal only" in implementation.support.options or (operation.is_paged and not self.takes_causal)
        if operation.is_paged:
            conventions = replace(implementation.resolved_conventions, causal="bottom_right")
        alone = Implementation(
            implementation.name,
            {"attention": lambda *arrays, **options: None},  # `run` calls the kernel
            arithmetic=implementation.arithmetic,
            conventions=conventions,
            dtype=implementation.dtype,
            supports=["no batch axes", "no masks", "no log-sum-exp", *["causal only"] * is_causal],
            features=features | {"causal"} if is_causal else features,
        )
        super().__init__(alone, "attention")
        known = {name: options[name] for name in features}
        if is_causal or operation.is_paged:
            known["causal"] = is_causal or options["causal"] is not False
        calls = [_zeros({**sizes, "n_q": queries, "n_k": _KEYS}, known) for queries in _QUERIES]
        self.small = next((call for call in calls if self.takes(*call)), calls[0])

    def takes(self, *arguments: Any) -> bool:
        """Return whether the kernel takes a call of attention as one sequence."""
        return super().takes(*arguments) and self.inner.takes(*self._with_one_sequence(arguments))

    def run(
        self, operation: Operation, arguments: Arguments, layout: str = "contiguous"
    ) -> tuple[tuple[Array, ...], list[Any], list[Any], str]:
        """Call the kernel with one sequence. Raises OutsideError if it does not take the call, and
        BrokenError as `Caller.run`.
        """
        call = self._with_one_sequence(arguments)
        if not self.inner.takes(*call):
            raise OutsideError("The kernel does not take this call.")
        out = self.inner.watch(self.called.name, call).results[0].value
        out = np.moveaxis(out.reshape(-1, *out.shape[-2:]), 1, 0)
        return (out, np.full(out.shape[:-1], np.nan)), [], [], ""

    def _with_one_sequence(self, arguments: Arguments) -> Arguments:
        """Return the arguments of the kernel for a call of attention."""
        given = OPERATIONS["attention"].named(arguments)
        arrays = [np.moveaxis(given[name], 0, 1) for name in ("q", "k", "v")]
        placed = _paged(arrays, self.page_size) if self.called.is_paged else _packed(arrays)
        options = {name: given[name] for name in _OPTIONS}
        options["causal"] = bool(given["causal"]) if self.takes_causal else None
        call = tuple((placed | options).get(name) for name in self.called.parameters)
        return with_longest(self.called, self.inner.implementation.features, call)


def _zeros(sizes: dict[str, int], options: dict[str, Any]) -> Arguments:
    """Return the arguments of a call of attention: zeros of some sizes, and options."""
    operation = OPERATIONS["attention"]
    arrays = {name: np.zeros([sizes[axis] for axis in operation.axes[name] if axis != "*"]) for name in ("q", "k", "v")}
    return tuple((arrays | options).get(name) for name in operation.parameters)


def _packed(arrays: Sequence[Any]) -> dict[str, Any]:
    """Return the arrays of one packed sequence, and its boundaries."""
    q, k, v = arrays
    boundaries = {f"cu_{side}": np.array([0, len(x)], np.int32) for side, x in (("q", q), ("k", k))}
    return {"q": q, "k": k, "v": v, **boundaries}


def _paged(arrays: Sequence[Any], page_size: int) -> dict[str, Any]:
    """Return the arrays of one sequence with its keys in pages, and the table of its pages."""
    q, *keys = arrays
    length = len(keys[0])
    number = -(-length // page_size)
    pages = [np.zeros((number * page_size, *x.shape[1:])) for x in keys]
    for page, x in zip(pages, keys, strict=True):
        page[:length] = x
    k_pages, v_pages = (page.reshape(number, page_size, *page.shape[1:]) for page in pages)
    table = {"block_table": np.arange(number, dtype=np.int32)[None], "lengths": np.array([length], np.int32)}
    return {"q": q[None], "k_pages": k_pages, "v_pages": v_pages, **table}
