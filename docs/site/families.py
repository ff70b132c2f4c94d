"""A page for each kind of rotary frequencies: its equation, pictures of a released model, and the
positions up to which arithmetics keep their digits.
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
"""The arithmetics of the page's tables: everything in float64; angles in float64 and tables in
float32; everything in float32; tables in bfloat16.
"""
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """A kind of frequencies, a released model as its example, and a length for kinds that depend on
    it.
    """

    kind: str
    model: Released
    length: int

    @property
    def name(self) -> str:
        """The name of the definition of this kind."""
        return f"{self.kind}_frequencies"

    @property
    def latex(self) -> str:
        """The equation of this kind."""
        return EXTENDED[self.name].latex

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Answers to reports about this kind."""
        return ANSWERS.get(self.kind, ())

    @property
    def models(self) -> list[Released]:
        """The released models of this kind."""
        return [model for model in RELEASED if model.kind == self.kind]

    def frequencies(self, arithmetic: oracles.Arithmetic | None = None) -> tuple[oracles.Enclosure, oracles.Enclosure]:
        """(inv_freq, attention_factor) of the model, exact, or with the error limits of an
        arithmetic.
        """
        return oracles.rotary_frequencies(**self.model.arguments, seq_len=self.length, arithmetic=arithmetic)

    @cached_property
    def own(self) -> Array:
        """The frequencies of the pairs that rotate."""
        frequencies = self.frequencies()[0].mid
        return frequencies[frequencies > 0]

    @cached_property
    def plain(self) -> Array:
        """The frequencies of the same pairs by the default kind."""
        model = self.model
        inv_freq, _ = oracles.rotary_frequencies(
            "default", model.head_dim, base=model.base, rotary_dim=model.rotary_dim
        )
        return inv_freq.mid[: len(self.own)]

    @property
    def turning(self) -> tuple[int, int]:
        """The numbers of pairs that turn at least once within the longest sequence: by default, and
        in the model.
        """
        length = self.model.max_position_embeddings
        by_default, in_the_model = (int((2 * np.pi / f <= length).sum()) for f in (self.plain, self.own))
        return by_default, in_the_model

    @property
    def pictures(self) -> tuple[str, str]:
        """Frequencies and wavelengths by pair, and the error by position."""
        return drawn(f"{self.kind}-pairs", self._pairs, height=2.6), drawn(
            f"{self.kind}-errors", self._errors, height=2.8
        )

    @cached_property
    def lost(self) -> dict[str, tuple[int | None, int | None]]:
        """For each arithmetic two positions: the first with a budget above 10⁻³, and the first that
        was found with an error of NumPy above 10⁻³.
        """
        return {
            a.name: (
                _first(lambda p, a=a: self._budget(a, p)),
                None if a.angle.table != oracles.BINARY32 else self._measured(a),
            )
            for a in ARITHMETICS
        }  # type: ignore[misc]

    def _budget(self, arithmetic: oracles.Arithmetic, positions: NDArray[np.int64]) -> Array:
        """The largest radius of a sine or cosine at each position, in units of the attention
        factor.
        """
        inv_freq, _ = self.frequencies(arithmetic)
        tables = oracles.rotary_tables(positions, inv_freq, arithmetic=arithmetic)
        return np.maximum(*(table.rad.max(axis=-1) for table in tables))

    def _measured(self, arithmetic: oracles.Arithmetic) -> int | None:
        """The first of 64 positions in each octave at which NumPy's float32 tables lose 10⁻³.

        Angles are in float64 or in float32, as in the arithmetic.
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
    """The first position up to 2³¹ with a bound above 10⁻³, or None; the bound grows with the
    position.
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
