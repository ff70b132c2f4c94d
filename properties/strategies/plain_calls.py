"""Calls at wanted sizes, with plain numbers: eighths from −1 to 1, which every number format stores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operation import Arguments, Operation
from properties.contract.packing import with_longest
from properties.contract.paging import page_count
from properties.contract.parameters import BATCH, Kind, Parameter

__all__ = [
    "OUTER",
    "Fill",
    "Options",
    "Sizes",
    "call_in_words",
    "equal_scores",
    "exact_call",
    "numbers",
    "plain_call",
    "zero_sinks",
]

Sizes = Mapping[str, int]
"""Sizes by the names of axes and of size parameters."""

Options = Mapping[str, Any]
"""The arguments of a call that are not plain numbers: values, or functions of the sizes of the call."""

OUTER = ("outermost", "outer")
"""The names of leading axes before "batch"."""

Fill = Callable[[Sequence[int], int], Array]
"""The numbers of an array, from its shape and the place of the parameter."""


def numbers(shape: Sequence[int], seed: int = 0) -> Array:
    """Return an array of eighths from −1 to 1, different for each seed."""
    count = np.arange(np.prod(shape, dtype=int))
    return np.asarray(((count * 37 + count // 5 + 11 * seed) % 17 - 8).reshape(shape) / 8.0)


def equal_scores(shape: Sequence[int], seed: int) -> Array:
    """Return queries of zeros, and other arrays with plain numbers that are the same for each batch
    entry and head. Each query then gets the mean of the values that it reads.
    """
    return np.zeros(shape) if seed == 0 else np.array(np.broadcast_to(numbers(shape[-2:], seed), tuple(shape)))


def zero_sinks(sizes: Sizes) -> Array:
    """Return a sink of 0 for each head."""
    return np.zeros(sizes["num_heads"])


def _nothing(shape: Sequence[int], seed: int) -> Array:
    """Return zeros that take no memory, for calls whose sizes alone matter."""
    return np.broadcast_to(0.0, tuple(shape))


def plain_call(
    operation: Operation,
    implementation: Implementation,
    wanted: Sizes,
    options: Options = MappingProxyType({}),
    fill: Fill = numbers,
    *,
    four_axes: bool = False,
) -> Arguments | None:
    """Return the arguments of a call, at the wanted sizes or the next that the implementation takes.
    Arrays have the fewest axes that it takes, or with `four_axes` about four, as in models. Return
    None if the operation has no such options, or the implementation takes no such call.

    "batch" is the size of one leading axis; the others are 1. Axes before it have the names of
    `OUTER`. If heads are leading axes, "num_heads" is the size of another one. Arrays have plain
    numbers, unless `fill` gives others; tables of rotations always have plain numbers.
    """
    for sizes in _sizes(wanted):
        chosen = {name: value(sizes) if callable(value) else value for name, value in options.items()}
        if operation.is_played and "rotates" in implementation.of_caches(operation.name):
            chosen = {"rotates": True, **chosen}
        if operation.is_played and "batch" in operation.parameters:
            chosen = {"batch": 1, **chosen}
        is_pair = operation.is_played and isinstance(chosen.get("window"), tuple)  # a cache's window is a length
        if is_pair or not chosen.keys() <= set(operation.parameters):
            return None
        if operation.is_played and implementation.lacks_of_caches(operation.name, *chosen.keys() - {"steps", "batch"}):
            return None
        chosen = {**_of_every_call(operation, implementation), **chosen}
        for lead in _leads(operation, implementation, wanted, four_axes):
            longest = partial(with_longest, operation, implementation.features)
            if implementation.takes(operation, longest(_call(operation, sizes, lead, chosen, _nothing))):
                return longest(_call(operation, sizes, lead, chosen, fill))
    return None


def exact_call(
    operation: Operation, implementation: Implementation, wanted: Sizes, fill: Fill = numbers
) -> Arguments | None:
    """Return the arguments of a call at exactly the wanted sizes, without options, except for those
    that every call needs; None if the implementation takes no such call. value_dim is head_dim, and
    kv_heads is num_heads, unless they are wanted too. Other sizes are as in `plain_call`.
    """
    following = {other: wanted[name] for name, other in _FOLLOWING.items() if name in wanted}
    options = _of_every_call(operation, implementation)
    for sizes in _sizes({}):
        for lead in _exact_leads(operation, implementation, wanted):
            chosen = {**sizes, **following, **wanted}
            if implementation.takes(operation, _call(operation, chosen, lead, options, _nothing)):
                return _call(operation, chosen, lead, options, fill)
    return None


def _of_every_call(operation: Operation, implementation: Implementation) -> Mapping[str, Any]:
    """The options that the implementation needs in every call."""
    is_causal = "causal" in operation.options and "causal only" in implementation.support.options
    return {"causal": True} if is_causal else {}


def _exact_leads(operation: Operation, implementation: Implementation, wanted: Sizes) -> Iterator[tuple[int, ...]]:
    """The sizes of the leading axes for each number of axes that has all wanted ones. Others are 1."""
    names = ("batch", "num_heads") if _has_leading_heads(operation) else ("batch",)
    held = [wanted[name] for name in names if name in wanted]
    for rank in implementation.ranks(operation):
        if rank >= len(held):
            lead = held if rank == len(held) else [wanted.get(name, 1) for name in names][-rank:]
            yield (*[1] * (rank - len(lead)), *lead)


_FOLLOWING = {"head_dim": "value_dim", "num_heads": "kv_heads"}
"""The size that is equal to another one unless it is wanted too."""

_LENGTHS = ("num_heads", "kv_heads", "n_q", "n_k", "seq_len", "head_dim")


def call_in_words(operation: Operation, arguments: Arguments) -> str:
    """Return a call in words: "attention with causal=True (n_q 3, n_k 5)"."""
    options = [
        f"{name}={value!r}" if isinstance(value, bool | int | float | tuple | str) else f"a {name}"
        for name, value in operation.named(arguments).items()
        if value is not None and (name in operation.options or operation.is_mask(name))
    ]
    lengths = [f"{name} {size}" for name, size in operation.sizes(arguments).items() if name in _LENGTHS]
    sizes = f" ({', '.join(lengths)})" if lengths else ""
    return f"{operation.name}{' with ' if options else ''}{' and '.join(options)}{sizes}"


_PLAIN = {
    "n_q": 3,
    "n_k": 5,
    "seq_len": 3,
    "num_heads": 1,
    "kv_heads": 1,
    "rows": 5,
    "max_len": 5,
    "page_size": 2,
    "height": 2,
    "width": 3,
}
_PACKED = {"total_q": "n_q", "total_k": "n_k"}
"""The rows of all packed sequences of a plain call: the sequences share them, and have unequal lengths."""
_NARROW = {"head_dim": 8, "value_dim": 8, "model_dim": 8, "embed_dim": 8}
_LONGER: tuple[Sizes, ...] = tuple(
    {"n_q": n_q, "n_k": n_k, "seq_len": n_q, "page_size": size}
    for n_q, n_k, size in ((4, 4, 4), (16, 32, 16), (64, 128, 64), (128, 256, 128), (128, 128, 256))
)
_WIDER: tuple[Sizes, ...] = tuple({"head_dim": width, "value_dim": width} for width in (64, 128, 16, 8))
_HEADS: tuple[Sizes, ...] = tuple(
    {"num_heads": heads, "kv_heads": kv_heads} for heads, kv_heads in ((8, 2), (4, 4), (8, 8), (1, 1))
)


def _sizes(wanted: Sizes) -> Iterator[Sizes]:
    """The wanted sizes first, then sizes that kernels with fixed heads, widths or blocks take."""
    for longer, wider, more in product(({}, *_LONGER), ({}, *_WIDER), ({}, *_HEADS)):
        sizes = {**_PLAIN, **_NARROW, **wanted, **longer, **wider, **more}
        yield {**{total: sizes[name] for total, name in _PACKED.items()}, **sizes}


def _leads(
    operation: Operation, implementation: Implementation, wanted: Sizes, four_axes: bool
) -> list[tuple[int, ...]]:
    """The sizes of the leading axes for each number of axes, the preferred number first."""
    names = (*OUTER, "batch", "num_heads") if _has_leading_heads(operation) else (*OUTER, "batch")
    held = [wanted[name] for name in names if name in wanted] if "batch" in wanted else []
    own_axes = len(next(iter(operation.axes.values()), ())) - 1
    preferred = 4 - own_axes if four_axes else len(held)
    ranks = sorted(implementation.ranks(operation), key=lambda rank: abs(rank - preferred))
    return [tuple([1] * (rank - len(held)) + held[len(held) - min(rank, len(held)) :]) for rank in ranks]


def _has_leading_heads(operation: Operation) -> bool:
    """Whether the heads of the operation, if a call has some, are a leading axis."""
    axes = {axis for axes in operation.axes.values() for axis in axes}
    return "num_heads" not in {*axes, *operation.parameters}


_SETTINGS = {"kind": "default", "bidirectional": True, "scale": 0.5, "steps": "append 5; attend 3"}


def _call(
    operation: Operation, sizes: Sizes, lead: tuple[int, ...], options: Mapping[str, Any], fill: Fill
) -> Arguments:
    """The arguments of a call with plain numbers, or with the numbers of `fill`, except for the options."""
    if operation.is_paged:
        sizes, options = _with_pages(sizes, lead, options)
    sizes = operation.with_widths(sizes)
    return tuple(
        options[parameter.name] if parameter.name in options else _plain(parameter, sizes, lead, seed, fill)
        for seed, parameter in enumerate(operation.takes)
    )


def _with_pages(sizes: Sizes, lead: tuple[int, ...], options: Mapping[str, Any]) -> tuple[Sizes, Mapping[str, Any]]:
    """The sizes and the options of a call with pages in falling order. Sequences have unequal lengths,
    and without an axis of sequences unequal numbers of queries.
    """
    batch, count = lead[0] if lead else 2, page_count(sizes["n_k"], sizes["page_size"])
    found: dict[str, Any] = {
        "block_table": np.arange(batch * count, dtype=np.int32)[::-1].reshape(batch, count).copy(),
        "lengths": np.maximum(sizes["n_k"] - np.arange(batch), 0).astype(np.int32),
    }
    if not lead:
        sizes = {**sizes, "n_q": 2 * sizes["n_q"]}
        found["cu_q"] = np.array([0, -(-sizes["n_q"] // 3), sizes["n_q"]], np.int32)
    return {"num_pages": max(batch * count, 1), **sizes}, {**found, **options}


def _plain(parameter: Parameter, sizes: Sizes, lead: tuple[int, ...], seed: int, fill: Fill) -> Any:
    """What a call passes for a parameter that the experiment does not choose."""
    if parameter.optional or parameter.name == "mask":
        return None
    if parameter.kind.is_setting:
        return _SETTINGS[parameter.name]
    if parameter.kind is Kind.LENGTHS:
        count, total = sizes.get("sequences", 2), sizes[f"total_{parameter.name[-1]}"]
        places = np.arange(count + 1)  # the lengths grow as 1, 2, 3, …
        return (total * places * (places + 1) // (count * (count + 1))).astype(np.int32)
    if parameter.kind is Kind.INTEGERS:
        return np.arange(3)
    if parameter.kind is Kind.SIZE:
        return sizes.get(parameter.name, 128 if parameter.name == "max_distance" else 1)
    known = {
        "batch": 2,
        "pairs": 4,
        "buckets": 32,
        **dict.fromkeys(("context_dim", "out_dim"), 6),
        **sizes,
    }
    shape = [size for axis in parameter.axes for size in (lead if axis == BATCH else (known[axis],))]
    if parameter.kind is Kind.MASK:
        return np.ones(shape, bool)
    if parameter.kind is Kind.TOKENS:
        return np.ones(shape, int)
    if parameter.kind is Kind.TABLE:  # one number for each row, so that both channels of every pair have it
        return np.repeat(numbers([*shape[:-1], 1], seed), shape[-1], -1)
    return fill(shape, seed)
