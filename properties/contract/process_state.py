"""Process-wide state that a call must not change: random generators, environment, working
directory, and more.
"""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["changes", "restore", "restored", "states", "stir"]

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
    """Return all process-wide state that attnspec watches, by name, as values that can be compared."""
    return {state_name: get() for state_name, (get, _) in _all().items()}


def stir() -> None:
    """Draw from the global random generators. Hypothesis has just seeded them with 0. After the
    draw, a call that seeds them with 0 too changes their state.
    """
    random.random()
    np.random.random()
    if "torch" in sys.modules:
        sys.modules["torch"].rand(1)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of the states that differ."""
    return [state_name for state_name, previous in before.items() if after[state_name] != previous]


def restore(before: dict[str, Any]) -> None:
    """Restore every state that differs from `before`."""
    all_states = _all()
    for state_name in changes(before, states()):
        all_states[state_name][1](before[state_name])


@contextmanager
def restored() -> Iterator[None]:
    """Restore, at the end, every state that was changed meanwhile."""
    before = states()
    try:
        yield
    finally:
        restore(before)


def _plain(state: Any) -> Any:
    """Return the state of a legacy NumPy generator, with its array as a tuple, so that two states
    can be compared.
    """
    return state[0], tuple(state[1].tolist()), *state[2:]


def _replace(mapping: Any, content: dict[str, str]) -> None:
    mapping.clear()
    mapping.update(content)


def _from_bytes(state: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
