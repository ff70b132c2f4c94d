"""Finds the files and lines in which the functions under test are written, so that messages can
point to them.
"""

import inspect
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["sources"]


def sources(operations: Mapping[str, Any], target: str) -> dict[str, tuple[str, int]]:
    """Return the file and the line in which the function of each operation begins. The path of a
    file in the repository is relative to the repository.

    For a compiled function, or a function of an installed library, this is the first line of the
    adapter (the user's file with kernels).
    """
    module = target.partition(":")[0]
    adapter = module if module.endswith(".py") else getattr(sys.modules.get(module), "__file__", None)
    lines = {}
    for name, function in operations.items():
        source = _source(function)
        if adapter and not (source and _in_repository(source[0])):
            source = Path(adapter).resolve(), 1
        if source:
            file, line = source
            lines[name] = (str(file.relative_to(_repository()) if _in_repository(file) else file), line)
    return lines


def _repository() -> Path:
    """Return the path of the repository: the one that a GitHub workflow names, or the working
    directory.
    """
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    return root if Path.cwd().is_relative_to(root) else Path.cwd()


def _in_repository(file: Path) -> bool:
    """Return whether a file is in the repository. A file of an environment that is installed in the
    repository does not count.
    """
    return file.is_relative_to(_repository()) and "site-packages" not in file.parts


def _source(function: Any) -> tuple[Path, int] | None:
    """Return the file and the line in which a function is written, without its decorators. Return
    None if Python does not know them.
    """
    try:
        while isinstance(function, partial):
            function = function.func
        function = inspect.unwrap(function)
        if not inspect.isroutine(function):
            function = type(function).__call__
        file = inspect.getsourcefile(function)
        return (Path(file).resolve(), inspect.getsourcelines(function)[1]) if file else None
    except Exception:  # the object is the user's, and its attributes may raise anything
        return None
