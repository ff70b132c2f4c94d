"""Laws of heads: of multi-head attention, and of grouped queries."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from oracles.ball import exact, matmul
from properties.contract.subject import Subject
from properties.laws.averages import dead_rows_follow_their_convention, mean, own_heads
from properties.laws.law import Laws
from properties.laws.maps import Pad, Take, Times
from properties.laws.rows import Rows
from properties.laws.squares import Case, Term
from properties.strategies.choices import Choices

law = Laws()
row = Rows(law)
HEADS, SDPA, GQA, FEATURED = (
    "multi_head_attention",
    "scaled_dot_product_attention",
    "grouped_query_attention",
    "attention",
)


@law(HEADS)
def one_allowed_token_gives_its_projection(subject: Subject, x: Any, *weights: Any, choose: Choices) -> None:
    """For every case in which token i may attend to token π(i) only: the output is x·wv·wo in the order π."""
    n, (_, _, wv, wo, _, _) = x.shape[-2], weights
    target = (
        choose.integers(0, n - 1, x.shape[:-1]) if choose.happens() else np.broadcast_to(choose.order(n), x.shape[:-1])
    )
    chosen = np.take_along_axis(x, target[..., None], -2)
    found = subject(x, *weights[:5], np.eye(n, dtype=bool)[target])
    subject.close(found, matmul(matmul(exact(chosen), exact(wv)), exact(wo)))


@law(HEADS, needs=(SDPA,))
def one_head_is_self_attention(subject: Subject, x: Any, *weights: Any, choose: Choices) -> bool:
    """For one head, and projections that choose columns of x and are exact: the output is attention
    of x·wq, x·wk and x·wv, times wo.

    Within budget. It needs attention.
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


@law(HEADS, domains=("dead rows",), watches=True)
def a_query_with_no_allowed_key_follows_its_convention(subject: Subject, x: Any, *weights: Any) -> None:
    """For every token that may attend to no token: its output is 0, or NaN, or the mean of all
    x·wv·wo, by the convention dead_rows.

    Exact, the mean within budget.
    """
    *_, wv, wo, _, mask = weights
    out, every = subject(x, *weights), (*x.shape[:-1], x.shape[-2])
    average = matmul(matmul(mean(x, np.ones(every)), exact(wv)), exact(wo))
    dead_rows_follow_their_convention(subject, out, ~np.broadcast_to(mask, every).any(-1), average)


