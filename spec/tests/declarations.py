"""The list of Lean declarations in `declarations.txt`, and the Python name that each has in the spec."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Declaration:
    kind: str
    lean: str

    @property
    def python(self) -> str:
        """`map2Spec` → `map2_spec`, `MultiHeadAttentionBackward` → `multi_head_attention_backward`;
        a structure keeps its name.
        """
        structure, _, name = self.lean.rpartition(".")
        if self.kind == "structure":
            return self.lean
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        return f"{structure}.{snake}" if structure else snake


def read() -> dict[str, tuple[str, list[Declaration]]]:
    """For each module, its Lean file and the declarations in it, in order."""
    modules: dict[str, tuple[str, list[Declaration]]] = {}
    current: list[Declaration] = []
    for line in Path(__file__).with_name("declarations.txt").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if "=" in line:
            lean_file, module = line.split(" = ")
            current = []
            modules[module] = (lean_file, current)
        else:
            kind, lean = line.split()
            current.append(Declaration(kind, lean))
    return modules


MODULES = read()
POSITIONAL, ATTENTION = (tuple(MODULES[module][1]) for module in ("positional_encoding", "attention"))
