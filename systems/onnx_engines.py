"""`attention` by ONNX's Attention, in two engines: onnx's reference evaluator, and onnxruntime on
the CPU.

For a causal input or a window, an offset P becomes a cache of the first P keys if the number of
other keys equals the number of queries. An offset for each sequence becomes its number of keys
without padding, if that means the same. All other offsets are written into the mask. A mask and a
bias become one input, written out for each query and each key: the text lets a mask end before the
keys do, so a mask of one key is not a mask for all keys, and the engines do not agree about masks
with fewer axes. Windows came with opset 25, which onnxruntime does not have yet. The engines refuse
inputs without keys and empty batches, or raise.

No law tests `qk_matmul_output`, because `attention` does not return it: see
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
from systems.attention_arguments import AttentionOptions

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
    """A model of one Attention with inputs of these names, types and numbers of axes.

    With `stage` it also returns a stage of the weights.
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
"""Y for inputs and attributes by ONNX's names; with a cache also present_key and present_value, and
with `stage` also a stage of the weights.
"""


def _attend(run: Run, q: Array, k: Array, v: Array, **given: Any) -> Array:
    """The output of one Attention.

    Raises ValueError for a scale of 0 or below, because ONNX takes the root of the scale.
    """
    options = AttentionOptions(**given)
    if options.scale is not None and options.scale <= 0:
        raise ValueError(f"scale={options.scale}, but should be above 0.")
    feeds, attributes, mask = _placed(q, k, v, options)
    bias = options.bias
    both = bias if mask is None else mask if bias is None else np.where(mask, bias, q.dtype.type(-np.inf))
    if both is not None:
        feeds |= {"attn_mask": np.broadcast_to(both, (*both.shape[:-2], q.shape[2], k.shape[2])).copy()}
    attributes |= {"scale": options.scale, "softcap": options.softcap}
    return run(feeds, **{name: value for name, value in attributes.items() if value is not None})[0]


def _placed(q: Array, k: Array, v: Array, options: AttentionOptions) -> tuple[dict[str, Array], dict[str, Any], Any]:
    """The inputs, the attributes of causality and windows, and the mask, which together state the
    offset.

    The offset becomes a cache, a number of keys without padding, or a part of the mask.
    """
    n_q, n_k, offset = q.shape[2], k.shape[2], options.offset
    left, right = options.window
    feeds = {"Q": q, "K": k, "V": v}
    attributes = {"is_causal": int(options.causal) or None, "left_window_size": left, "right_window_size": right}
    if offset is None or not (options.causal or options.window != (None, None)):
        return feeds, attributes, options.mask
    if isinstance(offset, int) and 0 < offset == n_k - n_q:
        past = {"past_key": k[:, :, :offset], "past_value": v[:, :, :offset]}
        return feeds | past | {"K": k[:, :, offset:], "V": v[:, :, offset:]}, attributes, options.mask
    if options.causal and isinstance(offset, np.ndarray) and ((offset >= -n_q) & (offset <= n_k - n_q)).all():
        return feeds | {"nonpad_kv_seqlen": offset + n_q}, attributes, options.mask
    if np.any(offset != 0):
        band = _band(n_q, n_k, options)
        return feeds, {}, band if options.mask is None else options.mask & band
    return feeds, attributes, options.mask


def _band(n_q: int, n_k: int, options: AttentionOptions) -> Any:
    """True at the keys that causality and the window make visible."""
    left, right = options.window
    ahead = np.arange(n_k) - np.arange(n_q)[:, None] - np.asarray(options.offset)[..., None, None, None]
    visible = np.ones(ahead.shape, bool)
    visible &= ahead <= 0 if options.causal else True
    visible &= True if left is None else ahead >= -left
    return visible & (True if right is None else ahead <= right)


def implementation(name: str, run: Run, arithmetic: str, why: str, *features: str) -> Implementation:
    """`attention` by an engine, in an arithmetic, with some features of ONNX's Attention.

    `why` says why the engine cannot run here; it is "" if it can.
    """
    return Implementation(
        name=f"{name} {arithmetic}",
        operations={"attention": partial(_attend, run)},
        arithmetic=arithmetic,
        conventions=Conventions.onnx("1.23"),
        batch_ranks=(2,),
        supports=[
            "no log-sum-exp",
            dict.fromkeys(("n_k", "head_dim", "batch"), lambda n: n > 0) | {"scale": lambda scale: scale > 0},
        ],
        features=features,
        refuses=(Exception,),
        unavailable=why,
    )


_FEATURES = ("mask", "bias", "causal", "offset", "offsets", "softcap")

IMPLEMENTATIONS = [
    # Without "scale", which is a number of float32.
    implementation("ONNX reference", reference_attention, "float64", NO_ONNX, *_FEATURES, "window"),
    implementation("ONNX reference", reference_attention, "float32", NO_ONNX, *_FEATURES, "window", "scale"),
    implementation("onnxruntime", runtime_attention, "float32", NO_RUNTIME, *_FEATURES, "scale"),
]
