"""Loads modules of attnspec with the prefix `attnspec.` before some packages in their import
statements.
"""

import ast
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

__all__ = ["Renamed"]


class Renamed(SourceFileLoader):
    """A loader that reads a module from its source, and puts the prefix `attnspec.` before the
    names of the renamed packages.
    """

    def __init__(self, fullname: str, path: str, renamed: frozenset[str]) -> None:
        super().__init__(fullname, path)
        self.renamed = renamed

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled code. The code is not cached in a file, because that file belongs to
        the short name of the module.
        """
        tree = _Renaming(self.renamed).visit(ast.parse(self.get_data(self.path), self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class _Renaming(ast.NodeTransformer):
    """A change of the syntax tree that puts `attnspec.` before the renamed packages in import
    statements.
    """

    def __init__(self, renamed: frozenset[str]) -> None:
        self.renamed = renamed

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Return `from attnspec.oracles.ball import x` for `from oracles.ball import x`."""
        if node.level == 0 and node.module and node.module.partition(".")[0] in self.renamed:
            node.module = f"attnspec.{node.module}"
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        """Return `import attnspec.oracles as oracles` for `import oracles`. For `import
        oracles.ball`, return statements that load the module and bind the name of the package.
        """
        statements: list[ast.stmt] = []
        for alias in node.names:
            package, dot, _ = alias.name.partition(".")
            if package not in self.renamed:
                statements.append(self._import(alias.name, alias.asname, node))
            elif alias.asname or not dot:
                statements.append(self._import(f"attnspec.{alias.name}", alias.asname or alias.name, node))
            else:
                statements.append(self._import(f"attnspec.{alias.name}", "_", node))
                statements.append(self._import(f"attnspec.{package}", package, node))
        return statements

    @staticmethod
    def _import(name: str, asname: str | None, node: Any) -> ast.stmt:
        return ast.copy_location(ast.Import([ast.alias(name, asname)]), node)
