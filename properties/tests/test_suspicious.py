"""Between the statistical line and the proof an error is suspicious: shown and counted, never held,
and no failure unless asked for.
"""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from oracles import Enclosure, preset
from properties.contract.caller import LIKELY
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.contract.subject import Subject
from properties.laws import find
from properties.verifier import examination
from properties.verifier.report import Report
from properties.verifier.verify import check
from properties.views.terminal import print_report

SDPA = "scaled_dot_product_attention"
LAW = f"attention is within its error limit[{SDPA}]"


def narrow_line(monkeypatch, factor):
    """The oracle, whose statistical line is its budget times a factor; the arithmetics that it is
    asked about, with the longest axis.
    """
    asked, answer = [], Operation.expected

    def expected(self, arguments, arithmetic, conventions):
        longest = max((n for x in arguments if isinstance(x, np.ndarray) for n in x.shape), default=0)
        asked.append((arithmetic.likely, longest))
        found = answer(self, arguments, replace(arithmetic, likely=None), conventions)
        if arithmetic.likely is None:
            return found
        return tuple(Enclosure(e.mid, factor * e.rad, format=e.format, vacuous=e.vacuous) for e in found)

    monkeypatch.setattr(Operation, "expected", expected)
    monkeypatch.setattr(examination, "_CASES_PER_LINE", 1)
    return asked


def in_float32(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(max(q.shape[-1], 1)))
    scores = scores if mask is None else np.where(mask, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def verified(strict=False):
    """The law on a few queries and many keys, all of whose cases are put to the line."""
    (law,) = find(LAW)
    found = check(
        replace(law, domains=("decoding",)),
        Implementation("implementation", {SDPA: in_float32}, arithmetic="float32"),
        60,
        0,
    )
    return Report((found,), strict=strict)


def printed(report):
    console = Console(file=io.StringIO(), width=120, no_color=True, force_terminal=False)
    print_report(console, report, {"implementation": ["implementation"]})
    return console.file.getvalue()


def test_an_error_between_the_line_and_the_proof_is_suspicious_and_passes(monkeypatch):
    narrow_line(monkeypatch, 1e-9)
    report = verified()
    (outcome,) = report.outcomes
    assert outcome.status == "suspicious"
    assert report.ok
    assert 0 < outcome.suspicious <= outcome.examples
    assert outcome.worst_excess < 1 < outcome.worst_line
    where = (
        f"On {outcome.suspicious} of {outcome.examples} test inputs an error was up to {outcome.worst_line:.3g} times"
    )
    assert outcome.reason == f"{where} the statistical line, and within the error limit."
    found = report.to_dict()
    assert found["counts"] | {"held": 0, "suspicious": 1} == found["counts"]
    assert found["outcomes"][0]["suspicious"] == outcome.suspicious
    assert "! suspicious  implementation" in printed(report)
    assert "0 pass, 1 suspicious, 0 fail" in printed(report)


def test_what_is_suspicious_is_not_ok_where_that_is_asked_for(monkeypatch):
    narrow_line(monkeypatch, 1e-9)
    assert not verified(strict=True).ok


def test_an_error_within_the_line_is_held_strictly_too(monkeypatch):
    narrow_line(monkeypatch, 1.0)
    report = verified(strict=True)
    assert report.ok
    assert report.outcomes[0].status == "held"
    assert 0 < report.outcomes[0].worst_line <= 1


def test_the_line_is_asked_for_where_an_axis_is_longer_than_64_and_nowhere_else(monkeypatch):
    asked = narrow_line(monkeypatch, 1.0)
    verified()
    assert {likely for likely, longest in asked if longest > 64} == {None, LIKELY}
    assert {likely for likely, longest in asked if longest <= 64} == {None}


def test_a_declared_line_is_its_own(monkeypatch):
    subject = Subject(
        Implementation("mine", {SDPA: in_float32}, arithmetic=replace(preset("float32"), likely=5.4)), SDPA
    )
    q, k = np.zeros((1, 4)), np.zeros((100, 4))
    assert subject(q, k, k, None).line() is None


@pytest.mark.parametrize("status", ["violated", "vacuous", "not run"])
def test_a_strict_report_refuses_what_every_report_refuses(status):
    (outcome,) = verified().outcomes
    assert not Report((replace(outcome, status=status),), strict=True).ok
    assert not Report((replace(outcome, status=status),)).ok
