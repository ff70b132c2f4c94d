"""Makes the page of portraits: anomalies first, then questions, facts, the declaration and maps."""

from collections.abc import Sequence
from pathlib import Path

from properties.portraits.adapter import declaration
from properties.portraits.portrait import Portrait
from properties.views.html.figures.maps import picture_of_map
from properties.views.html.page import NAME
from properties.views.html.rendering import rendered
from properties.views.whole import write_whole

__all__ = ["html", "write"]


def html(portraits: Sequence[Portrait]) -> str:
    """Return the page of portraits. The same portraits give the same page."""
    operations = [
        {
            "name": f"{portrait.name}: {one.operation}" if len(portraits) > 1 else one.operation,
            "portrait": one,
            "pictures": [picture_of_map(f"map-{place}-{number}-{order}", each) for order, each in enumerate(one.maps)],
        }
        for place, portrait in enumerate(portraits)
        for number, one in enumerate(portrait.operations)
    ]
    return rendered(
        "portrait.html",
        {},
        portraits=portraits,
        operations=operations,
        ok=all(portrait.ok for portrait in portraits),
        verdict="; ".join(f"{portrait.name}: {portrait.verdict}" for portrait in portraits),
        declarations=[
            declaration(portrait) for portrait in portraits if any(one.form is not None for one in portrait.operations)
        ],
    )


def write(portraits: Sequence[Portrait], directory: Path) -> Path:
    """Write the page of portraits to index.html in a directory, whole or not at all. Return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / NAME, html(portraits))
    return directory / NAME
