"""The command `attnspec`: verify implementations, and read about the laws and the known bugs."""

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from properties.command import campaign, gate, listings, new, vectors
from properties.command.outputs import complain, folder_of_page, open_streams, printing
from properties.command.parsing import duration, natural, positive

__all__ = ["main", "parser_of_command"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 when every law held or the page was printed, 1 when some law
    failed, 2 when it cannot be done, and 129, 130 or 143 when SIGHUP, SIGINT or SIGTERM ended
    it."""
    parser = parser_of_command()
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


_SOME: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
_FLAG: dict[str, Any] = {"action": "store_true"}
_JOBS = min(4, os.cpu_count() or 1)

_VERIFY: dict[str, tuple[str, dict[str, Any]]] = {
    "targets": (
        "what to verify: file.py or a module, with :attribute where it has several. Functions under the operations' names in a mapping or "
        "an object, a properties.Implementation, a list of them, or a mapping from groups to lists; by default those of pyproject.toml",
        {"nargs": "*", "metavar": "TARGET"},
    ),
    "--arithmetic": (
        "the arithmetic to judge by, such as float32 or bfloat16, instead of the declared one",
        {"metavar": "NAME"},
    ),
    "--convention": (
        "a convention that it follows, such as rope_pairing=half, instead of the declared one; may be repeated",
        {"action": "append", "default": [], "metavar": "NAME=VALUE"},
    ),
    "--max-examples": ("cases of each operation, over all domains (100)", {"type": natural, "metavar": "N"}),
    "--seed": ("seed of the cases (0): the same seed draws the same cases", {"type": int, "metavar": "N"}),
    "--laws": ("check only these laws, by name or name[operation]", _SOME | {"metavar": "LAW"}),
    "--exclude": ("leave out these laws", _SOME | {"metavar": "LAW"}),
    "--quick": ("few laws on few cases, which detect nearly all known bugs within seconds", _FLAG),
    "--long": ("also run the long plan: laws with 131072 keys, which take minutes", _FLAG),
    "--only": ("check only these implementations, or groups of them", _SOME | {"metavar": "TEXT"}),
    "--jobs": ("number of processes (%(default)s)", {"type": natural, "default": _JOBS, "metavar": "N"}),
    "--timeout": ("limit for one call (60)", {"type": positive, "default": 60.0, "metavar": "SECONDS"}),
    "--budget": (
        "limit for the whole run, such as 60s or 5m; laws that are cut short do not count as held",
        {"type": duration, "metavar": "TIME"},
    ),
    "--json": ("also write the report as JSON; - writes it to standard output, and nothing else", {"metavar": "FILE"}),
    "--html": ("also write the report as a page: DIR/index.html", {"metavar": "DIR"}),
    "--baseline": ("fail only on what is new since an earlier report in JSON", {"type": Path, "metavar": "FILE"}),
    "--junit": ("also write the report as JUnit XML: a failed test for each cause", {"metavar": "FILE"}),
    "--sarif": ("also write the report as SARIF, for code scanning: a result for each cause", {"metavar": "FILE"}),
    "--write-tests": (
        "write the counterexample of each cause as a pytest test, which passes once it is fixed",
        {"metavar": "DIR"},
    ),
    "--strict": ("exit with status 1 also where something is suspicious", _FLAG),
    "--fail-fast": ("stop at the first violation, or with --baseline at the first new one", _FLAG),
    "--all": ("show a row for every law, and every violation in a few lines", _FLAG),
}
"""The arguments of `attnspec verify`: what each is for, and how it is parsed."""


def parser_of_command() -> argparse.ArgumentParser:
    """What `attnspec` understands."""
    parser = argparse.ArgumentParser(
        prog="attnspec",
        description="Check attention and positional encodings against their laws, and diagnose what breaks them.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    verify = commands.add_parser(
        "verify",
        help="check every law on implementations",
        description="Check every law on implementations, in child processes, and diagnose what fails. "
        "Options may also stand in the table [tool.attnspec] of pyproject.toml. "
        "Exit status: 0 every law held, 1 some law failed, 2 the command or an implementation is unusable, an output cannot be written, "
        "or attnspec itself failed and no law did; "
        "129, 130 or 143 after SIGHUP, SIGINT or SIGTERM.",
    )
    for name, (purpose, how) in _VERIFY.items():
        verify.add_argument(name, help=purpose, **how)
    verify.set_defaults(run=_verify)

    report = commands.add_parser("report", help="make one page of reports that `attnspec verify --json` wrote")
    report.add_argument(
        "reports", nargs="+", metavar="FILE", type=Path, help="a report that `attnspec verify --json FILE` wrote"
    )
    report.add_argument("--html", metavar="DIR", required=True, help="folder of the page: DIR/index.html")
    report.set_defaults(run=_report)

    compare = commands.add_parser(
        "compare",
        help="compare two reports: what broke, what was fixed, and what got slower or closer to its budget",
        description="Compare two reports that `attnspec verify --json` wrote. "
        "Exit status: 0 nothing broke, 1 something did, 2 one of them is not a report.",
    )
    compare.add_argument("before", metavar="BEFORE", type=Path, help="the earlier report")
    compare.add_argument("after", metavar="AFTER", type=Path, help="the later one")
    compare.set_defaults(run=_compare)

    new.add_to(commands)
    gate.add_to(commands)
    campaign.add_to(commands)
    vectors.add_to(commands)
    listings.add_to(commands)
    completion = commands.add_parser(
        "completion", help='print a completion script for a shell: eval "$(attnspec completion bash)"'
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(run=_completion)
    return parser


class _Version(argparse.Action):
    """Print the version, of the distribution that is installed, and end."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any, **named: Any) -> None:
        from importlib.metadata import version

        print(f"attnspec {version('attnspec')}")
        parser.exit()


def _completion(options: argparse.Namespace) -> int:
    from properties.command.completion import script

    print(script(options.shell), end="")
    return 0


def _report(options: argparse.Namespace) -> int:
    folder = folder_of_page(options.html, "--html")
    from properties.verifier.report_file import read
    from properties.views.html.page import write

    print(write([read(file) for file in options.reports], folder))
    return 0


def _compare(options: argparse.Namespace) -> int:
    from rich.console import Console

    from properties.verifier.comparison import compared
    from properties.verifier.report_file import read
    from properties.views.compared import print_comparison

    found = compared(read(options.before), read(options.after))
    print_comparison(Console(highlight=False), found, str(options.before), str(options.after))
    return 1 if found.broke else 0


def _verify(options: argparse.Namespace) -> int:
    from properties.command.verifying import verify

    return verify(options)
