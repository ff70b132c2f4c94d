"""Laws of quantised queries, keys and values: what a scale does, and what it does not do."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oracles.ball import Ball
from properties.contract.features import QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.quantising import CODES
from properties.contract.results import results_of
from properties.contract.subject import Subject
from properties.laws.feature_rules import arguments_by_name
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
_OPERATIONS = "attention", "packed_attention", "paged_attention"


def _check(subject: Subject, case: Sequence[Any], changes: Mapping[str, float], of_output: float = 1.0) -> bool:
    """Assert that the numbers of arrays, or the scale of scores, times powers of two multiply the output
    by a factor, and change no log-sum-exp. Return False if the case has no such scales.
    """
    given = arguments_by_name(subject, case)
    if any(given[name] is None for name in changes):
        return False
    divides = subject.conventions.fp8_scale == "divide"
    changed = given | {
        name: given[name] * (1 / factor if divides and name in QUANTISED else factor)
        for name, factor in changes.items()
    }
    if not subject.takes(*changed.values()):
        return False
    for before, after in zip(results_of(subject(*case)), results_of(subject(*changed.values())), strict=True):
        times = of_output if before.name == "out" else 1.0
        subject.close(after, Ball(before.ball.mid * times, before.ball.rad * times), before.name)
    return True


@law(*_OPERATIONS, exempts=lambda each: each.lacks("q_scale", "k_scale"), name="a factor moves from k_scale to q_scale")
def a_factor_moves_from_k_scale_to_q_scale(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every power of two f: numbers of queries f times as large, and numbers of keys f times as
    small, by their scales, give the same result.
    """
    factor = choose.among([4.0, 0.125, 32.0])
    return _check(subject, case, {"q_scale": factor, "k_scale": 1 / factor})


@law(*_OPERATIONS, exempts=lambda each: each.lacks("v_scale"), name="v_scale is a factor of the output, not of lse")
def v_scale_is_a_factor_of_the_output(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every power of two f: values that are f times as large, by their scale, make the output f
    times as large, and do not change the log-sum-exp.
    """
    factor = choose.among([4.0, 0.125, 32.0])
    return _check(subject, case, {"v_scale": factor}, factor)


@law(*_OPERATIONS, exempts=lambda each: each.lacks("k_scale"), name="k_scale acts as a factor of scale")
def k_scale_acts_as_a_factor_of_scale(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every power of two f, if `scale` is given: numbers of keys that are f times as large, by their
    scale, and a scale of scores divided by f, give the same result.
    """
    factor = choose.among([4.0, 0.125, 2.0])
    return _check(subject, case, {"k_scale": factor, "scale": 1 / factor})


def _differ(implementation: Implementation) -> str:
    if implementation.resolved_conventions.scale_shape == "tensor":
        return "One scale serves all codes."
    return min(map(implementation.lacks, QUANTISED), key=len)  # "" if it gets one of them


@law(*_OPERATIONS, exempts=_differ)
def scales_of_zero_codes_do_not_matter(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every scale: at codes that are all 0, a scale that is 64 times as large gives the same
    result.
    """
    given = arguments_by_name(subject, case)
    several = [name for name in QUANTISED if given[name] is not None and max(given[name].shape) > 1]
    if not several:
        return False
    name = choose.among(several)
    parameter = next(each for each in CODES if each in given and each[0] == name[0])
    scale, codes = given[name], given[parameter]
    is_even: Any = True  # all heads of all sequences
    if scale.ndim > 2:
        axis = choose.among([place for place, size in enumerate(scale.shape) if size > 1])
        is_even = np.expand_dims(np.arange(scale.shape[axis]) % 2 == 0, [*range(1, scale.ndim - axis)])
    zeroed = given | {parameter: np.where(is_even, 0.0, codes)}
    larger = zeroed | {name: np.where(is_even, scale * 64.0, scale)}
    if not all(subject.takes(*each.values()) for each in (zeroed, larger)):
        return False
    for one, other in zip(*(results_of(subject(*each.values())) for each in (zeroed, larger)), strict=True):
        subject.close(one, other)
    return True
