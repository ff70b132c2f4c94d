"""local-attention: its `LocalAttention`, which cuts a sequence into buckets of `window_size` and
looks some of them back and forth.

With `exact_windowsize` the window is one of keys, by a bound: look_backward·window_size before the
query's own, and likewise after it. With as many buckets back as there are it is causal attention. A
mask is of keys alone, for each head. Rotary embeddings are left out, and heads that share keys are
repeated here. A query that the mask leaves no key gets the mean of its buckets' values, among them
−1 for what is beyond the ends: here it is made 0.
"""

from typing import Any

from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("local-attention", "local_attention")


def _attend(
    q: Any, k: Any, v: Any, *, mask: Any = None, scale: Any = None, causal: bool = False, window: Any = (None, None)
) -> Any:
    """A window of equal sides, or causal, has buckets of that size; every other one has buckets of one key."""
    import torch
    from local_attention import LocalAttention

    n = q.shape[-2]
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    left, right = (n if side is None else side for side in window)
    right = 0 if causal else right
    size = left if left in range(1, n) and right in (0, left) else 1
    attend = LocalAttention(
        size, causal=causal, look_backward=left // size, look_forward=right // size, scale=scale, exact_windowsize=True, autopad=True,
        use_rotary_pos_emb=False,
    )  # fmt: skip
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
        refuses=(Exception,),  # einops raises exceptions of its own
        unavailable=_LIBRARY.unavailable,
    )
    for name, operations, features in (
        ("buckets", {"causal_attention": _causal}, ()),
        ("windows", {"attention": _attend}, ("scale", "causal", "window", "mask")),
    )
]  # fmt: skip
