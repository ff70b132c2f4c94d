"""The gate with every candidate: right ones in each structure and arithmetic are accepted, and no adversary is."""

from dataclasses import replace
from itertools import product

import pytest

from properties.gatehouse.gate import gate
from properties.tests.candidates import ARITHMETICS, RIGHT, UNSEEN, WRONG, adversary
from properties.tests.test_gate import ONE_OF_EACH_KIND, PATIENT, port, require_accepted, require_refused

__all__ = ["port"]


@pytest.mark.parametrize(("structure", "arithmetic"), [*product(RIGHT, ARITHMETICS)])
def test_a_right_candidate_is_accepted(structure, arithmetic):
    """With many seeds by `make gates`."""
    require_accepted(structure, arithmetic)


@pytest.mark.parametrize(
    "name", [name for name in WRONG if name not in ONE_OF_EACH_KIND and "when" not in WRONG[name].notes]
)
def test_an_adversary_is_not_accepted_and_it_is_told_why(name, port, tmp_path):
    """Those that are wrong under a condition, by `make gates`."""
    require_refused(name, port, tmp_path)


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("name", [name for name in WRONG if name.startswith("memorised")])
def test_what_keeps_results_is_not_accepted_by_chance(name, seed, port):
    """The quick plan has few laws that call twice with the same shapes: the checks do, and change
    one array alone, in the same memory.
    """
    assert not gate(adversary(name, port), quick=True, seed=seed, limits=replace(PATIENT, call=2.0)).accepted


def test_there_are_many_adversaries():
    assert len(WRONG) >= 190
    assert all(source.notes["unseen"] for source in UNSEEN.values())
