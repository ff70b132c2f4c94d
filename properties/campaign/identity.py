"""Computes the identity of a campaign: everything that its verdicts depend on. A database holds the
results of one campaign only.
"""

import os
import sys
from collections.abc import Iterable
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path
from typing import Any

from properties.processes.messages import Entry, Order

__all__ = ["identity"]

_ORDERED = (
    *(
        "targets",
        "only",
        "arithmetic",
        "conventions",
        "known_deviations",
        "laws",
        "exclude",
        "shapes",
        "max_examples",
        "timeout",
        "memory",
    ),
    "environment",
)
"""The fields of an order that the verdicts depend on."""


def identity(order: Order, climb: int, entries: Iterable[Entry]) -> dict[str, Any]:
    """Return everything that the verdicts of a campaign depend on, by name.

    This is the order (the settings), the number of steps in a search for the worst input, the
    version of attnspec, and digests of the files of the adapters and of the functions under test.
    """
    written = {name: getattr(order, name) for name in _ORDERED}
    return written | {"climb": climb, "attnspec": version("attnspec"), "sources": _digests(order.targets, entries)}


def _digests(targets: Iterable[str], entries: Iterable[Entry]) -> dict[str, str]:
    """Return a digest of each file that this machine has, by the name of the file or of its module."""
    files = {name: _file(name) for target in targets for name in [target.partition(":")[0]]}
    repository = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    source_names = {name for entry in entries for name, _ in entry.sources.values()}
    files |= {name: found for name in source_names for found in (repository / name, Path(name)) if found.is_file()}
    name_by_file = {
        file.resolve(): name
        for name, file in sorted(files.items(), reverse=True)
        if file is not None and file.is_file()
    }
    return {
        name: sha256(file.read_bytes()).hexdigest()[:16]
        for file, name in sorted(name_by_file.items(), key=lambda item: item[1])
    }


def _file(name: str) -> Path | None:
    """Return the file of a target, or None if it is unknown. A module is not imported: its file is
    the one that an import would run.
    """
    if name.endswith(".py") or os.sep in name:
        return Path(name)
    path, spec = [os.getcwd(), *sys.path], None
    for depth in range(1, name.count(".") + 2):
        spec = PathFinder.find_spec(".".join(name.split(".")[:depth]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec is not None and spec.origin else None
