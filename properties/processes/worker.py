"""Runs the child process: it imports the adapters (files with kernels), checks the laws of one task
after another, and finds causes of failures.

The pipe to the parent carries only messages. Everything that Python, or code below Python, prints
goes to a log file.
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.results import Call
from properties.contract.support import SupportsError
from properties.interpreters import interpret
from properties.laws.law import Law
from properties.processes.adapters import AdapterError, Found, at_cost, load
from properties.processes.deviations import with_deviations
from properties.processes.messages import Climb, Entry, Explain, Failed, Order, Progress, Replay, Task
from properties.processes.sources import sources
from properties.verifier.call_record import CallRecord, UnwritableError
from properties.verifier.diagnosis import causes_of
from properties.verifier.examination import Examination, Supervision
from properties.verifier.notes import failure
from properties.verifier.plan import plan, without
from properties.verifier.replay import replayed
from properties.verifier.report import Cause, Outcome, Violation
from properties.verifier.script import script
from properties.verifier.verify import examine
from properties.verifier.worst_input import Worst, climb

__all__ = ["main"]

_SHARE_BETWEEN_PROGRESS = 1 / 20  # of the time so far; a parent that is busy reads nothing, and a pipe is small
_MOST_NUMBERS = 2**16  # in the arguments and results of a call that travels to the parent as evidence


def main() -> None:
    """Answer the parent process until it closes the pipe.

    The first answer is the list of implementations, or a sentence that says what is wrong. Then
    comes one answer for each task; before the answer to a `Task` comes its progress, now and then.
    """
    requests, answers = os.fdopen(os.dup(0), "rb"), Connection(os.dup(1), readable=False)
    order, note, log = pickle.load(requests)
    _isolate(log)
    calls = CallRecord(Path(note))

    home = os.getpid()

    def answer(message: Any) -> None:
        if os.getpid() != home:  # an import has forked, and the fork went on as if it were this process
            os._exit(0)
        answers.send_bytes(pickle.dumps(message))

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()

    try:
        if order.interpret:
            interpret()
        adapters = load(order.targets, order.arithmetic, order.only, order.conventions, shapes=order.shapes)
        found = with_deviations([at_cost(one, order.most_seconds) for one in adapters], order.known_deviations)
        plans = [without(plan(one.implementation, order.laws, order.long, order.quick), order.exclude) for one in found]
    except (AdapterError, ValueError) as error:
        answer(str(error))
        return
    except Exception as error:
        answer(failure("it read what there is to verify", error))
        return
    answer([_entry(one, laws, order) for one, laws in zip(found, plans, strict=True)])
    for task in _requests(requests):
        os.ftruncate(2, 0)
        calls.clear(task.entry)
        one = found[task.entry]
        try:
            match task:
                case Task():
                    answer(_outcomes(one, task, plans[task.entry], order, calls, answer))
                case Explain():
                    answer(_causes(one, task, order, calls))
                case Replay():
                    answer(_replayed(one, task, order, calls))
                case Climb():
                    answer(_worst(one, task, calls))
        except (SupportsError, UnwritableError) as error:
            answer(error)
        except Exception as error:
            answer(Failed(failure("it did what the command had asked for", error)))


def _requests(requests: BinaryIO) -> Any:
    with contextlib.suppress(EOFError):
        while True:
            yield pickle.load(requests)


def _end_with(parent: int) -> None:
    """End this process and everything that it started when the parent process dies, even in the
    middle of a call.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def _isolate(log: str) -> None:
    """Close standard input, and send all output to the log file. If the process crashes, it writes
    there which line it was in, and leaves no core file.
    """
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    faulthandler.enable(file=2, all_threads=False)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _entry(one: Found, laws: list[Law], order: Order) -> Entry:
    implementation = one.implementation
    return Entry(
        *(one.target, one.group, one.pick, implementation.name, implementation.resolved_arithmetic.name),
        order.arithmetic,
        _conventions_to_show(one, order),
        tuple(law.id for law in laws),
        dict(implementation.known_deviations),
        sources(implementation.operations, one.target),
        implementation.unavailable,
    )


def _conventions_to_show(one: Found, order: Order) -> Any:
    """Return the conventions that a script has to state: those of the order, because they replace
    the declared ones; else None.
    """
    return one.implementation.resolved_conventions if order.conventions else None


