"""What a project says once in pyproject.toml, and what the command line says instead."""

import json
from pathlib import Path

import pytest

from properties.command.cli import main

KERNELS = """
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation

right = {"rope": REFERENCE["rope"]}
half = {"rope": CATALOGUE["rope-half-split-pairs"].fresh()}
both = [Implementation("right one", right), Implementation("wrong one", half)]
lookup = {"rotate_half": REFERENCE["rotate_half"]}
"""
TABLE = """
[tool.attnspec]
targets = ["configured_kernels:right"]
arithmetic = "float64"
laws = ["F-a + f(b) = f(a + b)", "rope is within its error limit[rope]"]
max-examples = 7
seed = 3

[tool.attnspec.conventions]
rope_base = 500.0
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "configured_kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)

    def write(table):
        (tmp_path / "pyproject.toml").write_text(table)

    return write


def verify(*options, status=0):
    assert main(["verify", *options, "--jobs", "1", "--json", "out.json"]) == status
    return json.loads(Path("out.json").read_text())


def test_what_the_project_says_need_not_be_said(project, capsys):
    project(TABLE)
    report = verify(status=1)  # the reference rotates by the usual base
    settings = report["settings"]
    assert {key: settings[key] for key in ("targets", "arithmetic", "max_examples", "seed", "conventions")} == {
        "targets": ["configured_kernels:right"],
        "arithmetic": "float64",
        "max_examples": 7,
        "seed": 3,
        "conventions": {"rope_base": 500.0},
    }
    assert {o["law"] for o in report["outcomes"]} == {"f(a) + f(b) = f(a + b)", "rope is within its error limit"}


def test_the_command_line_wins(project, capsys):
    project(TABLE)
    said = [
        "configured_kernels:lookup",
        "--laws",
        "f(a) + f(b) = f(a + b)",
        "--max-examples",
        "5",
        "--seed",
        "0",
        "--arithmetic",
        "float32",
    ]
    report = verify(*said, "--convention", "rope_base=10000")
    settings = report["settings"]
    assert {key: settings[key] for key in ("targets", "arithmetic", "max_examples", "seed", "conventions")} == {
        "targets": ["configured_kernels:lookup"],
        "arithmetic": "float32",
        "max_examples": 5,
        "seed": 0,
        "conventions": {"rope_base": 10000.0},
    }
    assert {o["operation"] for o in report["outcomes"]} == {"rotate_half"}


def test_laws_that_are_named_are_checked_in_the_quick_plan_too(project, capsys):
    project(TABLE.replace("500", "10000"))
    assert {o["law"] for o in verify("--quick")["outcomes"]} == {
        "f(a) + f(b) = f(a + b)",
        "rope is within its error limit",
    }


@pytest.mark.thorough
def test_without_a_table_everything_is_as_usual(project, capsys):
    for table in ("[project]\nname = 'x'\n", "[tool.attnspec]\n"):
        project(table)
        settings = verify("configured_kernels:right", "--laws", "f(a) + f(b) = f(a + b)")["settings"]
        assert (settings["max_examples"], settings["seed"], settings["conventions"]) == (100, 0, {})
    assert main(["verify"]) == 2
    said = (
        "There is nothing to verify: name an adapter, as in `attnspec verify my_kernels.py`, or "
        "list `targets` in pyproject.toml, [tool.attnspec].\n"
    )
    assert capsys.readouterr().err.endswith(f"attnspec: {said}")


LAWS = 'laws = ["rope is within its error limit", "f(a) + f(b) = f(a + b)"]\nmax-examples = 10\n'


@pytest.mark.parametrize(
    ("declared", "right", "wrong"),
    [
        ("", "held", "violated"),
        (
            '[tool.attnspec.known-deviations."wrong one"]\n"rope is within its error limit" = "Its pairs are halves."',
            "held",
            "declared",
        ),
        (
            '[tool.attnspec.known-deviations."wrong one"]\n"rope-is-within[rope]" = "Its pairs are halves."',
            "held",
            "declared",
        ),
        (
            '[tool.attnspec.known-deviations]\n"rope is within its error limit" = "Pairs are halves."',
            "violated",
            "declared",
        ),
        (
            '[tool.attnspec.known-deviations]\n"attention is within its error limit" = "Of no concern here."',
            "held",
            "violated",
        ),
    ],
)
def test_deviations_are_declared_of_all_to_which_the_law_applies_or_of_one(project, capsys, declared, right, wrong):
    project(f"[tool.attnspec]\n{LAWS}{declared}\n")
    report = verify("configured_kernels:both", status=0 if wrong == "declared" and right == "held" else 1)
    statuses = {
        o["implementation"]: o["status"] for o in report["outcomes"] if o["law"] == "rope is within its error limit"
    }
    assert statuses == {"right one": right, "wrong one": wrong}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("example = 3", "Unknown key 'example'. Did you mean 'max-examples'?"),
        ("max_examples = 3", "Unknown key 'max_examples'. Did you mean 'max-examples'?"),
        ("zzz = 3", "Unknown key 'zzz'. The keys are targets, arithmetic, conventions, known-deviations, laws, "),
        ("max-examples = 0", "max-examples is 0, but should be a whole number from 1."),
        ("max-examples = true", "max-examples is True, but should be a whole number from 1."),
        ('seed = "1"', "seed is '1', but should be a whole number."),
        ("targets = []", "targets is [], but should be a list of targets, as [\"my_kernels.py\"]."),
        ('targets = "my_kernels"', "targets is 'my_kernels', but should be a list of targets, as [\"my_kernels.py\"]."),
        ('laws = ["zzz"]', "Unknown law 'zzz'. "),
        ('arithmetic = "float65"', "arithmetic='float65', but should be one of float64, "),
        ('conventions = "half"',
         "conventions is 'half', but should be a table of conventions, as {rope_pairing = \"half\"}."),
        ('conventions = {rope_pairs = "half"}', "Unknown convention 'rope_pairs'. Did you mean 'rope_pairing'?"),
        ('conventions = {rope_pairing = "halves"}',
         "Conventions.rope_pairing='halves', but should be one of 'adjacent', 'half'. Did you mean 'half'?"),
        ('known-deviations = {"f(a) + f(b) = f(a + b)" = ""}',
         "known-deviations is {'f(a) + f(b) = f(a + b)': ''}, but should be a table from "),
        ('known-deviations = {"one" = {"f(a) + f(b) = f(a + b)" = 1}}',
         "known-deviations is {'one': {'f(a) + f(b) = f(a + b)': 1}}, but should be a table "),
        ('known-deviations = {"zzz" = "It is."}', "Unknown law 'zzz'. "),
    ],
)  # fmt: skip
def test_what_a_table_should_not_say_is_refused_in_a_sentence(project, capsys, table, sentence):
    project(f"[tool.attnspec]\n{table}\n")
    assert main(["verify", "configured_kernels:right"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"attnspec: pyproject.toml, [tool.attnspec]: {sentence}")
    assert said.err.count("\n") == 1


def test_what_is_no_toml_is_refused_in_a_sentence(project, capsys):
    project("[tool.attnspec\n")
    assert main(["verify", "configured_kernels:right"]) == 2
    assert capsys.readouterr().err.startswith("attnspec: pyproject.toml is not TOML: ")


@pytest.mark.parametrize("text", ["[tool]\nattnspec = 5\n", "tool = 5\n"])
def test_what_is_no_table_is_refused_in_a_sentence(project, capsys, text):
    project(text)
    assert main(["verify", "configured_kernels:right"]) == 2
    assert capsys.readouterr().err == "attnspec: pyproject.toml says 5 for [tool.attnspec], which should be a table.\n"
