"""Laws of rotary frequencies that keep fast pairs and interpolate slow ones, and of the attention
factors that go with them.
"""

from math import ceil, exp, floor, pi
from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact
from properties.contract.subject import Subject
from properties.laws.frequency_kinds import FREQUENCIES, Given, between, frequencies_of, plain
from properties.laws.law import Laws
from properties.laws.reading import by_name
from properties.strategies.choices import Choices
from properties.strategies.drawn_frequencies import ends, width_of

law = Laws()
_CLEAR = 2.0**-30
"""How far from a whole number a pair should be to be rounded by float64, and how far a ramp's ends
are off in it, at most.
"""


@law(FREQUENCIES, domains=("yarn", "llama3"))
def frequencies_are_between_those_of_default_and_linear(subject: Subject, *arguments: Any) -> None:
    """For every factor s of at least 1: no pair rotates faster than by the default kind, or slower
    than by an s-th of it.
    """
    x = by_name(subject, arguments)
    f, found = plain(subject, x), frequencies_of(subject, x)[0]
    between(subject, found, divide(f, exact(np.full(len(f.mid), x["factor"]))), f, "inv_freq")


@law(FREQUENCIES, domains=("yarn",), effort=3.0)
def a_ramp_is_a_straight_line_between_its_ends(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every ramp of YaRN: pairs before it are those of the default kind, pairs after it those
    of linear, and between it is as much of each as the pair is far.

    It ends at the pairs of β_fast and β_slow turns, rounded outwards with `truncate`, and within
    the pairs that the convention allows. Within budget; ends that nearly are whole numbers are left
    out.
    """
    x, c = by_name(subject, arguments), subject.conventions
    x["factor"] = max(x["factor"], 2.0)
    x["truncate"] = None if subject.implementation.lacks("truncate") else choose.among([x["truncate"], False, None])
    r, truncate = width_of(x), (c.yarn_truncate == "truncated" if x["truncate"] is None else x["truncate"])
    low, high = ends(x)
    if truncate and min(abs(end - round(end)) for end in (low, high)) < _CLEAR:
        return False
    low, high = (floor(low), ceil(high)) if truncate else (low, high)
    low, high = max(low, 0), min(high, r - 1 if c.yarn_upper == "last_channel" else r // 2 - 1)
    f, found, share = plain(subject, x), frequencies_of(subject, x)[0], ramp(r // 2, low, high)
    linear = divide(f, exact(np.full(len(f.mid), x["factor"])))
    subject.close(found, f * (exact(np.ones(r // 2)) - share) + linear * share, "inv_freq")
    subject.informative_if((share.mid > 0).any())
    return True


def ramp(pairs: int, low: float, high: float) -> Ball:
    """How far each pair is on the way from one end to the other: exactly 0 and 1 clearly before and
    after them, where they are off by `_CLEAR` at most; ends that are whole numbers are exact."""
    i, off = np.arange(pairs), [0.0 if end == round(end) else _CLEAR for end in (low, high)]
    mid = np.clip((i - low) / (high - low), 0, 1) if high > low else np.where(i > low, 1.0, 0.0)
    near = (i > low - off[0]) & (i < high + off[1])
    return Ball(mid, np.where(near, _CLEAR / max(high - low, _CLEAR), 0.0))


def _turns(f: Ball, original: int) -> Any:
    """How often each pair rotates in the original length."""
    return original * f.mid / (2 * pi)


@law(FREQUENCIES, domains=("llama3",))
def fast_pairs_are_kept_and_slow_ones_divided(subject: Subject, *arguments: Any) -> None:
    """For every pair of more than high_freq_factor turns in the original length: its frequency is
    that of the default; for every pair of less than low_freq_factor turns an s-th of it.

    Within budget; turns within 2⁻²⁰ of either are left out.
    """
    x = by_name(subject, arguments)
    f, found = plain(subject, x), frequencies_of(subject, x)[0]
    turns = _turns(f, x["original_max_position_embeddings"])
    fast, slow = turns > x["high_freq_factor"] * (1 + 2.0**-20), turns < x["low_freq_factor"] * (1 - 2.0**-20)
    subject.close(found[fast], f[fast], "inv_freq of fast pairs")
    subject.close(found[slow] * exact(np.full(int(slow.sum()), x["factor"])), f[slow], "inv_freq of slow pairs")


@law(FREQUENCIES, domains=("llama3",))
def wavelengths_at_the_ends_of_a_band_are_continuous(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every pair, and an original length at which it turns as often as an end of the band says:
    with one position more, frequencies move by no more than the slope of the band allows.

    Turns grow by f/2π, what is kept by as much over high − low, and frequencies by that times f·(1
    − 1/s). Within budget.
    """
    x = by_name(subject, arguments)
    f = plain(subject, x)
    end = x[choose.among(["low_freq_factor", "high_freq_factor"])]
    lengths = np.floor(2 * pi * end / f.mid)
    possible = lengths[(lengths >= 1) & (lengths < 2**40)]
    if not len(possible):
        return False
    most = int(choose.among(possible))
    near, far = (frequencies_of(subject, x, original_max_position_embeddings=n)[0] for n in (most, most + 1))
    steepest = (1 - 1 / x["factor"]) / (2 * pi * (x["high_freq_factor"] - x["low_freq_factor"]))
    bound = np.square(f.mid + f.rad) * steepest * (1 + 2.0**-20)
    subject.close(near, Ball(far.mid, far.rad + bound), "inv_freq")
    subject.informative_if(x["factor"] != 1)
    return True


# -- Attention factors -----------------------------------------------------------------------------------------------------------------


@law(FREQUENCIES, domains=("yarn", "longrope"))
def an_attention_factor_that_is_given_is_returned(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every attention factor that is given, whatever else is: it is what multiplies cosines and sines."""
    x = by_name(subject, arguments)
    if subject.implementation.lacks("attention_factor"):
        return False
    given = x["attention_factor"] or choose.among([1.25, 0.5, 1.0])
    subject.close(frequencies_of(subject, x, attention_factor=given)[1], np.array(given), "attention_factor")
    return True


def _without(subject: Subject, x: Given, **others: Any) -> Ball:
    """The attention factor where none is given, nor weights but others."""
    return frequencies_of(subject, x, **{"attention_factor": None, "mscale": None, "mscale_all_dim": None, **others})[1]


@law(FREQUENCIES, domains=("yarn",), exempts=lambda i: i.lacks("mscale", "mscale_all_dim"))
def an_attention_factor_is_a_quotient_of_two_weights(subject: Subject, *arguments: Any, choose: Choices) -> None:
    """For every two weights w and v that are not 0: the attention factor, times 1 + v·(a − 1), is 1
    + w·(a − 1), where a is the one without weights; equal weights make it 1. With one of them
    alone, or a weight of 0, it is a."""
    x, one = by_name(subject, arguments), exact(1.0)
    w, v = choose.among([(0.707, 1.0), (1.0, 0.707), (2.0, 0.5), (1.0, 1.0)])
    a = _without(subject, x)
    above, below = (one + exact(weight) * (a - one) for weight in (w, v))
    subject.close(
        _without(subject, x, mscale=w, mscale_all_dim=v) * below, above, "attention_factor · m(s, mscale_all_dim)"
    )
    for alone in ({"mscale": w}, {"mscale_all_dim": v}, {"mscale": w, "mscale_all_dim": 0.0}):
        subject.close(_without(subject, x, **alone), a, "attention_factor")
    subject.informative_if(x["factor"] > 1)


@law(FREQUENCIES, domains=("yarn", "longrope"))
def an_attention_factor_grows_as_the_logarithm_of_the_factor(subject: Subject, *arguments: Any) -> None:
    """For every factor s above 1 and the attention factor a where none is given: a − 1 for YaRN,
    and a² − 1 for longrope, is twice as large for s²; and it is 1 where s is e¹⁰, for YaRN, or the
    original length, for longrope."""
    x, one = by_name(subject, arguments), exact(1.0)

    def grown(s: float) -> Ball:
        a = _without(subject, x, factor=s)
        return a - one if x["kind"] == "yarn" else a * a - one

    s = x["factor"] if x["factor"] > 1 else 2.0
    off = Ball(np.array(0.0), np.array(2.0**-50))  # s² and e¹⁰ are rounded, by which their logarithms move
    subject.close(grown(s * s), exact(2.0) * grown(s) + off, "attention_factor less 1")
    known = exp(10.0) if x["kind"] == "yarn" else float(x["original_max_position_embeddings"])
    subject.close(grown(known), one + off, "attention_factor less 1")
