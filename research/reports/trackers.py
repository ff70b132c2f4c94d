"""Reads the table of the trackers: where a library takes bug reports, and how its form looks."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["TRACKERS", "Tracker"]


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """The tracker of a library.

    stars is the number of stars of the repository, and counted says who counted them on which day.
    form is the file of the form for bug reports in the repository, and revision is the commit in
    which it was read, or was not there. sections has the headings of the form in its order, each
    with a text that names parts of a report; required has the headings that may not stay empty.
    prefix begins the title. environment is a command that prints the versions that the form asks
    for. rule says who may write a report. reviewed is the title of the report that was compared
    with the form line by line, and changes says what the comparison changed.
    """

    repository: str = ""
    stars: int = 0
    counted: str = ""
    form: str = ""
    revision: str = ""
    sections: dict[str, str] = field(default_factory=lambda: {"": "{environment}\n\n{report}"})
    required: tuple[str, ...] = ()
    prefix: str = ""
    environment: str = ""
    rule: str = ""
    reviewed: str = ""
    changes: str = ""


TRACKERS = {
    library: Tracker(**entry)
    for library, entry in tomllib.loads(Path(__file__).with_name("trackers.toml").read_text("utf-8")).items()
}
"""{library: its tracker}."""
