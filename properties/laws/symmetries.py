"""The table of symmetries: what may be done to the inputs of an operation, and what that does to its output.

One row is a law of every operation that has its axes or parameters, of its JVP and of its VJP: see `properties.laws.squares`.
"""

# Terms are written as functions without a name of their own: what they are called is the sentence above them.
# mypy: disable-error-code="no-redef"

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from properties.contract.operations import OPERATIONS
from properties.laws.averages import own_heads
from properties.laws.law import Laws
from properties.laws.maps import Back, Butterfly, Pad, Plus, Put, Take, Times
from properties.laws.squares import Case, Square, Symmetry, Term, Terms
from properties.strategies.domains import DOMAINS

__all__ = ["composed", "law", "own", "placed", "row"]

law = Laws()

_SDPA, _CAUSAL, _GROUPED = "scaled_dot_product_attention", "causal_attention", "grouped_query_attention"
_SOFTMAX, _HEADS, _ROPE, _TABLES = "hard_masked_softmax", "multi_head_attention", "rope", "apply_rotary"
_HALF, _LOOKUP, _LEARNED, _ADDED = "rotate_half", "table_lookup", "learned_positional_encoding", "add_positional_encoding"
_MASKED, _QKV = (_SDPA, _GROUPED), (_SDPA, _CAUSAL, _GROUPED)
_FEATURED, _MERGE = "attention", "merge_attention"
_BATCHED = (*_QKV, _SOFTMAX, _HEADS, _ROPE, _TABLES, _HALF, _FEATURED, _MERGE)
_BY_PLACE = (*_MASKED, _FEATURED)


def row(
    name: str, statement: str, *forwards: str, domains: tuple[str, ...] = ("everyday",), features: tuple[str, ...] = ()
) -> Callable[[Terms], Terms]:
    """The decorator that enters a symmetry of some forwards, for implementations that declare some features."""

    def enter(terms: Terms) -> Terms:
        symmetry = Symmetry(name, statement, terms)
        for o in OPERATIONS.values():
            if o.forward in forwards:
                offered = tuple(d for d in domains if d in DOMAINS[o.name])
                law(o.name, domains=offered, exempts=lambda i: i.lacks(*features))(Square(symmetry, o))
        return terms

    return enter


# -- Along an axis -------------------------------------------------------------------------------------------------------------------


def several(axis: str, terms: Terms) -> Terms:
    """Terms that say something where an axis has at least two entries, and no places along it matter."""
    return lambda c: terms(c) if c.has(axis) and c.size(axis) > 1 and not (axis in ("n_q", "n_k") and placed(c.arguments)) else None


def placed(x: Mapping[str, Any]) -> bool:
    """Whether a query's place among the keys matters: it is causal, or has a window."""
    return bool(x.get("causal") or x.get("window"))


def ordered(axis: str) -> Terms:
    """An axis in another order."""
    return several(axis, lambda c: [c.along(axis, c.choose.order(c.size(axis)))])


def apart(axis: str) -> Terms:
    """An axis cut in two, or into every second entry and the others."""

    def terms(c: Case) -> Sequence[Term]:
        n = c.size(axis)
        first = np.arange(n) < c.choose.cut(n) if c.choose.happens() else np.arange(n) % 2 == 0
        return [c.along(axis, np.flatnonzero(part)) for part in (first, ~first)]

    return several(axis, terms)


def beside(axis: str, factor: float, *parameters: str) -> Terms:
    """Every second entry of an axis, beside others that are larger."""

    def terms(c: Case) -> Sequence[Term]:
        even = np.arange(c.size(axis)) % 2 == 0
        return [Term({p: c.scaled(p, axis, np.where(kept, 1.0, factor)) for p in parameters}, c.kept(axis, kept)) for kept in (even, ~even)]

    return several(axis, terms)


for _axis, _what, _forwards in (
    ("n_k", "keys", _BY_PLACE), ("n_q", "queries", _BY_PLACE), ("head_dim", "lanes", (*_QKV, _FEATURED)),
    ("value_dim", "columns of values", (*_QKV, _FEATURED)), ("n_q", "queries", (_MERGE,)), ("value_dim", "columns of values", (_MERGE,)),
    ("n_k", "scores", (_SOFTMAX,)), ("n_q", "rows", (_SOFTMAX,)), ("batch 0", "problems", _BATCHED),
    ("batch 1", "batches", tuple(name for name in _BATCHED if name not in (_GROUPED, _FEATURED))),
    ("seq_len", "tokens", (_HEADS,)), ("seq_len", "rows", (_TABLES, _HALF)), ("batch 0", "indices", (_LOOKUP,)),
    ("seq_len", "rows", (_ADDED,)),
):  # fmt: skip
    row(
        f"the order of {_what} does not matter",
        f"For every order of the {_what}, with all that belongs to them: the result is the same, in this order where it has the axis.",
        *_forwards,
    )(ordered(_axis))

