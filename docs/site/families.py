"""A page for each kind of rotary frequencies: its equation, a released model in pictures, and how
far out arithmetics keep their digits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from answers import ANSWERS, Answer
from equations import EXTENDED
from matplotlib.figure import Figure
from numpy.typing import NDArray

import oracles
from properties.views.html.figures.drawing import MARKERS, QUIET, SERIES, decades, drawn, power
from spec.extended.released import RELEASED, Released

__all__ = ["FAMILIES", "Family"]

FARTHEST = 2**31
LOST = 1e-3
_EXACT_ANGLES = replace(
    oracles.FLOAT32,
    name="float32, angles in float64",
    angle=oracles.Angle(frequency=2.0**-53, product=2.0**-53, table=oracles.BINARY32),
)
ARITHMETICS: tuple[oracles.Arithmetic, ...] = (oracles.FLOAT64, _EXACT_ANGLES, oracles.FLOAT32, oracles.BFLOAT16)
"""Those of the tables: everything in float64; angles in float64 and tables in float32; everything
in float32; tables in bfloat16.
"""
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """A kind of frequencies, and the released model that shows it; `length` decides for kinds that depend on one."""

    kind: str
    model: Released
    length: int

    @property
    def name(self) -> str:
        """The name of its definition."""
        return f"{self.kind}_frequencies"

    @property
    def latex(self) -> str:
        """Its equation."""
        return EXTENDED[self.name].latex

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Reports about it, answered."""
        return ANSWERS.get(self.kind, ())

    @property
    def models(self) -> list[Released]:
        """The released models of this kind."""
        return [model for model in RELEASED if model.kind == self.kind]

    def frequencies(self, arithmetic: oracles.Arithmetic | None = None) -> tuple[oracles.Enclosure, oracles.Enclosure]:
        """(inv_freq, attention_factor) of the model, or what an arithmetic may get."""
        return oracles.rotary_frequencies(**self.model.arguments, seq_len=self.length, arithmetic=arithmetic)

    @cached_property
    def own(self) -> Array:
        """The frequencies of the pairs that rotate."""
        found = self.frequencies()[0].mid
        return found[found > 0]

    @cached_property
    def plain(self) -> Array:
        """The same pairs of the default kind."""
        given = self.model
        return oracles.rotary_frequencies("default", given.head_dim, base=given.base, rotary_dim=given.rotary_dim)[
            0
        ].mid[: len(self.own)]

    @property
    def turning(self) -> tuple[int, int]:
        """How many pairs turn at least once within the longest sequence, as they would by default and as they do."""
        return tuple(int((2 * np.pi / f <= self.model.max_position_embeddings).sum()) for f in (self.plain, self.own))  # type: ignore[return-value]

    @property
    def pictures(self) -> tuple[str, str]:
        """Frequencies and wavelengths by pair, and the error by position."""
        return drawn(f"{self.kind}-pairs", self._pairs, height=2.6), drawn(
            f"{self.kind}-errors", self._errors, height=2.8
        )

    @cached_property
    def lost(self) -> dict[str, tuple[int | None, int | None]]:
        """For each arithmetic the first position at which its budget is above 10⁻³, and the first
        found at which NumPy is 10⁻³ off.
        """
        return {
            a.name: (
                _first(lambda p, a=a: self._budget(a, p)),
                None if a.angle.table != oracles.BINARY32 else self._measured(a),
            )
            for a in ARITHMETICS
        }  # type: ignore[misc]

    def _budget(self, arithmetic: oracles.Arithmetic, positions: NDArray[np.int64]) -> Array:
        """The largest radius of a sine or cosine at each position, in units of the attention factor."""
        inv_freq, _ = self.frequencies(arithmetic)
        tables = oracles.rotary_tables(positions, inv_freq, arithmetic=arithmetic)
        return np.maximum(*(table.rad.max(axis=-1) for table in tables))

    def _measured(self, arithmetic: oracles.Arithmetic) -> int | None:
        """The first of 64 positions in each octave at which tables in NumPy's float32 are off,
        angles in float64 or in float32.
        """
        positions = np.unique((2.0 ** np.arange(0, 31, 1 / 64)).astype(np.int64))
        errors = self._numpy(positions, np.float32 if arithmetic.angle.product > 2.0**-50 else np.float64)
        return int(positions[errors > LOST][0]) if (errors > LOST).any() else None

    def _numpy(self, positions: NDArray[np.int64], dtype: type[np.floating[Any]]) -> Array:
        """The largest error of a row of cosines whose frequencies and angles are rounded to a type."""
        frequencies = self.frequencies()[0]
        exact = oracles.rotary_tables(positions, frequencies.mid)[0].mid[:, 0::2]
        angles = positions.astype(dtype)[:, None] * frequencies.mid.astype(dtype)
        return np.abs(np.cos(angles).astype(np.float64) - exact).max(axis=-1)

    def _pairs(self, figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        pairs = np.arange(len(self.own))
        for values, name, colour in ((self.plain, "default", QUIET), (self.own, self.kind, SERIES[0])):
            left.plot(pairs, values, color=colour, label=name)
            right.plot(pairs, 2 * np.pi / values, color=colour)
        right.axhline(self.model.max_position_embeddings, color=SERIES[1], linestyle="--", label="longest sequence")
        decades(left, "y", range(-8, 1, 2))
        decades(right, "y", range(0, 10, 2))
        left.set(xlabel="pair", ylabel="frequency")
        right.set(xlabel="pair", ylabel="wavelength, positions")
        figure.legend(loc="outside upper left", ncols=3)

    def _errors(self, figure: Figure) -> None:
        axes = figure.subplots()
        positions = 2 ** np.arange(0, 32)
        for arithmetic, colour, marker in zip(ARITHMETICS, SERIES, MARKERS, strict=True):
            axes.plot(
                positions, self._budget(arithmetic, positions), color=colour, marker=marker, label=arithmetic.name
            )
        axes.axhline(LOST, color=QUIET, linestyle="--")
        decades(axes, "x", range(0, 32, 4), 2)
        decades(axes, "y", range(-16, 2, 4))
        axes.set(xlabel="position", ylabel="bound of the error")
        figure.legend(loc="outside upper left", ncols=4, handletextpad=0.4, columnspacing=1.2)


def _first(bound: Callable[[NDArray[np.int64]], Array]) -> int | None:
    """The first position up to 2³¹ whose bound, which grows with the position, is above 10⁻³; None
    where there is none.
    """
    low, high = 0, FARTHEST
    if not bound(np.array([high]))[0] > LOST:
        return None
    while high - low > 1:
        between = np.unique(np.linspace(low, high, 66).astype(np.int64))[1:]
        above = int(np.argmax(bound(between) > LOST))
        low, high = (int(between[above - 1]) if above else low), int(between[above])
    return high


def position(p: int | None) -> str:
    """A position in print."""
    return f"none up to {power(2, 31)}" if p is None else f"{p:,}"


_SHOWN = {
    "default": "Llama 2 7B",
    "linear": "Gemma 3 4B, full attention",
    "dynamic": "InternLM2 1.8B",
    "yarn": "DeepSeek-V3",
    "llama3": "Llama 3.1 8B",
    "longrope": "Phi-3-vision 128k",
    "proportional": "Gemma 4, full attention",
}
FAMILIES = [
    Family(kind, model, model.lengths[-1]) for kind, name in _SHOWN.items() for model in RELEASED if model.name == name
]
"""The kinds of frequencies, each with a released model."""
