"""Draws how much of their error limits the implementations of a report use."""

import numpy as np
from matplotlib.figure import Figure

from properties.views.html.figures.drawing import INK, QUIET, SERIES, Picture, Table, decades, drawn
from properties.views.html.matrix import Matrix

__all__ = ["budgets_used"]

_FLOOR = 1e-4
_MAX_NAME = 40  # characters; the table has the whole name


def budgets_used(matrix: Matrix) -> Picture | None:
    """Return the picture of the largest error ÷ error limit of passing laws, for each
    implementation and operation. Return None if no passing law compared numbers.
    """
    used: dict[str, dict[str, float]] = {}
    for implementation in matrix.implementations:
        for outcome in implementation.outcomes:
            ratio, operation = float(outcome["worst_excess"]), outcome["operation"]
            if outcome["status"] == "held" and ratio > 0:
                ratios = used.setdefault(implementation.name, {})
                ratios[operation] = max(ratios.get(operation, 0.0), ratio)
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
            range(len(names)), [name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…" for name in names]
        )
        decades(axes, "x", range(-4, 1))
        axes.set(
            xlim=(_FLOOR / 1.5, 1.5),
            ylim=(len(names) - 0.4, -0.6),
            xlabel="largest error ÷ error limit of passing checks",
        )
        axes.grid(axis="y")
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", color=QUIET)
        axes.spines["left"].set_visible(False)

    operations = list(dict.fromkeys(operation for ratios in used.values() for operation in ratios))
    most = max(used, key=lambda name: max(used[name].values()))
    return Picture(
        "budgets-used",
        "How much of its error limit each implementation uses",
        "A dot for each operation, a bar at the largest. A dot near the line shows that the error limit is as tight "
        "as it can "
        "be. A dot far from it shows that the code is more exact than its format demands, or that roundings cancelled.",
        f"For {len(names)} implementations the largest error ÷ error limit of each operation, all at most 1; the "
        f"largest is "
        f"{max(used[most].values()):.2g}, of {most}.",
        drawn("budgets-used", draw, height=0.8 + 0.19 * len(names)),
        Table(
            ("implementation", *operations),
            tuple(
                (name, *(f"{ratios[operation]:.2g}" if operation in ratios else "" for operation in operations))
                for name, ratios in used.items()
            ),
        ),
        f"Values below {_FLOOR:g} are drawn at {_FLOOR:g}.",
    )
