"""`torch.nn.MultiheadAttention`, on each of its paths: with and without weights, in training and
evaluation, and its fast path.

The module stores its weights transposed, and stacks the three input projections. Its boolean mask
is True at masked keys, its additive mask is −∞ there, and its key padding mask masks a key for all
queries. The spec has no biases. PyTorch takes the fast path, one native kernel, in evaluation, if
the module has biases, the number of heads is even, the input has a batch axis, a mask is boolean,
and no gradients are needed: these implementations have biases of zero.

A fully masked row is NaN with weights and on the fast path, and 0 otherwise
(pytorch/pytorch#41508, #160064, #190486).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch.func import functional_call

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.attention_arguments import Projections, with_projections

__all__ = ["IMPLEMENTATIONS", "parameters"]


def parameters(weights: Projections, bias: bool) -> dict[str, Any]:
    """The module's parameters by name; with `bias` it has biases, which are zeros."""
    *inputs, wo = weights
    stored = {"in_proj_weight": torch.cat([weight.T for weight in inputs]), "out_proj.weight": wo.T}
    zeros = wo.new_zeros(3 * wo.shape[1])
    return stored | ({"in_proj_bias": zeros, "out_proj.bias": zeros[: wo.shape[1]]} if bias else {})


def _each(mask: Any, x: Any, num_heads: int) -> Any:
    """A mask with one entry for each head, from a mask with one entry for each sequence of a batch.

    A mask for all sequences, and None, stay unchanged.
    """
    if mask is None or mask.ndim == 2:
        return mask
    return mask.expand(len(x), *mask.shape[1:]).repeat_interleave(num_heads, dim=0)


def _padding(mask: Any, x: Any) -> tuple[Any, Any]:
    """The mask in two parts: the keys that are masked for all queries of a sequence, and the rest.

    The rest is None if it masks no key.
    """
    padded = mask.all(-2)
    rest = mask & ~padded[..., None, :]
    return padded.expand(*x.shape[:-1]), rest if rest.any() else None


@dataclass(frozen=True)
class _Path:
    """The settings that select a path of the module.

    A `native` path is the fast path alone, and refuses inputs for which the module takes another.
    """

    need_weights: bool
    train: bool
    bias: bool = False
    masks: Literal["attn_mask", "key_padding_mask", "both"] = "attn_mask"
    native: bool = False

    def attend(self, x: Any, weights: Projections, num_heads: int, mask: Any) -> torch.Tensor:
        """The module on a sequence, or on a batch of sequences with one mask for all or one for
        each.

        The module is made on the device "meta", so it draws no random weights.
        """
        shape = {"embed_dim": x.shape[-1], "num_heads": num_heads, "bias": self.bias}
        module = torch.nn.MultiheadAttention(**shape, batch_first=True, device="meta", dtype=x.dtype).train(self.train)
        padding = None
        if self.masks == "key_padding_mask":
            padding, mask = mask, None
        if mask is not None:  # the module refuses a mask with one row for all queries
            mask = mask.expand(*mask.shape[:-2], x.shape[-2], x.shape[-2])
        if mask is not None and self.masks == "both":
            padding, mask = _padding(mask, x)
        options = {
            "attn_mask": _each(mask, x, num_heads),
            "key_padding_mask": padding,
            "need_weights": self.need_weights,
        }
        out: torch.Tensor = functional_call(module, parameters(weights, self.bias), (x, x, x), options)[0]
        return out

    def forward(self, x: Any, weights: Projections, num_heads: int, mask: Any = None) -> torch.Tensor:
        """Multi-head attention without gradients.

        A `native` path raises ValueError for an odd number of heads.
        """
        if self.native and num_heads % 2:
            raise ValueError(f"num_heads={num_heads}, but should be even: otherwise the fast path is not taken.")
        with torch.no_grad():
            return self.attend(x, weights, num_heads, mask)

    def vjp(self, x: Any, weights: Projections, num_heads: int, mask: Any, grad_out: Any) -> Sequence[torch.Tensor]:
        """The vector-Jacobian product by reverse mode."""
        inputs = [given.requires_grad_() for given in (x, *weights)]
        out = self.attend(x, weights, num_heads, mask)
        return torch.autograd.grad(out, inputs, grad_out)

    def jvp(self, x: Any, weights: Projections, num_heads: int, mask: Any, *tangents: Any) -> torch.Tensor:
        """The Jacobian-vector product by forward mode."""

        def attend(x: Any, *weights: Any) -> torch.Tensor:
            return self.attend(x, Projections(*weights), num_heads, mask)

        out: torch.Tensor = torch.func.jvp(attend, (x, *weights), tangents)[1]
        return out


