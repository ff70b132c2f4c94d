"""What a project says once: the table [tool.attnspec] of the pyproject.toml in the working
directory. The command line wins.
"""

import argparse
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracles.formats import resolve
from oracles.spelling import did_you_mean
from properties.command.conventions import parsed
from properties.laws import find

__all__ = ["configure"]

_FILE = Path("pyproject.toml")
_DEFAULTS: dict[str, Any] = {"targets": [], "arithmetic": None, "laws": None, "max-examples": 100, "seed": 0}
"""The keys that are options too, and what they are where nobody says it."""


def _texts(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(text, str) and text for text in x) and bool(x)


def _reasons(x: Any) -> bool:
    return isinstance(x, dict) and all(
        (isinstance(v, str) and v) or (isinstance(v, dict) and v and _flat(v)) for v in x.values()
    )


def _flat(x: dict[str, Any]) -> bool:
    return all(isinstance(reason, str) and reason for reason in x.values())


_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "targets": (_texts, 'a list of targets, as ["my_kernels.py"]'),
    "arithmetic": (lambda x: isinstance(x, str), "a preset's name"),
    "conventions": (lambda x: isinstance(x, dict), 'a table of readings, as {rope_pairing = "half"}'),
    "known-deviations": (_reasons, "a table from laws to reasons, or from implementations to such tables"),
    "laws": (_texts, "a list of laws"),
    "max-examples": (lambda x: type(x) is int and x > 0, "a whole number from 1"),
    "seed": (lambda x: type(x) is int, "a whole number"),
}
"""What there may be, and what each should be."""


def configure(options: argparse.Namespace, file: Path = _FILE) -> None:
    """Complete the options of `attnspec verify`: what the command line does not say is as the
    project says, or else as usual.

    `options.conventions` and `options.known_deviations` are added. Raises ValueError, a sentence,
    for a table that says something else.
    """
    found = _read(file)
    for key, default in _DEFAULTS.items():
        name = key.replace("-", "_")
        if getattr(options, name) in (None, []):
            setattr(options, name, found.get(key, default))
    options.conventions = found.get("conventions", {}) | parsed(options.convention)
    options.known_deviations = found.get("known-deviations", {})
    if not options.targets:
        raise ValueError(
            f"There is no target: name one, as `attnspec verify my_kernels.py`, or list `targets` in {file}, [tool.attnspec]."
        )


def _read(file: Path) -> dict[str, Any]:
    """The table, each entry as it should be; empty where there is none."""
    try:
        tools = tomllib.loads(file.read_text("utf-8")).get("tool", {})
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ValueError(f"{file} is no TOML: {error}.") from error
    table = tools.get("attnspec", {}) if isinstance(tools, dict) else tools
    if not isinstance(table, dict):
        raise ValueError(f"{file} says {table!r} for [tool.attnspec], which should be a table.")
    try:
        return {key: _checked(key, value) for key, value in table.items()}
    except ValueError as error:
        raise ValueError(f"{file}, [tool.attnspec]: {error}") from error


def _checked(key: str, value: Any) -> Any:
    """An entry, with laws by their names and conventions by their fields. Raises ValueError, a sentence."""
    if key not in _KEYS:
        listed = f"The keys are {', '.join(_KEYS)}."
        raise ValueError(f"Unknown key {key!r}.{did_you_mean(key, _KEYS, listed)}")
    fine, should = _KEYS[key]
    if not fine(value):
        raise ValueError(f"{key} is {value!r}, but should be {should}.")
    if key == "arithmetic":
        resolve(value)
    elif key == "laws":
        return [_law(text) for text in value]
    elif key == "conventions":
        return parsed(f"{name}={x}" for name, x in value.items())
    elif key == "known-deviations":
        tables = {name: _named(x) for name, x in value.items() if isinstance(x, dict)}
        return tables | _named({name: x for name, x in value.items() if isinstance(x, str)})
    return value


def _named(reasons: dict[str, str]) -> dict[str, str]:
    return {_law(text): reason for text, reason in reasons.items()}


def _law(text: str) -> str:
    """The whole name of a law, or of a law of an operation."""
    law = find(text)[0]
    return law.id if "[" in text else law.name
