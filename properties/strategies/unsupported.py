"""Cases of sizes that an implementation does not support: one of them at a time, all others are supported."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.operations import OPERATIONS, Operation
from properties.strategies.arrays import UnsupportedError, numbers

__all__ = ["sizes_named", "unsupported"]

_LENGTHS = (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 100, 129, 257, 513, 1025, 0)
_WIDTHS = (1, 2, 3, 4, 5, 7, 8, 16, 32, 33, 64, 65, 128, 129, 256, 257, 512, 0)
_SOME: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("n_q", "n_k"), _LENGTHS[:-1]),
    "seq_len": _LENGTHS,
    **dict.fromkeys(("head_dim", "value_dim", "embed_dim", "model_dim"), _WIDTHS),
    **dict.fromkeys(("num_heads", "kv_heads", "batch"), (1, 2, 3, 4, 5, 8)),
    "max_len": (8,),
    "start_pos": (0, 1, 5, 128, 1000, 4096, 2**16 + 1, 2**20),
}
_TRIED = 5  # values of each size
_KEPT = 6  # cases for each size that is not supported
_MOST = 2**22  # start position times width: a learned table has so many rows

_Axes = dict[str, tuple[str, ...]]
_ATTENTION: _Axes = {"q": ("n_q", "head_dim"), "k": ("n_k", "head_dim"), "v": ("n_k", "value_dim"), "grad_out": ("n_q", "value_dim")}
_GROUPED: _Axes = {name: ("kv_heads" if name in "kv" else "num_heads", *axes) for name, axes in _ATTENTION.items()}
_WEIGHTS: _Axes = {**dict.fromkeys(("wq", "wk", "wv"), ("model_dim", "width")), "wo": ("width", "model_dim")}
_AXES: dict[str, _Axes] = {
    "scaled_dot": _ATTENTION,
    "causal_attention": _ATTENTION,
    "grouped": _GROUPED,
    "multi": {**dict.fromkeys(("x", "grad_out"), ("seq_len", "model_dim")), **_WEIGHTS},
    "hard": dict.fromkeys(("scores", "grad_weights"), ("n_q", "n_k")),
    "add": dict.fromkeys(("x", "pos"), ("seq_len", "embed_dim")),
    "learned": {"table": ("rows", "embed_dim")},
    "padding": {"lengths": ("batch",)},
    "combine": dict.fromkeys(("first", "second"), ("n_q", "n_k")),
    "table": {"table": ("rows", "embed_dim"), "indices": ("indices",)},
    **dict.fromkeys(("rope", "apply", "rotate"), dict.fromkeys(("x", "grad_out", "cos", "sin"), ("seq_len", "head_dim"))),
}
_UNBATCHED = {"wq", "wk", "wv", "wo", "pos", "table", "indices", "lengths", "cos", "sin"}
_UNNAMED = {"width", "rows", "indices"}  # sizes that follow from others, or do not matter
_DIFFERENCES = {
    "n_k_minus_n_q": ("n_k", "n_q"),
    "value_dim_minus_head_dim": ("value_dim", "head_dim"),
    "model_dim_minus_heads_width": ("model_dim", "width"),
}


def _axes(operation: str) -> _Axes:
    """The names of each array's last axes."""
    known = next((axes for prefix, axes in _AXES.items() if operation.startswith(prefix)), {})
    parameters = [p for p in OPERATIONS[operation].parameters if p in known or p.removeprefix("d") in known]
    return {p: known[p if p in known else p.removeprefix("d")] for p in parameters}


def sizes_named(operation: str) -> list[str]:
    """The sizes of an operation that `supports` may restrict, but differences."""
    axes = _axes(operation)
    names = [name for of_one in axes.values() for name in of_one if name not in _UNNAMED]
    more = ["num_heads", "head_dim"] if "wq" in axes else []
    numbers_given = [p for p in OPERATIONS[operation].parameters if p in _SOME]
    batch = ["batch"] if set(axes) - _UNBATCHED else []
    return list(dict.fromkeys([*names, *more, *numbers_given, *batch]))


def unsupported(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """Arguments of sizes of which exactly one is not supported. Raises UnsupportedError if none is found."""
    found = [
        sizes for target in (*sizes_named(operation), *_DIFFERENCES) for sizes in itertools.islice(_cases(operation, i, target), _KEPT)
    ]
    if not found:
        raise UnsupportedError(f"{i.name} declares no size that it does not support, among those tried.")
    return st.sampled_from(found).flatmap(lambda sizes: st.tuples(*_arguments(operation, i, sizes)))


def _cases(operation: str, i: Implementation, target: str) -> Iterator[dict[str, int]]:
    """Sizes that are supported but for the target."""
    names = sizes_named(operation)
    if target not in i.restricted or (target == "batch" and not any(i.batch_ranks)):
        return
    others = replace(i, supports={name: predicate for name, predicate in i.restricted.items() if name != target})
    refuses = [n for n in _SOME.get(target, ()) if not i.restricted[target](n)]
    choices = [[n for n in _SOME[name] if others.allows(**{name: n}) and (name != target or n in refuses)][:_TRIED] for name in names]
    if _grouped(operation):
        choices[names.index("num_heads")] = list(_SOME["num_heads"])
    for values in itertools.product(*choices):
        sizes = dict(zip(names, values, strict=True))
        if "model_dim" in sizes:
            sizes["width"] = sizes["num_heads"] * sizes["head_dim"]
        differences = {name: sizes[a] - sizes[b] for name, (a, b) in _DIFFERENCES.items() if a in sizes and b in sizes}
        whole = not _grouped(operation) or sizes["num_heads"] % sizes["kv_heads"] == 0
        refused = [name for name, n in (sizes | differences).items() if name != "width" and not i.allows(**{name: n})]
        if whole and refused == [target] and sizes.get("start_pos", 0) * sizes.get("embed_dim", 1) <= _MOST:
            yield sizes


def _grouped(operation: str) -> bool:
    return operation.startswith("grouped")


def _arguments(operation: str, i: Implementation, sizes: dict[str, int]) -> Iterator[st.SearchStrategy[Any]]:
    o, axes = OPERATIONS[operation], _axes(operation)
    sizes = sizes | {"indices": 3, "rows": sizes.get("seq_len", 0) + sizes.get("start_pos", 0) + ("indices" in axes)}
    ranks = [r - _grouped(operation) for r in i.batch_ranks if r >= _grouped(operation)]
    alone = i.allows(batch=sizes.get("batch", 1))
    lead = (sizes.get("batch", 1),) * (min(ranks) if alone else min([r for r in ranks if r] or [0]))
    for p in o.parameters:
        if p in axes:
            shape = tuple(sizes[name] for name in axes[p])
            unbatched = p in _UNBATCHED or p.removeprefix("d") in _UNBATCHED
            yield _array(o, p, i, shape if unbatched else (*lead, *shape))
        else:
            yield st.just(sizes.get(p))


def _array(o: Operation, parameter: str, i: Implementation, shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """What a parameter may hold: numbers, booleans, or integers, of which 0 is a length and an index."""
    if o.is_integer(parameter):
        return st.just(np.zeros(shape, np.int64))
    if o.is_mask(parameter):
        return st.just(np.ones(shape, bool))
    return numbers(i, shape, target=i.rounding.angle.table if o.is_table(parameter) else None)