def layer(
    x: Any, context: Any, *weights: Any, mask: Any = None, causal: bool | None = None, **biases: Any
) -> torch.Tensor:
    """The module with keys and values of a context, and with biases; a missing one is 0.

    The module takes a causal mask only beside its flag, so causality is a part of the mask.
    """
    *projections, wo, num_heads = weights
    n_q, n_k, width, of_context = x.shape[-2], context.shape[-2], x.shape[-1], context.shape[-1]
    options = {"batch_first": True, "device": "meta", "dtype": x.dtype, "bias": bool(biases)}
    module = torch.nn.MultiheadAttention(width, num_heads, kdim=of_context, vdim=of_context, **options)
    rows = [weight.T for weight in projections]
    apart = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), rows, strict=True))
    stored = {"in_proj_weight": torch.cat(rows)} if of_context == width else apart
    stored |= {"out_proj.weight": wo.T}
    if biases:
        of_projections = [biases.get(name, x.new_zeros(width)) for name in ("bq", "bk", "bv")]
        stored |= {"in_proj_bias": torch.cat(of_projections), "out_proj.bias": biases.get("bo", x.new_zeros(width))}
    if causal:
        future = torch.ones(n_q, n_k, dtype=torch.bool).triu(1)
        mask = future if mask is None else mask | future
    if mask is not None:
        mask = _each(mask.expand(*mask.shape[:-2], n_q, n_k), x, num_heads)
    out: torch.Tensor = functional_call(
        module.train(), stored, (x, context, context), {"attn_mask": mask, "need_weights": False}
    )[0]
    return out


_HEADS = "multi_head_attention"
_DEAD = "a fully masked row follows its convention[multi_head_attention]"
_NATIVE = {
    _DEAD: "On a batch, with an even number of heads and a boolean mask, the native kernel takes a softmax over scores "
    "that are all −∞: the row is NaN. Otherwise the module calls scaled_dot_product_attention, which gives a row of 0. "
    "See pytorch/pytorch#190486."
}


def _implementation(
    name: str,
    path: _Path,
    dtype: str = "float64",
    derivatives: Sequence[str] = (),
    supports: Sequence[Any] = (),
    **promises: Any,
) -> Implementation:
    """The module on a path; the heads together are as wide as the model, and a batch with a mask is
    not empty.
    """
    functions: dict[str, Callable[..., Any]] = {_HEADS: with_projections(path.forward)}
    functions |= {f"{_HEADS}_{kind}": with_projections(getattr(path, kind)) for kind in derivatives}
    sizes = {"model_dim_minus_heads_width": [0], "batch": lambda n: n > 0}
    return Implementation(
        name=f"torch MHA {name} {dtype}",
        operations=functions,
        arithmetic=dtype,
        arrays="torch",
        refuses=(RuntimeError, AssertionError, ValueError),
        supports=[sizes, *supports],
        **{"batch_ranks": (0, 1), "conventions": _ZERO, **promises},
    )


_ZERO = Conventions(mask_polarity="true_blocks")
_NAN = replace(_ZERO, dead_rows="nan")
_native = partial(_implementation, conventions=_NAN, batch_ranks=(1,), supports=[{"num_heads": lambda n: n % 2 == 0}])
_FAST = partial(_Path, train=False, bias=True, native=True)
_weights = partial(_implementation, conventions=_NAN)

IMPLEMENTATIONS = [
    _weights("weights train", _Path(True, train=True), derivatives=("vjp", "jvp")),
    _implementation("no weights train", _Path(False, train=True), derivatives=("vjp",)),
    _native("fast path", _FAST(False)),
    _native("fast path with weights", _FAST(True)),
    _native("fast path padding", _FAST(False, masks="both")),
    _implementation("no weights padding", _Path(False, train=True, masks="both")),
    _implementation(
        "no weights key padding", _Path(False, train=True, masks="key_padding_mask"), supports=["padding masks"]
    ),
    _weights("weights additive", _Path(True, train=True), supports=["additive masks"]),
    _implementation("no weights additive", _Path(False, train=False, bias=True), supports=["additive masks"]),
    _weights("weights eval", _Path(True, train=False), "float32"),
    _implementation("no weights eval", _Path(False, train=False), "float32"),
    _native("fast path", _FAST(False), "float32"),
    _implementation("as it comes", _Path(False, train=False, bias=True), "float32", known_deviations=_NATIVE),
    Implementation(
        name="torch MHA layer float32",
        operations={"attention_layer": layer},
        arithmetic="float32",
        arrays="torch",
        features=("bq", "bk", "bv", "bo", "mask", "causal"),
        conventions=_ZERO,
        batch_ranks=(0, 1),
        refuses=(RuntimeError, AssertionError, ValueError),
        supports=[
            "positive sizes",
            "no grouped heads",
            "value_dim = head_dim",
            {"model_dim_minus_query_width": [0], "out_dim_minus_model_dim": [0]},
        ],
    ),
]
