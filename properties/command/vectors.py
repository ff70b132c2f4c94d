"""The subcommand that writes and checks vectors."""

import argparse
from pathlib import Path
from typing import Any

from properties.command.outputs import complain

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommand to a parser's."""
    vectors = commands.add_parser(
        "vectors",
        help="write certified test vectors for other languages, or check files of them",
        description="Write the vectors: calls with certified results and budgets, as JSON and safetensors. "
        "Exit status: 0 they are written, or those checked are right; 1 some test is wrong; 2 a file is none, or cannot be written.",
    )
    vectors.add_argument("--out", type=Path, metavar="DIR", help="folder of the vectors")
    vectors.add_argument("--onnx", type=Path, metavar="DIR", help="folder of those of Attention in ONNX's own layout")
    vectors.set_defaults(run=_vectors)
    check = vectors.add_subparsers(metavar="check").add_parser("check", help="check files: their form, and every bound, certified again")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the JSON, beside which its tensors are")
    check.set_defaults(run=_check)


def _vectors(options: argparse.Namespace) -> int:
    if options.out is None and options.onnx is None:
        raise ValueError("attnspec vectors writes to --out DIR or --onnx DIR, or checks: attnspec vectors check FILE.")
    from properties.vectors.onnx_layout import write_onnx
    from properties.vectors.writing import write

    for folder, written in ((options.out, write), (options.onnx, write_onnx)):
        try:
            for place in written(folder) if folder is not None else ():
                print(place)
        except OSError as error:
            raise ValueError(f"{folder} cannot be written: {error.strerror}.") from error
    return 0


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
