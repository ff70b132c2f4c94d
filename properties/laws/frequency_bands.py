"""Laws of the kinds of rotary frequencies that keep fast pairs and interpolate slow pairs, such as
YaRN, and of their attention factors.
"""

from math import ceil, exp, floor, pi
from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact
from properties.contract.subject import Subject
from properties.laws.feature_rules import arguments_by_name
from properties.laws.frequency_kinds import FREQUENCIES, Given, check_between, default_frequencies, frequencies_of
from properties.laws.law import Laws
from properties.strategies.choices import Choices
from properties.strategies.drawn_frequencies import ends, width_of

law = Laws()
_CLEAR = 2.0**-30
"""The least distance of a pair from a whole number at which float64 rounds it right, and the
largest error of a ramp's ends in float64.
"""


@law(FREQUENCIES, domains=("yarn", "llama3"))
def scaled_frequencies_lie_between_default_and_linearly_scaled_ones(subject: Subject, *case: Any) -> None:
    """For every factor s of at least 1: each pair rotates at most as fast as with the default kind,
    and at least as fast as 1/s of it.
    """
    arguments = arguments_by_name(subject, case)
    default, found = default_frequencies(subject, arguments), frequencies_of(subject, arguments)[0]
    linear = divide(default, exact(np.full(len(default.mid), arguments["factor"])))
    check_between(subject, found, linear, default, "inv_freq")


