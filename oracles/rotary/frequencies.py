"""Rotary frequencies as models use them, and the attention factor that goes with them. Each
returned value comes with a radius: the exact value lies in value ± radius.

r channels rotate, and fᵢ = base^(−2i/r). s is a factor, M the original length and L the sequence
length. The kinds are

    default         f
    linear          f / s
    dynamic         f of the base base · (s · max(L, M)/M − (s − 1))^(r/(r − 2))
    yarn            f · ((1 − ramp) + ramp/s); the ramp is 0 for fast pairs and rises to 1 for slow pairs
    llama3          f where λ < M/high, f/s where λ > M/low, a mean between them; λ = 2π/f
    longrope        f / shortᵢ where L ≤ M, f / longᵢ where L > M
    proportional    base^(−2i/head_dim) / s for the first pairs, 0 for the others

A value may depend on a floor, a ceiling or a comparison. Integers or balls decide each of these
rigorously, except a comparison whose branches have the same value.

A budget covers a kernel that computes powers by pow, or by exp of a product, and perhaps a
reciprocal, and that divides by s or multiplies by 1/s. Its roundoff is `angle.frequency`, or
`angle.product` if it divides positions instead. It stores frequencies in the coarsest of binary64
and binary32 that is as fine as these roundoffs. It does not store them in the output's 16 bits:
such frequencies are another model's.
Sources: `spec.extended.rotary_frequencies`
"""

from dataclasses import MISSING, fields, replace
from typing import Any

import numpy as np
from flint import arb

from oracles import arrays, formats
from oracles.arb_matrix import Bools, enclosed
from oracles.arguments import Given
from oracles.ball import ROUNDOFF, Ball, ball
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.enclosure import Enclosure
from oracles.error_analysis.angle import held_range, moved_power
from oracles.formats import BINARY32, BINARY64, Arithmetic
from oracles.judging import Balls, Evaluation, Method, require_method, settle
from oracles.positional import ARB_WORK, WIDEST
from oracles.rotary.frequency_bands import Llama3, Yarn
from oracles.rotary.frequency_kinds import Default, Dynamic, Linear, Longrope, Proportional, Shape, positive
from oracles.spelling import did_you_mean

MARGIN = 2.0**64
"""How far parameters are from both ends of the range. No product of such a parameter with a length
of 2⁵³ and 2π leaves the range.
"""
KINDS: dict[str, type[Default]] = {
    "default": Default,
    "linear": Linear,
    "dynamic": Dynamic,
    "yarn": Yarn,
    "llama3": Llama3,
    "longrope": Longrope,
    "proportional": Proportional,
}


def rotary_frequencies(
    kind: str,
    head_dim: Any,
    *,
    base: Any = 10000.0,
    rotary_dim: Any = None,
    seq_len: Any = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
    **parameters: Any,
) -> tuple[Enclosure, Enclosure]:
    """Return (inv_freq, attention_factor) of a kind of frequencies. The results are `Enclosure`s
    (value ± radius). inv_freq holds the radians per position of each pair. attention_factor is the
    factor of cosines and sines.

    rotary_dim is r, the number of rotated channels, head_dim by default. seq_len is the sequence
    length, on which `dynamic` and `longrope` depend.  The other parameters have the names that
    transformers' configurations give them: factor, original_max_position_embeddings
    (max_position_embeddings for `dynamic`), beta_fast, beta_slow, truncate, mscale, mscale_all_dim,
    attention_factor, low_freq_factor, high_freq_factor, short_factor, long_factor,
    partial_rotary_factor.  The base is a parameter: `conventions.rope_base` and `rope_scale` are
    not read.

    Shapes: (r/2,) and (): the factor is a number.
    Edge cases: r = 0 has no pair. Without seq_len, `dynamic` equals `default`, and `longrope` takes
    the short factors.
    Raises ValueError and TypeError for an unknown kind, and for a parameter that the kind does not
    have or that is missing. Raises them also for an odd r, a ramp that does not rise, a list that
    does not have r/2 factors, and other values that make no sense.
    """
    require_method(method)
    model, named = formats.resolve(arithmetic), resolve_conventions(conventions)
    _require_kind(kind, parameters)
    channels = _channels(kind, head_dim, rotary_dim)
    length = None if seq_len is None else arrays.natural(seq_len, "seq_len")
    bent = KINDS[kind](Shape(channels, positive(base, "base"), length, named), **parameters)
    precision = bent.decided()

    def values() -> Balls:
        return enclosed(lambda: _evaluated(bent), precision)

    def fast() -> Balls:
        powers, inv_freq, factor = values()
        return (inv_freq, factor) if model is None else _budgets(bent, powers, inv_freq, factor, model)

    result = settle(Evaluation(model, method, fast, lambda: values()[1:], ARB_WORK * bent.of.channels, shaped=_shaped))
    target = None if model is None else _format(model)
    inv_freq, attention_factor = (replace(x, format=target) for x in result)
    return inv_freq, attention_factor


