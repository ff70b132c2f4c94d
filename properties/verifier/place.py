"""Where an implementation is, as a command line says it: "module:attribute", or
"file.py:attribute"; the attribute may be left out.
"""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "place"]


@dataclass(frozen=True)
class Place:
    """The folder that must be on the import path, "" for the working directory; a module; an
    attribute, or ""; and the file, if one was named."""

    folder: str
    module: str
    attribute: str
    file: Path | None = None


def place(target: str) -> Place:
    """The place that a target names. A file in packages is the module that their `__init__.py` make
    it.

    Raises ValueError, a sentence, for a file that there is not, or whose name cannot be imported.
    """
    module, _, attribute = target.partition(":")
    if not (module.endswith(".py") or os.sep in module):
        return Place("", module, attribute)
    file = Path(module).absolute()
    if not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        raise ValueError(f"{module} {problem}. Give a .py file or an importable module.")
    folder = file.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    name = ".".join(file.relative_to(folder).with_suffix("").parts)
    if file.suffix != ".py" or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{module} cannot be imported: its name should be an identifier, as my_kernels.py is.")
    return Place("" if folder == Path.cwd() else str(folder), name, attribute, file)