@law(FREQUENCIES, domains=("yarn",), effort=3.0, name="the YaRN ramp is a straight line between its ends")
def the_yarn_ramp_is_a_straight_line_between_its_ends(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every ramp of YaRN: pairs before the ramp have default frequencies, pairs after it have
    linear frequencies, and pairs on it mix both in proportion to their place.

    The ramp ends at the pairs of β_fast and β_slow rotations, rounded outwards with `truncate`, and
    within the pairs that the convention `yarn_upper` permits. Ends that are nearly whole numbers
    are left out.
    """
    arguments, conventions = arguments_by_name(subject, case), subject.conventions
    arguments["factor"] = max(arguments["factor"], 2.0)
    lacks_truncate = subject.implementation.lacks("truncate")
    arguments["truncate"] = None if lacks_truncate else choose.among([arguments["truncate"], False, None])
    width, truncate = width_of(arguments), arguments["truncate"]
    truncate = conventions.yarn_truncate == "truncated" if truncate is None else truncate
    low, high = ends(arguments)
    if truncate and min(abs(end - round(end)) for end in (low, high)) < _CLEAR:
        return False
    low, high = (floor(low), ceil(high)) if truncate else (low, high)
    low, high = max(low, 0), min(high, width - 1 if conventions.yarn_upper == "last_channel" else width // 2 - 1)
    default, found = default_frequencies(subject, arguments), frequencies_of(subject, arguments)[0]
    share = ramp(width // 2, low, high)
    linear = divide(default, exact(np.full(len(default.mid), arguments["factor"])))
    subject.close(found, default * (exact(np.ones(width // 2)) - share) + linear * share, "inv_freq")
    subject.informative_if((share.mid > 0).any())
    return True


def ramp(pairs: int, low: float, high: float) -> Ball:
    """Return the place of each pair on YaRN's ramp, from 0 at one end to 1 at the other.

    The place is exactly 0 clearly before the ramp, and exactly 1 clearly after it. The ends of the
    ramp are off by at most `_CLEAR`. They are exact if they are whole numbers.
    """
    pair, uncertainty = np.arange(pairs), [0.0 if end == round(end) else _CLEAR for end in (low, high)]
    place = np.clip((pair - low) / (high - low), 0, 1) if high > low else np.where(pair > low, 1.0, 0.0)
    near = (pair > low - uncertainty[0]) & (pair < high + uncertainty[1])
    return Ball(place, np.where(near, _CLEAR / max(high - low, _CLEAR), 0.0))


def _rotations(default: Ball, original: int) -> Any:
    """Return the number of full rotations that each pair makes in the original context length."""
    return original * default.mid / (2 * pi)


@law(FREQUENCIES, domains=("llama3",))
def llama3_keeps_fast_frequencies_and_divides_slow_ones(subject: Subject, *case: Any) -> None:
    """For every pair with more than high_freq_factor rotations in the original length: its
    frequency is the default frequency. For every pair with less than low_freq_factor rotations: its
    frequency is the default frequency divided by s.

    Rotations within a factor 1 ± 2⁻²⁰ of either number are left out.
    """
    arguments = arguments_by_name(subject, case)
    default, found = default_frequencies(subject, arguments), frequencies_of(subject, arguments)[0]
    rotations = _rotations(default, arguments["original_max_position_embeddings"])
    fast = rotations > arguments["high_freq_factor"] * (1 + 2.0**-20)
    slow = rotations < arguments["low_freq_factor"] * (1 - 2.0**-20)
    subject.close(found[fast], default[fast], "inv_freq[fast pairs]")
    multiplied = found[slow] * exact(np.full(int(slow.sum()), arguments["factor"]))
    subject.close(multiplied, default[slow], "inv_freq[slow pairs]")


@law(FREQUENCIES, domains=("llama3",))
def frequencies_are_continuous_at_the_ends_of_the_llama3_band(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every pair, and an original length at which the pair's rotations equal an end of the
    band: with an original length one larger, the frequency f moves by no more than the slope of the
    band permits.

    The rotations grow by f/2π, the kept share by f/2π over high − low, and the frequency by that
    times f·(1 − 1/s).
    """
    arguments = arguments_by_name(subject, case)
    default = default_frequencies(subject, arguments)
    end = arguments[choose.among(["low_freq_factor", "high_freq_factor"])]
    lengths = np.floor(2 * pi * end / default.mid)
    possible = lengths[(lengths >= 1) & (lengths < 2**40)]
    if not len(possible):
        return False
    original = int(choose.among(possible))
    near, far = (
        frequencies_of(subject, arguments, original_max_position_embeddings=length)[0]
        for length in (original, original + 1)
    )
    band = arguments["high_freq_factor"] - arguments["low_freq_factor"]
    steepest = (1 - 1 / arguments["factor"]) / (2 * pi * band)
    bound = np.square(default.mid + default.rad) * steepest * (1 + 2.0**-20)
    subject.close(near, Ball(far.mid, far.rad + bound), "inv_freq")
    subject.informative_if(arguments["factor"] != 1)
    return True


# -- Attention factors -----------------------------------------------------------------------------


@law(FREQUENCIES, domains=("yarn", "longrope"))
def a_given_attention_factor_is_returned_unchanged(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every given attention factor, beside any other parameters: it is the returned factor of
    cosines and sines.
    """
    arguments = arguments_by_name(subject, case)
    if subject.implementation.lacks("attention_factor"):
        return False
    given = arguments["attention_factor"] or choose.among([1.25, 0.5, 1.0])
    subject.close(frequencies_of(subject, arguments, attention_factor=given)[1], np.array(given), "attention_factor")
    return True


def _factor_without_weights(subject: Subject, arguments: Given, **others: Any) -> Ball:
    """Return the attention factor with neither a given factor nor weights, except those in
    `others`.
    """
    without = {"attention_factor": None, "mscale": None, "mscale_all_dim": None}
    return frequencies_of(subject, arguments, **{**without, **others})[1]


@law(
    FREQUENCIES,
    domains=("yarn",),
    exempts=lambda implementation: implementation.lacks("mscale", "mscale_all_dim"),
    name="the attention factor is m(s, mscale) / m(s, mscale_all_dim)",
)
def the_attention_factor_is_a_quotient_of_two_weights(subject: Subject, *case: Any, choose: Choices) -> None:
    """For every two weights w and v that are not 0: the attention factor, times 1 + v·(a − 1), is 1
    + w·(a − 1), where a is the attention factor without weights. So equal weights make it 1.

    With only one of the weights, or a weight of 0, the attention factor is a.
    """
    arguments, one = arguments_by_name(subject, case), exact(1.0)
    w, v = choose.among([(0.707, 1.0), (1.0, 0.707), (2.0, 0.5), (1.0, 1.0)])
    unweighted = _factor_without_weights(subject, arguments)
    above, below = (one + exact(weight) * (unweighted - one) for weight in (w, v))
    weighted = _factor_without_weights(subject, arguments, mscale=w, mscale_all_dim=v)
    subject.close(weighted * below, above, "attention_factor · m(s, mscale_all_dim)")
    for alone in ({"mscale": w}, {"mscale_all_dim": v}, {"mscale": w, "mscale_all_dim": 0.0}):
        subject.close(_factor_without_weights(subject, arguments, **alone), unweighted, "attention_factor")
    subject.informative_if(arguments["factor"] > 1)


@law(FREQUENCIES, domains=("yarn", "longrope"))
def the_attention_factor_grows_with_the_logarithm_of_the_scaling_factor(subject: Subject, *case: Any) -> None:
    """For every factor s above 1, and the attention factor a without a given one: a − 1 for YaRN,
    and a² − 1 for longrope, is twice as large for s².

    It is 1 if s is e¹⁰, for YaRN, or the original length, for longrope.
    """
    arguments, one = arguments_by_name(subject, case), exact(1.0)

    def grown(factor: float) -> Ball:
        unweighted = _factor_without_weights(subject, arguments, factor=factor)
        return unweighted - one if arguments["kind"] == "yarn" else unweighted * unweighted - one

    factor = arguments["factor"] if arguments["factor"] > 1 else 2.0
    uncertainty = Ball(np.array(0.0), np.array(2.0**-50))  # s² and e¹⁰ are rounded, which moves their logarithms
    subject.close(grown(factor * factor), exact(2.0) * grown(factor) + uncertainty, "attention_factor − 1")
    known = exp(10.0) if arguments["kind"] == "yarn" else float(arguments["original_max_position_embeddings"])
    subject.close(grown(known), one + uncertainty, "attention_factor − 1")
