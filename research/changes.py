"""Finds what a change touches: the lines that git reports as changed, the statements of a module on
these lines, and the statements that use them.
"""

import ast
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Part", "Spans", "base", "changed_lines", "parts", "touched_parts"]

ROOT = Path(__file__).parents[1]
Spans = list[tuple[int, int]]
"""First and last lines. Where lines were only removed: the line after them, and the line before them."""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def base(since: str = "") -> str:
    """The revision to compare with: `since` if the caller names one, otherwise HEAD, or the parent
    of HEAD if nothing has changed since HEAD.
    """
    return since or ("HEAD" if _git("status", "--porcelain") else "HEAD^")


def changed_lines(since: str) -> dict[str, Spans]:
    """The lines that differ from a revision, by the path of their file. A new file is one span, and
    a deleted file has no spans.
    """
    touched: dict[str, Spans] = {}
    for line in _git("diff", "--unified=0", "--no-renames", "--no-color", "--no-ext-diff", since, "--").splitlines():
        if line.startswith(("--- a/", "+++ b/")):
            path = line[6:]
            touched.setdefault(path, [])
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, number = int(hunk[1]), int(hunk[2] or 1)
            touched[path].append((first, first + number - 1) if number else (first + 1, first))
    for path in _git("ls-files", "--others", "--exclude-standard").splitlines():
        touched[path] = [(1, 10**9)]
    return touched


@dataclass(frozen=True)
class Part:
    """A statement of a module: its lines, the names that it defines and uses, and its labels.

    A name of another module is "module:name". The labels of a definition are its name and the
    strings of its decorators. The labels of another statement are all its strings.
    """

    lines: tuple[int, int]
    defines: frozenset[str]
    uses: frozenset[str]
    labels: frozenset[str]

    def meets(self, spans: Spans) -> bool:
        """Whether some of its lines were changed."""
        return any(self.lines[0] <= last and self.lines[1] >= first for first, last in spans)


def parts(module: str, source: str) -> list[Part]:
    """The parts of a module: its statements without imports and docstrings."""
    tree = ast.parse(source)
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names}
    return [_part(module, statement, imported) for statement in tree.body if not _is_import_or_docstring(statement)]


def _is_import_or_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is an import or a docstring. An imported name counts where it is used."""
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return docstring or isinstance(statement, ast.Import | ast.ImportFrom)


def _part(module: str, statement: ast.stmt, imported: Mapping[str, str]) -> Part:
    """The part that a statement is."""
    nodes = list(ast.walk(statement))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    uses = {imported.get(name, f"{module}:{name}") for name in names}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
            uses.add(f"{imported[node.value.id].replace(':', '.')}:{node.attr}")
    start = statement.lineno
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        decorators = [node for decorator in statement.decorator_list for node in ast.walk(decorator)]
        defines, labels = {statement.name}, {statement.name, *_strings(decorators)}
        start = min([start, *(decorator.lineno for decorator in statement.decorator_list)])
    else:
        stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        defines = set() if isinstance(statement, ast.For) else stored  # nobody uses the variables of a loop
        labels = _strings(nodes)
    defined = frozenset(f"{module}:{name}" for name in defines)
    return Part((start, statement.end_lineno or start), defined, frozenset(uses), frozenset(labels))


def _strings(nodes: Sequence[ast.AST]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def touched_parts(
    modules: Mapping[str, list[Part]], spans: Mapping[str, Spans], ends: Collection[str] = ()
) -> dict[str, list[Part]]:
    """The touched parts of modules, by the module's name: parts with changed lines, and parts that
    use what a touched part defines, directly or through other parts.

    A part that defines a name of `ends` is touched by its own lines alone.
    """
    touched = {
        module: [part for part in members if part.meets(spans.get(module, []))] for module, members in modules.items()
    }
    while True:
        names = {name for members in touched.values() for part in members for name in part.defines}
        users = {
            module: [
                part
                for part in members
                if part not in touched[module] and not names.isdisjoint(part.uses) and part.defines.isdisjoint(ends)
            ]
            for module, members in modules.items()
        }
        if not any(users.values()):
            return touched
        touched = {module: [*members, *users[module]] for module, members in touched.items()}
