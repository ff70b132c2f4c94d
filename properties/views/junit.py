"""Writes a report as JUnit's XML, which continuous integration shows as tests. Each cause is a
failing test, and each law that passes is a passing test.
"""

import re
from io import BytesIO

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from properties.verifier.report import Outcome, Report
from properties.views.results import Result, results
from properties.views.statuses import LABELS

__all__ = ["junit"]

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Return the XML of a report, with a suite for each implementation.

    A cause is one failing test: the law that shows it best. The other laws that fail for this cause
    are listed there and are not tests. A law that was not run is an error. A law that does not
    apply, fails as declared, or failed in the baseline is skipped, with the reason.
    """
    found, xml = results(report), JUnitXml("attnspec")
    names = [outcome.implementation for outcome in report.outcomes]
    for name in dict.fromkeys([*names, *(result.implementation for result in found)]):
        suite = TestSuite(_text(name))
        for key in ("seed", "max_examples"):
            suite.add_property(key, str(report.settings.get(key, "")))
        outcomes = {outcome.law_id: outcome for outcome in report.outcomes if outcome.implementation == name}
        failures = [result for result in found if result.implementation == name]
        for result in failures:
            suite.add_testcase(_failed(result, sum(outcomes[law].seconds for law in result.laws)))
        failing = {law for result in failures for law in result.laws}
        suite.add_testcases([_passed(outcome) for law, outcome in outcomes.items() if law not in failing])
        xml.add_testsuite(suite)
    written = BytesIO()
    xml.write(written)
    return written.getvalue().decode("utf-8") + "\n"


def _failed(result: Result, seconds: float) -> TestCase:
    test = TestCase(_text(result.law), _text(result.implementation), seconds)
    kind = Skipped if result.known else Error if result.status in ("not run", "stopped early") else Failure
    message = ("Known in the baseline: " if result.known else "") + result.summary
    failure = kind(_text(message), _text(result.cause or LABELS[result.status]))
    failure.text = _text(result.text)
    test.result = [failure]
    return test


def _passed(outcome: Outcome) -> TestCase:
    test = TestCase(_text(outcome.law_id), _text(outcome.implementation), outcome.seconds)
    if outcome.status in ("declared", "not applicable") or outcome.unavailable:
        test.result = [Skipped(_text(outcome.reason), LABELS[outcome.status])]
    return test


def _text(text: str) -> str:
    """Return a text in which characters that XML cannot contain are escaped as in Python."""
    return _NOT_IN_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
