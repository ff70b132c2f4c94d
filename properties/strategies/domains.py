"""Domains: kinds of cases, from which each operation's are drawn, by the names of its axes.

A case is chosen from one seed. Sizes are chosen among those that an implementation supports, so that nothing has to be thrown away.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np

from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.strategies import features, masks
from properties.strategies.choices import Choices, rounded
from properties.strategies.dominating import LONG as FARTHEST
from properties.strategies.dominating import MANY, dominating, scores_of

__all__ = ["DOMAINS", "ODDITIES", "QUIRKS", "Cases", "Domain", "UnsupportedError"]


class UnsupportedError(ValueError):
    """An implementation supports no case of the kind that is to be drawn; the message says why in a sentence."""


SHORT = (1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 33)
TILES = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 130, 191, 192, 193, 255, 256, 257, 300)
"""Lengths around the tiles of kernels: powers of two and their neighbours, and lengths that leave tails."""

LONG = (*TILES[9:], 511, 512, 513, 640, 1000, 1023, 1024, 1025, 1100)
"""Lengths past a tile, a table of 256, 512 or 1024 rows, and to 1100, where what drifts from row to row has drifted."""

LENGTHS = (2, 1, 3, *SHORT * 5, *TILES)
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16)
BROAD = (*WIDTHS, *WIDTHS, 9, 20, 24, 32, 63, 64, 65, 80, 96, 128)
EVEN = (2, 4, 6, 8, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 80, 96, 128)
ODD = (1, 3, 5, 7, 9, 11, 15, 17, 33, 63, 65, 127)
_FEW = (1, 2, 3, 4, 5, 8)
_SEQUENCES = (1, 2, 3, 4, 5, 7)
_EDGES = (0, 1, 2, 3, 16, *(2**n + e for n in range(7, 21) for e in (-2, -1, 0, 1)))
_PARTICULAR = (32, 64, 80, 96, 128, 24, 40, 48, 56, 63, 65, 72, 112, 127, 129, 160, 192, 256)

SIZES: dict[str, Sequence[int]] = {
    "n_q": LENGTHS,
    "n_k": LENGTHS,
    "head_dim": BROAD,
    "value_dim": BROAD,
    "embed_dim": (1, 2, 3, 4, 5, 8, 16),
    "seq_len": (*_SEQUENCES * 6, *LONG),
    "model_dim": (1, 2, 3, 5),
    "num_heads": (1, 2, 3, 4),
    "kv_heads": (1, 2, 3),
    "max_len": LENGTHS,
    "rows": (1, 2, 3, 16, 100),
    "batch": (1, 2, 3),
}
"""The sizes of everyday cases, the simplest first."""

_WIDTH = {"rope": EVEN, "apply_rotary": EVEN, "rotate_half": EVEN, "inv_freq": EVEN, "rope_angles": EVEN, "rope_tables": EVEN}
_TOKENS = {"seq_len": (2, 3, 1, 4, 5, 8, 9, 2, 3, 4, 5, 17, 33, 64, 65), "head_dim": (1, 2, 3, 4, 8, 16, 5, 24, 32)}
_MOST = 9000  # entries of one problem: long ones are narrow
_TABLE = 2**22  # numbers of a learned table
_LARGE = 2**12  # scores, or entries, of one problem from which on a batch has few problems
_KINDS = ("grid", "fixed", "normal")

SCALES: dict[str, Sequence[float]] = {"q": (1.0, 0.25, 8.0), "v": (1.0, 0.125, 8.0), "scores": (1.0, 0.25, 8.0)}
"""Powers of two by which everyday numbers are multiplied: logits to a few hundred, where budgets of gradients still say something."""

Finish = Callable[[Operation, Implementation, dict[str, Any], Choices], None]


@dataclass(frozen=True)
class Domain:
    """A kind of cases: the sizes and scales that are not those of everyday cases, which masks there are, what is done to a case at last.

    `features` are given in every case. `masks_are` says whether masks are "loose", with axes of size 1 or fewer axes, or of "keys" alone.
    Of the cases asked for it gets the share `share`.
    """

    name: str
    statement: str
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    scales: Mapping[str, Sequence[float]] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    mask: masks.Masks = masks.any_or_none
    masks_are: Literal["", "loose", "keys"] = ""
    rank: int = 0
    share: float = 1.0
    finish: Finish | None = None


class Cases:
    """The cases of an operation in a domain for an implementation. Raises UnsupportedError where it supports none."""

    def __init__(self, operation: Operation, domain: Domain, implementation: Implementation) -> None:
        self.operation, self.domain, self.implementation = operation, domain, implementation
        self.ranks = [rank for rank in implementation.ranks(operation) if rank >= domain.rank]
        if not self.ranks:
            taken = implementation.batch_ranks if implementation.support.batches else "no"
            raise UnsupportedError(f"{implementation.name} takes {taken} leading axes, but more are needed.")
        if why := implementation.support.without(operation, domain.masks_are):
            raise UnsupportedError(why)
        if why := implementation.lacks(*domain.features):
            raise UnsupportedError(why)
        self._supported: dict[Any, Sequence[int]] = {}
        self._fixed = [] if implementation.support.shapes is None else self._some(implementation.support.shapes.most)
        self.arguments(Choices(0))

    def draw(self, seed: int) -> tuple[Any, ...]:
        """The arguments of one case."""
        return self.arguments(Choices(seed))

    def arguments(self, choose: Choices) -> tuple[Any, ...]:
        """The arguments of a case, from what is chosen."""
        o, i = self.operation, self.implementation
        sizes, lead = self._fixed_sizes(choose) if self._fixed else self._any_sizes(choose)
        kind = choose.among(_KINDS)
        found: dict[str, Any] = {}
        options = features.chosen(o, i, self.domain.features, choose)
        for p in o.parameters:
            axes = o.axes.get(p)
            if p in o.options and p not in options:
                found[p] = None
                continue
            if o.is_setting(p):
                found[p] = features.setting(p, i, sizes, lead, choose)
                continue
            if axes is None:
                found[p] = sizes[p]
                continue
            shape = tuple(n for axis in axes for n in (lead if axis == BATCH else (sizes[axis],)))
            if p == "bias":
                found[p] = features.bias(shape, i.resolved_arithmetic.inputs, kind, choose)
            elif p == "sink":
                found[p] = features.sink(shape[0], i.resolved_arithmetic.inputs, kind, choose)
            elif p == "dbias":
                found[p] = self._numbers(p, found["bias"].shape, kind, choose)
            elif o.is_mask(p):
                found[p] = self.domain.mask(choose, i.support.mask_shape(o, shape))
            elif o.is_integer(p):
                found[p] = _integers(p, shape, sizes, choose)
            else:
                found[p] = self._numbers(p, shape, kind, choose)
        if self.domain.finish is not None:
            self.domain.finish(o, i, found, choose)
        return i.support.written(o, tuple(found.values()))

    def _numbers(self, p: str, shape: tuple[int, ...], kind: str, choose: Choices) -> Array:
        a = self.implementation.resolved_arithmetic
        target = self.operation.stored(p, a)
        if self.operation.is_table(p):
            return choose.numbers(shape, target, kind)
        scales = self.domain.scales.get(p) or SCALES.get(p, (1.0,))
        if p in ("wq", "wk", "wv", "wo"):  # everyday projections, and scores, of tokens of size 8
            scales = [scale * 2.0 ** -round(np.log2(8 * np.sqrt(max(shape[0], 1)))) for scale in (1.0, 0.25, 4.0, *[0.0] * (p == "wq"))]
        return rounded(choose.numbers(shape, target, kind) * choose.among(scales), target)

    def _any_sizes(self, choose: Choices) -> tuple[dict[str, int], tuple[int, ...]]:
        """Sizes and leading axes, of all that are supported."""
        sizes = self._sizes(choose)
        return sizes, self._lead(sizes, choose)

    def _fixed_sizes(self, choose: Choices) -> tuple[dict[str, int], tuple[int, ...]]:
        """Sizes and leading axes among few; a position is no shape, but that of a table, which has so many rows."""
        sizes, lead = choose.among(self._fixed)
        moved = {"start_pos": self._start(sizes, choose)} if "start_pos" in sizes and "rows" not in sizes else {}
        return sizes | moved, lead

    def _some(self, most: int) -> list[tuple[dict[str, int], tuple[int, ...]]]:
        """Few sizes and leading axes, the same for every seed: a quarter of the shapes, for masks and laws ask for others.

        They are those of everyday cases where the domain has such, so that domains share them.
        """
        if self.domain.name == "everyday":
            found = [self._any_sizes(Choices(seed)) for seed in range(4 * most)]
            return [each for place, each in enumerate(found) if each not in found[:place]][: max(1, most // 4)]
        everyday = Cases(self.operation, DOMAINS[self.operation.name]["everyday"], self.implementation)._fixed
        return [each for each in everyday if self._has(*each)] or [self._any_sizes(Choices(0))]

    def _has(self, sizes: dict[str, int], lead: tuple[int, ...]) -> bool:
        """Whether sizes and leading axes are some of this domain."""
        own = self.domain.sizes
        batch = all(n in own["batch"] for n in lead) if "batch" in own else True
        return (
            len(lead) >= self.domain.rank and batch and all(sizes[name] in own[name] for name in own if name in sizes and name != "batch")
        )

    def _lead(self, sizes: dict[str, int], choose: Choices) -> tuple[int, ...]:
        """The leading axes: mostly the fewest that are taken, and few where a problem is large."""
        if BATCH not in {axis for axes in self.operation.axes.values() for axis in axes}:
            return ()
        rank = choose.among([self.ranks[0], *self.ranks])
        size = prod(sizes[name] for name in ("n_q", "n_k") if name in sizes) * sizes.get("seq_len", 1)
        options = self._options("batch", self.domain.sizes.get("batch", SIZES["batch"] if size <= _LARGE else (1,)))
        return tuple(choose.among(options) for _ in range(rank))

    def _sizes(self, choose: Choices) -> dict[str, int]:
        """Sizes by name, each chosen among those supported beside the ones before."""
        found: dict[str, int] = {}
        for name in self._names():
            if name == "start_pos":
                found[name] = self._start(found, choose)
            elif name == "heads_width":
                found["head_dim"] = self._among("head_dim", found, choose)
                found[name] = found["num_heads"] * found["head_dim"]
                found["model_dim"] = self._among("model_dim", found, choose, ("heads_width", found[name]))
            else:
                relative = {"n_k": "n_q", "value_dim": "head_dim"}.get(name)
                found[name] = self._among(name, found, choose, (relative, found[relative]) if relative in found else None)
        return found

    def _names(self) -> Iterable[str]:
        """The sizes to choose, in an order in which each may depend on those before."""
        o = self.operation
        if "wq" in o.axes:
            return ("seq_len", "num_heads", "heads_width")
        named = dict.fromkeys(
            axis for p in o.parameters for axis in o.axes.get(p, (p,)) if axis not in (BATCH, "pairs") and not o.is_setting(axis)
        )
        late = {"start_pos": 1, "rows": 2, "num_heads": 1}
        return sorted(named, key=lambda name: late.get(name, 0))

    def _among(self, name: str, found: dict[str, int], choose: Choices, beside: tuple[str, int] | None = None) -> int:
        listed = self._listed(name, found)
        options = self.domain.sizes.get(name) or listed or self._default(name)
        if self.domain is ODDITIES:
            options = (*options, *listed)
        if name == "num_heads" and "kv_heads" in found and not self.implementation.support.listed(name):
            options = [found["kv_heads"] * group for group in (1, 2, 3)]
        if name == "rows":  # of a table, as many as are read, or more
            least = max(1, found.get("start_pos", 0) + found.get("seq_len", 0))
            options = [least + n for n in (0, 1, 3, 16, 100)] if "seq_len" in found else (*SHORT, 100, 127, 128, 129, 257, 300)
        if name == "seq_len" and (width := found.get("head_dim", found.get("embed_dim"))):
            options = [n for n in options if n * width <= _MOST] or options[:1]
        if beside is not None and choose.happens(0.25):  # squares are cases of their own, where the domain has them
            meant = beside[1] in self.domain.sizes.get(name, beside[1:])
            options = (beside[1],) if meant and self._is_supported(name, beside[1], beside) else options
        if beside is not None and f"{name}_minus_{beside[0]}" in self.implementation.restricted:
            options = [n for n in options if self._is_supported(name, n, beside)] or beside[1:]
        supported = self._options(name, options, beside)
        return min(supported) if choose.simplest else choose.among(supported)

    def _listed(self, name: str, found: dict[str, int]) -> Sequence[int]:
        """Those of a list of supported sizes that everyday cases may have: no odd widths of pairs, and whole groups of heads."""
        listed, default = self.implementation.support.listed(name), self._default(name)
        if name == "kv_heads" and (heads := self.implementation.support.listed("num_heads")):
            return [n for n in listed or default if any(m % n == 0 for m in heads)]
        kv_heads = found.get("kv_heads", 1)
        return [n for n in listed if n > 0 and not (default is EVEN and n % 2) and not (name == "num_heads" and n % kv_heads)]

    def _default(self, name: str) -> Sequence[int]:
        o = self.operation
        if "wq" in o.axes:
            return _TOKENS.get(name) or SIZES[name]
        return (
            _WIDTH.get(o.forward, SIZES[name])
            if name == "head_dim"
            else EVEN
            if o.name.startswith("sinus") and name == "embed_dim"
            else SIZES[name]
        )

    def _options(self, name: str, options: Sequence[int], beside: tuple[str, int] | None = None) -> Sequence[int]:
        """Those that are supported."""
        difference = f"{name}_minus_{beside[0]}" if beside else ""
        key = name, tuple(options), beside if difference in self.implementation.restricted else None
        if key not in self._supported:
            self._supported[key] = [n for n in options if self._is_supported(name, n, beside)]
        if not self._supported[key]:
            raise UnsupportedError(f"{self.implementation.name} supports no {name} among {list(dict.fromkeys(options))}.")
        return self._supported[key]

    def _is_supported(self, name: str, n: int, beside: tuple[str, int] | None) -> bool:
        i = self.implementation
        undefined = (
            self.domain is not ODDITIES
            and name == "embed_dim"
            and self.operation.name.startswith("sinus")
            and i.resolved_conventions.sinusoid_layout == "tensor2tensor"
            and (n % 2 or n == 2)
        )
        differs = beside is not None and not i.allows(**{f"{name}_minus_{beside[0]}": n - beside[1]})
        return not undefined and not differs and i.allows(**{name: n})

    def _start(self, found: dict[str, int], choose: Choices) -> int:
        """A position that is supported, else 0: small, next to a power of two, or any; small ones for tables, which have so many rows."""
        options: Sequence[int] | None = self.domain.sizes.get("start_pos") or self.implementation.support.listed("start_pos") or None
        if options is not None and "embed_dim" in found:
            options = [n for n in options if n * found["embed_dim"] <= _TABLE]
        if options is None and "rows" in {axis for axes in self.operation.axes.values() for axis in axes}:
            options = (*range(7), 60, 126, 127, 128, 129, 200, 255, 256, 257)
        if options is not None:
            return choose.among(self._options("start_pos", options))
        position = choose.among([choose.integer(0, 16), choose.among(_EDGES), choose.integer(0, 2**20)])
        return position if self.implementation.allows(start_pos=position) else 0


def _integers(p: str, shape: tuple[int, ...], sizes: dict[str, int], choose: Choices) -> Any:
    """Lengths of sequences, empty and full ones among them; indices into a table, of its last row too."""
    if p == "lengths":
        n = sizes["max_len"]
        return np.array([choose.among([choose.integer(0, n), n, max(n - 1, 0), 0]) for _ in range(shape[0])], np.int64)
    rows = sizes["rows"]
    chosen = choose.integers(0, rows - 1, shape or (choose.integer(1, 8),))
    return np.where(choose.bits(chosen.shape, 0.2), rows - 1, chosen).astype(np.int64)


# -- The domains ---------------------------------------------------------------------------------------------------------------------


def _far(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Scores of any size that the formats have: they vary within a row, share a sign, or differ by everyday numbers far from 0.

    Where they vary by thousands one key has all the weight, and gradients are 0; where a lane that all keys share brings them far from 0,
    weights and gradients are those of everyday scores.
    """
    if "mask" not in x:
        _alive(o, i, x, choose)
    a = i.resolved_arithmetic
    reach = int(np.log2(min(a.inputs.largest, a.elementwise.largest, a.scores.largest if a.scores else np.inf)))
    power = choose.among([8, 6, 10, 12, 14, 17, 20, 24, 30, 40, 60, 100, 200, 400])
    if "scores" in x:
        s, kind = x["scores"], choose.among(["spread", "offset", "offset"])
        size = 2.0 ** min(power + 3, reach - 5)
        x["scores"] = rounded(s * size / 8 if kind == "spread" else s + size * choose.signs(s.shape[-2])[:, None], a.inputs)
        return
    if "wq" in x:
        x["wq"] = rounded(x["wq"] * 2.0 ** min(power, reach - 20, reach // 2), a.inputs)
        return
    q, k = x["q"], x["k"]
    kind = choose.among(["spread", "signs", "offset", "offset"])
    size = 2.0 ** min(power, reach - 14, reach // 2 + 4)
    if kind == "offset" and q.shape[-1] > 1:
        q, k = q / 4, k.copy()
        k[..., 0] = choose.among([64.0, 256.0, -256.0])
        q[..., 0] = np.clip(q[..., 0] * 64, -128, 128) if size < 2.0**12 else size / 256 * np.sign(q[..., 0])
    elif kind == "signs":
        q, k = choose.signs(q.shape[-2])[:, None] * np.abs(q) * size, np.abs(k)
    else:
        q = q * size
    x["q"], x["k"] = rounded(q, a.inputs), rounded(k, a.inputs)


def _dominating(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """A few keys share the weight of each query; of a tangent, that of the values reads out the weights as values do."""
    score = choose.among(scores_of(i.resolved_arithmetic))
    rng = np.random.default_rng(choose.integer(0, 2**32))
    q, k, v = dominating(rng, x["q"].shape[-2], x["k"].shape[-2], x["q"].shape[-1], x["v"].shape[-1], score, i.resolved_arithmetic.inputs)
    for name, found in (("q", q), ("k", k), ("v", v)):
        x[name] = np.broadcast_to(found, x[name].shape).copy()
    if "dv" in x:
        x["dv"], still = x["v"][..., ::-1].copy(), choose.among([0.0, 1 / 64])
        x["dq"], x["dk"] = (rounded(x[name] * still, i.resolved_arithmetic.inputs) for name in ("dq", "dk"))


_ATTENTION = ("scaled_dot_product_attention", "scaled_dot_product_attention_vjp", "scaled_dot_product_attention_jvp")
_SOFTMAX = ("hard_masked_softmax", "hard_masked_softmax_vjp")
_HEADS = ("multi_head_attention", "multi_head_attention_vjp", "multi_head_attention_jvp")
_GROUPED = ("grouped_query_attention",)
_CAUSAL = ("causal_attention",)
_FEATURED = ("attention", "attention_vjp", "attention_jvp")
_ROTARY = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp", "rope_angles", "rope_tables", "inv_freq")

QUIRKS = ("dead rows", "odd widths", "no rows", "no columns", "width zero")
"""Domains of which laws of their own say what should be, by convention: agreement is not asked for."""

DOMAINS: dict[str, dict[str, Domain]] = {name: {} for name in OPERATIONS}
"""The domains of each operation, by name."""


def _domain(name: str, statement: str, *operations: str, **entry: Any) -> None:
    for operation in operations:
        DOMAINS[operation][name] = Domain(name, statement, **entry)


def _alive(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Where the alignment is bottom right, at least as many keys as queries, so that no query is dead."""
    if i.resolved_conventions.causal == "bottom_right":
        x["q"] = x["q"][..., : x["k"].shape[-2], :]


def _unmasked(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """As it is, but alive where the mask is causal."""
    if "mask" not in x:
        _alive(o, i, x, choose)


def _shared(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """An encoding for each problem, or one for all."""
    if choose.happens():
        x["pos"] = x["pos"][(0,) * (x["pos"].ndim - 2)]


def _parts(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Parts of the keys whose weights differ by everyday factors, or by thousands, near 0 or far from it; some are empty, and not read."""
    target, far = o.stored("lse_a", i.resolved_arithmetic), choose.among([1.0, 4.0, 64.0])
    common = choose.among([0.0, 0.0, 1024.0, -1024.0])
    for part in "ab":
        empty = choose.bits(x[f"lse_{part}"].shape, 0.2) if choose.happens(0.4) else np.zeros(x[f"lse_{part}"].shape, bool)
        x[f"lse_{part}"] = np.where(empty, -np.inf, rounded(x[f"lse_{part}"] * far + common, target))
        x[f"out_{part}"] = np.where(empty[..., None], choose.among([64.0, 0.0]), x[f"out_{part}"])


def _capped(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Scores from a part of the cap to a multiple, where it is all but reached."""
    size = x["softcap"] * choose.among([1.0, 0.25, 4.0, 16.0])
    x["q"] = rounded(x["q"] * 2.0 ** np.round(np.log2(size)), i.resolved_arithmetic.inputs)


def _last(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """Queries that stand where the keys end."""
    x["offset"] = x["k"].shape[-2] - x["q"].shape[-2]


def _untold(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """As many keys as queries need not be told."""
    if x["n_q"] == x["n_k"] and choose.happens():
        x["n_k"] = None


def _decoders(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """One mask for all problems, and a row for all queries of each, half blocked, where there are as many problems as queries."""
    shape = np.broadcast_shapes(x["first"].shape, x["second"].shape)
    if len(shape) == 3 and shape[0] == shape[1]:
        x["first"], x["second"] = choose.bits(shape[1:], 0.5), choose.bits((shape[0], 1, shape[2]), 0.5)


def _rotations(o: Operation, i: Implementation, x: dict[str, Any], choose: Choices) -> None:
    """A third of the tables are rotations, rounded to their format."""
    if choose.integer(0, 2) < 2:
        return
    (n, d), target = x["cos"].shape, i.resolved_arithmetic.angle.table
    pairs = np.arange(d) % max(d // 2, 1) if i.resolved_conventions.rope_pairing == "half" else np.arange(d) // 2
    start = choose.among([choose.integer(0, 16), choose.among(_EDGES), choose.integer(0, 2**20)])
    theta = (start + np.arange(n))[:, None] * (
        i.resolved_conventions.rope_scale * i.resolved_conventions.rope_base ** (-2.0 * pairs / max(d, 1))
    )
    x["cos"], x["sin"] = rounded(np.cos(theta), target), rounded(np.sin(theta), target)


_domain("everyday", "Sizes, masks and numbers of every kind.", *OPERATIONS)
_domain(
    "everyday", "Sizes, numbers, and every combination of the features that are declared.", *_FEATURED,
    sizes={"n_q": (2, 1, 3, *SHORT * 2, 40, 64, 65), "n_k": (2, 1, 3, *SHORT * 2, 40, 64, 65), "head_dim": WIDTHS, "value_dim": WIDTHS},
)  # fmt: skip
_domain("everyday", "Parts of the keys, some of them empty.", "merge_attention", finish=_parts)
_domain(
    "everyday", "Numbers of heads, of queries and of keys.", "alibi_slopes", "alibi_bias",
    sizes={"num_heads": (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 33, 64), "n_q": SHORT, "n_k": SHORT},
)  # fmt: skip
_domain("everyday", "Masks that broadcast to one shape.", "combine_masks", sizes={"n_q": SHORT, "n_k": SHORT}, mask=masks.loose)
_domain(
    "square batches", "Masks of queries and of padding, often of as many problems as queries.", "combine_masks",
    sizes={"n_q": (3, 2), "n_k": (3, 5), "batch": (3, 3, 2)},
    mask=masks.loose, masks_are="loose", rank=1, share=0.3, finish=_decoders,
)  # fmt: skip
_domain("everyday", "Numbers of queries and of keys; as many keys as queries need not be told.", "causal_mask", finish=_untold)
_domain("everyday", "Sizes and numbers of every kind.", "causal_attention", finish=_alive)
_domain("everyday", "Sizes and numbers of every kind.", "add_positional_encoding", finish=_shared)
_domain("everyday", "Sizes and numbers of every kind; some tables are rotations.", "apply_rotary", "apply_rotary_vjp", finish=_rotations)
_TILED = {"n_q": TILES, "n_k": TILES, "head_dim": (1, 2, 8, 16, 64), "value_dim": (1, 2, 8, 16, 64)}
_domain("tiles", "Lengths around the tiles of kernels, to 300.", *_CAUSAL, sizes=_TILED, share=0.2, finish=_alive)
_domain("tiles", "Lengths around the tiles of kernels, to 300.", *_ATTENTION, *_SOFTMAX, *_GROUPED, sizes=_TILED, share=0.2)
_domain("tiles", "Lengths around the tiles of kernels, to 300.", *_FEATURED, sizes=_TILED | {"kv_heads": (1, 2)}, share=0.15)
_FEW_HEADS = {"n_q": SHORT, "n_k": SHORT, "head_dim": WIDTHS, "value_dim": WIDTHS, "kv_heads": (1, 2)}
for _name, _statement, _needed, _others in (
    ("windows at edges", "Windows beside lengths of tiles.", ("window",), {"sizes": _TILED | {"kv_heads": (1,)}}),
    ("broadcast biases", "Biases with axes of size 1, or with fewer axes.", ("bias",), {"sizes": _FEW_HEADS}),
    ("near the cap", "Scores from a quarter of the cap to many times it.", ("softcap",), {"sizes": _FEW_HEADS, "finish": _capped}),
    ("rows without keys", "Masks that leave some query no key.", ("mask",), {"sizes": _FEW_HEADS, "mask": masks.dead}),
    ("sinks", "Sinks, beside all other features.", ("sink",), {"sizes": _FEW_HEADS, "mask": masks.dead}),
    ("no keys", "No keys at all.", (), {"sizes": _FEW_HEADS | {"n_k": (0,)}, "mask": masks.none}),
    ("extreme scores", "Scores of every size that the formats have.", (), {"sizes": _FEW_HEADS, "finish": _far}),
):
    _domain(_name, _statement, *_FEATURED, features=_needed, share=0.15, **_others)
_domain(
    "decoding", "One to four queries, the last ones of up to 1100 keys.", *_FEATURED, features=("offset",),
    sizes={"n_q": (1, 2, 3, 4), "n_k": (100, 1, 31, 64, 65, 128, 129, 257, 513, 1100), "head_dim": (1, 8, 16, 64), "value_dim": (1, 8, 16),
           "kv_heads": (1, 2)},
    share=0.15, finish=_last,
)  # fmt: skip
_domain(
    "long rows", "Rows of lengths to 1100.", *_SOFTMAX,
    sizes={"n_q": (1, 2, 3, 16), "n_k": (*TILES, *LONG)}, share=0.2,
)  # fmt: skip
_domain(
    "tiles", "Numbers of tokens around the tiles of kernels, to 130.", *_HEADS,
    sizes={"seq_len": TILES[:18], "head_dim": (1, 8, 2, 16), "num_heads": (1, 2, 4)}, share=0.2,
)  # fmt: skip
_domain(
    "extreme scores", "Scores of every size that the formats have.", *_ATTENTION, *_SOFTMAX, *_CAUSAL,
    sizes={"n_q": (*SHORT, 40, 64), "n_k": (*SHORT, 40, 64, 65, 100), "head_dim": WIDTHS, "value_dim": WIDTHS},
    mask=masks.starting, share=0.4, finish=_far,
)  # fmt: skip
_domain(
    "extreme scores", "Scores of every size that the formats have.", *_GROUPED, *_HEADS,
    sizes={"n_q": SHORT, "n_k": SHORT, "head_dim": WIDTHS, "value_dim": WIDTHS, "seq_len": (*SHORT, 40, 64, 65)}, share=0.2, finish=_far,
)  # fmt: skip
_domain(
    "one key each", "Masks that allow each query one key, and scores of every size that the formats have.",
    *_ATTENTION, *_SOFTMAX, *_GROUPED, *_HEADS,
    sizes={**dict.fromkeys(("n_q", "n_k", "seq_len"), (1, 2, 3, 8, 17, 40, 64, 65, 64, 65)), "head_dim": WIDTHS, "value_dim": WIDTHS},
    mask=masks.one, share=0.2, finish=_far,
)  # fmt: skip
_domain(
    "masks of sequences", "A mask for each sequence, shared by its heads.", *_ATTENTION, *_SOFTMAX,
    sizes={"n_q": SHORT, "n_k": SHORT, "batch": (2, 3)}, mask=masks.sequences, masks_are="loose", rank=2, share=0.1,
)  # fmt: skip
_domain(
    "masks of sequences", "A mask for each sequence, shared by its heads.", *_GROUPED,
    sizes={"n_q": SHORT, "n_k": SHORT, "batch": (2, 3)}, mask=masks.sequences, masks_are="loose", rank=1, share=0.1,
)  # fmt: skip
_domain("widths of models", "Heads of widths that models have.", *_HEADS, sizes={"head_dim": (16, 24, 20, 9, 32, 64)}, share=0.1)
_domain(
    "decoding", "One to four queries and up to 1100 keys: kernels split so many keys, and merge the parts.", *_ATTENTION, *_GROUPED,
    sizes={
        "n_q": (1, 2, 3, 4),
        "n_k": (100, 1, 31, 64, 65, 255, 256, 257, 511, 512, 513, 640, 767, 1000, 1023, 1024, 1025, 1100),
        "head_dim": (1, 8, 16, 64, 128),
        "value_dim": (1, 8, 16, 64, 128),
    },
    share=0.2,
)  # fmt: skip
_domain(
    "widths of models", "Widths that models have, their neighbours, and multiples of 8, to 256.", *_ATTENTION,
    sizes={**dict.fromkeys(("n_q", "n_k"), (1, 2, 3, 5, 16, 17, 64, 65, 130)), **dict.fromkeys(("head_dim", "value_dim"), _PARTICULAR)},
    share=0.2,
)  # fmt: skip
_domain(
    "broadcast masks",
    "Masks with axes of size 1, or with fewer axes.",
    *_ATTENTION,
    *_SOFTMAX,
    *_GROUPED,
    mask=masks.narrow,
    masks_are="loose",
    share=0.2,
)
_domain("masks of rows", "Masks that all queries share.", *_HEADS, mask=masks.row, masks_are="keys", share=0.2)
_domain(
    "width zero", "Queries and keys without columns.", *_ATTENTION[1:], *_GROUPED, *_CAUSAL,
    sizes={"head_dim": (0,), "value_dim": WIDTHS, "n_q": SHORT, "n_k": SHORT}, share=0.1, finish=_unmasked,
)  # fmt: skip
_domain("padded masks", "Keys that no query may read.", *_ATTENTION, *_SOFTMAX, *_GROUPED, *_HEADS, mask=masks.padded, share=0.3)
_domain(
    "dead rows", "Masks that leave some query no key.", *_ATTENTION, *_SOFTMAX, *_GROUPED, *_HEADS,
    sizes=dict.fromkeys(("n_q", "n_k", "seq_len"), (2, 1, 3, 1, 5, 8, 17, 33)), mask=masks.dead, share=0.2,
)  # fmt: skip
_domain(
    "small", "Sizes of 1 to 3.", *_ATTENTION, *_SOFTMAX, *_HEADS,
    sizes={**dict.fromkeys(("n_q", "n_k", "seq_len", "head_dim", "value_dim"), (2, 1, 3)), "num_heads": (1, 2), "batch": (1,)},
    share=0.1,
)  # fmt: skip
_domain(
    "dominating keys", "A few keys share all the weight, among up to 8192.", *_ATTENTION,
    sizes={"n_q": (1, 2, 3, 4, 8), "n_k": MANY, "head_dim": (8, 4, 1, 2, 16, 64), "value_dim": (8, 1, 4, 64), "batch": (1,)},
    mask=masks.none, share=0.1, finish=_dominating,
)  # fmt: skip
_domain(
    "131072 keys", "A few keys share all the weight, among 131072; in the long plan only.", *_ATTENTION,
    sizes={"n_q": (1, 2), "n_k": FARTHEST, "head_dim": (8, 4, 16), "value_dim": (8, 1, 4), "batch": (1,)},
    mask=masks.none, share=0.04, finish=_dominating,
)  # fmt: skip
_domain("one position", "Sequences of one row.", "rope", "rope_vjp", sizes={"seq_len": (1,)}, share=0.4)
_domain("odd widths", "Widths that leave a last lane without a partner.", *_ROTARY, sizes={"head_dim": ODD}, share=0.2)
_domain("odd widths", "Widths that end with a sine.", "sinusoidal_positional_encoding", sizes={"embed_dim": ODD}, share=0.2)
_domain("near positions", "Positions to 64.", *_ROTARY[:2], *_ROTARY[4:6], "sinusoidal_positional_encoding",
    sizes={"start_pos": tuple(range(65))}, share=0.3)  # fmt: skip
_domain(
    "long sequences", "Sequences of up to 1100 rows.", *_ROTARY[:6], "sinusoidal_positional_encoding", "rotate_half",
    sizes={"seq_len": LONG, "head_dim": (2, 4, 8, 32), "embed_dim": (2, 4, 8, 32)}, share=0.2,
)  # fmt: skip
_domain("long masks", "Numbers of queries and of keys to 513.", "causal_mask",
    sizes={"n_q": (255, 256, 257, 300, 513, 16), "n_k": (257, 256, 255, 300, 513, 16)}, share=0.2)  # fmt: skip
_EMPTY = {
    "no rows": {"seq_len": (0,), "n_q": (0,), "batch": (0,)},
    "no columns": {"head_dim": (0,), "embed_dim": (0,), "n_k": (0,), "max_len": (0,)},
}
_ROWS = (*_ROTARY[:6], "rotate_half", "sinusoidal_positional_encoding", "learned_positional_encoding", "causal_mask")
for _name, _sizes in _EMPTY.items():
    _batched = {name: sizes for name, sizes in _sizes.items() if name != "batch"}
    _domain(_name, "Sequences, masks or widths of 0.", *_ROWS, sizes=_batched, share=0.1)
    _domain(_name, "Masks without entries.", "combine_masks", sizes=_batched, mask=masks.loose, share=0.1)
    _domain(_name, "No sequences, or none of them long.", "padding_mask", sizes=_sizes, share=0.1)
    _domain(_name, "No indices, or rows of width 0.", "table_lookup", sizes=_sizes, rank=1, share=0.1)
_domain("no columns", "A width of 0.", "inv_freq", sizes=_EMPTY["no columns"], share=0.1)


ODDITIES = Domain(
    "oddities",
    "Sizes that an implementation may not support.",
    {
        **dict.fromkeys(("n_q", "n_k", "max_len"), (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 100, 129, 257, 513, 1025)),
        "seq_len": (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 100, 129, 257, 513, 1025, 0),
        **dict.fromkeys(
            ("head_dim", "value_dim", "embed_dim", "model_dim"),
            (1, 2, 3, 4, 5, 7, 8, 16, 32, 33, 64, 65, 128, 129, 256, 257, 512, 0),
        ),
        **dict.fromkeys(("num_heads", "kv_heads", "batch"), (1, 2, 3, 4, 5, 8)),
        "start_pos": (0, 1, 5, 128, 1000, 4096, 2**16 + 1, 2**20),
    },
)
"""Not drawn from by itself: of one size those that are refused are taken, of all others those that are not."""
