"""The command `attnspec`: verify implementations, and read about the laws and the known bugs."""

# PYTHON_ARGCOMPLETE_OK: who has argcomplete's global completion needs no other

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from properties.command import listings, new

if TYPE_CHECKING:
    from rich.console import Console

    from properties.command.worker import Entry
    from properties.verifier.report import Cause, Outcome, Report

__all__ = ["main"]

_MODULES = ("spec", "oracles", "properties")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 when every law held or the page was printed, 1 when some law failed, 2 when it cannot be done."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks, at a press of Tab
        from properties.command.completion import answer

        answer(parser)
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ✓ shows "?", and no traceback
            stream.reconfigure(errors="replace")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # `attnspec laws | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ValueError as error:  # a name that there is not, a target that is none: the sentence says it
        print(f"attnspec: {error}", file=sys.stderr)
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
        "Exit status: 0 every law held, 1 some law failed, 2 the command or an implementation is unusable.",
    )
    verify.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="file.py or a module, with :attribute where it has several: functions of the operations' names in a mapping or an object, "
        "a properties.Implementation, a list of them, or a mapping from groups to lists",
    )
    verify.add_argument("--arithmetic", metavar="NAME", help="what is rounded, as float32 or bfloat16, instead of what is declared")
    verify.add_argument(
        "--convention",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a reading that it follows, as rope_pairing=half, instead of what is declared; may be repeated",
    )
    verify.add_argument(
        "--max-examples", type=_natural, default=100, metavar="N", help="cases of each operation, of all kinds together (100)"
    )
    verify.add_argument("--seed", type=int, default=0, metavar="N", help="what the cases are drawn from (0): the same seed, the same cases")
    verify.add_argument("--laws", nargs="+", action="extend", metavar="LAW", help="some laws only, by name or name[operation]")
    verify.add_argument("--exclude", nargs="+", action="extend", default=[], metavar="LAW", help="laws that are left out")
    verify.add_argument("--quick", action="store_true", help="few laws on few cases, which see nearly all known bugs within seconds")
    verify.add_argument("--long", action="store_true", help="the long plan too: laws with 131072 keys, which take minutes")
    verify.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="TEXT", help="some implementations only, or groups of them"
    )
    verify.add_argument("--jobs", type=_natural, default=min(4, os.cpu_count() or 1), metavar="N", help="processes (%(default)s)")
    verify.add_argument("--timeout", type=_positive, default=60.0, metavar="SECONDS", help="for one call (60)")
    verify.add_argument("--json", metavar="FILE", help="write the report as JSON too; - writes it to standard output, and nothing else")
    verify.add_argument("--html", metavar="DIR", type=Path, help="write the report as a page too: DIR/index.html")
    verify.add_argument("--strict", action="store_true", help="exit status 1 where something is suspicious, too")
    verify.add_argument("--fail-fast", action="store_true", help="begin no other operation after the first violation")
    verify.add_argument("--all", action="store_true", help="a row for every law, and every violation in a few lines")
    verify.set_defaults(run=_verify)

    report = commands.add_parser("report", help="make a page of reports that `attnspec verify --json` wrote")
    report.add_argument(
        "reports", nargs="+", metavar="FILE", type=Path, help="what `attnspec verify --json FILE` wrote; of several one page"
    )
    report.add_argument("--html", metavar="DIR", type=Path, required=True, help="where: DIR/index.html")
    report.set_defaults(run=_report)

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
    folder = _page_folder(options.html)
    from properties.views.html.page import read, write

    print(write([read(file) for file in options.reports], folder))
    return 0


def _page_folder(folder: Path) -> Path:
    """The folder for a page, which is found out to be writable, and its makers to be there, before the work is done."""
    if missing := [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]:
        raise ValueError(f"A page needs {' and '.join(missing)}, which `pip install 'attnspec[report]'` installs.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made: {error.strerror}.") from error
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder} cannot be written to.")
    return folder


