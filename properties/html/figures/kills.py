"""The kill matrix: which law finds which known bug, and after how many examples."""

from itertools import groupby, pairwise

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from properties.bugs import CATALOGUE
from properties.html.figures.drawing import QUIET, RULE, Picture, Table, drawn
from properties.html.figures.measured import kills
from properties.laws import LAWS

__all__ = ["kill_matrix"]

_STEPS = (1, 3, 10, 30, 101)
_COLOURS = ("#08306b", "#2171b5", "#6baed6", "#bdd7e7")  # from the first example to the last


def kill_matrix() -> Picture | None:
    """Every law against every known bug; None where docs/kill-matrix.json is not at hand."""
    found = kills()
    if found is None:
        return None
    laws = sorted((law for law in LAWS if any(law.id in by for by in found.values())), key=lambda law: _order(law.operation))
    bugs = sorted((b for b in CATALOGUE.values() if found.get(b.id)), key=lambda b: _order(b.operation))
    examples = np.array([[found[bug.id].get(law.id, 0) for bug in bugs] for law in laws])
    classes = np.where(examples > 0, np.digitize(examples, _STEPS) - 1, np.nan)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        image = axes.imshow(
            classes, cmap=ListedColormap(_COLOURS), vmin=-0.5, vmax=len(_COLOURS) - 0.5, interpolation="nearest", aspect="auto"
        )
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
        axes.set(xlabel=f"{len(bugs)} known bugs", ylabel=f"{len(laws)} laws")
        axes.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axes, orientation="horizontal", location="top", shrink=0.5, aspect=40, ticks=range(len(_COLOURS)))
        bar.ax.set_xticklabels([f"{a} to {b - 1}" for a, b in pairwise(_STEPS)])
        bar.set_label("examples to the kill", color=QUIET)
        bar.outline.set_visible(False)

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
        f"them within {np.median(firsts):g} examples; the darker, the sooner. Laws about one operation find bugs in others that are made of it.",
        f"A matrix of {len(laws)} laws by {len(bugs)} bugs, both grouped by operation. {np.count_nonzero(examples)} cells are filled, "
        f"{alike} of them in blocks on the diagonal, where law and bug are about the same operation.",
        drawn("kill-matrix", draw, height=7.4),
        Table(("bug", "operation", "laws that find it", "fewest examples", "the first law to"), rows),
        "docs/kill-matrix.json, written by make mutants: 100 examples, seed 0.",
    )


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
