"""The command `attnspec`: verify implementations, and read about the laws and the known bugs."""

# PYTHON_ARGCOMPLETE_OK: who has argcomplete's global completion needs no other

import argparse
import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from properties.command.outputs import complain, file_to_write, folder_of_page, open_streams, printing
from properties.command.signals import Signals, StoppedError

if TYPE_CHECKING:
    from rich.console import Console

    from properties.command.worker import Entry
    from properties.verifier.report import Cause, Outcome, Report

__all__ = ["main"]

_MODULES = ("spec", "oracles", "properties")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 when every law held or the page was printed, 1 when some law failed, 2 when it cannot be done, and 129,
    130 or 143 when SIGHUP, SIGINT or SIGTERM ended it."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks, at a press of Tab
        from properties.command.completion import answer

        answer(parser)
    options = parser.parse_args(arguments)
    try:
        open_streams()
        with printing():
            code: int = options.run(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ValueError as error:  # a name that there is not, a target that is none: the sentence says it
        complain(str(error))
        return 2
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnspec", description="Laws of attention and positional encodings, and who breaks them.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    verify = commands.add_parser(
        "verify",
        help="check every law on implementations",
        description="Check every law on implementations, in child processes, and diagnose what fails. "
        "Exit status: 0 every law held, 1 some law failed, 2 the command, an implementation or a place to write to is unusable; "
        "129, 130 or 143 after SIGHUP, SIGINT or SIGTERM.",
    )
    verify.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="module:attribute, or a module: functions of the operations' names in a mapping or an object, a properties.Implementation, "
        "a list of them, or a mapping from groups to lists",
    )
    verify.add_argument("--arithmetic", metavar="NAME", help="what is rounded, as float32 or bfloat16, instead of what is declared")
    verify.add_argument(
        "--max-examples", type=_natural, default=100, metavar="N", help="cases of each operation, of all kinds together (100)"
    )
    verify.add_argument("--seed", type=int, default=0, metavar="N", help="what the cases are drawn from (0): the same seed, the same cases")
    verify.add_argument("--laws", nargs="+", action="extend", metavar="LAW", help="some laws only, by name or name[operation]")
    verify.add_argument("--quick", action="store_true", help="few laws on few cases, which see nearly all known bugs within seconds")
    verify.add_argument("--long", action="store_true", help="the long plan too: laws with 131072 keys, which take minutes")
    verify.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="TEXT", help="some implementations only, or groups of them"
    )
    verify.add_argument("--jobs", type=_natural, default=min(4, os.cpu_count() or 1), metavar="N", help="processes (%(default)s)")
    verify.add_argument("--timeout", type=_positive, default=60.0, metavar="SECONDS", help="for one call (60)")
    verify.add_argument("--json", metavar="FILE", help="write the report as JSON too; - writes it to standard output, and nothing else")
    verify.add_argument("--html", metavar="DIR", help="write the report as a page too: DIR/index.html")
    verify.add_argument("--strict", action="store_true", help="exit status 1 where something is suspicious, too")
    verify.add_argument("--fail-fast", action="store_true", help="begin no other operation after the first violation")
    verify.add_argument("--all", action="store_true", help="a row for every law, and every violation in a few lines")
    verify.set_defaults(run=_verify)

    report = commands.add_parser("report", help="make a page of reports that `attnspec verify --json` wrote")
    report.add_argument(
        "reports", nargs="+", metavar="FILE", type=Path, help="what `attnspec verify --json FILE` wrote; of several one page"
    )
    report.add_argument("--html", metavar="DIR", required=True, help="where: DIR/index.html")
    report.set_defaults(run=_report)

    laws = commands.add_parser("laws", help="list the laws, or show one")
    laws.add_argument("law", nargs="?", metavar="LAW", help="its name, or a part that no other has")
    laws.set_defaults(run=_laws)
    bugs = commands.add_parser("bugs", help="list the known bugs, or show one")
    bugs.add_argument("bug", nargs="?", metavar="BUG", help="its name, or a part that no other has")
    bugs.set_defaults(run=_bugs)
    explain = commands.add_parser("explain", help="show a law: what it says, of what, and the bug that it is there for")
    explain.add_argument("law", metavar="LAW", help="its name, or a part that no other has")
    explain.set_defaults(run=_laws)
    completion = commands.add_parser("completion", help='print the completions of a shell: eval "$(attnspec completion bash)"')
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    completion.set_defaults(run=_completion)
    return parser


