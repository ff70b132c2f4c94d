"""Runs GPU kernels in Triton and Pallas on a CPU, in the interpreters of these libraries."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from properties.interpreters import cuda_guards, pallas_on_cpu, triton_numbers, triton_on_cpu
from properties.interpreters.after_import import after_import

__all__ = ["SETTING", "interpret", "is_interpreting", "names"]

SETTING = "TRITON_INTERPRET", "1"
"""The environment variable that selects Triton's interpreter. `triton.jit` reads it at each use."""

_LIBRARIES = {"triton": "Triton", "jax": "JAX Pallas"}
_MODULES = {"triton": "triton", "jax": "jax.experimental.pallas"}
_ON: list[bool] = []


def interpret() -> None:
    """Let the kernels that this process imports from now on run in an interpreter. Raises ValueError,
    with a sentence, without Triton and without JAX.
    """
    if not any(map(find_spec, _LIBRARIES)):
        raise ValueError(
            "--interpret needs Triton, or JAX for Pallas, and neither is installed here. "
            "Try `pip install triton torch`, or `pip install jax`."
        )
    if _ON:
        return
    _ON.append(True)
    os.environ.setdefault(*SETTING)
    after_import(
        {
            "torch": [cuda_guards.guard],
            "triton": [triton_numbers.widen, triton_on_cpu.settle],
            "jax.experimental.pallas": [pallas_on_cpu.settle],
        }
    )


def is_interpreting() -> bool:
    """Return whether the kernels of this process run in an interpreter."""
    return bool(_ON)


def names() -> list[str]:
    """Return the libraries whose interpreter runs kernels of this process, with their versions."""
    if not _ON:
        return []
    return [f"{label} {_version(name)}" for name, label in _LIBRARIES.items() if _MODULES[name] in sys.modules]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "of an unknown version"
