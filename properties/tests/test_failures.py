"""A failure of attnspec's own code is said to be one, with its traceback, and the rest of the verdict stays."""

import json
import re

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.command.cli import main
from properties.contract.implementation import Implementation
from properties.laws import find
from properties.verifier import diagnosis
from properties.verifier.verify import verify

ROPE = find("rope is within its error limit[rope]")[0].id
DEFECT = "This is a defect of attnspec, not of your kernel: please report it, with this traceback: "
PLANTED = """
import numpy as np
from properties.bugs.reference import REFERENCE
from properties.processes import worker

def fails(*arguments, **options):
    raise ZeroDivisionError("planted")

worker.{name} = fails
right = {{"rope": REFERENCE["rope"]}}
wrong = {{"rope": lambda x, start_pos=0: -x}}
"""
RAISING = """
from attnspec import properties
from properties.bugs.reference import REFERENCE

def raises(width):
    raise KeyError("no width")

mine = properties.Implementation("mine", {"rope": REFERENCE["rope"]}, supports={"head_dim": raises})
"""


@pytest.fixture
def ran(tmp_path, monkeypatch, capsys):
    """The exit status, the report and what is told of an implementation, where a function of the
    child's side of the command fails.
    """

    def run(name, implementation):
        (tmp_path / "planted.py").write_text(PLANTED.format(name=name))
        monkeypatch.chdir(tmp_path)
        few = [
            "--laws",
            ROPE,
            "a second call gives the same result[rope]",
            "--max-examples",
            "4",
            "--jobs",
            "1",
            "--json",
            "-",
        ]
        status = main(["verify", f"planted.py:{implementation}", *few])
        printed = capsys.readouterr()
        return status, json.loads(printed.out), printed.err

    return run


def test_laws_that_attnspec_fails_to_check_have_no_verdict_and_the_command_says_so(ran):
    status, report, told = ran("_outcomes", "right")
    assert status == 2
    assert told.endswith("attnspec: attnspec itself failed: 2 laws could not be checked. The report says why.\n")
    assert [(o["status"], o["defect"]) for o in report["outcomes"]] == [("not run", True)] * 2
    reason = report["outcomes"][0]["reason"]
    assert reason.startswith(
        f"attnspec failed while it did what the command had asked for: ZeroDivisionError: planted. {DEFECT}"
    )
    assert "planted.py:7 in fails, called from properties/processes/worker.py:" in reason


def test_a_violation_stays_one_where_attnspec_fails_to_look_for_its_cause(ran):
    status, report, told = ran("_causes", "wrong")
    assert (status, "attnspec itself failed" in told) == (1, False)
    (cause,) = report["causes"]
    assert (cause["laws"], cause["searched"], cause["diagnosis"]) == ([ROPE], False, [])
    assert cause["example"]["summary"].startswith("out[")
    assert DEFECT in cause["example"]["notes"][-1]
    assert "the process" not in json.dumps(report["causes"])


def test_a_failure_before_anything_is_checked_is_a_sentence(ran):
    status, report, told = ran("plan", "right")
    assert (status, report["outcomes"]) == (2, [])
    assert told.startswith(
        "attnspec: attnspec failed while it read what there is to verify: ZeroDivisionError: planted. This is a "
    )


def test_a_predicate_that_raises_makes_the_adapter_unusable_and_is_no_failure_of_attnspec(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "raising.py").write_text(RAISING)
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "raising.py", "--laws", ROPE, "--max-examples", "4", "--jobs", "1"]) == 2
    printed = capsys.readouterr()
    assert "attnspec: mine cannot be used: supports['head_dim'](" in printed.err
    assert ") raised KeyError: 'no width', at " in printed.err
    assert re.search(r"raising\.py:6: `.+`\.\n$", printed.err)
    assert "defect of attnspec" not in printed.err + printed.out


def test_a_predicate_that_raises_ends_a_verification_with_a_sentence():
    def raises(width):
        raise KeyError("no width")

    mine = Implementation("mine", {"rope": REFERENCE["rope"]}, supports={"head_dim": raises})
    with pytest.raises(ValueError, match=r"^supports\['head_dim'\]\(\d+\) raised KeyError: 'no width'\.$"):
        verify(mine, laws=[ROPE], max_examples=4)


def fails(*arguments, **options):
    raise ZeroDivisionError("planted")


def test_an_oracle_that_fails_leaves_the_other_laws_their_verdicts(monkeypatch):
    i = Implementation("mine", {"rope": REFERENCE["rope"]})
    monkeypatch.setattr("properties.contract.subject.Subject.judge", fails)
    found = {
        o.law_id: o
        for o in verify(i, laws=[ROPE, "a second call gives the same result[rope]"], max_examples=4).outcomes
    }
    assert [o.status for o in found.values()] == ["not run", "held"]
    assert found[ROPE].reason.startswith(
        f"attnspec failed while it judged a call of rope: ZeroDivisionError: planted. {DEFECT}"
    )


def test_where_a_cause_cannot_be_looked_for_each_operation_has_one_and_a_note(monkeypatch):
    monkeypatch.setattr(diagnosis, "_explained", fails)
    report = verify({"rope": lambda x, start_pos=0: -x, "rotate_half": lambda x: np.asarray(x) + 1.0}, max_examples=4)
    assert [cause.example.operation for cause in report.causes] == ["rope", "rotate_half"]
    assert {law for cause in report.causes for law in cause.laws} == {v.law_id for v in report.violations}
    for cause in report.causes:
        assert (cause.searched, cause.likely) == (False, None)
        assert any(
            note.startswith("attnspec failed while it looked for the cause: ZeroDivisionError: ")
            for note in cause.example.notes
        )
