"""The subcommand `attnspec inspect`, which measures what kernels compute."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from properties.command.outputs import complain, file_to_write, folder_of_page
from properties.command.parsing import FLAG, INTERPRET, REPEATED, Options, Parser, add_options, duration, sizes

if TYPE_CHECKING:
    from properties.portraits.portrait import Portrait
    from properties.processes.adapters import Found
    from properties.verifier.location import Location

__all__ = ["add_to", "inspect"]


_SECONDS_BETWEEN_LINES = 10.0

_OPTIONS: Options = {
    "targets": (
        "a file or a module with functions that are named after operations, or an adapter as in "
        "`attnspec verify`; with --operation, file.py:function",
        {"nargs": "+", "metavar": "KERNELS"},
    ),
    "--operation -o": (
        "the operation that the function computes, if it has another name",
        {"metavar": "NAME", "default": ""},
    ),
    "--shape": (
        "also measure at exactly these sizes, such as batch=2,num_heads=8,n_q=1,n_k=4096,head_dim=64; may be repeated",
        REPEATED | {"metavar": "SIZES", "type": sizes},
    ),
    "--against": (
        "print only what the kernel does differently from the kernel in this file or module",
        {"metavar": "KERNELS"},
    ),
    "--interpret": (INTERPRET, FLAG),
    "--quick": ("make at most 20 calls of each operation, which show less", FLAG),
    "--write": (
        "write the adapter that declares what was measured, as `attnspec new FILE --inspect KERNELS` does; "
        "FILE must not exist",
        {"metavar": "FILE"},
    ),
    "--json": ("also write the portrait as JSON; - prints only the JSON", {"metavar": "FILE"}),
    "--html": ("also write the portrait as a page with pictures, DIR/index.html", {"metavar": "DIR"}),
    "--time-limit": (
        "time limit of the run (default: 2m)",
        {"metavar": "TIME", "type": duration, "default": 120.0},
    ),
}


def add_to(commands: Any) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "inspect",
        help="measure what your kernels compute, without any declaration",
        description="Measure what your kernels compute, and print it: the conventions that they follow, the sizes "
        "that they take, and what is wrong. Nothing has to be declared: attnspec tries how your functions can be "
        "called. Exit status: 0 no anomaly · 1 an anomaly: a result that no convention explains; with --against, a "
        "difference · 2 the command line or the adapter is wrong, or an output cannot be written · 128 + N signal N "
        "ended a kernel's process.",
    )
    add_options(parser, _OPTIONS)
    parser.set_defaults(run=_inspect)


def inspect(arguments: Sequence[str]) -> int:
    """Run `attnspec inspect` with some arguments, and return the exit status."""
    parser = Parser(prog="attnspec inspect")
    add_options(parser, _OPTIONS)
    return _inspect(parser.parse_args(arguments))


def _inspect(options: argparse.Namespace) -> int:
    """Inspect the kernels in a child process, which a crash or a hang of a kernel ends, and return
    the exit status.
    """
    _check(options)
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os._exit(_in_child(options))
    return _status(child, options)


def _check(options: argparse.Namespace) -> None:
    """Check the options before the work. Raises ValueError, a sentence."""
    if options.operation:
        from properties.contract.names import named
        from properties.contract.operations import OPERATIONS

        options.operation = named(options.operation, OPERATIONS, "operation")
    if options.shape:
        from properties.contract.wanted_shapes import checked

        checked(options.shape)
    if options.against and (options.write or options.html):
        raise ValueError(
            "--against prints differences, and writes no adapter and no page: leave out --write and --html."
        )
    if options.write and Path(options.write).exists():
        raise ValueError(f"{options.write} exists, and stays unchanged: give another name.")
    for name, value in (("--write", options.write), ("--json", options.json)):
        if value and value != "-":
            file_to_write(value, name)
    if options.html is not None:
        folder_of_page(options.html, "--html")


def _in_child(options: argparse.Namespace) -> int:
    """Inspect the kernels, print and write what was measured, and return the exit status."""
    try:
        return _compare(options) if options.against else _report(options)
    except ValueError as error:
        complain(str(error))
        return 2
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _inspected(options: argparse.Namespace, targets: Sequence[str]) -> "list[tuple[Found, Portrait]]":
    """The kernels that were found, each with its portrait."""
    from properties.interpreters import interpret
    from properties.portraits.portrait import inspect
    from properties.processes.adapters import load

    if options.interpret:
        interpret()
    until, work = _until(options), {"shapes": options.shape, "quick": options.quick}
    return [
        (found, inspect(found.implementation, declared=not found.kernel, until=until, **work))
        for found in load(targets, operation=options.operation)
    ]


def _until(options: argparse.Namespace) -> float:
    """The reading of time.monotonic at which measurements end."""
    return time.monotonic() + float(options.time_limit)


def _report(options: argparse.Namespace) -> int:
    """Print and write the portraits of all kernels. Raises ValueError, a sentence."""
    from rich.console import Console

    from properties.portraits.adapter import adapter
    from properties.portraits.printing import print_portrait
    from properties.verifier.location import location_of

    inspected = _inspected(options, options.targets)
    portraits = [portrait for _, portrait in inspected]
    if options.html:
        from properties.views.html.portrait import write

        write(portraits, Path(options.html))
    if options.write:
        undeclared = [(found, portrait) for found, portrait in inspected if found.kernel]
        if len(undeclared) != 1:
            raise ValueError(f"--write needs one kernel that is not declared yet, but there are {len(undeclared)}.")
        ((found, portrait),) = undeclared
        text = adapter(portrait, _imports(location_of(found.target)), found.kernel.format)
        Path(options.write).write_text(text, encoding="utf-8")
    _write_json(options.json, [portrait.to_dict() for portrait in portraits] if options.json else None)
    if options.json != "-":
        for found, portrait in inspected:
            print_portrait(Console(), portrait, (found.kernel or "{}").format)
        if options.write:
            print(f"{options.write} declares this: `attnspec verify {options.write}`.")
    return 0 if all(portrait.ok for portrait in portraits) else 1


def _imports(location: "Location") -> list[str]:
    """The lines that import the kernels in an adapter beside them."""
    return location.statements("") if location.by_path else [f"import {location.module}"]


def _compare(options: argparse.Namespace) -> int:
    """Print and write what two kernels do differently. Raises ValueError, a sentence."""
    from rich.console import Console

    from properties.portraits.differences import differences
    from properties.portraits.printing import print_differences

    portraits = [portrait for _, portrait in _inspected(options, [*options.targets, options.against])]
    if len(portraits) != 2:
        raise ValueError(f"--against compares two kernels, but there are {len(portraits)}.")
    first, second = portraits
    found = differences(first, second, _until(options))
    if options.json != "-":
        print_differences(Console(), found, first.name, second.name)
    data = {"first": first.name, "second": second.name, "differences": [vars(difference) for difference in found]}
    _write_json(options.json, data)
    return 1 if found else 0


def _write_json(name: str | None, data: Any) -> None:
    """Write data as JSON to a file, or print it for "-"; nothing without a name."""
    if not name:
        return
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    if name == "-":
        print(text, end="")
    else:
        Path(name).write_text(text, encoding="utf-8")


def _status(child: int, options: argparse.Namespace) -> int:
    """The exit status of the child process, with a line of progress every ten seconds. A child that
    runs too long is ended.
    """
    seconds, start, lines = options.time_limit, time.monotonic(), 1
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        spent = time.monotonic() - start
        if spent > 2 * seconds:  # instruments stop by themselves; a call that hangs does not
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise ValueError(f"A call did not return within {2 * seconds:g} s: give a longer --time-limit.")
        if spent > lines * _SECONDS_BETWEEN_LINES:
            print(
                f"{spent:.0f} s: measuring {' '.join(options.targets)}; the time limit is {seconds:g} s",
                file=sys.stderr,
            )
            lines += 1
        time.sleep(0.01)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        complain(f"The kernel ended its process with {signal.Signals(number).name}.")
        return 128 + number
    return os.waitstatus_to_exitcode(status)
