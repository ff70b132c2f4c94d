"""A report is what its schema says, all of it, and nothing else is read as one."""

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

import properties
from properties.command.cli import main
from properties.verifier import report as data
from properties.verifier.report_file import SCHEMA, read, text_of

LAWS = [
    "rope is within its error limit[rope]",
    "rotation keeps the norm of each pair[rope]",
    "f(a) + f(b) = f(a + b)[rope]",
]


@pytest.fixture(scope="module")
def report():
    """A report with a violation, its cause, and a declared deviation, as JSON has it."""
    known = {"rotation keeps the norm of each pair": "It is declared to."}
    found = properties.verify({"rope": lambda x, start_pos=0: -x}, laws=LAWS, max_examples=10, known_deviations=known)
    assert found.causes
    return json.loads(json.dumps(found.to_dict(), allow_nan=False))


@pytest.fixture
def changed(report, tmp_path):
    """A function that writes the report to a file, something at a path of it changed."""

    def change(value, *path):
        copy = json.loads(json.dumps(report))
        at = copy
        for key in path[:-1]:
            at = at[key]
        if value is KeyError:
            del at[path[-1]]
        else:
            at[path[-1]] = value
        (tmp_path / "report.json").write_text(json.dumps(copy))
        return tmp_path / "report.json"

    return change


def test_what_was_written_is_read(report, changed):
    assert read(changed(report["ok"], "ok")) == report


@pytest.mark.parametrize(
    ("kind", "described"),
    [
        (data.Outcome, "outcome"),
        (data.Violation, "violation"),
        (data.Diagnosis, "diagnosis"),
        (data.Cause, "cause"),
    ],
)
def test_the_schema_describes_all_that_is_written(report, kind, described):
    kept_back = {"calls", "right", "wrong", "refused", "seen", "larger"}  # what only the search for causes needs
    kept_back |= {"coverage", "is_declared"}  # a report has the sum of the coverage
    known = set(SCHEMA["$defs"][described]["properties"])
    derived = {data.Cause: {"diagnosis"}}  # its example's
    assert known == {f.name for f in fields(kind)} - kept_back | derived.get(kind, set())
    assert set(report) == set(SCHEMA["properties"])
    assert SCHEMA["properties"]["version"]["const"] == data.VERSION
    guide = Path(properties.__file__).parents[1] / "docs/guide/ci.md"
    assert f"`version` is {data.VERSION}." in guide.read_text("utf-8")
    assert tuple(SCHEMA["$defs"]["status"]["enum"]) == data.get_args(data.Status)


def test_what_the_command_writes_is_as_the_schema_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("kernels.py").write_text(
        "from properties.bugs.reference import REFERENCE\nadapter = {'rope': REFERENCE['rope']}\n"
    )
    assert (
        main(["verify", "kernels:adapter", "--laws", *LAWS, "--max-examples", "5", "--jobs", "1", "--json", "out.json"])
        == 0
    )
    settings = SCHEMA["$defs"]["settings"]["properties"]
    found = read(Path("out.json"))["settings"]
    assert set(found) == set(settings)
    assert set(found["implementations"][0]) == set(SCHEMA["$defs"]["implementation"]["properties"])


OUTCOME = ("outcomes", 0)
CASE = ("causes", 0, "example", "counterexample", "x")


@pytest.mark.parametrize(
    ("value", "path", "sentence"),
    [
        (KeyError, ("version",), "it has no 'version'"),
        (1, ("version",), "version is 1, but should be 2"),
        (None, ("counts",), "counts is null, but should be an object"),
        (None, ("counts", "held"), "counts.held is null, but should be a whole number"),
        (-1, ("counts", "held"), "counts.held is -1, but should be at least 0"),
        ([], ("settings",), "settings is an array, but should be an object"),
        (KeyError, (*OUTCOME, "law"), "outcomes[0] has no 'law'"),
        (
            "fine",
            (*OUTCOME, "status"),
            'outcomes[0].status is "fine", but should be one of held, suspicious, violated, ',
        ),
        (10**400, (*OUTCOME, "examples"), "outcomes[0].examples is 1000000000000000000000000000"),
        (
            float("inf"),
            (*OUTCOME, "seconds"),
            "outcomes[0].seconds is Infinity, but should be at most 1.7976931348623157e+308",
        ),
        ("far", (*OUTCOME, "worst_excess"), 'outcomes[0].worst_excess is "far", but should be a number, inf or nan'),
        ("x" * 99, (*OUTCOME, "examples"), f'outcomes[0].examples is "{"x" * 55} …, but should be a whole number'),
        ([], ("causes", 0, "laws"), "causes[0].laws is an array, but should be longer: it has fewer than 1"),
        ({}, ("causes", 0, "example", "notes"), "causes[0].example.notes is an object, but should be an array"),
        ([[1, 2], [3]], CASE, "causes[0].example.counterexample.x is not an array of numbers"),
        ([["one"]], CASE, "causes[0].example.counterexample.x is not an array of numbers"),
    ],
)
def test_what_is_not_as_the_schema_says_is_refused_in_a_sentence(changed, capsys, tmp_path, value, path, sentence):
    file = changed(value, *path)
    assert main(["report", str(file), "--html", str(tmp_path / "page")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"attnspec: {file} is not a report of version 2: {sentence}")
    assert said.count("\n") == 1
    assert len(said) < len(str(file)) + 250
    assert not (tmp_path / "page" / "index.html").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file or directory."),
        (b"not JSON", "is not JSON, but should be what `attnspec verify --json` writes."),
        (b"\xff{}", "is not JSON, but should be what `attnspec verify --json` writes."),
        (b"[" * 10**6, "is not JSON, but should be what `attnspec verify --json` writes."),
        (b"[1]", "is not a report of version 2: it is an array, but should be an object."),
    ],
)
def test_what_is_no_report_is_refused_in_a_sentence(content, sentence, tmp_path, capsys):
    file = tmp_path / "report.json"
    if content is not None:
        file.write_bytes(content)
    assert main(["report", str(file), "--html", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"attnspec: {file} {sentence}\n"


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="There is no /dev/zero here.")
def test_a_device_without_an_end_is_no_report():
    with pytest.raises(
        ValueError, match=r"^/dev/zero has more than 256 MiB, but should be what `attnspec verify --json` writes\.$"
    ):
        read(Path("/dev/zero"))


@pytest.mark.parametrize("data", [{}, [], {"a": [1, None], "b": ["x", "y"], "c": {"d": [["inf"]]}}, "×", [{}]])
def test_text_is_the_same_data(data):
    assert json.loads(text_of(data)) == data


def test_an_array_of_numbers_takes_one_line_and_a_list_of_sentences_several():
    text = text_of({"x": [[1.0, 2.0], ["inf", 3.0]], "notes": ["One.", "Two."]})
    assert text.splitlines() == [
        "{",
        ' "x": [[1.0, 2.0], ["inf", 3.0]],',
        ' "notes": [',
        '  "One.",',
        '  "Two."',
        " ]",
        "}",
    ]
