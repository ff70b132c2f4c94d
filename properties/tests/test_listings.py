"""The subcommands that list and explain, and the page of operations."""

import re
from pathlib import Path

import pytest

import oracles
from oracles import Conventions
from properties.bugs import CATALOGUE
from properties.command.cli import main
from properties.contract.operations import OPERATIONS
from properties.laws import LAWS
from properties.views.operations import signature

ROOT = Path(__file__).parents[2]


def printed(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_the_page_of_operations_is_what_the_command_writes(capsys):
    assert printed(capsys, "operations", "--markdown") == (ROOT / "docs/guide/operations.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/guide/adapters.md"])
def test_it_is_one_click_away(page):
    links = re.findall(r"\[[^]]+\]\(([^)#]*operations\.md)\)", (ROOT / page).read_text("utf-8"))
    assert links
    assert all((ROOT / page).parent.joinpath(link).samefile(ROOT / "docs/guide/operations.md") for link in links)


def test_every_operation_is_listed_with_its_shapes_and_the_values_of_its_conventions(capsys):
    found = {paragraph.splitlines()[0]: paragraph for paragraph in printed(capsys, "operations").split("\n\n")}
    for o in OPERATIONS.values():
        entry = found[signature(o)]
        assert all(f"{name}=" in entry for name in o.conventions)
        assert all(re.search(rf"\b{name}\b.* \(", entry.partition("\n")[2]) for name in o.axes)
    assert (
        "q (…, n_q, head_dim)  k (…, n_k, head_dim)  v (…, n_k, value_dim)" in found["causal_attention(q, k, v) -> out"]
    )
    assert (
        "rope_pairing=adjacent|half, odd_lane=literal|passthrough|reject"
        in found["rope_tables(seq_len, head_dim, start_pos) -> cos, sin"]
    )
    options = "positions=None, inv_freq=None, attention_factor=None, rotary_dim=None, sections=None"
    assert found[f"rope(x, start_pos, *, {options}) -> out"]


@pytest.mark.parametrize("command", [("explain", "apply_rotary"), ("operations", "apply-rotary")])
def test_an_operation_is_explained_with_its_laws_and_bugs(command, capsys):
    page = printed(capsys, *command)
    assert page.startswith("apply_rotary(x, cos, sin) -> out\n")
    assert {law.name for law in LAWS if law.operation == "apply_rotary"} <= {line.strip() for line in page.splitlines()}
    assert {bug.id for bug in CATALOGUE.values() if "apply_rotary" in bug.mutants} <= {
        line.strip() for line in page.splitlines()
    }


def test_a_bug_is_explained_as_it_is_listed(capsys):
    (bug, *_) = CATALOGUE
    assert printed(capsys, "explain", bug) == printed(capsys, "bugs", bug)


def test_each_public_function_of_the_oracles_is_one_of_an_operation_or_helps_with_it():
    functions = {name for name in oracles.__all__ if name[0].islower()}
    helpers = {"assert_within", "preset", "tensor2tensor_sinusoidal"}
    assert functions == {o.oracle.__name__ for o in OPERATIONS.values() if not o.is_played} | helpers


def test_no_name_means_two_things():
    assert not {law.name for law in LAWS} & set(CATALOGUE)
    assert not (set(CATALOGUE) | {law.name for law in LAWS}) & set(OPERATIONS)


def test_all_conventions_are_on_the_page():
    page = (ROOT / "docs/guide/operations.md").read_text("utf-8")
    assert all(f"`{name}={value}" in page for name, value in vars(Conventions()).items())


def test_coverage_is_explained_on_a_screen(capsys):
    """With the operations that have fixed points, and all ways to ask for more."""
    said = printed(capsys, "explain", "coverage")
    assert said.count("\n") <= 40
    assert re.search(r"scaled_dot_product_attention +\d+ +8192 +576 *\n", said)
    assert re.search(r"multi_head_attention +\d+ +257\b", said)
    plain = " ".join(said.split())
    for way in ("--shape batch=4,", 'shapes=["n_q=1,', "[tool.attnspec]", "--max-examples 1000", "--long"):
        assert way in plain
