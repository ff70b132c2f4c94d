"""The subcommand that checks files of vectors."""

import argparse
from pathlib import Path
from typing import Any

from properties.command.outputs import complain

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommand to a parser's."""
    vectors = commands.add_parser(
        "vectors",
        help="check files of certified test vectors",
        description="Check files of vectors: calls with certified results and error limits, as JSON and safetensors. "
        "Exit status: 0 every test is right; 1 a test is wrong; 2 a file is not a vector file.",
    )
    actions = vectors.add_subparsers(metavar="check", required=True)
    check = actions.add_parser("check", help="check files: their form, and every bound, certified again")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the JSON, beside which its tensors are")
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from properties.vectors.checking import check

    wrong = 0
    for file in options.files:
        found = list(check(file))
        for name, sentence in found:
            if sentence:
                complain(f"{name}: {sentence}")
        bad = sum(bool(sentence) for _, sentence in found)
        print(f"{file}: {len(found) - 1} tests, {bad} wrong")
        wrong += bad
    return 1 if wrong else 0