for _axis, _what, _forwards in (
    ("n_q", "queries", (*_BY_PLACE, _MERGE)), ("value_dim", "columns of values", (*_QKV, _FEATURED, _MERGE)),
    ("n_q", "rows", (_SOFTMAX,)), ("batch 0", "problems", _BATCHED),
    ("seq_len", "rows", (_TABLES, _HALF, _ADDED)), ("embed_dim", "columns", (_LOOKUP, _LEARNED, _ADDED)),
    ("batch 0", "indices", (_LOOKUP,)),
):  # fmt: skip
    row(
        f"{_what} are computed apart",
        f"For every cut of the {_what}, and every second of them: computed without the others they give the same.",
        *_forwards,
    )(apart(_axis))

row(
    "queries do not see each other",
    "For every second query, whether the others are themselves or 512 times as long: its result is the same.",
    *_BY_PLACE,
)(beside("n_q", 512.0, "q"))
row(
    "rows do not see each other",
    "For every second row, whether the scores of the others are themselves or 512 times as large: its weights are the same.",
    _SOFTMAX,
)(beside("n_q", 512.0, "scores"))
row(
    "problems do not see each other",
    "For every second problem of a batch, whether the others are themselves or eight times as large: its result is the same.",
    _ROPE, _TABLES, _HALF,
)(beside("batch 0", 8.0, "x"))  # fmt: skip


# -- Attention and softmax -----------------------------------------------------------------------------------------------------------


@row(
    "every key twice changes nothing",
    "For every case: with each key and its value there twice or three times the result is the same.",
    *_MASKED,
)
def _(c: Case) -> Sequence[Term]:
    return [c.along("n_k", np.repeat(np.arange(c.size("n_k")), c.choose.among([2, 3])))]


@row(
    "longer queries and shorter keys",
    "For every power of two, or minus it: queries times it and keys divided by it give the same.",
    *_QKV,
    _FEATURED,
)
def _(c: Case) -> Sequence[Term]:
    a = c.choose.among([4.0, 0.125, -2.0])
    return [Term({"q": [Times(a)], "k": [Times(1 / a)]})]


def added(*parameters: str) -> Terms:
    """Parts of arrays, by entries, times −4: what comes of them adds up to −4 times what comes of the whole."""

    def terms(c: Case) -> Sequence[Term]:
        first = {p: c.choose.bits(getattr(c, p).shape, 0.5) for p in parameters}
        return [
            Term(
                {p: [Times(np.where(part, -4.0, 0.0))] for p, part in parts.items()},
                {name: [Times(-0.25)] if name == c.forward.outputs[0] else c.once(parts is first) for name in c.forward.outputs},
            )
            for parts in (first, _not(first))
        ]

    return terms


def _not(parts: dict[str, Any]) -> dict[str, Any]:
    return {p: ~part for p, part in parts.items()}


row(
    "values add up",
    "For all values cut in two by their entries: −4 times the parts give results that add up to −4 times the result.",
    *_QKV,
    _FEATURED,
)(added("v"))
for _forward, _parameters in {
    _ROPE: "x",
    _TABLES: "x",
    _HALF: "x",
    _LOOKUP: "table",
    _LEARNED: "table",
    _ADDED: "x pos",
    _MERGE: "out_a out_b",
    _HEADS: "wo",
}.items():
    row(
        "parts add up",
        "For every array cut in two by its entries: −4 times the parts give results that add up to −4 times the result.",
        _forward,
    )(added(*_parameters.split()))


@row(
    "zero lanes need doubled queries",
    "For every case: with 3·d lanes of zeros more, queries are doubled, for the scale is 1/√d.",
    *_QKV,
    _FEATURED,
)
def _(c: Case) -> Sequence[Term]:
    pad = Pad(-1, 3 * c.size("head_dim"))
    by_width = c.arguments.get("scale") is None and c.implementation.resolved_conventions.scale_default == "rsqrt"
    return [Term({"q": [pad, Times(2.0 if by_width else 1.0)], "k": [pad]})]


