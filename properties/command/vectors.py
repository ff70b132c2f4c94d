"""Defines the subcommand `attnspec vectors`, which checks files of test vectors."""

import argparse
from pathlib import Path
from typing import Any

from properties.command.outputs import complain

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommand to the parser."""
    vectors = commands.add_parser(
        "vectors",
        help="check files of test vectors",
        description="Check files of test vectors. A test vector is one call with proved bounds of its exact results, "
        "and error limits. Exit status: 0 every vector is right · 1 a vector is wrong · 2 a file is not a vector file.",
    )
    actions = vectors.add_subparsers(metavar="check", required=True)
    check = actions.add_parser(
        "check", help="check the format of each file, and compute every bound and error limit again"
    )
    check.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="the JSON file; its safetensors file lies beside it"
    )
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from properties.vectors.checking import check

    number_wrong = 0
    for file in options.files:
        results = list(check(file))
        for name, sentence in results:
            if sentence:
                complain(f"{name}: {sentence}")
        wrong = sum(bool(sentence) for _, sentence in results)
        print(f"{file}: {len(results) - 1} tests, {wrong} wrong")
        number_wrong += wrong
    return 1 if number_wrong else 0
