"""ring-attention-pytorch on one machine: `default_attention`, `ring_flash_attn` with its own
backward, and `RingRotaryEmbedding`.

A bucket has sixteen positions, so longer calls have several buckets. Keys and values have one
width, and heads that share them are tiled. Causal attention ignores a mask, as a comment of the
source says.
"""

from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import AttentionOptions
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("ring-attention-pytorch", "ring_attention_pytorch")


def _attend(flash: bool, q: Any, k: Any, v: Any, **given: Any) -> Any:
    """The output; the library takes (batch, sequence, heads, width)."""
    import ring_attention_pytorch.ring_attention as plain
    from ring_attention_pytorch.ring_flash_attention import ring_flash_attn

    features = AttentionOptions(**given)
    options: dict[str, Any] = {
        "causal": features.causal,
        "softclamp_qk_sim": features.softcap is not None,
        "softclamp_value": float(features.softcap or 50.0),
    }
    attend = partial(ring_flash_attn, bucket_size=16) if flash else plain.default_attention
    return attend(*(x.transpose(1, 2) for x in (q, k, v)), features.mask, **options).transpose(1, 2)


def _default(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return _attend(False, q, k, v, **options)


def _flash(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return _attend(True, q, k, v, **options)


def _flash_vjp(q: Any, k: Any, v: Any, grad_out: Any, **options: Any) -> Any:
    import torch

    inputs = [x.requires_grad_() for x in (q, k, v)]
    return (*torch.autograd.grad(_flash(*inputs, **options), inputs, grad_out), None, None)


def _rope(x: Any, start_pos: int = 0, *, positions: Any = None) -> Any:
    import torch
    from ring_attention_pytorch.ring_attention import RingRotaryEmbedding, apply_rotary_pos_emb

    if positions is None:
        positions = torch.arange(start_pos, start_pos + x.shape[-2])
    angles = RingRotaryEmbedding(x.shape[-1])(torch.as_tensor(positions))
    return apply_rotary_pos_emb(angles, x, head_dim_first=True)


def _implementation(name: str, **promises: Any) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} float32"),
        arithmetic="float32",
        arrays="torch",
        refuses=(RuntimeError, ValueError, AssertionError, ZeroDivisionError),
        unavailable=_LIBRARY.unavailable,
        **promises,
    )


_EQUAL = {"n_k_minus_n_q": [0], "value_dim_minus_head_dim": [0]}

IMPLEMENTATIONS = [
    _implementation(
        "default_attention", operations={"attention": _default}, batch_ranks=(2,),
        features=("mask", "causal", "softcap"),
        conventions=Conventions(
            dead_rows="uniform", kv_heads="tile", causal="bottom_right", causal_with_mask="causal_wins"
        ),
        supports=["no log-sum-exp", "positive sizes", "padding masks"],
    ),
    _implementation(
        "ring_flash_attn", operations={"attention": _flash, "attention_vjp": _flash_vjp}, batch_ranks=(2,),
        features=("mask", "causal", "softcap"),
        conventions=Conventions(dead_rows="zero", kv_heads="tile", causal_with_mask="causal_wins"),
        supports=["no log-sum-exp", "positive sizes", "padding masks", _EQUAL],
        twins={
            "default_attention, without masks": Twin(
                {"attention": _default}, promises={"supports": ["no log-sum-exp", "positive sizes", "no masks", _EQUAL]}
            )
        },
    ),
    _implementation(
        "RingRotaryEmbedding", operations={"rope": _rope}, batch_ranks=(0,), features=("positions",),
        conventions=Conventions(rope_pairing="half", odd_lane="reject"),
        supports=["positive sizes", {"head_dim": lambda d: d % 2 == 0}],
    ),
]  # fmt: skip
