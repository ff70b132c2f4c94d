"""x-transformers: its `Attend` with its options, by both paths: the path written out with einsum
and softmax, and `flash`, PyTorch's kernel.

Heads that share keys are tiled, the softcap comes after the bias, and a sink is one more column of
logits. Causality is aligned at the last key; the flash path aligns it at the first key if there are
fewer keys than queries. A row that the mask masks fully is 0. The library sets a masked score to
the smallest number of its type and adds nothing to it. So if the mask and causality mask a row
fully only together, the row is the mean of all values. For this reason the laws test the
written-out path with masks or with causality, and never with a bias of −∞ beside causality.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from oracles import Conventions, preset
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import AttentionOptions
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("x-transformers", "x_transformers")


def _attend(flash: bool, q: Any, k: Any, v: Any, **given: Any) -> Any:
    """The output; a bias of −∞ becomes part of the mask, because softmax returns NaN for a row of
    −∞.
    """
    from x_transformers.attend import Attend

    options = AttentionOptions(**given)
    mask, bias, sink = options.mask, options.bias, options.sink
    if bias is not None:
        finite = bias > -float("inf")
        mask, bias = finite if mask is None else mask & finite, bias.nan_to_num(neginf=0.0)
    mask, bias = (None if x is None else x.expand(*q.shape[:-1], k.shape[-2]) for x in (mask, bias))
    attend = Attend(
        flash=flash,
        causal=options.causal,
        heads=q.shape[1],
        scale=options.scale,
        head_learned_sink=sink is not None,
        softclamp_logits=options.softcap is not None,
        logit_softclamp_value=options.softcap or 50.0,
    )
    if sink is not None:
        del attend.head_attn_sink  # a parameter of zeros
        attend.head_attn_sink = sink
    return attend(q, k, v, mask=mask, attn_bias=bias)[0]


def _vjp(q: Any, k: Any, v: Any, grad_out: Any, **options: Any) -> Any:
    import torch

    names = ("q", "k", "v", "bias", "sink")
    arrays = {"q": q, "k": k, "v": v} | {name: options.pop(name, None) for name in names[3:]}
    inputs = {name: x.requires_grad_() for name, x in arrays.items() if x is not None}
    out = _attend(False, **inputs, **options)
    found = torch.autograd.grad(out, list(inputs.values()), grad_out, allow_unused=True, materialize_grads=True)
    gradients = dict(zip(inputs, found, strict=True))
    return tuple(gradients.get(name) for name in names)


_SCALED = "bfloat16-scaled-inputs"  # q is multiplied by the scale, and the kernel has its own scale
_FLUSHING = {_SCALED: replace(preset(_SCALED), flush_to_zero=True)}


_KEYS = "n_k_minus_n_q"
_ALIGNED = {
    "unsupported sizes are refused": "Fewer keys than queries: causality is aligned at the last key, "
    "and under flash at the first"
}


def _implementation(
    name: str, flash: bool, arithmetic: str, features: tuple[str, ...], *supports: Any, **promises: Any
) -> Implementation:
    causal, operations = promises.pop("causal", "bottom_right"), promises.pop("operations", {})
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
        known_deviations=_ALIGNED if any(_KEYS in sizes for sizes in supports) else {},
        **promises,
    )


def _as_many(n: int) -> bool:
    return n >= 0


def _fewer(n: int) -> bool:
    return n < 0


def _flash(*features: str) -> dict[str, Twin]:
    """The flash path as a twin with these features."""
    return {"flash": Twin({"attention": partial(_attend, True)}, promises={"features": features})}


_ALL = ("mask", "bias", "scale", "softcap", "sink")
IMPLEMENTATIONS = [
    _implementation(
        "written out", False, "float32", _ALL, operations={"attention_vjp": _vjp}, twins=_flash("mask", "bias", "scale")
    ),
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
