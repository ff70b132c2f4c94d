"""Makes pytest tests from laws: one check for each law and implementation, and the decorator that
parametrizes a test with them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, TypeVar

import pytest

from properties.command.configuration import table
from properties.contract.costs import COSTS
from properties.contract.implementation import Implementation, implementation_of
from properties.interpreters import interpret
from properties.laws.law import Law
from properties.processes.adapters import at_cost, distinct, interleaved, load
from properties.processes.deviations import with_deviations
from properties.verifier.examination import Examination
from properties.verifier.plan import plan, require_planned, without
from properties.verifier.report import Outcome, Violation
from properties.verifier.script import script
from properties.verifier.verify import check
from properties.views.violation import violation_text

__all__ = ["Check", "checks", "checks_of_adapters", "parametrize_with_laws"]

_Test = TypeVar("_Test", bound=Callable[..., Any])


class Check:
    """A law on an implementation, as a pytest check. If the law fails, calling the check fails the
    test, with the text that `attnspec verify` prints.

    A law that fails as declared is an expected failure. An inconclusive law fails the test.

    `random_seed` is the seed of the test inputs; None leaves it to Hypothesis. `scripted` writes the
    script that reproduces a failure.
    """

    def __init__(
        self,
        law: Law,
        implementation: Implementation,
        max_examples: int | None = None,
        random_seed: int | None = None,
        scripted: Callable[[Violation], str] | None = None,
    ) -> None:
        self.law, self.implementation, self.max_examples = law, implementation, max_examples
        self.random_seed = random_seed
        self.scripted = scripted or partial(script, beside=("...",) if implementation.beside else ())
        self.outcome: Outcome | None = None

    @property
    def attnspec_outcome(self) -> tuple[str, str, int, float] | None:
        """The numbers that the pytest plugin adds up: the implementation, the status, the number of
        test inputs and the largest error ÷ error limit. None before the check has run.
        """
        outcome = self.outcome
        if outcome is None:
            return None
        return outcome.implementation, outcome.status, outcome.examples, outcome.worst_excess

    @property
    def id(self) -> str:
        """The id of the check: law[operation]-implementation, with hyphens between words."""
        return re.sub(r"\s+", "-", f"{self.law.id}-{self.implementation.name}")

    def __repr__(self) -> str:
        return f"<{self.law.id} on {self.implementation.name}>"

    def __call__(self) -> None:
        """Check the law on `max_examples` test inputs. If it is None, the caller's Hypothesis
        profile gives the number.
        """
        __tracebackhide__ = True
        outcome = self.outcome = check(self.law, self.implementation, self.max_examples, self.random_seed)
        if outcome.status == "violated" and outcome.violation is not None:
            code = self.scripted(outcome.violation)
            pytest.fail(violation_text(replace(outcome.violation, script=code)), pytrace=False)
        if outcome.status == "declared":
            pytest.xfail(outcome.reason)
        if outcome.status == "not applicable" or outcome.unavailable:
            pytest.skip(outcome.reason)
        if outcome.status not in ("held", "suspicious"):
            pytest.fail(f"{self.law.id}: {outcome.reason}", pytrace=False)


def checks(
    implementations: Sequence[Any],
    laws: Sequence[str] | None = None,
    max_examples: int | None = None,
    exclude: Sequence[str] = (),
) -> list[Check]:
    """Return the checks of all laws, or of the named ones, that apply to the implementations. All
    checks of one implementation come before the checks of the next.
    """
    if isinstance(implementations, Mapping | str) or not isinstance(implementations, Sequence):
        raise TypeError(
            f"implementations has type {type(implementations).__name__}, but should be a list of implementations."
        )
    if max_examples is not None and (
        isinstance(max_examples, bool) or not isinstance(max_examples, int) or max_examples < 1
    ):
        raise ValueError(f"max_examples={max_examples!r}, but should be a whole number from 1.")
    resolved = interleaved(distinct([implementation_of(target) for target in implementations]))
    return [
        Check(law, implementation, max_examples)
        for implementation, planned in zip(resolved, _plans(resolved, laws), strict=True)
        for law in without(planned, exclude)
        if _applies(law, implementation)
    ]


def checks_of_adapters(targets: Sequence[str]) -> dict[str, list[Check]]:
    """Return the checks of the adapters at some places, such as "my_kernels.py", by these places. The
    table [tool.attnspec] holds for them as for `attnspec verify`. Without `max-examples` and `seed`
    there, Hypothesis decides both.

    Raises ValueError, with a sentence, for an adapter or a table that cannot be used.
    """
    asked = table()
    if asked.get("interpret"):
        interpret()
    arithmetic, conventions = asked.get("arithmetic"), asked.get("conventions")
    shapes = asked.get("shapes", ())
    found = {target: load([target], arithmetic, conventions=conventions, shapes=shapes) for target in targets}
    most_seconds = COSTS["normal"] if asked.get("interpret") else inf
    found = {target: [at_cost(one, most_seconds) for one in loaded] for target, loaded in found.items()}
    found = {target: with_deviations(loaded, asked.get("known-deviations", {})) for target, loaded in found.items()}
    adapters = [(target, adapter) for target, loaded in found.items() for adapter in loaded]
    plans = _plans([adapter.implementation for _, adapter in adapters], asked.get("laws"))
    checks: dict[str, list[Check]] = {target: [] for target in targets}
    for (target, adapter), planned in zip(adapters, plans, strict=True):
        shown = adapter.implementation.resolved_conventions if conventions else None
        scripted = partial(script, target=adapter.target, pick=adapter.pick, beside=adapter.beside)
        scripted = partial(scripted, arithmetic=arithmetic, conventions=shown)
        numbers = asked.get("max-examples"), asked.get("seed")
        applying = [law for law in planned if _applies(law, adapter.implementation)]
        checks[target] += [Check(law, adapter.implementation, *numbers, scripted) for law in applying]
    return checks


def _plans(implementations: Sequence[Implementation], laws: Sequence[str] | None) -> list[list[Law]]:
    """Return the laws to check of each implementation. Raises ValueError for a named law that is about
    no operation of any implementation.
    """
    plans = [plan(implementation, laws) for implementation in implementations]
    require_planned(laws, [law for planned in plans for law in planned])
    return plans


def _applies(law: Law, implementation: Implementation) -> bool:
    """Return whether a law applies to an implementation that supports some of the law's test
    inputs.
    """
    settled = Examination(implementation, law.operation, [law]).settled.get(law.id)
    return settled is None or settled.status != "not applicable"


def parametrize_with_laws(
    implementations: Sequence[Any],
    laws: Sequence[str] | None = None,
    max_examples: int | None = None,
    *,
    exclude: Sequence[str] = (),
) -> Callable[[_Test], _Test]:
    """Return a decorator for a test that takes `check` and calls it. The test gets one item for
    each law that applies to each implementation.

        @properties.parametrize_with_laws([my_implementation])
        def test_conformance(check): check()

    An implementation is anything that `properties.verify` takes: mappings, modules, objects, or
    `properties.Implementation`. `laws` names some laws, "law" or "law[operation]", and `exclude`
    names laws to leave out. `max_examples` replaces the number of cases of the caller's Hypothesis
    profile. Raises TypeError and ValueError for other arguments, and for laws that apply to no
    implementation.
    """
    found = checks(implementations, laws, max_examples, exclude)
    if not found:
        raise ValueError("No law applies to any of the implementations.")
    return pytest.mark.parametrize("check", [pytest.param(check, id=check.id) for check in found])
