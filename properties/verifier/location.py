"""Reads the place of an implementation, as the user types it: "module:attribute" or
"file.py:attribute". The attribute is optional.
"""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Location", "location_of"]


@dataclass(frozen=True)
class Location:
    """The place of an implementation: a module or a file, and an attribute.

    `folder` must be on the import path ("" is the working directory). `attribute` is "" if the user
    named none. `file` is the file that the user named, if any.
    """

    folder: str
    module: str
    attribute: str
    file: Path | None = None


def location_of(target: str) -> Location:
    """Return the location that the user means by a text. A file inside packages gets the dotted
    name that follows from the `__init__.py` files around it.

    Raises ValueError for a file that does not exist, or whose name Python cannot import.
    """
    module, _, attribute = target.partition(":")
    if not (module.endswith(".py") or os.sep in module):
        return Location("", module, attribute)
    file = Path(module).absolute()
    if not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        raise ValueError(f"{module} {problem}. Give a .py file or an importable module.")
    folder = file.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    name = ".".join(file.relative_to(folder).with_suffix("").parts)
    if file.suffix != ".py" or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{module} cannot be imported: its name should be an identifier, such as my_kernels.py.")
    return Location("" if folder == Path.cwd() else str(folder), name, attribute, file)
