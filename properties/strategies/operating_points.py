"""Operating points: the sizes and options at which models call kernels, and at which kernels take
another path, as tables. A row is one call.

Only sizes and options count. Arrays of numbers are zeros, which are cheap at every size; an input
family of points may fill them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from oracles.conventions import odd_is_refused
from properties.contract.features import FEATURES
from properties.contract.implementation import Implementation
from properties.contract.operation import Arguments, Operation
from properties.contract.support import OutsideError
from properties.strategies.plain_calls import Options, Sizes, numbers, plain_call, zero_sinks

__all__ = [
    "CACHES",
    "GRADIENTS",
    "HEADS",
    "MERGES",
    "OPTIONS",
    "PROBES",
    "READS",
    "ROTATIONS",
    "SCORES",
    "SOFTMAX",
    "TABLES",
    "TERMS",
    "TOKENS",
    "Point",
    "padding",
    "taken_at",
]


@dataclass(frozen=True)
class Point:
    """The sizes and options of one call.

    name      the point in a few words
    sizes     the wanted sizes
    options   the arguments that are not numbers: values, or functions of the sizes of the call. A
              mask with two axes becomes another one for each batch entry and head
    is_exact  whether the point has no calls at other lengths or widths
    """

    name: str
    sizes: Sizes
    options: Options = field(default_factory=dict)
    is_exact: bool = False

    def arguments(self, operation: Operation, implementation: Implementation) -> Arguments | None:
        """Return the arguments of the call, at the wanted sizes or the next that the implementation
        takes, but no shorter ones; None if the operation or the implementation takes no such call.
        """
        found = plain_call(operation, implementation, self.sizes, self.options, lambda shape, seed: np.zeros(shape))
        if found is None or self._is_another(operation.sizes(found)) or _is_refused(operation, implementation, found):
            return None
        drawn = tuple(
            implementation.support.drawn(operation, _each_its_own(operation, found, value))
            if operation.is_mask(name) and value is not None
            else value
            for name, value in operation.named(found).items()
        )
        try:
            return implementation.support.written(operation, drawn)
        except OutsideError:
            return None

    def _is_another(self, sizes: Sizes) -> bool:
        """Whether the sizes of a call have a smaller length than the wanted one, or another length or
        width if the point is exact.
        """
        common = self.sizes.keys() & sizes.keys()
        if self.is_exact:
            return any(sizes[name] != self.sizes[name] for name in common & (_LENGTHS | _WIDTHS))
        return any(sizes[name] < self.sizes[name] for name in common & _LENGTHS)


def taken_at(
    points: Sequence[Point], operation: Operation, implementation: Implementation
) -> tuple[dict[str, Arguments], list[str]]:
    """Return the arguments of the calls at some points by the names of the points, and the names of
    the points without a call.

    An operation has no point with an option that it does not have, or that the implementation does
    not declare. Where the implementation takes only other sizes, two points may be the same call:
    the second point is then without a call.
    """
    taken: dict[str, Arguments] = {}
    known, untaken, declared = set[Any](), list[str](), set(FEATURES) & set(operation.options)
    for point in points:
        options = point.options.keys()
        if not options <= set(operation.parameters) or implementation.lacks(*options & declared):
            continue
        arguments = point.arguments(operation, implementation)
        key = arguments and tuple(map(_identity, operation.parameters, arguments))
        if arguments is None or key in known:
            untaken.append(point.name)
        else:
            known.add(key)
            taken[point.name] = arguments
    return taken, untaken


def _is_refused(operation: Operation, implementation: Implementation, arguments: Arguments) -> bool:
    """Whether the implementation takes no such mask, or not together with causal, or no positions
    of several sequences, or whether its conventions refuse an odd width.
    """
    given, conventions = operation.named(arguments), implementation.resolved_conventions
    width = operation.sizes(arguments).get("head_dim", 0)
    if "odd_lane" in operation.conventions and odd_is_refused(width, conventions):
        return True
    if operation.name == "rotate_half" and width % 2:  # it has two halves
        return True
    mask = given.get("mask")
    if mask is None:
        positions, own_axes = given.get("positions"), 1 + (given.get("sections") is not None)
        return positions is not None and positions.ndim - own_axes > len(operation.lead(arguments))
    kind = "dead" if not mask.any(-1).all() else "keys" if mask.shape[-2:-1] == (1,) else "any"
    together = bool(given.get("causal")) and conventions.causal_with_mask == "refuse"
    return together or bool(implementation.support.without(operation, kind, conventions.dead_rows_flow))


_LENGTHS = {"n_q", "n_k", "seq_len"}
_WIDTHS = {"head_dim", "embed_dim"}


def _identity(name: str, value: Any) -> Any:
    """What tells an argument from others: its shape, and its entries if it is an option."""
    if not isinstance(value, np.ndarray):
        return name, value
    return name, value.shape, value.tobytes() if value.any() else b""


def _each_its_own(operation: Operation, arguments: Arguments, mask: Any) -> Any:
    """A mask of two axes as another one for each batch entry and head, shifted by as many keys; a
    mask of three axes as the same for all; a mask of four axes as the same for all heads, or, if it
    has several of them, as the same for all batch entries.
    """
    heads = (operation.sizes(arguments)["num_heads"],) if "num_heads" in operation.axes["mask"] else ()
    lead = (*operation.lead(arguments), *heads)
    if mask.ndim > 3:
        of_heads = (*[1] * len(lead[:-1]), *lead[-1:]) if mask.shape[1] > 1 else (*lead[:-1], *[1] * bool(lead))
        return np.resize(mask, (*of_heads, *mask.shape[2:]))
    if mask.ndim > 2:
        return np.broadcast_to(mask[0], (*lead, *mask.shape[1:]))
    masks = [np.roll(mask, place, -1) for place in range(int(np.prod(lead, dtype=int)))]
    return np.reshape(masks, (*lead, *mask.shape))


def _pattern(sizes: Sizes) -> Any:
    """A mask in which each query sees some keys of every block, and the next query others."""
    query, key = np.arange(sizes["n_q"])[:, None], np.arange(sizes["n_k"])
    return (3 * query + key) % 4 < 2


def _of_sequences(sizes: Sizes) -> Any:
    """A mask for each batch entry, the same for its heads."""
    return np.stack([np.roll(_pattern(sizes), place, -1) for place in range(sizes["batch"])])[:, None]


def _of_tokens(sizes: Sizes) -> Any:
    """A mask in which no token sees the next one."""
    token = np.arange(sizes["seq_len"])
    return token[:, None] != token - 1


def _starting(sizes: Sizes) -> Any:
    """A mask of the first keys, up to the half. Some queries see no key at all."""
    visible = np.broadcast_to(np.arange(sizes["n_k"]) >= sizes["n_k"] // 2, (sizes["n_q"], sizes["n_k"]))
    return visible & (np.arange(sizes["n_q"]) % 3 > 0)[:, None]


def padding(sizes: Sizes) -> Any:
    """Return a mask of the last third of the keys, for all queries. A point shifts it from head to head."""
    return (np.arange(sizes["n_k"]) < sizes["n_k"] * 2 // 3)[None]


def _triangle(sizes: Sizes) -> Any:
    """A causal mask for all batch entries and heads."""
    return np.tri(sizes["n_q"], sizes["n_k"], dtype=bool)[None]


def _every_other_sink(sizes: Sizes) -> Array:
    """Sinks: every other one is −∞."""
    return np.where(np.arange(sizes["num_heads"]) % 2, 0.0, -np.inf)


def _biases(sizes: Sizes) -> Array:
    """A bias of −∞ where a mask masks a key, else 0."""
    pattern = np.where(_pattern(sizes), 0.0, -np.inf)
    return np.stack([np.roll(pattern, head, -1) for head in range(sizes["num_heads"])])


_GROUPED: Sizes = {"batch": 2, "num_heads": 8, "kv_heads": 2}
_OF_MODELS: Sizes = {**_GROUPED, "head_dim": 64, "value_dim": 64}
_NARROW: Sizes = {"batch": 2, "num_heads": 4, "kv_heads": 2, "head_dim": 8, "value_dim": 32}


def _narrow(n_q: int, n_k: int, **others: int) -> Sizes:
    """The sizes of a call with narrow heads, and other sizes."""
    return {**_NARROW, "n_q": n_q, "n_k": n_k, **others}


def _heads(batch: int, num_heads: int, kv_heads: int, n_q: int, n_k: int) -> Sizes:
    """The sizes of a call with narrow keys and wide values, which tell many keys apart."""
    return {
        **{"batch": batch, "num_heads": num_heads, "kv_heads": kv_heads, "n_q": n_q, "n_k": n_k},
        **{"head_dim": 8, "value_dim": 64},
    }


READS = (
    Point("3 queries, 5 keys", {"n_q": 3, "n_k": 5, "value_dim": 5}),
    Point("fewer queries than keys", _narrow(5, 12)),
    Point("more queries than keys", _narrow(12, 5)),
    Point("33 queries, 65 keys", _narrow(33, 65)),
    Point("70 queries, 40 keys", _narrow(70, 40)),
    Point("1 query, 255 keys", _heads(1, 4, 4, 1, 255)),
    Point("1 query, 256 keys", _heads(3, 8, 1, 1, 256)),
    Point("2 queries, 257 keys", _heads(2, 8, 2, 2, 257)),
    Point("1 query, 1040 keys", _heads(2, 4, 1, 1, 1040)),
    Point("8 queries, 1040 keys", _heads(2, 4, 2, 8, 1040)),
    Point("1 query, 2048 keys", _heads(1, 8, 8, 1, 2048)),
    Point("64 tokens of width 64", {**_OF_MODELS, "n_q": 64, "n_k": 64}),
    Point("64 tokens of width 128", {**_GROUPED, "n_q": 64, "n_k": 64, "head_dim": 128, "value_dim": 128}),
    Point("130 small problems", {"batch": 13, "num_heads": 10, "kv_heads": 5, "n_q": 3, "n_k": 4}),
    Point("3 batch axes", _narrow(3, 5, outermost=2, outer=3)),
    Point("wide values", _narrow(4, 7, head_dim=16, value_dim=40)),
    Point("narrow values", _narrow(4, 7, head_dim=40, value_dim=16)),
    Point("causal, fewer queries", _narrow(5, 12), {"causal": True}),
    Point("causal, more queries", _narrow(12, 5), {"causal": True}),
    Point("causal, 65 queries", _narrow(65, 65), {"causal": True}),
    Point("causal, an offset", _narrow(5, 40), {"causal": True, "offset": 7}),
    Point("a left side", _narrow(9, 12), {"window": (3, None)}),
    Point("a window", _narrow(40, 40), {"window": (5, 2)}),
    Point("a right side", _narrow(9, 12), {"window": (None, 3)}),
    Point("causal, a window", _narrow(65, 65), {"causal": True, "window": (16, None)}),
    Point("a window, an offset", _narrow(4, 40), {"window": (8, 0), "offset": 30}),
    Point(
        "a window, an offset for each sequence", _narrow(4, 40, batch=3),
        {"causal": True, "window": (8, None), "offset": lambda sizes: np.array([3, 20, 35][: sizes["batch"]])},
    ),
    Point("a softcap, causal", _narrow(9, 9), {"softcap": 2.0, "causal": True}),
    Point("a sink", _narrow(5, 12), {"sink": zero_sinks}),
    Point("causal, a scale of 0", _narrow(5, 5), {"causal": True, "scale": 0.0}),
    Point("causal, a scale below 0", _narrow(5, 5), {"causal": True, "scale": -0.25}),
    Point("sinks of −∞", _narrow(5, 12), {"sink": _every_other_sink}),
    Point("heads in groups of 3", _heads(2, 6, 2, 4, 5)),
    Point("1 query, a mask", _heads(2, 4, 1, 1, 40), {"mask": _pattern}),
    Point("1 key, a mask", _narrow(5, 1), {"mask": _pattern}),
    Point("a causal mask", _narrow(40, 40), {"mask": _triangle}),
    Point("a mask of keys", _narrow(9, 9), {"mask": padding}),
    Point("fully masked rows", _narrow(9, 40), {"mask": _starting}),
    Point(
        "fully masked rows, a sink", _narrow(9, 8),
        {"mask": _starting, "sink": zero_sinks},
    ),
    Point("a mask", _narrow(33, 65), {"mask": _pattern}),
    Point("mask and softcap", _narrow(5, 9), {"softcap": 2.0, "mask": _pattern}),
    Point("a mask, causal", _narrow(9, 9), {"mask": _pattern, "causal": True}),
    Point("a bias of −∞", _narrow(5, 12), {"bias": _biases}),
    Point("a mask for each sequence", _narrow(5, 8), {"mask": _of_sequences}),
    Point("no channels", _narrow(3, 5, head_dim=0), is_exact=True),
)  # fmt: skip
"""Where laws ask which keys each query reads."""

OPTIONS = tuple(point for point in READS if point.options)
"""The points with options, where laws ask what the log-sum-exp counts."""

HEADS = (
    Point("3 heads on 2 key heads", {"num_heads": 3, "kv_heads": 2}),
    Point("2 heads on 4 key heads", {"num_heads": 2, "kv_heads": 4}),
)
"""Where laws ask whether heads that do not divide are refused."""


SCORES = (
    Point("width 4", {"n_q": 3, "n_k": 5, "head_dim": 4}),
    Point("width 6", {**_NARROW, "head_dim": 6}),
    Point("width 12", {**_NARROW, "head_dim": 12}, {"mask": np.ones((1, 1), bool)}),
    Point("width 64", _OF_MODELS),
    Point("width 96", {"head_dim": 96, "value_dim": 96}),
    Point("width 128", {"head_dim": 128, "value_dim": 128}),
    Point("a scale", {**_NARROW, "head_dim": 8}, {"scale": 0.25}),
    Point("a scale of 0", {**_NARROW, "head_dim": 8}, {"scale": 0.0}),
)
"""Where laws ask how scores are formed."""

PROBES = (
    Point("5 queries, 9 keys", _narrow(5, 9)),
    Point("64 tokens of width 64", {**_OF_MODELS, "n_q": 64, "n_k": 64}),
    Point("130 tokens", {"n_q": 130, "n_k": 130, "head_dim": 64, "value_dim": 8}),
    Point("33 queries, 300 keys", {"n_q": 33, "n_k": 300, "head_dim": 128, "value_dim": 128}),
    Point("a scale", {"n_q": 16, "n_k": 40, "head_dim": 128, "value_dim": 128}, {"scale": 0.125}),
    Point("1 query, 1040 keys", _heads(1, 4, 1, 1, 1040)),
    Point("16 queries, 2049 keys", {"n_q": 16, "n_k": 2049, "head_dim": 64, "value_dim": 64}),
)
"""Where laws ask whether results of 16 bits are the only ones that rounding allows."""

_SMALL: Sizes = {"batch": 2, "num_heads": 4, "kv_heads": 2, "n_q": 4, "n_k": 6, "head_dim": 4, "value_dim": 6}

TERMS = (
    Point("small", _SMALL),
    Point("a softcap", _SMALL, {"softcap": 3.0}),
    Point("a scale", _SMALL, {"scale": 0.25}),
    Point("a scale and a softcap", _SMALL, {"scale": 0.25, "softcap": 3.0}),
)
"""Where laws ask how weights follow from scores, and where biases, sinks and masks go."""

MERGES = (Point("two parts", {"batch": 2, "n_q": 20, "value_dim": 3}),)
"""Where laws ask which weights two parts of the keys get."""

CACHES = (Point("a program", {"n_q": 3, "n_k": 5}),)
"""Where laws ask what caches read. The instrument has its own programs."""

SOFTMAX = (
    Point("5 keys", {"n_q": 11, "n_k": 5}),
    Point("33 keys", {"batch": 2, "n_q": 11, "n_k": 33}),
    Point("300 keys", {"n_q": 11, "n_k": 300}),
    Point("one key", {"n_q": 11, "n_k": 1}),
    Point("a mask", {"batch": 3, "n_q": 11, "n_k": 13}, {"mask": _pattern}),
    Point("a mask of keys", {"batch": 3, "n_q": 11, "n_k": 13}, {"mask": padding}),
    Point("fully masked rows", {"batch": 2, "n_q": 11, "n_k": 40}, {"mask": _starting}),
)
"""Where laws ask what a softmax gives."""

_FEW_TOKENS: Sizes = {"batch": 2, "num_heads": 2, "head_dim": 3, "model_dim": 6}

TOKENS = (
    Point("7 tokens", {**_FEW_TOKENS, "seq_len": 7}),
    Point("2 tokens", {**_FEW_TOKENS, "seq_len": 2}),
    Point("4 tokens, 4 heads", {"num_heads": 4, "head_dim": 8, "model_dim": 12, "seq_len": 4}),
    Point(
        "a mask",
        {**_FEW_TOKENS, "seq_len": 12, "head_dim": 8, "model_dim": 16},
        {"mask": _of_tokens},
    ),
)
"""Where laws ask what multi-head attention adds up."""


def _few(n_q: int, n_k: int) -> Sizes:
    """The sizes of a call with few channels."""
    return {"batch": 2, "num_heads": 4, "kv_heads": 2, "n_q": n_q, "n_k": n_k, "head_dim": 5, "value_dim": 3}


GRADIENTS = (
    Point("3 queries, 4 keys", {"n_q": 3, "n_k": 4, "head_dim": 3, "value_dim": 5}),
    Point("4 queries, 3 keys", _few(4, 3)),
    Point("33 queries, 65 keys", _narrow(33, 65)),
    Point("17 tokens of width 64", {"n_q": 17, "n_k": 17, "head_dim": 64, "value_dim": 64}),
    Point("1 query", _few(1, 6)),
    Point("70 queries", _few(70, 9)),
    Point("a mask", _few(40, 40), {"mask": _pattern}),
    Point("a causal mask", _few(9, 9), {"mask": _triangle}),
    Point("fully masked rows", _few(9, 8), {"mask": _starting}),
    Point("causal, fewer queries", _few(5, 8), {"causal": True}),
    Point("causal, more queries", _few(8, 5), {"causal": True}),
    Point("a scale", _few(5, 6), {"scale": 0.25}),
    Point("a window, an offset", _few(4, 12), {"window": (3, 1), "offset": 5}),
    Point("a softcap", _few(20, 6), {"softcap": 2.0}),
    Point("a sink", _few(5, 6), {"sink": zero_sinks}),
    Point("a bias of −∞", _few(5, 6), {"bias": _biases}),
    Point("a bias for all queries", _few(5, 6), {"bias": lambda sizes: np.zeros((1, sizes["n_k"]))}),
    Point(
        "a cotangent of the log-sum-exp",
        {"num_heads": 4, "kv_heads": 2, "n_q": 5, "n_k": 6},
        {"grad_lse": lambda sizes: np.ones((sizes["num_heads"], sizes["n_q"]))},
    ),
)
"""Where laws ask where gradients come from."""


def _rows(batch: int, heads: int, seq_len: int, width: int, start: int = 0) -> Sizes:
    """The sizes of a call of rope, and its first position."""
    return {"batch": batch, "num_heads": heads, "seq_len": seq_len, "head_dim": width, "start_pos": start}


def _of_axes(sizes: Sizes) -> Any:
    """Positions in time, height and width."""
    return np.arange(sizes["seq_len"]) % np.array([[64], [5], [3]]) + np.array([[0], [2], [7]])


def _sections(sizes: Sizes) -> tuple[int, ...]:
    """How many pairs rotate by time, by height and by width."""
    pairs = sizes["head_dim"] // 2
    height, width = (pairs + 1) // 3, pairs // 3
    return pairs - height - width, height, width


def _packed(sizes: Sizes) -> Any:
    """The positions of two sequences in one row of tokens."""
    return np.arange(sizes["seq_len"]) % max(sizes["seq_len"] // 2, 1)


def _frequencies(sizes: Sizes) -> Array:
    """Frequencies 1, 1/3, 1/5 …, the last of them 0."""
    pairs = np.arange(sizes["head_dim"] // 2)
    return np.where(pairs < len(pairs) - 1, 1.0 / (2 * pairs + 1), 0.0)


def _table(sizes: Sizes, seed: int = 1) -> Array:
    """A table that does not rotate: two channels of a pair have different numbers."""
    return numbers((sizes["seq_len"], sizes["head_dim"]), seed)


_other_table = partial(_table, seed=2)
_TABLES: Options = {"cos": _table, "sin": _other_table}


ROTATIONS = (
    Point("1 row", _rows(2, 3, 1, 8, 7)),
    Point("150 rows", _rows(2, 1, 150, 4)),
    Point("tables of other numbers", _rows(2, 1, 5, 8), _TABLES),
    Point("tables as long as wide", _rows(1, 1, 8, 8), _TABLES),
    Point("4 rows of width 6", _rows(2, 1, 4, 6)),
    Point("33 rows", _rows(2, 3, 33, 8, 5)),
    Point("width 64", _rows(2, 2, 5, 64, 3)),
    Point("width 96", _rows(1, 1, 3, 96, 1)),
    Point("width 128", _rows(1, 2, 3, 128, 1000)),
    Point("far positions", _rows(1, 1, 3, 16, 65536)),
    Point("10264 rows", _rows(1, 8, 1283, 4)),
    Point("positions", _rows(2, 2, 10, 16), {"positions": _packed}),
    Point(
        "positions of each sequence",
        {"batch": 2, "seq_len": 10, "head_dim": 16, "start_pos": 0},
        {"positions": lambda sizes: _packed(sizes) + np.array([[0], [7]])},
    ),
    Point("a part of the channels", _rows(2, 2, 5, 16, 2), {"rotary_dim": 8}),
    Point("10264 rows, a part of the channels", _rows(1, 8, 1283, 4, 2), {"rotary_dim": 2}),
    Point("frequencies", _rows(2, 2, 5, 8, 2), {"inv_freq": _frequencies}),
    Point("an attention factor", _rows(2, 2, 5, 8, 2), {"attention_factor": 1.25}),
    Point("sections", _rows(2, 2, 10, 16), {"positions": _of_axes, "sections": _sections}),
    Point("the row after 1 row", _rows(2, 1, 1, 8, 8)),
    Point("other tables", _rows(2, 1, 5, 8), {"cos": _other_table, "sin": _table}),
    Point("an odd width", _rows(2, 2, 5, 7, 500), is_exact=True),
    Point("no channels", _rows(2, 1, 3, 0), is_exact=True),
    Point("no rows", _rows(2, 1, 0, 8), is_exact=True),
)
"""Where laws ask how rows are rotated."""

TABLES = (
    Point("small", {"seq_len": 5, "head_dim": 8, "embed_dim": 8, "start_pos": 0, "n_q": 3, "n_k": 3, "num_heads": 4}),
    Point("wide", {"seq_len": 9, "head_dim": 64, "embed_dim": 64, "start_pos": 7, "n_q": 5, "n_k": 9, "num_heads": 12}),
    Point("long", {"seq_len": 300, "head_dim": 6, "embed_dim": 6, "start_pos": 3, "n_q": 9, "n_k": 5, "num_heads": 6}),
    Point("far positions", {"seq_len": 3, "head_dim": 16, "embed_dim": 16, "start_pos": 65536, "n_q": 64, "n_k": 64}),
    Point("many rows", {"n_q": 300, "n_k": 260, "head_dim": 128, "num_heads": 1}),
    Point("an offset", {"n_q": 3, "n_k": 9, "num_heads": 4}, {"offset": 6}),
    Point("the rows after 5 rows", {"seq_len": 5, "head_dim": 8, "embed_dim": 8, "start_pos": 5, "n_q": 3, "n_k": 9}),
    Point("an odd width", {"seq_len": 3, "head_dim": 7, "start_pos": 2}, is_exact=True),
    Point("no channels", {"seq_len": 3, "head_dim": 0, "start_pos": 2}, is_exact=True),
)
"""Where laws ask what the entries of tables and masks are that follow from sizes alone."""
