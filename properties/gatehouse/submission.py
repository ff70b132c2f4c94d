"""What is put to the gate: sources, the functions in them that do operations, and what is promised
of them. No source is run here.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from oracles.spelling import did_you_mean
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.wording import printable, shown

__all__ = ["Submission", "defined", "of_file", "parsed", "text_of"]

_CALLING = "calling"

_CALLER = """
from {module} import {function}

NAMES = {names!r}


def entry({takes}, **options):
    return {function}({passes}, **{{NAMES[name]: x for name, x in options.items()}})
"""


@dataclass(frozen=True)
class Submission:
    """A candidate as text.

    `sources` maps paths in a folder of its own to texts, `entry` operations to modules and
    functions in them; `arrays` is "numpy" or "torch", what the functions take and return;
    `promises` are other fields of `Implementation`; `libraries` are distributions that may be
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
                listed = "`attnspec operations` lists the known ones."
                raise ValueError(f"Unknown operation {shown(name)}.{did_you_mean(name, OPERATIONS, listed)}")
            if name == "decode":
                raise ValueError("The gate takes functions, and a cache is a class: attnspec verify takes it.")
        if not self.entry:
            raise ValueError(
                f"{self.name} offers no operation, but should offer some: a function of an operation's name."
            )


def of_file(file: str | PathLike[str], functions: Mapping[str, str] | None = None, **rest: Any) -> Submission:
    """The candidate that a file of Python is. `functions` maps its functions to the operations that
    they do; without it each function with an operation's name does that. A function that takes its
    arguments in another order, or by other names, is given as its call with the operation's
    arguments: "flash(v, k, q, attn_mask=mask)". Raises ValueError for a file that cannot be read,
    for a function that it does not define, and for a call that does not pass each argument once."""
    place = Path(file)
    text = text_of(place)
    if place.suffix != ".py" or not place.stem.isidentifier():
        raise ValueError(
            f"{printable(str(place))} should be a file of Python, with a name that can be imported: kernel.py."
        )
    there = set(defined(text))
    chosen = functions if functions is not None else {name: name for name in OPERATIONS if name in there}
    entry, sources = dict[str, tuple[str, str]](), {place.name: text}
    for given, operation in chosen.items():
        function, call = _called(given)
        if there and function not in there:
            listed = f"Its functions are {', '.join(sorted(there))}."
            raise ValueError(f"{file} defines no function {function!r}.{did_you_mean(function, there, listed)}")
        entry[operation] = place.stem, function
        if call is not None and operation in OPERATIONS:
            entry[operation] = module, _ = f"{_CALLING}_{operation}", "entry"
            sources[f"{module}.py"] = _calling(place.stem, function, call, OPERATIONS[operation])
    return Submission(place.name, sources, entry, **rest)


def _called(given: str) -> tuple[str, ast.Call | None]:
    """A function's name, and its call, if it is given as one."""
    tree = parsed(given)
    match tree.body if tree is not None else []:
        case [ast.Expr(ast.Call(ast.Name(name)) as call)]:
            return name, call
    return given, None


def _calling(module: str, function: str, call: ast.Call, o: Operation) -> str:
    """The source of a function with an operation's arguments, which calls a candidate's with them.
    Raises ValueError for another call.
    """
    by_name = {
        option.arg: option.value.id for option in call.keywords if option.arg and isinstance(option.value, ast.Name)
    }
    in_order = [x.id for x in call.args if isinstance(x, ast.Name)]
    taken, whole = [*in_order, *by_name.values()], len(in_order) + len(by_name) == len(call.args) + len(call.keywords)
    required = [p for p in o.parameters if p not in o.options]
    if (
        not whole
        or len({*taken}) < len(taken)
        or not {*required} <= {*taken} <= {*o.parameters}
        or {*in_order} & {*o.options}
    ):
        left_out = f", and of {', '.join(o.options)} some by name" if o.options else ""
        raise ValueError(f"{ast.unparse(call)} should pass each of {', '.join(required)} of {o.name} once{left_out}.")
    return _CALLER.format(
        module=module,
        function=function,
        takes=", ".join(required),
        passes=", ".join([*in_order, *(f"{name}={p}" for name, p in by_name.items() if p in required)]),
        names={p: name for name, p in by_name.items() if p in o.options},
    )


def text_of(file: Path) -> str:
    """What a file says. Raises ValueError, a sentence, where it cannot be read."""
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{printable(str(file))} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error


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
