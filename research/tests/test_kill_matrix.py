"""The published kill matrix is what the laws and the bugs of today give."""

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import median
from zlib import crc32

import numpy as np
import pytest

from properties.bugs import CATALOGUE
from properties.bugs.reference import OPERATIONS
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES
from properties.laws import LAWS, quick
from properties.verifier.plan import QUICKLY, plan
from properties.verifier.verify import examine
from research.mutants import HOW, MUTANTS, REPORTED, SEEDS, TRAPS, as_json, kills_of, lives, markdown, quick_module

DOCS = Path(__file__).parents[2] / "docs"
PUBLISHED = json.loads((DOCS / "kill-matrix.json").read_text())
KILLS = PUBLISHED["kills"]
NAMES = list(dict.fromkeys(law.name for law in LAWS))
BY_ID = {law.id: law for law in LAWS}


def test_the_published_matrix_is_about_the_laws_and_the_bugs_that_there_are():
    assert PUBLISHED["laws"] == list(BY_ID)
    assert list(KILLS) == list(MUTANTS)
    assert (DOCS / "kill-matrix.json").read_text() == as_json(KILLS, PUBLISHED["survivors"])
    assert (DOCS / "kill-matrix.md").read_text() == markdown(KILLS, PUBLISHED["survivors"])


@pytest.mark.parametrize("law", list(BY_ID)[::12])
def test_a_law_kills_what_is_published_and_nothing_equivalent(law):
    """For every twelfth law, and of the bugs to which it is blind for one, chosen by its name: all would take as long as the matrix.

    After how many cases may differ by a few from processor to processor, and is not compared.
    """
    published = {mutant for mutant, kills in KILLS.items() if law in kills}
    blind = [mutant.id for mutant in MUTANTS.values() if mutant.operation in BY_ID[law].operations and mutant.id not in published]
    one = [blind[crc32(law.encode()) % len(blind)]] if blind else []
    assert set(kills_of(law, [*published, *one, *TRAPS])) == published


def test_every_bug_is_killed_and_nearly_all_without_plain_agreement():
    assert not [mutant for mutant, kills in KILLS.items() if not kills]
    by_agreement = [mutant for mutant, kills in KILLS.items() if all(BY_ID[law].agreement for law in kills)]
    assert len(by_agreement) <= 0.05 * len(KILLS), by_agreement


def test_reported_bugs_are_killed_with_every_seed_and_nearly_always_without_plain_agreement():
    with_agreement, without = (PUBLISHED["survivors"][how] for how in HOW)
    assert with_agreement == []
    assert len(without) <= 0.05 * len(REPORTED) * len(SEEDS), without


def test_most_bugs_are_killed_soon():
    assert median(min(kills.values()) for kills in KILLS.values()) <= 3


def test_every_law_kills_a_bug():
    killing = {BY_ID[law].name for kills in KILLS.values() for law in kills}
    assert [law.id for law in LAWS if law.name not in killing] == []


def test_every_law_that_kills_nothing_new_needs_no_oracle(monkeypatch):
    """A law but for agreement earns its place by a bug that no law before it kills, or by a witness of its own: it holds of the reference
    though all that the oracle says is wrong, but for how far results may be apart, and which are infinite."""
    killed: set[str] = set()
    redundant = []
    for _, laws in groupby(sorted(LAWS, key=lambda law: NAMES.index(law.name)), key=lambda law: law.name):
        first, *others = laws
        kills = {mutant for mutant, its in KILLS.items() for law in (first, *others) if law.id in its}
        if not first.agreement:
            redundant += [first] if kills <= killed else []
            killed |= kills
    true = Caller.expected

    def lie(self, o, arguments):
        wrong = (
            ~x if isinstance(x, np.ndarray) else replace(x, mid=np.where(np.isinf(x.mid), x.mid, 1e300)) for x in true(self, o, arguments)
        )
        return tuple(wrong)

    monkeypatch.setattr(Caller, "expected", lie)
    reference = Implementation("NumPy", OPERATIONS, features=FEATURES)
    assert [law.id for law in redundant if examine([law], reference, 2, 0)[0].status != "held"] == []


def test_the_law_that_a_bug_names_kills_it():
    assert not [(bug.id, bug.law) for bug in CATALOGUE.values() if bug.law not in {BY_ID[law].name for law in KILLS[bug.id]}]


@pytest.mark.parametrize("bug", REPORTED[::6])
def test_a_reported_bug_is_killed_with_other_seeds_as_is_published(bug):
    """A share of them, with and without agreement with the oracle."""
    lived = {seed: lives(bug, seed, KILLS[bug]) for seed in SEEDS}
    for how in HOW:
        assert [f"{bug}@{seed}" for seed in SEEDS if how in lived[seed]] == [
            one for one in PUBLISHED["survivors"][how] if one.startswith(f"{bug}@")
        ]


def test_the_quick_plan_kills_all_that_the_laws_do():
    assert Path(quick.__file__).read_text() == quick_module(KILLS)
    plan = {*quick.QUICK, *(law.id for law in LAWS if law.agreement or law.watches)}
    assert not [mutant for mutant, kills in KILLS.items() if plan.isdisjoint(kills)]


def test_the_quick_plan_sees_nearly_all_on_its_few_cases():
    """Of every eighth mutant at least 95 % are violated by some law about their operation."""
    missed = []
    for mutant in list(MUTANTS.values())[::8]:
        implementation = mutant.implementation()
        laws = [law for law in plan(implementation, quick=True) if law.operation == mutant.operation]
        if all(found.status != "violated" for found in examine(laws, implementation, QUICKLY, 0, ends=lambda law: True)):
            missed.append(mutant.id)
    assert len(missed) <= 0.05 * len(MUTANTS) / 8, missed
