"""`attention` by ONNX's Attention, as two engines run it: the reference evaluator of onnx, and
onnxruntime on the CPU.

An offset P of a causal case, or of a window, is a cache of the first P keys where there are as many
others as queries, and an offset for each sequence the number of its keys without padding, where
that says the same; other offsets are written into the mask. A mask and a bias are one input,
written out for each query and each key: a mask may end before the keys do, so that one key is none
for all, and the engines do not agree about fewer axes. Windows came with opset 25, of which
onnxruntime has none yet. No keys at all, and an empty batch, are refused, or raise.

What stands in `qk_matmul_output` is put to no law, for `attention` does not return it: see
`systems.onnx_attention`.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import Conventions
from properties.contract.implementation import Implementation

NO_ONNX = "" if find_spec("onnx") else "onnx is not installed: pip install onnx."
NO_RUNTIME = NO_ONNX if find_spec("onnxruntime") else "onnxruntime is not installed: pip install onnx onnxruntime."

__all__ = [
    *("IMPLEMENTATIONS", "NO_ONNX", "NO_RUNTIME", "implementation"),
    *("first_reference_attention", "first_runtime_attention", "reference_attention", "runtime_attention"),
]

Array = NDArray[Any]
_INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")


Run = Callable[..., list[Array]]


@cache
def _model(
    opset: int, types: tuple[tuple[str, str, int], ...], attributes: tuple[tuple[str, Any], ...], stage: bool
) -> Any:
    """A model of one Attention, whose inputs have these names, types and numbers of axes; it shows
    a stage of the weights, if asked for.
    """
    from onnx import TensorProto, helper

    numbers = {"float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
    kinds = numbers | {"bool": TensorProto.BOOL, "int64": TensorProto.INT64}
    given = {name: helper.make_tensor_value_info(name, kinds[kind], [None] * rank) for name, kind, rank in types}
    names = [name if name in given else "" for name in _INPUTS]
    results = ["Y", *(["present_key", "present_value"] if "past_key" in given else ["", ""] if stage else [])]
    results += ["qk_matmul_output"] if stage else []
    node = helper.make_node(
        "Attention", names[: 1 + max(i for i, name in enumerate(names) if name)], results, **dict(attributes)
    )
    outputs = [helper.make_tensor_value_info(name, kinds[types[0][1]], None) for name in results if name]
    graph = helper.make_graph([node], "attention", list(given.values()), outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


@cache
def _evaluator(*key: Any) -> Any:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(_model(*key))


@cache
def _session(*key: Any) -> Any:
    from onnxruntime import InferenceSession, SessionOptions

    quiet = SessionOptions()
    quiet.log_severity_level = 4
    return InferenceSession(_model(*key).SerializeToString(), quiet, providers=["CPUExecutionProvider"])


def _run(
    engine: Callable[..., Any], opset: int, feeds: dict[str, Array], stage: bool = False, **attributes: Any
) -> list[Array]:
    types = tuple((name, str(x.dtype), x.ndim) for name, x in feeds.items())
    return list(engine(opset, types, tuple(attributes.items()), stage).run(None, feeds))


reference_attention: Run = partial(_run, _evaluator, 25)
runtime_attention: Run = partial(_run, _session, 24)
first_reference_attention: Run = partial(_run, _evaluator, 23)
first_runtime_attention: Run = partial(_run, _session, 23)
"""Y, with a cache present_key and present_value, and if asked for a stage of the weights, of inputs
and attributes by ONNX's names.
"""


def _attend(
    run: Run, q: Array, k: Array, v: Array, *, mask: Any = None, bias: Any = None, scale: float | None = None,
    causal: bool = False, offset: Any = None, window: Any = (None, None), softcap: float | None = None,
) -> Array:  # fmt: skip
    """One Attention, with its offset as ONNX has it: by a cache, or by keys without padding. ONNX
    takes the root of a scale: raises ValueError for those of 0 and below."""
    if scale is not None and scale <= 0:
        raise ValueError(f"scale={scale}, but should be above 0.")
    n_q, n_k, attributes = (
        q.shape[2],
        k.shape[2],
        {"scale": scale, "softcap": softcap, "is_causal": int(causal) or None},
    )
    attributes |= {f"{side}_window_size": n for side, n in zip(("left", "right"), window, strict=True)}
    feeds = {"Q": q, "K": k, "V": v}
    placed = causal or window != (None, None)
    if placed and isinstance(offset, int) and 0 < offset == n_k - n_q:
        feeds |= {
            "past_key": k[:, :, :offset],
            "past_value": v[:, :, :offset],
            "K": k[:, :, offset:],
            "V": v[:, :, offset:],
        }
    elif (
        placed and causal and isinstance(offset, np.ndarray) and (offset >= -n_q).all() and (offset <= n_k - n_q).all()
    ):
        feeds |= {"nonpad_kv_seqlen": offset + n_q}
    elif placed and offset is not None and np.any(offset != 0):
        band = _band(n_q, n_k, offset, causal, *window)
        mask, attributes = band if mask is None else mask & band, {"scale": scale, "softcap": softcap}
    both = bias if mask is None else mask if bias is None else np.where(mask, bias, q.dtype.type(-np.inf))
    if both is not None:
        feeds |= {"attn_mask": np.broadcast_to(both, (*both.shape[:-2], n_q, n_k)).copy()}
    return run(feeds, **{name: x for name, x in attributes.items() if x is not None})[0]


def _band(n_q: int, n_k: int, offset: Any, causal: bool, left: int | None, right: int | None) -> Any:
    """True for keys that causality and a window allow."""
    ahead = np.arange(n_k) - np.arange(n_q)[:, None] - np.asarray(offset)[..., None, None, None]
    may = ahead <= (0 if causal else n_k + np.abs(ahead).max(initial=0))
    may &= True if left is None else ahead >= -left
    return may & (True if right is None else ahead <= right)


def implementation(name: str, run: Run, arithmetic: str, why: str, *features: str) -> Implementation:
    """`attention` by an engine, in an arithmetic, with some features of ONNX' Attention; why it
    cannot be run here, or "".
    """
    return Implementation(
        name=f"{name} {arithmetic}",
        operations={"attention": partial(_attend, run)},
        arithmetic=arithmetic,
        conventions=Conventions.onnx("1.23"),
        batch_ranks=(2,),
        supports=[
            "no log-sum-exp",
            {"n_k": lambda n: n > 0, "batch": lambda n: n > 0, "scale": lambda scale: scale > 0},
        ],
        features=features,
        refuses=(Exception,),
        unavailable=why,
    )


_FEATURES = ("mask", "bias", "causal", "offset", "offsets", "softcap")

IMPLEMENTATIONS = [
    implementation(
        "ONNX reference", reference_attention, "float64", NO_ONNX, *_FEATURES, "window"
    ),  # a scale is a number of float32
    implementation("ONNX reference", reference_attention, "float32", NO_ONNX, *_FEATURES, "window", "scale"),
    implementation("onnxruntime", runtime_attention, "float32", NO_RUNTIME, *_FEATURES, "scale"),
]
