"""Counts the lines and tokens of Python that a user installs, by package: `python -m research.weight`."""

import io
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

from research.stamp import ROOT

__all__ = ["main", "sizes", "tokens"]


def sizes(root: Path = ROOT) -> Iterator[tuple[str, int, int]]:
    """Yield each package of the wheel, as pyproject.toml names them, with its lines and tokens.

    The wheel has no tests, so they are not counted.
    """
    wheel = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in wheel["packages"]:
        texts = [file.read_text("utf-8") for file in (root / package).rglob("*.py") if "tests" not in file.parts]
        yield package, sum(len(text.splitlines()) for text in texts), sum(map(tokens, texts))


def tokens(text: str) -> int:
    """The number of tokens of a module, without line breaks, indentation and comments.

    Shorter lines and longer names do not change it.
    """
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}
    return sum(token.type not in layout for token in tokenize.generate_tokens(io.StringIO(text).readline))


def main() -> int:
    """Print the lines and tokens of each package, and of all."""
    packages, lines, numbers = zip(*sizes(), strict=True)
    rows = zip([*packages, "all"], [*lines, sum(lines)], [*numbers, sum(numbers)], strict=True)
    for package, number, size in rows:
        print(f"{package:12}{number:8,} lines{size:11,} tokens")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
