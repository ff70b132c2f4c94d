"""Reads the command line: a parser that suggests the right name for a misspelt one, and the types
of options.

Each type raises argparse's error for a wrong text. The error says what the text should be.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "ARITHMETIC",
    "CONVENTION",
    "EXCLUDE",
    "FLAG",
    "INTERPRET",
    "LAWS",
    "ONLY",
    "REPEATED",
    "TIMEOUT",
    "Options",
    "Parser",
    "add_options",
    "cost",
    "duration",
    "memory",
    "natural",
    "positive",
    "sizes",
    "whole",
    "workers",
]

Options = Mapping[str, tuple[str, dict[str, Any]]]
"""The arguments of a subcommand: the help of each, and how argparse reads it."""

FLAG: dict[str, Any] = {"action": "store_true"}

_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
"""An option with several values: --laws A B."""

REPEATED: dict[str, Any] = {"action": "append", "default": []}
"""An option that may be repeated: --shape A --shape B."""

INTERPRET = (
    "run kernels in Triton or Pallas on the CPU, in the interpreter of the library, with the arithmetic of a GPU"
)
"""The help of the option --interpret."""

_MOST = 10**15  # test inputs: a thousand workers would take decades; sums stay 64-bit integers
_MOST_WORKERS = 10**4
_SMALLEST = 1e-4  # the smallest share of a device in Ray
_LARGEST = 10**9  # seconds or hours; nobody waits longer


class Parser(argparse.ArgumentParser):
    """A parser that says "Did you mean ...?" for a misspelt subcommand, option or choice."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from oracles.spelling import did_you_mean  # with NumPy, which takes a while

            known = list(action.choices)
            listed = f"Choose from {', '.join(known)}."
            raise argparse.ArgumentError(action, f"unknown value {value!r}.{did_you_mean(value, known, listed)}")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Return the options, and the arguments that are not options. An unknown option ends the
        command with status 2.
        """
        options, others = super().parse_known_args(args, namespace)
        if unknown := [text.partition("=")[0] for text in others if text.startswith("-")]:
            from oracles.spelling import did_you_mean  # with NumPy, which takes a while

            listed = f"`{self.prog} --help` lists the options."
            self.error(f"Unknown option {unknown[0]!r}.{did_you_mean(unknown[0], self._option_string_actions, listed)}")
        return options, others


def add_options(parser: argparse.ArgumentParser, options: Options) -> None:
    """Add the arguments of a subcommand to its parser. A name may have several words: "-v --all"."""
    for names, (purpose, settings) in options.items():
        parser.add_argument(*names.split(), help=purpose, **settings)


def natural(text: str) -> int:
    """Return the whole number that a text means. It must be at least 1."""
    return _whole(text, 1, _MOST)


def whole(text: str) -> int:
    """Return the whole number that a text means. It must be at least 0."""
    return _whole(text, 0, _MOST)


def workers(text: str) -> int:
    """Return the number of workers that a text means."""
    return _whole(text, 1, _MOST_WORKERS)


def _whole(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"0*\d{1,18}", text) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a whole number from {least} to {most}.")
    return int(text)


def duration(text: str) -> float:
    """Return the seconds of a time such as 60s, 5m or 1h."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h)?", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a time, as 60s, 5m or 1h.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def positive(text: str) -> float:
    """Return the positive number that a text means. It must be neither too small nor too large to
    compute with.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not _SMALLEST <= number <= _LARGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r}, but should be a positive number, from {_SMALLEST:g} to {_LARGEST}."
        )
    return number


def cost(text: str) -> float:
    """Return the seconds that a call may take, for a word of `COSTS` or a number of seconds."""
    from properties.contract.costs import COSTS  # with NumPy, which takes a while

    return COSTS[text] if text in COSTS else positive(text)


def sizes(text: str) -> dict[str, int]:
    """Return the sizes that a text such as batch=2,n_q=1,n_k=4096 names."""
    from properties.contract.wanted_shapes import parsed  # with the oracles, which take a while

    try:
        return parsed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def memory(text: str) -> int:
    """Return the bytes of an amount of memory such as 512M or 4G."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([MGT])", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}, but should be an amount of memory, as 512M or 4G.")
    return int(float(found[1]) * {"M": 2**20, "G": 2**30, "T": 2**40}[found[2]])


ARITHMETIC = (
    "derive error limits from this number format, such as float32, instead of the declared one",
    {"metavar": "NAME"},
)
CONVENTION = (
    "judge by this convention, such as rope_pairing=half, instead of the declared one; may be repeated",
    REPEATED | {"metavar": "NAME=VALUE"},
)
LAWS = ("check only these laws, by name or name[operation]", _SEVERAL | {"metavar": "LAW"})
EXCLUDE = ("leave out these laws", _SEVERAL | {"metavar": "LAW"})
ONLY = (
    "if the adapter defines several implementations, check only those whose name or group contains TEXT",
    _SEVERAL | {"metavar": "TEXT"},
)
TIMEOUT = (
    "time limit for one call, without the time in which it waits for a processor (default: 60)",
    {"type": positive, "default": 60.0, "metavar": "SECONDS"},
)
"""Options that several subcommands have."""
