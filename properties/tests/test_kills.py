"""Each known bug is killed by a law, and nearly each by the quick plan."""

import json

import pytest

from properties.bugs import CATALOGUE
from properties.bugs.mutants import MUTANTS
from properties.laws import LAWS
from properties.tests.kills import killers, kills_of
from properties.verifier.examination import Supervision
from properties.verifier.plan import QUICK, QUICKLY, plan
from properties.verifier.verify import examine


@pytest.mark.parametrize("operation", sorted({bug.operation for bug in CATALOGUE.values()}))
def test_each_known_bug_is_killed_where_it_was_seen_by_the_law_that_it_names(operation):
    seen = [bug for bug in CATALOGUE.values() if bug.operation == operation]
    found = killers([bug.id for bug in seen])
    assert [(bug.id, bug.law) for bug in seen if found.get(bug.id, "").partition("[")[0] != bug.law] == []


@pytest.mark.thorough
@pytest.mark.parametrize("operation", sorted({mutant.operation for mutant in MUTANTS.values()}))
def test_each_known_bug_is_killed_by_a_law_in_the_other_operations_too(operation):
    mutants = {mutant.id for mutant in MUTANTS.values() if mutant.operation == operation} - CATALOGUE.keys()
    assert mutants - killers(sorted(mutants)).keys() == set()


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
