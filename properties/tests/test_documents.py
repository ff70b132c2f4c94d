"""ARCHITECTURE.md, CONTRIBUTING.md and CHANGELOG.md: what they say is so."""

import graphlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import spec
from properties.tests.test_readme import make_refuses

ROOT = Path(spec.__file__).parents[1]


def read(name):
    return (ROOT / name).read_text("utf-8")


@pytest.fixture(scope="module")
def architecture():
    """docs/architecture.py, which draws the picture."""
    found = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_picture_is_what_the_import_statements_say(architecture):
    page = read("ARCHITECTURE.md")
    assert architecture.drawn(page) == page, (
        "Imports or groups have changed: python docs/architecture.py draws the picture anew."
    )


def test_imports_go_one_way_and_the_judge_shares_no_code_with_the_judged(architecture):
    graph = architecture.edges(architecture.groups(read("ARCHITECTURE.md")))
    package = {group: group.partition(":")[0] for group in graph}
    crossing = {
        (package[group], package[to])
        for group, direct in graph.items()
        for to in direct
        if package[group] != package[to]
    }
    beside = "Beside the three packages"
    ours = {(of, to) for of, to in crossing if beside not in (of, to)}
    assert ours == {
        ("properties", "oracles"),
        ("properties", "spec"),
    }  # and not ("oracles", "spec"): tests compare the two


def test_a_module_in_no_row_or_in_two_or_gone_is_named(architecture):
    groups = architecture.groups(read("ARCHITECTURE.md"))
    for changed, wrong in [
        ({"spec: errata": ["spec.errata"]}, "spec.corrected"),
        ({"spec: more": ["spec.errata"]}, "spec.errata"),
        ({"spec: more": ["spec.gone"]}, "spec.gone"),
    ]:
        with pytest.raises(
            ValueError, match=rf"^Each module should be in one row of ARCHITECTURE\.md, but these are not: {wrong}\.$"
        ):
            architecture.edges(groups | changed)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from oracles.ball import exact", {"oracles.ball"}),
        ("import oracles.ball as b", {"oracles.ball"}),
        ("def f():\n    from oracles import FLOAT32, rope", {"oracles.formats", "oracles.rotary"}),
        ("from spec import attention", {"spec.attention"}),
        ("from properties.laws.mask_operations import law", {"properties.laws"}),
        ("import numpy as np\nfrom special import spec", set()),
    ],
)
def test_an_import_is_one_of_the_module_that_defines_the_name(architecture, source, found):
    known = set(architecture.modules())
    assert set(architecture.imports(source, known, architecture.offers(known))) == found


def test_arrows_that_follow_are_left_out_and_circles_are_refused(architecture):
    assert architecture.reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}
    with pytest.raises(graphlib.CycleError):
        architecture.reduced({"a": {"b"}, "b": {"a"}})


ADDED = """
from properties import verify
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE

wrong = CATALOGUE["shift-right-around-the-end"]
assert verify({"shift_right": REFERENCE["shift_right"]}, max_examples=5).ok
(cause,) = verify({"shift_right": wrong.fresh()}, max_examples=5).causes
assert cause.diagnosis[0].id == wrong.id
assert f"{wrong.law}[shift_right]" in cause.laws
"""
ITS_TESTS = "shift_right or shift-right or listings"
"""Tests of the new operation and its bug, and of the lists of operations. `research` tests its
vectors too, which takes minutes.
"""


def copied_with_the_diff(folder):
    """Copy the project into a folder, commit it there, and apply CONTRIBUTING's diff. The environment of commands."""
    left_out = shutil.ignore_patterns(".*", "__pycache__", "build")
    shutil.copytree(ROOT, folder, ignore=left_out, dirs_exist_ok=True)
    identity = {f"GIT_{who}_{what}": "test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "PYTHONPATH": str(folder)}
    (diff,) = re.findall(r"^```diff\n(.*?)^```", read("CONTRIBUTING.md"), flags=re.MULTILINE | re.DOTALL)
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=All"], ["apply", "-"]):
        subprocess.run(["git", *command], input=diff, text=True, cwd=folder, env=environment, check=True)
    return environment


def test_the_operation_that_contributing_adds_passes_its_laws(tmp_path):
    environment = copied_with_the_diff(tmp_path)
    subprocess.run([sys.executable, "-c", ADDED], cwd=tmp_path, env=environment, check=True)


@pytest.mark.thorough
def test_the_operation_that_contributing_adds_works_when_it_is_added(tmp_path):
    """The new operation passes all laws, its bug is found and named, and the tests of lists pass."""
    environment = copied_with_the_diff(tmp_path)
    page = tmp_path / "docs/guide/operations.md"
    for command in (
        ["-c", ADDED],
        ["-m", "attnspec", "operations", "--markdown"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "oracles", "properties", "-k", ITS_TESTS],
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if "--markdown" in command:
            page.write_text(done.stdout, "utf-8")


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_and_targets_that_a_document_names_are_there(name):
    page = read(name)
    paths = re.findall(r"`((?:spec|oracles|properties|docs)/[\w./]*)`", page) + re.findall(r"\]\(([\w./]+)\)", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert make_refuses(target for line in re.findall(r"`make ([a-z -]+)`", page) for target in line.split()) == ""


def test_links_of_a_page_lead_to_files_of_the_repository():
    broken = []
    for page in (ROOT / "README.md", *(ROOT / "docs/guide").glob("*.md"), *(ROOT / "integrations").rglob("*.md")):
        prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        paths = re.findall(r"\]\(([\w./-]+)[#)]", prose)
        broken += [f"{page.name}: {path}" for path in paths if not (page.parent / path).exists()]
    assert broken == []


def test_the_changelog_speaks_of_the_version_that_this_is():
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.findall(r"^## \[(.+?)\]", read("CHANGELOG.md"), flags=re.MULTILINE)[0] == version