def _verify(options: argparse.Namespace) -> int:
    from rich.console import Console

    from oracles.formats import resolve
    from properties.command.conventions import parsed
    from properties.command.worker import Order
    from properties.laws import find
    from properties.verifier.report import Report, with_causes
    from properties.verifier.verify import QUICKLY
    from properties.views.html.environment import environment
    from properties.views.terminal import print_report

    resolve(options.arithmetic)
    laws = tuple(dict.fromkeys(law.id for text in options.laws for law in find(text))) if options.laws else None
    conventions = parsed(options.convention)
    exclude = tuple(dict.fromkeys(law.id for text in options.exclude for law in find(text)))
    file = _writable(options.json)
    folder = _page_folder(options.html) if options.html else None
    chosen = tuple(options.targets), options.arithmetic, laws
    examples = min(options.max_examples, QUICKLY) if options.quick else options.max_examples
    limits = examples, options.seed, options.timeout
    order = Order(*chosen, *limits, tuple(options.only), conventions, exclude, options.long, options.quick)
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
        "conventions": conventions,
        "laws": options.laws,
        "exclude": options.exclude,
        "only": options.only,
        "long": options.long,
        "quick": options.quick,
        "environment": environment(),
        "implementations": [{key: getattr(entry, key) for key in ("name", "group", "target", "arithmetic")} for entry in entries],
    }
    outcomes, causes = with_causes(_in_order(entries, found, options.fail_fast), causes, lambda violation: violation.script)
    report = Report(outcomes, settings, stopped is not None, options.strict, causes)
    if entries or file:
        if file:
            file.write_text(_json(report))
        elif options.json:
            print(_json(report), end="")
    if entries and folder:
        from properties.views.html.page import write

        write([report.to_dict()], folder)
    if entries and options.json != "-":
        groups: dict[str, list[str]] = {}
        for entry in entries:
            groups.setdefault(entry.group, []).append(entry.name)
        print_report(Console(), report, groups, options.all)
    if isinstance(stopped, ValueError):
        raise stopped
    return 0 if report.ok else 1


def _writable(name: str | None) -> Path | None:
    """The file for the report, which is found out to be writable before the work is done."""
    if name is None or name == "-":
        return None
    try:
        Path(name).touch()
    except OSError as error:
        raise ValueError(f"{name} cannot be written: {error.strerror}.") from error
    return Path(name)


def _json(report: "Report") -> str:
    return json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"


def _run(
    order: Any, jobs: int, timeout: float, fail_fast: bool
) -> tuple[list["Entry"], list[tuple[int, "Outcome"]], tuple["Cause", ...], BaseException | None]:
    """The entries, the outcomes known, each with its entry's place, the causes, and what stopped the run before its end, or None."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from properties.command.runner import Runner
    from properties.command.targets import TargetError

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
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Progress(*columns, console=log, transient=True, disable=not log.is_interactive) as progress:
            task = progress.add_task(f"importing {escape(' '.join(order.targets))}", total=None)
            with Runner(order, jobs, timeout, fail_fast) as runner:
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
    except (KeyboardInterrupt, TargetError) as stopped:
        return entries, found, _flat(causes), stopped
    finally:
        signal.signal(signal.SIGTERM, before)
    return entries, found, _flat(causes), None


def _flat(causes: dict[int, tuple["Cause", ...]]) -> tuple["Cause", ...]:
    """The causes of all entries, in their order."""
    return tuple(cause for place in sorted(causes) for cause in causes[place])


def _print_line(log: "Console", outcomes: list["Outcome"]) -> None:
    statuses = [o.status for o in outcomes]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    print(f"{outcomes[0].implementation}: {counts} ({sum(o.seconds for o in outcomes):.1f} s)", file=log.file, flush=True)


def _in_order(entries: list["Entry"], found: list[tuple[int, "Outcome"]], fail_fast: bool) -> list["Outcome"]:
    """The outcomes as they were planned; "not run" for those that are not known."""
    from properties.verifier.report import Outcome

    known = {(place, f"{o.law}[{o.operation}]"): o for place, o in found}
    violated = any(o.status == "violated" for _, o in found)
    why = "After the first violation no operation is begun (--fail-fast)." if fail_fast and violated else ""
    outcomes = []
    for place, entry in enumerate(entries):
        for law in entry.laws:
            name, _, operation = law.partition("[")
            missing = Outcome(name, operation.removesuffix("]"), entry.name, "not run", reason=why)
            outcomes.append(known.get((place, law), missing))
    return outcomes