@row(
    "a vector added to all keys changes nothing",
    "For every vector that can be added to all keys exactly, and brings scores to ±1e4: the result is the same.",
    *_QKV,
)
def _(c: Case) -> Sequence[Term]:
    shift = c.choose.integers(-16, 16, c.size("head_dim")) / 2.0
    far = c.choose.among([0.0, 32.0, 512.0])
    return [Term({"k": [Plus(np.where(np.arange(len(shift)) == 0, far or shift, shift))]})]


@row(
    "a vector added to all values is added to all outputs",
    "For every vector that can be added to all values exactly: outputs are larger by it, and gradients the same.",
    *_QKV,
)
def _(c: Case) -> Sequence[Term]:
    shift = c.choose.integers(-16, 16, c.size("value_dim")) / 2.0
    return [Term({"v": [Plus(shift)]}, [Plus(-shift)])]


@row(
    "an orthogonal change of basis changes nothing",
    "For all pairs of lanes (a, b), turned to (a + b, a − b) in keys and to half of that in queries, exactly: the result is the same.",
    *_QKV,
    _FEATURED,
)
def _(c: Case) -> Sequence[Term] | None:
    return [Term({"q": [Butterfly(0.5)], "k": [Butterfly(1.0)]})] if c.size("head_dim") > 1 else None


@row(
    "unread keys hold anything",
    "For every mask, and keys that no query may read: whatever finite numbers they and their values hold, the result is the same.",
    *_BY_PLACE,
    domains=("padded masks", "rows without keys", "sinks"),
)
def _(c: Case) -> Sequence[Term] | None:
    if c.mask is None or c.implementation.resolved_conventions.softcap_order == "after_mask" or (placed(c.arguments) and not composed(c)):
        return None
    others = placed(c.arguments) or c.arguments.get("bias") is not None
    if c.implementation.resolved_conventions.dead_rows == "uniform" and (others or not c.mask.any(-1).all()):
        return None  # a row without keys reads all values
    read: Any = np.broadcast_to(c.mask, (*c.q.shape[:-1], c.k.shape[-2])).any(-2)
    unread = ~read[..., None]
    if c.q.shape[:-2] != c.k.shape[:-2]:  # heads that share keys
        unread = unread.all(-3, keepdims=True)
    size = c.choose.among([1.0, -1.0]) * c.largest
    return [Term({"k": [Put(unread, size)], "v": [Put(unread, -size)]})] if unread.any() else None


@row(
    "blocked scores hold anything",
    "For every mask: whatever finite numbers the blocked scores are, the weights are the same.",
    _SOFTMAX,
    domains=("padded masks",),
)
def _(c: Case) -> Sequence[Term] | None:
    blocked = np.zeros((), bool) if c.mask is None else ~c.mask
    return [Term({"scores": [Put(blocked, c.choose.among([1.0, -1.0]) * max(c.largest, 8192.0))]})] if blocked.any() else None


def _longer(mask: Any, shape: tuple[int, ...], count: int) -> Any:
    """The mask with so many blocked keys more."""
    full = np.broadcast_to(True if mask is None else mask, shape)
    return np.concatenate([full, np.zeros((*shape[:-1], count), bool)], -1)


@row(
    "blocked keys can be appended",
    "For every case: with blocked keys after the last one, whatever they hold, the result is the same.",
    *_MASKED,
    domains=("everyday", "extreme scores"),
)
def _(c: Case) -> Sequence[Term]:
    count, size = c.choose.among([1, 3, 16, c.size("n_k")]), c.largest
    mask = _longer(c.mask, (*c.q.shape[:-1], c.size("n_k")), count)
    return [Term({"k": [Pad(-2, count, size)], "v": [Pad(-2, count, -size)]}, (), {"mask": mask})]


@row(
    "blocked scores can be appended",
    "For every case: with blocked scores after the last one the weights before are the same.",
    _SOFTMAX,
    domains=("everyday", "extreme scores"),
)
def _(c: Case) -> Sequence[Term]:
    pad = Pad(-1, c.choose.among([1, 3, 16]), c.largest)
    return [Term({"scores": [pad]}, [Back(pad)], {"mask": _longer(c.mask, c.scores.shape, pad.count)})]


