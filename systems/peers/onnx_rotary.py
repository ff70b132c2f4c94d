"""ONNX's RotaryEmbedding, opset 23, by the reference evaluator of onnx and by onnxruntime on the
CPU.

The module also has Attention with the versions of the engines in its names, and adds opset 23 and
float16.

The node takes tables of cosines and sines, one row for each position and one column for each pair,
and an attribute for the pairing. The adapter computes the tables in float64, and rounds them to the
type of x.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems import onnx_engines
from systems.peers.library import Library

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


@cache
def _as_written(*key: Any) -> Any:
    """A session that does not optimise the graph."""
    from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    return InferenceSession(_model(*key).SerializeToString(), options, providers=["CPUExecutionProvider"])


def _rope(engine: Callable[..., Any], interleaved: int, x: Any, start_pos: int = 0, *, inv_freq: Any = None) -> Any:
    """x (batch, heads, sequence, width), rotated by positions that count from start_pos."""
    width, rows = x.shape[-1], x.shape[2]
    if width % 2 or 0 in x.shape:
        raise ValueError(f"x has shape {x.shape}, but its width should be even, and every size positive.")
    rates = 10000.0 ** (-np.arange(0, width, 2) / width) if inv_freq is None else inv_freq
    angles = (start_pos + np.arange(rows))[:, None] * rates.astype(np.float64)
    at = np.broadcast_to(np.arange(rows), (x.shape[0], rows)).copy()
    feeds = {"X": x, "cos": np.cos(angles).astype(x.dtype), "sin": np.sin(angles).astype(x.dtype), "at": at}
    return engine(interleaved, str(x.dtype)).run(None, feeds)[0]


def _implementation(library: Library, engine: Callable[..., Any], interleaved: int, arithmetic: str) -> Implementation:
    pairing: Any = "adjacent" if interleaved else "half"
    as_written = Twin({"rope": partial(_rope, _as_written, interleaved)}, exactly=True)
    return Implementation(
        name=library.called(f"RotaryEmbedding-23 {pairing} {arithmetic}"),
        operations={"rope": partial(_rope, engine, interleaved)},
        features=("inv_freq",),
        arithmetic=arithmetic,
        conventions=Conventions(rope_pairing=pairing, odd_lane="reject"),
        batch_ranks=(2,),
        supports=["positive sizes", {"head_dim": lambda d: d % 2 == 0}],
        refuses=(Exception,),
        unavailable=ONNX.unavailable or library.unavailable,
        twins={"without optimisations": as_written} if library is RUNTIME else {},
    )


# The features of opset 23: lengths came with opset 24, and windows with 25.
_FIRST = ("mask", "bias", "causal", "offset", "softcap", "scale")
_REFERENCE, _RUNTIME = onnx_engines.first_reference_attention, onnx_engines.first_runtime_attention
_ATTENTION = [
    *onnx_engines.IMPLEMENTATIONS,
    *(
        onnx_engines.implementation("ONNX reference, opset 23", _REFERENCE, arithmetic, onnx_engines.NO_ONNX, *_FIRST)
        for arithmetic in ("float32", "float16-eager")
    ),
    *(
        onnx_engines.implementation("onnxruntime, opset 23", _RUNTIME, arithmetic, onnx_engines.NO_RUNTIME, *_FIRST)
        for arithmetic in ("float32", "float16-eager")
    ),
    onnx_engines.implementation(
        "onnxruntime", onnx_engines.runtime_attention, "float16-eager", onnx_engines.NO_RUNTIME, *_FIRST, "offsets"
    ),
]
IMPLEMENTATIONS = [
    *(
        replace(i, name=f"{RUNTIME.called('') if 'runtime' in i.name else ONNX.called('')}: {i.name}")
        for i in _ATTENTION
    ),
    *(
        _implementation(library, engine, interleaved, arithmetic)
        for library, engine in ((ONNX, _evaluator), (RUNTIME, _session))
        for interleaved, arithmetic in ((0, "float32"), (1, "float32"), (0, "float16-elementwise"))
    ),
]
