"""onnxruntime's own operators on the CPU: GroupQueryAttention, MultiHeadAttention and RotaryEmbedding.

Their domain is com.microsoft. GroupQueryAttention appends new keys to a cache: the keys before the
queries are the cache here. MultiHeadAttention takes the heads side by side in the channels.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.attention_arguments import AttentionOptions
from systems.native.recipes import called, unavailable

__all__ = ["IMPLEMENTATIONS"]

Array = NDArray[Any]
_LAST_QUERY = dict.fromkeys(
    ("attention with options is within its error limit", "each query reads what it should"),
    "MultiHeadAttention: the last of fewer queries than keys reads all keys under unidirectional",
)


@lru_cache(256)
def _session(operator: str, inputs: tuple[str, ...], outputs: int, attributes: tuple[tuple[str, Any], ...]) -> Any:
    """A session of one operator. `inputs` are the number types of its inputs, "" for an absent one."""
    from onnx import helper
    from onnxruntime import InferenceSession, SessionOptions

    names = [f"in{i}" if kind else "" for i, kind in enumerate(inputs)]
    results = [f"out{i}" for i in range(outputs)]
    number = helper.np_dtype_to_tensor_dtype
    given = [
        helper.make_tensor_value_info(name, number(np.dtype(kind)), None)
        for name, kind in zip(names, inputs, strict=True)
        if kind
    ]
    made = [helper.make_tensor_value_info(name, number(np.dtype(inputs[0])), None) for name in results]
    node = helper.make_node(operator, names, results, domain="com.microsoft", **dict(attributes))
    domains = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], operator, given, made), opset_imports=domains, ir_version=10)
    quiet = SessionOptions()
    quiet.log_severity_level = 4
    return InferenceSession(model.SerializeToString(), quiet, providers=["CPUExecutionProvider"])


def _run(operator: str, arrays: list[Array | None], outputs: int = 1, **attributes: Any) -> Array:
    """The first result of an operator. An attribute None is left out."""
    kinds = tuple("" if x is None else x.dtype.name for x in arrays)
    stated = tuple((name, value) for name, value in attributes.items() if value is not None)
    feeds = {f"in{i}": np.ascontiguousarray(x) for i, x in enumerate(arrays) if x is not None}
    result: Array = _session(operator, kinds, outputs, stated).run(None, feeds)[0]
    return result


def _flat(x: Array) -> Array:
    """(batch, sequence, heads · width) from (batch, heads, sequence, width)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def _headed(x: Array, num_heads: int) -> Array:
    """(batch, heads, sequence, width) from (batch, sequence, heads · width)."""
    return x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)


def _biases(q: Array, k: Array, options: AttentionOptions) -> Array | None:
    """The mask and the bias as numbers (batch or 1, heads or 1, n_q, n_k) that are added to the scores."""
    mask, bias = options.mask, options.bias
    if mask is None and bias is None:
        return None
    numbers = q.dtype.type(0) if bias is None else bias
    numbers = np.asarray(numbers if mask is None else np.where(mask, numbers, q.dtype.type(-np.inf)))
    numbers = numbers.reshape((1,) * (4 - numbers.ndim) + numbers.shape)
    return np.broadcast_to(numbers, (*numbers.shape[:2], q.shape[2], k.shape[2]))


def _grouped(q: Array, k: Array, v: Array, **given: Any) -> Array:
    """The output of GroupQueryAttention. The last queries stand at the last keys."""
    options, cached = AttentionOptions(**given), k.shape[2] - q.shape[2]
    left, _ = options.window
    length = np.full(q.shape[0], k.shape[2] - 1, np.int32)
    out = _run(
        "GroupQueryAttention",
        [
            *(_flat(q), _flat(k[:, :, cached:]), _flat(v[:, :, cached:]), k[:, :, :cached], v[:, :, :cached]),
            *(length, np.array(k.shape[2], np.int32), None, None, None, _biases(q, k, options), options.sink),
        ],
        3,
        num_heads=q.shape[1],
        kv_num_heads=k.shape[1],
        scale=options.scale,
        softcap=options.softcap,
        causal=int(options.causal),
        local_window_size=left,
    )
    return _headed(out, q.shape[1])


