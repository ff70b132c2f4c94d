"""The kill matrix: which law finds which known bug, and after how many examples."""

from itertools import groupby

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from properties.bugs import CATALOGUE
from properties.laws import LAWS
from properties.views.html.figures.drawing import RULE, STEPS, Picture, Table, drawn
from properties.views.html.figures.measured import kills

__all__ = ["kill_matrix"]

_BOUNDS = (1, 3, 10, 30, 101)


def kill_matrix() -> Picture | None:
    """Every law against every known bug; None where docs/kill-matrix.json is not at hand."""
    found = kills()
    if found is None:
        return None
    laws = sorted((law for law in LAWS if any(law.id in by for by in found.values())), key=lambda law: _order(law.operation))
    bugs = sorted((b for b in CATALOGUE.values() if found.get(b.id)), key=lambda b: _order(b.operation))
    examples = np.array([[found[bug.id].get(law.id, 0) for bug in bugs] for law in laws])
    classes = np.where(examples > 0, np.digitize(examples, _BOUNDS) - 1, -1)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for step, colour in enumerate(STEPS):
            axes.add_patch(PathPatch(_squares(classes == step), facecolor=colour, edgecolor="none", label=_named(step)))
        for spans, line, label in (
            (_spans([law.operation for law in laws]), axes.axhline, "y"),
            (_spans([bug.operation for bug in bugs]), axes.axvline, "x"),
        ):
            for _, start, _ in spans[1:]:
                line(start - 0.5, color=RULE, linewidth=0.5)
            wide = [(name, (start + stop - 1) / 2) for name, start, stop in spans if stop - start >= 6]
            getattr(axes, f"set_{label}ticks")([middle for _, middle in wide])
            getattr(axes, f"set_{label}ticklabels")([_short(name) for name, _ in wide], fontsize=7.5)
        axes.tick_params(axis="x", rotation=90, length=0)
        axes.tick_params(axis="y", length=0)
        axes.set(xlabel=f"{len(bugs)} known bugs", ylabel=f"{len(laws)} laws", xlim=(-0.5, len(bugs) - 0.5), ylim=(len(laws) - 0.5, -0.5))
        axes.spines[:].set_visible(False)
        figure.legend(loc="outside upper center", ncols=len(STEPS), title="examples until the bug is found", handlelength=1.2)

    known = sum(bug in found for bug in CATALOGUE)
    alike = sum(examples[i, j] > 0 and law.operation == bug.operation for i, law in enumerate(laws) for j, bug in enumerate(bugs))
    firsts = [min(found[bug.id].values()) for bug in bugs]
    rows = tuple(
        (
            bug.id,
            bug.operation,
            str(len(found[bug.id])),
            str(min(found[bug.id].values())),
            min(found[bug.id], key=found[bug.id].__getitem__),
        )
        for bug in bugs
    )
    return Picture(
        "kill-matrix",
        "Which law finds which known bug",
        f"Each column is a bug that was once shipped, or a slip like it, each row a law. {len(bugs)} of {known} bugs are found, half of "
        f"them within {np.median(firsts):g} examples; the stronger the colour, the sooner. Some laws find bugs in operations that theirs "
        "is made of.",
        f"A matrix of {len(laws)} laws by {len(bugs)} bugs, both grouped by operation. {np.count_nonzero(examples)} cells are filled, "
        f"{alike} of them in blocks on the diagonal, where law and bug are about the same operation.",
        drawn("kill-matrix", draw, height=7.4),
        Table(("bug", "operation", "laws that find it", "fewest examples", "the first law to"), rows),
        "docs/kill-matrix.json, written by make mutants: 100 examples, seed 0.",
    )


def _named(step: int) -> str:
    return f"{_BOUNDS[step]} to {_BOUNDS[step + 1] - 1}"


def _squares(filled: NDArray[np.bool_]) -> Path:
    """The outline of all filled cells: a rectangle for each run of them in a row."""
    edges = np.diff(filled.astype(np.int8), axis=1, prepend=0, append=0)
    starts, stops = np.argwhere(edges == 1), np.argwhere(edges == -1)
    corners = [[(x0, y), (x1, y), (x1, y + 1), (x0, y + 1), (x0, y)] for (y, x0), (_, x1) in zip(starts, stops, strict=True)]
    vertices = np.array(corners, dtype=float).reshape(-1, 2) - 0.5
    return Path(vertices, [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(corners))


def _order(operation: str) -> int:
    return next((place for place, law in enumerate(LAWS) if law.operation == operation), len(LAWS))


def _spans(names: list[str]) -> list[tuple[str, int, int]]:
    """(name, start, stop) of each run of equal names."""
    spans, start = [], 0
    for name, run in groupby(names):
        stop = start + len(list(run))
        spans.append((name, start, stop))
        start = stop
    return spans


def _short(operation: str) -> str:
    """An operation's name for a margin."""
    return operation.replace("scaled_dot_product_", "").replace("_positional_encoding", "").replace("_", " ")
