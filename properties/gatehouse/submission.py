"""Defines a submission to the gate: the sources of an untrusted kernel, its functions by operation,
and the declarations of what it supports.

This process never runs the sources.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from oracles.spelling import did_you_mean
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.wording import printable, shown

__all__ = ["Submission", "of_file", "parsed", "text_of"]

_CALLING = "calling"

_CALLER = """
from {module} import {function}

NAMES = {names!r}


def entry({takes}, **options):
    return {function}({passes}, **{{NAMES[name]: x for name, x in options.items()}})
"""

_LARGEST = 2**20  # bytes of a source

_NAMES = """
import ast, json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
names, wrong = [], ""
try:
    for node in ast.parse(sys.stdin.buffer.read()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
except SyntaxError as error:
    wrong = f"It is not Python, at line {error.lineno}: {error.msg}."
except (ValueError, RecursionError, MemoryError) as error:
    wrong = f"It cannot be parsed: {error or type(error).__name__}."
json.dump([names, wrong], sys.stdout)
"""
"""The program that lists the names that a source defines at its top level, and says why it is not Python. It runs in a
process of its own, since a small source can need much time and memory.
"""


@dataclass(frozen=True)
class Submission:
    """An untrusted kernel as text.

    sources     maps paths in a fresh folder to texts
    entry       maps operations to modules and functions in them
    arrays      the library of the arrays that the functions take and return, "numpy" or "torch"
    promises    further fields of `Implementation`
    libraries   further installed distributions that the kernel may import
    broken      a sentence that says why the source is not Python, and is refused; "" if it is
    """

    name: str
    sources: Mapping[str, str]
    entry: Mapping[str, tuple[str, str]]
    arrays: str = "numpy"
    promises: Mapping[str, Any] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    broken: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.arrays, str) or self.arrays not in ("numpy", "torch"):
            raise ValueError(f"arrays={shown(self.arrays)}, but should be 'numpy' or 'torch'.")
        if not isinstance(self.libraries, tuple) or not all(isinstance(name, str) and name for name in self.libraries):
            raise TypeError(f"libraries={shown(self.libraries)}, but should be a tuple of names of distributions.")
        for name in self.entry:
            if name not in OPERATIONS:
                listed = "`attnspec operations` lists the known ones."
                raise ValueError(f"Unknown operation {shown(name)}.{did_you_mean(name, OPERATIONS, listed)}")
            if OPERATIONS[name].is_played:
                raise ValueError("The gate takes functions, and a cache is a class: attnspec verify takes it.")
        if not self.entry and not self.broken:
            raise ValueError(
                f"{self.name} offers no operation, but should offer some: a function of an operation's name."
            )


def of_file(file: str | PathLike[str], functions: Mapping[str, str] | None = None, **rest: Any) -> Submission:
    """Return the submission for a Python file.

    `functions` maps functions of the file to operations. Without it, a function implements the
    operation of its name. If a function takes its arguments in another order, or by other names,
    the key is its call with the operation's arguments: "flash(v, k, q, attn_mask=mask)". Raises
    ValueError for a file that cannot be read, for a function that the file does not define, and for
    a call that does not pass each argument once.
    """
    file_path = Path(file)
    source = text_of(file_path)
    if file_path.suffix != ".py" or not file_path.stem.isidentifier():
        raise ValueError(
            f"{printable(str(file_path))} should be a file of Python, with a name that can be imported: kernel.py."
        )
    known_functions, broken = _defined(source)
    keys = functions if functions is not None else {name: name for name in OPERATIONS if name in known_functions}
    entry, sources = dict[str, tuple[str, str]](), {file_path.name: source}
    for key, operation in keys.items():
        function, call = _called(key)
        if known_functions and function not in known_functions:
            listed = f"Its functions are {', '.join(sorted(known_functions))}."
            raise ValueError(
                f"{file} defines no function {function!r}.{did_you_mean(function, known_functions, listed)}"
            )
        entry[operation] = file_path.stem, function
        if call is not None and operation in OPERATIONS:
            entry[operation] = module, _ = f"{_CALLING}_{operation}", "entry"
            sources[f"{module}.py"] = _calling(file_path.stem, function, call, OPERATIONS[operation])
    return Submission(file_path.name, sources, entry, broken=broken, **rest)


def _called(given: str) -> tuple[str, ast.Call | None]:
    """Return the name of a function that a text gives, and the call if the text is a call."""
    tree = parsed(given)
    match tree.body if tree is not None else []:
        case [ast.Expr(ast.Call(ast.Name(name)) as call)]:
            return name, call
    return given, None


def _calling(module: str, function: str, call: ast.Call, operation: Operation) -> str:
    """Return the source of a function that takes the operation's arguments, and calls the kernel's
    function with them.

    Raises ValueError if the call does not pass each argument once.
    """
    by_name = {
        option.arg: option.value.id for option in call.keywords if option.arg and isinstance(option.value, ast.Name)
    }
    in_order = [argument.id for argument in call.args if isinstance(argument, ast.Name)]
    passed, only_names = (
        [*in_order, *by_name.values()],
        len(in_order) + len(by_name) == len(call.args) + len(call.keywords),
    )
    required = [parameter for parameter in operation.parameters if parameter not in operation.options]
    if (
        not only_names
        or len({*passed}) < len(passed)
        or not {*required} <= {*passed} <= {*operation.parameters}
        or {*in_order} & {*operation.options}
    ):
        left_out = f", and of {', '.join(operation.options)} some by name" if operation.options else ""
        raise ValueError(
            f"{ast.unparse(call)} should pass each of {', '.join(required)} of {operation.name} once{left_out}."
        )
    return _CALLER.format(
        module=module,
        function=function,
        takes=", ".join(required),
        passes=", ".join(
            [*in_order, *(f"{name}={parameter}" for name, parameter in by_name.items() if parameter in required)]
        ),
        names={parameter: name for name, parameter in by_name.items() if parameter in operation.options},
    )


def text_of(file: Path) -> str:
    """Return the text of a file. Raises ValueError, with a sentence, if it cannot be read, or has more
    than a million bytes.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LARGEST + 1)
        if len(raw) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        return raw.decode()
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{printable(str(file))} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of a source. Return None if the source is not Python; the import in
    the untrusted process then reports the error.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defined(text: str) -> tuple[set[str], str]:
    """Return the names that a source defines at its top level, and why it is not Python, or ""."""
    command = [sys.executable, "-I", "-S", "-c", _NAMES]
    ended = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if ended.returncode:
        return set(), "It cannot be parsed in 5 seconds and 1 GiB of memory."
    names, broken = json.loads(ended.stdout)
    return set(names), broken
