"""The page of one or several reports: a file that needs no other, and no network."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from properties.verifier.report import counted
from properties.views.html.figures import FIGURES
from properties.views.html.figures.run import budgets_used
from properties.views.html.matrix import Matrix, law_id, matrix
from properties.views.html.violations import Finding, finding, linked
from properties.views.violation import SIGNS
from properties.views.whole import write_whole

__all__ = ["html", "write"]

NAME = "index.html"
_TIMEOUT = 60.0  # what the command waits for a call unless told


def html(reports: Sequence[dict[str, Any]]) -> str:
    """The page of reports as `Report.to_dict` writes them. The same reports give the same page."""
    found = matrix(reports)
    laws = {law: place for place, law in enumerate(found.laws)}
    causes: dict[str, list[dict[str, Any]]] = {}
    for cause in (cause for report in reports for cause in report.get("causes", ())):
        causes.setdefault(cause["implementation"], []).append(cause)
    findings = []
    for column, i in enumerate(found.implementations):
        its = causes.get(i.name, [])
        findings.append(
            _by_cause({law_id(o): finding(o, f"finding-{column}-{laws[law_id(o)]}", its) for o in i.broken}, its)
        )
    figures = [picture for picture in (budgets_used(found), *(draw() for draw in FIGURES)) if picture is not None]
    folder = Path(__file__).with_name("templates")
    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"linked": linked, "budgets": _budgets, "counted": counted, "thousands": "{:,}".format}
    return templates.get_template("page.html").render(
        verdict=_verdict(found, reports),
        ok=all(report["ok"] for report in reports),
        matrix=found,
        unavailable=sum(bool(i.unavailable) for i in found.implementations),
        groups=_groups(found),
        findings=findings,
        figures=figures,
        runs=[_run(report) for report in reports],
        signs={status: sign for status, (sign, _) in SIGNS.items()},
        data=_embedded(found.data()),
        style=Markup(_beside("page.css")),
        script=Markup(_beside("page.js")),
    )


def write(reports: Sequence[dict[str, Any]], directory: Path) -> Path:
    """Write the page of reports to index.html in a directory, all of it or nothing; returns the file."""
    text = html(reports)
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / NAME, text)
    return directory / NAME


def _verdict(found: Matrix, reports: Sequence[dict[str, Any]]) -> str:
    """A sentence on what was found."""
    run = [i for i in found.implementations if not i.unavailable]
    everyone, breaking = len(run), sum(i.counts["violated"] > 0 for i in run)
    interrupted = "Interrupted: " if any(report["interrupted"] for report in reports) else ""
    if not any(i.outcomes for i in run):
        return f"{interrupted}No law was checked."
    if all(i.ok for i in run):
        return f"{interrupted}Every law held" + (f" on all {everyone} implementations." if everyone > 1 else ".")
    if not breaking:
        return f"{interrupted}No law was broken, but not every one was put to the test."
    if everyone == 1:
        causes = sum(len(report.get("causes", ())) for report in reports)
        by = f", by {counted(causes, 'cause')}" if causes else ""
        return f"{interrupted}{run[0].name} breaks {counted(run[0].counts['violated'], 'law')}{by}."
    return f"{interrupted}{breaking} of {everyone} implementations {'breaks' if breaking == 1 else 'break'} a law."


def _by_cause(findings: dict[str, Finding], causes: Sequence[dict[str, Any]]) -> list[tuple[Finding, list[Finding]]]:
    """The finding that shows each cause, with those of the other laws that it breaks; after them what has no cause."""
    left = dict(findings)
    firsts = [
        (left.pop(law_id(cause["example"])), cause["laws"]) for cause in causes if law_id(cause["example"]) in left
    ]
    return [
        *((first, [left.pop(law) for law in laws if law in left]) for first, laws in firsts),
        *((each, []) for each in left.values()),
    ]


def _groups(found: Matrix) -> list[tuple[str, list[int]]]:
    """The groups of implementations, each with the places of its own."""
    groups: dict[str, list[int]] = {}
    for place, implementation in enumerate(found.implementations):
        groups.setdefault(implementation.group, []).append(place)
    return list(groups.items())


def _run(report: dict[str, Any]) -> dict[str, Any]:
    """How a report was made: its settings and its environment in words, and the command that makes it again."""
    settings = report["settings"]
    targets = settings.get("targets") or list(dict.fromkeys(i["target"] for i in settings.get("implementations", ())))
    command = ["attnspec", "verify", *targets, "--max-examples", settings["max_examples"], "--seed", settings["seed"]]
    if settings.get("arithmetic"):
        command += ["--arithmetic", settings["arithmetic"]]
    if settings.get("laws"):
        command += ["--laws", *settings["laws"]]
    for convention in settings.get("conventions", {}).items():
        command += ["--convention", "=".join(map(str, convention))]
    if settings.get("exclude"):
        command += ["--exclude", *settings["exclude"]]
    if settings.get("only"):
        command += ["--only", *settings["only"]]
    if settings.get("time_limit"):
        command += ["--time-limit", f"{settings['time_limit']:g}"]
    if settings.get("timeout", _TIMEOUT) != _TIMEOUT:
        command += ["--timeout", f"{settings['timeout']:g}"]
    facts = {"examples for each law": settings["max_examples"], "seed": settings["seed"]}
    if "timeout" in settings:
        facts["timeout for a call"] = f"{settings['timeout']:g} s"
    return {
        "facts": facts | settings.get("environment", {}),
        "command": shlex.join(map(str, command)) if targets else "",
    }


def _budgets(excess: float | str | None) -> str:
    """An error in units of its budget, in print."""
    return "–" if excess is None else "∞" if float(excess) == float("inf") else f"{float(excess):.2g}"


def _embedded(data: dict[str, Any]) -> Markup:
    """JSON that no parser of HTML takes for the end of its element."""
    return Markup(json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def _beside(name: str) -> str:
    return Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8")
