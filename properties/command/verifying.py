"""Runs the steps of `attnspec verify`: makes an order (the settings) from the options, runs it,
writes and prints the report.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

from rich.console import Console

from oracles.formats import resolve
from properties.command import forms
from properties.command.configuration import configure
from properties.command.outputs import printing
from properties.command.run import Run, run
from properties.contract.costs import COSTS
from properties.contract.names import parts_of
from properties.contract.wanted_shapes import as_text, checked
from properties.laws import find
from properties.processes.messages import Order
from properties.processes.signals import StoppedError
from properties.verifier.comparison import Comparison, Known, against
from properties.verifier.plan import QUICKLY
from properties.verifier.report import Outcome, Report, counted, with_causes
from properties.verifier.report_file import read
from properties.verifier.trial import FAILED
from properties.views.compared import print_comparison
from properties.views.html.environment import environment
from properties.views.short import short
from properties.views.terminal import print_report, verdict_of

__all__ = ["order_of", "verify"]

_AS_GIVEN = (
    "targets",
    "arithmetic",
    "conventions",
    "known_deviations",
    "laws",
    "exclude",
    "only",
    "long",
    "quick",
    "time_limit",
    "interpret",
    "cost",
)
"""The options that the settings of a report show unchanged."""


def verify(options: argparse.Namespace) -> int:
    """Verify the adapters that the options name, print and write the report, and return the exit
    status.

    Raises ValueError, with a sentence, if that cannot be done.
    """
    start = time.monotonic()
    configure(options)
    baseline = None if options.baseline is None else read(options.baseline)
    order = order_of(options, Known.of(baseline))
    places = forms.places(options)
    known = run(order, options.jobs)
    _require_laws_on_offer(options, order, known)
    report, changes = replace(_report(options, order, known), seconds=time.monotonic() - start), None
    if baseline is not None:
        report, changes = against(report, baseline)
    problems = list(forms.lost(places, report))
    _print(options, report, changes, known)
    forms.annotate(report)
    return _status(report, known.stopped, problems)


def order_of(options: argparse.Namespace, known: Known) -> Order:
    """Return the order (the settings) that the options describe, with the full names of laws.
    Raises ValueError for an unknown law or arithmetic.
    """
    resolve(options.arithmetic)
    return Order(
        targets=tuple(options.targets),
        only=tuple(options.only),
        arithmetic=options.arithmetic,
        conventions=options.conventions,
        known_deviations=options.known_deviations,
        laws=_ids(options.laws) if options.laws else None,
        exclude=_ids(options.exclude),
        long=options.long,
        quick=options.quick,
        max_examples=min(options.max_examples, QUICKLY) if options.quick else options.max_examples,
        seed=options.seed,
        timeout=options.timeout,
        shapes=checked(options.shapes),
        time_limit=options.time_limit or inf,
        fail_fast=options.fail_fast,
        known=known,
        most_seconds=options.cost or (COSTS["small" if options.quick else "normal"] if options.interpret else inf),
        interpret=options.interpret,
    )


def _ids(texts: list[str]) -> tuple[str, ...]:
    """Return the laws that the texts mean, as "law[operation]", each of them once."""
    return tuple(dict.fromkeys(law.id for text in texts for law in find(text)))


def _require_laws_on_offer(options: argparse.Namespace, order: Order, known: Run) -> None:
    """Raise ValueError for a requested law that is about no operation of the implementations.
    attnspec would not check it.
    """
    planned = {*order.exclude, *(law for entry in known.entries for law in entry.laws)}
    for text in options.laws or () if known.entries else ():
        if planned.isdisjoint(_ids([text])):
            raise ValueError(f"{text!r} is not about an operation of {' and '.join(options.targets)}.")


def _report(options: argparse.Namespace, order: Order, known: Run) -> Report:
    """Return the report: the outcomes of all planned laws, and the causes of the violations (failed
    laws).
    """
    settings: dict[str, Any] = {
        "max_examples": order.max_examples,
        "seed": order.seed,
        "timeout": order.timeout,
        **{name: getattr(options, name) for name in _AS_GIVEN},
        "shapes": [as_text(shape) for shape in order.shapes],
        "baseline": str(options.baseline) if options.baseline else None,
        "environment": environment(),
        "implementations": [entry.to_dict() for entry in known.entries],
    }
    reason = f"{FAILED} (--fail-fast)." if options.fail_fast else ""
    reason = f"It was not run: {known.stopped}." if known.stopped is not None else reason
    outcomes, causes = with_causes(_planned(known, reason), known.causes, lambda violation: violation.script)
    return Report(outcomes, settings, known.stopped is not None, options.strict, causes)


def _planned(known: Run, why: str) -> Iterator[Outcome]:
    """Yield the outcomes of the planned laws in order. A law without an outcome is "not run", with
    the reason `why`.
    """
    for place, entry in enumerate(known.entries):
        for law in entry.laws:
            missing = Outcome(*parts_of(law), entry.name, "not run", reason=why)
            yield known.outcomes.get((place, law), missing)


def _print(options: argparse.Namespace, report: Report, changes: Comparison | None, known: Run) -> None:
    """Print the report, or its JSON, and the changes since the baseline."""
    groups: dict[str, list[str]] = {}
    for entry in known.entries:
        groups.setdefault(entry.group, []).append(entry.name)
    with printing(verdict_of(report)):
        if options.json == "-":
            print(forms.as_json(report), end="")
        elif options.format == "short":
            print(f"{short(report)}{verdict_of(report)}")
        elif known.entries:
            print_report(Console(), report, groups, options.all)
            if changes is not None:
                print_comparison(Console(highlight=False), changes, str(options.baseline), "now")


def _status(report: Report, stopped: Exception | None, lost: list[str]) -> int:
    """Return the exit status of the command.

    Raises ValueError, with a sentence, if an output could not be written, if something other than a
    signal ended the run, or if attnspec itself failed and no law fails.
    """
    if isinstance(stopped, StoppedError) and not lost:
        return stopped.status
    if lost or stopped is not None:
        raise ValueError(" ".join([*lost, *([str(stopped)] if stopped is not None else [])]))
    if (failed := sum(outcome.defect and not outcome.known for outcome in report.outcomes)) and not report.violations:
        raise ValueError(f"attnspec itself failed: {counted(failed, 'law')} could not be checked. The report says why.")
    return 0 if report.ok else 3 if report.is_inconclusive else 1
