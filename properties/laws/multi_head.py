"""Laws of multi-head attention."""

from typing import Any

import numpy as np

from oracles.ball import exact, matmul
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.algebra import kept
from properties.laws.averages import mean
from properties.strategies.arrays import TILES, also, orders
from properties.strategies.masks import dead_masks
from properties.strategies.multi_head import (
    HEAD_WIDTHS,
    TOKENS,
    causal_tokens,
    multi_head,
    one_selecting_head,
    permuted_heads,
    pointing,
    unread_tokens,
)
from properties.subject import Subject

law = Laws()
HEADS = "multi_head_attention"
SDPA = "scaled_dot_product_attention"


@law(HEADS, cases=multi_head, agreement=True, lean="Spec.MultiHeadAttention.forward")
def multi_head_attention_is_within_its_budget(subject: Subject, *case: Any) -> None:
    """For every x, weights and mask: the output is Σₕ attention(x·wq_h, x·wk_h, x·wv_h)·wo_h, over blocks of columns and of rows of wo.

    Within budget.
    """
    subject.within(subject(*case))


@law(HEADS, cases=lambda i: multi_head(i, lengths=TILES, widths=(1, 8, 2, 16, 64), heads=(1, 2, 4, 8)), agreement=True, effort=0.5)
def multi_head_attention_is_within_its_budget_across_tiles(subject: Subject, *case: Any) -> None:
    """For all numbers of tokens around the tiles of kernels, to 300, and widths that kernels have paths for: the output is as defined.

    Within budget.
    """
    subject.within(subject(*case))


def _taken(x: Any, target: Any) -> Any:
    """For each token the one that it attends to."""
    return np.take_along_axis(x, target[..., None], -2)


def _no_square(i: Implementation) -> str:
    return "" if i.allows(model_dim_minus_heads_width=0) else "It supports no model that is as wide as its heads together."


@law(
    HEADS,
    cases=lambda i: pointing(i, square=True),
    exempts=_no_square,
    effort=0.5,
    purpose="What is cut into heads is put together again: lanes stay with their tokens.",
)
def identity_weights_merge_what_they_split(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, target: Any
) -> None:
    """For every x, if wv and wo are the identity and token i may attend to token π(i) only: the output is x in the order π.

    Within budget. It exempts models that are never as wide as their heads together.
    """
    identity = np.eye(x.shape[-1])
    subject.close(subject(x, wq, wk, identity, identity, num_heads, mask), _taken(x, target))


@law(HEADS, cases=pointing, effort=0.5, purpose="Columns of wv meet the rows of wo that belong to them, of the token that is attended to.")
def one_allowed_token_gives_its_projection(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, target: Any
) -> None:
    """For every case in which token i may attend to token π(i) only: the output is x·wv·wo in the order π.

    Within budget.
    """
    expected = matmul(matmul(exact(_taken(x, target)), exact(wv)), exact(wo))
    subject.close(subject(x, wq, wk, wv, wo, num_heads, mask), expected)


@law(HEADS, cases=one_selecting_head, needs=(SDPA,), effort=0.5, purpose="Queries, keys and values are those of attention, with its scale.")
def one_head_is_self_attention(subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any) -> None:
    """For one head, and projections that choose lanes of x and are exact: the output is attention of x·wq, x·wk and x·wv, times wo.

    Within budget. It needs attention.
    """
    attended = subject.scaled_dot_product_attention(x @ wq, x @ wk, x @ wv, mask)
    subject.close(subject(x, wq, wk, wv, wo, 1, mask), matmul(attended.ball, exact(wo)))


def _heads(w: Any, num_heads: int) -> list[Any]:
    """The blocks of columns that belong to the heads."""
    return list(np.split(w, num_heads, axis=-1))


def _wide_models(i: Implementation) -> str:
    several = any(i.allows(num_heads=n) for n in (2, 3, 4)) and i.allows(num_heads=1)
    return (
        "" if several and i.allows(model_dim_minus_heads_width=1) else "Its model is as wide as its heads together, so one head is no part."
    )


@law(
    HEADS,
    cases=lambda i: multi_head(i, heads=(2, 3, 4)),
    exempts=_wide_models,
    effort=0.5,
    purpose="Heads are blocks of columns, and do not mix.",
)
def multi_head_attention_is_the_sum_of_its_heads(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any
) -> None:
    """For every case: the output is the sum of the outputs of each head by itself, with its blocks of columns and rows.

    Within budget. It exempts models that must be as wide as their heads together.
    """
    blocks = zip(*(_heads(w, num_heads) for w in (wq, wk, wv, wo.T)), strict=True)
    alone = [subject(x, *three, last.T, 1, mask).ball for *three, last in blocks]
    subject.close(subject(x, wq, wk, wv, wo, num_heads, mask), sum(alone[1:], alone[0]))


