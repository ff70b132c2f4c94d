"""PaddlePaddle on the CPU: `scaled_dot_product_attention`, the softmax, and gradients by its autograd.

Attention takes (batch, sequence, heads, width), and a mask of booleans or of numbers. With
`is_causal` it ignores the mask. On the CPU it runs Paddle's own path of products and a softmax.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.attention_arguments import AttentionOptions
from systems.native.recipes import called, unavailable

__all__ = ["IMPLEMENTATIONS"]

Array = NDArray[Any]
_CLIP = "The softmax on the CPU clips scores at 64 below the largest: masked keys have weight"
_ROWS = "A fully masked row is NaN, and the mean of all values if the number of keys is a multiple of 8"
_DEVIATIONS = {
    "attention": {
        **dict.fromkeys(
            (
                "attention with options is within its error limit",
                "the content of keys masked for all queries does not matter",
                "each query reads what it should",
                "weights are exponentials of scores",
                "each bias sink and mask goes to its place",
            ),
            _CLIP,
        ),
        "a fully masked row with options follows its convention": _ROWS,
        "scores are scale·q·k": "scale=0 is taken for no scale",
    },
    "gradients": {
        **dict.fromkeys(
            (
                "the VJP is within its error limit",
                "the content of keys masked for all queries does not matter",
                "appending masked keys changes nothing",
                "derivatives do not pass through masked entries",
                "a call does not depend on earlier calls",
                "gradients come from the right queries keys and channels",
            ),
            _CLIP,
        ),
        **dict.fromkeys(
            ("packed sequences are computed independently", "a fully masked row follows its convention"), _ROWS
        ),
    },
    "softmax": dict.fromkeys(
        (
            "softmax is within its error limit",
            "masked entries have weight exactly 0",
            "weights are exponentials divided by their sum",
        ),
        _CLIP,
    ),
}
"""The laws that each implementation breaks, with the titles of findings."""


def _tensor(x: Any, stop_gradient: bool = True) -> Any:
    import paddle

    return paddle.to_tensor(np.ascontiguousarray(x), stop_gradient=stop_gradient)


def _output(inputs: list[Any], options: AttentionOptions) -> Any:
    """The output of q, k and v as tensors, with the heads before the sequence."""
    from paddle.nn.functional import scaled_dot_product_attention

    mask, bias = options.mask, options.bias
    both = bias if mask is None else mask if bias is None else np.where(mask, bias, bias.dtype.type(-np.inf))
    if both is not None:
        both = _tensor(both.reshape((1,) * (4 - both.ndim) + both.shape))
    turned = (x.transpose([0, 2, 1, 3]) for x in inputs)
    grouped = inputs[0].shape[1] != inputs[1].shape[1]
    out = scaled_dot_product_attention(
        *turned, attn_mask=both, is_causal=bool(options.causal), scale=options.scale, enable_gqa=grouped
    )
    return out.transpose([0, 2, 1, 3])


def _attend(q: Array, k: Array, v: Array, **given: Any) -> Array:
    out: Array = _output([*map(_tensor, (q, k, v))], AttentionOptions(**given)).numpy()
    return out


def _vjp(q: Array, k: Array, v: Array, mask: Array | None, grad_out: Array) -> tuple[Array, ...]:
    import paddle

    inputs = [_tensor(x, stop_gradient=False) for x in (q, k, v)]
    gradients = paddle.grad(_output(inputs, AttentionOptions(mask=mask)), inputs, _tensor(grad_out))
    return tuple(gradient.numpy() for gradient in gradients)


def _softmax(scores: Array, mask: Array | None = None) -> Array:
    """The softmax of each row, with −∞ at masked keys."""
    from paddle.nn.functional import softmax

    weights: Array = softmax(
        _tensor(scores if mask is None else np.where(mask, scores, scores.dtype.type(-np.inf)))
    ).numpy()
    return weights


def _implementation(
    name: str, arithmetic: str, features: tuple[str, ...] = (), **operations: Callable[..., Any]
) -> Any:
    return Implementation(
        name=called("paddlepaddle", f"{name} {arithmetic}"),
        operations=operations,
        arithmetic=arithmetic,
        conventions=Conventions(dead_rows="nan", causal_with_mask="causal_alone"),
        batch_ranks=(2,),
        supports=["no log-sum-exp", "positive sizes", "heads divide"],
        features=features,
        unavailable=unavailable("paddlepaddle"),
        known_deviations=_DEVIATIONS[name],
    )


IMPLEMENTATIONS = [
    _implementation("attention", "float32", ("mask", "bias", "scale", "causal"), attention=_attend),
    _implementation("gradients", "float32", scaled_dot_product_attention_vjp=_vjp),
    _implementation("softmax", "float32", hard_masked_softmax=_softmax),
]
