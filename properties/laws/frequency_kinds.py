"""Laws of rotary frequencies: kinds said by one another, widths and bases, lists and lengths."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oracles.ball import Ball, ball, divide, exact
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.reading import by_name
from properties.strategies.choices import Choices
from properties.strategies.drawn_frequencies import original_of, width_of

__all__ = ["FREQUENCIES", "Given", "between", "frequencies_of", "law", "plain"]

law = Laws()
FREQUENCIES = "rotary_frequencies"
_ONE = {"factor": 1.0}
_NOTHING: Mapping[str, Mapping[str, Any]] = {
    "linear": _ONE,
    "llama3": _ONE,
    "yarn": _ONE | {"attention_factor": None},
    "dynamic": {"seq_len": None},
    "longrope": _ONE | {"attention_factor": None},
    "proportional": _ONE | {"partial_rotary_factor": 1.0},
}
"""What makes each kind the default one; of longrope also lists of ones."""

Given = dict[str, Any]


def frequencies_of(subject: Subject, x: Given, **others: Any) -> tuple[Ball, Ball]:
    """The frequencies and the attention factor of a case in which some parameters are others."""
    call = subject if subject.operation == FREQUENCIES else subject.rotary_frequencies
    inv_freq, factor = call(*{**x, **others}.values())
    return inv_freq.ball, factor.ball


def plain(subject: Subject, x: Given, **others: Any) -> Ball:
    """The frequencies of the default kind, of the same base and width."""
    own = {p: x[p] for p in ("head_dim", "base", "rotary_dim")}
    return frequencies_of(subject, {**dict.fromkeys(x), "kind": "default", **own}, **others)[0]


def between(subject: Subject, x: Ball, low: Ball, high: Ball, name: str) -> None:
    """Each number is at least what one ball contains, and at most what another does."""
    subject.close(x, ball(np.clip(x.mid, low.mid, np.maximum(low.mid, high.mid)), low.rad + high.rad), name)


def _same(subject: Subject, actual: tuple[Ball, Ball], expected: tuple[Ball, Ball]) -> None:
    for name, a, b in zip(("inv_freq", "attention_factor"), actual, expected, strict=True):
        subject.close(a, b, name)


@law(FREQUENCIES, domains=("linear", "dynamic", "yarn", "llama3", "longrope", "proportional"))
def a_kind_with_a_factor_of_one_is_the_default(subject: Subject, *arguments: Any, choose: Choices) -> None:
    """For every kind: with a factor of 1, and lists of ones, all pairs, or a length to the original
    one, frequencies are those of the default, and the attention factor is 1."""
    x = by_name(subject, arguments)
    nothing = dict(_NOTHING[x["kind"]])
    if x["kind"] == "longrope":
        nothing |= dict.fromkeys(("short_factor", "long_factor"), (1.0,) * (width_of(x) // 2))
    if x["kind"] == "dynamic" and not subject.implementation.lacks("seq_len"):
        nothing["seq_len"] = choose.among([None, original_of(x), 1])
    _same(subject, frequencies_of(subject, x, **nothing), (plain(subject, x), exact(1.0)))


@law(FREQUENCIES, domains=("linear", "longrope", "proportional"))
def frequencies_are_those_of_the_default_divided(subject: Subject, *arguments: Any) -> None:
    """For every linear or proportional kind, and every list: frequencies times the factor, or the
    entries of the list, are those of the default; those of proportional pairs that do not rotate
    are 0.

    Within budget; zeros exact.
    """
    x = by_name(subject, arguments)
    x |= {"long_factor": x["short_factor"]}
    found, default = frequencies_of(subject, x)[0], plain(subject, x)
    n = len(found.mid)
    rotating = int(x["partial_rotary_factor"] * n) if x["kind"] == "proportional" else n
    by = exact(np.broadcast_to(x["factor"] if x["short_factor"] is None else x["short_factor"], n))
    subject.close((found * by)[:rotating], default[:rotating], "inv_freq · factor")
    subject.same(found.mid[rotating:], np.zeros(n - rotating), "inv_freq")


def _of_powers(x: Given) -> bool:
    """Whether frequencies are the powers of a base, all times one number."""
    return x["kind"] in ("default", "linear", "dynamic")


@law(FREQUENCIES, domains=("everyday", "linear", "dynamic"), watches=True)
def frequencies_fall_by_one_ratio(subject: Subject, *arguments: Any) -> bool:
    """For every default, linear or dynamic kind: the square of a frequency is the product of its
    neighbours; undivided, the first is 1.
    """
    x = by_name(subject, arguments)
    f = frequencies_of(subject, x)[0]
    if not _of_powers(x) or len(f.mid) < 2:
        return False
    subject.close(f[1:-1] * f[1:-1], f[:-2] * f[2:], "inv_freq²")
    subject.close(
        f[:1] * exact(x["factor"]) if x["kind"] == "linear" else f[:1], np.ones(1), "inv_freq of the first pair"
    )
    return True


@law(FREQUENCIES, domains=("everyday", "yarn", "llama3", "dynamic"), watches=True)
def frequencies_never_rise(subject: Subject, *arguments: Any) -> bool:
    """For every kind but longrope: no pair rotates faster than the pair before it."""
    x = by_name(subject, arguments)
    f = frequencies_of(subject, x)[0]
    if x["kind"] == "longrope" or len(f.mid) < 2:
        return False
    between(subject, f[1:], exact(np.zeros(len(f.mid) - 1)), f[:-1], "inv_freq")
    return True


@law(FREQUENCIES, domains=("everyday", "linear"))
def frequencies_are_every_second_of_twice_the_width(subject: Subject, *arguments: Any) -> bool:
    """For every default or linear kind, and every list of factors: the pairs 0, 2, 4, … of twice
    the width have the same frequencies, with each factor there twice; so have the first pairs of
    the square of the base every second one of the base."""
    x = by_name(subject, arguments)
    if x["kind"] not in ("default", "linear", "longrope"):
        return False
    r, lists = width_of(x), {p: x[p] and tuple(np.repeat(x[p], 2).tolist()) for p in ("short_factor", "long_factor")}
    wide = dict(x, head_dim=2 * max(x["head_dim"], r), rotary_dim=x["rotary_dim"] and 2 * r, **lists)
    if not subject.takes(*wide.values()):
        return False
    f = frequencies_of(subject, x)[0]
    subject.close(f, frequencies_of(subject, wide)[0][::2], "inv_freq")
    if x["kind"] != "longrope" and x["base"] is not None:
        squared = frequencies_of(subject, x, base=x["base"] ** 2)[0]
        subject.close(f[::2], squared[: -(-len(f.mid) // 2)], "inv_freq of every second pair")
    return True


@law(FREQUENCIES)
def channels_that_do_not_rotate_do_not_count(subject: Subject, *arguments: Any) -> bool:
    """For every number of channels that rotate: the same head with no others has the same frequencies."""
    x = by_name(subject, arguments)
    r = x["rotary_dim"]
    if r is None or not subject.implementation.allows(head_dim=r):
        return False
    _same(subject, frequencies_of(subject, x), frequencies_of(subject, x, head_dim=r, rotary_dim=None))
    return True


@law(FREQUENCIES, domains=("dynamic",))
def the_slowest_pair_of_a_dynamic_kind_is_divided_by_its_growth(
    subject: Subject, *arguments: Any, choose: Choices
) -> bool:
    """For every length L beyond the original M: the first pair is that of the default, the last one
    divided by s·L/M − (s − 1).

    For base'^(−(r − 2)/r) is base^(−(r − 2)/r) over the growth. Within budget.
    """
    x = by_name(subject, arguments)
    most, s = original_of(x) or 1, x["factor"]
    if subject.implementation.lacks("seq_len"):
        return False
    length = x["seq_len"] = choose.among([2 * most, most + 1, 3 * most + 1])
    f, default = frequencies_of(subject, x)[0], plain(subject, x)
    grown = divide(exact(s) * exact(length - most), exact(most)) + exact(1.0)
    grown = exact(1.0) if subject.conventions.dynamic_length == "configured" else grown
    subject.close(f[:1], default[:1], "inv_freq of the first pair")
    subject.close(f[-1:] * grown, default[-1:], "inv_freq of the last pair")
    return True


@law(FREQUENCIES, domains=("longrope",))
def the_length_decides_between_the_short_and_the_long_list(subject: Subject, *arguments: Any) -> None:
    """For every length, and none, at the original one and beyond it: to it frequencies are those of
    the short list, beyond it those of the long one, whatever the other list is. At the original
    length itself the convention decides."""
    x = by_name(subject, arguments)
    most, told = original_of(x) or 0, not subject.implementation.lacks("seq_len")
    at_most = subject.conventions.longrope_switch == "at_most"
    for length in dict.fromkeys((x["seq_len"], most, most + 1) if told else (None,)):
        short = length is None or length < most or (length == most and at_most)
        own, other = ("short_factor", "long_factor")[:: 1 if short else -1]
        _same(
            subject,
            frequencies_of(subject, x, seq_len=length),
            frequencies_of(subject, x, **{"seq_len": length, other: x[own]}),
        )
