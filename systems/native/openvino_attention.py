"""OpenVINO's ScaledDotProductAttention on the CPU, in graphs of static and of dynamic shapes.

A graph is compiled for its shapes, and kept. A dynamic graph has a fixed number of heads and fixed
widths, as an exported model has, and takes any batch and length. One input is the mask or the bias,
and `causal` ignores it. `precision` is OpenVINO's hint for the type of all intermediate numbers.
"""

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import Arithmetic, Conventions, preset
from oracles.formats import BINARY32
from properties.contract.implementation import Implementation
from systems.attention_arguments import AttentionOptions
from systems.native.recipes import called, unavailable

__all__ = ["IMPLEMENTATIONS"]

Array = NDArray[Any]
_ONE_TOKEN = dict.fromkeys(
    ("attention with options is within its error limit", "the order of keys does not matter"),
    "A graph of dynamic length reads one key after a first call with one token",
)
_ONE_QUERY = {
    "attention with options is within its error limit": (
        "bfloat16: causal attention of one query and several heads returns unset memory"
    )
}
Input = tuple[str, tuple[int, ...]]
"""The number type and the shape of an input of a graph; −1 is any size."""


@lru_cache(64)
def _graph(precision: str, causal: bool, inputs: tuple[Input, ...]) -> Any:
    """The compiled graph of one attention. Its inputs are q, k, v, and perhaps a mask and a scale."""
    import openvino
    from openvino import opset13

    given = [opset13.parameter(openvino.PartialShape([*shape]), np.dtype(kind)) for kind, shape in inputs]
    node = opset13.scaled_dot_product_attention(*given, causal=causal)
    model = openvino.Model([node], given, "attention")
    return openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": precision})


def _input(x: Array, dynamic: bool) -> Input:
    """The input of a graph that takes an array: with `dynamic`, of any batch and length."""
    shape = x.shape
    return x.dtype.name, (-1, shape[1], -1, shape[3]) if dynamic else shape


def _attend(precision: str, dynamic: bool, q: Array, k: Array, v: Array, **given: Any) -> Array:
    options = AttentionOptions(**given)
    mask, bias = options.mask, options.bias
    arrays = [q, k, v]
    inputs = [_input(x, dynamic) for x in arrays]
    both = bias if mask is None else mask if bias is None else np.where(mask, bias, q.dtype.type(-np.inf))
    if both is None and options.scale is not None:
        both = np.zeros((*q.shape[:3], k.shape[2]), q.dtype)  # a scale comes behind a mask
    if both is not None:
        both = both.reshape((1,) * (4 - both.ndim) + both.shape)
        arrays.append(np.ascontiguousarray(both))
        inputs.append((both.dtype.name, (-1,) * 4 if dynamic else both.shape))
    if options.scale is not None:
        arrays.append(np.array(options.scale, q.dtype))
        inputs.append((q.dtype.name, ()))
    result: Array = _graph(precision, bool(options.causal), tuple(inputs))(arrays)[0]
    return result


def _implementation(
    name: str, arithmetic: Arithmetic | str, precision: str, dynamic: bool, *features: str, **promises: Any
) -> Any:
    return Implementation(
        name=called("openvino", f"{'dynamic' if dynamic else 'static'} {name}"),
        operations={"attention": partial(_attend, precision, dynamic)},
        arithmetic=arithmetic,
        conventions=Conventions(dead_rows="nan", causal_with_mask="causal_alone"),
        batch_ranks=(2,),
        supports=["no log-sum-exp", "positive sizes", "no grouped heads"],
        features=("mask", "bias", "causal", *features),
        unavailable=unavailable("openvino"),
        **promises,
    )


def _with_a_narrow_scale(name: str) -> Arithmetic:
    """The arithmetic of a graph in 16 bits. It rounds the scale to 16 bits, which moves a score by at
    most one unit roundoff, as storing the score in 16 bits would. It scales q or k in 16 bits, and the
    numbers of bfloat16 that it returns are float32's.
    """
    eager = preset(f"{name}-eager")
    return replace(eager, name=f"{name}, narrow scale", output=BINARY32 if name == "bfloat16" else eager.output)


_HALF, _BRAIN = map(_with_a_narrow_scale, ("float16", "bfloat16"))

IMPLEMENTATIONS = [
    _implementation("float32", "float32", "f32", False, "scale"),
    _implementation("float32", "float32", "f32", True, "scale", known_deviations=_ONE_TOKEN),
    _implementation("float16", _HALF, "f32", False, "scale"),
    # With a scale this graph does not compile for one key.
    _implementation("bfloat16", _BRAIN, "bf16", False, dtype="float32", known_deviations=_ONE_QUERY),
    _implementation("bfloat16", _BRAIN, "bf16", True, "scale", dtype="float32"),
]
