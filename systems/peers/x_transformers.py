"""x-transformers: its `Attend`, with what it takes, by both paths: written out over einsum and
softmax, and `flash`, PyTorch's kernel.

Heads that share keys are tiled, a cap comes after the bias, and a sink is one more column of
logits. Causality is aligned at the last key; the flash path has it top left where there are fewer
keys than queries. A row that the mask leaves no key is 0. A masked score is minus the largest
number, to which nothing is added: so a row is the mean of all values where the mask and causality
together leave it no key. So the path that is written out is put to no masks beside causality, and
to no biases, whose −∞ is one.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from oracles import Conventions, preset
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("x-transformers", "x_transformers")


def _attend(
    flash: bool, q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None, scale: Any = None, causal: bool = False,
    softcap: Any = None, sink: Any = None,
) -> Any:  # fmt: skip
    """A bias of −∞ is written into the mask: softmax would make NaN of a row of them."""
    from x_transformers.attend import Attend

    if bias is not None:
        there = bias > -float("inf")
        mask, bias = there if mask is None else mask & there, bias.nan_to_num(neginf=0.0)
    mask, bias = (None if x is None else x.expand(*q.shape[:-1], k.shape[-2]) for x in (mask, bias))
    attend = Attend(
        flash=flash, causal=causal, heads=q.shape[1], scale=scale, head_learned_sink=sink is not None,
        softclamp_logits=softcap is not None, logit_softclamp_value=softcap or 50.0,
    )  # fmt: skip
    if sink is not None:
        del attend.head_attn_sink  # a parameter of zeros
        attend.head_attn_sink = sink
    return attend(q, k, v, mask=mask, attn_bias=bias)[0]


def _vjp(q: Any, k: Any, v: Any, grad_out: Any, **options: Any) -> Any:
    import torch

    named = {"q": q, "k": k, "v": v} | {p: options.pop(p, None) for p in ("bias", "sink")}
    given = {p: x.requires_grad_() for p, x in named.items() if x is not None}
    out = _attend(False, **given, **options)
    each = dict(
        zip(
            given,
            torch.autograd.grad(out, list(given.values()), grad_out, allow_unused=True, materialize_grads=True),
            strict=True,
        )
    )
    return tuple(each.get(p) for p in named)


_SCALED = "bfloat16-scaled-inputs"  # a scale is a factor of q, beside the kernel's own
_FLUSHING = {_SCALED: replace(preset(_SCALED), flush_to_zero=True)}


_KEYS = "n_k_minus_n_q"
_ALIGNED = {
    "unsupported sizes are refused": "Fewer keys than queries: causality is aligned at the last key, and under flash at the first"
}


def _implementation(
    name: str, flash: bool, arithmetic: str, features: tuple[str, ...], *supports: Any, causal: Any = "bottom_right",
    twins: dict[str, Any] | None = None, **operations: Any,
) -> Implementation:  # fmt: skip
    return Implementation(
        name=_LIBRARY.called(f"Attend, {name} {arithmetic}"),
        operations={"attention": partial(_attend, flash), **operations},
        arithmetic=_FLUSHING.get(arithmetic, arithmetic),
        conventions=Conventions(causal=causal, kv_heads="tile", softcap_order="after_bias"),
        arrays="torch",
        batch_ranks=(2,),
        supports=["no log-sum-exp", *supports],
        features=features,
        refuses=(RuntimeError, ZeroDivisionError),  # the second where there are no channels
        unavailable=_LIBRARY.unavailable,
        twins=twins or {},
        known_deviations=_ALIGNED if any(_KEYS in each for each in supports) else {},
    )


def _as_many(n: int) -> bool:
    return n >= 0


def _fewer(n: int) -> bool:
    return n < 0


def _flash(*features: str) -> dict[str, Twin]:
    """The other path, which knows these features."""
    return {"flash": Twin({"attention": partial(_attend, True)}, promises={"features": features})}


_ALL = ("mask", "bias", "scale", "softcap", "sink")
IMPLEMENTATIONS = [
    _implementation("written out", False, "float32", _ALL, attention_vjp=_vjp, twins=_flash("mask", "bias", "scale")),
    _implementation(
        "written out, causal", False, "float32", ("scale", "causal"), {_KEYS: _as_many}, twins=_flash("scale", "causal")
    ),
    _implementation("flash", True, "float32", ("mask", "bias", "scale")),
    _implementation("flash, causal", True, "float32", ("scale", "causal", "mask"), {_KEYS: _as_many}),
    _implementation(
        "flash, causal, fewer keys than queries",
        True,
        "float32",
        ("scale", "causal"),
        {_KEYS: _fewer},
        causal="top_left",
    ),
    _implementation("written out", False, "bfloat16-eager", ("mask", "scale")),
    _implementation("flash", True, _SCALED, ("mask", "bias", "scale")),
]
