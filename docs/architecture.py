"""Draws the picture in ARCHITECTURE.md from the import statements: `python docs/architecture.py`.

The groups are the rows of the page's own tables. An arrow that follows from two others is left out.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
PACKAGES = ("spec", "oracles", "properties")
WHOLE = ("attnspec", "systems", "research")
"""Packages that the picture shows as one box each."""

Edges = dict[str, set[str]]


def modules() -> dict[str, list[Path]]:
    """The files of each module and subpackage directly below a package, like "spec.attention", and
    of each package that the picture shows as one box.

    Tests are left out, and so is the `__init__` of a package that has several boxes.
    """
    found = {
        whole: [path for path in sorted((ROOT / whole).rglob("*.py")) if "tests" not in path.parts] for whole in WHOLE
    }
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            first = path.relative_to(ROOT / package).parts[0]
            if first not in ("tests", "__init__.py"):
                found.setdefault(f"{package}.{first.removesuffix('.py')}", []).append(path)
    return found


def groups(page: str) -> dict[str, list[str]]:
    """The modules of each group in the page's tables; a group has a name like "spec: definitions"."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        package = section.partition("\n")[0].strip("`")
        for name, members in re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \|", section, flags=re.MULTILINE):
            named = re.findall(r"`(\w+)`", members)
            found[f"{package}: {name}"] = [f"{package}.{module}" if package in PACKAGES else module for module in named]
    return found


def imports(source: str, known: set[str], offered: dict[str, dict[str, str]]) -> Iterator[str]:
    """The known modules that a source imports; a name that a package offers is imported from where
    it is defined.
    """
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            first = rest.split(".")[0]
            if package in WHOLE:
                yield package
            elif package in PACKAGES and f"{package}.{first}" in known:
                yield f"{package}.{first}"
            elif package in offered:
                yield from {offered[package][first]} if first in offered[package] else set(offered[package].values())


def offers(known: set[str]) -> dict[str, dict[str, str]]:
    """For each package the names that it offers itself, and the modules that they come from."""
    found: dict[str, dict[str, str]] = {package: {} for package in PACKAGES}
    for package in PACKAGES:
        for node in ast.walk(ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))):
            module = ".".join((getattr(node, "module", None) or "").split(".")[:2])
            if isinstance(node, ast.ImportFrom) and module in known:
                found[package] |= {alias.name: module for alias in node.names}
    return found


def edges(grouped: dict[str, list[str]]) -> Edges:
    """For each group the other groups that it imports.

    Raises ValueError for a module that is in no group or in several groups, or that does not exist.
    """
    files = modules()
    members = [module for group in grouped.values() for module in group]
    if sorted(members) != sorted(files):
        wrong = sorted({m for m in [*members, *files] if members.count(m) != (m in files)})
        raise ValueError(f"Each module should be in one row of ARCHITECTURE.md, but these are not: {', '.join(wrong)}.")
    home = {module: group for group, modules in grouped.items() for module in modules}
    offered = offers(set(files))
    return {
        group: {
            home[to] for m in own for path in files[m] for to in imports(path.read_text("utf-8"), set(files), offered)
        }
        - {group}
        for group, own in grouped.items()
    }


def reduced(graph: Edges) -> Edges:
    """The arrows from which all other arrows follow.

    Raises graphlib.CycleError if groups import each other in a circle.
    """
    below: Edges = {}
    for group in TopologicalSorter(graph).static_order():
        below[group] = graph[group].union(*(below[to] for to in graph[group]))
    return {
        group: {to for to in direct if not any(to in below[other] for other in direct)}
        for group, direct in graph.items()
    }


def picture(grouped: dict[str, list[str]]) -> str:
    """The picture, in Mermaid."""
    names = {group: group.partition(": ")[2] for group in grouped}
    ids = {group: name.replace(" ", "_") for group, name in names.items()}
    lines = ["```mermaid", "flowchart TB"]
    for package in dict.fromkeys(group.partition(": ")[0] for group in reversed(grouped)):
        nodes = [
            ids[g] + (f"[{names[g]}]" if ids[g] != names[g] else "") for g in grouped if g.startswith(f"{package}:")
        ]
        lines += [
            f"  subgraph {package.replace(' ', '_')}[{package}]" if " " in package else f"  subgraph {package}",
            f"    {'; '.join(nodes)}",
            "  end",
        ]
    arrows = reduced(edges(grouped))
    lines += [
        f"  {ids[g]} --> {' & '.join(ids[to] for to in grouped if to in arrows[g])}" for g in grouped if arrows[g]
    ]
    return "\n".join([*lines, "```"])


def drawn(page: str) -> str:
    """The page with a new picture."""
    before, _, rest = page.partition("```mermaid")
    return before + picture(groups(page)) + rest.partition("\n```")[2]


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text("utf-8")), "utf-8")
