"""Reads the options of a project from the table [tool.attnspec] of pyproject.toml in the working
directory.

An option of the command line replaces the option of the table.
"""

import argparse
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracles.formats import resolve
from oracles.spelling import did_you_mean
from properties.command.conventions import parsed
from properties.contract.wanted_shapes import checked
from properties.laws import find

__all__ = ["configure", "table"]

_FILE = Path("pyproject.toml")
_DEFAULTS: dict[str, Any] = {
    "targets": [],
    "arithmetic": None,
    "laws": None,
    "max-examples": 100,
    "seed": 0,
    "shapes": [],
    "interpret": False,
}
"""The keys that are options too, with their defaults."""


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and text for text in value) and bool(value)


def _reasons(value: Any) -> bool:
    return isinstance(value, dict) and all(
        (isinstance(reason, str) and reason) or (isinstance(reason, dict) and reason and _have_texts(reason))
        for reason in value.values()
    )


def _have_texts(reasons: dict[str, Any]) -> bool:
    return all(isinstance(reason, str) and reason for reason in reasons.values())


_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "targets": (_texts, 'a list of targets, as ["my_kernels.py"]'),
    "arithmetic": (lambda x: isinstance(x, str), "a preset's name"),
    "conventions": (lambda x: isinstance(x, dict), 'a table of conventions, as {rope_pairing = "half"}'),
    "known-deviations": (_reasons, "a table from laws to reasons, or from implementations to such tables"),
    "laws": (_texts, "a list of laws"),
    "max-examples": (lambda x: type(x) is int and x > 0, "a whole number from 1"),
    "seed": (lambda x: type(x) is int, "a whole number"),
    "shapes": (_texts, 'a list of sizes, as ["batch=4,n_q=1,n_k=8192,head_dim=128"]'),
    "interpret": (lambda x: isinstance(x, bool), "true or false"),
}
"""The keys of the table: whether a value is allowed, and what it should be."""


def configure(options: argparse.Namespace, file: Path = _FILE) -> None:
    """Complete the options of `attnspec verify` with the options of the project, or else with the
    defaults.

    Adds `options.conventions` and `options.known_deviations`. Raises ValueError, with a sentence,
    for a table with an unknown key or a wrong value.
    """
    found = table(file)
    for key, default in _DEFAULTS.items():
        name = key.replace("-", "_")
        if getattr(options, name) in (None, []):
            setattr(options, name, found.get(key, default))
    options.conventions = found.get("conventions", {}) | parsed(options.convention)
    options.known_deviations = found.get("known-deviations", {})
    if not options.targets:
        raise ValueError(
            "There is nothing to verify: name an adapter, as in `attnspec verify my_kernels.py`, "
            f"or list `targets` in {file}, [tool.attnspec]."
        )


def table(file: Path = _FILE) -> dict[str, Any]:
    """Return the table [tool.attnspec] with checked entries. It is empty if the file or the table is
    missing. Raises ValueError, with a sentence, for an unknown key or a wrong value.
    """
    try:
        tools = tomllib.loads(file.read_text("utf-8")).get("tool", {})
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ValueError(f"{file} is not TOML: {error}.") from error
    table = tools.get("attnspec", {}) if isinstance(tools, dict) else tools
    if not isinstance(table, dict):
        raise ValueError(f"{file} says {table!r} for [tool.attnspec], which should be a table.")
    try:
        return {key: _checked(key, value) for key, value in table.items()}
    except ValueError as error:
        raise ValueError(f"{file}, [tool.attnspec]: {error}") from error


def _checked(key: str, value: Any) -> Any:
    """Return an entry after a check, with the full names of laws and conventions. Raises
    ValueError, with a sentence, for a wrong value.
    """
    if key not in _KEYS:
        listed = f"The keys are {', '.join(_KEYS)}."
        raise ValueError(f"Unknown key {key!r}.{did_you_mean(key, _KEYS, listed)}")
    allowed, should = _KEYS[key]
    if not allowed(value):
        raise ValueError(f"{key} is {value!r}, but should be {should}.")
    if key == "arithmetic":
        resolve(value)
    elif key == "shapes":
        return [*checked(value)]
    elif key == "laws":
        return [_law(text) for text in value]
    elif key == "conventions":
        return parsed(f"{name}={entry}" for name, entry in value.items())
    elif key == "known-deviations":
        tables = {name: _named(entry) for name, entry in value.items() if isinstance(entry, dict)}
        return tables | _named({name: entry for name, entry in value.items() if isinstance(entry, str)})
    return value


def _named(reasons: dict[str, str]) -> dict[str, str]:
    return {_law(text): reason for text, reason in reasons.items()}


def _law(text: str) -> str:
    """Return the full name of a law, or of the law of one operation, from a part of it."""
    law = find(text)[0]
    return law.id if "[" in text else law.name
