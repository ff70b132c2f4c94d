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

__all__ = ["attention_of_one_sequence"]

_OPTIONS = ("scale", "causal", "window", "softcap", "sink", "alibi")
_SIZES = {"n_q": 2, "n_k": 5}


def attention_of_one_sequence(
    implementation: Implementation, operation: Operation, arguments: Sequence[Any], observe: Observer | None = None
) -> tuple[Implementation, Arguments]:
    """Return an implementation of `attention` that calls packed or paged attention with one sequence, and
    the arguments of a small call of it, with the heads, widths and options of the given call.

    The implementation raises OutsideError for calls that the kernel does not take. With keys in pages the
    queries are the last of the sequence, and see no later keys unless causal is False.
    """
    caller, given = Caller(implementation, operation.name, observe), operation.named(arguments)
    page_size = operation.sizes(tuple(arguments)).get("page_size", 1)

    def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
        found = [np.moveaxis(np.asarray(x, np.float64), 0, 1) for x in (q, k, v)]
        placed = _paged(found, page_size) if operation.is_paged else _packed(found)
        options["causal"] = bool(options.get("causal")) if "causal" in implementation.features else None
        call = tuple((placed | options).get(name) for name in operation.parameters)
        call = with_longest(operation, implementation.features, call)
        if not caller.takes(*call):
            raise OutsideError("The kernel does not take this call.")
        out = caller.watch(operation.name, call).results[0].value
        return np.moveaxis(out.reshape(-1, *out.shape[-2:]), 1, 0).astype(q.dtype)

    features, conventions = {name for name in _OPTIONS if name in implementation.features}, implementation.conventions
    if operation.is_paged:
        conventions = replace(implementation.resolved_conventions, causal="bottom_right")
    is_always_causal = operation.is_paged and "causal" not in features
    alone = Implementation(
        implementation.name,
        {"attention": attention},
        arithmetic=implementation.resolved_arithmetic,
        conventions=conventions,
        supports=["no batch axes", "no masks", "no log-sum-exp", *["causal only"] * is_always_causal],
        features=features | {"causal"} if is_always_causal else features,
    )
    called, sizes = OPERATIONS["attention"], {**operation.sizes(tuple(arguments)), **_SIZES}
    arrays = {name: np.zeros([sizes[axis] for axis in called.axes[name] if axis != "*"]) for name in ("q", "k", "v")}
    known = {name: given[name] for name in features}
    if operation.is_paged:
        known["causal"] = given["causal"] is not False
    return alone, tuple((arrays | known).get(name) for name in called.parameters)


def _packed(arrays: Sequence[Any]) -> dict[str, Any]:
    """Return the arrays of one packed sequence, and its boundaries."""
    q, k, v = arrays
    boundaries = {f"cu_{side}": np.array([0, len(x)], np.int32) for side, x in (("q", q), ("k", k))}
    return {"q": q, "k": k, "v": v, **boundaries}


def _paged(arrays: Sequence[Any], page_size: int) -> dict[str, Any]:
    """Return the arrays of one sequence with its keys in pages, and the table of its pages."""
    q, *keys = arrays
    length, number = len(keys[0]), -(-len(keys[0]) // page_size)
    pages = [np.zeros((number * page_size, *x.shape[1:])) for x in keys]
    for page, x in zip(pages, keys, strict=True):
        page[:length] = x
    k_pages, v_pages = (page.reshape(number, page_size, *page.shape[1:]) for page in pages)
    table = {"block_table": np.arange(number, dtype=np.int32)[None], "lengths": np.array([length], np.int32)}
    return {"q": q[None], "k_pages": k_pages, "v_pages": v_pages, **table}
