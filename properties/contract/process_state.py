"""What a program has one of for all its modules, and a call should leave as it is."""

import os
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["changes", "restore", "states", "stir"]

State = tuple[Callable[[], Any], Callable[[Any], Any]]

_STATES: dict[str, State] = {
    "NumPy's print options": (np.get_printoptions, lambda options: np.set_printoptions(**options)),
    "NumPy's global random numbers": (lambda: _plain(np.random.get_state()), np.random.set_state),
    "Python's global random numbers": (random.getstate, random.setstate),
    "the environment's variables": (lambda: dict(os.environ), lambda variables: _replace(os.environ, variables)),
    "the working directory": (os.getcwd, os.chdir),
    "the import path": (lambda: list(sys.path), lambda path: sys.path.__setitem__(slice(None), path)),
}


def _torch_states() -> dict[str, State]:
    import torch

    return {
        "torch's default type": (torch.get_default_dtype, torch.set_default_dtype),
        "torch's gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
        "torch's global random numbers": (
            lambda: bytes(torch.get_rng_state().numpy()),
            lambda s: torch.set_rng_state(_from_bytes(s)),
        ),
    }


def _all() -> dict[str, State]:
    return _STATES | (_torch_states() if "torch" in sys.modules else {})


def states() -> dict[str, Any]:
    """Everything there is to know, by name: in values that can be compared."""
    return {name: get() for name, (get, _) in _all().items()}


def stir() -> None:
    """Draw from the global random numbers, so that seeding them shows: Hypothesis has just seeded them, with 0."""
    random.random()
    np.random.random()
    if "torch" in sys.modules:
        sys.modules["torch"].rand(1)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names of what differs."""
    return [name for name, value in before.items() if after[name] != value]


def restore(before: dict[str, Any]) -> None:
    """Put back what differs now."""
    known = _all()
    for name in changes(before, states()):
        known[name][1](before[name])


def _plain(state: Any) -> Any:
    """A legacy generator's state with its array as a tuple, so that two can be compared."""
    return state[0], tuple(state[1].tolist()), *state[2:]


def _replace(mapping: Any, content: dict[str, str]) -> None:
    mapping.clear()
    mapping.update(content)


def _from_bytes(state: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
