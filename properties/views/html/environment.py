"""Where a report comes from: the versions of what was run, and the machine."""

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
    """Versions of Python and of the packages among these that are installed; the system, the
    processor and the accelerators it names.
    """
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    found["system"] = platform.platform()
    found["processor"] = f"{processor()}, {os.cpu_count()} cores"
    if accelerators := _accelerators():
        found["accelerators"] = accelerators
    return found


def processor() -> str:
    """The processor's name as Linux knows it, or else its architecture."""
    try:
        named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        named = None
    return " ".join(named[1].split()) if named else platform.processor() or platform.machine()


def _accelerators() -> str:
    """The graphics processors of which Linux has NVIDIA's driver say the model."""
    models = [
        named[1]
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        if (named := re.search(r"^Model:\s*(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
    ]
    return ", ".join(models)
