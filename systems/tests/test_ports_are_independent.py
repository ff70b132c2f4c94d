"""A port is independent: it shares no formula with the oracles or with the reference."""

import ast
from pathlib import Path

import pytest

import systems
from oracles import Angle, Arithmetic, Elementary, Format, formats

PORTS = sorted(path for path in Path(systems.__path__[0]).glob("*.py") if path.stem != "__init__")
KINDS = Angle, Arithmetic, Elementary, Format
DATA = {
    "Conventions",
    *(kind.__name__ for kind in KINDS),
    *(name for name, x in vars(formats).items() if isinstance(x, KINDS)),
}
PROMISES = {
    ("properties.contract.implementation", "Implementation"),
    ("properties.contract.features", "FEATURES"),
    ("properties.contract.concatenating", "concatenating"),
    ("properties.interpreters", "is_interpreting"),
}
LOOKS = "importlib.util", "find_spec"  # whether a library is installed, which imports nothing
SPEC = {"Array"}  # a type; TorchLean's port is the spec itself


def imported(path):
    """(module, name) of each import in a file, at the top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports from a relative place."
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", PORTS, ids=lambda path: path.stem)
def test_a_port_imports_no_formula(path):
    for module, name in imported(path):
        package = module.split(".")[0]
        assert package != "importlib" or (module, name) == LOOKS
        if package == "oracles":
            assert name in DATA, (module, name)
        elif package == "properties" and not module.startswith("systems."):
            assert (module, name) in PROMISES, (module, name)
        elif package == "spec" and path.stem != "torchlean":
            assert name in SPEC, (module, name)
