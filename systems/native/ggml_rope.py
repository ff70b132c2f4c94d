"""ggml's rotation on the CPU in its five modes.

Each token has one position in the modes normal and neox, and four in the others: time, height,
width, and one that llama.cpp sets to 0 for language models. Frequencies can be given as divisors of
the angle. With a base of 1 the divisors are the periods of all pairs.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles import Conventions
from properties.contract.aborts import AbortedError
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.native.ggml_arena import Arena
from systems.native.recipes import called, unavailable

__all__ = ["IMPLEMENTATIONS", "NORMAL", "Yarn", "rope"]

Array = NDArray[Any]


class Yarn(NamedTuple):
    """YaRN's numbers in ggml's order. The defaults switch it off."""

    original_length: int = 0
    base: float = 10000.0
    frequency_scale: float = 1.0
    share: float = 0.0
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0


class Mode(NamedTuple):
    """A mode: ggml's number, which channels form a pair, and how three axes share the pairs."""

    number: int
    pairing: Any
    mrope: Any = "sectioned"

    @property
    def has_axes(self) -> bool:
        """Whether a token has four positions, and not one."""
        return self.number >= 8


_LAST_PAIRS = dict.fromkeys(
    ("rope is within its error limit", "each pair rotates by the position of the axis that it belongs to"),
    "IMROPE: pairs at the end take the fourth position and do not rotate",
)

NORMAL, NEOX = Mode(0, "adjacent"), Mode(2, "half")
MROPE, IMROPE, VISION = Mode(8, "half"), Mode(40, "half", "interleaved"), Mode(24, "half")


class Options(NamedTuple):
    """The options of `rope`, each with its default."""

    positions: Any = None
    inv_freq: Any = None
    attention_factor: float | None = None
    rotary_dim: int | None = None
    sections: Any = None


def _positions(mode: Mode, shape: tuple[int, ...], start_pos: int, options: Options) -> Array:
    """The positions of all tokens, axis by axis. The fourth is 0 in a call with sections, as in llama.cpp."""
    sections, rows = options.sections, options.positions
    if rows is None:
        rows = start_pos + np.arange(shape[-1])
    elif sections is not None:
        return _spread([*rows, np.zeros(1)], shape)
    return _spread(
        [rows, rows, rows, np.zeros(1) if sections is not None else rows] if mode.has_axes else [rows], shape
    )


def _spread(axes: list[Array], shape: tuple[int, ...]) -> Array:
    return np.concatenate([np.broadcast_to(axis, shape).ravel() for axis in axes]).astype(np.int32)


def rope(
    mode: Mode,
    x: Array,
    start_pos: int = 0,
    *,
    back: str = "",
    threads: int = 1,
    yarn: Yarn | None = None,
    **given: Any,
) -> Array:
    """x (…, seq_len, head_dim), rotated. Each row is a token with one head. `back="_back"` rotates a
    gradient back.
    """
    options, width = Options(**given), x.shape[-1]
    rotated = width if options.rotary_dim is None else options.rotary_dim
    numbers = yarn or Yarn(attention_factor=1.0 if options.attention_factor is None else options.attention_factor)
    if mode is VISION:  # it counts the channels of one of two axes, so that the exponents are twice as large
        rotated, numbers = rotated // 2, numbers._replace(base=numbers.base**0.5)
    divisors = None
    if options.inv_freq is not None:
        numbers = numbers._replace(base=1.0)
        with np.errstate(divide="ignore"):
            divisors = np.float32(1) / options.inv_freq.astype(np.float32)
    sections = [[*(options.sections or (width // 2, 0, 0)), 0]] if mode.has_axes else []
    with Arena() as arena:
        out = arena.apply(
            f"ggml_rope_{'multi' if mode.has_axes else 'ext'}{back}",
            arena.tensor(x.reshape(-1, 1, width)),
            arena.tensor(_positions(mode, x.shape[:-1], start_pos, options)),
            arena.tensor(divisors),
            rotated,
            *sections,
            mode.number,
            *numbers,
        )
        return arena.computed(out, x.shape, threads, x.dtype)


def _vjp(mode: Mode, x: Array, grad_out: Array, start_pos: int = 0, **given: Any) -> Array:
    return rope(mode, grad_out, start_pos, back="_back", **given)


def _implementation(name: str, mode: Mode, arithmetic: str, *features: str) -> Implementation:
    divisor = 4 if mode is VISION else 2
    twin = Twin({"rope": partial(rope, mode, threads=2)}, exactly=True)
    return Implementation(
        name=called("ggml", f"rope {name} {arithmetic.partition('-')[0]}"),
        operations={"rope": partial(rope, mode), "rope_vjp": partial(_vjp, mode)},
        arithmetic=arithmetic,
        conventions=Conventions(rope_pairing=mode.pairing, odd_lane="reject", mrope=mode.mrope),
        supports=["positive sizes", {"head_dim": lambda dim: dim % divisor == 0}],
        refuses=(AbortedError, ValueError),  # ValueError is ours, for arrays without entries
        outside="undefined" if mode is VISION else "called",  # this mode accepts an odd width
        features=("positions", "inv_freq", "attention_factor", *features),
        unavailable=unavailable("ggml"),
        twins={"two threads": twin},
        known_deviations=_LAST_PAIRS if mode is IMROPE else {},
    )


_SINGLE = "float32-recurrent-angles-frequency-divisors"

IMPLEMENTATIONS = [
    _implementation("normal", NORMAL, _SINGLE, "rotary_dim"),
    _implementation("neox", NEOX, _SINGLE, "rotary_dim"),
    _implementation("neox", NEOX, "float16-recurrent-angles-frequency-divisors", "rotary_dim"),
    _implementation("mrope", MROPE, _SINGLE, "sections"),
    _implementation("imrope", IMROPE, _SINGLE, "sections"),
    _implementation("vision", VISION, _SINGLE),
]
