"""Liger's softmax in Triton (liger-kernel 0.8.5), with its gradient."""

from typing import Any

from properties.contract.implementation import Implementation
from systems.kernels.released import Released

__all__ = ["IMPLEMENTATIONS"]

_SOFTMAX = Released("liger-kernel", "liger_kernel/ops/softmax.py")


def _softmax(scores: Any, mask: None) -> Any:
    return _SOFTMAX.module.LigerSoftmaxFunction.apply(scores)


def _softmax_vjp(scores: Any, mask: None, grad_weights: Any) -> Any:
    scores = scores.clone().requires_grad_()
    _softmax(scores, None).backward(grad_weights)
    return scores.grad


IMPLEMENTATIONS = [
    Implementation(
        "Liger softmax",
        {"hard_masked_softmax": _softmax, "hard_masked_softmax_vjp": _softmax_vjp},
        arithmetic="float32",
        arrays="torch",
        device="cuda",
        supports=["positive sizes", "no masks"],
        unavailable=_SOFTMAX.unavailable,
    )
]
