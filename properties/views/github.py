"""A report as GitHub's annotations: a line for each cause, which a workflow shows beside the code."""

from properties.verifier.report import Report
from properties.views.results import results

__all__ = ["annotations"]


def annotations(report: Report) -> str:
    """The commands of a workflow that annotate code: an error for each cause; none for what is known."""
    lines = []
    for result in results(report):
        if not result.known:
            place = {"file": result.file, "line": str(result.line)} if result.file else {}
            given = ",".join(
                f"{key}={_property(value)}" for key, value in (place | {"title": f"attnspec: {result.title}"}).items()
            )
            lines.append(f"::error {given}::{_data(result.summary)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    """A message, whose line ends, as GitHub reads them, end no command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A property, which a comma or a colon would end."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
