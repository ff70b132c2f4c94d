"""local-attention: its `LocalAttention`, which cuts a sequence into buckets of `window_size` keys
and looks some buckets back and forward.

With `exact_windowsize` the window counts keys: look_backward·window_size keys before the query's
own key, and likewise after it. If it looks back over all buckets, it is causal attention. A mask is
a mask of keys, for each head. The adapter leaves out rotary embeddings, and repeats heads that
share keys. For a fully masked row the library returns the mean of the values in the buckets, with
−1 for positions beyond the ends; the adapter returns 0.
"""

from typing import Any

from properties.contract.implementation import Implementation
from systems.attention_arguments import AttentionOptions
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("local-attention", "local_attention")


def _attend(q: Any, k: Any, v: Any, **given: Any) -> Any:
    """Attention in a window. If its sides are equal, or it is causal, a bucket is as wide as a
    side; otherwise a bucket is one key.
    """
    import torch
    from local_attention import LocalAttention

    options = AttentionOptions(**given)
    mask, n = options.mask, q.shape[-2]
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    left, right = (n if side is None else side for side in options.window)
    right = 0 if options.causal else right
    size = left if left in range(1, n) and right in (0, left) else 1
    attend = LocalAttention(
        size,
        causal=options.causal,
        look_backward=left // size,
        look_forward=right // size,
        scale=options.scale,
        exact_windowsize=True,
        autopad=True,
        use_rotary_pos_emb=False,
    )
    if mask is None:
        return attend(q, k, v)
    keys = mask.expand(*q.shape[:2], 1, n)[:, :, 0]
    ahead = torch.arange(n) - torch.arange(n)[:, None]
    alive = ((ahead >= -left) & (ahead <= right) & keys[:, :, None]).any(-1)
    return attend(q, k, v, mask=keys.flatten(0, 1)).masked_fill(~alive[..., None], 0.0)


def _causal(q: Any, k: Any, v: Any) -> Any:
    from local_attention import LocalAttention

    size = 4
    attend = LocalAttention(
        size, causal=True, look_backward=-(-q.shape[-2] // size), autopad=True, use_rotary_pos_emb=False
    )
    return attend(q, k, v)


IMPLEMENTATIONS = [
    Implementation(
        name=_LIBRARY.called(f"LocalAttention, {name} float32"),
        operations=operations,
        arithmetic="float32",
        arrays="torch",
        batch_ranks=(2,),
        supports=[
            "no log-sum-exp", "key masks", "positive sizes",
            {"n_k_minus_n_q": [0], "value_dim_minus_head_dim": [0]},
        ],
        features=features,
        refuses=(Exception,),  # einops has its own exceptions
        unavailable=_LIBRARY.unavailable,
    )
    for name, operations, features in (
        ("buckets", {"causal_attention": _causal}, ()),
        ("windows", {"attention": _attend}, ("scale", "causal", "window", "mask")),
    )
]  # fmt: skip
