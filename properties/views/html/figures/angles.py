"""Draws the error of tables of sines against the position, also for angles in a narrow format."""

import ml_dtypes
import numpy as np
from matplotlib.figure import Figure

import oracles
from oracles.ball import Array
from properties.views.html.figures.drawing import MARKERS, SERIES, Picture, Table, decades, drawn, power, rounded
from properties.views.html.figures.rounding import angle_tables

__all__ = ["error_of_angle_tables"]

_WIDTH = 64
_POSITIONS = range(21)


def error_of_angle_tables() -> Picture:
    """Return the picture of the largest error in a row of sines against its position, in float64,
    float32 and bfloat16.
    """
    positions = 2 ** np.array(_POSITIONS)
    exact = np.stack([oracles.rope_tables(1, _WIDTH, int(position))[1].mid[0, 0::2] for position in positions])
    tables = {
        "float64": angle_tables(positions, _WIDTH, "float64")[1],
        "float32": angle_tables(positions, _WIDTH, "float32")[1],
        "bfloat16, of float32 angles": angle_tables(positions, _WIDTH, "bfloat16")[1],
        "bfloat16, angles too": _narrow_angles(positions + 1),
    }
    shifted = np.stack([oracles.rope_tables(1, _WIDTH, int(position) + 1)[1].mid[0, 0::2] for position in positions])
    errors = {name: np.abs(table - (shifted if "too" in name else exact)).max(1) for name, table in tables.items()}

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for (name, values), colour, marker in zip(errors.items(), SERIES, MARKERS, strict=True):
            axes.plot(positions, np.where(values > 0, values, np.nan), color=colour, marker=marker, label=name)
        decades(axes, "x", range(0, 21, 4), 2)
        decades(axes, "y", range(-16, 2, 4))
        axes.set(xlabel="position", ylabel="largest error of a sine", ylim=(1e-17, 30))
        figure.legend(loc="outside upper left", ncols=4, handletextpad=0.4, columnspacing=1.2)

    ends = {name: float(values[-1]) for name, values in errors.items()}
    return Picture(
        "error-of-angle-tables",
        "Error of a table of sines, by position",
        "A float32 angle loses a bit each time the position doubles. A bfloat16 angle has no bit left beyond "
        "position 256: "
        "neighbours share a row. Storing the finished table in bfloat16 adds one rounding only.",
        f"Four lines over positions from 1 to {power(2, _POSITIONS[-1])}. At the end the errors are "
        + ", ".join(f"{error:.2g} ({name})" for name, error in ends.items())
        + ".",
        drawn("error-of-angle-tables", draw),
        Table(
            ("position", *errors),
            tuple(
                (power(2, exponent), *rounded([float(error[index]) for error in errors.values()]))
                for index, exponent in enumerate(_POSITIONS)
            ),
        ),
        f"Width {_WIDTH}, base 10000; exact values from the oracle. The bfloat16 angles are one position later, "
        f"which is not a power "
        "of 2.",
    )


def _narrow_angles(positions: Array) -> Array:
    """Return the sines of position·frequency, all in bfloat16. The position is rounded before it is
    multiplied.
    """
    narrow = ml_dtypes.bfloat16
    frequency = (10000.0 ** (-np.arange(0, _WIDTH, 2) / _WIDTH)).astype(narrow)
    angle = positions.astype(narrow)[:, None] * frequency
    return np.asarray(np.sin(angle.astype(np.float32)).astype(narrow), dtype=np.float64)
