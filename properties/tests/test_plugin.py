"""Conformance in pytest: items, their names, what a failing one says, and the option without a test file."""

import os
import re
import subprocess
import sys

import pytest

import properties
from properties.bugs.reference import REFERENCE
from properties.conformance import checks
from properties.contract.implementation import Implementation

KERNELS = """
import itertools
from properties.contract.implementation import Implementation
from properties.bugs.reference import REFERENCE

rope = REFERENCE["rope"]
calls = itertools.count()
right = Implementation("right one", {"rope": rope})
wrong = {"rope": lambda x, start_pos=0: rope(x, start_pos) + next(calls)}
law = "a second call gives the same result"
known = Implementation("known", wrong, known_deviations={law: "It counts its calls."})
mended = Implementation("mended", {"rope": rope}, known_deviations={law: "It counted its calls once."})
all_of_them = [right, wrong, known, mended]
"""
TESTS = """
import properties
import kernels

@properties.parametrize_with_laws(kernels.all_of_them, laws=["a second call gives the same result"], max_examples=8)
def test_conformance(check):
    check()
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "test_kernels.py").write_text(TESTS)

    def pytest_as_a_user_does(*arguments):
        line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        ran = subprocess.run(
            line, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60, check=False
        )
        return ran.stdout + ran.stderr

    return pytest_as_a_user_does


def test_items_pass_fail_and_are_expected_to_fail_as_the_laws_say(run):
    printed = run("-v")
    item = "test_kernels.py::test_conformance[a-second-call-gives-the-same-result[rope]-"
    assert f"{item}right-one] PASSED" in printed
    assert f"{item}implementation] FAILED" in printed
    assert f"{item}known] XFAIL" in printed
    assert f"{item}mended] FAILED" in printed
    assert "✗ a second call gives the same result [rope]: implementation" in printed
    assert "The smallest input found:\n    x " in printed
    assert "Remove the declaration. It says: It counted its calls once." in " ".join(printed.split())
    assert "    implementation = ...  # the implementation under test\n" in printed
    assert "verifier.py" not in printed
    assert "BrokenError" not in printed
    summary = printed.split("= attnspec =")[1]
    assert "implementation: 0 pass, 1 fails, on " in summary
    assert "known: 0 pass, 1 fails as declared, on " in summary
    assert "right one: 1 passes, on " in summary


def test_the_decorator_works_without_the_plugin(run):
    printed = run("-p", "no:attnspec")
    assert "2 failed, 1 passed, 1 xfailed" in printed
    assert "= attnspec =" not in printed


@pytest.mark.thorough
def test_items_are_the_same_in_every_process_of_xdist_and_their_outcomes_are_summed_up(run):
    printed = run("-n", "2")
    assert "2 failed, 1 passed, 1 xfailed" in printed
    assert "right one: 1 passes, on " in printed


@pytest.mark.thorough
def test_the_option_needs_no_test_file(run):
    printed = run(
        "--attnspec",
        "kernels:right",
        "--attnspec",
        "kernels:wrong",
        "-k",
        "second-call",
        "--ignore",
        "test_kernels.py",
        "-v",
    )
    assert "1 failed, 1 passed" in printed
    assert re.search(r"attnspec::kernels:right::a-second-call-gives-the-same-result\[rope\]-right-one PASSED", printed)
    assert "wrong: 0 pass, 1 fails" in printed
    assert "    from kernels import wrong\n" in printed


def test_a_target_that_is_none_is_an_error_of_usage(run):
    assert (
        "ERROR: --attnspec kernels:nothing: kernels has no attribute 'nothing'. Its adapters are right, known, mended."
        in run("--attnspec", "kernels:nothing")
    )


def test_laws_that_do_not_apply_are_left_out_and_names_are_distinct():
    found = checks([{"rope": REFERENCE["rope"]}, Implementation("implementation", {"rope": REFERENCE["rope"]})])
    assert {check.law.operation for check in found} == {"rope"}
    assert len({check.id for check in found}) == len(found)
    assert all(re.fullmatch(r"\S+", check.id) for check in found)


def test_laws_that_are_excluded_are_left_out():
    laws, other = (
        ["f(a) + f(b) = f(a + b)", "rotation keeps the norm of each pair"],
        {"rope_vjp": REFERENCE["rope_vjp"]},
    )
    found = checks(
        [{"rope": REFERENCE["rope"], **other}], laws, exclude=["f(a) + f(b) = f(a + b)[rope]", "rotation keeps"]
    )
    assert [check.law.id for check in found] == ["f(a) + f(b) = f(a + b)[rope_vjp]"]
    marked = properties.parametrize_with_laws([{"rope": REFERENCE["rope"]}], laws, exclude=["f(a) + f(b) = f(a + b)"])
    assert [parameter.id for parameter in marked.mark.args[1]] == [
        "rotation-keeps-the-norm-of-each-pair[rope]-implementation"
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (
            {"implementations": {"rope": REFERENCE["rope"]}},
            TypeError,
            "implementations has type dict, but should be a list of impl",
        ),
        (
            {"implementations": [1]},
            TypeError,
            "an object of type int offers no operation, but should be a mapping or an object with",
        ),
        (
            {"implementations": [REFERENCE], "laws": ["zzz"]},
            ValueError,
            "Unknown law 'zzz'. `attnspec laws` lists the known ones.",
        ),
        (
            {"implementations": [REFERENCE], "max_examples": 0},
            ValueError,
            "max_examples=0, but should be a whole number from 1.",
        ),
        (
            {"implementations": [REFERENCE], "exclude": "zzz"},
            TypeError,
            "exclude='zzz', but should be a collection of names.",
        ),
        (
            {"implementations": [REFERENCE], "exclude": None},
            TypeError,
            "exclude=None, but should be a collection of names.",
        ),
        (
            {"implementations": [REFERENCE], "exclude": ["zzz"]},
            ValueError,
            "Unknown law 'zzz'. `attnspec laws` lists the known ones.",
        ),
        ({"implementations": []}, ValueError, "No law applies to any of the implementations."),
    ],
)
def test_arguments_that_are_none_are_refused_in_a_sentence(arguments, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        properties.parametrize_with_laws(**arguments)


def test_the_option_obeys_the_project_as_the_command_does(run, tmp_path):
    """One law, few test inputs, and the sizes at which the kernel is wrong."""
    (tmp_path / "kernels.py").write_text(
        "from properties.bugs import reference\n\n"
        "def rope(x, start_pos=0):\n"
        "    return reference.REFERENCE['rope'](x, start_pos) * (x.shape[-2] != 77)\n"
    )
    law = "rope is within its error limit"
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.attnspec]\nlaws = ["{law}"]\nmax-examples = 2\nshapes = ["seq_len=77,head_dim=6"]\n'
    )
    printed = run("--attnspec", "kernels", "--ignore=test_kernels.py")
    assert "1 failed" in printed
    (tmp_path / "pyproject.toml").write_text(f'[tool.attnspec]\nlaws = ["{law}"]\nmax-examples = 2\n')
    assert "1 passed" in run("--attnspec", "kernels", "--ignore=test_kernels.py")
