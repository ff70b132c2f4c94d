"""The command `attnspec`, which is also `python -m attnspec`."""

# PYTHON_ARGCOMPLETE_OK: argcomplete's global completion looks for this text

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from attnspec.own_names import shadowing

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status. `attnspec --help` lists the subcommands.

    The user's file may import a module with the name of a package of attnspec, such as `oracles`.
    For this reason the folder of such a module is put first on the import path before attnspec
    imports anything. Python then finds both.
    """
    given = sys.argv[1:] if arguments is None else arguments
    files = [Path(text.partition(":")[0]) for text in given if text.partition(":")[0].endswith(".py")]
    for folder in dict.fromkeys([os.getcwd(), *(str(file.resolve().parent) for file in files)]):
        if shadowing([folder]):
            sys.path.insert(0, folder)
    status: int = import_module("attnspec.properties.command.cli").main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
