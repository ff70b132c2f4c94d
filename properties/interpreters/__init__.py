"""Runs GPU kernels in Triton and Pallas on a CPU, in the interpreters of these libraries."""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from properties.interpreters import settings
from properties.interpreters.settings import SETTING

__all__ = ["SETTING", "installed", "interpret", "is_interpreting", "names"]

_LIBRARIES = {"triton": "Triton", "jax": "JAX Pallas"}
_MODULES = {"triton": "triton", "jax": "jax.experimental.pallas"}
_ON: list[bool] = []


def installed() -> tuple[str, ...]:
    """Return the installed libraries that have an interpreter, "triton" and "jax". Raises ValueError,
    with a sentence, without Triton and without JAX.
    """
    libraries = tuple(filter(find_spec, _LIBRARIES))
    if not libraries:
        raise ValueError(
            "--interpret needs Triton, or JAX for Pallas, and neither is installed here. "
            "Try `pip install triton torch`, or `pip install jax`."
        )
    return libraries


def interpret() -> None:
    """Let the kernels that this process imports from now on run in an interpreter. Raises ValueError,
    with a sentence, without Triton and without JAX.
    """
    installed()
    if not _ON:
        _ON.append(True)
        settings.apply(lambda name: import_module(f"{__name__}.{name}"))


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
