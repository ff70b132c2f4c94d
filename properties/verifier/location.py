"""Reads the place of an implementation, as the user types it: "module:attribute" or
"file.py:attribute". The attribute is optional.
"""

import json
import keyword
import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Location", "location_of"]


@dataclass(frozen=True)
class Location:
    """The place of an implementation: a module or a file, and an attribute.

    `folder` must be on the import path ("" is the working directory). `attribute` is "" if the user
    named none. `file` is the file that the user named, if any. `by_path` says that `import` cannot
    find the file by its name, such as 01_kernels.py: Python loads it by its path.
    """

    folder: str
    module: str
    attribute: str
    file: Path | None = None
    by_path: bool = False

    def statements(self, name: str, alias: str = "") -> list[str]:
        """Return Python that binds a name of the module. For the name "", the Python binds the
        module itself, to `alias` if it is given.
        """
        if not self.by_path:
            path = ["import sys", "", f"sys.path.insert(0, {json.dumps(self.folder)})"] if self.folder else []
            renamed = f" as {alias}" if alias else ""
            return [*path, f"from {self.module} import {name}" if name else f"import {self.module}{renamed}"]
        names = f"runpy.run_path({json.dumps(str(self.file))})"
        if name:
            return ["import runpy", "", f'{name} = {names}["{name}"]']
        return ["import runpy", "import types", "", f"{alias or self.module} = types.SimpleNamespace(**{names})"]


def location_of(target: str) -> Location:
    """Return the location that the user means by a text. A file inside packages gets the dotted
    name that follows from the `__init__.py` files around it. A file that `import` cannot name is
    loaded by its path.

    Raises ValueError for a file that does not exist, or that is not a .py file.
    """
    module, _, attribute = target.partition(":")
    if not (module.endswith(".py") or os.sep in module):
        return Location("", module, attribute)
    file = Path(module).absolute()
    if not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        raise ValueError(f"{module} {problem}. Give a .py file or an importable module.")
    if file.suffix != ".py":
        raise ValueError(f"{module} is not a Python file: its name should end in .py.")
    folder = file.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    parts = file.relative_to(folder).with_suffix("").parts
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        return Location(str(file.parent), "_" + re.sub(r"\W", "_", file.stem), attribute, file, by_path=True)
    return Location("" if folder == Path.cwd() else str(folder), ".".join(parts), attribute, file)
