"""Writes a report as GitHub's annotations: one line for each cause of failures, which a workflow
shows next to the code.
"""

from properties.verifier.report import Report
from properties.views.results import results

__all__ = ["annotations"]


def annotations(report: Report) -> str:
    """Return GitHub's workflow commands that annotate code: an error for each cause that the
    baseline lacks.
    """
    lines = []
    for result in results(report):
        if not result.known:
            place = {"file": result.file, "line": str(result.line)} if result.file else {}
            properties = place | {"title": f"attnspec: {result.title}"}
            given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
            lines.append(f"::error {given}::{_data(result.summary)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    """Return a message with its line ends escaped. A line end would end the command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return a property with its commas and colons escaped too. They would end the property."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
