"""Symmetries along axes, and of attention and softmax: what may be done to the inputs, and what
that does to the output.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from properties.laws.law import Laws
from properties.laws.maps import Back, Butterfly, Pad, Plus, Put, Times
from properties.laws.reading import blocked_are_gone, reads, rules_compose
from properties.laws.rows import Rows, added, apart, beside, causal_or_windowed, lengthened, ordered
from properties.laws.squares import Case, Term

law = Laws()
row = Rows(law)

_SDPA, _CAUSAL, _GROUPED = "scaled_dot_product_attention", "causal_attention", "grouped_query_attention"
_SOFTMAX, _HEADS, _ROPE, _TABLES = "hard_masked_softmax", "multi_head_attention", "rope", "apply_rotary"
_HALF, _LOOKUP, _LEARNED, _ADDED = (
    "rotate_half",
    "table_lookup",
    "learned_positional_encoding",
    "add_positional_encoding",
)
_FEATURED, _MERGE = "attention", "merge_attention"
_MASKED, _QKV = (_SDPA, _GROUPED), (_SDPA, _CAUSAL, _GROUPED)
_BY_PLACE, _EVERY = (*_MASKED, _FEATURED), (*_QKV, _FEATURED)
_BATCHED = (*_EVERY, _SOFTMAX, _HEADS, _ROPE, _TABLES, _HALF, _MERGE)


# -- Along an axis -------------------------------------------------------------------------------------------------------------------


for _axis, _what, _forwards in (
    ("n_k", "keys", _BY_PLACE), ("n_q", "queries", _BY_PLACE), ("head_dim", "channels", _EVERY),
    ("value_dim", "columns of values", _EVERY), ("n_q", "queries", (_MERGE,)), ("value_dim", "columns of values", (_MERGE,)),
    ("n_k", "scores", (_SOFTMAX,)), ("n_q", "rows", (_SOFTMAX,)), ("batch 0", "batch elements", _BATCHED),
    ("batch 1", "outer batch elements", tuple(name for name in _BATCHED if name not in (_GROUPED, _FEATURED))),
    ("seq_len", "tokens", (_HEADS,)), ("seq_len", "rows", (_TABLES, _HALF, _ADDED)), ("batch 0", "indices", (_LOOKUP,)),
):  # fmt: skip
    row(
        *_forwards,
        name=f"the order of {_what} does not matter",
        statement=f"For every order of the {_what}, with all that belongs to them: the result is the same, or follows that order.",
    )(ordered(_axis))

for _axis, _what, _forwards in (
    ("n_q", "queries", (*_BY_PLACE, _MERGE)), ("value_dim", "columns of values", (*_EVERY, _MERGE)),
    ("n_q", "rows", (_SOFTMAX,)), ("batch 0", "batch elements", _BATCHED),
    ("seq_len", "rows", (_TABLES, _HALF, _ADDED)), ("embed_dim", "columns", (_LOOKUP, _LEARNED, _ADDED)),
    ("batch 0", "indices", (_LOOKUP,)),
):  # fmt: skip
    row(
        *_forwards,
        name=f"{_what} are computed independently",
        statement=f"For every cut of the {_what}, and every second of them: computed without the others they give the same.",
    )(apart(_axis))

for _what, _axis, _factor, _parameter, _forwards in (
    ("queries", "n_q", 512.0, "q", _BY_PLACE), ("rows", "n_q", 512.0, "scores", (_SOFTMAX,)),
    ("batch elements", "batch 0", 8.0, "x", (_ROPE, _TABLES, _HALF)),
):  # fmt: skip
    row(
        *_forwards,
        name=f"{_what} do not affect each other",
        statement=f"For every second of the {_what}: with the others up to {_factor:g} times as large the result is the same.",
    )(beside(_axis, _factor, _parameter))


# -- Attention and softmax -----------------------------------------------------------------------------------------------------------


@row(*_MASKED)
def repeating_every_key_changes_nothing(c: Case) -> Sequence[Term]:
    """For every case: with each key and its value there twice or three times the result is the same."""
    return [c.along("n_k", np.repeat(np.arange(c.size("n_k")), c.choose.among([2, 3])))]


@row(*_EVERY)
def scaling_queries_up_and_keys_down_changes_nothing(c: Case) -> Sequence[Term]:
    """For every power of two, or minus it: queries times it and keys divided by it give the same."""
    a = c.choose.among([4.0, 0.125, -2.0])
    return [Term({"q": [Times(a)], "k": [Times(1 / a)]})]


for _forwards, _parameters in (
    (_EVERY, "v"), ((_LOOKUP, _LEARNED), "table"), ((_ADDED,), "x pos"), ((_MERGE,), "out_a out_b"), ((_HEADS,), "wo"),
    ((_ROPE, _TABLES, _HALF), "x"),
):  # fmt: skip
    row(
        *_forwards,
        name="values add up" if _parameters == "v" else "parts add up",
        statement="For every array cut in two by its entries: −4 times the parts give results that add up to −4 times the result.",
    )(added(*_parameters.split()))


@row(*_EVERY)
def channels_of_zeros_change_the_scale_alone(c: Case) -> Sequence[Term]:
    """For every case: with 3·d channels of zeros more, queries are doubled, for the scale is 1/√d."""
    pad = Pad(-1, 3 * c.size("head_dim"))
    by_width = c.arguments.get("scale") is None and (
        "scale" not in c.arguments or c.conventions.scale_default == "rsqrt"
    )
    return [Term({"q": [pad, Times(2.0 if by_width else 1.0)], "k": [pad]})]


@row(*_QKV)
def a_vector_added_to_all_keys_changes_nothing(c: Case) -> Sequence[Term]:
    """For every vector that can be added to all keys exactly, and brings scores to ±1e4: the result is the same."""
    shift = c.choose.integers(-16, 16, c.size("head_dim")) / 2.0
    far = c.choose.among([0.0, 32.0, 512.0])
    return [Term({"k": [Plus(np.where(np.arange(len(shift)) == 0, far or shift, shift))]})]


@row(*_QKV)
def a_vector_added_to_all_values_is_added_to_all_outputs(c: Case) -> Sequence[Term]:
    """For every vector that can be added to all values exactly: outputs are larger by it, and gradients the same."""
    shift = c.choose.integers(-16, 16, c.size("value_dim")) / c.choose.among([2.0, 16.0])
    return [Term({"v": [Plus(shift)]}, [Plus(-shift)])]


@row(*_EVERY)
def an_orthogonal_change_of_basis_changes_nothing(c: Case) -> Sequence[Term] | None:
    """For all pairs of channels (a, b), as (a + b, a − b) in keys and as half of that in queries,
    exactly: the result is the same.
    """
    return [Term({"q": [Butterfly(0.5)], "k": [Butterfly(1.0)]})] if c.size("head_dim") > 1 else None


@row(*_BY_PLACE, domains=("padded masks", "rows without keys", "sinks"))
def keys_masked_for_all_queries_do_not_matter(c: Case) -> Sequence[Term] | None:
    """For every mask, and keys that no query may read: whatever finite numbers they and their
    values hold, the result is the same.
    """
    if c.mask is None or not (rules_compose(c.arguments, c.implementation) and blocked_are_gone(c.implementation)):
        return None
    others = causal_or_windowed(c.arguments) or c.arguments.get("bias") is not None
    if c.conventions.dead_rows == "uniform" and (others or not c.mask.any(-1).all()):
        return None  # a row without keys reads all values
    read: Any = np.broadcast_to(c.mask, (*c.q.shape[:-1], c.k.shape[-2])).any(-2)
    unread = ~read[..., None]
    if c.q.shape[:-2] != c.k.shape[:-2]:  # heads that share keys
        unread = unread.all(-3, keepdims=True)
    size = c.choose.among([1.0, -1.0]) * c.largest
    return [Term({"k": [Put(unread, size)], "v": [Put(unread, -size)]})] if unread.any() else None


@row(*_BY_PLACE, domains=("everyday", "padded masks", "dead rows", "rows without keys"))
def sequences_side_by_side_are_computed_independently(c: Case) -> Sequence[Term] | None:
    """For every mask, and every cut of the queries: each part gives the same without the keys that
    none of it may read, but for one where it may read none. So sequences that are packed give what
    they give alone."""
    i, featured = c.implementation, c.forward.name == _FEATURED
    may = c.mask if not featured else None if i.lacks("mask") else reads(c.arguments, i)
    if may is None or not blocked_are_gone(i):
        return None
    n, instead = c.size("n_q"), {"causal": None, "window": None} if featured else {}
    first = np.arange(n) < c.choose.cut(n) if c.choose.happens() else c.choose.bits(n)
    may = np.broadcast_to(may, (*may.shape[:-2], n, c.size("n_k")))
    read = [may[..., part, :].any(tuple(range(may.ndim - 1))) for part in (first, ~first)]
    if (
        first.all()
        or not first.any()
        or (read[0] & read[1]).all()
        or (c.conventions.dead_rows == "uniform" and not may.any(-1).all())
    ):
        return None  # a row without keys reads all values
    parts = [
        (np.flatnonzero(part), np.flatnonzero(keys) if keys.any() else [0])
        for part, keys in zip((first, ~first), read, strict=True)
    ]
    return [c.across({"n_q": part, "n_k": keys}, mask=may[..., part, :][..., keys], **instead) for part, keys in parts]


@row(_SOFTMAX, domains=("padded masks",))
def masked_scores_do_not_matter(c: Case) -> Sequence[Term] | None:
    """For every mask: whatever finite numbers the masked scores are, the weights are the same."""
    blocked = np.zeros((), bool) if c.mask is None else ~c.mask
    return (
        [Term({"scores": [Put(blocked, c.choose.among([1.0, -1.0]) * max(c.largest, 8192.0))]})]
        if blocked.any()
        else None
    )


@row(*_MASKED, domains=("everyday", "extreme scores"))
def masked_keys_can_be_appended(c: Case) -> Sequence[Term]:
    """For every case: with masked keys after the last one, whatever they hold, the result is the same."""
    count, size = c.choose.among([1, 3, 16, c.size("n_k")]), c.largest
    mask = lengthened(c.mask, (*c.q.shape[:-1], c.size("n_k")), count)
    return [Term({"k": [Pad(-2, count, size)], "v": [Pad(-2, count, -size)]}, (), {"mask": mask})]


@row(_SOFTMAX, domains=("everyday", "extreme scores"))
def masked_scores_can_be_appended(c: Case) -> Sequence[Term]:
    """For every case: with masked scores after the last one the weights before are the same."""
    pad = Pad(-1, c.choose.among([1, 3, 16]), c.largest)
    return [Term({"scores": [pad]}, [Back(pad)], {"mask": lengthened(c.mask, c.scores.shape, pad.count)})]


@row(*_BY_PLACE, _SOFTMAX, domains=("everyday", "broadcast masks", "masks of sequences"))
def a_mask_can_be_written_out(c: Case) -> Sequence[Term] | None:
    """For every mask with fewer axes, or axes of size 1, and for none: repeated along them, or
    allowing all, it gives the same.
    """
    full = c.scores.shape if c.has("scores") else (*c.q.shape[:-1], c.size("n_k"))
    written = np.broadcast_to(True if c.mask is None else c.mask, full)
    if c.mask is None and not rules_compose({**c.arguments, "mask": written}, c.implementation):
        return None
    return None if c.mask is not None and c.mask.shape == full else [Term(instead={"mask": written.copy()})]


@row(_SOFTMAX)
def a_constant_added_to_a_row_changes_nothing(c: Case) -> Sequence[Term]:
    """For every number that can be added to all scores of a row exactly, as far from 0 as the
    format allows: the weights are the same.
    """
    reach = 2.0**-7 / c.implementation.resolved_arithmetic.inputs.unit_roundoff
    far = c.choose.among([16.0, reach, reach / 8, reach / 64])
    return [Term({"scores": [Plus(far * c.choose.signs(c.size("n_q"))[:, None])]})]


@row(*_MASKED, _HEADS, domains=("one key each",))
def where_one_key_is_visible_its_score_does_not_matter(c: Case) -> Sequence[Term]:
    """For every mask that allows each query one key, and scores of any size: with scores of 0 the
    result is the same.
    """
    return [Term({"wq" if c.forward.name == _HEADS else "q": [Times(0.0)]})]
