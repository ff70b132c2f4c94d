"""Counts the lines and characters of Python that a user installs, by package: `python -m research.weight`."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from research.stamp import ROOT

__all__ = ["main", "sizes"]


def sizes(root: Path = ROOT) -> Iterator[tuple[str, int, int]]:
    """Yield each package of the wheel, as pyproject.toml names them, with its lines and characters.

    The wheel has no tests, so they are not counted.
    """
    wheel = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in wheel["packages"]:
        texts = [file.read_text("utf-8") for file in (root / package).rglob("*.py") if "tests" not in file.parts]
        yield package, sum(len(text.splitlines()) for text in texts), sum(map(len, texts))


def main() -> int:
    """Print the lines and characters of each package, and of all."""
    packages, lines, characters = zip(*sizes(), strict=True)
    rows = zip([*packages, "all"], [*lines, sum(lines)], [*characters, sum(characters)], strict=True)
    for package, number, size in rows:
        print(f"{package:12}{number:8,} lines{size:11,} characters")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
