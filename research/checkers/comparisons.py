"""How each checker compares what came back with what it holds to be right: a predicate each, of
results in one format.
"""

from collections.abc import Callable

import numpy as np
import torch

from oracles.ball import Array
from oracles.formats import BINARY32
from research.checkers.trial import Trial, tensor

__all__ = ["Comparison", "allclose", "assert_close", "both_beyond", "times_plain"]

Comparison = Callable[[tuple[Array, ...], Trial], bool]
"""Whether results are accepted, of a trial."""


def allclose(rtol: float, atol: float) -> Comparison:
    """Every |error| is at most atol + rtol·|right|; NaN is never close."""

    def accepts(found: tuple[Array, ...], trial: Trial) -> bool:
        return all(np.allclose(x, right, rtol=rtol, atol=atol) for x, right in zip(found, trial.right, strict=True))

    return accepts


def assert_close(found: tuple[Array, ...], trial: Trial) -> bool:
    """`torch.testing.assert_close`, itself, with its defaults for the format."""
    try:
        for x, right in zip(found, trial.right, strict=True):
            torch.testing.assert_close(tensor(x, trial.format), tensor(right, trial.format))
    except AssertionError:
        return False
    return True


def both_beyond(rtol: float, atol: float, tiny: float = 1e-8) -> Comparison:
    """No entry is off by more than atol and by more than rtol·(|right| + tiny); what is not finite
    is refused. The errors are float32's.
    """

    def accepts(found: tuple[Array, ...], trial: Trial) -> bool:
        return all(_within(x, right, rtol, atol, tiny) for x, right in zip(found, trial.right, strict=True))

    return accepts


def _within(x: Array, right: Array, rtol: float, atol: float, tiny: float) -> bool:
    return bool(np.isfinite(x).all()) and not beyond_both(x, right, rtol, atol, tiny).any()


def beyond_both(x: Array, right: Array, rtol: float, atol: float, tiny: float = 1e-8) -> Array:
    """Which entries are off by more than both tolerances."""
    error = (tensor(x, BINARY32) - tensor(right, BINARY32)).abs()
    relative = error / (tensor(right, BINARY32).abs() + tiny)
    return np.asarray(((error > atol) & (relative > rtol)).numpy())


def times_plain(of_output: float, of_gradients: float, atol: float) -> Comparison:
    """Accepts if the largest error is at most a multiple of the largest error of a plain run in the
    same format, plus atol. NaN is larger than every number.
    """

    def accepts(found: tuple[Array, ...], trial: Trial) -> bool:
        times = {name: of_output if name == "out" else of_gradients for name in trial.results}
        return all(
            float(np.abs(x - right).max()) <= times[name] * float(np.abs(plain - right).max()) + atol
            for name, x, right, plain in zip(trial.results, found, trial.right, trial.plain, strict=True)
        )

    return accepts
