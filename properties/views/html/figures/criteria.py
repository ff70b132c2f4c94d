"""What the budgets and the tolerances in use today see of small planted mistakes, and whom they accuse."""

import re

import numpy as np
from matplotlib.figure import Figure

from properties.views.html.figures.drawing import INK, MARKERS, PAPER, SERIES, Picture, Table, decades, drawn
from properties.views.html.figures.measured import Judged, criteria

__all__ = ["what_criteria_see"]

_DTYPES = ("float32", "bfloat16", "float16")


def what_criteria_see() -> Picture | None:
    """Planted mistakes in units of what each criterion allows; None where docs/criteria.md is not at hand."""
    tables = criteria()
    if tables is None:
        return None
    names = tables[_DTYPES[0]][0][1:]
    accuses = {dtype: _accusers(tables, dtype) for dtype in _DTYPES}
    heights = [len(tables[dtype]) for dtype in _DTYPES]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(3, 1, sharex=True, height_ratios=heights)
        for axes, dtype in zip(panels, _DTYPES, strict=True):
            faults = tables[dtype][1:]
            axes.axvline(1, color=INK, linewidth=1)
            for place, (name, colour, marker) in enumerate(zip(names, SERIES, MARKERS, strict=True)):
                values = [_number(row[1 + place]) for row in faults]
                face = PAPER if name in accuses[dtype] else colour
                axes.plot(values, np.arange(len(faults)), marker, color=colour, markerfacecolor=face, markersize=5, label=name)
            axes.set_yticks(range(len(faults)), [row[0] for row in faults])
            axes.set_title(dtype)
            axes.set(ylim=(len(faults) - 0.4, -0.6))
            decades(axes, "x", range(-2, 7, 2))
            axes.grid(axis="y")
            axes.tick_params(axis="y", length=0)
            axes.spines["left"].set_visible(False)
        panels[-1].set_xlabel("error ÷ what the criterion allows")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=4, handletextpad=0.1, columnspacing=1.2)

    rows = [(dtype, *(cell.replace("**", "") for cell in row)) for dtype in _DTYPES for row in tables[dtype][1:]]
    alarms = [("correct code", *row[:-1]) for row in tables["False alarms"][1:]]
    missed = {name: sum(_number(row[1 + i]) <= 1 for dtype in _DTYPES for row in tables[dtype][1:]) for i, name in enumerate(names)}
    return Picture(
        "criteria",
        "What each criterion sees of small mistakes",
        "A hollow mark is a criterion that rejects correct code of that number format too, and so sees nothing. "
        "Left of the line a mistake is missed, right of it seen. " + _never(names, accuses),
        "Three panels, for float32, bfloat16 and float16, with a row for each planted mistake and a mark for each of four criteria. "
        f"Missed are, of {len(rows)} mistakes: " + ", ".join(f"{n} by {name}" for name, n in missed.items()) + ".",
        drawn("criteria", draw, width=7.2, height=7.0),
        Table(("number format", "planted mistake, or domain", *names), tuple(tuple(row) for row in (*rows, *alarms))),
        "docs/criteria.md, written by make criteria. In the last rows of the table: how many runs of correct code were rejected.",
    )


def _never(names: list[str], accuses: dict[str, set[str]]) -> str:
    """Who rejects no correct code in any format, as a sentence."""
    fair = [name for name in names if not any(name in accused for accused in accuses.values())]
    return f"No correct code of any format is rejected by: {', '.join(fair)}." if fair else "Each rejects correct code of some format."


def _number(cell: str) -> float:
    """The figure at the beginning of a cell, as "**674** out" or "0.89 (2 of 5)"."""
    found = re.match(r"\**([\d.e+-]+)", cell)
    if found is None:
        raise ValueError(f"A cell of docs/criteria.md is {cell!r}, but should begin with a number.")
    return float(found[1])


def _accusers(tables: Judged, dtype: str) -> set[str]:
    """The criteria that reject some correct standard normal run of a number format."""
    rows = tables["False alarms"]
    plain = next(row for row in rows if row[0] == f"{dtype}, standard normal")
    return {name for name, cell in zip(rows[0][1:-1], plain[1:-1], strict=True) if not cell.startswith("0 of")}
