"""Reads findings from TOML: a folder has a file for each library, and a file has a table
`[[finding]]` for each finding.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar

from oracles.spelling import did_you_mean
from research.findings.finding import Finding

__all__ = ["read"]

Kind = TypeVar("Kind", bound=Finding)


def read(folder: Path, kind: type[Kind]) -> list[Kind]:
    """All findings of a folder. A file is named after its library. Raises ValueError where a key is
    missing, unknown or wrong.
    """
    return [finding for file in sorted(folder.glob("*.toml")) for finding in _of_file(file, kind)]


def _of_file(file: Path, kind: type[Kind]) -> Iterator[Kind]:
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file.name} is not TOML: {error}.") from None
    entries = document.pop("finding", None)
    if document or not isinstance(entries, list):
        raise ValueError(
            f"{file.name} should have tables [[finding]] and nothing else. Type [[finding]] above each finding."
        )
    keys = {field.name: field for field in fields(kind) if field.name != "library"}
    for number, entry in enumerate(entries, start=1):
        _check(f"{file.name}, finding {number} ({entry.get('title', 'without a title')!r}),", entry, keys)
        yield kind(library=file.stem, **entry)


def _check(where: str, entry: Mapping[str, Any], keys: Mapping[str, Field[Any]]) -> None:
    """Raises ValueError, with a sentence that says what to type, where an entry has other keys or
    values than it should.
    """
    for key in entry.keys() - keys.keys():
        advice = did_you_mean(key, keys, f"Type one of {', '.join(keys)}.")
        raise ValueError(f"{where} has the unknown key {key!r}.{advice}")
    for key, field in keys.items():
        choices = field.metadata.get("choices", ())
        advice = f'Type {key} = "…"' + (f" with one of {', '.join(choices)}." if choices else ".")
        if key not in entry and field.default is MISSING:
            raise ValueError(f"{where} has no {key!r}. {advice}")
        if key in entry and not (isinstance(entry[key], str) and entry[key].strip()):
            raise ValueError(f"{where} has {key} = {entry[key]!r}, but should have a text. {advice}")
        if choices and entry[key] not in choices:
            raise ValueError(f"{where} has {key} = {entry[key]!r}. {advice}")
