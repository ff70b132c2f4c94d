"""Conformance in pytest: one item for each law and implementation, by a decorator or by `pytest --attnspec TARGET`.

Nothing but pytest is imported before there is something to check: this is loaded in every session of everyone who has attnspec installed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from properties.contract.implementation import Implementation
    from properties.laws.law import Law
    from properties.verifier.report import Outcome

__all__ = ["Check", "parametrize_with_laws"]

_Test = TypeVar("_Test", bound=Callable[..., Any])
_PROPERTY = "attnspec"


class Check:
    """A law on an implementation: calling it fails the test, with what `attnspec verify` would print, where the law does not hold.

    A law that is declared to be broken, and is, is an expected failure; one whose examples said nothing fails.
    """

    def __init__(
        self,
        law: "Law",
        implementation: "Implementation",
        max_examples: int | None = None,
        target: str = "",
        pick: str = "",
        beside: tuple[str, ...] = ("...",),
    ) -> None:
        self.law, self.implementation, self.max_examples = law, implementation, max_examples
        self.target, self.pick, self.beside = target, pick, beside  # where it is, for the script that shows a violation again
        self.outcome: Outcome | None = None

    @property
    def id(self) -> str:
        """law[operation]-implementation, words joined by hyphens."""
        return re.sub(r"\s+", "-", f"{self.law.id}-{self.implementation.name}")

    def __repr__(self) -> str:
        return f"<{self.law.id} on {self.implementation.name}>"

    def __call__(self) -> None:
        """Check it on as many cases as the caller's Hypothesis profile has, or as many as were asked for."""
        __tracebackhide__ = True
        from properties.verifier.script import script
        from properties.verifier.verify import check
        from properties.views.violation import violation_text

        outcome = self.outcome = check(self.law, self.implementation, self.max_examples, random_seed=None)
        if outcome.status == "violated" and outcome.violation is not None:
            code = script(outcome.violation, self.target, self.pick, beside=self.beside if self.implementation.beside else ())
            pytest.fail(violation_text(replace(outcome.violation, script=code)), pytrace=False)
        if outcome.status == "declared":
            pytest.xfail(outcome.reason)
        if outcome.status == "not applicable" or outcome.unavailable:
            pytest.skip(outcome.reason)
        if outcome.status not in ("held", "suspicious"):
            pytest.fail(f"{self.law.id}: {outcome.reason}", pytrace=False)


def checks(
    implementations: Sequence[Any], laws: Sequence[str] | None = None, max_examples: int | None = None, exclude: Sequence[str] = ()
) -> list[Check]:
    """The checks of all laws, or some, on implementations: those that apply, implementation by implementation."""
    from properties.command.targets import distinct, interleaved
    from properties.contract.implementation import implementation_of
    from properties.verifier.plan import plan, require_planned, without

    if isinstance(implementations, Mapping | str) or not isinstance(implementations, Sequence):
        raise TypeError(f"implementations has type {type(implementations).__name__}, but should be a list of implementations.")
    if max_examples is not None and (isinstance(max_examples, bool) or not isinstance(max_examples, int) or max_examples < 1):
        raise ValueError(f"max_examples={max_examples!r}, but should be a whole number from 1.")
    resolved = interleaved(distinct([implementation_of(target) for target in implementations]))
    plans = [plan(i, laws) for i in resolved]
    require_planned(laws, [law for planned in plans for law in planned])
    left = [without(planned, exclude) for planned in plans]
    return [Check(law, i, max_examples) for i, some in zip(resolved, left, strict=True) for law in some if _applies(law, i)]


def _applies(law: "Law", implementation: "Implementation") -> bool:
    """Whether a law is about an implementation, and has cases that it supports."""
    from properties.verifier.examination import Examination

    settled = Examination(implementation, law.operation, [law]).settled.get(law.id)
    return settled is None or settled.status != "not applicable"


def parametrize_with_laws(
    implementations: Sequence[Any], laws: Sequence[str] | None = None, max_examples: int | None = None, *, exclude: Sequence[str] = ()
) -> Callable[[_Test], _Test]:
    """A decorator for a test that takes `check` and calls it: one item for each law that applies to each implementation.

        @properties.parametrize_with_laws([my_implementation])
        def test_conformance(check): check()

    Implementations are what `properties.verify` takes: mappings, modules, objects, or `properties.Implementation`. `laws` names some laws,
    "law" or "law[operation]", and `exclude` some to leave out. Cases are drawn by the caller's Hypothesis profile, `max_examples` of them
    if it is given. Raises TypeError and ValueError, in a sentence, for arguments that are none of these, and for laws that are not about
    any of the implementations.
    """
    found = checks(implementations, laws, max_examples, exclude)
    if not found:
        raise ValueError("No law applies to any of the implementations.")
    return pytest.mark.parametrize("check", [pytest.param(check, id=check.id) for check in found])


class _Target(pytest.Collector):
    """The items of one `--attnspec TARGET`."""

    def collect(self) -> Iterator["_Item"]:
        from properties.command.targets import TargetError, load

        try:
            found = [
                Check(check.law, check.implementation, target=one.target, pick=one.pick, beside=one.beside)
                for one in load([self.name])
                for check in checks([one.implementation])
            ]
        except (TargetError, ValueError) as error:
            raise pytest.UsageError(f"--attnspec {self.name}: {error}") from None
        if not found:
            raise pytest.UsageError(f"--attnspec {self.name}: no law applies to it.")
        for check in found:
            yield _Item.from_parent(self, name=check.id, check=check)


class _Item(pytest.Item):
    """One law on one implementation, without a test file."""

    def __init__(self, *, check: Check, **options: Any) -> None:
        super().__init__(**options)
        self.check = check

    def runtest(self) -> None:
        self.check()

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.name


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--attnspec`."""
    group = parser.getgroup("attnspec", "conformance to the laws of attention and positional encodings")
    sentence = "check the laws on the implementations there, as `attnspec verify` does, without a test file; may be repeated"
    group.addoption("--attnspec", action="append", default=[], metavar="TARGET", help=sentence)


@pytest.hookimpl(tryfirst=True)  # before items are deselected, by -k and the like
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """The items of `--attnspec` come after those of test files."""
    for target in config.getoption("--attnspec"):
        collector = _Target.from_parent(session, name=target, nodeid=f"attnspec::{target}")
        items.extend(collector.collect())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    """What became of a law travels with the item's report, from a process of pytest-xdist too."""
    check = item.check if isinstance(item, _Item) else getattr(item, "callspec", None) and item.callspec.params.get("check")  # type: ignore[attr-defined]
    if call.when == "call" and isinstance(check, Check) and check.outcome is not None:
        outcome = check.outcome
        item.user_properties.append((_PROPERTY, [outcome.implementation, outcome.status, outcome.examples, outcome.worst_excess]))
    yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many laws held on each implementation, if any was checked."""
    found: dict[str, dict[str, int]] = {}
    examples: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    implementation, status, number, _ = value
                    counts = found.setdefault(implementation, {})
                    counts[status] = counts.get(status, 0) + 1
                    examples[implementation] = examples.get(implementation, 0) + number
    if found:
        from properties.verifier.report import counted

        terminalreporter.section("attnspec")
        for implementation, counts in sorted(found.items()):
            told = ", ".join(f"{counts.get(status, 0)} {status}" for status in ("held", *sorted(set(counts) - {"held"})))
            terminalreporter.write_line(f"{implementation}: {told}, on {counted(examples[implementation], 'example')}")
