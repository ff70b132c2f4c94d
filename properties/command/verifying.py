"""What `attnspec verify` does: options become an order, the order is run, and a report on what came
of it is written and printed.
"""

import argparse
from collections.abc import Iterator
from math import inf
from typing import Any

from rich.console import Console

from oracles.formats import resolve
from properties.command import forms
from properties.command.configuration import configure
from properties.command.messages import Order
from properties.command.outputs import printing
from properties.command.run import Run, run
from properties.command.signals import StoppedError
from properties.contract.names import parts_of
from properties.laws import find
from properties.verifier.comparison import Comparison, Known, against
from properties.verifier.plan import QUICKLY
from properties.verifier.reading import read
from properties.verifier.report import Outcome, Report, counted, with_causes
from properties.verifier.trial import FAILED
from properties.views.compared import print_comparison
from properties.views.html.environment import environment
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
    "budget",
)
"""The options that a report's settings have as they were given."""


def verify(options: argparse.Namespace) -> int:
    """Verify what options name, and print and write down what came of it; the exit status. Raises
    ValueError where it cannot be done.
    """
    configure(options)
    baseline = None if options.baseline is None else read(options.baseline)
    order = order_of(options, Known.of(baseline))
    places = forms.places(options)
    known = run(order, options.jobs)
    _require_laws_on_offer(options, order, known)
    report, changes = _report(options, order, known), None
    if baseline is not None:
        report, changes = against(report, baseline)
    lost = list(forms.lost(places, report))
    _print(options, report, changes, known)
    forms.annotate(report)
    return _status(report, known.stopped, lost)


def order_of(options: argparse.Namespace, known: Known) -> Order:
    """What is to be run, with laws by their whole names. Raises ValueError for a law or an
    arithmetic that there is not.
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
        budget=options.budget or inf,
        fail_fast=options.fail_fast,
        known=known,
    )


def _ids(texts: list[str]) -> tuple[str, ...]:
    """The laws that some texts mean, "law[operation]", each once."""
    return tuple(dict.fromkeys(law.id for text in texts for law in find(text)))


def _require_laws_on_offer(options: argparse.Namespace, order: Order, known: Run) -> None:
    """Raise ValueError for a law that was asked for and is of no operation on offer: it would not
    be looked at, without a word.
    """
    planned = {*order.exclude, *(law for entry in known.entries for law in entry.laws)}
    for text in options.laws or () if known.entries else ():
        if planned.isdisjoint(_ids([text])):
            raise ValueError(f"{text!r} is not about what {' and '.join(options.targets)} offers.")


def _report(options: argparse.Namespace, order: Order, known: Run) -> Report:
    """What came of all laws that were planned, each violation with its cause."""
    settings: dict[str, Any] = {
        "max_examples": order.max_examples,
        "seed": order.seed,
        "timeout": order.timeout,
        **{name: getattr(options, name) for name in _AS_GIVEN},
        "baseline": str(options.baseline) if options.baseline else None,
        "environment": environment(),
        "implementations": [entry.to_dict() for entry in known.entries],
    }
    why = f"{FAILED} (--fail-fast)." if options.fail_fast else ""
    why = f"It was not run: {known.stopped}." if known.stopped is not None else why
    outcomes, causes = with_causes(_planned(known, why), known.causes, lambda violation: violation.script)
    return Report(outcomes, settings, known.stopped is not None, options.strict, causes)


def _planned(known: Run, why: str) -> Iterator[Outcome]:
    """The outcomes as they were planned; "not run", and why, for those that are not known."""
    for place, entry in enumerate(known.entries):
        for law in entry.laws:
            missing = Outcome(*parts_of(law), entry.name, "not run", reason=why)
            yield known.outcomes.get((place, law), missing)


def _print(options: argparse.Namespace, report: Report, changes: Comparison | None, known: Run) -> None:
    """Print the report, as JSON where that is asked for, and what changed since the baseline."""
    groups: dict[str, list[str]] = {}
    for entry in known.entries:
        groups.setdefault(entry.group, []).append(entry.name)
    with printing(verdict_of(report)):
        if options.json == "-":
            print(forms.as_json(report), end="")
        elif known.entries:
            print_report(Console(), report, groups, options.all)
            if changes is not None:
                print_comparison(Console(highlight=False), changes, str(options.baseline), "now")


def _status(report: Report, stopped: Exception | None, lost: list[str]) -> int:
    """The exit status. Raises ValueError, with the sentences, where something could not be written,
    or the run was ended by no signal, or attnspec itself failed and no law did."""
    if isinstance(stopped, StoppedError) and not lost:
        return stopped.status
    if lost or stopped is not None:
        raise ValueError(" ".join([*lost, *([str(stopped)] if stopped is not None else [])]))
    if (failed := sum(o.defect and not o.known for o in report.outcomes)) and not report.violations:
        raise ValueError(f"attnspec itself failed: {counted(failed, 'law')} could not be checked. The report says why.")
    return 0 if report.ok else 1
