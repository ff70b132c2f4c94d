"""Counts the lines of Python that a user installs, by package: `python -m research.weight`."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from research.stamp import ROOT

__all__ = ["lines", "main"]


def lines(root: Path = ROOT) -> Iterator[tuple[str, int]]:
    """Each package of the wheel, as pyproject.toml names them, and the lines of its modules; tests
    are not in the wheel.
    """
    wheel = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in wheel["packages"]:
        modules = (file for file in (root / package).rglob("*.py") if "tests" not in file.parts)
        yield package, sum(len(file.read_text("utf-8").splitlines()) for file in modules)


def main() -> int:
    """Print the lines of each package, and of all."""
    found = dict(lines())
    for package, number in (found | {"all": sum(found.values())}).items():
        print(f"{package:12}{number:8,}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
