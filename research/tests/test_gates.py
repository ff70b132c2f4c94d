"""The gate with every candidate: right ones in each structure and arithmetic are accepted, and no adversary is."""

from dataclasses import replace
from itertools import product

import pytest

from properties.gatehouse.gate import gate
from properties.gatehouse.verdict import Verdict
from properties.tests.candidates import ARITHMETICS, RIGHT, UNSEEN, WRONG, adversary
from properties.tests.test_gate import ONE_OF_EACH_KIND, PATIENT, port, require_accepted, require_refused
from properties.verifier.report import Report
from research.gates import __main__ as gates

__all__ = ["port"]


@pytest.mark.parametrize(("structure", "arithmetic"), [*product(RIGHT, ARITHMETICS)])
def test_a_right_candidate_is_accepted(structure, arithmetic):
    """With many seeds by `make gates`."""
    require_accepted(structure, arithmetic)


@pytest.mark.parametrize(
    "name", [name for name in WRONG if name not in ONE_OF_EACH_KIND and "when" not in WRONG[name].notes]
)
def test_an_adversary_is_not_accepted_and_it_is_told_why(name, port, tmp_path):
    """Those that are wrong under a condition, by `make gates`."""
    require_refused(name, port, tmp_path)


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("name", [name for name in WRONG if name.startswith("memorised")])
def test_what_keeps_results_is_not_accepted_by_chance(name, seed, port):
    """The quick plan has few laws that call twice with the same shapes: the checks do, and change
    one array alone, in the same memory.
    """
    assert not gate(adversary(name, port), quick=True, seed=seed, limits=replace(PATIENT, call=2.0)).accepted


def test_there_are_many_adversaries():
    assert len(WRONG) >= 190
    assert all(source.notes["unseen"] for source in UNSEEN.values())


def test_busy_processes_end_with_their_round():
    with gates._load(2) as others:
        assert [other.poll() for other in others] == [None, None]
    assert [other.returncode for other in others] == [-9, -9]


def test_the_page_tells_what_is_refused_from_what_is_not_judged(tmp_path, monkeypatch):
    def judge(submission, seed=-1, **settings):
        return Verdict(seed == 0, 0.0, "", (), 1.0, Report((), {}), judged=seed != 1)

    monkeypatch.setattr(gates, "gate", judge)
    few = ["--seeds", "3", "--repeats", "0", "--adversaries", "1", "--load", "1"]
    monkeypatch.setattr("sys.argv", ["gates", *few, "--output", str(tmp_path / "page")])
    assert gates.main() == 1
    page = (tmp_path / "page").read_text()
    assert "at load 0: 15 accepted, 15 refused, 15 not judged." in page
    assert "at load 1: 15 accepted, 15 refused, 15 not judged." in page
    assert "Adversaries: 0 of 1 accepted" in page
