"""Lists the names of modules and of their functions that sources use: "torch.nn.functional.softmax"."""

import json
import subprocess
import sys
from collections.abc import Iterable

__all__ = ["names_in"]

_PROGRAM = """
import ast, json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))

def dotted(node, known):
    if isinstance(node, ast.Attribute):
        return (before := dotted(node.value, known)) and f"{before}.{node.attr}"
    return known.get(node.id, "") if isinstance(node, ast.Name) else ""

found = set()
for source in json.load(sys.stdin):
    nodes, known = list(ast.walk(ast.parse(source))), {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                found.add(before + alias.name)
                name = alias.asname or alias.name if before else alias.asname or alias.name.partition(".")[0]
                known[name] = before + alias.name if before or alias.asname else name
    found |= {dotted(node, known) for node in nodes if isinstance(node, ast.Attribute)}
json.dump(sorted(found - {""}), sys.stdout)
"""
"""It runs in a process of its own, since a small source can need much time and memory."""


def names_in(sources: Iterable[str]) -> list[str]:
    """Return the dotted names of modules, and of what the sources use of them, whatever they are called
    there. Names that a program makes only when it runs are not among them. Raises ValueError if the
    sources cannot be parsed in 5 seconds and 1 GiB of memory.
    """
    command, program_input = [sys.executable, "-I", "-S", "-c", _PROGRAM], json.dumps([*sources])
    ended = subprocess.run(command, input=program_input, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ValueError("The sources cannot be parsed, so the names that they use are not known.")
    names: list[str] = json.loads(ended.stdout)
    return names
