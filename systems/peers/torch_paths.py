"""PyTorch once more: paths of one function side by side, and `causal_upper_left` and
`causal_lower_right` as objects.

`systems` has its kernels, its module on all paths, and attention written by hand and compiled, each
by itself: here some are twins of others. The objects of `torch.nn.attention.bias` are made of the
sizes of each call.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import PROMISES, Twin
from systems import torch_attention, torch_compiled, torch_flex, torch_multi_head
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("torch")
_OWN = {
    i.name: i
    for module in (torch_attention, torch_compiled, torch_flex, torch_multi_head)
    for i in module.IMPLEMENTATIONS
}
_SDPA = "scaled_dot_product_attention"


def _biased(name: str, q: Any, k: Any, v: Any, written_out: bool = False) -> Any:
    """By the object, or by the mask of booleans that it stands for."""
    import torch
    from torch.nn.attention import bias
    from torch.nn.functional import scaled_dot_product_attention

    n_q, n_k = q.shape[-2], k.shape[-2]
    last = n_k - n_q if name == "causal_lower_right" else 0
    mask = torch.ones(n_q, n_k, dtype=torch.bool).tril(last) if written_out else getattr(bias, name)(n_q, n_k)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _with_gradients(name: str, q: Any, k: Any, v: Any, *mask: Any) -> Any:
    """An entry's attention of numbers that want gradients."""
    return _OWN[name].operations[_SDPA](*(x.clone().requires_grad_() for x in (q, k, v)), *mask).detach()


def _promised(name: str, others: str) -> Twin:
    """Another entry as a twin of one: what both offer, with the promises of the other."""
    other = _OWN[others]
    shared = {operation: f for operation, f in other.operations.items() if operation in _OWN[name].operations}
    return Twin(shared, promises={field: getattr(other, field) for field in PROMISES})


def _beside(name: str, *others: str, **functions: Callable[..., Any]) -> Implementation:
    """An entry with others as its twins, and functions of its attention that promise the same; of
    its operations those that a twin has.
    """
    own = _OWN[name]
    twins = {other: _promised(name, other) for other in others}
    twins |= {called.replace("_", " "): Twin({_SDPA: function}) for called, function in functions.items()}
    paired = {operation for twin in twins.values() for operation in twin.operations}
    kept = {operation: f for operation, f in own.operations.items() if operation in paired}
    called = _LIBRARY.called(f"{name.removeprefix('torch ')}, by all paths")
    beside: Implementation = replace(own, name=called, operations=kept, twins=twins)
    return beside


_ALIGNED = {
    "causal_upper_left": Conventions(causal="top_left"),
    "causal_lower_right": Conventions(causal="bottom_right"),
}

IMPLEMENTATIONS = [
    *(
        Implementation(
            name=_LIBRARY.called(f"{name} float32"),
            operations={"causal_attention": partial(_biased, name)},
            arithmetic="float32",
            conventions=conventions,
            arrays="torch",
            batch_ranks=(2,),
            supports="positive sizes",
            refuses=(RuntimeError, ValueError),
            unavailable=_LIBRARY.unavailable,
            twins={"a mask of booleans": {"causal_attention": partial(_biased, name, written_out=True)}},
        )
        for name, conventions in _ALIGNED.items()
    ),
    *(
        _beside(
            f"torch flash {dtype}",
            f"torch math {dtype}",
            *others,
            with_gradients=partial(_with_gradients, f"torch flash {dtype}"),
        )
        for dtype, *others in (
            ("float32", "torch math float32 func", "torch flex float32"),
            ("float64",),
            ("bfloat16",),
        )
    ),
    _beside("torch flash float16", "torch math float16"),
    _beside(
        "torch compiled float64",
        not_compiled=partial(torch_compiled.attend, compiled=False),
        keys_transposed_in_memory=partial(torch_compiled.attend, transposed=True),
    ),
    _beside("torch MHA weights eval float32", "torch MHA no weights eval float32", "torch MHA fast path float32"),
]
