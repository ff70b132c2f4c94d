"""The published kill matrix is what the laws and the bugs of today give."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from zlib import crc32

import pytest

from properties.bugs import CATALOGUE
from properties.laws import LAWS
from properties.mutants import MUTANTS, TRAPS, as_json, kills_of, markdown, sole_victims

DOCS = Path(__file__).parents[2] / "docs"
PUBLISHED = json.loads((DOCS / "kill-matrix.json").read_text())
KILLS = PUBLISHED["kills"]
BY_ID = {law.id: law for law in LAWS}


def test_the_published_matrix_is_about_the_laws_and_the_bugs_that_there_are():
    assert PUBLISHED["laws"] == list(BY_ID)
    assert list(KILLS) == list(MUTANTS)
    assert (DOCS / "kill-matrix.json").read_text() == as_json(KILLS, PUBLISHED["survivors"])
    assert (DOCS / "kill-matrix.md").read_text() == markdown(KILLS, PUBLISHED["survivors"])


@pytest.fixture(scope="module")
def process():
    """A process of its own, as `make mutants` has: Hypothesis also draws constants of the modules that happen to be imported."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("law", list(BY_ID)[::4])
def test_a_law_kills_what_is_published_and_nothing_equivalent(law, process):
    """For every fourth law, and of the bugs to which it is blind for one, chosen by its name: all would take as long as the matrix.

    After how many examples may differ by a few from processor to processor, and is not compared.
    """
    published = {mutant for mutant, kills in KILLS.items() if law in kills}
    blind = [mutant.id for mutant in MUTANTS.values() if mutant.is_about(BY_ID[law]) and mutant.id not in published]
    one = [blind[crc32(law.encode()) % len(blind)]] if blind else []
    assert set(process.submit(kills_of, law, [*published, *one, *TRAPS]).result()) == published


def test_every_bug_is_killed_and_by_a_law_other_than_plain_agreement():
    assert not [bug for bug, kills in KILLS.items() if all(BY_ID[law].agreement for law in kills)]


def test_public_bugs_are_killed_with_every_seed_and_soon():
    assert PUBLISHED["survivors"] == []
    assert median(min(kills.values()) for kills in KILLS.values()) <= 20


def test_every_law_kills_a_bug_that_no_other_law_kills_or_says_what_it_is_for():
    alone = sole_victims(KILLS)
    for law in LAWS:
        assert law.agreement or law.name in alone or law.purpose.endswith("."), law.id


def test_every_law_kills_a_bug_and_the_one_that_it_names():
    killed = {law.name: {m.partition("[")[0] for m, kills in KILLS.items() for i in kills if BY_ID[i].name == law.name} for law in LAWS}
    assert [name for name, bugs in killed.items() if not bugs] == []
    assert [(law.id, law.kills) for law in LAWS if law.kills and law.kills not in killed[law.name]] == []


def test_the_law_that_a_bug_names_kills_it():
    assert not [(bug.id, bug.law) for bug in CATALOGUE.values() if bug.law not in {BY_ID[law].name for law in KILLS[bug.id]}]
