"""Checks of derivatives against differences of the function itself: what they compare with is the
candidate's own forward.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from oracles.ball import Array
from oracles.formats import BINARY64, Format
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from research.checkers.trial import FORWARD, Trial, returned

__all__ = ["Differentiated", "check_grads", "gradcheck"]

_LETTERS = ("q", "k", "v", "bias")


@dataclass(frozen=True)
class Differentiated:
    """An implementation's forward, VJP and JVP of one call, as functions of its arrays of numbers;
    the other arguments stay.
    """

    implementation: Implementation
    trial: Trial

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays, by name."""
        return {parameter: x for parameter, x in self._given.items() if parameter in _LETTERS and x is not None}

    def value(self, *arrays: Array) -> Array:
        """The output."""
        return self._call("", arrays, {})[0]

    def vjp(self, arrays: tuple[Array, ...], grad_out: Array) -> tuple[Array, ...]:
        """The gradients of the arrays."""
        return self._call("_vjp", arrays, {"grad_out": grad_out})[: len(arrays)]

    def jvp(self, arrays: tuple[Array, ...], tangents: tuple[Array, ...]) -> Array:
        """The output's tangent."""
        return self._call(
            "_jvp", arrays, {f"d{parameter}": x for parameter, x in zip(self.arrays, tangents, strict=True)}
        )[0]

    @property
    def _given(self) -> dict[str, Any]:
        return dict(zip(OPERATIONS[self.trial.operation].parameters, self.trial.arguments, strict=True))

    def _call(self, suffix: str, arrays: tuple[Array, ...], others: dict[str, Array]) -> tuple[Array, ...]:
        definition = OPERATIONS[f"{self.trial.operation}{suffix}"]
        given = self._given | dict(zip(self.arrays, (np.asarray(x, np.float64) for x in arrays), strict=True)) | others
        with np.errstate(all="ignore"):
            values, *_ = Caller(self.implementation, definition.name).run(
                definition, tuple(given.get(parameter) for parameter in definition.parameters)
            )
        return tuple(returned(x, self.trial.format) for x in values)


def _of(trial: Trial) -> bool:
    return trial.operation in FORWARD and f"{trial.operation}_vjp" in OPERATIONS


class _Function(torch.autograd.Function):
    """A candidate as a function of PyTorch's, in float64."""

    @staticmethod
    def forward(ctx: Any, of: Differentiated, *arrays: torch.Tensor) -> torch.Tensor:
        """The output."""
        ctx.of = of
        ctx.save_for_backward(*arrays)
        return torch.from_numpy(of.value(*(x.numpy() for x in arrays)).copy())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradients."""
        gradients = ctx.of.vjp(tuple(x.numpy() for x in ctx.saved_tensors), grads[0].numpy())
        return None, *(torch.from_numpy(np.array(x)) for x in gradients)


def gradcheck(implementation: Implementation, trial: Trial) -> bool:
    """`torch.autograd.gradcheck`, itself, in float64 and its fast mode, with its default step and tolerances."""
    if not _of(trial):
        return True
    trial = Trial(trial.operation, trial.arguments, BINARY64, trial.results)
    operation_of = Differentiated(implementation, trial)
    inputs = tuple(torch.from_numpy(x.copy()).requires_grad_() for x in operation_of.arrays.values())
    torch.manual_seed(0)
    try:
        return torch.autograd.gradcheck(
            partial(_Function.apply, operation_of), inputs, fast_mode=True, raise_exception=False
        )
    except BrokenError:
        return False


def check_grads(target: Format, tolerance: float, step: float = 1e-4) -> Callable[[Implementation, Trial], bool]:
    """Central differences along one random direction, forwards and backwards, of order 1. A
    comparison allows tolerance times the size of the array, absolutely and relatively: of the
    output's tangent, and of one inner product."""

    def accepts(implementation: Implementation, trial: Trial) -> bool:
        return not _of(trial) or _consistent(
            Differentiated(implementation, Trial(trial.operation, trial.arguments, target, trial.results))
        )

    def _consistent(of: Differentiated) -> bool:
        rng, arrays = np.random.default_rng(0), tuple(of.arrays.values())
        tangents = tuple(returned(rng.standard_normal(x.shape), target) for x in arrays)
        try:
            ahead, behind = (
                of.value(
                    *(
                        returned(x + sign * step * direction, target)
                        for x, direction in zip(arrays, tangents, strict=True)
                    )
                )
                for sign in (1, -1)
            )
            numerical = returned((ahead - behind) * (0.5 / step), target)
            grad = returned(rng.standard_normal(numerical.shape), target)
            pairs = zip(tangents, of.vjp(arrays, grad), strict=True)
            return _close(of.jvp(arrays, tangents), numerical) and _close(
                sum(np.vdot(x, y) for x, y in pairs), np.vdot(numerical, grad)
            )
        except BrokenError:
            return False

    def _close(x: Any, y: Any) -> bool:
        allowed = tolerance * np.size(y)
        return np.allclose(x, y, rtol=allowed, atol=allowed)

    return accepts
