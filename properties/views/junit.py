"""A report as JUnit's XML, which continuous integration shows as tests: one that fails for each
cause, and one for each law that passes.
"""

import re
from io import BytesIO

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from properties.verifier.report import Outcome, Report
from properties.views.results import Result, results

__all__ = ["junit"]

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """The XML of a report: a suite for each implementation.

    A cause is the test of the law that shows it best, which fails; the other laws that it breaks
    are listed there, and are no tests. What was not run is an error. Laws that do not apply, are
    declared to be broken, or were known to be, are skipped, with the reason.
    """
    found, xml = results(report), JUnitXml("attnspec")
    names = [o.implementation for o in report.outcomes]
    for name in dict.fromkeys([*names, *(r.implementation for r in found)]):
        suite = TestSuite(_text(name))
        for key in ("seed", "max_examples"):
            suite.add_property(key, str(report.settings.get(key, "")))
        outcomes = {o.law_id: o for o in report.outcomes if o.implementation == name}
        these = [r for r in found if r.implementation == name]
        for result in these:
            suite.add_testcase(_failed(result, sum(outcomes[law].seconds for law in result.laws)))
        told = {law for result in these for law in result.laws}
        suite.add_testcases([_passed(o) for law, o in outcomes.items() if law not in told])
        xml.add_testsuite(suite)
    written = BytesIO()
    xml.write(written)
    return written.getvalue().decode("utf-8") + "\n"


def _failed(result: Result, seconds: float) -> TestCase:
    case = TestCase(_text(result.law), _text(result.implementation), seconds)
    kind = Skipped if result.known else Error if result.status == "not run" else Failure
    said = kind(
        _text(("Known in the baseline: " if result.known else "") + result.summary),
        _text(result.cause or result.status),
    )
    said.text = _text(result.text)
    case.result = [said]
    return case


def _passed(o: Outcome) -> TestCase:
    case = TestCase(_text(o.law_id), _text(o.implementation), o.seconds)
    if o.status in ("declared", "not applicable") or o.unavailable:
        case.result = [Skipped(_text(o.reason), o.status)]
    return case


def _text(text: str) -> str:
    """A text without the characters that XML cannot have, which are written as Python writes them."""
    return _NO_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