def _multi_head(q: Array, k: Array, v: Array, **given: Any) -> Array:
    """The output of MultiHeadAttention."""
    options = AttentionOptions(**given)
    arrays = [*map(_flat, (q, k, v)), None, None, _biases(q, k, options)]
    out = _run(
        *("MultiHeadAttention", arrays),
        num_heads=q.shape[1],
        scale=options.scale,
        unidirectional=int(options.causal),
    )
    return _headed(out, q.shape[1])


def _rope(
    interleaved: int,
    x: Array,
    start_pos: int = 0,
    *,
    positions: Any = None,
    inv_freq: Any = None,
    rotary_dim: Any = None,
) -> Array:
    """x (batch, heads, sequence, width), rotated by tables that are computed in float64. Each row of
    the tables is the row of a position.
    """
    width, rows = x.shape[-1], x.shape[2]
    rotated = width if rotary_dim is None else rotary_dim
    rates = 10000.0 ** (-np.arange(0, rotated, 2) / max(rotated, 1)) if inv_freq is None else inv_freq
    angles = (start_pos + np.arange(rows))[:, None] * rates.astype(np.float64)
    places = np.broadcast_to(np.arange(rows), (x.shape[0], rows))
    return _run(
        "RotaryEmbedding",
        [x, places.astype(np.int64), np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)],
        interleaved=interleaved,
        rotary_embedding_dim=None if rotary_dim is None else rotary_dim,
        num_heads=None if rotary_dim is None else x.shape[1],
    )


def _attention(
    name: str,
    attend: Callable[..., Array],
    features: tuple[str, ...],
    supports: list[Any],
    conventions: Conventions | None = None,
    deviations: Mapping[str, str] = MappingProxyType({}),
) -> Implementation:
    return Implementation(
        name=called("onnxruntime", f"{name} float32"),
        operations={"attention": attend},
        arithmetic="float32",
        conventions=conventions,
        batch_ranks=(2,),
        supports=["no log-sum-exp", "positive sizes", "positive scale", *supports],
        features=features,
        unavailable=unavailable("onnx") or unavailable("onnxruntime"),
        known_deviations=deviations,
    )


def _rotation(interleaved: int, arithmetic: str) -> Implementation:
    pairing: Any = "adjacent" if interleaved else "half"
    return Implementation(
        name=called("onnxruntime", f"contrib RotaryEmbedding {pairing} {arithmetic.partition('-')[0]}"),
        operations={"rope": partial(_rope, interleaved)},
        arithmetic=arithmetic,
        conventions=Conventions(rope_pairing=pairing, odd_lane="reject"),
        batch_ranks=(2,),
        supports=["positive sizes", {"head_dim": lambda dim: dim % 2 == 0}],
        features=("inv_freq", "rotary_dim"),
        unavailable=unavailable("onnx") or unavailable("onnxruntime"),
    )


_GROUPED = ("scale", "softcap", "sink")
_OF_GROUPED = [
    *("heads divide", "value_dim = head_dim"),
    {"head_dim": lambda dim: dim % 8 == 0},
]

IMPLEMENTATIONS = [
    _attention(
        "GroupQueryAttention",
        _grouped,
        (*_GROUPED, "mask", "bias"),
        [*_OF_GROUPED, {"batch": (1,), "n_k_minus_n_q": lambda n: n >= 0}],  # a cache of more rows takes one query
        Conventions(causal="bottom_right", dead_rows="nan"),
    ),
    _attention(
        "GroupQueryAttention, causal",
        _grouped,
        (*_GROUPED, "causal", "window"),
        [*_OF_GROUPED, "self attention", "causal only", "left windows"],
        Conventions(causal="bottom_right", window="count"),
    ),
    _attention(
        *("MultiHeadAttention", _multi_head, ("mask", "bias", "scale"), ["no grouped heads"]),
        Conventions(dead_rows="nan"),
    ),
    _attention(
        *("MultiHeadAttention, causal", _multi_head, ("scale", "causal"), ["no grouped heads"]),
        deviations=_LAST_QUERY,
    ),
    _rotation(0, "float32"),
    _rotation(1, "float32"),
    _rotation(0, "float16-elementwise"),
]
