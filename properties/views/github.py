"""Writes a report as GitHub's annotations: a line for each cause, which a workflow shows beside the code."""

from properties.verifier.report import Report
from properties.views.results import results

__all__ = ["annotations"]


def annotations(report: Report) -> str:
    """The workflow commands that annotate code: an error for each cause that the baseline lacks."""
    lines = []
    for result in results(report):
        if not result.known:
            place = {"file": result.file, "line": str(result.line)} if result.file else {}
            properties = place | {"title": f"attnspec: {result.title}"}
            given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
            lines.append(f"::error {given}::{_data(result.summary)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    """A message with its line ends escaped, since a line end would end the command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A property with its commas and colons escaped too, since these would end the property."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