@law(HEADS, cases=permuted_heads, effort=0.5, purpose="No head and no lane of a head is privileged, and wo is multiplied as it is stored.")
def heads_permute_with_the_rows_of_wo(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, lanes: Any, values: Any
) -> None:
    """For every order of the heads, and orders and signs of the lanes of each: with the columns of wq, wk, wv and the rows of wo in that
    order, one for wq and wk, one for wv and wo, the output is the same.

    Within budget. Informative where there are two lanes.
    """
    (first, sign), (second, other) = lanes, values
    subject.informative_if(wq.shape[1] > 1)
    turned = wq[:, first] * sign, wk[:, first] * sign, wv[:, second] * other, wo[second] * other[:, None]
    subject.close(subject(x, *turned, num_heads, mask), subject(x, wq, wk, wv, wo, num_heads, mask))


def _no_wide_heads(i: Implementation) -> str:
    narrow = any(i.allows(head_dim=d) and i.allows(head_dim=4 * d) for d in HEAD_WIDTHS)
    return "" if narrow and i.allows(model_dim_minus_heads_width=1) else "It does not support heads of four times the width in one model."


@law(
    HEADS,
    cases=multi_head,
    exempts=_no_wide_heads,
    effort=0.5,
    purpose="The scale is the width of a head, not of the model, nor the number of heads.",
)
def padding_heads_with_zero_lanes_needs_doubled_queries(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any
) -> None:
    """For every case: with each head filled up with zeros to four times its width, and wq doubled, the output is the same.

    Within budget. It exempts models that must be as wide as their heads together.
    """
    d = wq.shape[1] // num_heads
    subject.informative_if(subject.implementation.allows(head_dim=4 * d))
    if not subject.implementation.allows(head_dim=4 * d):
        return

    def padded(w: Any) -> Any:
        return np.concatenate([np.pad(block, ((0, 0), (0, 3 * d))) for block in _heads(w, num_heads)], -1)

    wide = padded(2.0 * wq), padded(wk), padded(wv), padded(wo.T).T
    subject.close(subject(x, *wide, num_heads, mask), subject(x, wq, wk, wv, wo, num_heads, mask))


@law(HEADS, cases=causal_tokens, effort=0.5, purpose="Causality survives the heads: splitting and merging mixes no tokens.")
def the_past_does_not_depend_on_the_future(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, count: int
) -> None:
    """For every number of first tokens, under a causal mask: their outputs are the same without the tokens after them.

    Within budget. Informative where there are tokens after them.
    """
    subject.informative_if(count < x.shape[-2])
    whole = subject(x, wq, wk, wv, wo, num_heads, mask)
    subject.close(subject(x[..., :count, :], wq, wk, wv, wo, num_heads, mask[:count, :count]), whole.ball[..., :count, :])


@law(
    HEADS,
    cases=lambda i: also(multi_head(i, lengths=(*TOKENS, *TOKENS, 16, 17, 33, 65)), lambda x, *_: orders(x.shape[-2])),
    effort=0.5,
    purpose="No token is privileged.",
)
def tokens_move_with_their_outputs(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, order: Any
) -> None:
    """For every order of the tokens, with the rows and columns of the mask: the outputs are in that order.

    Within budget.
    """
    turned = mask if mask is None else mask[..., order, :][..., order]
    moved = subject(x[..., order, :], wq, wk, wv, wo, num_heads, turned)
    subject.close(moved, subject(x, wq, wk, wv, wo, num_heads, mask).ball[..., order, :])


@law(HEADS, cases=unread_tokens, effort=0.5, purpose="Each head on each path has the mask.")
def blocked_tokens_do_not_matter(subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any) -> None:
    """For every token that no token may attend to: the outputs of all others are the same, whatever it is.

    Exact for an implementation that declares to be deterministic, else within budget. Informative where other outputs are left.
    """
    unread = ~mask.any(-2)[..., None]
    subject.informative_if(unread.any() and not unread.all())
    other = np.where(unread, 8.0 - np.abs(x), x)
    found, expected = (subject(y, wq, wk, wv, wo, num_heads, mask) for y in (other, x))
    if subject.implementation.deterministic:
        subject.same(np.where(unread, 0.0, found.value), np.where(unread, 0.0, expected.value))
    else:
        subject.close(kept(found.ball, ~unread), kept(expected.ball, ~unread))


@law(
    HEADS,
    cases=lambda i: multi_head(i, lengths=(*TOKENS, 16, 17, 33), masks=dead_masks),
    effort=0.5,
    purpose="Rows that may attend to nothing are NaN in kernels that do not look for them.",
)
def a_token_with_nothing_to_attend_to_follows_its_convention(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any
) -> None:
    """For every token that may attend to no token: its output is 0, or NaN, or the mean of all x·wv·wo, by the convention dead_rows.

    Exact, the mean within budget.
    """
    out = subject(x, wq, wk, wv, wo, num_heads, mask)
    live = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2])).any(-1, keepdims=True)
    reading = subject.implementation.reading.dead_rows
    if reading == "uniform":
        average = matmul(matmul(mean(x, np.ones((*x.shape[:-1], x.shape[-2]))), exact(wv)), exact(wo))
        subject.close(kept(out.ball, ~live), kept(average, ~live))
    else:
        expected = 0.0 if reading == "zero" else np.nan
        subject.same(np.where(live, expected, out.value), np.full(x.shape, expected), "out of a token that may attend to nothing")
