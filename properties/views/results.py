"""Collects the results that make a report fail, one for each cause. JUnit, SARIF and annotations of
code write them in their own forms.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from properties.contract.names import parts_of
from properties.verifier.report import Cause, Report, counted
from properties.views.not_taken import advice, not_taken_lines
from properties.views.statuses import LABELS
from properties.views.violation import violation_text

__all__ = ["Result", "results"]


@dataclass(frozen=True)
class Result:
    """A result that makes a report fail.

    law          the law that shows it, "law[operation]"
    laws         all laws that it concerns
    status       the status of their outcomes
    cause        the name of the cause; "" if the cause is not recognised
    summary      one or several sentences
    text         everything that is known
    file, line   where the function of the operation is written, if that is known
    known        whether the baseline has it too, so that it does not count as a failure
    """

    implementation: str
    law: str
    laws: tuple[str, ...]
    status: str
    cause: str
    summary: str
    text: str
    file: str = ""
    line: int = 1
    known: bool = False

    @property
    def title(self) -> str:
        """What is wrong, in one line: the implementation, the operation, and the cause or the law."""
        law, operation = parts_of(self.law)
        return ": ".join(filter(None, (self.implementation, operation, self.cause or law)))


def results(report: Report) -> list[Result]:
    """Return the results that make a report fail. First come the causes of violations (failed
    laws), then laws that are inconclusive or were not run, by their reasons.

    For a run that was not interrupted, some result is not known if and only if the report is not
    ok.
    """
    sources = {entry["name"]: entry.get("sources", {}) for entry in report.settings.get("implementations", ())}
    return [
        _placed(result, sources.get(result.implementation, {}))
        for result in (
            *_violated(report),
            *_without_a_verdict(report),
            *_undeclared(report),
            *_nothing_checked(report),
        )
    ]


def _violated(report: Report) -> Iterator[Result]:
    outcomes = {(outcome.implementation, outcome.law_id): outcome for outcome in report.outcomes}
    explained: set[tuple[str, str]] = set()
    for cause in report.causes:
        explained |= {(cause.implementation, law) for law in cause.laws}
        name, example = cause.likely.id if cause.likely else "", cause.example
        yield Result(
            cause.implementation,
            example.law_id,
            cause.laws,
            "violated",
            name,
            _summary(cause),
            violation_text(example, cause=cause),
            known=all(outcomes[cause.implementation, law].known for law in cause.laws),
        )
    for violation in report.violations:
        implementation, law = violation.implementation, violation.law_id
        if (implementation, law) not in explained:
            text, known = violation_text(violation), outcomes[implementation, law].known
            yield Result(implementation, law, (law,), "violated", "", violation.summary, text, known=known)


def _summary(cause: Cause) -> str:
    """Return the sentences about a cause: what is wrong, what was measured, the likely cause and
    its repair, and the checks that fail.
    """
    sentences = [cause.example.summary, *(f"Measured: {sentence}" for sentence in cause.example.measured)]
    if cause.likely:
        sentences += [f"Likely cause: {cause.likely.id}.", cause.likely.mechanism, cause.likely.repair]
    if len(cause.laws) > 1:
        sentences.append(f"{counted(len(cause.laws), 'check')} fail for this cause: {'; '.join(cause.laws)}.")
    return " ".join(filter(None, sentences))


def _without_a_verdict(report: Report) -> Iterator[Result]:
    groups: dict[tuple[str, str, str, bool], list[str]] = {}
    for outcome in report.outcomes:
        if outcome.status != "violated" and report.fails(outcome):
            key = (outcome.implementation, outcome.status, outcome.reason, outcome.known)
            groups.setdefault(key, []).append(outcome.law_id)
    for (implementation, status, reason, known), laws in groups.items():
        verb = "is" if len(laws) == 1 else "are"
        sentence = f"{counted(len(laws), 'check')} {verb} {LABELS[status]}. {reason}".rstrip()
        text = "\n".join([sentence, "", *laws])
        yield Result(implementation, laws[0], tuple(laws), status, "", sentence, text, known=known)


def _undeclared(report: Report) -> Iterator[Result]:
    """Yield a result for each implementation that does not take some calls, although its adapter does
    not declare so, if the report is strict.
    """
    for implementation, found in report.not_taken.items() if report.strict else ():
        calls = counted(sum(one.calls for one in found), "call")
        says = f"{calls} raised. {advice(report)}"
        text = "\n".join([says, "", *not_taken_lines(found)])
        concerned = [one for one in report.outcomes if one.implementation == implementation and one.not_taken]
        law = concerned[0].law_id
        yield Result(implementation, law, (law,), "not run", "not taken", says, text)


def _nothing_checked(report: Report) -> Iterator[Result]:
    """Yield a result that says that nothing was checked, if no law applies to an implementation
    that can be run.
    """
    if all(outcome.status == "not applicable" or outcome.unavailable for outcome in report.outcomes):
        sentence = "No law applies to an implementation that can be run here, so attnspec checked nothing."
        names = ", ".join(dict.fromkeys(outcome.implementation for outcome in report.outcomes))
        yield Result(names, "no law was checked", (), "not run", "", sentence, sentence)


def _placed(result: Result, sources: dict[str, dict[str, Any]]) -> Result:
    place = sources.get(parts_of(result.law)[1])
    return replace(result, file=place["file"], line=place["line"]) if place else result
