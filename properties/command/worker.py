"""The child's side of `attnspec verify`: import what is under test, check law after law as told on
standard input, and find the causes of what was violated.

What it prints, and what code below Python prints, goes to a file: the pipe to the parent is its
own.
"""

import contextlib
import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from properties.campaign.climbing import Worst, climb
from properties.command.configuration import deviating
from properties.command.messages import Climb, Entry, Explain, Failed, Order, Task
from properties.command.sources import sources
from properties.command.targets import Found, TargetError, load
from properties.contract.implementation import Implementation
from properties.contract.results import Call
from properties.laws.law import Law
from properties.verifier.call_record import CallRecord, UnwritableError
from properties.verifier.diagnosis import causes_of
from properties.verifier.examination import Supervision
from properties.verifier.notes import failure
from properties.verifier.plan import plan, without
from properties.verifier.report import Cause, Outcome, Violation
from properties.verifier.script import script
from properties.verifier.verify import examine

__all__ = ["main"]

_MOST_NUMBERS = 2**16  # of the arguments and results of a call that is kept as evidence: it travels


def main() -> None:
    """Answer the parent until it hangs up: first with the entries, or a sentence that says why
    there are none, then task by task.
    """
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    order, note, log = pickle.load(requests)
    _isolate(log)
    calls = CallRecord(Path(note))

    home = os.getpid()

    def answer(something: Any) -> None:
        if os.getpid() != home:  # a fork, by an import, that went on as if it were this process
            os._exit(0)
        answers.write(pickle.dumps(something))
        answers.flush()

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()

    try:
        found = deviating(load(order.targets, order.arithmetic, order.only, order.conventions), order.known_deviations)
        plans = [without(plan(one.implementation, order.laws, order.long, order.quick), order.exclude) for one in found]
    except (TargetError, ValueError) as error:
        answer(str(error))
        return
    except Exception as error:
        answer(failure("it read what there is to verify", error))
        return
    answer([_entry(one, laws, order) for one, laws in zip(found, plans, strict=True)])
    for task in _requests(requests):
        os.ftruncate(2, 0)
        calls.clear()
        one = found[task.entry]
        try:
            if isinstance(task, Task):
                answer(_outcomes(one, task, plans[task.entry], order, calls))
            else:
                answer(_causes(one, task, order, calls) if isinstance(task, Explain) else _worst(one, task, calls))
        except UnwritableError as error:
            answer(str(error))
        except Exception as error:
            answer(Failed(failure("it did what the command had asked for", error)))


def _requests(requests: BinaryIO) -> Any:
    with contextlib.suppress(EOFError):
        while True:
            yield pickle.load(requests)


def _end_with(parent: int) -> None:
    """End this process and all that it started when its parent is no more, even in the middle of a call."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def _isolate(log: str) -> None:
    """Standard input is empty, what is printed goes to a file, a crash says there where it was, and leaves no dump."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    faulthandler.enable(file=2, all_threads=False)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _entry(one: Found, laws: list[Law], order: Order) -> Entry:
    i = one.implementation
    ids = tuple(law.id for law in laws)
    override = order.arithmetic, i.resolved_conventions if order.conventions else None
    where = sources(i.operations, one.target)
    who = one.target, one.group, one.pick, i.name, i.resolved_arithmetic.name
    return Entry(*who, *override, ids, dict(i.known_deviations), where, i.unavailable)


def _outcomes(one: Found, task: Task, planned: list[Law], order: Order, calls: CallRecord) -> list[Outcome]:
    """The outcomes of laws about one operation."""
    laws = [planned[place] for place in task.laws]
    at_work = [laws[0].id]

    def observe(operation: str, arguments: tuple[Any, ...], layout: str) -> None:
        calls.begin(operation, arguments, layout, at_work[0])

    def began(law: str) -> None:
        at_work[0] = law

    def ends(law: str) -> bool:
        return order.fail_fast and not order.known.has(one.implementation.name, law)

    noting = _noting(one.implementation, calls)
    supervision = Supervision(observe, began, order.timeout, task.until, ends)
    found = examine(laws, noting, task.cases, task.seed, supervision)
    return [o if o.violation is None else replace(o, violation=_told(o.violation, one, order)) for o in found]


def _causes(one: Found, task: Explain, order: Order, calls: CallRecord) -> tuple[Cause, ...]:
    """The causes of violations."""
    found = causes_of(_noting(one.implementation, calls), task.violations, task.shrinks, calls.begin, task.until)
    return tuple(replace(cause, example=_told(cause.example, one, order)) for cause in found)


def _worst(one: Found, task: Climb, calls: CallRecord) -> Worst | None:
    """The worst input of a climb; None where there is none, or where its start is a case of another
    version of what is verified.
    """
    noting = _noting(one.implementation, calls)
    try:
        return climb(noting, task.operation, task.domain, task.seed, task.steps, task.start, observe=calls.begin)
    except ValueError:
        return None


def _told(violation: Violation, one: Found, order: Order) -> Violation:
    """A violation with its script, and without the calls that are too large to travel."""
    reading = one.implementation.resolved_conventions if order.conventions else None
    shown = (
        script(violation, one.target, one.pick, order.arithmetic, reading, one.beside)
        if violation.counterexample
        else ""
    )
    return replace(violation, script=shown, right=_light(violation.right), wrong=_light(violation.wrong))


def _light(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    return tuple(
        c
        for c in calls
        if sum(x.size for x in (*c.arguments, *c.outputs) if isinstance(x, np.ndarray)) <= _MOST_NUMBERS
    )


def _noting(implementation: Implementation, calls: CallRecord) -> Implementation:
    """The implementation, each call of which is noted when it is over."""

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # what runs programs is known by its parameters
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                returned = function(*arguments, **options)
            except BaseException:
                calls.end("raised")
                raise
            calls.end("returned")
            return returned

        return call

    def noting_another(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            calls.begin_another()
            try:
                return function(*arguments, **options)
            finally:
                calls.end("returned")

        return call

    beside = tuple(_each(other, noting_another) for other in implementation.beside)
    twins = {
        name: replace(twin, operations=_changed(implementation.paths[name], noting))
        for name, twin in implementation.twins.items()
    }
    return replace(_each(implementation, noting), beside=beside, twins=twins)


def _each(implementation: Implementation, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Implementation:
    """The implementation with all of its operations changed."""
    return replace(implementation, operations=_changed(implementation, change))


def _changed(
    implementation: Implementation, change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """The operations of an implementation, all of them changed."""
    return {name: change(function) for name, function in implementation.operations.items()}


if __name__ == "__main__":
    sys.exit("This is the child's side of `attnspec verify`, which starts it.")
