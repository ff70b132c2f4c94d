"""Laws that relate the kinds of rotary frequencies, their widths, bases, lists of factors and
lengths.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oracles.ball import Ball, ball, divide, exact
from properties.contract.subject import Subject
from properties.laws.feature_rules import arguments_by_name
from properties.laws.law import Laws
from properties.strategies.choices import Choices
from properties.strategies.drawn_frequencies import original_of, width_of

__all__ = ["FREQUENCIES", "Given", "check_between", "default_frequencies", "frequencies_of", "law"]

law = Laws()
FREQUENCIES = "rotary_frequencies"
_ONE = {"factor": 1.0}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "linear": _ONE,
    "llama3": _ONE,
    "yarn": _ONE | {"attention_factor": None},
    "dynamic": {"seq_len": None},
    "longrope": _ONE | {"attention_factor": None},
    "proportional": _ONE | {"partial_rotary_factor": 1.0},
}
"""The parameters that make each kind equal to the default kind; longrope also needs lists of ones."""

Given = dict[str, Any]


def frequencies_of(subject: Subject, arguments: Given, **others: Any) -> tuple[Ball, Ball]:
    """Return the frequencies and the attention factor for a call's arguments, some of them
    replaced.
    """
    call = subject if subject.operation == FREQUENCIES else subject.rotary_frequencies
    inv_freq, factor = call(*{**arguments, **others}.values())
    return inv_freq.ball, factor.ball


def default_frequencies(subject: Subject, arguments: Given, **others: Any) -> Ball:
    """Return the frequencies of the default kind, with the same base and width."""
    own = {parameter: arguments[parameter] for parameter in ("head_dim", "base", "rotary_dim")}
    return frequencies_of(subject, {**dict.fromkeys(arguments), "kind": "default", **own}, **others)[0]


def check_between(subject: Subject, numbers: Ball, low: Ball, high: Ball, name: str) -> None:
    """Check that each number is at least a number in the ball `low`, and at most a number in the
    ball `high`.
    """
    inside = np.clip(numbers.mid, low.mid, np.maximum(low.mid, high.mid))
    subject.close(numbers, ball(inside, low.rad + high.rad), name)


def _check_same(subject: Subject, actual: tuple[Ball, Ball], expected: tuple[Ball, Ball]) -> None:
    for name, found, wanted in zip(("inv_freq", "attention_factor"), actual, expected, strict=True):
        subject.close(found, wanted, name)


@law(FREQUENCIES, domains=("linear", "dynamic", "yarn", "llama3", "longrope", "proportional"))
def every_kind_of_rotary_scaling_with_factor_1_equals_the_default(
    subject: Subject, *case: Any, choose: Choices
) -> None:
    """For every kind: with a factor of 1, lists of ones, all pairs, or a length up to the original
    one, the frequencies are the default frequencies, and the attention factor is 1.
    """
    arguments = arguments_by_name(subject, case)
    default = dict(_DEFAULTS[arguments["kind"]])
    if arguments["kind"] == "longrope":
        default |= dict.fromkeys(("short_factor", "long_factor"), (1.0,) * (width_of(arguments) // 2))
    if arguments["kind"] == "dynamic" and not subject.implementation.lacks("seq_len"):
        default["seq_len"] = choose.among([None, original_of(arguments), 1])
    found = frequencies_of(subject, arguments, **default)
    _check_same(subject, found, (default_frequencies(subject, arguments), exact(1.0)))


@law(FREQUENCIES, domains=("linear", "longrope", "proportional"), exact="for the zeros")
def frequencies_times_the_factor_equal_the_default_frequencies(subject: Subject, *case: Any) -> None:
    """For every linear or proportional kind, and every list of factors: the frequencies times the
    factor, or times the entries of the list, are the default frequencies. Proportional pairs that
    do not rotate have frequency 0.
    """
    arguments = arguments_by_name(subject, case)
    arguments |= {"long_factor": arguments["short_factor"]}
    found, default = frequencies_of(subject, arguments)[0], default_frequencies(subject, arguments)
    pairs = len(found.mid)
    rotating = int(arguments["partial_rotary_factor"] * pairs) if arguments["kind"] == "proportional" else pairs
    factors = arguments["factor"] if arguments["short_factor"] is None else arguments["short_factor"]
    divisor = exact(np.broadcast_to(factors, pairs))
    subject.close((found * divisor)[:rotating], default[:rotating], "inv_freq · factor")
    subject.same(found.mid[rotating:], np.zeros(pairs - rotating), "inv_freq")


def _is_geometric(arguments: Given) -> bool:
    """Return whether the frequencies are powers of a base, all times the same number."""
    return arguments["kind"] in ("default", "linear", "dynamic")


@law(FREQUENCIES, domains=("everyday", "linear", "dynamic"), watches=True)
def frequencies_form_a_geometric_sequence(subject: Subject, *case: Any) -> bool:
    """For every default, linear or dynamic kind: the square of a frequency is the product of its
    neighbours, and the first frequency is 1, or 1 over the factor of a linear kind.
    """
    arguments = arguments_by_name(subject, case)
    frequencies = frequencies_of(subject, arguments)[0]
    if not _is_geometric(arguments) or len(frequencies.mid) < 2:
        return False
    subject.close(frequencies[1:-1] * frequencies[1:-1], frequencies[:-2] * frequencies[2:], "inv_freq²")
    first = frequencies[:1] * exact(arguments["factor"]) if arguments["kind"] == "linear" else frequencies[:1]
    subject.close(first, np.ones(1), "inv_freq[:1]")
    return True


@law(FREQUENCIES, domains=("everyday", "yarn", "llama3", "dynamic"), watches=True)
def frequencies_never_increase_from_pair_to_pair(subject: Subject, *case: Any) -> bool:
    """For every kind except longrope: no pair rotates faster than the pair before it."""
    arguments = arguments_by_name(subject, case)
    frequencies = frequencies_of(subject, arguments)[0]
    if arguments["kind"] == "longrope" or len(frequencies.mid) < 2:
        return False
    check_between(subject, frequencies[1:], exact(np.zeros(len(frequencies.mid) - 1)), frequencies[:-1], "inv_freq")
    return True


@law(FREQUENCIES, domains=("everyday", "linear"))
def frequency_2i_at_width_2d_equals_frequency_i_at_width_d(subject: Subject, *case: Any) -> bool:
    """For every default or linear kind, and every list of factors: the pairs 0, 2, 4, … of twice
    the width have the same frequencies, if each factor of the list appears twice.

    The first pairs for the square of the base have the frequencies of every second pair for the
    base.
    """
    arguments = arguments_by_name(subject, case)
    if arguments["kind"] not in ("default", "linear", "longrope"):
        return False
    width, given = (
        width_of(arguments),
        {parameter: arguments[parameter] for parameter in ("short_factor", "long_factor")},
    )
    lists = {parameter: factors and tuple(np.repeat(factors, 2).tolist()) for parameter, factors in given.items()}
    head_dim, rotary_dim = 2 * max(arguments["head_dim"], width), arguments["rotary_dim"] and 2 * width
    wide = dict(arguments, head_dim=head_dim, rotary_dim=rotary_dim, **lists)
    if not subject.takes(*wide.values()):
        return False
    frequencies = frequencies_of(subject, arguments)[0]
    subject.close(frequencies, frequencies_of(subject, wide)[0][::2], "inv_freq")
    if arguments["kind"] != "longrope" and arguments["base"] is not None:
        squared = frequencies_of(subject, arguments, base=arguments["base"] ** 2)[0]
        subject.close(frequencies[::2], squared[: -(-len(frequencies.mid) // 2)], "inv_freq[::2]")
    return True


@law(FREQUENCIES)
def channels_that_do_not_rotate_do_not_change_the_frequencies(subject: Subject, *case: Any) -> bool:
    """For every number of rotated channels: a head with only these channels has the same
    frequencies.
    """
    arguments = arguments_by_name(subject, case)
    width = arguments["rotary_dim"]
    if width is None or not subject.implementation.allows(head_dim=width):
        return False
    narrow = frequencies_of(subject, arguments, head_dim=width, rotary_dim=None)
    _check_same(subject, frequencies_of(subject, arguments), narrow)
    return True


@law(FREQUENCIES, domains=("dynamic",))
def dynamic_scaling_divides_the_slowest_frequency_by_the_growth_in_length(
    subject: Subject, *case: Any, choose: Choices
) -> bool:
    """For every length L beyond the original length M: the first pair has its default frequency,
    and the last pair its default frequency divided by the growth s·L/M − (s − 1).

    The changed base gives base'^(−(r − 2)/r) = base^(−(r − 2)/r) over the growth.
    """
    arguments = arguments_by_name(subject, case)
    original, factor = original_of(arguments) or 1, arguments["factor"]
    if subject.implementation.lacks("seq_len"):
        return False
    length = arguments["seq_len"] = choose.among([2 * original, original + 1, 3 * original + 1])
    frequencies, default = frequencies_of(subject, arguments)[0], default_frequencies(subject, arguments)
    growth = divide(exact(factor) * exact(length - original), exact(original)) + exact(1.0)
    growth = exact(1.0) if subject.conventions.dynamic_length == "configured" else growth
    subject.close(frequencies[:1], default[:1], "inv_freq[:1]")
    subject.close(frequencies[-1:] * growth, default[-1:], "inv_freq[-1:]")
    return True


@law(FREQUENCIES, domains=("longrope",))
def the_sequence_length_selects_the_short_or_the_long_factors(subject: Subject, *case: Any) -> None:
    """For every length, also none, the original length, and one beyond it: up to the original
    length the short list gives the frequencies, and beyond it the long list. The
    other list does not matter. At the original length itself the convention `longrope_switch`
    decides.
    """
    arguments = arguments_by_name(subject, case)
    original, has_length = original_of(arguments) or 0, not subject.implementation.lacks("seq_len")
    at_most = subject.conventions.longrope_switch == "at_most"
    for length in dict.fromkeys((arguments["seq_len"], original, original + 1) if has_length else (None,)):
        short = length is None or length < original or (length == original and at_most)
        own, other = ("short_factor", "long_factor")[:: 1 if short else -1]
        _check_same(
            subject,
            frequencies_of(subject, arguments, seq_len=length),
            frequencies_of(subject, arguments, **{"seq_len": length, other: arguments[own]}),
        )
