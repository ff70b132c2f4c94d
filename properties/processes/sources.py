"""Where the functions under test are written: files and lines, which annotations of code point at."""

import inspect
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["sources"]


def sources(operations: Mapping[str, Any], target: str) -> dict[str, tuple[str, int]]:
    """The file and the line of each operation's function, relative to the repository where it is in
    it.

    A function that is compiled, or that others have written, is called by the target: its module is
    named then.
    """
    module = target.partition(":")[0]
    home = module if module.endswith(".py") else getattr(sys.modules.get(module), "__file__", None)
    found = {}
    for name, function in operations.items():
        own = _source(function)
        if home and not (own and _ours(own[0])):
            own = Path(home).resolve(), 1
        if own:
            found[name] = (str(own[0].relative_to(_root()) if _ours(own[0]) else own[0]), own[1])
    return found


def _root() -> Path:
    """The repository, as a workflow of GitHub's says it, or the working directory."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    return root if Path.cwd().is_relative_to(root) else Path.cwd()


def _ours(file: Path) -> bool:
    """Whether a file is in the repository, and not installed there."""
    return file.is_relative_to(_root()) and "site-packages" not in file.parts


def _source(function: Any) -> tuple[Path, int] | None:
    """Where a function is written, below its decorators; None where Python does not know."""
    try:
        while isinstance(function, partial):
            function = function.func
        function = inspect.unwrap(function)
        if not inspect.isroutine(function):
            function = type(function).__call__
        file = inspect.getsourcefile(function)
        return (Path(file).resolve(), inspect.getsourcelines(function)[1]) if file else None
    except Exception:  # it is anybody's object, and its attributes may raise anything
        return None
