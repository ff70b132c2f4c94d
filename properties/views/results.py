"""What a verification is not ok for, each cause once: what JUnit, SARIF and annotations of code
say, each in its own form.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from properties.contract.names import parts_of
from properties.verifier.report import Cause, Outcome, Report, counted
from properties.views.violation import violation_text

__all__ = ["Result", "results"]


@dataclass(frozen=True)
class Result:
    """Something that a verification is not ok for.

    `law` is "law[operation]", the one that shows it, and `laws` are all that it concerns; `status`
    is that of their outcomes. `cause` says what explains it, "" where nothing does; `summary` is a
    sentence or some, and `text` all that is known. `file` and `line` say where the operation's
    function is written, if that is known. What is `known` has been so in the baseline, and is no
    failure.
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
        """What is wrong, and with what, in a line."""
        law, operation = parts_of(self.law)
        return ": ".join(filter(None, (self.implementation, operation, self.cause or law)))


def results(report: Report) -> list[Result]:
    """What a report is not ok for: causes of violations, then laws that were not run, or said
    nothing, by their reasons.

    There are some that are not known if and only if the report is not ok, unless it was
    interrupted.
    """
    sources = {i["name"]: i.get("sources", {}) for i in report.settings.get("implementations", ())}
    return [
        _placed(result, sources.get(result.implementation, {}))
        for result in (*_violated(report), *_unsaid(report), *_nothing(report))
    ]


def _violated(report: Report) -> Iterator[Result]:
    outcomes = _by_law(report)
    told: set[tuple[str, str]] = set()
    for cause in report.causes:
        told |= {(cause.implementation, law) for law in cause.laws}
        named, example = cause.likely.id if cause.likely else "", cause.example
        yield Result(
            cause.implementation,
            example.law_id,
            cause.laws,
            "violated",
            named,
            _summary(cause),
            violation_text(example, cause=cause),
            known=all(outcomes[cause.implementation, law].known for law in cause.laws),
        )
    for v in report.violations:
        if (v.implementation, v.law_id) not in told:
            known = outcomes[v.implementation, v.law_id].known
            yield Result(
                v.implementation, v.law_id, (v.law_id,), "violated", "", v.summary, violation_text(v), known=known
            )


def _summary(cause: Cause) -> str:
    """What is wrong, what explains it, what that is and what mends it, and how many laws are broken by it."""
    said = [cause.example.summary]
    if cause.likely:
        said += [f"Likely cause: {cause.likely.id}.", cause.likely.mechanism, cause.likely.repair]
    if len(cause.laws) > 1:
        said.append(f"{counted(len(cause.laws), 'law')} are broken by it: {'; '.join(cause.laws)}.")
    return " ".join(filter(None, said))


def _unsaid(report: Report) -> Iterator[Result]:
    groups: dict[tuple[str, str, str, bool], list[str]] = {}
    for o in report.outcomes:
        if o.status != "violated" and report.fails(o):
            groups.setdefault((o.implementation, o.status, o.reason, o.known), []).append(o.law_id)
    for (implementation, status, reason, known), laws in groups.items():
        said = f"{counted(len(laws), 'law')} {'is' if len(laws) == 1 else 'are'} {status}. {reason}".rstrip()
        yield Result(implementation, laws[0], tuple(laws), status, "", said, "\n".join([said, "", *laws]), known=known)


def _nothing(report: Report) -> Iterator[Result]:
    """Where no law applied to anything that can be run nothing was shown."""
    if all(o.status == "not applicable" or o.unavailable for o in report.outcomes):
        said = "None applies to what can be run here, so nothing was shown."
        names = ", ".join(dict.fromkeys(o.implementation for o in report.outcomes))
        yield Result(names, "no law was checked", (), "not run", "", said, said)


def _by_law(report: Report) -> dict[tuple[str, str], Outcome]:
    return {(o.implementation, o.law_id): o for o in report.outcomes}


def _placed(result: Result, sources: dict[str, dict[str, Any]]) -> Result:
    place = sources.get(parts_of(result.law)[1])
    return replace(result, file=place["file"], line=place["line"]) if place else result
