"""Each known bug is killed by a law, and nearly each by the quick plan."""

import json

import pytest

from properties.bugs import CATALOGUE
from properties.bugs.mutants import MUTANTS
from properties.contract.operations import OPERATIONS
from properties.laws import LAWS
from properties.tests.kills import killers, kills_of
from properties.verifier.examination import Supervision
from properties.verifier.plan import QUICK, QUICKLY, plan
from properties.verifier.verify import examine


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_known_bug_is_killed_by_a_law_and_where_it_was_seen_by_the_law_that_it_names(operation):
    mutants = [mutant.id for mutant in MUTANTS.values() if mutant.operation == operation]
    found = killers(mutants)
    assert [mutant for mutant in mutants if mutant not in found] == []
    seen = [CATALOGUE[mutant] for mutant in mutants if mutant in CATALOGUE]
    assert [(bug.id, bug.law) for bug in seen if found[bug.id].partition("[")[0] != bug.law] == []


def violated(mutant):
    """The laws about its operation that the quick plan finds violated."""
    implementation = mutant.implementation()
    laws = [law for law in plan(implementation, quick=True) if law.operation == mutant.operation]
    outcomes = examine(laws, implementation, QUICKLY, 0, supervision=Supervision(ends=lambda law: mutant.id in MUTANTS))
    return [found.law for found in outcomes if found.status == "violated"]


@pytest.mark.thorough
def test_the_quick_plan_sees_nearly_all_on_its_few_cases():
    """Of every eighth mutant at least 95 %."""
    mutants = list(MUTANTS.values())[::8]
    missed = [mutant.id for mutant in mutants if not violated(mutant)]
    assert len(missed) <= 0.05 * len(mutants), missed


def test_a_mutant_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"^There are no mutants rope-nowhere\.$"):
        kills_of(LAWS[0].id, ["rope-nowhere"])


def test_a_law_of_the_quick_plan_exists():
    assert {*json.loads(QUICK.read_text("utf-8"))} <= {law.id for law in LAWS}