def _natural(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a whole number from 1.")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a positive number of seconds.")
    return number


def _laws(options: argparse.Namespace) -> int:
    from rich.console import Console

    from properties.views.pages import laws_of, print_law, print_laws

    if options.law is None:
        print_laws(Console())
    else:
        print_law(Console(), laws_of(options.law))
    return 0


def _bugs(options: argparse.Namespace) -> int:
    from rich.console import Console

    from properties.bugs import CATALOGUE
    from properties.views.pages import named, print_bug, print_bugs

    if options.bug is None:
        print_bugs(Console())
    else:
        print_bug(Console(), CATALOGUE[named(options.bug, CATALOGUE, "bug")])
    return 0


def _completion(options: argparse.Namespace) -> int:
    from properties.command.completion import script

    print(script(options.shell), end="")
    return 0


def _report(options: argparse.Namespace) -> int:
    folder = folder_of_page(options.html, "--html")
    from properties.views.html.page import read, write

    print(write([read(file) for file in options.reports], folder))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from rich.console import Console

    from oracles.formats import resolve
    from properties.command.worker import Order
    from properties.verifier.report import Report, with_causes
    from properties.verifier.verify import QUICKLY
    from properties.views.html.environment import environment
    from properties.views.pages import laws_of
    from properties.views.terminal import print_report, verdict_of

    resolve(options.arithmetic)
    laws = tuple(dict.fromkeys(law.id for text in options.laws for law in laws_of(text))) if options.laws else None
    file = None if options.json in (None, "-") else file_to_write(options.json, "--json")
    folder = None if options.html is None else folder_of_page(options.html, "--html")
    chosen = tuple(options.targets), options.arithmetic, laws
    examples = min(options.max_examples, QUICKLY) if options.quick else options.max_examples
    order = Order(*chosen, examples, options.seed, options.timeout, tuple(options.only), options.long, options.quick)
    entries, found, causes, stopped = _run(order, options.jobs, options.timeout, options.fail_fast)
    planned = {law for entry in entries for law in entry.laws}
    for text in options.laws or () if entries else ():
        if planned.isdisjoint(law.id for law in laws_of(text)):
            raise ValueError(f"{text!r} is not about what {' and '.join(options.targets)} offers.")
    settings = {
        "max_examples": examples,
        "seed": options.seed,
        "timeout": options.timeout,
        "targets": options.targets,
        "arithmetic": options.arithmetic,
        "laws": options.laws,
        "only": options.only,
        "long": options.long,
        "quick": options.quick,
        "environment": environment(),
        "implementations": [{key: getattr(entry, key) for key in ("name", "group", "target", "arithmetic")} for entry in entries],
    }
    why = "After the first violation no operation is begun (--fail-fast)." if options.fail_fast else ""
    why = f"It was not run: {stopped}." if stopped is not None else why
    outcomes, causes = with_causes(_in_order(entries, found, why), causes, lambda violation: violation.script)
    report = Report(outcomes, settings, stopped is not None, options.strict, causes)
    lost = [*(_lost(file, _json(report)) if file else ()), *(_lost_page(folder, report) if folder and entries else ())]
    groups: dict[str, list[str]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry.name)
    with printing(verdict_of(report)):
        if options.json == "-":
            print(_json(report), end="")
        elif entries:
            print_report(Console(), report, groups, options.all)
    if isinstance(stopped, StoppedError) and not lost:
        return stopped.status
    if lost or stopped is not None:
        raise ValueError(" ".join([*lost, *([str(stopped)] if stopped is not None else [])]))
    return 0 if report.ok else 1


