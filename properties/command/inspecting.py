"""The subcommand `attnspec inspect`, which measures what kernels compute."""

import argparse
import json
import os
import signal
import sys
import time
from math import inf
from pathlib import Path
from typing import Any

from properties.command.outputs import complain, file_to_write
from properties.command.parsing import duration

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommand to the parser."""
    inspect = commands.add_parser(
        "inspect",
        help="measure what your kernels compute, without any declaration",
        description="Measure what your kernels compute, and print it: the conventions that they follow, the sizes "
        "that they take, and what is wrong. Nothing has to be declared: attnspec tries how your functions can be "
        "called. Exit status: 0 no anomaly · 1 an anomaly: a result that no convention explains · 2 the command line "
        "or the adapter is wrong, or an output cannot be written · 128 + N signal N ended a kernel's process.",
    )
    inspect.add_argument(
        "targets",
        nargs="+",
        metavar="KERNELS",
        help="a file or a module with functions that are named after operations, or an adapter as in "
        "`attnspec verify`; with --operation, file.py:function",
    )
    inspect.add_argument(
        "--operation",
        "-o",
        metavar="NAME",
        default="",
        help="the operation that the function computes, if it has another name",
    )
    inspect.add_argument(
        "--write", metavar="FILE", help="write the adapter that declares what was measured; FILE must not exist"
    )
    inspect.add_argument("--json", metavar="FILE", help="also write the portrait as JSON; - prints only the JSON")
    inspect.add_argument(
        "--time-limit", type=duration, default=120.0, metavar="TIME", help="time limit of the run (default: 2m)"
    )
    inspect.set_defaults(run=_inspect)


def _inspect(options: argparse.Namespace) -> int:
    """Inspect the kernels in a child process, which a crash or a hang of a kernel ends, and return
    the exit status.
    """
    if options.operation:
        from properties.contract.names import named
        from properties.contract.operations import OPERATIONS

        options.operation = named(options.operation, OPERATIONS, "operation")
    if options.write and Path(options.write).exists():
        raise ValueError(f"{options.write} exists, and stays unchanged: give another name.")
    for name, value in (("--write", options.write), ("--json", options.json)):
        if value and value != "-":
            file_to_write(value, name)
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os._exit(_in_child(options))
    return _status(child, options.time_limit)


def _in_child(options: argparse.Namespace) -> int:
    """Inspect the kernels, print and write the portraits, and return the exit status."""
    try:
        return _portraits(options)
    except ValueError as error:
        complain(str(error))
        return 2
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _portraits(options: argparse.Namespace) -> int:
    """Print and write the portraits of all kernels. Raises ValueError, a sentence."""
    from rich.console import Console

    from properties.portraits.adapter import adapter
    from properties.portraits.portrait import inspect
    from properties.portraits.printing import print_portrait
    from properties.processes.adapters import load
    from properties.verifier.location import location_of

    until = time.monotonic() + options.time_limit if options.time_limit else inf
    portraits, texts = [], []
    for found in load(options.targets, operation=options.operation):
        portrait = inspect(found.implementation, declared=not found.kernel, until=until)
        portraits.append(portrait)
        if options.json != "-":
            print_portrait(Console(), portrait)
        if found.kernel:
            texts.append(adapter(portrait, location_of(found.target).module, found.kernel.format))
    if options.json:
        text = json.dumps([portrait.to_dict() for portrait in portraits], indent=2, ensure_ascii=False) + "\n"
        if options.json == "-":
            print(text, end="")
        else:
            Path(options.json).write_text(text, encoding="utf-8")
    if options.write:
        if len(texts) != 1:
            raise ValueError(f"--write needs one kernel file without an Implementation, but there are {len(texts)}.")
        Path(options.write).write_text(texts[0], encoding="utf-8")
        print(f"{options.write} declares this: `attnspec verify {options.write}`.")
    return 0 if all(portrait.ok for portrait in portraits) else 1


def _status(child: int, seconds: float) -> int:
    """The exit status of the child process. A child that runs too long is ended."""
    until = time.monotonic() + 2 * seconds  # instruments stop by themselves; a call that hangs does not
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise ValueError(f"A call did not return within {2 * seconds:g} s: give a longer --time-limit.")
        time.sleep(0.01)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        complain(f"The kernel ended its process with {signal.Signals(number).name}.")
        return 128 + number
    return os.waitstatus_to_exitcode(status)