@law(GQA, domains=("everyday", "padded masks"), needs=(SDPA,))
def each_head_is_attention_over_its_own(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: the output is attention with the heads of keys and values repeated, and heads
    as an axis of the batch.

    Which head is repeated where, says the convention `kv_heads`. Within budget. It needs attention.
    """
    own = own_heads(subject.implementation, q.shape[-3], k.shape[-3])
    out = subject.scaled_dot_product_attention(q, k[..., own, :, :], v[..., own, :, :], mask)
    subject.close(subject(q, k, v, mask), out)


# -- Symmetries ----------------------------------------------------------------------------------------------------------------------


def _columns(c: Case, heads: Any) -> Any:
    """The columns that belong to some heads."""
    width = c.size("heads_width") // c.num_heads
    return (np.asarray(heads)[:, None] * width + np.arange(width)).reshape(-1)


@row(HEADS)
def the_order_of_heads_does_not_matter(c: Case) -> Sequence[Term] | None:
    """For every order of the heads, in the columns of wq, wk, wv and the rows of wo: the same."""
    return [c.along("heads_width", _columns(c, c.choose.order(c.num_heads)))] if c.num_heads > 1 else None


@row(HEADS)
def heads_are_computed_independently(c: Case) -> Sequence[Term] | None:
    """For every case: the output is the sum of those of each head by itself, with its columns and rows."""
    return (
        [c.along("heads_width", _columns(c, [h]), num_heads=1) for h in range(c.num_heads)] if c.num_heads > 1 else None
    )


@row(HEADS, domains=("everyday", "widths of models"))
def the_order_of_columns_within_heads_does_not_matter(c: Case) -> Sequence[Term] | None:
    """For every order of the columns of wq and wk within each head, and every other one of wv and
    the rows of wo: the same.
    """
    n, heads = c.size("heads_width"), c.num_heads
    if n == heads:
        return None
    first, second = (
        np.concatenate([h * (n // heads) + c.choose.order(n // heads) for h in range(heads)]) for _ in range(2)
    )
    maps = {p: [Take(-1, first, n)] for p in ("wq", "wk")} | {"wv": [Take(-1, second, n)], "wo": [Take(-2, second, n)]}
    return [Term(maps)]


@row(HEADS, domains=("everyday", "padded masks", "masks of rows"))
def tokens_depend_on_visible_tokens_only(c: Case) -> Sequence[Term] | None:
    """For every mask, and some tokens, the first ones for instance: their outputs are the same
    without the tokens that none of them reads."""
    n = c.size("seq_len")
    some = np.arange(n) < c.choose.cut(n) if c.choose.happens() else c.choose.bits(n)
    needed = some | np.broadcast_to(True if c.mask is None else c.mask, (*c.x.shape[:-1], n))[..., some, :].any(
        tuple(range(c.x.ndim - 1))
    )
    if needed.all() or not some.any():
        return None
    index = np.flatnonzero(needed)
    short = c.along("seq_len", index, mask=(c.mask | ~some[:, None])[..., index, :][..., index])
    kept, others = (c.kept("seq_len", part)["out"] for part in (some[index], ~some))
    return [Term(short.inputs, [*kept, *short.outgoing("out")], short.instead), Term({}, others)]


def own(c: Case) -> Any:
    """The head of keys that each head of queries reads."""
    return own_heads(c.implementation, c.size("num_heads"), c.size("kv_heads"))


@row(GQA, FEATURED, domains=("everyday", "padded masks"))
def heads_of_keys_can_be_repeated(c: Case) -> Sequence[Term] | None:
    """For every case: with a head of keys for each head of queries, its own, the result is the same."""
    return [Term(c.along("kv_heads", own(c)).inputs)] if c.size("num_heads") > c.size("kv_heads") else None


@row(GQA, FEATURED, name="heads are computed independently")
def heads_are_computed_independently_again(c: Case) -> Sequence[Term] | None:
    """For every case: the heads that share a head of keys have their outputs without all others."""
    few = c.size("kv_heads")
    return (
        [c.across({"num_heads": np.flatnonzero(own(c) == head), "kv_heads": [head]}) for head in range(few)]
        if few > 1
        else None
    )


@row(GQA, FEATURED, name="the order of heads does not matter")
def the_order_of_heads_does_not_matter_again(c: Case) -> Sequence[Term] | None:
    """For every order of the heads of keys, with heads of queries that follow them: the same."""
    mine, order = own(c), c.choose.order(c.size("kv_heads"))
    readers = {head: list(np.flatnonzero(mine == head)) for head in order}
    return (
        [c.across({"num_heads": np.array([readers[order[head]].pop() for head in mine]), "kv_heads": order})]
        if len(order) > 1
        else None
    )


@row(HEADS)
def channels_of_zeros_in_every_head_change_the_scale_alone(c: Case) -> Sequence[Term]:
    """For every case: with heads four times as wide, of zeros, wq is doubled."""
    width, n = c.size("heads_width") // c.num_heads, c.size("heads_width")
    index = np.array(
        [h * width + channel if channel < width else n for h in range(c.num_heads) for channel in range(4 * width)], int
    )
    wide = [Pad(-1, 1), Take(-1, index, n + 1)]
    return [Term({"wq": [*wide, Times(2.0)], "wk": wide, "wv": wide, "wo": [Pad(-2, 1), Take(-2, index, n + 1)]})]