def _lost(file: Path, text: str) -> Iterator[str]:
    """The sentence on a file that cannot be written after all, if it cannot."""
    from properties.views.whole import write_whole

    try:
        write_whole(file, text)
    except OSError as error:
        yield f"{file} cannot be written: {error.strerror}."


def _lost_page(folder: Path, report: "Report") -> Iterator[str]:
    """The same for a page."""
    from properties.views.html.page import write

    try:
        write([report.to_dict()], folder)
    except OSError as error:
        yield f"{folder} cannot be written to: {error.strerror}."


def _json(report: "Report") -> str:
    return json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"


def _run(
    order: Any, jobs: int, timeout: float, fail_fast: bool
) -> tuple[list["Entry"], list[tuple[int, "Outcome"]], tuple["Cause", ...], Exception | None]:
    """The entries, the outcomes known, each with its entry's place, the causes, and what stopped the run before its end, or None."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from properties.command.runner import Runner
    from properties.command.targets import TargetError
    from properties.verifier.note import UnwritableError

    for name in _MODULES:  # before the working directory, where others of these names may be
        __import__(name)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))  # the processes share the processors
    log = Console(stderr=True)
    entries: list[Entry] = []
    found: list[tuple[int, Outcome]] = []
    causes: dict[int, tuple[Cause, ...]] = {}
    columns = (
        SpinnerColumn(),
        BarColumn(24),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    try:
        with Signals() as signals, Progress(*columns, console=log, transient=True, disable=not log.is_interactive) as progress:
            task = progress.add_task(f"importing {escape(' '.join(order.targets))}", total=None)
            with Runner(order, jobs, timeout, fail_fast, signals) as runner:
                entries = runner.entries
                left = [len(entry.laws) for entry in entries]
                progress.update(task, total=sum(left))
                for place, outcome in runner.outcomes():
                    if isinstance(outcome, tuple):
                        causes[place] = (*causes.get(place, ()), *outcome)
                        continue
                    found.append((place, outcome))
                    left[place] -= 1
                    progress.update(task, advance=1, description=escape(f"{outcome.implementation}: {outcome.law}"))
                    if not left[place] and not log.is_interactive:
                        _print_line(log, [o for p, o in found if p == place])
            signals.obey()
    except (StoppedError, TargetError) as stopped:
        return entries, found, _flat(causes), stopped
    except (OSError, UnwritableError) as error:
        return (
            entries,
            found,
            _flat(causes),
            TargetError(f"The processes cannot be run: {str(getattr(error, 'strerror', '') or error).rstrip('.')}."),
        )
    return entries, found, _flat(causes), None


def _flat(causes: dict[int, tuple["Cause", ...]]) -> tuple["Cause", ...]:
    """The causes of all entries, in their order."""
    return tuple(cause for place in sorted(causes) for cause in causes[place])


def _print_line(log: "Console", outcomes: list["Outcome"]) -> None:
    statuses = [o.status for o in outcomes]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    with suppress(OSError):  # of a full disk: the verdict is what matters
        print(f"{outcomes[0].implementation}: {counts} ({sum(o.seconds for o in outcomes):.1f} s)", file=log.file, flush=True)


def _in_order(entries: list["Entry"], found: list[tuple[int, "Outcome"]], why: str) -> list["Outcome"]:
    """The outcomes as they were planned; "not run", and why, for those that are not known."""
    from properties.verifier.report import Outcome

    known = {(place, f"{o.law}[{o.operation}]"): o for place, o in found}
    outcomes = []
    for place, entry in enumerate(entries):
        for law in entry.laws:
            name, _, operation = law.partition("[")
            missing = Outcome(name, operation.removesuffix("]"), entry.name, "not run", reason=why)
            outcomes.append(known.get((place, law), missing))
    return outcomes
