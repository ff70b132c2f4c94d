"""What a campaign is of: all that its verdicts depend on. A database holds the verdicts of one."""

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
        "max_examples",
        "timeout",
        "memory",
    ),
    "environment",
)
"""What of an order verdicts depend on."""


def identity(order: Order, climb: int, entries: Iterable[Entry]) -> dict[str, Any]:
    """What verdicts depend on, by name: the order, the steps of a climb, the version of attnspec,
    and digests of the files in which the targets and the functions under test are written."""
    written = {name: getattr(order, name) for name in _ORDERED}
    return written | {"climb": climb, "attnspec": version("attnspec"), "sources": _digests(order.targets, entries)}


def _digests(targets: Iterable[str], entries: Iterable[Entry]) -> dict[str, str]:
    """A digest of each file, by what the file or its module is called; of those only that this machine has."""
    files = {name: _file(name) for target in targets for name in [target.partition(":")[0]]}
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    written = {name for entry in entries for name, _ in entry.sources.values()}
    files |= {name: found for name in written for found in (root / name, Path(name)) if found.is_file()}
    known = {
        file.resolve(): name
        for name, file in sorted(files.items(), reverse=True)
        if file is not None and file.is_file()
    }
    return {
        name: sha256(file.read_bytes()).hexdigest()[:16]
        for file, name in sorted(known.items(), key=lambda item: item[1])
    }


def _file(name: str) -> Path | None:
    """The file of a target, or the one that a module's import would run, which is not imported
    here; None where nobody knows.
    """
    if name.endswith(".py") or os.sep in name:
        return Path(name)
    path, spec = [os.getcwd(), *sys.path], None
    for end in range(1, name.count(".") + 2):
        spec = PathFinder.find_spec(".".join(name.split(".")[:end]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec is not None and spec.origin else None
