"""A counterexample that needs earlier calls is printed with them: its script and its test fail on the faulty
code and pass on the right one.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from properties.command.cli import main
from properties.laws import find
from properties.tests.thread_kernels import STATEFUL
from properties.verifier import earlier_calls
from properties.verifier.call_record import CallRecord, RecordedCall
from properties.verifier.earlier_calls import InconclusiveError, merged, reproduced
from properties.verifier.report import Cause, Diagnosis, Violation
from properties.verifier.verify import examine

KERNELS = """
from properties.tests.thread_kernels import STATEFUL

RIGHT = False
ALL = [make(not RIGHT) for make in STATEFUL.values()]
"""
EARLIER = "a call does not depend on earlier calls"
AGREEMENT = "attention is within its error limit", "rope is within its error limit"
SDPA = "scaled_dot_product_attention"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "programs.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(folder, *arguments):
    """The exit status and the errors of Python, run in a folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, *arguments]
    ran = subprocess.run(line, capture_output=True, text=True, cwd=folder, env=environment, timeout=120, check=False)
    return ran.returncode, ran.stdout + ran.stderr


ONLY_AFTER = "The result is wrong only after an earlier call: the same call"
FIRST_WORDS = [
    pytest.param("positions", f"{ONLY_AFTER} with start_pos=0 instead of ", id="positions"),
    pytest.param("masks", f"{ONLY_AFTER} with a mask of shape (", id="masks", marks=pytest.mark.thorough),
    pytest.param("pages", f"{ONLY_AFTER} with other values in ", id="pages", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("name", "first_words"), FIRST_WORDS)
def test_scripts_and_written_tests_fail_on_the_faulty_code_and_pass_on_the_right_one(folder, name, first_words):
    few = ["--max-examples", "60", "--jobs", "1", "--only", name]
    assert main(["verify", "programs.py:ALL", *few, "--json", "report", "--write-tests", "tests"]) == 1
    examples = [cause["example"] for cause in json.loads((folder / "report").read_text())["causes"]]
    (found,) = [example for example in examples if example["earlier_calls"]]
    sentence = found["on_earlier_calls"]
    assert sentence.startswith(first_words)
    assert len(found["earlier_calls"]) == 1
    (folder / "script.py").write_text(found["script"])
    status, said = run(folder, "script.py")
    assert (status, said.splitlines()[-1].partition("Error: ")[2]) == (1, found["summary"])
    assert sentence in " ".join(" ".join(path.read_text() for path in folder.glob("tests/test_*")).split())
    tests = "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests"
    assert f"{len(examples)} failed" in run(folder, *tests)[1]
    (folder / "programs.py").write_text(KERNELS.replace("RIGHT = False", "RIGHT = True"))
    assert run(folder, "script.py")[0] == 0
    assert f"{len(examples)} passed" in run(folder, *tests)[1]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 10))])
@pytest.mark.parametrize("thread", STATEFUL)
def test_the_laws_see_what_programs_are_keyed_by(thread, seed):
    for right in (False, True):
        implementation = STATEFUL[thread](not right)
        operation = next(iter(implementation.operations))
        laws = [find(f"{name}[{operation}]")[0] for name in (AGREEMENT[operation == "rope"], EARLIER)]
        statuses = {outcome.status for outcome in examine(laws, implementation, 60, seed)}
        assert statuses == {"held"} if right else "violated" in statuses


# -- The search, with replays that only look at the calls --------------------------------------------


def call(position, x=1.0):
    return RecordedCall("rope", (np.full((1, 2), x), position))


VIOLATION = Violation(
    AGREEMENT[1], "rope", "mine", "is wrong.", {"x": np.ones((1, 2)), "start_pos": 3}, 2.0, script="replay()"
)
HISTORY = [call(9, x) for x in range(40)]


def searched(fails, history=HISTORY, violation=VIOLATION):
    """The violation that the search returns, and the number of replays."""
    replays = []

    def replay(one):
        replays.append(one)
        return one if fails(one) else None

    return reproduced(violation, history, replay, inf), len(replays)


def test_what_fails_alone_is_replayed_once_and_stays_unchanged():
    assert searched(lambda one: True) == (VIOLATION, 1)


def test_one_earlier_call_is_found_and_made_as_near_as_possible():
    history = [*HISTORY, call(0, 5.0), *HISTORY]
    found, replays = searched(lambda one: any(earlier.arguments[1] == 0 for earlier in one.earlier_calls), history)
    assert [earlier.arguments[1] for earlier in found.earlier_calls] == [0]
    assert np.array_equal(found.earlier_calls[0].arguments[0], VIOLATION.counterexample["x"])
    assert found.on_earlier_calls == (
        "The result is wrong only after an earlier call: the same call with start_pos=0 instead of 3."
    )
    assert replays < 20


