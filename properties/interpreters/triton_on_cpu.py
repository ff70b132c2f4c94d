"""Replaces what Triton asks of a GPU, so that its interpreter runs kernels without one."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from threading import RLock
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["settle"]

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("abs", "ceil", "cos", "exp", "exp2", "expm1", "floor", "fmax", "fmin")},
    **{name: getattr(np, name) for name in ("log", "log10", "log1p", "log2", "sin", "sqrt", "tan", "tanh", "trunc")},
    "div_rn": np.divide,
    "fast_dividef": np.divide,
    "fast_expf": np.exp,
    "fast_tanhf": np.tanh,
    "pow": np.power,
    "rint": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
"""The functions of libdevice, by their names in triton.language.extra, with NumPy's accuracy."""


_ONE_LAUNCH = RLock()


def settle() -> None:
    """Replace the functions of libdevice, the measurements of the autotuner and the driver, and let
    launches take turns.
    """
    import triton
    from triton.language.extra import cuda, libdevice
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import GridExecutor

    for name, function in _FUNCTIONS.items():
        for module in (libdevice, cuda.libdevice):
            if hasattr(module, name):
                setattr(module, name, _of_tensors(function))
    Autotuner._bench = lambda self, *arguments, **options: [0.0]  # of equal configurations, the first is taken
    triton.runtime.driver.set_active(_driver())
    GridExecutor.__call__ = _in_turn(GridExecutor.__call__)


def _in_turn(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a launch that waits for launches in other threads: the interpreter keeps the place in the
    grid in one object for all threads.
    """

    @wraps(launch)
    def in_turn(*arguments: Any, **options: Any) -> Any:
        with _ONE_LAUNCH:
            return launch(*arguments, **options)

    return in_turn


def _of_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of Triton's tensors that computes a function of NumPy."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, interpreter_semantic

    def of_tensors(*arguments: Any, **options: Any) -> Any:
        tensors = [interpreter_semantic.to_tensor(argument) for argument in arguments]
        data = function(*(tensor.handle.data for tensor in tensors))
        return tl.tensor(TensorHandle(data, tensors[0].dtype), tensors[0].type)

    return of_tensors


def _driver() -> Any:
    """Return a driver that answers questions about a GPU, as `cuda_guards` does for torch.cuda."""
    from triton.backends.compiler import GPUTarget

    return SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_device_interface=lambda: import_module("torch").cuda,
        get_active_torch_device=lambda: import_module("torch").device("cpu"),
        utils=SimpleNamespace(
            get_device_properties=lambda device: {"multiprocessor_count": 132, "max_shared_mem": 232448, "warpSize": 32}
        ),
    )
