"""What is put to the gate: sources, the functions in them that do operations, and what is promised of them. No source is run here."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from properties.contract.operations import OPERATIONS
from properties.contract.wording import printable, shown

__all__ = ["Submission", "defined", "of_file", "parsed", "text_of"]


@dataclass(frozen=True)
class Submission:
    """A candidate as text.

    `sources` maps paths in a folder of its own to texts, `entry` operations to modules and functions in them; `arrays` is "numpy" or
    "torch", what the functions take and return; `promises` are other fields of `Implementation`; `libraries` are distributions that may be
    imported besides.
    """

    name: str
    sources: Mapping[str, str]
    entry: Mapping[str, tuple[str, str]]
    arrays: str = "numpy"
    promises: Mapping[str, Any] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.arrays, str) or self.arrays not in ("numpy", "torch"):
            raise ValueError(f"arrays={shown(self.arrays)}, but should be 'numpy' or 'torch'.")
        if not isinstance(self.libraries, tuple) or not all(isinstance(name, str) and name for name in self.libraries):
            raise TypeError(f"libraries={shown(self.libraries)}, but should be a tuple of names of distributions.")
        for name in self.entry:
            if name not in OPERATIONS:
                raise ValueError(f"An operation is {shown(name)}, but should be one of {', '.join(OPERATIONS)}.")
            if name == "decode":
                raise ValueError("The gate takes functions, and a cache is a class: attnspec verify takes it.")
        if not self.entry:
            raise ValueError(f"{self.name} offers no operation, but should offer some: a function of an operation's name.")


def of_file(file: str | PathLike[str], functions: Mapping[str, str] | None = None, **rest: Any) -> Submission:
    """The candidate that a file of Python is. `functions` maps its functions to the operations that they do; without it each function with
    an operation's name does that. Raises ValueError for a file that cannot be read, and for a function that it does not define."""
    place = Path(file)
    text = text_of(place)
    if place.suffix != ".py" or not place.stem.isidentifier():
        raise ValueError(f"{printable(str(place))} should be a file of Python, with a name that can be imported: kernel.py.")
    there = set(defined(text))
    chosen = functions if functions is not None else {name: name for name in OPERATIONS if name in there}
    for function in chosen:
        if there and function not in there:
            raise ValueError(f"{file} defines no function {function!r}, but {', '.join(sorted(there))}.")
    entry = {operation: (place.stem, function) for function, operation in chosen.items()}
    return Submission(place.name, {place.name: text}, entry, **rest)


def text_of(file: Path) -> str:
    """What a file says. Raises ValueError, a sentence, where it cannot be read."""
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"{printable(str(file))} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def parsed(text: str) -> ast.Module | None:
    """A source as a tree; None where it is no Python, which shows when it is imported, in its own process."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defined(text: str) -> Iterator[str]:
    """The names that a source gives to something at its top."""
    for node in getattr(parsed(text), "body", ()):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
