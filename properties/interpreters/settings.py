"""What lets kernels run in an interpreter: an environment variable, and functions to call after the import
of some modules.

The process of the gate gets this module as text, so the module imports only the standard library.
"""

import os
from collections.abc import Callable
from types import ModuleType

__all__ = ["SETTING", "apply"]

SETTING = "TRITON_INTERPRET", "1"
"""The environment variable that selects Triton's interpreter. `triton.jit` reads it at each use."""

_ACTIONS = {
    "torch": ["cuda_guards.guard"],
    "triton": ["triton_numbers.widen", "triton_on_cpu.settle"],
    "jax.experimental.pallas": ["pallas_on_cpu.settle"],
}
"""The functions of this package to call, by the module after whose import they are called."""


def apply(load: Callable[[str], ModuleType]) -> None:
    """Let the kernels that this process imports from now on run in an interpreter. `load` returns a
    module of this package by its name.
    """
    os.environ.setdefault(*SETTING)
    load("after_import").after_import(
        {name: [_function(load, action) for action in actions] for name, actions in _ACTIONS.items()}
    )


def _function(load: Callable[[str], ModuleType], action: str) -> Callable[[], None]:
    """Return the function of an action. Its module is loaded at the call."""
    module, _, function = action.partition(".")

    def act() -> None:
        getattr(load(module), function)()

    return act