def _outcomes(
    one: Found, task: Task, planned: list[Law], order: Order, calls: CallRecord, report: Callable[[Progress], None]
) -> list[Outcome]:
    """Return the outcomes of a task's laws, and report the progress: first after a second, later less
    often. The scripts of large inputs take long to write, so a report is followed by a pause of 20 times
    its own time.
    """
    laws = [planned[position] for position in task.laws]
    current_law, start = [laws[0].id], time.monotonic()
    reported, spent_on_report = [start], [0.0]

    def observe(operation: str, arguments: tuple[Any, ...], layout: str) -> None:
        calls.begin(operation, arguments, layout, current_law[0])

    def began(law: str) -> None:
        current_law[0] = law

    def ends(law: str) -> bool:
        return order.fail_fast and not order.known.has(one.implementation.name, law)

    def checked(examination: Examination) -> None:
        now = time.monotonic()
        pause = max(1.0, _SHARE_BETWEEN_PROGRESS * (now - start), spent_on_report[0] / _SHARE_BETWEEN_PROGRESS)
        if now - reported[0] < pause:
            return
        outcomes = tuple(
            outcome
            if outcome.violation is None
            else replace(outcome, violation=_ready_to_send(outcome.violation.without_calls(), one, order))
            for outcome in examination.so_far()
        )
        numbers = examination.evidence.cases, examination.planned, calls.made, calls.spent, now - start
        report(Progress(examination.operation, *numbers, outcomes))
        reported[0] = time.monotonic()
        spent_on_report[0] = reported[0] - now

    noting = _noting(one.implementation, calls)
    supervision = Supervision(observe, began, order.timeout, task.until, ends, checked=checked)
    outcomes = examine(laws, noting, task.cases, task.seed, supervision)
    return [
        outcome
        if outcome.violation is None
        else replace(outcome, violation=_ready_to_send(outcome.violation, one, order))
        for outcome in outcomes
    ]


def _causes(one: Found, task: Explain, order: Order, calls: CallRecord) -> tuple[Cause, ...]:
    """Return the causes of a task's violations (failed laws)."""
    causes = causes_of(_noting(one.implementation, calls), task.violations, task.shrinks, calls.begin, task.until)
    return tuple(replace(cause, example=_ready_to_send(cause.example, one, order)) for cause in causes)


def _replayed(one: Found, task: Replay, order: Order, calls: CallRecord) -> Violation | None:
    """The violation of a task as it shows in this process, with its script; None if the law passes."""
    found = replayed(_noting(one.implementation, calls), task.violation, calls.begin)
    return None if found is None else _ready_to_send(found, one, order)


def _worst(one: Found, task: Climb, calls: CallRecord) -> Worst | None:
    """Return the worst input that a task's search finds.

    Return None if no input can be judged, or if the start does not fit this version of the
    implementation.
    """
    noting = _noting(one.implementation, calls)
    try:
        return climb(noting, task.operation, task.domain, task.seed, task.steps, task.start, observe=calls.begin)
    except SupportsError:
        raise
    except ValueError:
        return None


def _ready_to_send(violation: Violation, one: Found, order: Order) -> Violation:
    """Return a violation (failed law) with its script, and without the calls that are too large to
    send.
    """
    reproduction = ""
    if violation.counterexample:
        conventions = _conventions_to_show(one, order)
        reproduction = script(violation, one.target, one.pick, order.arithmetic, conventions, one.beside)
    return replace(
        violation,
        script=reproduction,
        right=_small(violation.right),
        wrong=_small(violation.wrong),
        refused=_small(violation.refused),
    )


def _small(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls that are small enough to send."""
    return tuple(call for call in calls if _numbers_in(call) <= _MOST_NUMBERS)


def _numbers_in(call: Call) -> int:
    return sum(value.size for value in (*call.arguments, *call.outputs) if isinstance(value, np.ndarray))


def _noting(implementation: Implementation, calls: CallRecord) -> Implementation:
    """Return the implementation with functions that record when a call is over."""

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # the function that runs programs is known by its parameters
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

    beside = tuple(replace(other, operations=_changed(other, noting_another)) for other in implementation.beside)
    twins = {
        name: replace(twin, operations=_changed(implementation.paths[name], noting))
        for name, twin in implementation.twins.items()
    }
    return replace(implementation, operations=_changed(implementation, noting), beside=beside, twins=twins)


def _changed(
    implementation: Implementation, change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Return the operations of an implementation, each function replaced by `change(function)`."""
    return {name: change(function) for name, function in implementation.operations.items()}


if __name__ == "__main__":
    sys.exit("`attnspec verify` starts this program; it is not a command.")