def _require_kind(kind: Any, parameters: dict[str, Any]) -> None:
    """Raise TypeError or ValueError unless it is a kind, and has these parameters and no others
    without a default.
    """
    if not isinstance(kind, str):
        raise TypeError(f"kind has type {type(kind).__name__}, but should be one of {', '.join(map(repr, KINDS))}.")
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}, but should be one of {', '.join(map(repr, KINDS))}.")
    own = {field.name: field.default for field in fields(KINDS[kind]) if field.name != "of"}
    for name in parameters:
        if name not in own:
            taken = f"It takes {', '.join(own) or 'none'}."
            raise ValueError(f"{kind!r} has no parameter {name!r}.{did_you_mean(name, own, taken)}")
    for name, default in own.items():
        if name not in parameters and default is MISSING:
            raise ValueError(f"{name} is missing, but is a parameter of {kind!r} without a default.")


def _channels(kind: str, head_dim: Any, rotary_dim: Any) -> int:
    """How many channels rotate.  Raises TypeError and ValueError for a number that does not fit."""
    width = arrays.natural(head_dim, "head_dim", most=WIDEST)
    name, given = ("head_dim", head_dim) if rotary_dim is None else ("rotary_dim", rotary_dim)
    channels = arrays.natural(given, name, most=width)
    if channels % 2:
        raise ValueError(f"{name}={channels}, but should be even: channels rotate in pairs.")
    if kind == "proportional" and channels != width:
        raise ValueError(
            f"rotary_dim={channels}, but should be head_dim={width}: the pairs of 'proportional' are those of the head."
        )
    return channels


def _evaluated(bent: Default) -> list[tuple[list[arb], Bools]]:
    """Return powers, frequencies and the attention factor, at the working precision."""
    log_base = bent.log_base()
    powers = [(-log_base * e.numerator / e.denominator).exp() for e in bent.exponents]
    inv_freq = [f * gain for f, gain in zip(powers, bent.gains(powers), strict=True)]
    return [(found, np.zeros(len(found), dtype=bool)) for found in (powers, inv_freq, [bent.multiplier()])]


def _budgets(bent: Default, powers: Ball, inv_freq: Ball, factor: Ball, model: Arithmetic) -> Balls:
    """Return the budgets of the frequencies and of the attention factor, from the errors of the
    kind.

    A kernel's power f' is off by the error of its exponential and by e·Δ ln base', both as
    exponents; g is the gain. Then |f'g' − fg| ≤ fg·(exp(all) − 1) + f·exp(all)·shift.

    A number below four times the smallest normal number η may come out as 0 or lose its last bits.
    For a power, which the gain g/f multiplies, this costs (f + η)·g/f; for a frequency it costs g +
    η.

    A number that may overflow is unknown. All are unknown where the base may overflow, or the
    factor of a base below 1, because 0·ln ∞ is NaN. All are also unknown where a parameter is so
    near to an end of the range that a length of 2⁵³ and 2π can take it out.
    """
    u, (least, largest) = model.angle.frequency, held_range(model)
    e = np.array([float(x) for x in bent.exponents])
    with np.errstate(all="ignore"):
        f, g = powers.mid + powers.rad, np.abs(inv_freq.mid) + inv_freq.rad
        of_base = np.where(e > 0, e * bent.base_moves(u), 0.0)
        moved = moved_power(e * _upper(bent.log_base()), u) + of_base
        every = moved + bent.gain_moves(max(u, model.angle.product))
        spread = np.exp(every) * (1 + 2.0**-40)
        lost = np.where(f < 4 * least * spread, (f + least) * g / f, 0.0) + np.where(
            (g > 0) & (g < 4 * least * spread), g + least, 0.0
        )
        rad = inv_freq.rad + g * np.expm1(every) + f * spread * bent.gain_shifts(f, g / f, moved, u) + lost
        base = np.exp(np.nextafter(float(bent.log_base().upper()), np.inf) + bent.base_moves(u)) / min(
            bent.of.base, 1.0
        )
        rad = np.where((f * spread < largest) & (base < largest), rad, np.inf)
        rad = np.where(g == 0, 0.0, rad * (1 + 2.0**-40))
    scale = factor.rad + bent.multiplier_moves(u) * (1 + 64 * ROUNDOFF)
    lost_parameter = not all(x == 0 or least * MARGIN <= abs(x) <= largest / MARGIN for x in _numbers(bent))
    if lost_parameter:
        rad, scale = np.full(rad.shape, np.inf), np.full(scale.shape, np.inf)
    return ball(inv_freq.mid, rad), ball(factor.mid, scale)


def _shaped(balls: Balls) -> Balls:
    """Return the frequencies, and the attention factor as a number of shape ()."""
    inv_freq, factor = balls
    return inv_freq, Ball(factor.mid.reshape(()), factor.rad.reshape(()))


def _numbers(bent: Default) -> list[float]:
    """Return the real parameters of a kind, and the base."""
    found = [bent.of.base]
    for field in fields(bent):
        value = getattr(bent, field.name)
        found += [value] if isinstance(value, float) else value if isinstance(value, list) else []
    return found


def _upper(x: arb) -> float:
    """Return an upper bound of |x| in float64."""
    return float(np.nextafter(float(x.abs_upper()), np.inf))


def _format(model: Arithmetic) -> formats.Format:
    """Return the format in which frequencies are held."""
    return BINARY64 if held_range(model)[1] == BINARY64.largest else BINARY32
