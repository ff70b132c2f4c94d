"""Laws of scaled dot-product attention: what its outputs are, averages of the values."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import Ball, exact, total
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.averages import allowed, mean
from properties.strategies.arrays import SHORT, TILES, WIDTHS, also, live_masks, orders
from properties.strategies.attention import anywhere, attention, extreme_attention
from properties.strategies.variations import two_values
from properties.subject import Subject

law = Laws()
SDPA = "scaled_dot_product_attention"

_DECODING = (100, 1, 31, 64, 65, 255, 256, 257, 511, 512, 513, 640, 767, 1000, 1023, 1024, 1025, 1100)
_PARTICULAR = (32, 64, 80, 96, 128, 24, 40, 48, 56, 63, 65, 72, 112, 127, 129, 160, 192, 256)


@law(SDPA, cases=attention, agreement=True, lean="Spec.scaledDotProductAttention")
def attention_is_within_its_budget(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every q, k, v and mask that leaves each query a key: the output is softmax(q·kᵀ/√d over the allowed keys)·v.

    Within budget.
    """
    subject.within(subject(q, k, v, mask))


@law(SDPA, cases=lambda i: attention(i, lengths=TILES, widths=(1, 2, 8, 16, 64)), agreement=True)
def attention_is_within_its_budget_across_tiles(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every number of queries and keys around the tiles of kernels, to 300: the output is attention.

    Within budget.
    """
    subject.within(subject(q, k, v, mask))


@law(SDPA, cases=lambda i: extreme_attention(i, lengths=(*SHORT, 40, 64, 65, 100)), agreement=True)
def attention_is_within_its_budget_at_extreme_logits(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For all logits to ±1e4, and for rows whose logits are all large, or all very low: the output is attention.

    Within budget.
    """
    subject.within(subject(q, k, v, mask))


@law(SDPA, cases=lambda i: attention(i, lengths=(1, 2, 3, 4), keys=_DECODING, widths=(1, 8, 16, 64, 128)), agreement=True)
def attention_is_within_its_budget_while_decoding(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For one to four queries and up to 1100 keys: the output is attention. Kernels split so many keys, and merge the parts.

    Within budget.
    """
    subject.within(subject(q, k, v, mask))


@law(SDPA, cases=lambda i: attention(i, lengths=(1, 2, 3, 5, 16, 17, 64, 65, 130), widths=_PARTICULAR), agreement=True)
def attention_is_within_its_budget_at_the_widths_of_models(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For widths of queries and of values that models have, their neighbours, and multiples of 8, to 256: the output is attention.

    Within budget.
    """
    subject.within(subject(q, k, v, mask))


@law(SDPA, cases=lambda i: anywhere(i, widths=WIDTHS), purpose="An average lies among what it is taken of, whatever its weights are.")
def outputs_stay_within_the_allowed_values(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: each entry of the output lies between the least and the largest value that its query may read in its column.

    Within budget.
    """
    out = subject(q, k, v, mask)
    may = allowed(mask, q, k)
    hull = [np.empty(out.value.shape), np.empty(out.value.shape)]
    for column in range(v.shape[-1]):
        values = v[..., None, :, column]
        hull[0][..., column] = np.where(may, values, np.inf).min(-1)
        hull[1][..., column] = np.where(may, values, -np.inf).max(-1)
    subject.close(out, np.clip(out.value, *hull))


@law(SDPA, cases=anywhere, kills="sdpa-tail-counts-as-zeros", purpose="It needs no oracle: outputs are averages, whatever the scores.")
def constant_values_come_out_unchanged(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every q, k and mask: where all keys have one value, every output is that value, for the weights of a query sum to 1.

    Within budget.
    """
    constant = np.broadcast_to(v[..., :1, :], v.shape)
    subject.informative_if(constant.any())
    subject.close(subject(q, k, constant, mask), np.broadcast_to(v[..., :1, :], (*q.shape[:-1], v.shape[-1])))


@law(SDPA, cases=two_values, purpose="Weights may not depend on the values, nor values be rounded or limited on their way.")
def attention_is_linear_in_the_values(subject: Subject, q: Any, k: Any, v: Any, w: Any, mask: Any) -> None:
    """For every q, k, mask and values v, w whose sum is exact: attention of −4·(v + w) is −4 times the sum of those of v and of w.

    Within budget.
    """
    both = subject(q, k, -4.0 * (v + w), mask)
    subject.close(both, exact(-4.0) * (subject(q, k, v, mask).ball + subject(q, k, w, mask).ball))


@law(SDPA, cases=lambda i: anywhere(i, masks=live_masks), purpose="Weights themselves are seen: positive, zero behind the mask, of sum 1.")
def one_hot_values_read_out_the_weights(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every q, k and mask, and keys in as many runs as values have columns: one-hot values read out the weight of each run.

    It is never negative, and zero where the query may read no key of the run. Exact. In each row they sum to 1. Within budget.
    """
    n_k, columns = v.shape[-2:]
    runs = np.arange(n_k) * columns // n_k
    one_hot = np.broadcast_to(np.eye(columns)[runs], v.shape)
    out = subject(q, k, one_hot, mask)
    readable = (allowed(mask, q, k).astype(float) @ one_hot) > 0
    subject.same(np.where(readable, np.abs(out.value), 0.0), out.value, "weights")
    subject.close(total(out.ball), np.ones(q.shape[:-1]), "sum of weights")


@law(SDPA, cases=lambda i: also(anywhere(i), lambda q, k, v, mask: orders(v.shape[-1])), purpose="Lanes of values are kept apart.")
def columns_move_with_the_values(subject: Subject, q: Any, k: Any, v: Any, mask: Any, order: Any) -> None:
    """For every case and order of the columns of values: the columns of the output are in that order.

    Within budget. Informative where there are two columns.
    """
    subject.informative_if(v.shape[-1] > 1)
    subject.close(subject(q, k, v[..., order], mask), subject(q, k, v, mask).ball[..., order])


@law(SDPA, cases=anywhere, purpose="Every allowed key counts, none counts twice: the mean shows it at every size.")
def zero_queries_take_the_mean(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every k, v and mask: a query of zeros takes the mean of the values that it may read.

    Within budget.
    """
    subject.close(subject(np.zeros(q.shape), k, v, mask), mean(v, allowed(mask, q, k)))


def _needles(q: Any, k: Any, v: Any, mask: Any) -> st.SearchStrategy[Any]:
    last = k.shape[-2] - 1
    return st.sampled_from([last, 0]) | st.integers(0, last)


@law(SDPA, cases=lambda i: also(anywhere(i), _needles), purpose="Each key is found, wherever it lies, in 16 bits too.")
def a_dominating_key_wins(subject: Subject, q: Any, k: Any, v: Any, mask: Any, winner: Any) -> None:
    """For every place of a key whose score is far above all others that a query may read: the output is its value.

    Queries of even index find the key `winner`, the others one at the opposite place. Within budget, and exp(−128) for the other keys.
    """
    n_k, d = k.shape[-2:]
    other = n_k - 1 - winner if 2 * winner != n_k - 1 else (winner + 1) % n_k
    direction = np.where(q[..., :1, :] < 0, -1.0, 1.0)
    found = np.where(np.arange(q.shape[-2]) % 2, other, winner)
    keys = np.clip(k, -8, 8)
    keys[..., other, :], keys[..., winner, :] = -16 * direction[..., 0, :], 16 * direction[..., 0, :]
    queries = 16 * direction * np.where(np.arange(q.shape[-2]) % 2, -1.0, 1.0)[:, None]
    if mask is not None:
        mask = allowed(mask, q, k).copy()
        mask[..., np.arange(q.shape[-2]), found] = True
    others = 2 * n_k * np.exp(-128 * np.sqrt(d)) * np.abs(v).max(-2, keepdims=True)
    expected = v[..., found, :]
    subject.close(subject(queries, keys, v, mask), Ball(expected, np.broadcast_to(others, expected.shape)))


def _wider_accumulators(i: Implementation) -> str:
    a = i.rounding
    if a.output.unit_roundoff < 2.0**-12:
        return "Its outputs have more than 16 bits, and overflow with its accumulators."
    return "" if a.elementwise.largest > 2.0**16 * a.output.largest else "Its accumulators overflow as soon as its outputs."


@law(SDPA, cases=two_values, exempts=_wider_accumulators, purpose="Where a narrow result overflows, it does so to ±∞, and alone.")
def outputs_beyond_the_largest_number_may_overflow(subject: Subject, q: Any, k: Any, v: Any, w: Any, mask: Any) -> None:
    """For values to the largest number of a format of 16 bits: the output is that of values 2¹³ times smaller, times 2¹³.

    Or it is ±∞, where it may round beyond the largest number; never NaN. Within budget. It exempts formats whose accumulators have no
    larger numbers.
    """
    scale = 2.0 ** (np.floor(np.log2(subject.implementation.rounding.output.largest)) - 2)
    most = subject.implementation.rounding.output.largest / scale
    small = np.clip(2.0 * v, -most, most)
    subject.informative_if((np.abs(small) == most).any())
    subject.close(subject(q, k, small * scale, mask), subject(q, k, small, mask).ball * exact(scale))


def _columns_of_one_kind(i: Implementation) -> str:
    found = i.allows(head_dim=0) and any(i.allows(value_dim=d, value_dim_minus_head_dim=d) for d in WIDTHS)
    return "" if found else "It supports no queries without columns beside values with some."


def _no_values(i: Implementation) -> str:
    found = i.allows(value_dim=0) and any(i.allows(head_dim=d, value_dim_minus_head_dim=-d) for d in WIDTHS)
    return "" if found else "It supports no values without columns beside queries with some."


@law(
    SDPA,
    cases=lambda i: attention(i, widths=(0,), value_widths=WIDTHS, lengths=(*SHORT, 64, 65)),
    exempts=_columns_of_one_kind,
    effort=0.5,
    kills="sdpa-width-zero-not-a-number",
)
def attention_of_width_zero_takes_the_mean(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For queries and keys without columns: all scores are 0, and every output is the mean of the allowed values.

    Within budget. It exempts implementations that do not support a head_dim of 0.
    """
    subject.close(subject(q, k, v, mask), mean(v, allowed(mask, q, k)))


@law(
    SDPA,
    cases=lambda i: attention(i, value_widths=(0,)),
    exempts=_no_values,
    effort=0.25,
    purpose="Nothing to average is legal; kernels divide sizes by it.",
)
def values_of_width_zero_give_no_columns(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For values without columns: the output has none, and nothing is raised.

    Exact. It exempts implementations that do not support a value_dim of 0.
    """
    empty = v[..., :0]
    subject.same(subject(q, k, empty, mask), np.empty((*q.shape[:-1], 0)))
