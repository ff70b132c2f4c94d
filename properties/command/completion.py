"""Completes words in the shell: subcommands, options, and names of laws, bugs, operations and
arithmetics.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from argcomplete import autocomplete
from argcomplete.completers import BaseCompleter
from argcomplete.shell_integration import shellcode

__all__ = ["answer", "script"]


def script(shell: str) -> str:
    """Return the code that a shell evaluates so that it asks `attnspec` for completions."""
    return str(shellcode(["attnspec"], shell=shell))


def answer(parser: argparse.ArgumentParser) -> None:
    """Answer the shell's request for completions, which is in environment variables, and end the
    process.

    Each completion imports only the modules that it needs.
    """
    autocomplete(parser, default_completer=_Values())


class _Values(BaseCompleter):
    """Completes the values of an argument. For a file it returns an empty list, and the shell
    completes the name.
    """

    def __call__(self, *, prefix: str, action: argparse.Action, **context: Any) -> Iterable[str]:
        match action.dest:
            case "law" | "laws" | "exclude":
                return _laws(prefix)
            case "bug":
                return _bugs()
            case "operation" | "operations":
                return _operations()
            case "name":
                return ["coverage", *_laws(prefix), *_bugs(), *_operations()]
            case "shape" | "shapes":
                return _sizes(prefix)
            case "arithmetic":
                from oracles.formats import PRESETS

                return [preset.name for preset in PRESETS]
            case "targets" | "against" | "inspect":
                return [file.stem for file in Path().glob("*.py")]
        return ()


def _laws(prefix: str) -> Iterable[str]:
    """Return the names of the laws with hyphens, so that they need no quotes.

    After a space, names with spaces are returned. After a bracket, one name is returned for each
    operation.
    """
    from properties.contract.names import hyphenated
    from properties.laws import LAWS

    spelt = str if " " in prefix else hyphenated
    operations = "[" in prefix
    return dict.fromkeys(spelt(law.name) + f"[{law.operation}]" * operations for law in LAWS)


def _sizes(prefix: str) -> Iterable[str]:
    """Return the names of sizes, after the sizes that are already there."""
    from properties.contract.wanted_shapes import NAMES

    before, comma, _ = prefix.rpartition(",")
    return [f"{before}{comma}{name}=" for name in NAMES]


def _bugs() -> Iterable[str]:
    from properties.bugs import CATALOGUE

    return list(CATALOGUE)


def _operations() -> Iterable[str]:
    from properties.contract.operations import OPERATIONS

    return list(OPERATIONS)