@row(
    "a mask can be written out",
    "For every mask with fewer axes, or axes of size 1, and for none: repeated along them, or allowing all, it gives the same.",
    *_BY_PLACE,
    _SOFTMAX,
    domains=("everyday", "broadcast masks", "masks of sequences"),
)
def _(c: Case) -> Sequence[Term] | None:
    full = c.scores.shape if c.has("scores") else (*c.q.shape[:-1], c.size("n_k"))
    written = np.broadcast_to(True if c.mask is None else c.mask, full)
    if c.mask is None and c.arguments.get("causal") and not composed(c):
        return None
    return None if c.mask is not None and c.mask.shape == full else [Term(instead={"mask": written.copy()})]


@row(
    "a constant added to a row changes nothing",
    "For every number that can be added to all scores of a row exactly, as far from 0 as the format allows: the weights are the same.",
    _SOFTMAX,
)
def _(c: Case) -> Sequence[Term]:
    reach = 2.0**-7 / c.implementation.resolved_arithmetic.inputs.unit_roundoff
    far = c.choose.among([16.0, reach, reach / 8, reach / 64])
    return [Term({"scores": [Plus(far * c.choose.signs(c.size("n_q"))[:, None])]})]


def composed(c: Case) -> bool:
    """Whether a mask and causality act together."""
    return c.implementation.resolved_conventions.causal_with_mask == "compose"


def _without(parameter: str) -> Terms:
    """Zeros instead of a parameter."""
    return lambda c: [Term({parameter: [Times(0.0)]})]


for _forwards, _parameter in ((_MASKED, "q"), ((_HEADS,), "wq")):
    row(
        "where one key may be read its score does not matter",
        "For every mask that allows each query one key, and scores of any size: with scores of 0 the result is the same.",
        *_forwards,
        domains=("one key each",),
    )(_without(_parameter))


# -- Heads ---------------------------------------------------------------------------------------------------------------------------


def _columns(c: Case, heads: Any) -> Any:
    """The columns that belong to some heads."""
    width = c.size("heads_width") // c.num_heads
    return (np.asarray(heads)[:, None] * width + np.arange(width)).reshape(-1)


@row(
    "the order of heads does not matter", "For every order of the heads, in the columns of wq, wk, wv and the rows of wo: the same.", _HEADS
)
def _(c: Case) -> Sequence[Term] | None:
    return [c.along("heads_width", _columns(c, c.choose.order(c.num_heads)))] if c.num_heads > 1 else None


@row(
    "heads are computed apart", "For every case: the output is the sum of those of each head by itself, with its columns and rows.", _HEADS
)
def _(c: Case) -> Sequence[Term] | None:
    return [c.along("heads_width", _columns(c, [h]), num_heads=1) for h in range(c.num_heads)] if c.num_heads > 1 else None


