"""Symmetries of attention and softmax, and symmetries along axes: how the output changes if the
inputs change in a given way.
"""

from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.laws.commuting_squares import Case, Sum, Term
from properties.laws.feature_rules import bias_has_effect, masked_keys_weigh_nothing, rules_compose, visible_keys
from properties.laws.law import Laws
from properties.laws.linear_maps import Back, Butterfly, Pad, Plus, Put, Times
from properties.laws.symmetry_rows import Rows, added, apart, larger_others, lengthened, ordered, places_matter

law = Laws()
row = Rows(law)

_SDPA, _CAUSAL, _GROUPED = "scaled_dot_product_attention", "causal_attention", "grouped_query_attention"
_SOFTMAX, _HEADS, _ROPE, _TABLES = "hard_masked_softmax", "multi_head_attention", "rope", "apply_rotary"
_HALF, _LOOKUP, _LEARNED = "rotate_half", "table_lookup", "learned_positional_encoding"
_ADDED, _FEATURED, _MERGE = "add_positional_encoding", "attention", "merge_attention"
_EMBEDDING, _RELATIVE, _LAYER, _POSITION_IDS = "rotary_embedding", "relative_bias", "attention_layer", "position_ids"
_MASKED, _QKV = (_SDPA, _GROUPED), (_SDPA, _CAUSAL, _GROUPED)
_BY_PLACE, _EVERY = (*_MASKED, _FEATURED), (*_QKV, _FEATURED)
_BATCHED = (*_EVERY, _SOFTMAX, _HEADS, _LAYER, _ROPE, _TABLES, _HALF, _MERGE)
_OUTER_BATCHED = tuple(name for name in _BATCHED if name not in (_GROUPED, _FEATURED))


# -- Along an axis ---------------------------------------------------------------------------------


_SAME, _LIKEWISE = "the order of {} does not matter", "reordering {} reorders their results in the same way"

for _axis, _entries, _name, _forwards in (
    ("n_k", "keys", _SAME, (*_BY_PLACE, _LAYER)),
    ("n_q", "queries", _LIKEWISE, (*_BY_PLACE, _LAYER)),
    ("head_dim", "channels", _SAME, _EVERY),
    ("value_dim", "columns of values", _LIKEWISE, _EVERY),
    ("n_q", "queries", _LIKEWISE, (_MERGE,)),
    ("value_dim", "columns of values", _LIKEWISE, (_MERGE,)),
    ("n_k", "scores", _LIKEWISE, (_SOFTMAX,)),
    ("n_q", "rows", _LIKEWISE, (_SOFTMAX, _EMBEDDING)),
    ("batch 0", "batch elements", _LIKEWISE, _BATCHED),
    ("batch 1", "outer batch elements", _LIKEWISE, _OUTER_BATCHED),
    ("seq_len", "tokens", _LIKEWISE, (_HEADS,)),
    ("seq_len", "rows", _LIKEWISE, (_TABLES, _HALF, _ADDED)),
    ("batch 0", "indices", _LIKEWISE, (_LOOKUP,)),
    ("num_heads", "heads", _LIKEWISE, (_RELATIVE,)),
):
    row(
        *_forwards,
        name=_name.format(_entries),
        statement=f"For every order of the {_entries}, and of everything that belongs to them: results and gradients "
        f"that belong to the {_entries} are in this order too, and all others are the same.",
    )(ordered(_axis))

for _axis, _entries, _forwards in (
    ("n_q", "queries", (*_BY_PLACE, _MERGE, _LAYER)),
    ("value_dim", "columns of values", (*_EVERY, _MERGE)),
    ("n_q", "rows", (_SOFTMAX,)),
    ("batch 0", "batch elements", (*_BATCHED, _POSITION_IDS)),
    ("seq_len", "rows", (_TABLES, _HALF, _ADDED)),
    ("embed_dim", "columns", (_LOOKUP, _LEARNED, _ADDED)),
    ("batch 0", "indices", (_LOOKUP,)),
):
    row(
        *_forwards,
        name=f"{_entries} are computed independently",
        statement=f"For every cut of the {_entries}, or every second one: a part gives the same result without the "
        "other part.",
    )(apart(_axis))

for _entries, _axis, _factor, _parameter, _forwards in (
    ("queries", "n_q", 512.0, "q", _BY_PLACE),
    ("rows", "n_q", 512.0, "scores", (_SOFTMAX,)),
    ("batch elements", "batch 0", 8.0, "x", (_ROPE, _TABLES, _HALF)),
):
    row(
        *_forwards,
        name=f"scaling up some {_entries} does not affect the others",
        statement=f"For every second one of the {_entries}: its result is the same if the others are up to {_factor:g} "
        "times as large.",
    )(larger_others(_axis, _factor, _parameter))


