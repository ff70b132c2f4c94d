"""How much of their budgets the implementations of a report use."""

import numpy as np
from matplotlib.figure import Figure

from properties.views.html.figures.drawing import INK, QUIET, SERIES, Picture, Table, decades, drawn
from properties.views.html.matrix import Matrix

__all__ = ["budgets_used"]

_FLOOR = 1e-4
_LONGEST = 40  # characters of a name: the table has all of it


def budgets_used(matrix: Matrix) -> Picture | None:
    """For each implementation and operation the largest error ÷ budget where laws held; None where
    none did on numbers.
    """
    used: dict[str, dict[str, float]] = {}
    for implementation in matrix.implementations:
        for o in implementation.outcomes:
            if o["status"] == "held" and float(o["worst_excess"]) > 0:
                by = used.setdefault(implementation.name, {})
                by[o["operation"]] = max(by.get(o["operation"], 0.0), float(o["worst_excess"]))
    if not used:
        return None
    names = list(used)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axvline(1, color=INK, linewidth=1)
        for place, name in enumerate(names):
            values = np.maximum(list(used[name].values()), _FLOOR)
            axes.plot(
                values, np.full(len(values), place), "o", color=SERIES[0], alpha=0.55, markersize=4.5, markeredgewidth=0
            )
            axes.plot(values.max(), place, "|", color=SERIES[0], markersize=10, markeredgewidth=2)
        axes.set_yticks(
            range(len(names)), [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names]
        )
        decades(axes, "x", range(-4, 1))
        axes.set(
            xlim=(_FLOOR / 1.5, 1.5), ylim=(len(names) - 0.4, -0.6), xlabel="largest error ÷ budget, where laws held"
        )
        axes.grid(axis="y")
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", color=QUIET)
        axes.spines["left"].set_visible(False)

    operations = list(dict.fromkeys(operation for by in used.values() for operation in by))
    most = max(used, key=lambda name: max(used[name].values()))
    return Picture(
        "budgets-used",
        "How much of its budget each implementation uses",
        "A dot for each operation, a bar at the largest. Dots near the line say that the budget is no wider than it has to be; dots far "
        "from it that the code is more exact than its number format demands, or that sums came out kindly.",
        f"For {len(names)} implementations the largest error ÷ budget of each operation, all at most 1; the largest of all is "
        f"{max(used[most].values()):.2g}, of {most}.",
        drawn("budgets-used", draw, height=0.8 + 0.19 * len(names)),
        Table(
            ("implementation", *operations),
            tuple((name, *(f"{by[o]:.2g}" if o in by else "" for o in operations)) for name, by in used.items()),
        ),
        f"Smaller ones than {_FLOOR:g} are drawn there.",
    )
