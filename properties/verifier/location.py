"""Where an implementation is, as a command line says it: "module:attribute", or
"file.py:attribute"; the attribute may be left out.
"""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Location", "location_of"]


@dataclass(frozen=True)
class Location:
    """The folder that must be on the import path, "" for the working directory; a module; an
    attribute, or ""; and the file, if one was named."""

    folder: str
    module: str
    attribute: str
    file: Path | None = None


def location_of(target: str) -> Location:
    """The place that a target names. A file in packages is the module that their `__init__.py` make
    it.

    Raises ValueError, a sentence, for a file that there is not, or whose name cannot be imported.
    """
    module, _, attribute = target.partition(":")
    if not (module.endswith(".py") or os.sep in module):
        return Location("", module, attribute)
    file = Path(module).absolute()
    if not file.is_file():
        raise ValueError(f"{module} is no file, but should be one, as my_kernels.py is, or a module.")
    folder = file.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    name = ".".join(file.relative_to(folder).with_suffix("").parts)
    if file.suffix != ".py" or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{module} cannot be imported: its name should be an identifier, as my_kernels.py is.")
    return Location("" if folder == Path.cwd() else str(folder), name, attribute, file)
