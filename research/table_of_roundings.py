"""Writes the table of roundings into docs/guide/budgets.md: `make table-of-roundings`.

The words come from the rows of `oracles.error_analysis.roundings`, the numbers from the simulated
kernels that the rows name: error ÷ budget with the row, and without it.
"""

import re
from unittest.mock import patch

from oracles.error_analysis import ball_attention
from oracles.error_analysis.roundings import EXPONENTS, PARTS, TERMS, terms
from oracles.tests.simulated.single_roundings import CASES, kernel_names, without, worst
from research.stamp import ROOT

__all__ = ["words"]

PAGE = ROOT / "docs/guide/budgets.md"
COLUMNS = ("rounding", "what is rounded", "times", "statistical line", "kernel", "result", "error ÷ budget", "without")
HEAD = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * 6} ---: | ---: |\n"


def words(name: str) -> list[str]:
    """The cells of a row, without its numbers."""
    term, _, part = name.partition(".")
    row = TERMS[term]
    rows = [EXPONENTS[exponent] for exponent in PARTS[part]] if part else [row]
    rounded_what = f"{rows[0].what}, {row.what}" if part else row.what
    times = ", ".join(exponent_row.times for exponent_row in rows)
    cells = (rounded_what, times, rows[0].line.how, kernel_names()[name], CASES[name].result)
    return [f"| `{name}`", *(cell.replace("|", "\\|") for cell in cells)]


def numbers(name: str) -> list[str]:
    """Error ÷ budget of the kernel, with the row and without it."""
    with patch.object(ball_attention, "terms", lambda *given: without(name, terms(*given))):
        forgotten = worst(name)
    return [f"{worst(name):.2g}", f"{forgotten:.2g}"]


def table() -> str:
    """The table as the page shows it."""
    return HEAD + "".join(f"{' | '.join([*words(name), *numbers(name)])} |\n" for name in CASES)


def main() -> None:
    """Write the table into the page."""
    page = PAGE.read_text("utf-8")
    shown = re.search(r"^\| rounding \|.*\n(?:\|.*\n)*", page, re.MULTILINE)
    assert shown is not None
    PAGE.write_text(page.replace(shown[0], table()), encoding="utf-8")


if __name__ == "__main__":
    main()
