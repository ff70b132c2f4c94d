"""The gate: right candidates are accepted, others are not, for the right reason, whatever they do."""

import json
import re
import socket
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

import oracles
from properties.gatehouse.candidate import Limits
from properties.gatehouse.gate import gate
from properties.gatehouse.submission import Submission
from properties.gatehouse.surroundings import surroundings

HERE = Path(__file__).parent
PATIENT = Limits(call=20.0, calls=200.0)  # of a machine that others use too
OPERATION = "scaled_dot_product_attention"


def sections(file):
    """The sources of a file by their names, each after the one that they have in common, and what is said of them, "said" and "needs"."""
    common, *others = re.split(r"^#### ", (HERE / file).read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for name, _, text in (section.partition("\n") for section in others):
        found[name] = common.partition("\n")[2] + text, dict(re.findall(r"^# (said|needs): (.*)$", text, re.MULTILINE))
    return found


SCHEMA = json.loads((files("properties.gatehouse") / "gate.schema.json").read_text())
RIGHT, WRONG = sections("candidates_right.txt"), sections("candidates_wrong.txt")


def candidate(text, arrays="numpy"):
    return Submission("kernel.py", {"kernel.py": text}, {OPERATION: ("kernel", OPERATION)}, arrays)


def said(verdict):
    """All that a verdict says is wrong."""
    return "\n".join([verdict.cause, *(v.summary for v in verdict.report.violations), *(o.reason for o in verdict.report.outcomes)])


@pytest.fixture(scope="module")
def port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.parametrize("arithmetic", ["float64", "float32", "float16"])
@pytest.mark.parametrize("structure", RIGHT)
def test_a_right_candidate_is_accepted(structure, arithmetic):
    arrays = "torch" if structure == "torch" else "numpy"
    verdict = gate(candidate(RIGHT[structure][0], arrays), arithmetic=arithmetic, quick=True, limits=PATIENT)
    assert verdict.accepted, said(verdict)
    assert (verdict.score, verdict.cause) == (1.0, "")


@pytest.mark.parametrize("name", WRONG)
def test_an_adversary_is_not_accepted_and_it_is_told_why(name, port, tmp_path):
    """What needs a fence that the system has not is not run, or not judged: it would be right there."""
    source, words = WRONG[name]
    if words.get("needs") == "processes" and not surroundings(tmp_path, (), {}).apart:
        pytest.skip("This system gives a process no namespace of its own.")
    source = source.replace("HOME", str(Path(oracles.__file__).parents[1])).replace("PORT", str(port))
    verdict = gate(candidate(source), quick=True, seed=1, limits=replace(PATIENT, call=2.0))
    if not set(words.get("needs", "").split()) <= set(verdict.held):
        pytest.skip("This system has no Landlock, by which a process gives up files.")
    assert not verdict.accepted
    assert verdict.score < 1
    assert re.search(words["said"], said(verdict)), said(verdict)
    jsonschema.validate(verdict.to_dict(), SCHEMA)


def test_there_are_thirty_adversaries():
    assert len(WRONG) >= 30
