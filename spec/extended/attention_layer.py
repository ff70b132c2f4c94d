"""Multi-head attention as layers of models have it: grouped key heads, biases, and keys and values
from a context.

This module is not TorchLean's: see `spec.extended`. `spec.attention` has TorchLean's layer, which is
this one with the context x, as many key heads as query heads, and no biases.

Sources: Vaswani et al., Attention Is All You Need, 2017, section 3.2.2 (cross-attention: the context
is the encoder's output); Ainslie et al., GQA, 2023 (key heads); PyTorch, `nn.MultiheadAttention`
(biases)
"""

from typing import Any

import numpy as np
from jaxtyping import Bool

from spec.context import Context, Scalar
from spec.extended.attention import attention
from spec.lean import definition
from spec.tensor_core import Array, Tensor, stack
from spec.tensor_linalg import mat_mul_spec

__all__ = ["attention_layer"]


@definition()
def attention_layer(
    x: Tensor[Array, "nQ dModel"],
    context: Tensor[Array, "nK dContext"],
    wq: Tensor[Array, "dModel queryWidth"],
    wk: Tensor[Array, "dContext keyWidth"],
    wv: Tensor[Array, "dContext valueWidth"],
    wo: Tensor[Array, "joinedWidth dOut"],
    num_heads: int,
    *,
    bq: Tensor[Array, "queryWidth"] | None = None,
    bk: Tensor[Array, "keyWidth"] | None = None,
    bv: Tensor[Array, "valueWidth"] | None = None,
    bo: Tensor[Array, "dOut"] | None = None,
    mask: Bool[Array, "*mask"] | None = None,
    causal: bool = False,
    scale: Scalar | None = None,
    scalar: Context | None = None,
) -> Tensor[Array, "nQ dOut"]:
    """Return the output of a layer: attention of the projected tokens of x over the projected tokens
    of the context, with the heads side by side, projected again.

        q = x·wq + bq    k = context·wk + bk    v = context·wv + bv
        out = [head_0 | head_1 | …]·wo + bo,    head_h = attention(q_h, k_g, v_g),  g = h // (H / HKv)

    Block h of the columns of q belongs to query head h, and block g of the columns of k and v to key
    head g. So queryWidth = H·d, keyWidth = HKv·d, valueWidth = HKv·dV and joinedWidth = H·dV: the
    widths say how many key heads there are. The scale is 1/√d. The mask (True where visible)
    broadcasts to (nQ, nK) and is shared by the heads.

    Edge cases: a token that sees no token of the context has the output bo. nQ = 0, nK = 0 and dV = 0
    are legal.
    Raises ValueError if a width is not a multiple of its number of heads, and for d = 0.

    >>> x, one = np.array([[1.0], [2.0]]), np.ones((1, 1))
    >>> attention_layer(x, 4 * x, one, one, one, 10 * one, 1, bv=np.array([1.0]), causal=True, scale=0.0).tolist()
    [[50.0], [70.0]]
    """

    def heads_of(tokens: Array, weight: Array, bias: Array | None, heads: int, name: str) -> Array:
        width = _quotient(weight.shape[1], heads, name)
        y = _biased(mat_mul_spec(tokens, weight), bias)
        return stack((heads, len(tokens), width), lambda h: y[:, h * width : (h + 1) * width])

    key_heads = _quotient(wk.shape[1], _quotient(wq.shape[1], num_heads, "wq"), "wk")
    q = heads_of(x, wq, bq, num_heads, "wq")
    k, v = heads_of(context, wk, bk, key_heads, "wk"), heads_of(context, wv, bv, key_heads, "wv")
    seen: Any = {"mask": mask, "causal": causal, "scale": scale}
    heads, _ = attention(q, k, v, **seen)
    return _biased(mat_mul_spec(np.concatenate(list(heads), -1), wo), bo)


def _quotient(columns: int, divisor: int, name: str) -> int:
    """Return columns / divisor. Raises ValueError unless the divisor is positive and divides them."""
    if divisor < 1 or columns % divisor:
        raise ValueError(f"{name} has {columns} columns, but should have a multiple of {divisor}, at least 1.")
    return columns // divisor


def _biased(y: Array, bias: Array | None) -> Array:
    """Return y with the bias added to each row."""
    return y if bias is None else y + bias
