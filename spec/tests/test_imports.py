import ast
import sys
from pathlib import Path

import pytest

import spec

ROOT = Path(spec.__file__).parents[1]
PACKAGES = ("spec", "oracles", "properties", "systems", "research")

# Imports go spec ← oracles ← properties ← systems ← research. A package may import itself, those
# before it, the standard library, and:
THIRD_PARTY = {
    "spec": {"numpy", "jaxtyping", "flint", "mpmath"},
    "oracles": {"numpy", "jaxtyping", "flint", "mpmath"},
    "properties": {
        *("numpy", "jaxtyping", "flint", "mpmath", "hypothesis", "pytest", "torch", "rich", "argcomplete", "ml_dtypes"),
        *("jsonschema", "junitparser"),  # forms of reports
        "attnspec",  # which of its own names are another module's
        *("jinja2", "markupsafe", "matplotlib"),  # the page, by which nothing is judged
    },
    "systems": {"attnspec", "numpy", "mpmath", "torch", "ml_dtypes"},
    "research": {
        *(
            "numpy",
            "flint",
            "mpmath",
            "hypothesis",
            "torch",
            "ml_dtypes",
            "jsonschema",
            "rich",
            "matplotlib",
            "threadpoolctl",
        ),
        "playwright",  # pictures of a page
        "attnspec",  # kernels with a mistake, as users write them
    },
}
IN_FOLDER = {"properties/interpreters": {"triton", "jax"}}  # whose modules are imported where a kernel needs them
# … and these inside a function only: what prints a table, formats for those who have them, engines,
# and released libraries under test.
LAZILY = {
    "spec": {"rich"},
    "oracles": {"ml_dtypes"},
    "properties": {"a computed name", "onnx", "onnxruntime", "ray", "redis"},
    "systems": {
        *("a computed name", "onnx", "onnxruntime", "triton"),
        *(
            "openvino",
            "paddle",
            "diffusers",
            "equinox",
            "esm",
            "flax",
            "fms",
            "haiku",
            "jax",
            "keras",
            "keras_hub",
            "kornia",
            "litgpt",
        ),
        *("local_attention", "memory_efficient_attention_pytorch", "mlx", "mlx_lm", "monai", "positional_encodings"),
        *(
            "ring_attention_pytorch",
            "rotary_embedding_torch",
            "tinygrad",
            "torch_geometric",
            "torchtune",
            "transformers",
        ),
        *("whisper", "x_transformers"),
    },
    "research": {"a computed name", "onnx", "onnxruntime", "ray", "jax", "transformers", "keras", "x_transformers"},
}


def imports(tree, inside_function=False):
    """Each top-level name that a module imports, with its line and whether the import stands inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno, inside_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0], node.lineno, inside_function
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {
            "__import__",
            "import_module",
            "importlib.import_module",
        }:
            name = (
                str(node.args[0].value).split(".")[0] if isinstance(node.args[0], ast.Constant) else "a computed name"
            )
            yield name, node.lineno, inside_function
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(node, inside_function or function)


def violations(package, source, is_test=False, own=frozenset()):
    """The imports of a module of `package` that may not be there. Tests may import any third party,
    but no package after their own; the modules of some folders may import those of their `own`.
    """
    ours = (
        {"attnspec", *PACKAGES[: PACKAGES.index(package) + 1]}
        if package in PACKAGES[2:]
        else set(PACKAGES[: PACKAGES.index(package) + 1])
    )
    found = []
    for name, line, inside_function in imports(ast.parse(source)):
        if name in PACKAGES:
            allowed = name in ours
        else:
            lazily = inside_function and name in LAZILY[package]
            allowed = is_test or lazily or name in sys.stdlib_module_names or name in THIRD_PARTY[package] | own
        if not allowed:
            found.append(f"line {line}: {package} imports {name}, but may not.")
    return found


SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_a_module_imports_only_what_its_package_may():
    found = {}
    for path in SOURCES:
        package, *inside = path.relative_to(ROOT).parts
        own = IN_FOLDER.get(path.parent.relative_to(ROOT).as_posix(), frozenset())
        is_test = "tests" in inside
        found[str(path.relative_to(ROOT))] = violations(package, path.read_text("utf-8"), is_test, own)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_the_walk_meets_every_package():
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)
    assert ROOT / "spec" / "attention.py" in SOURCES


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("spec", "import oracles"),
        ("spec", "from properties.laws import mask_operations"),
        ("spec", "import numpy as np, torch"),
        ("spec", "from hypothesis import given"),
        ("spec", "def f():\n    import scipy.special"),
        ("spec", "import ml_dtypes"),
        ("spec", "import rich"),
        ("spec", "import importlib\ndef f(name):\n    return importlib.import_module(name)"),
        ("spec", "def f():\n    import ml_dtypes"),
        ("spec", "import importlib\nimportlib.import_module('oracles.fast')"),
        ("spec", "__import__('torch')"),
        ("oracles", "import properties"),
        ("oracles", "import ml_dtypes"),
        ("oracles", "if True:\n    import ml_dtypes"),
        ("oracles", "def f():\n    import torch"),
        ("oracles", "def f():\n    import hypothesis"),
        ("oracles", "class C:\n    import pytest"),
        ("properties", "import tensorflow"),
    ],
)
def test_a_planted_violation_is_seen(package, source):
    assert len(violations(package, source)) == 1


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("spec", "import flint, mpmath, math\nfrom spec.tensor_core import Array\nfrom . import tensor_core"),
        ("oracles", "from spec import ARB\nimport numpy.linalg"),
        ("oracles", "def f():\n    import ml_dtypes"),
        ("properties", "import oracles, spec, torch, pytest\nfrom hypothesis import given"),
    ],
)
def test_what_a_package_may_import_is_let_through(package, source):
    assert violations(package, source) == []


def test_a_test_may_import_any_third_party_but_no_later_package():
    assert violations("spec", "import pytest, torch", is_test=True) == []
    assert violations("spec", "import oracles", is_test=True) == ["line 1: spec imports oracles, but may not."]
