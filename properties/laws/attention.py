"""Laws of scaled dot-product attention."""

from typing import Any

import numpy as np

from properties.law import Laws
from properties.strategies.arrays import TILES, live_masks
from properties.strategies.attention import EXTREME, attention
from properties.subject import Subject

law = Laws()
SDPA = "scaled_dot_product_attention"


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


@law(SDPA, cases=lambda i: attention(i, logits=EXTREME), agreement=True)
def attention_is_within_its_budget_at_extreme_logits(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every logits to ±1e4: the output is attention.

    Within budget.
    """
    subject.within(subject(q, k, v, mask))


@law(SDPA, cases=lambda i: attention(i, masks=live_masks, lengths=(2, 3, 1, 4, 5, 8, 17)), kills="sdpa-rectangular-mask-ignored")
def blocked_keys_and_values_do_not_matter(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every mask and keys and values that no query may read: the output is the same, whatever finite numbers stand there.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    unread: Any = ~np.any(np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2])), axis=-2)[..., None]
    subject.tells(unread.any())
    largest = subject.largest_harmless
    poisoned = subject(q, np.where(unread, largest, k), np.where(unread, -largest, v), mask)
    (subject.same if subject.implementation.deterministic else subject.close)(poisoned, subject(q, k, v, mask))
