"""ARCHITECTURE.md, CONTRIBUTING.md and CHANGELOG.md: what they say is so."""

import graphlib
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import spec
from properties.implementation import Implementation
from properties.reference import OPERATIONS
from properties.verifier import check

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
    assert architecture.drawn(page) == page, "Imports or groups have changed: python docs/architecture.py draws the picture anew."


def test_imports_go_one_way_and_the_judge_shares_no_code_with_the_judged(architecture):
    graph = architecture.edges(architecture.groups(read("ARCHITECTURE.md")))
    package = {group: group.partition(":")[0] for group in graph}
    crossing = {(package[group], package[to]) for group, direct in graph.items() for to in direct if package[group] != package[to]}
    assert crossing == {("properties", "oracles"), ("properties", "spec")}  # and not ("oracles", "spec"): they are compared in tests
    assert "properties: implementations" not in reached("properties: verifier", graph)


def reached(group, graph):
    return set().union(*({to} | reached(to, graph) for to in graph[group]))


def test_a_module_in_no_row_or_in_two_or_gone_is_named(architecture):
    groups = architecture.groups(read("ARCHITECTURE.md"))
    for changed, wrong in [
        ({"spec: errata": ["spec.errata"]}, "spec.corrected"),
        ({"spec: more": ["spec.errata"]}, "spec.errata"),
        ({"spec: more": ["spec.gone"]}, "spec.gone"),
    ]:
        with pytest.raises(ValueError, match=rf"^Each module should be in one row of ARCHITECTURE\.md, but these are not: {wrong}\.$"):
            architecture.edges(groups | changed)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from oracles.ball import exact", {"oracles.ball"}),
        ("import oracles.ball as b", {"oracles.ball"}),
        ("def f():\n    from oracles import FLOAT32, rope", {"oracles.formats", "oracles.rotary"}),
        ("from spec import attention", {"spec.attention"}),
        ("from properties.laws.masks import law", {"properties.laws"}),
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


def test_the_law_that_contributing_shows_sees_the_bug_that_it_shows():
    namespace = {}
    for block in re.findall(r"^```python\n(.*?)^```", read("CONTRIBUTING.md"), flags=re.MULTILINE | re.DOTALL):
        exec(block, namespace)
    [law], [bug] = namespace["law"].laws, namespace["bug"].bugs
    assert (law.kills, bug.law) == (bug.id, law.name)
    assert check(law, Implementation("planted", {law.operation: bug.fresh()}), 20, shrink=False).status == "violated"
    assert check(law, Implementation("right", {law.operation: OPERATIONS[law.operation]}), 20).status == "held"


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_and_targets_that_a_document_names_are_there(name):
    page = read(name)
    paths = re.findall(r"`((?:spec|oracles|properties|docs)/[\w./]*)`", page) + re.findall(r"\]\(([\w./]+)\)", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    targets = {target for line in re.findall(r"`make ([a-z ]+)`", page) for target in line.split()}
    assert targets <= set(re.findall(r"^([a-z]+):.*##", read("Makefile"), flags=re.MULTILINE))


def test_the_changelog_speaks_of_the_version_that_this_is():
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.findall(r"^## \[(.+?)\]", read("CHANGELOG.md"), flags=re.MULTILINE)[0] == version
