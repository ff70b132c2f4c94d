"""Describes where a report was made: the versions of packages, and the machine."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["environment", "processor"]

_PACKAGES = (
    "attnspec",
    "numpy",
    "python-flint",
    "mpmath",
    "hypothesis",
    "ml_dtypes",
    "torch",
    "jax",
    "onnxruntime",
    "mlx",
    "triton",
)


def environment() -> dict[str, str]:
    """Return the versions of Python and of some installed packages, the system, the processor, and
    the accelerators that the system names.
    """
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    versions["system"] = platform.platform()
    versions["processor"] = f"{processor()}, {os.cpu_count()} cores"
    if accelerators := _accelerators():
        versions["accelerators"] = accelerators
    return versions


def processor() -> str:
    """Return the processor's name in Linux, or else its architecture."""
    try:
        model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        model = None
    return " ".join(model[1].split()) if model else platform.processor() or platform.machine()


def _accelerators() -> str:
    """Return the models of the graphics processors that NVIDIA's driver lists in Linux."""
    models = [
        model[1]
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        if (model := re.search(r"^Model:\s*(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
    ]
    return ", ".join(models)
