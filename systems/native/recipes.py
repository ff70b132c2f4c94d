"""The libraries of this package with their pinned versions, and how to fetch each of them.

`python -m systems.native` installs all packages, and builds ggml from the sources that
llama-cpp-python vendors: about two minutes on two cores. Everything built goes into a folder that
git ignores.
"""

import subprocess
import sys
import tarfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

__all__ = ["GGML", "LIBRARIES", "called", "fetch", "unavailable"]

LIBRARIES = {
    "ggml": "0.25.3",
    "onnx": "1.23.2",
    "onnxruntime": "1.32.0",
    "openvino": "2026.4.1",
    "paddlepaddle": "3.3.1",
}
"""The libraries, each with its pinned version."""

_SOURCES = "llama-cpp-python==0.3.36"
"""The package whose sdist has the sources of this version of ggml."""

_MODULES = {"paddlepaddle": "paddle"}
"""The module of a library, where it has another name."""

_BUILT = Path(__file__).parents[2] / "build" / "native" / "ggml"
GGML = [_BUILT / "src" / f"lib{name}.so" for name in ("ggml-base", "ggml-cpu")]
"""ggml's tensors, and its operators on the CPU."""

_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    "GGML_NATIVE": "OFF",  # AVX2 with FMA and F16C, also on processors that have more
    "GGML_OPENMP": "OFF",
    "GGML_CCACHE": "OFF",
    "GGML_BUILD_TESTS": "OFF",
    "GGML_BUILD_EXAMPLES": "OFF",
}


def unavailable(library: str) -> str:
    """A sentence that says why a library cannot run here; "" if it can."""
    if library == "ggml":
        return "" if all(file.exists() for file in GGML) else "ggml is not built: python -m systems.native ggml."
    is_there = find_spec(_MODULES.get(library, library))
    return "" if is_there else f"{library} is not installed: python -m systems.native {library}."


def called(library: str, text: str) -> str:
    """The name of an implementation: the library, its installed version, and `text`."""
    try:
        installed = LIBRARIES["ggml"] if library == "ggml" else version(library)
    except PackageNotFoundError:
        installed = ""
    return " ".join(part for part in (library, installed, text) if part)


def fetch(library: str) -> None:
    """Install the pinned version of a library, or build it."""
    if library == "ggml":
        _build()
    else:
        _pip("install", f"{library}=={LIBRARIES[library]}")


def _build() -> None:
    """Build ggml from the sources that llama-cpp-python vendors."""
    _BUILT.mkdir(parents=True, exist_ok=True)
    _pip("download", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(_BUILT), _SOURCES)
    (archive,) = _BUILT.glob("llama_cpp_python-*.tar.gz")
    with tarfile.open(archive) as files:
        vendored = [file for file in files.getmembers() if "/vendor/llama.cpp/ggml/" in file.name]
        files.extractall(_BUILT, vendored, filter="data")
    (sources,) = _BUILT.glob("llama_cpp_python-*/vendor/llama.cpp/ggml")
    (sources / "ggml.pc.in").touch()  # CMake asks for this template, which the sdist lacks
    given = [f"-D{name}={value}" for name, value in _OPTIONS.items()]
    subprocess.run(["cmake", "-S", str(sources), "-B", str(_BUILT), *given], check=True)
    subprocess.run(["cmake", "--build", str(_BUILT), "--parallel", "2"], check=True)


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"], check=True)
