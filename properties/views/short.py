"""Writes a report in the form that editors read: `file:line: message`, one line for each cause."""

from properties.contract.wording import printable
from properties.verifier.report import Report
from properties.views.results import results

__all__ = ["short"]


def short(report: Report) -> str:
    """Return a line for each cause that the baseline lacks. The place is the function of the
    operation; a cause without a known place has the name of its implementation there.
    """
    lines = (
        f"{f'{result.file}:{result.line}' if result.file else result.implementation}: {result.title}: {result.summary}"
        for result in results(report)
        if not result.known
    )
    return "".join(f"{printable(line)}\n" for line in lines)
