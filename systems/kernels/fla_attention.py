"""flash-linear-attention's softmax attention in Triton (fla-core 0.6.0): causal, with groups of heads, windows and
sinks, for sequences of equal lengths and packed ones, with gradients; and one query each over packed keys.

Found by `attnspec verify systems/kernels/fla_attention.py --interpret`: a sink in bfloat16 is multiplied by
1 / ln 2 in bfloat16, and the products of queries and keys of `attn_decoding_one_step` are rounded to
bfloat16. All other implementations get their sinks in float32.
"""

from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.kernels.released import Released

__all__ = ["IMPLEMENTATIONS"]

_PARALLEL = Released("fla-core", "fla/ops/attn/parallel.py", whole=True)
_DECODING = Released("fla-core", "fla/ops/attn/decoding.py", whole=True)


def _length(options: dict[str, Any]) -> int | None:
    """The number of keys in a window: its left side, and the key at the query's own position."""
    left, _ = options.get("window") or (None, None)
    return None if left is None else left + 1


def _called(q: Any, k: Any, v: Any, options: dict[str, Any], cu: Any = None) -> Any:
    """The output for q, k and v (batch, n, heads, d)."""
    return _PARALLEL.module.parallel_attn(
        q, k, v, None, options.get("scale"), _length(options), cu, sink_bias=options.get("sink")
    )


def _wide(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with the sinks in float32."""
    sink = options.get("sink")
    return options if sink is None else {**options, "sink": sink.float()}


def _attend_narrow(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return _called(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), options).transpose(1, 2)


def _attend(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return _attend_narrow(q, k, v, **_wide(options))


def _attend_packed(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, **options: Any) -> Any:
    return _called(q[None], k[None], v[None], _wide(options), cu_q.long())[0]


def _gradients(forward: Any, q: Any, k: Any, v: Any, *rest: Any, **options: Any) -> tuple[Any, ...]:
    """The gradients with respect to q, k, v and the sink, by PyTorch. The last of `rest` is grad_out."""
    *cu, grad_out = rest
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    sink = options.get("sink")
    if sink is not None:
        options["sink"] = sink = sink.clone().requires_grad_()
    forward(*inputs, *cu, **options).backward(grad_out)
    return *(x.grad for x in inputs), None if sink is None else sink.grad


def _vjp(q: Any, k: Any, v: Any, grad_out: Any, **options: Any) -> tuple[Any, ...]:
    dq, dk, dv, dsink = _gradients(_attend, q, k, v, grad_out, **options)
    return dq, dk, dv, None, dsink


def _packed_vjp(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, grad_out: Any, **options: Any) -> tuple[Any, ...]:
    return _gradients(_attend_packed, q, k, v, cu_q, cu_k, grad_out, **options)


def _decode(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, **options: Any) -> Any:
    """q (sequences, heads, d): one query for each sequence, at its last key."""
    return _DECODING.module.attn_decoding_one_step(
        *(q[None], k[None], v[None]),
        scale=options.get("scale"),
        cu_seqlens=cu_k.long(),
        window_size=_length(options),
        sink_bias=options.get("sink"),
    )[0]


_POSITIVE = {name: lambda n: n > 0 for name in ("num_heads", "kv_heads", "head_dim", "value_dim")}
_ROWS = ("self attention", "no masks", {"batch": lambda n: n > 0, "n_q": lambda n: n > 0})
_WORDS = ("causal only", "left windows", "heads divide", "no log-sum-exp")


def _fla(name: str, operations: dict[str, Any], *supports: Any, **options: Any) -> Implementation:
    return Implementation(
        f"fla {name}",
        operations,
        arithmetic="bfloat16",
        arrays="torch",
        device="cuda",
        supports=[*_WORDS, _POSITIVE, *supports],
        features=("scale", "causal", "window", "sink"),
        unavailable=_PARALLEL.unavailable,
        **options,
    )


IMPLEMENTATIONS = [
    _fla("parallel_attn", {"attention": _attend, "attention_vjp": _vjp}, *_ROWS, batch_ranks=(2,)),
    _fla("parallel_attn, sinks in bfloat16", {"attention": _attend_narrow}, *_ROWS, batch_ranks=(2,)),
    _fla(
        "parallel_attn, packed",
        {"packed_attention": _attend_packed, "packed_attention_vjp": _packed_vjp},
        *("self attention", "no padding rows", {"sequences": lambda n: n > 0, "total_q": lambda n: n > 0}),
    ),
    _fla(
        "attn_decoding_one_step",
        {"packed_attention": _decode},
        *("no padding rows", {"n_q": (1,), "sequences": lambda n: n > 0}),
        conventions=Conventions(causal="bottom_right"),
    ),
]
