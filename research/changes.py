"""What a change touches: the lines that git says are others, and the definitions and rows of tables
that stand there or use these.
"""

import ast
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Part", "Spans", "base", "changed_lines", "parts", "touched_parts"]

ROOT = Path(__file__).parents[1]
Spans = list[tuple[int, int]]
"""First and last lines; where lines were only taken out, the line after them and the line before them."""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def base(since: str = "") -> str:
    """The revision to compare with: the one that is named, else HEAD, or its parent where nothing
    has changed since HEAD.
    """
    return since or ("HEAD" if _git("status", "--porcelain") else "HEAD^")


def changed_lines(since: str) -> dict[str, Spans]:
    """The lines of each file, by its path, that are others than in a revision; a new file is one
    span, and of a lost file there is none.
    """
    found: dict[str, Spans] = {}
    for line in _git("diff", "--unified=0", "--no-renames", "--no-color", "--no-ext-diff", since, "--").splitlines():
        if line.startswith(("--- a/", "+++ b/")):
            path = line[6:]
            found.setdefault(path, [])
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, number = int(hunk[1]), int(hunk[2] or 1)
            found[path].append((first, first + number - 1) if number else (first + 1, first))
    for path in _git("ls-files", "--others", "--exclude-standard").splitlines():
        found[path] = [(1, 10**9)]
    return found


@dataclass(frozen=True)
class Part:
    """A definition of a module, or a row of a table: its lines, the names that it defines and uses,
    and its labels.

    A name of another module is "module:name". `labels` are the name of a definition and the strings
    of its decorators; of a row they are all its strings.
    """

    lines: tuple[int, int]
    defines: frozenset[str]
    uses: frozenset[str]
    labels: frozenset[str]

    def meets(self, spans: Spans) -> bool:
        """Whether lines of it were changed."""
        return any(self.lines[0] <= last and self.lines[1] >= first for first, last in spans)


def parts(module: str, source: str) -> list[Part]:
    """The parts of a module: each statement, of a loop over a table each row, and its body."""
    tree = ast.parse(source)
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names}
    return [part for node in tree.body for part in _parts(module, node, imported)]


def _parts(module: str, node: ast.stmt, imported: Mapping[str, str]) -> Iterator[Part]:
    if isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return  # what is imported is looked at where it is used
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
        for row in node.iter.elts:
            yield _part(module, (row,), imported)
        yield _part(module, node.body, imported, node.iter)
    else:
        yield _part(module, (node,), imported)


def _part(module: str, nodes: Sequence[ast.AST], imported: Mapping[str, str], table: ast.AST | None = None) -> Part:
    """The part that some nodes are, with the strings of the table over which they run."""
    every = [inner for node in nodes for inner in ast.walk(node)]
    named = {inner.id for inner in every if isinstance(inner, ast.Name)}
    uses = {imported.get(name, f"{module}:{name}") for name in named}
    for inner in every:
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in imported:
            uses.add(f"{imported[inner.value.id].replace(':', '.')}:{inner.attr}")
    first = nodes[0]
    if isinstance(first, ast.FunctionDef | ast.ClassDef):
        defines, called = {first.name}, [x for decorator in first.decorator_list for x in ast.walk(decorator)]
        labels = {first.name, *_strings(called)}
        start = min([first.lineno, *(decorator.lineno for decorator in first.decorator_list)])
    else:
        stored = {x.id for x in every if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        defines = set() if isinstance(first, ast.For) else stored
        labels = _strings([*every, *(ast.walk(table) if table else ())])
        start = getattr(first, "lineno", 0)
    end = getattr(nodes[-1], "end_lineno", 0)
    return Part((start, end), frozenset(f"{module}:{name}" for name in defines), frozenset(uses), frozenset(labels))


def _strings(nodes: Sequence[ast.AST]) -> set[str]:
    return {x.value for x in nodes if isinstance(x, ast.Constant) and isinstance(x.value, str)}


def touched_parts(
    modules: Mapping[str, list[Part]], spans: Mapping[str, Spans], ends: Collection[str] = ()
) -> dict[str, list[Part]]:
    """The parts of some modules, by their names, of which lines were changed, or which use what
    such a part defines, by way of others too.

    A part that defines a name of `ends` is touched by its own lines alone.
    """
    found = {name: [part for part in its if part.meets(spans.get(name, []))] for name, its in modules.items()}
    while True:
        names = {name for its in found.values() for part in its for name in part.defines}
        more = {
            name: [
                part
                for part in its
                if part not in found[name] and not names.isdisjoint(part.uses) and part.defines.isdisjoint(ends)
            ]
            for name, its in modules.items()
        }
        if not any(more.values()):
            return found
        found = {name: [*its, *more[name]] for name, its in found.items()}
