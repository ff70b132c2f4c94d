"""Defines the command `attnspec`: its parser, and the subcommands verify, report, compare and
completion.
"""

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from properties.command import campaign, gate, inspecting, listings, new, vectors
from properties.command.outputs import complain, folder_of_page, open_streams, printing
from properties.command.parsing import (
    ARITHMETIC,
    CONVENTION,
    EXCLUDE,
    FLAG,
    INTERPRET,
    LAWS,
    ONLY,
    REPEATED,
    TIMEOUT,
    Options,
    Parser,
    add_options,
    cost,
    duration,
    natural,
    sizes,
)

__all__ = ["main", "parser_of_command"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status.

    The status is 0 for success, 1 if a law fails, 2 if the command cannot run, and 129, 130 or 143
    after SIGHUP, SIGINT or SIGTERM.
    """
    parser = parser_of_command()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks, because Tab was pressed
        from properties.command.completion import answer

        answer(parser)
    options = parser.parse_args(arguments)
    try:
        open_streams()
        with printing():
            code: int = options.run(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ValueError as error:  # an unknown name, an unusable adapter: the message is a sentence
        complain(str(error))
        return 2
    return code


_JOBS = min(4, os.cpu_count() or 1)

_VERIFY: Options = {
    "targets": (
        "file.py or a module, with :NAME if it has several adapters. The variable NAME holds one or more adapters. "
        "One adapter: a dict {operation: function}, an object whose functions have the names of operations, or a "
        "properties.Implementation. Several adapters: a list, or a dict {group name: list}. "
        "Default: the adapters that [tool.attnspec] lists as targets",
        {"nargs": "*", "metavar": "ADAPTER"},
    ),
    "--arithmetic": ARITHMETIC,
    "--convention": CONVENTION,
    "--max-examples": ("number of test inputs for each operation (default: 100)", {"type": natural, "metavar": "N"}),
    "--seed": (
        "seed of the test inputs; the same seed gives the same inputs (default: 0)",
        {"type": int, "metavar": "N"},
    ),
    "--laws": LAWS,
    "--exclude": EXCLUDE,
    "--quick": ("check few laws on few inputs; this detects nearly all known bugs within seconds", FLAG),
    "--interpret": (INTERPRET, FLAG | {"default": None}),
    "--long": ("also check the laws with 131072 keys, which take minutes", FLAG),
    "--shape": (
        "also check laws at exactly these sizes, such as batch=4,num_heads=32,kv_heads=8,n_q=1,n_k=8192,head_dim=128; "
        "may be repeated",
        REPEATED | {"type": sizes, "dest": "shapes", "metavar": "SIZES"},
    ),
    "--only": ONLY,
    "--jobs": ("number of processes (default: %(default)s)", {"type": natural, "default": _JOBS, "metavar": "N"}),
    "--timeout": TIMEOUT,
    "--time-limit": (
        "time limit for the whole run, such as 60s or 5m; a law that does not finish counts as stopped early, and the "
        "exit status is 1",
        {"type": duration, "metavar": "TIME"},
    ),
    "--cost": (
        "leave out calls that should take longer: small (0.2 s), normal (1 s), large (10 s), or a number of seconds "
        "(default with --interpret: normal, or small with --quick; else no limit)",
        {"type": cost, "metavar": "COST"},
    ),
    "--json": ("also write the report as JSON; - prints only the JSON", {"metavar": "FILE"}),
    "--html": ("also write the report as a page, DIR/index.html", {"metavar": "DIR"}),
    "--baseline": (
        "fail only on violations that this earlier JSON report does not have",
        {"type": Path, "metavar": "FILE"},
    ),
    "--junit": ("also write the report as JUnit XML, one failed test for each cause", {"metavar": "FILE"}),
    "--sarif": ("also write the report as SARIF for code scanning, one result for each cause", {"metavar": "FILE"}),
    "--write-tests": (
        "write a pytest test for each cause; it passes once the cause is fixed",
        {"metavar": "DIR"},
    ),
    "--strict": (
        "exit with status 1 also if an error is suspicious: within its limit, but so large that rounding alone "
        "almost never causes it; and if the adapter declares no `supports`, but a call raises, or a parameter such as "
        "`causal` is not tested",
        FLAG,
    ),
    "--format": (
        "full: causes, numbers and the verdict · short: file:line: message for each cause, as editors read it "
        "(default: full)",
        {"choices": ("full", "short"), "default": "full"},
    ),
    "--watch": ("run again whenever a source file changes; Ctrl-C ends this, with the last exit status", FLAG),
    "--fail-fast": ("stop at the first violation; with --baseline, stop at the first new violation", FLAG),
    "-v --all": ("show all about each cause, a row for every law, and a few lines for every violation", FLAG),
}


def parser_of_command() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="attnspec",
        description="Check kernels for attention and positional encodings against laws, and name the cause of each "
        "failure. A law is a property that every correct kernel has. An adapter is a Python file that tells attnspec "
        "how to call your kernels. "
        "`attnspec inspect FILE.py` measures what your kernels compute, and writes their adapter. "
        "`attnspec verify FILE.py` checks an adapter. `attnspec new FILE.py` writes one to fill in.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    inspecting.add_to(commands)
    verify = commands.add_parser(
        "verify",
        help="check your kernels against the laws",
        description="Check your kernels against the laws, in child processes, and name the cause of each failure. "
        "The table [tool.attnspec] of pyproject.toml may hold options too. "
        "Exit status: 0 every law passes · 1 a law fails · 2 the command line or the adapter is wrong, an output "
        "cannot be written, or attnspec has an internal error (if no law fails) · 3 no law fails, but some are "
        "inconclusive · "
        "129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM.",
    )
    add_options(verify, _VERIFY)
    verify.set_defaults(run=_verify)

    report = commands.add_parser("report", help="make one HTML page from several JSON reports")
    report.add_argument(
        "reports", nargs="+", metavar="FILE", type=Path, help="a report that `attnspec verify --json FILE` wrote"
    )
    report.add_argument("--html", metavar="DIR", required=True, help="write the page to DIR/index.html")
    report.set_defaults(run=_report)

    compare = commands.add_parser(
        "compare",
        help="compare two JSON reports",
        description="Compare two reports that `attnspec verify --json` wrote: which laws broke, which were fixed, "
        "and which operations are slower or further from the exact value. "
        "Exit status: 0 no law broke · 1 a law broke · 2 a file is not a report.",
    )
    compare.add_argument("before", metavar="BEFORE", type=Path, help="the earlier report")
    compare.add_argument("after", metavar="AFTER", type=Path, help="the later report")
    compare.set_defaults(run=_compare)

    new.add_to(commands)
    gate.add_to(commands)
    campaign.add_to(commands)
    vectors.add_to(commands)
    listings.add_to(commands)
    completion = commands.add_parser(
        "completion", help='print the completion script of a shell: eval "$(attnspec completion bash)"'
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(run=_completion)
    return parser


class _Version(argparse.Action):
    """The option that prints the version of the installed distribution, and ends the command."""

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

    if options.watch:
        from properties.command.watching import watch

        return watch(lambda: verify(argparse.Namespace(**vars(options))), options.targets, options.write_tests)
    return verify(options)