@row(
    "the order of columns within heads does not matter",
    "For every order of the columns of wq and wk within each head, and every other one of wv and the rows of wo: the same.",
    _HEADS,
    domains=("everyday", "widths of models"),
)
def _(c: Case) -> Sequence[Term] | None:
    n, heads = c.size("heads_width"), c.num_heads
    if n == heads:
        return None
    first, second = (np.concatenate([h * (n // heads) + c.choose.order(n // heads) for h in range(heads)]) for _ in range(2))
    maps = {p: [Take(-1, first, n)] for p in ("wq", "wk")} | {"wv": [Take(-1, second, n)], "wo": [Take(-2, second, n)]}
    return [Term(maps)]


@row(
    "tokens need only those that they may read",
    "For every mask, and some tokens, the first ones for instance: without all that none of them may read they have the same outputs.",
    _HEADS,
    domains=("everyday", "padded masks", "masks of rows"),
)
def _(c: Case) -> Sequence[Term] | None:
    n = c.size("seq_len")
    some = np.arange(n) < c.choose.cut(n) if c.choose.happens() else c.choose.bits(n)
    needed = some | np.broadcast_to(True if c.mask is None else c.mask, (*c.x.shape[:-1], n))[..., some, :].any(tuple(range(c.x.ndim - 1)))
    if needed.all() or not some.any():
        return None
    index = np.flatnonzero(needed)
    short = c.along("seq_len", index, mask=(c.mask | ~some[:, None])[..., index, :][..., index])
    kept, others = (c.kept("seq_len", part)["out"] for part in (some[index], ~some))
    return [Term(short.inputs, [*kept, *short.outgoing("out")], short.instead), Term({}, others)]


def own(c: Case) -> Any:
    """The head of keys that each head of queries reads."""
    return own_heads(c.implementation, c.size("num_heads"), c.size("kv_heads"))


def both(c: Case, queries: Any, keys: Any) -> Term:
    """Some heads of queries, and of keys."""
    term = c.along("num_heads", queries)
    return Term({**term.inputs, **c.along("kv_heads", keys).inputs}, term.output)


@row(
    "heads of keys can be repeated",
    "For every case: with a head of keys for each head of queries, its own, the result is the same.",
    _GROUPED,
    _FEATURED,
    domains=("everyday", "padded masks"),
)
def _(c: Case) -> Sequence[Term] | None:
    return [Term(c.along("kv_heads", own(c)).inputs)] if c.size("num_heads") > c.size("kv_heads") else None


@row(
    "heads are computed apart", "For every case: the heads that share a head of keys have their outputs without all others.",
    _GROUPED, _FEATURED,
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    few = c.size("kv_heads")
    return [both(c, np.flatnonzero(own(c) == head), [head]) for head in range(few)] if few > 1 else None


@row(
    "the order of heads does not matter",
    "For every order of the heads of keys, with heads of queries that follow them: the same.",
    _GROUPED,
    _FEATURED,
)
def _(c: Case) -> Sequence[Term] | None:
    mine, order = own(c), c.choose.order(c.size("kv_heads"))
    readers = {head: list(np.flatnonzero(mine == head)) for head in order}
    return [both(c, np.array([readers[order[head]].pop() for head in mine]), order)] if len(order) > 1 else None


@row("heads with zero lanes need doubled queries", "For every case: with heads four times as wide, of zeros, wq is doubled.", _HEADS)
def _(c: Case) -> Sequence[Term]:
    width, n = c.size("heads_width") // c.num_heads, c.size("heads_width")
    index = np.array([h * width + lane if lane < width else n for h in range(c.num_heads) for lane in range(4 * width)], int)
    wide = [Pad(-1, 1), Take(-1, index, n + 1)]
    return [Term({"wq": [*wide, Times(2.0)], "wk": wide, "wv": wide, "wo": [Pad(-2, 1), Take(-2, index, n + 1)]})]


# -- Positions -----------------------------------------------------------------------------------------------------------------------


@row(
    "a chunk is the slice of the whole",
    "For every sequence cut in two, anywhere: each part, from its own position on, is as in the whole.",
    _ROPE, _LEARNED, "sinusoidal_positional_encoding", "rope_angles", "rope_tables",
    domains=("everyday", "long sequences"),
)  # fmt: skip
def _(c: Case) -> Sequence[Term] | None:
    n = c.size("seq_len")
    cut = c.choose.among([1, n - 1, n // 2, c.choose.cut(n)]) if n > 1 else 0
    return [_chunk(c, 0, cut), _chunk(c, cut, n)] if cut else None


def _chunk(c: Case, start: int, stop: int) -> Term:
    return c.along("seq_len", np.arange(start, stop), seq_len=stop - start, start_pos=c.start_pos + start)


def _pairs(c: Case) -> Any:
    """The two lanes of each pair, of an even width."""
    d = c.size("head_dim")
    halves = c.forward.name == _HALF or c.implementation.resolved_conventions.rope_pairing == "half"
    return np.arange(d).reshape(2, -1).T if halves else np.arange(d).reshape(-1, 2)


@row(
    "the order of pairs does not matter",
    "For every order of the pairs of lanes, of the tables too: the result is in this order.",
    _TABLES,
    _HALF,
)
def _(c: Case) -> Sequence[Term] | None:
    pairs = _pairs(c)
    if len(pairs) < 2:
        return None
    moved = np.empty(c.size("head_dim"), int)
    moved[pairs] = pairs[c.choose.order(len(pairs))]
    return [c.along("head_dim", moved)]


@row(
    "rows that are not read hold anything",
    "For every table: whatever the rows hold that are not read, the result is the same.",
    _LOOKUP,
    _LEARNED,
)
def _(c: Case) -> Sequence[Term] | None:
    read = c.indices if c.forward.name == _LOOKUP else np.arange(c.start_pos, c.start_pos + c.seq_len)
    unread = ~np.isin(np.arange(len(c.table)), read)[:, None]
    return [Term({"table": [Put(unread, c.largest)]})] if unread.any() else None


@row(
    "rows before the first can be taken away",
    "For every table: without the rows before the start, from position 0 on, the result is the same.",
    _LEARNED,
)
def _(c: Case) -> Sequence[Term] | None:
    n = len(c.table)
    return [Term({"table": [Take(-2, np.arange(c.start_pos, n), n)]}, (), {"start_pos": 0})] if c.start_pos else None
