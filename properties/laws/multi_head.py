"""Laws of heads, in multi-head attention and in grouped-query attention."""

from typing import Any

import numpy as np

from oracles.ball import exact, matmul
from properties.contract.subject import Subject
from properties.laws.commuting_squares import Case, Sum, Term
from properties.laws.expected_values import check_fully_masked_rows, key_heads, mean_of_visible
from properties.laws.law import Laws
from properties.laws.linear_maps import Pad, Take, Times
from properties.laws.symmetry_rows import Rows
from properties.strategies.choices import Choices

law = Laws()
row = Rows(law)
HEADS, SDPA, GQA, FEATURED = (
    "multi_head_attention",
    "scaled_dot_product_attention",
    "grouped_query_attention",
    "attention",
)


@law(HEADS, name="a single visible token returns its projection x @ wv @ wo")
def a_single_visible_token_returns_its_projection(subject: Subject, x: Any, *weights: Any, choose: Choices) -> None:
    """For every test input in which token i sees only token π(i): the output is x·wv·wo in the order π."""
    length, (_, _, wv, wo, _, _) = x.shape[-2], weights
    target = (
        choose.integers(0, length - 1, x.shape[:-1])
        if choose.happens()
        else np.broadcast_to(choose.order(length), x.shape[:-1])
    )
    chosen = np.take_along_axis(x, target[..., None], -2)
    found = subject(x, *weights[:5], np.eye(length, dtype=bool)[target])
    subject.close(found, matmul(matmul(exact(chosen), exact(wv)), exact(wo)))


@law(HEADS, needs=(SDPA,), name="multi-head attention with one head equals attention")
def multi_head_attention_with_one_head_equals_attention(
    subject: Subject, x: Any, *weights: Any, choose: Choices
) -> bool:
    """For one head, and projections that select columns of x and are exact: the output is attention
    of x·wq, x·wk and x·wv, times wo.

    The law needs attention.
    """
    wq, _, _, wo, num_heads, mask = weights
    width, model = wq.shape[1] // num_heads, len(wq)
    selections = [
        np.eye(model)[:, choose.integers(0, model - 1, width)] * choose.among([0.25, -0.125, 1.0]) for _ in range(3)
    ]
    case = (x, *selections, wo[:width], 1, mask)
    if not subject.takes(*case):
        return False
    attended = subject.scaled_dot_product_attention(*(x @ w for w in selections), mask)
    subject.close(subject(*case), matmul(attended.ball, exact(wo[:width])))
    return True


@law(HEADS, domains=("dead rows",), watches=True, exact="for 0 and NaN")
def a_fully_masked_row_follows_its_convention(subject: Subject, x: Any, *weights: Any) -> None:
    """For every fully masked token: its output is 0, NaN, or the mean of all x·wv·wo, by the
    convention `dead_rows`.
    """
    *_, wv, wo, _, mask = weights
    result, shape = subject(x, *weights), (*x.shape[:-1], x.shape[-2])
    average = matmul(matmul(mean_of_visible(x, np.ones(shape)), exact(wv)), exact(wo))
    check_fully_masked_rows(subject, result, ~np.broadcast_to(mask, shape).any(-1), average)


