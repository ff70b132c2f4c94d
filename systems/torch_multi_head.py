"""`torch.nn.MultiheadAttention`, on each of its paths: with and without weights, in training and
evaluation, and its fast path.

Its weights are stored transposed, the three input projections stacked; its boolean mask is True
where a key is masked, an additive one −∞ there, and its key padding mask blocks a key for all
queries. The spec has no biases. The fast path, one native kernel, is taken in evaluation where
there are biases, an even number of heads, a batch, a boolean mask or none, and no gradients: there
the biases are zero.

A row that may attend to nothing is NaN with weights and on the fast path, and 0 otherwise
(pytorch/pytorch#41508, #160064, #190486).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.func import functional_call

from oracles import Conventions
from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS", "parameters"]


def parameters(weights: Sequence[Any], bias: bool) -> dict[str, Any]:
    """The module's parameters by name, of wq, wk, wv (d_model, width) and wo (width, d_model);
    biases, where there are any, are zeros.
    """
    *projections, wo = weights
    found = {"in_proj_weight": torch.cat([w.T for w in projections]), "out_proj.weight": wo.T}
    zeros = wo.new_zeros(3 * wo.shape[1])
    return found | ({"in_proj_bias": zeros, "out_proj.bias": zeros[: wo.shape[1]]} if bias else {})


def _each(mask: Any, x: Any, num_heads: int) -> Any:
    """A mask for each sequence of a batch as one for each of its heads; one mask for all, or none, as it is."""
    if mask is None or mask.ndim == 2:
        return mask
    return mask.expand(len(x), *mask.shape[1:]).repeat_interleave(num_heads, dim=0)


def _padding(mask: Any, x: Any) -> tuple[Any, Any]:
    """A mask in two: the keys that no query may attend to, for each sequence, and what else is
    masked, or None if nothing is.
    """
    padded = mask.all(-2)
    rest = mask & ~padded[..., None, :]
    return padded.expand(*x.shape[:-1]), rest if rest.any() else None


@dataclass(frozen=True)
class _Path:
    """What selects a path of the module; a `native` one is the fast path alone, and refuses what
    the module would compute on another.
    """

    need_weights: bool
    train: bool
    bias: bool = False
    masks: Literal["attn_mask", "key_padding_mask", "both"] = "attn_mask"
    native: bool = False

    def attend(self, x: Any, weights: dict[str, Any], num_heads: int, mask: Any) -> torch.Tensor:
        """The module on a sequence, or on a batch of them; one mask for all, or one for each. It is
        made without numbers of its own.
        """
        shape = {"embed_dim": x.shape[-1], "num_heads": num_heads, "bias": self.bias}
        module = torch.nn.MultiheadAttention(**shape, batch_first=True, device="meta", dtype=x.dtype).train(self.train)
        padding = None
        if self.masks == "key_padding_mask":
            padding, mask = mask, None
        if mask is not None:  # the module takes no row for all queries
            mask = mask.expand(*mask.shape[:-2], x.shape[-2], x.shape[-2])
        if mask is not None and self.masks == "both":
            padding, mask = _padding(mask, x)
        options = {
            "attn_mask": _each(mask, x, num_heads),
            "key_padding_mask": padding,
            "need_weights": self.need_weights,
        }
        out: torch.Tensor = functional_call(module, weights, (x, x, x), options)[0]
        return out

    def forward(self, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any = None) -> torch.Tensor:
        """Multi-head attention without gradients; ValueError for an odd number of heads where only
        the fast path is meant.
        """
        if self.native and num_heads % 2:
            raise ValueError(f"num_heads={num_heads}, but should be even: otherwise the fast path is not taken.")
        with torch.no_grad():
            return self.attend(x, parameters((wq, wk, wv, wo), self.bias), num_heads, mask)

    def vjp(
        self, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, grad_out: Any
    ) -> Sequence[torch.Tensor]:
        """Its vector-Jacobian product by reverse mode."""
        inputs = x, *weights = [y.requires_grad_() for y in (x, wq, wk, wv, wo)]
        return torch.autograd.grad(self.attend(x, parameters(weights, self.bias), num_heads, mask), inputs, grad_out)

    def jvp(
        self, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, *tangents: Any
    ) -> torch.Tensor:
        """Its Jacobian-vector product by forward mode."""

        def attend(x: Any, *weights: Any) -> torch.Tensor:
            return self.attend(x, parameters(weights, self.bias), num_heads, mask)

        out: torch.Tensor = torch.func.jvp(attend, (x, wq, wk, wv, wo), tangents)[1]
        return out


_HEADS = "multi_head_attention"
_DEAD = "a fully masked row follows its convention[multi_head_attention]"
_NATIVE = {
    _DEAD: "On a batch, with an even number of heads and a boolean mask, the native kernel takes a softmax over −∞ alone: NaN. Otherwise "
    "the module calls scaled_dot_product_attention, whose row is 0. See pytorch/pytorch#190486."
}


def _implementation(
    name: str,
    path: _Path,
    dtype: str = "float64",
    derivatives: Sequence[str] = (),
    dead_rows: Literal["zero", "nan"] = "zero",
    supports: Sequence[Any] = (),
    **promises: Any,
) -> Implementation:
    """A model is as wide as its heads together, and a batch with a mask is not empty."""
    functions: dict[str, Callable[..., Any]] = {_HEADS: path.forward} | {
        f"{_HEADS}_{d}": getattr(path, d) for d in derivatives
    }
    sizes = {"model_dim_minus_heads_width": [0], "batch": lambda n: n > 0}
    return Implementation(
        name=f"torch MHA {name} {dtype}",
        operations=functions,
        arithmetic=dtype,
        conventions=Conventions(mask_polarity="true_blocks", dead_rows=dead_rows),
        arrays="torch",
        refuses=(RuntimeError, AssertionError, ValueError),
        supports=[sizes, *supports],
        **{"batch_ranks": (0, 1), **promises},
    )


_native = partial(_implementation, dead_rows="nan", batch_ranks=(1,), supports=[{"num_heads": lambda n: n % 2 == 0}])
_FAST = partial(_Path, train=False, bias=True, native=True)
_weights = partial(_implementation, dead_rows="nan")

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
]
