"""PyTorch: paths of one function as twins, and the objects `causal_upper_left` and
`causal_lower_right`.

`systems` has PyTorch's kernels, its module on all paths, and attention written by hand and
compiled, each as a separate implementation: here some are twins of others. Each call makes the
objects of `torch.nn.attention.bias` for its sizes.
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
_NAMED = {
    implementation.name: implementation
    for module in (torch_attention, torch_compiled, torch_flex, torch_multi_head)
    for implementation in module.IMPLEMENTATIONS
}
_SDPA = "scaled_dot_product_attention"


def _biased(name: str, q: Any, k: Any, v: Any, written_out: bool = False) -> Any:
    """Causal attention by the object, or by the boolean mask with the same meaning."""
    import torch
    from torch.nn.attention import bias
    from torch.nn.functional import scaled_dot_product_attention

    n_q, n_k = q.shape[-2], k.shape[-2]
    last = n_k - n_q if name == "causal_lower_right" else 0
    mask = torch.ones(n_q, n_k, dtype=torch.bool).tril(last) if written_out else getattr(bias, name)(n_q, n_k)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _with_gradients(name: str, q: Any, k: Any, v: Any, *mask: Any) -> Any:
    """The attention of an entry for inputs that require gradients."""
    return _NAMED[name].operations[_SDPA](*(x.clone().requires_grad_() for x in (q, k, v)), *mask).detach()


def _promised(name: str, others: str) -> Twin:
    """The entry `others` as a twin of the entry `name`: its operations that both have, and its
    promises.
    """
    other = _NAMED[others]
    offered = _NAMED[name].operations
    shared = {operation: function for operation, function in other.operations.items() if operation in offered}
    return Twin(shared, promises={field: getattr(other, field) for field in PROMISES})


def _beside(name: str, *others: str, **functions: Callable[..., Any]) -> Implementation:
    """An entry with other entries as its twins, and with functions as twins of its attention.

    The functions have the entry's promises. The entry keeps the operations that a twin has.
    """
    own = _NAMED[name]
    twins = {other: _promised(name, other) for other in others}
    twins |= {called.replace("_", " "): Twin({_SDPA: function}) for called, function in functions.items()}
    paired = {operation for twin in twins.values() for operation in twin.operations}
    kept = {operation: function for operation, function in own.operations.items() if operation in paired}
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
