"""What a change touches, on sources that are made up and on the catalogue itself."""

import ast
import subprocess
import sys

import pytest

from properties.bugs import CATALOGUE, GROUPS
from properties.bugs.mutants import MUTANTS
from properties.bugs.reference import users_of
from properties.laws import FAMILIES
from properties.tests.test_documents import copied_with_the_diff
from research.changes import ROOT, parts, touched_parts
from research.regenerate import touched

SOURCE = '''"""A module."""

from elsewhere import half

bug = Register()


def helper(x):
    return half(x)


@bug("rope")
def first_bug(x):
    return helper(x)


@bug("rope")
def second_bug(x):
    return x

bug("rope")(named(helper, "third_bug"))
'''


def labels(*spans, of="module"):
    found = touched_parts(
        {"module": parts("module", SOURCE), "elsewhere": parts("elsewhere", "def half(x):\n    return x\n")},
        {of: [*spans]},
    )
    return {label for part in found["module"] for label in part.labels} - {"rope"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("@bug", {"first_bug"}),
        ("    return x", {"second_bug"}),
        ("    return half", {"helper", "first_bug", "third_bug"}),
        ('bug("rope")(named', {"third_bug"}),
        ("bug = Register()", {"first_bug", "second_bug", "third_bug"}),
        ("from elsewhere", set()),
    ],
)
def test_a_changed_line_touches_its_part_and_what_uses_it(line, found):
    number = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if text.startswith(line))
    assert labels((number, number)) == found


def test_a_change_of_another_module_touches_what_uses_it():
    assert labels((1, 2), of="elsewhere") == {"helper", "first_bug", "third_bug"}


def test_lines_that_are_taken_out_touch_the_part_in_which_they_were_and_none_between_two():
    start = SOURCE.splitlines().index("def second_bug(x):") + 1
    assert labels((start + 1, start)) == {"second_bug"}
    assert labels((start - 2, start - 3)) == set()


def span_of(path, name):
    """The lines of a function in a file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return next((n.lineno, n.end_lineno) for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)


def test_the_function_of_a_bug_touches_its_mutants_alone():
    path = "properties/bugs/positions.py"
    what = touched({path: [span_of(path, "rope_positions_from_one")]})
    assert what.bugs == {"rope-positions-from-one"}
    assert (what.laws, what.operations, what.vectors) == (set(), set(), False)
    assert what.mutants == [m.id for m in MUTANTS.values() if m.bug.id == "rope-positions-from-one"]


def test_a_step_of_the_reference_touches_the_operations_that_take_it():
    path = "properties/bugs/reference.py"
    assert touched({path: [span_of(path, "row_term")]}).operations == set(users_of("row_term"))


@pytest.mark.parametrize(
    "path", ["oracles/ball.py", "properties/contract/operations.py", "properties/strategies/domains.py"]
)
def test_what_all_rests_on_touches_all(path):
    what = touched({path: [(1, 1)]})
    assert what.mutants == [*MUTANTS]
    assert what.vectors


@pytest.mark.parametrize("path", ["properties/tests/test_kills.py", "docs/kill-matrix.md", "research/named.py"])
def test_tests_and_pages_touch_nothing(path):
    what = touched({path: [(1, 10**9)]})
    assert (what.mutants, what.laws, what.vectors) == ([], set(), False)


@pytest.mark.parametrize("group", GROUPS)
def test_a_whole_module_touches_all_its_bugs(group):
    assert touched({f"properties/bugs/{group}.py": [(1, 10**9)]}).bugs >= {bug.id for bug in GROUPS[group]}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_module_touches_all_its_laws(family):
    assert touched({f"properties/laws/{family.replace(' ', '_')}.py": [(1, 10**9)]}).laws >= {
        law.name for law in FAMILIES[family]
    }


def test_the_register_touches_every_bug():
    assert touched({"properties/bugs/bug.py": [(1, 10**9)]}).bugs == set(CATALOGUE)


def test_the_whole_suite_passes_after_the_diff_of_contributing_and_the_command(tmp_path):
    """The tests are those of `make test`, except the tests of the wheel, which need an environment,
    and those that apply the diff themselves.
    """
    environment = copied_with_the_diff(tmp_path)
    several = ["--numprocesses", "3", "--dist", "worksteal", "-p", "no:cacheprovider"]
    several += ["--ignore", "attnspec/tests/test_wheel.py"]
    for command in (["research.regenerate", "--jobs", "2"], ["pytest", "-q", *several, "-k", "not contributing"]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
