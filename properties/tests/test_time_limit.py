"""A time limit: cases are drawn while there is some, each law gets its share, and what is cut
short has not held.
"""

import itertools
import json
import re
import time
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import pytest

import properties
from properties.bugs.reference import REFERENCE
from properties.command.cli import main
from properties.contract.costs import Costs
from properties.contract.operations import OPERATIONS
from properties.laws import LAWS
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.verifier import case_drawing, examination, shrinking
from properties.verifier.case_drawing import TimeLimit
from properties.verifier.examination import Supervision
from properties.verifier.plan import CALLS
from properties.verifier.verify import examine, verify

ROPE = [law for law in LAWS if law.operation == "rope"]
RIGHT = properties.Implementation("right", {"rope": REFERENCE["rope"]}, supports=())


def clock(module, monkeypatch, readings):
    """The module's monotonic clock gives these readings."""
    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: next(readings), perf_counter=time.perf_counter)
    )


@pytest.mark.parametrize("cases", [0, 3])
def test_no_case_is_drawn_when_time_is_up_and_what_is_cut_short_has_not_held(monkeypatch, cases):
    clock(examination, monkeypatch, itertools.count())
    outcomes = examine(ROPE, RIGHT, 100, 0, supervision=Supervision(until=cases))
    assert {o.status for o in outcomes} == {"not run", "not applicable"} | ({"stopped early"} if cases else set())
    said, advice = f"Time was up after {cases} test inputs of rope", "Give a longer time limit, or fewer test inputs."
    assert {(o.status, o.reason) for o in outcomes if o.status != "not applicable"} == {
        ("not run", f"{said}, before the law was checked. {advice}"),
        *([("stopped early", f"{said}: no failure. {advice}")] if cases else []),
    }
    assert all((o.examples > 0) == (o.status == "stopped early") for o in outcomes)


def test_a_run_that_is_cut_short_has_seen_every_domain_and_the_first_cases_of_one_that_is_not(monkeypatch):
    def calls(until):
        found = []
        clock(examination, monkeypatch, itertools.count())
        examine(
            ROPE, RIGHT, 100, 0, supervision=Supervision(observe=lambda *call: found.append(repr(call)), until=until)
        )
        return found

    few, many = calls(8), calls(40)
    assert few == many[: len(few)]
    assert len(few) < len(many)
    drawn, draw = [], Cases.draw
    monkeypatch.setattr(Cases, "draw", lambda cases, seed: drawn.append(cases.domain.name) or draw(cases, seed))
    plain = sorted(set(DOMAINS["rope"]) - {"as models rotate", "sections"})  # of options, which are not declared
    calls(until := len(plain))
    assert sorted(drawn) == plain
    assert until > 3


def test_a_law_has_held_if_and_only_if_all_of_its_cases_were_drawn(monkeypatch):
    law, readings = next(law for law in ROPE if law.agreement), itertools.count()
    clock(examination, monkeypatch, readings)
    assert examine([law], RIGHT, 20, 0)[0].status == "held"
    needed = next(readings)
    for until, status in ((needed, "held"), (needed - 1, "stopped early")):
        clock(examination, monkeypatch, itertools.count())
        assert examine([law], RIGHT, 20, 0, supervision=Supervision(until=until))[0].status == status


def test_what_was_seen_to_be_broken_in_time_is_violated(monkeypatch):
    clock(examination, monkeypatch, itertools.count())
    wrong = properties.Implementation("wrong", {"rope": lambda x, start_pos=0: x + 1.0})
    statuses = {o.law: o.status for o in examine(ROPE, wrong, 20, 0, supervision=Supervision(until=4))}
    assert statuses["rope is within its error limit"] == "violated"
    assert set(statuses.values()) <= {"violated", "stopped early", "not run", "not applicable"}


def test_a_declared_deviation_that_was_not_seen_in_time_is_not_said_to_hold(monkeypatch):
    clock(examination, monkeypatch, itertools.count())
    declared = properties.Implementation(
        "declared", RIGHT.operations, known_deviations={"f(a) + f(b) = f(a + b)": "As its page says."}
    )
    statuses = {o.law: o.status for o in examine(ROPE, declared, 20, 0, supervision=Supervision(until=3))}
    assert statuses["f(a) + f(b) = f(a + b)"] == "stopped early"


@pytest.mark.parametrize(
    ("laws", "left", "workers", "elapsed", "until"),
    [
        (
            10,
            40,
            1,
            0,
            18.75,
        ),  # of 100 seconds 75 are for cases, and a fourth of the laws that are left get a fourth of what is left
        (10, 40, 2, 0, 37.5),  # twice as long, where two processes are at work
        (30, 40, 2, 0, 75.0),
        (10, 20, 1, 25, 50.0),
        (10, 20, 1, 90, 90.0),  # none is left
    ],
)
def test_each_law_that_is_left_gets_as_long(monkeypatch, laws, left, workers, elapsed, until):
    clock(case_drawing, monkeypatch, iter([0.0, float(elapsed)]))
    limit = TimeLimit(100.0)
    assert limit.end == 100.0
    assert limit.share(laws, left, workers) == until