# -- Attention and softmax -------------------------------------------------------------------------


@row(*_MASKED)
def repeating_every_key_and_value_changes_nothing(case: Case) -> Sum:
    """For every test input: two or three copies of each key and its value give the same result."""
    return [case.along("n_k", np.repeat(np.arange(case.size("n_k")), case.choose.among([2, 3])))]


def _has_fractions(implementation: Implementation) -> str:
    """Return why few arrays stay on a grid if they are multiplied by a power of two; "" if many do."""
    grid = implementation.resolved_arithmetic.operands
    return "" if grid.smallest_normal < 1 else f"Few codes of {grid.name} are on the grid after a division."


@row(*_EVERY, exempts=_has_fractions)
def scaling_queries_up_and_keys_down_changes_nothing(case: Case) -> Sum:
    """For every power of two f, or −f: queries times f and keys divided by f give the same result."""
    factor = case.choose.among([4.0, 0.125, -2.0])
    return [Term({"q": [Times(factor)], "k": [Times(1 / factor)]})]


_NAMES = {"v": "f(v1) + f(v2) = f(v1 + v2)", "out_a out_b": "merging is linear in the outputs of the parts"}

for _forwards, _parameters in (
    (_EVERY, "v"),
    ((_LOOKUP, _LEARNED, _RELATIVE), "table"),
    ((_ADDED,), "x pos"),
    ((_MERGE,), "out_a out_b"),
    ((_HEADS,), "wo"),
    ((_ROPE, _TABLES, _HALF), "x"),
    ((_EMBEDDING,), "q"),
):
    row(
        *_forwards,
        name=_NAMES.get(_parameters, "f(a) + f(b) = f(a + b)"),
        statement="For every array split into two parts by its entries: the results of −4 times each part add up "
        "to −4 times the result of the array.",
    )(added(*_parameters.split()))


@row(*_EVERY)
def added_zero_channels_change_only_the_scale(case: Case) -> Sum:
    """For every test input: with 3·d more channels of zeros, and doubled queries if the scale is
    1/√d, the result is the same.
    """
    pad = Pad(-1, 3 * case.size("head_dim"))
    by_width = case.arguments.get("scale") is None and (
        "scale" not in case.arguments or case.conventions.scale_default == "rsqrt"
    )
    return [Term({"q": [pad, Times(2.0 if by_width else 1.0)], "k": [pad]})]


@row(*_QKV)
def a_vector_added_to_all_keys_changes_nothing(case: Case) -> Sum:
    """For every vector that can be added to all keys exactly, up to scores of ±1e4: the result is the same."""
    shift = case.choose.integers(-16, 16, case.size("head_dim")) / 2.0
    far = case.choose.among([0.0, 32.0, 512.0])
    return [Term({"k": [Plus(np.where(np.arange(len(shift)) == 0, far or shift, shift))]})]


@row(*_QKV)
def a_vector_added_to_all_values_is_added_to_all_outputs(case: Case) -> Sum:
    """For every vector that can be added to all values exactly: it is added to every output, and
    the gradients are the same.
    """
    shift = case.choose.integers(-16, 16, case.size("value_dim")) / case.choose.among([2.0, 16.0])
    return [Term({"v": [Plus(shift)]}, [Plus(-shift)])]


@row(*_EVERY)
def an_orthogonal_change_of_basis_of_q_and_k_changes_nothing(case: Case) -> Sum:
    """For all pairs of channels (a, b): (a + b, a − b) in the keys, and half of it in the queries,
    give the same result. The sums are exact.
    """
    return [Term({"q": [Butterfly(0.5)], "k": [Butterfly(1.0)]})] if case.size("head_dim") > 1 else None


@row(*_BY_PLACE, domains=("padded masks", "rows without keys", "sinks"))
def the_content_of_keys_masked_for_all_queries_does_not_matter(case: Case) -> Sum:
    """For every mask, and keys that it masks for every query: any finite numbers in these keys and
    their values give the same result.
    """
    if case.mask is None or not rules_compose(case.arguments, case.implementation):
        return None
    if not masked_keys_weigh_nothing(case.implementation):
        return None
    others = places_matter(case.arguments) or case.arguments.get("bias") is not None
    if case.conventions.dead_rows == "uniform" and (others or not case.mask.any(-1).all()):
        return None  # a fully masked row averages all values
    seen: Any = np.broadcast_to(case.mask, (*case.q.shape[:-1], case.k.shape[-2])).any(-2)
    masked = ~seen[..., None]
    if case.q.shape[:-2] != case.k.shape[:-2]:  # several query heads share a key head
        masked = masked.all(-3, keepdims=True)
    size = case.choose.among([1.0, -1.0]) * case.largest
    return [Term({"k": [Put(masked, size)], "v": [Put(masked, -size)]})] if masked.any() else None


