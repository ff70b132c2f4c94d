"""Defines the subcommands that list and explain: laws, bugs and operations."""

import argparse
from typing import Any

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommands to the parser. Each subcommand imports what it prints only when it runs."""
    part = "name of the {}, or a part that is unique among the names"
    laws = commands.add_parser("laws", help="list the laws, or show one")
    laws.add_argument("law", nargs="?", metavar="LAW", help=part.format("law"))
    laws.set_defaults(run=_laws)
    bugs = commands.add_parser("bugs", help="list the known bugs, or show one")
    bugs.add_argument("bug", nargs="?", metavar="BUG", help=part.format("known bug"))
    bugs.set_defaults(run=_bugs)
    operations = commands.add_parser(
        "operations", help="list the operations with their shapes and conventions, or show one"
    )
    operations.add_argument("operation", nargs="?", metavar="OPERATION", help=part.format("operation"))
    operations.add_argument("--markdown", action="store_true", help="print the page docs/guide/operations.md")
    operations.set_defaults(run=_operations)
    explain = commands.add_parser("explain", help="explain a law, a known bug, an operation, or coverage")
    explain.add_argument(
        "name",
        metavar="NAME",
        help=f"{part.format('law, known bug or operation')}; coverage: what is tested, and how to ask for more",
    )
    explain.set_defaults(run=_explain)


def _laws(options: argparse.Namespace) -> int:
    from rich.console import Console

    from properties.laws import find
    from properties.views.pages import print_law, print_laws

    if options.law is None:
        print_laws(Console())
    else:
        print_law(Console(), find(options.law))
    return 0


def _bugs(options: argparse.Namespace) -> int:
    from rich.console import Console

    from properties.bugs import CATALOGUE
    from properties.contract.names import named
    from properties.views.pages import print_bug, print_bugs

    if options.bug is None:
        print_bugs(Console())
    else:
        print_bug(Console(), CATALOGUE[named(options.bug, CATALOGUE, "bug")])
    return 0


def _operations(options: argparse.Namespace) -> int:
    from rich.console import Console

    from properties.contract.names import named
    from properties.contract.operations import OPERATIONS
    from properties.views.operations import markdown, print_operations, print_page

    if options.markdown:
        print(markdown(), end="")
    elif options.operation is None:
        print_operations(Console())
    else:
        print_page(Console(), OPERATIONS[named(options.operation, OPERATIONS, "operation")])
    return 0


def _explain(options: argparse.Namespace) -> int:
    from rich.console import Console

    from properties.bugs import CATALOGUE
    from properties.contract.names import named, parts_of
    from properties.contract.operations import OPERATIONS
    from properties.laws import LAWS, LONG, find
    from properties.views.operations import print_page
    from properties.views.pages import print_bug, print_coverage, print_law

    if options.name == "coverage":
        print_coverage(Console())
        return 0
    text, operation = parts_of(options.name)
    laws = dict.fromkeys(law.name for law in (*LAWS, *LONG))
    name = named(
        text, laws if operation else [*laws, *CATALOGUE, *OPERATIONS], "law", *() if operation else ("bug", "operation")
    )
    if name in laws:
        print_law(Console(), find(f"{name}[{operation}]" if operation else name))
    elif name in CATALOGUE:
        print_bug(Console(), CATALOGUE[name])
    else:
        print_page(Console(), OPERATIONS[name])
    return 0
