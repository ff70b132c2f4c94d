"""Finds the simplest rule that separates the sizes at which a call worked from those at which it
failed.

A rule is source text that `supports` accepts: "lambda size: size % 8 == 0", or a list of sizes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["predicate_of", "rule_of", "sentence_of"]

_MULTIPLES = (128, 64, 32, 16, 8, 4, 2)


def predicate_of(rule: str) -> Callable[[int], bool]:
    """Return the predicate that a rule means: whether it admits a size. "" admits every size."""
    meaning: Any = eval(rule or "lambda size: True")
    found: Callable[[int], bool] = meaning if callable(meaning) else meaning.__contains__
    return found


def rule_of(tried: Mapping[int, bool]) -> str:
    """Return the simplest rule that is true of all tried sizes; "" if all of them worked.

    `tried` says for each size whether the call worked. Without a shorter rule, the rule is the list
    of the sizes that worked.
    """
    working = sorted(size for size, works in tried.items() if works)
    for condition in _conditions(working):
        rule = f"lambda size: {condition}" if condition else ""
        if all(predicate_of(rule)(size) == works for size, works in tried.items()):
            return rule
    return repr(tuple(working))


def _conditions(working: list[int]) -> Iterator[str]:
    """The conditions on a size from the simplest on: "", one term, two terms."""
    bounds = [f"size <= {working[-1]}", f"size >= {working[0]}"] if len(working) > 1 else []
    multiples = [f"size % {factor} == 0" for factor in _MULTIPLES if _shows_multiples(working, factor)]
    yield ""
    yield from multiples
    yield from bounds
    yield from (f"{multiple} and {bound}" for multiple in multiples for bound in bounds)
    if bounds:
        yield " and ".join(reversed(bounds))


def _shows_multiples(working: list[int], factor: int) -> bool:
    """Whether some size is the factor times a number that is not a power of two. The sizes 64 and
    128 alone do not show that every multiple of 64 works.
    """
    quotients = [size // factor for size in working if size % factor == 0]
    return any(quotient & (quotient - 1) for quotient in quotients)


def sentence_of(name: str, rule: str, tried: Mapping[int, bool]) -> str:
    """Return a clause that says what a rule assumes of all sizes, and which sizes were tried; "" if
    the rule lists the sizes.
    """
    if rule.startswith("("):
        return ""
    working, failing = ([str(size) for size in sorted(tried) if tried[size] == works] for works in (True, False))
    observed = f"{', '.join(working)} worked" + (f" and {', '.join(failing)} failed" if failing else "")
    return f"{name}: {rule[13:] if rule else 'all sizes'}, since {observed}"