@row(*_BY_PLACE, domains=("everyday", "padded masks", "dead rows", "rows without keys"))
def packed_sequences_are_computed_independently(case: Case) -> Sum:
    """For every mask, and every split of the queries in two parts: each part gives the same result
    without the keys that are masked for all of it; a fully masked part keeps one key. So packed
    sequences have the results that they have alone.
    """
    implementation, featured = case.implementation, case.forward.name == _FEATURED
    visible = case.mask
    if featured:
        visible = None if implementation.lacks("mask") else visible_keys(case.arguments, implementation)
    if visible is None or not masked_keys_weigh_nothing(implementation):
        return None
    if featured and case.bias is not None and not bias_has_effect(case.arguments, implementation):
        return None  # without causality it would have an effect
    if featured and case.alibi is not None:
        return None  # keys of a part have other positions
    size, instead = case.size("n_q"), {"causal": None, "window": None} if featured else {}
    first = np.arange(size) < case.choose.cut(size) if case.choose.happens() else case.choose.bits(size)
    visible = np.broadcast_to(visible, (*visible.shape[:-2], size, case.size("n_k")))
    seen = [visible[..., part, :].any(tuple(range(visible.ndim - 1))) for part in (first, ~first)]
    if first.all() or not first.any() or (seen[0] & seen[1]).all():
        return None
    if case.conventions.dead_rows == "uniform" and not visible.any(-1).all():
        return None  # a fully masked row averages all values
    parts = [
        (np.flatnonzero(part), np.flatnonzero(keys) if keys.any() else [0])
        for part, keys in zip((first, ~first), seen, strict=True)
    ]
    return [
        case.across({"n_q": part, "n_k": keys}, mask=visible[..., part, :][..., keys], **instead)
        for part, keys in parts
    ]


@row(_SOFTMAX, domains=("padded masks",))
def masked_scores_do_not_matter(case: Case) -> Sum:
    """For every mask: any finite numbers as masked scores give the same weights."""
    masked = np.zeros((), bool) if case.mask is None else ~case.mask
    if not masked.any():
        return None
    return [Term({"scores": [Put(masked, case.choose.among([1.0, -1.0]) * max(case.largest, 8192.0))]})]


@row(*_MASKED, domains=("everyday", "extreme scores"))
def appending_masked_keys_changes_nothing(case: Case) -> Sum:
    """For every test input: masked keys after the last key, with any finite numbers in them, do not
    change the result.
    """
    count, size = case.choose.among([1, 3, 16, case.size("n_k")]), case.largest
    mask = lengthened(case.mask, (*case.q.shape[:-1], case.size("n_k")), count)
    return [Term({"k": [Pad(-2, count, size)], "v": [Pad(-2, count, -size)]}, (), {"mask": mask})]


@row(_SOFTMAX, domains=("everyday", "extreme scores"))
def appending_masked_scores_changes_nothing(case: Case) -> Sum:
    """For every test input: masked scores after the last one do not change the weights before them."""
    pad = Pad(-1, case.choose.among([1, 3, 16]), case.largest)
    return [Term({"scores": [pad]}, [Back(pad)], {"mask": lengthened(case.mask, case.scores.shape, pad.count)})]


@row(*_BY_PLACE, _SOFTMAX, domains=("everyday", "broadcast masks", "masks of sequences"))
def a_broadcast_mask_gives_the_same_as_the_full_mask(case: Case) -> Sum:
    """For every mask with fewer axes, or axes of size 1, and for none: the mask repeated along
    these axes, or a mask of True, gives the same result.
    """
    shape = case.scores.shape if case.has("scores") else (*case.q.shape[:-1], case.size("n_k"))
    full = np.broadcast_to(True if case.mask is None else case.mask, shape)
    if case.mask is None and not rules_compose({**case.arguments, "mask": full}, case.implementation):
        return None
    return None if case.mask is not None and case.mask.shape == shape else [Term(instead={"mask": full.copy()})]


@row(_SOFTMAX)
def adding_a_constant_to_a_row_of_scores_changes_nothing(case: Case) -> Sum:
    """For every number that can be added to all scores of a row exactly, as far from 0 as the
    format permits: the weights are the same.
    """
    reach = 2.0**-7 / case.implementation.resolved_arithmetic.inputs.unit_roundoff
    far = case.choose.among([16.0, reach, reach / 8, reach / 64])
    return [Term({"scores": [Plus(far * case.choose.signs(case.size("n_q"))[:, None])]})]


@row(*_MASKED, _HEADS, domains=("one key each",))
def the_score_of_a_single_visible_key_does_not_matter(case: Case) -> Sum:
    """For every mask with one visible key for each query, and scores of any size: scores of 0 give
    the same result.
    """
    return [Term({"wq" if case.forward.name == _HEADS else "q": [Times(0.0)]})]