def test_several_earlier_calls_are_found():
    def fails(one):
        return {0, 1} <= {earlier.arguments[1] for earlier in one.earlier_calls}

    found, _ = searched(fails, [call(0), *HISTORY[:2], call(1)])
    assert [earlier.arguments[1] for earlier in found.earlier_calls] == [0, 1]
    assert found.on_earlier_calls == (
        "The result is wrong only after 2 earlier calls: rope(x of shape (1, 2), start_pos=0); "
        "rope(x of shape (1, 2), start_pos=1)."
    )


def test_a_larger_input_that_fails_alone_needs_no_earlier_calls():
    cases = tuple({"x": np.ones((rows, 2)), "start_pos": 3} for rows in range(9, 1, -1))
    found, replays = searched(lambda one: len(one.counterexample["x"]) > 4, violation=replace(VIOLATION, larger=cases))
    assert len(found.counterexample["x"]) == 5
    assert (found.on_earlier_calls, replays) == ("", 5)


def test_what_no_sequence_reproduces_is_said_and_has_no_script():
    found, replays = searched(lambda one: False)
    assert found.on_earlier_calls == (
        "It failed in this run and passes in a fresh process; no sequence of the recorded calls reproduces it."
    )
    assert (found.script, replays < 10) == ("", True)


def test_a_search_that_reaches_its_limit_says_so(monkeypatch):
    monkeypatch.setattr(earlier_calls, "_MOST_PROCESSES", 3)
    found, replays = searched(lambda one: False)
    assert found.on_earlier_calls.endswith(" The search ended at its limit of processes or of time.")
    assert replays == 1


def test_a_sequence_that_is_not_the_shortest_yet_is_printed_at_the_limit(monkeypatch):
    monkeypatch.setattr(earlier_calls, "_MOST_PROCESSES", 8)
    found, replays = searched(lambda one: len(one.earlier_calls) > 5)
    assert (len(found.earlier_calls) > 5, replays) == (True, 7)


def named(name):
    return Diagnosis(name, "It is wrong.", "Mend it.")


def test_a_bug_without_memory_is_no_cause_of_a_result_that_needs_earlier_calls():
    both = replace(VIOLATION, diagnosis=(named("rope-half-split-pairs"), named("rope-cache-ignores-offset")))
    (found, _) = searched(lambda one: one.earlier_calls, violation=both)
    assert [each.id for each in found.diagnosis] == ["rope-cache-ignores-offset"]
    assert searched(lambda one: True, violation=both)[0].diagnosis == both.diagnosis


def cause(law, *diagnosis, operation="rope", **changes):
    example = replace(VIOLATION, law=law, operation=operation, diagnosis=diagnosis, **changes)
    return Cause("mine", (f"{law}[{operation}]",), example)


def test_causes_that_need_earlier_calls_are_one():
    needs = {"on_earlier_calls": "It needs a call.", "earlier_calls": (call(9),)}
    alone, about = cause("agrees"), cause(EARLIER)
    lost, found = cause("chunks", on_earlier_calls="Not reproduced."), cause("agrees", named("a-bug"), **needs)
    other = cause("agrees", operation="sdpa", **needs)
    (one, *rest) = merged([about, lost, found, other])
    assert (one.example, rest) == (found.example, [other])
    assert one.laws == (*found.laws, *about.laws, *lost.laws)
    assert merged([alone, found]) == (alone, found)
    assert merged([about, alone]) == (about, alone)
    assert find(EARLIER)


def test_a_replay_without_a_verdict_changes_nothing():
    def replay(one):
        raise InconclusiveError

    assert reproduced(VIOLATION, HISTORY, replay, inf) == VIOLATION


# -- The record ------------------------------------------------------------------------------------


def test_a_record_keeps_the_calls_of_each_entry_in_order(tmp_path, monkeypatch):
    record = CallRecord(tmp_path / "record")
    record.begin("import", (), "contiguous")
    for entry, start_pos in ((0, 1), (1, 2), (0, 3)):
        record.clear(entry)
        record.begin("rope", (np.ones((1, 2)), start_pos), "contiguous")
    position = record.position
    record.begin("rope", (np.ones((1, 2)), 4), "contiguous")
    assert record.noted.arguments[1] == 4
    assert [each.arguments[1] for each in record.history(position, 0)] == [1, 3]
    record.clear(0)
    assert record.noted is None
    record.close()
    assert [each.arguments[1] for each in record.history(position, 1)] == [2]


def test_a_long_record_keeps_the_last_calls(tmp_path, monkeypatch):
    monkeypatch.setattr("properties.verifier.call_record._MOST_BYTES", 1000)
    record = CallRecord(tmp_path / "record")
    for position in range(40):
        record.begin("rope", (np.ones((1, 2)), position), "contiguous")
        positions = [each.arguments[1] for each in record.history(record.position, 0)]
        assert positions == [*range(positions[0], position + 1)]
        assert len(positions) >= min(position + 1, 4)
    assert positions[0] > 0
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3000
    record.close()