@law(GQA, domains=("everyday", "padded masks"), needs=(SDPA,))
def each_query_head_attends_to_the_key_head_of_its_group(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every test input: the output is attention with the heads of keys and values repeated, and
    the heads as an axis of the batch.

    The convention `kv_heads` says which key head belongs to which query head. The law needs
    attention.
    """
    own = key_heads(subject.implementation, q.shape[-3], k.shape[-3])
    repeated = subject.scaled_dot_product_attention(q, k[..., own, :, :], v[..., own, :, :], mask)
    subject.close(subject(q, k, v, mask), repeated)


# -- Symmetries ------------------------------------------------------------------------------------


def _columns_of_heads(case: Case, heads: Any) -> Any:
    """Return the columns that belong to some heads."""
    width = case.size("heads_width") // case.num_heads
    return (np.asarray(heads)[:, None] * width + np.arange(width)).reshape(-1)


@row(HEADS)
def the_order_of_heads_does_not_matter(case: Case) -> Sum:
    """For every order of the heads: if the columns of wq, wk and wv and the rows of wo are in this
    order, the result is the same.
    """
    return (
        [case.along("heads_width", _columns_of_heads(case, case.choose.order(case.num_heads)))]
        if case.num_heads > 1
        else None
    )


@row(HEADS)
def heads_are_computed_independently(case: Case) -> Sum:
    """For every test input: the output is the sum of the outputs of each head alone, with its
    columns and rows.
    """
    return (
        [case.along("heads_width", _columns_of_heads(case, [head]), num_heads=1) for head in range(case.num_heads)]
        if case.num_heads > 1
        else None
    )


@row(HEADS, domains=("everyday", "widths of models"))
def the_order_of_columns_within_heads_does_not_matter(case: Case) -> Sum:
    """For every order within each head of the columns of wq and wk, and another order of the
    columns of wv and the rows of wo: the result is the same.
    """
    length, heads = case.size("heads_width"), case.num_heads
    if length == heads:
        return None
    first, second = (
        np.concatenate([head * (length // heads) + case.choose.order(length // heads) for head in range(heads)])
        for _ in range(2)
    )
    maps = {parameter: [Take(-1, first, length)] for parameter in ("wq", "wk")} | {
        "wv": [Take(-1, second, length)],
        "wo": [Take(-2, second, length)],
    }
    return [Term(maps)]


@row(HEADS, domains=("everyday", "padded masks", "masks of rows"))
def tokens_depend_on_visible_tokens_only(case: Case) -> Sum:
    """For every mask, and some tokens, such as the first ones: their outputs stay the same without
    the tokens that are masked for all of them.
    """
    length = case.size("seq_len")
    chosen = np.arange(length) < case.choose.cut(length) if case.choose.happens() else case.choose.bits(length)
    visible = np.broadcast_to(True if case.mask is None else case.mask, (*case.x.shape[:-1], length))
    needed = chosen | visible[..., chosen, :].any(tuple(range(case.x.ndim - 1)))
    if needed.all() or not chosen.any():
        return None
    index = np.flatnonzero(needed)
    short = case.along("seq_len", index, mask=(case.mask | ~chosen[:, None])[..., index, :][..., index])
    kept, others = (case.kept("seq_len", part)["out"] for part in (chosen[index], ~chosen))
    return [Term(short.inputs, [*kept, *short.outgoing("out")], short.instead), Term({}, others)]


def _own_key_heads(case: Case) -> Any:
    """Return the key head of each query head."""
    return key_heads(case.implementation, case.size("num_heads"), case.size("kv_heads"))


@row(GQA, FEATURED, domains=("everyday", "padded masks"))
def repeating_key_heads_for_each_query_head_changes_nothing(case: Case) -> Sum:
    """For every test input: a separate copy of its key head for each query head gives the same result."""
    return (
        [Term(case.along("kv_heads", _own_key_heads(case)).inputs)]
        if case.size("num_heads") > case.size("kv_heads")
        else None
    )


@row(GQA, FEATURED, name="heads are computed independently")
def query_heads_of_one_key_head_are_independent(case: Case) -> Sum:
    """For every test input: the query heads that share a key head have the same outputs without all
    other heads.
    """
    head_count = case.size("kv_heads")
    return (
        [
            case.across({"num_heads": np.flatnonzero(_own_key_heads(case) == head), "kv_heads": [head]})
            for head in range(head_count)
        ]
        if head_count > 1
        else None
    )


@row(GQA, FEATURED, name="the order of heads does not matter")
def key_heads_may_be_reordered(case: Case) -> Sum:
    """For every order of the key heads, with the query heads in the corresponding order: each head
    has the same result.
    """
    own_heads, order = _own_key_heads(case), case.choose.order(case.size("kv_heads"))
    readers = {head: list(np.flatnonzero(own_heads == head)) for head in order}
    return (
        [case.across({"num_heads": np.array([readers[order[head]].pop() for head in own_heads]), "kv_heads": order})]
        if len(order) > 1
        else None
    )


@row(HEADS)
def added_zero_channels_in_every_head_change_only_the_scale(case: Case) -> Sum:
    """For every test input: if zeros make each head four times as wide, and wq is doubled, the
    result is the same, because the scale is 1/√width.
    """
    width, length = case.size("heads_width") // case.num_heads, case.size("heads_width")
    index = np.array(
        [
            head * width + channel if channel < width else length
            for head in range(case.num_heads)
            for channel in range(4 * width)
        ],
        int,
    )
    wide = [Pad(-1, 1), Take(-1, index, length + 1)]
    return [Term({"wq": [*wide, Times(2.0)], "wk": wide, "wv": wide, "wo": [Pad(-2, 1), Take(-2, index, length + 1)]})]
