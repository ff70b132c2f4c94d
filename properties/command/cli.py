"""The command `attnspec`: verify implementations, and read about the laws and the known bugs."""

# PYTHON_ARGCOMPLETE_OK: who has argcomplete's global completion needs no other

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
    """Run the command. Returns 0 when every law held or the page was printed, 1 when some law failed, 2 when it cannot be done, and 129,
    130 or 143 when SIGHUP, SIGINT or SIGTERM ended it."""
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
        "file.py or a module, with :attribute where it has several: functions of the operations' names in a mapping or an object, "
        "a properties.Implementation, a list of them, or a mapping from groups to lists; those of pyproject.toml if none is named",
        {"nargs": "*", "metavar": "TARGET"},
    ),
    "--arithmetic": ("what is rounded, as float32 or bfloat16, instead of what is declared", {"metavar": "NAME"}),
    "--convention": (
        "a reading that it follows, as rope_pairing=half, instead of what is declared; may be repeated",
        {"action": "append", "default": [], "metavar": "NAME=VALUE"},
    ),
    "--max-examples": ("cases of each operation, of all kinds together (100)", {"type": natural, "metavar": "N"}),
    "--seed": ("what the cases are drawn from (0): the same seed, the same cases", {"type": int, "metavar": "N"}),
    "--laws": ("some laws only, by name or name[operation]", _SOME | {"metavar": "LAW"}),
    "--exclude": ("laws that are left out", _SOME | {"metavar": "LAW"}),
    "--quick": ("few laws on few cases, which see nearly all known bugs within seconds", _FLAG),
    "--long": ("the long plan too: laws with 131072 keys, which take minutes", _FLAG),
    "--only": ("some implementations only, or groups of them", _SOME | {"metavar": "TEXT"}),
    "--jobs": ("processes (%(default)s)", {"type": natural, "default": _JOBS, "metavar": "N"}),
    "--timeout": ("for one call (60)", {"type": positive, "default": 60.0, "metavar": "SECONDS"}),
    "--budget": ("60s or 5m for all: cases are drawn in time; laws cut short have not held", {"type": duration, "metavar": "TIME"}),
    "--json": ("write the report as JSON too; - writes it to standard output, and nothing else", {"metavar": "FILE"}),
    "--html": ("write the report as a page too: DIR/index.html", {"metavar": "DIR"}),
    "--baseline": ("fail on what is new against an earlier report in JSON, and on nothing else", {"type": Path, "metavar": "FILE"}),
    "--junit": ("write the report as JUnit's XML too: a failed test for each cause", {"metavar": "FILE"}),
    "--sarif": ("write the report as SARIF too, for code scanning: a result for each cause", {"metavar": "FILE"}),
    "--write-tests": ("write the input that shows each cause as a test for pytest, which passes when it is mended", {"metavar": "DIR"}),
    "--strict": ("exit status 1 where something is suspicious, too", _FLAG),
    "--fail-fast": ("end at the first violation, or with --baseline at the first that is new", _FLAG),
    "--all": ("a row for every law, and every violation in a few lines", _FLAG),
}
"""The arguments of `attnspec verify`: what each is for, and how it is parsed."""


def parser_of_command() -> argparse.ArgumentParser:
    """What `attnspec` understands."""
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
    for name, (purpose, how) in _VERIFY.items():
        verify.add_argument(name, help=purpose, **how)
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
    gate.add_to(commands)
    campaign.add_to(commands)
    vectors.add_to(commands)
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
    from properties.command.verifying import verify

    return verify(options)
