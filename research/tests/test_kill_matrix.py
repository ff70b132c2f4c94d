"""What the kill matrix says and complains of, on matrices that are made up; and laws and bugs put
to one another, a share of them.
"""

import json

import pytest

from properties.bugs import CATALOGUE
from properties.bugs.mutants import EQUIVALENT_MUTANTS, MUTANTS
from properties.laws import LAWS, find
from properties.tests.test_kills import violated
from research import mutants
from research.mutants import (
    HOW,
    REPORTED,
    SEEDS,
    as_json,
    complaints,
    leans,
    lives,
    markdown,
    needless,
    quick_plan,
    write_quick,
)

NOTHING = {how: [] for how in HOW}


def law_of(mutant):
    """A law that the mutant's bug names, about its operation where there is one."""
    laws = find(mutant.bug.law)
    return next((law.id for law in laws if mutant.operation in law.operations), laws[0].id)


@pytest.fixture
def good():
    """A matrix in which each law kills something of its own, and each bug's law kills it."""
    found = {mutant.id: {law_of(mutant): 1} for mutant in MUTANTS.values()}
    for law, mutant in zip(LAWS, [*found] * len(LAWS), strict=False):
        found[mutant].setdefault(law.id, 2)
    return found


def test_a_matrix_in_which_all_is_as_it_should_be_has_no_complaint(good, monkeypatch):
    monkeypatch.setattr(mutants, "needless", lambda found: [])
    assert list(complaints(good, NOTHING)) == []


def test_what_is_wrong_with_a_matrix_is_said(good, monkeypatch):
    monkeypatch.setattr(mutants, "needless", lambda found: [])
    bug, law = CATALOGUE["rope-positions-from-one"], LAWS[0]
    good[bug.id] = {}
    without = {
        mutant: {one: n for one, n in kills.items() if one.partition("[")[0] != law.name}
        for mutant, kills in good.items()
    }
    said = list(complaints(without, {HOW[0]: ["a@1"], HOW[1]: ["b@1"] * (len(REPORTED) * len(SEEDS))}))
    assert f"{bug.id} survives." in said
    assert f"{bug.id} names the law {bug.law!r}, which does not kill it." in said
    assert f"{law.name!r} kills no known bug." in said
    assert "a@1 lives with agreement." in said
    assert any(one.startswith("Too many reported bugs live without agreement: b@1, ") for one in said)
    late = {mutant: dict.fromkeys(kills, 9) for mutant, kills in good.items()}
    assert "The median bug is killed after more than 3 examples." in list(complaints(late, NOTHING))
    agreement = {
        mutant: {one.id: 1 for one in LAWS if one.agreement and one.operation == MUTANTS[mutant].operation}
        for mutant in good
    }
    assert any(one.startswith("Too many are killed by agreement alone: ") for one in complaints(agreement, NOTHING))


def test_a_law_that_kills_nothing_new_is_needless_and_a_symmetry_needs_no_oracle(good):
    assert {law.name for law in LAWS} - {law.name for law in needless({"rope-positions-from-one": {}})} == {
        law.name for law in LAWS if law.agreement
    }
    assert not leans(find("rows are computed independently[apply_rotary]")[0])
    assert leans(find("rope is within its error limit[rope]")[0])


@pytest.mark.parametrize("bug", REPORTED[::6])
def test_a_reported_bug_is_killed_with_other_seeds(bug):
    """A share of them; laws that the bug names are tried first."""
    kills = {law.id: 1 for law in LAWS if law.name == MUTANTS[bug].bug.law}
    assert [seed for seed in SEEDS[1:3] if HOW[0] in lives(bug, seed, kills)] == []


def test_the_quick_plan_of_a_matrix_kills_all_that_its_laws_do(good, tmp_path, monkeypatch):
    plan = quick_plan(good)
    assert not [mutant for mutant, kills in good.items() if kills.keys().isdisjoint(plan)]
    monkeypatch.setattr(mutants, "QUICK", tmp_path / "quick.json")
    write_quick(plan)
    kept = json.loads((tmp_path / "quick.json").read_text("utf-8"))
    assert kept == [law.id for law in LAWS if law.id in plan and not (law.agreement or law.watches)]


def test_the_page_and_the_data_say_what_was_measured(good):
    page = markdown(good, NOTHING)
    assert f"They killed them {len(REPORTED) * len(SEEDS)} times" in page
    assert all(f"| **{mutant.bug.id}** ({mutant.operation}) |" in page for mutant in MUTANTS.values())
    assert json.loads(as_json(good, NOTHING))["kills"] == good


@pytest.mark.parametrize("trap", EQUIVALENT_MUTANTS)
def test_what_is_equivalent_to_the_reference_passes_the_quick_plan(trap):
    assert violated(EQUIVALENT_MUTANTS[trap]) == []