def test_without_an_end_there_is_always_time():
    assert TimeLimit().share(1, 100) == TimeLimit().end == inf


@pytest.mark.parametrize(
    ("readings", "settings"),
    [(itertools.repeat(inf), {"time_limit": 60}), (itertools.count(0.0, 61.0), {})],
    ids=["the run's time is up", "a minute is over"],
)
def test_smaller_inputs_are_looked_for_in_time(monkeypatch, readings, settings):
    wrong = {"rope": lambda x, start_pos=0: -x}
    (cause,) = verify(wrong, laws=["rope is within its error limit"], max_examples=5).causes
    clock(shrinking, monkeypatch, readings)
    (hurried,) = verify(wrong, laws=["rope is within its error limit"], max_examples=5, **settings).causes
    assert repr(cause.example.counterexample) != repr(hurried.example.counterexample)


@pytest.mark.parametrize("seconds", [0, -1, inf, float("nan"), "60s", True])
def test_a_time_limit_is_a_number_of_seconds(seconds):
    with pytest.raises(ValueError, match=r"^time_limit=.*, but should be a positive number of seconds\.$"):
        verify({"rope": REFERENCE["rope"]}, time_limit=seconds)


KERNELS = """
import time
from dataclasses import replace
from properties.bugs.reference import REFERENCE

def slowly(function):
    def call(*arguments):
        time.sleep(0.1)
        return function(*arguments)
    return call

slow = {name: slowly(REFERENCE[name]) for name in ("rope", "rotate_half", "apply_rotary")}
"""


def test_the_command_ends_in_time_and_says_which_laws_were_cut_short(tmp_path, monkeypatch, capsys):
    (tmp_path / "slow_kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    assert main(["verify", "slow_kernels:slow", "--time-limit", "6s", "--jobs", "1", "--json", "out.json", "-v"]) == 1
    assert time.monotonic() - start < 60  # without a limit it takes minutes; the machine may be busy
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["settings"]["time_limit"] == 6.0
    ended = [o for o in report["outcomes"] if o["status"] in ("stopped early", "not run")]
    assert {o["operation"] for o in ended} == {"rope", "rotate_half", "apply_rotary"}
    printed = " ".join(capsys.readouterr().out.split())
    assert "… not run slow" in printed
    for o in ended:
        assert o["reason"].startswith("Time was up after ")
        assert o["reason"] in printed
    assert re.search(r" \d+ not run \(\d+\.\d s\)$", printed)
    assert 2 < report["seconds"] < 60


@pytest.mark.parametrize("text", ["0s", "-1", "1 minute", "", "1e3", "s"])
def test_what_is_no_time_is_refused(text, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["verify", "m:a", "--time-limit", text])
    assert exit.value.code == 2
    assert f"argument --time-limit: {text!r}, but should be a time, as 60s, 5m or 1h." in capsys.readouterr().err


def test_the_usual_number_of_calls_is_known_for_each_operation():
    assert CALLS.keys() == OPERATIONS.keys()


def test_laws_are_finished_one_after_the_other_if_there_is_no_time_for_all(monkeypatch):
    monkeypatch.setattr(examination.Examination, "_needs_more_time", lambda self, seconds, done, cases: done == 8)
    rank = {"held": 0, "stopped early": 1, "not run": 1}
    held = []
    for until in (30, 60, 10**6):
        clock(examination, monkeypatch, itertools.count())
        outcomes = examine(ROPE, RIGHT, 100, 0, supervision=Supervision(until=until))
        applied = [outcome for outcome in outcomes if outcome.status != "not applicable"]
        assert {outcome.status for outcome in applied} <= {*rank, "vacuous"}
        agreement = next(outcome for outcome in applied if outcome.law == "rope is within its error limit")
        assert agreement.status == "held"
        held.append(sum(outcome.status == "held" for outcome in applied))
    assert held[0] < held[1] < held[2]
    assert all(outcome.status == "held" for outcome in applied)


@pytest.mark.parametrize(("limit", "needs"), [(None, False), (Costs(1.0), True)])
def test_only_with_a_limit_of_costs_laws_do_not_take_turns(limit, needs):
    mine = replace(RIGHT, supports=replace(RIGHT.support, costs=limit))
    asked = examination.Examination(mine, "rope", ROPE, Supervision(until=time.monotonic() + 100))
    assert asked._needs_more_time(8.0, 8, 200) == needs
    assert not asked._needs_more_time(8.0, 8, 20)
    assert not asked._needs_more_time(8.0, 2, 200)
