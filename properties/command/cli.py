"""The command `attnspec`: verify implementations, and read about the laws and the known bugs."""

# PYTHON_ARGCOMPLETE_OK: who has argcomplete's global completion needs no other

import argparse
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from properties.command import listings, new
from properties.command.outputs import complain, folder_of_page, folder_to_write, open_streams, printing
from properties.command.signals import Signals, StoppedError

if TYPE_CHECKING:
    from rich.console import Console

    from properties.command.worker import Entry
    from properties.verifier.report import Cause, Outcome

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
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    verify = commands.add_parser(
        "verify",
        help="check every law on implementations",
        description="Check every law on implementations, in child processes, and diagnose what fails. "
        "What a project says in the table [tool.attnspec] of pyproject.toml need not be said. "
        "Exit status: 0 every law held, 1 some law failed, 2 the command, an implementation or a place to write to is unusable; "
        "129, 130 or 143 after SIGHUP, SIGINT or SIGTERM.",
    )
    verify.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="file.py or a module, with :attribute where it has several: functions of the operations' names in a mapping or an object, "
        "a properties.Implementation, a list of them, or a mapping from groups to lists; those of pyproject.toml if none is named",
    )
    verify.add_argument("--arithmetic", metavar="NAME", help="what is rounded, as float32 or bfloat16, instead of what is declared")
    verify.add_argument(
        "--convention",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a reading that it follows, as rope_pairing=half, instead of what is declared; may be repeated",
    )
    verify.add_argument("--max-examples", type=_natural, metavar="N", help="cases of each operation, of all kinds together (100)")
    verify.add_argument("--seed", type=int, metavar="N", help="what the cases are drawn from (0): the same seed, the same cases")
    verify.add_argument("--laws", nargs="+", action="extend", metavar="LAW", help="some laws only, by name or name[operation]")
    verify.add_argument("--exclude", nargs="+", action="extend", default=[], metavar="LAW", help="laws that are left out")
    verify.add_argument("--quick", action="store_true", help="few laws on few cases, which see nearly all known bugs within seconds")
    verify.add_argument("--long", action="store_true", help="the long plan too: laws with 131072 keys, which take minutes")
    verify.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="TEXT", help="some implementations only, or groups of them"
    )
    verify.add_argument("--jobs", type=_natural, default=min(4, os.cpu_count() or 1), metavar="N", help="processes (%(default)s)")
    verify.add_argument("--timeout", type=_positive, default=60.0, metavar="SECONDS", help="for one call (60)")
    verify.add_argument(
        "--budget", type=_duration, metavar="TIME", help="60s or 5m for all: cases are drawn in time; laws cut short have not held"
    )
    verify.add_argument("--json", metavar="FILE", help="write the report as JSON too; - writes it to standard output, and nothing else")
    verify.add_argument("--html", metavar="DIR", help="write the report as a page too: DIR/index.html")
    verify.add_argument(
        "--baseline", metavar="FILE", type=Path, help="fail on what is new against an earlier report in JSON, and on nothing else"
    )
    verify.add_argument("--junit", metavar="FILE", help="write the report as JUnit's XML too: a failed test for each cause")
    verify.add_argument("--sarif", metavar="FILE", help="write the report as SARIF too, for code scanning: a result for each cause")
    verify.add_argument(
        "--write-tests", metavar="DIR", help="write the input that shows each cause as a test for pytest, which passes when it is mended"
    )
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

    compare = commands.add_parser(
        "compare",
        help="say what broke, what was mended, and what got slower or further from its budget between two reports",
        description="Compare two reports that `attnspec verify --json` wrote. "
        "Exit status: 0 nothing broke, 1 something did, 2 one is no report.",
    )
    compare.add_argument("before", metavar="BEFORE", type=Path, help="the earlier report")
    compare.add_argument("after", metavar="AFTER", type=Path, help="the later one")
    compare.set_defaults(run=_compare)

    new.add_to(commands)
    listings.add_to(commands)
    completion = commands.add_parser("completion", help='print the completions of a shell: eval "$(attnspec completion bash)"')
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    completion.set_defaults(run=_completion)
    return parser


