"""Makes the page of one or several reports: one file, which needs no other file and no network."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from properties.verifier.comparison import law_id
from properties.verifier.report import counted
from properties.views.html.figures import FIGURES
from properties.views.html.figures.run import budgets_used
from properties.views.html.matrix import Matrix, matrix
from properties.views.html.rendering import beside, rendered
from properties.views.html.violations import Finding, finding, linked
from properties.views.statuses import LABELS, label
from properties.views.whole import write_whole

__all__ = ["html", "write"]

NAME = "index.html"
_DEFAULT_TIMEOUT = 60.0  # of the command, for a call


def html(reports: Sequence[dict[str, Any]]) -> str:
    """Return the page of some reports, each as `Report.to_dict` writes it. The same reports give
    the same page.
    """
    found = matrix(reports)
    laws = {law: place for place, law in enumerate(found.laws)}
    causes: dict[str, list[dict[str, Any]]] = {}
    for cause in (cause for report in reports for cause in report.get("causes", ())):
        causes.setdefault(cause["implementation"], []).append(cause)
    findings = []
    for column, implementation in enumerate(found.implementations):
        own = causes.get(implementation.name, [])
        by_law = {
            law_id(outcome): finding(outcome, f"finding-{column}-{laws[law_id(outcome)]}", own)
            for outcome in implementation.broken
        }
        findings.append(_by_cause(by_law, own))
    failing = [column for column, items in enumerate(findings) if items]
    figures = [picture for picture in (budgets_used(found), *(draw() for draw in FIGURES)) if picture is not None]
    return rendered(
        "page.html",
        {"linked": linked, "ratio": _ratio, "label": label},
        verdict=_verdict(found, reports),
        ok=all(report["ok"] for report in reports),
        matrix=found,
        unavailable=sum(bool(each.unavailable) for each in found.implementations),
        groups=_groups(found),
        findings=findings,
        failing=sorted(failing, key=lambda column: not found.implementations[column].counts["violated"]),
        figures=figures,
        runs=[_run(report) for report in reports],
        labels=LABELS,
        data=_embedded(found.data()),
        script=beside("page.js"),
    )


def write(reports: Sequence[dict[str, Any]], directory: Path) -> Path:
    """Write the page of some reports to index.html in a directory, and return the file. The page is
    written completely or not at all.
    """
    text = html(reports)
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / NAME, text)
    return directory / NAME


def _verdict(found: Matrix, reports: Sequence[dict[str, Any]]) -> str:
    """Return the verdict of all reports together, as a sentence."""
    tested = [each for each in found.implementations if not each.unavailable]
    failing = sum(each.counts["violated"] > 0 for each in tested)
    interrupted = "Interrupted: " if any(report["interrupted"] for report in reports) else ""
    if not any(each.outcomes for each in tested):
        return f"{interrupted}No law was checked."
    if all(each.ok for each in tested):
        where = f" on all {len(tested)} implementations" if len(tested) > 1 else ""
        return f"{interrupted}All checks pass{where}."
    if not failing:
        return f"{interrupted}No check fails, but some checks have no verdict."
    if len(tested) == 1:
        number = tested[0].counts["violated"]
        causes = sum(len(report.get("causes", ())) for report in reports)
        reason = f", for {counted(causes, 'cause')}" if causes else ""
        verb = "fails" if number == 1 else "fail"
        return f"{interrupted}{tested[0].name}: {counted(number, 'check')} {verb}{reason}."
    return f"{interrupted}{failing} of {len(tested)} implementations {'fails' if failing == 1 else 'fail'} a check."


def _by_cause(findings: dict[str, Finding], causes: Sequence[dict[str, Any]]) -> list[tuple[Finding, list[Finding]]]:
    """Return pairs: the finding that shows a cause, and the findings of the other laws that fail
    for this cause. Findings without a cause come last.
    """
    left = dict(findings)
    examples = [(law_id(cause["example"]), cause["laws"]) for cause in causes]
    firsts = [(left.pop(law), laws) for law, laws in examples if law in left]
    return [
        *((first, [left.pop(law) for law in laws if law in left]) for first, laws in firsts),
        *((each, []) for each in left.values()),
    ]


def _groups(found: Matrix) -> list[tuple[str, list[int]]]:
    """Return the groups of implementations, each with the positions of its implementations."""
    groups: dict[str, list[int]] = {}
    for place, implementation in enumerate(found.implementations):
        groups.setdefault(implementation.group, []).append(place)
    return list(groups.items())


def _run(report: dict[str, Any]) -> dict[str, Any]:
    """Return how a report was made: its settings and environment in words, and the command that
    makes it again.
    """
    settings = report["settings"]
    targets = settings.get("targets") or list(
        dict.fromkeys(each["target"] for each in settings.get("implementations", ()))
    )
    command = ["attnspec", "verify", *targets, "--max-examples", settings["max_examples"], "--seed", settings["seed"]]
    if settings.get("arithmetic"):
        command += ["--arithmetic", settings["arithmetic"]]
    if settings.get("laws"):
        command += ["--laws", *settings["laws"]]
    for convention in settings.get("conventions", {}).items():
        command += ["--convention", "=".join(map(str, convention))]
    if settings.get("exclude"):
        command += ["--exclude", *settings["exclude"]]
    for shape in settings.get("shapes", ()):
        command += ["--shape", shape]
    if settings.get("only"):
        command += ["--only", *settings["only"]]
    if settings.get("interpret"):
        command += ["--interpret"]
    if settings.get("cost"):
        command += ["--cost", f"{settings['cost']:g}"]
    if settings.get("time_limit"):
        command += ["--time-limit", f"{settings['time_limit']:g}"]
    if settings.get("timeout", _DEFAULT_TIMEOUT) != _DEFAULT_TIMEOUT:
        command += ["--timeout", f"{settings['timeout']:g}"]
    facts = {"test inputs for each operation": settings["max_examples"], "seed": settings["seed"]}
    if covered := report.get("coverage", {}).get("line"):
        facts["covered"] = covered
    if "timeout" in settings:
        facts["timeout for a call"] = f"{settings['timeout']:g} s"
    return {
        "facts": facts | settings.get("environment", {}),
        "command": shlex.join(map(str, command)) if targets else "",
    }


def _ratio(excess: float | str | None) -> str:
    """Return an error ÷ error limit as text."""
    return "–" if excess is None else "∞" if float(excess) == float("inf") else f"{float(excess):.2g}"


def _embedded(data: dict[str, Any]) -> Markup:
    """Return the data as JSON. The text cannot end the HTML element that contains it."""
    return Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))
