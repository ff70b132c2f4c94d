"""ONNX's RotaryEmbedding, opset 23, by the reference evaluator of onnx and by onnxruntime on the CPU; and Attention with their versions.

The node takes tables of cosines and sines, one row for each position and one column for each pair, and an attribute for the pairing.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.implementations import onnx_engines
from properties.implementations.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

ONNX, RUNTIME = Library("onnx"), Library("onnxruntime")


@cache
def _model(interleaved: int, kind: str) -> Any:
    from onnx import TensorProto, helper

    number = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}[kind]
    node = helper.make_node("RotaryEmbedding", ["X", "cos", "sin", "at"], ["Y"], interleaved=interleaved)
    ranks = {"X": (number, 4), "cos": (number, 2), "sin": (number, 2), "at": (TensorProto.INT64, 2)}
    given = [helper.make_tensor_value_info(name, of, [None] * rank) for name, (of, rank) in ranks.items()]
    graph = helper.make_graph([node], "rotary", given, [helper.make_tensor_value_info("Y", number, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


@cache
def _evaluator(*key: Any) -> Any:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(_model(*key))


@cache
def _session(*key: Any) -> Any:
    from onnxruntime import InferenceSession

    return InferenceSession(_model(*key).SerializeToString(), providers=["CPUExecutionProvider"])


def _apply(engine: Callable[..., Any], interleaved: int, x: Any, cos: Any, sin: Any) -> Any:
    """x (batch, heads, sequence, width) rotated by tables with two columns for each pair, of which the node takes one."""
    pairs = x.shape[-1] // 2
    if x.shape[-1] % 2:
        raise ValueError(f"The width is {x.shape[-1]}, but should be even.")
    columns = np.s_[:, ::2] if interleaved else np.s_[:, :pairs]
    at = np.broadcast_to(np.arange(x.shape[2]), (x.shape[0], x.shape[2]))
    feeds = {"X": x, "cos": cos[columns].copy(), "sin": sin[columns].copy(), "at": at.copy()}
    return engine(interleaved, str(x.dtype)).run(None, feeds)[0]


def _implementation(library: Library, engine: Callable[..., Any], interleaved: int, arithmetic: str) -> Implementation:
    pairing: Any = "adjacent" if interleaved else "half"
    return Implementation(
        name=library.called(f"RotaryEmbedding-23 {pairing} {arithmetic}"),
        operations={"apply_rotary": partial(_apply, engine, interleaved)},
        arithmetic=arithmetic,
        conventions=Conventions(rope_pairing=pairing, odd_lane="reject"),
        batch_ranks=(2,),
        supports=["positive sizes", {"head_dim": lambda d: d % 2 == 0}],
        refuses=(Exception,),
        unavailable=ONNX.unavailable or library.unavailable,
    )


IMPLEMENTATIONS = [
    *(replace(i, name=f"{RUNTIME.called('') if 'runtime' in i.name else ONNX.called('')}: {i.name}") for i in onnx_engines.IMPLEMENTATIONS),
    *(
        _implementation(library, engine, interleaved, arithmetic)
        for library, engine in ((ONNX, _evaluator), (RUNTIME, _session))
        for interleaved, arithmetic in ((0, "float32"), (1, "float32"), (0, "float16"))
    ),
]