class _Version(argparse.Action):
    """Print the version, of the distribution that is installed, and end."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any, **named: Any) -> None:
        from importlib.metadata import version

        print(f"attnspec {version('attnspec')}")
        parser.exit()


def _natural(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a whole number from 1.")
    return int(text)


def _duration(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a time, as 60s, 5m or 1h.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a positive number of seconds.")
    return number


def _completion(options: argparse.Namespace) -> int:
    from properties.command.completion import script

    print(script(options.shell), end="")
    return 0


def _report(options: argparse.Namespace) -> int:
    folder = folder_of_page(options.html, "--html")
    from properties.verifier.reading import read
    from properties.views.html.page import write

    print(write([read(file) for file in options.reports], folder))
    return 0


def _compare(options: argparse.Namespace) -> int:
    from rich.console import Console

    from properties.verifier.comparison import compared
    from properties.verifier.reading import read
    from properties.views.compared import print_comparison

    found = compared(read(options.before), read(options.after))
    print_comparison(Console(highlight=False), found, str(options.before), str(options.after))
    return 1 if found.broke else 0


def _verify(options: argparse.Namespace) -> int:
    from rich.console import Console

    from oracles.formats import resolve
    from properties.command import forms
    from properties.command.configuration import configure
    from properties.command.worker import Order
    from properties.laws import find
    from properties.verifier.comparison import against
    from properties.verifier.reading import read
    from properties.verifier.report import Report, with_causes
    from properties.verifier.verify import QUICKLY
    from properties.views.compared import print_comparison
    from properties.views.html.environment import environment
    from properties.views.terminal import print_report, verdict_of

    configure(options)
    resolve(options.arithmetic)
    laws = tuple(dict.fromkeys(law.id for text in options.laws for law in find(text))) if options.laws else None
    exclude = tuple(dict.fromkeys(law.id for text in options.exclude for law in find(text)))
    files = forms.files(options)
    folder = None if options.html is None else folder_of_page(options.html, "--html")
    tests = None if options.write_tests is None else folder_to_write(options.write_tests, "--write-tests")
    baseline = None if options.baseline is None else read(options.baseline)
    chosen = tuple(options.targets), options.arithmetic, laws
    examples = min(options.max_examples, QUICKLY) if options.quick else options.max_examples
    limits = examples, options.seed, options.timeout
    plan = options.long, options.quick, options.budget or inf
    order = Order(*chosen, *limits, tuple(options.only), options.conventions, exclude, *plan, options.known_deviations)
    entries, found, causes, stopped = _run(order, options.jobs, options.timeout, options.fail_fast)
    planned = {*exclude, *(law for entry in entries for law in entry.laws)}
    for text in options.laws or () if entries else ():
        if planned.isdisjoint(law.id for law in find(text)):
            raise ValueError(f"{text!r} is not about what {' and '.join(options.targets)} offers.")
    settings = {
        "max_examples": examples,
        "seed": options.seed,
        "timeout": options.timeout,
        "targets": options.targets,
        "arithmetic": options.arithmetic,
        "conventions": options.conventions,
        "known_deviations": options.known_deviations,
        "laws": options.laws,
        "exclude": options.exclude,
        "only": options.only,
        "long": options.long,
        "quick": options.quick,
        "budget": options.budget,
        "baseline": str(options.baseline) if options.baseline else None,
        "environment": environment(),
        "implementations": [entry.to_dict() for entry in entries],
    }
    why = "After the first violation no operation is begun (--fail-fast)." if options.fail_fast else ""
    why = f"It was not run: {stopped}." if stopped is not None else why
    outcomes, causes = with_causes(_in_order(entries, found, why), causes, lambda violation: violation.script)
    report = Report(outcomes, settings, stopped is not None, options.strict, causes)
    report, changes = against(report, baseline) if baseline is not None else (report, None)
    lost = list(forms.lost(files, folder if entries else None, tests, report))
    groups: dict[str, list[str]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry.name)
    with printing(verdict_of(report)):
        if options.json == "-":
            print(forms.as_json(report), end="")
        elif entries:
            print_report(Console(), report, groups, options.all)
            if changes is not None:
                print_comparison(Console(highlight=False), changes, str(options.baseline), "now")
    forms.annotate(report)
    if isinstance(stopped, StoppedError) and not lost:
        return stopped.status
    if lost or stopped is not None:
        raise ValueError(" ".join([*lost, *([str(stopped)] if stopped is not None else [])]))
    return 0 if report.ok else 1


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
