"""Which kernels that are wrong in one regime only are seen."""

from dataclasses import replace

import pytest

from properties.laws import LAWS
from properties.tests.regime_faults import FAULTS
from properties.verifier.examination import Supervision
from properties.verifier.verify import examine, verify

MEMORY = ("shared memory",)

AUTOGRAD = "gradients where k is v: dv is added to dk"
"""No fault in a kernel that is differentiated automatically, so derivatives never get one array twice."""

SEEN = [fault for fault in FAULTS if fault.mechanism != AUTOGRAD]


def named(faults):
    return pytest.mark.parametrize("fault", faults, ids=lambda fault: f"{fault.mechanism}, {fault.operation}")


def outcomes_on_fixed_inputs(fault, seed=0):
    """The outcomes of the law that compares with the oracle, and of the law of shared memory. Only the
    numbers at operating points depend on the seed.
    """
    laws = [law for law in LAWS if law.operation == fault.operation and (law.agreement or law.domains == MEMORY)]
    return examine(laws, fault.implementation(), 1, seed, Supervision(ends=lambda law: True))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
@named(SEEN)
def test_fixed_inputs_show_a_fault(fault, seed):
    assert "violated" in [outcome.status for outcome in outcomes_on_fixed_inputs(fault, seed)]


@named([*{fault.operation: fault for fault in SEEN}.values()])
def test_fixed_inputs_show_nothing_where_a_kernel_is_right(fault):
    outcomes = outcomes_on_fixed_inputs(replace(fault, where=lambda seen: False))
    assert [outcome.status for outcome in outcomes] == ["held"] * len(outcomes)


@pytest.mark.thorough
@named(SEEN)
def test_the_quick_plan_shows_a_fault(fault):
    assert not verify(fault.implementation(), quick=True, fail_fast=True).ok
