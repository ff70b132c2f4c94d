"""The definitions in the text of a module, with signatures, docstrings and bodies.

It reads the text and imports nothing.
"""

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

__all__ = ["Definition", "Module", "parsed"]

ROOT = Path(__file__).resolve().parents[2]

Node = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.Tuple


@dataclass(frozen=True)
class Definition:
    """A function, class, method or constant of a module, or a row of a table.

    `name` is "f", "C" or "C.f", or the first entry of the row.
    """

    module: "Module"
    name: str
    node: Node
    after: ast.stmt | None

    @property
    def docstring(self) -> str:
        """The docstring, or the string after a constant; "" without one."""
        if isinstance(self.node, ast.FunctionDef | ast.ClassDef):
            return ast.get_docstring(self.node) or ""
        if (
            isinstance(self.after, ast.Expr)
            and isinstance(self.after.value, ast.Constant)
            and isinstance(self.after.value.value, str)
        ):
            return self.after.value.value
        return ""

    @property
    def signature(self) -> str:
        """The text up to the docstring: decorators and parameters; also a class's fields, and a
        whole constant.
        """
        if isinstance(self.node, ast.FunctionDef):
            return self._text(self._first, self.node.body[0].lineno - 1)
        if isinstance(self.node, ast.ClassDef):
            fields = [n for n in self.node.body if isinstance(n, ast.AnnAssign)]
            head = self._text(self._first, self.node.body[0].lineno - 1)
            return "\n".join([head, *(f"    {ast.unparse(n)}" for n in fields)])
        return self.source

    @property
    def source(self) -> str:
        """The whole text without its docstring.

        A class's public methods are left out too, because they are separate definitions.
        """
        node = self.node
        left_out: set[int] = set()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(node) is not None:
                left_out |= _lines(node.body[0])
                if not self.module.lines[_end(node.body[0])].strip():
                    left_out.add(_end(node.body[0]) + 1)
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    left_out |= _lines(inner)
        return self._text(self._first, _end(node), left_out)

    @property
    def _first(self) -> int:
        return min([self.node.lineno, *(d.lineno for d in getattr(self.node, "decorator_list", []))])

    def _text(self, first: int, last: int, left_out: set[int] = frozenset()) -> str:  # type: ignore[assignment]
        lines = [self.module.lines[i - 1] for i in range(first, last + 1) if i not in left_out]
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        return "\n".join(line[indent:] for line in lines).strip("\n")


class Module:
    """The text of a module, by its dotted name; `parsed` reads each once."""

    def __init__(self, name: str) -> None:
        path = ROOT.joinpath(*name.split("."))
        self.name = name
        self.path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.lines = self.path.read_text("utf-8").splitlines()
        self.lines.append("")
        self._tree = ast.parse(self.path.read_text("utf-8"))

    @property
    def docstring(self) -> str:
        """The module's docstring."""
        return ast.get_docstring(self._tree) or ""

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """The definitions at the top level, and the public methods and properties of classes, in
        the order of the text.
        """
        found: dict[str, Definition] = {}
        body = self._tree.body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name):
                    found[target.id] = Definition(self, target.id, node, after)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] = Definition(self, node.name, node, after)
                for method in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        found[f"{node.name}.{method.name}"] = Definition(
                            self, f"{node.name}.{method.name}", method, None
                        )
        return found

    @property
    def rows(self) -> dict[str, Definition]:
        """The rows of the tables that loops at the top level iterate over, by their first entries,
        which are names.
        """
        loops = [node.iter for node in self._tree.body if isinstance(node, ast.For)]
        rows = [
            row for table in loops if isinstance(table, ast.Tuple) for row in table.elts if isinstance(row, ast.Tuple)
        ]
        return {
            name.value: Definition(self, name.value, row, None)
            for row in rows
            if isinstance(name := row.elts[0], ast.Constant)
        }

    @property
    def exported(self) -> list[str]:
        """The names in `__all__`."""
        return [str(name) for name in ast.literal_eval(self._assigned("__all__"))]

    def imported_from(self) -> dict[str, str]:
        """The module of each name that this module imports by `from … import`."""
        imports = [n for n in ast.walk(self._tree) if isinstance(n, ast.ImportFrom) and n.module]
        return {alias.asname or alias.name: str(n.module) for n in imports for alias in n.names}

    def with_helpers(self, name: str) -> str:
        """The source of a definition, and of the private functions of the module that it calls,
        directly or through other private functions.
        """
        found, waiting = [name], [name]
        while waiting:
            node = self.definitions[waiting.pop()].node
            called = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            new = [
                n
                for n in self.definitions
                if n in called and n.startswith("_") and not n.startswith("__") and n not in found
            ]
            found += new
            waiting += new
        return "\n\n\n".join(self.definitions[n].source for n in found)

    def _assigned(self, name: str) -> ast.expr:
        node = self.definitions[name].node
        assert isinstance(node, ast.Assign | ast.AnnAssign)
        assert node.value is not None
        return node.value


def _end(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", 0))


def _lines(node: ast.stmt) -> set[int]:
    """The lines of a statement, and the blank ones before it."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return set(range(first, _end(node) + 1))


@cache
def parsed(name: str) -> Module:
    """The module of that dotted name, read and parsed once."""
    return Module(name)
