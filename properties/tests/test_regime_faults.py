"""Which kernels that are wrong in one regime only are seen."""

from dataclasses import replace

import pytest

from properties.laws import LAWS
from properties.tests.regime_faults import FAULTS
from properties.verifier.examination import Supervision
from properties.verifier.verify import examine, verify

MEMORY = ("shared memory",)

UNSEEN = (
    "head_dim 256: the last eighth of the output is lost",
    "8 query heads to a key head: next key head",
    "gradients of a batch beyond 16 are not written",
    "one query over >= 512 keys with grouped heads: next key head",
    "a length T - 1 of 2048: the last key is lost",
    "softmax rows beyond 512: the rest is not summed",
    "softmax rows beyond 512 in a batch: first entry",
    "rope positions wrap at 2048",
)
"""Faults at sizes that no fixed test input has: a run with seed 0 may miss them."""

AUTOGRAD = "gradients where k is v: dv is added to dk"
"""No fault in a kernel that is differentiated automatically, so derivatives never get one array twice."""

FIXED = [
    fault
    for fault in FAULTS
    if fault.regime in ("layout", "value", "product")
    and fault.operation != "causal_attention"
    and fault.mechanism != AUTOGRAD
]
"""Faults that fixed test inputs show: special values, and arguments that share memory. A convention decides
causal attention with more queries than keys, and other laws test it.
"""


def named(faults):
    return pytest.mark.parametrize("fault", faults, ids=lambda fault: f"{fault.mechanism}, {fault.operation}")


def outcomes_on_fixed_inputs(fault):
    """The outcomes of the law that compares with the oracle, and of the law of shared memory."""
    laws = [law for law in LAWS if law.operation == fault.operation and (law.agreement or law.domains == MEMORY)]
    return examine(laws, fault.implementation(), 1, 0, Supervision(ends=lambda law: True))


@named(FIXED)
def test_fixed_inputs_show_a_fault_of_layouts_values_and_products(fault):
    assert "violated" in [outcome.status for outcome in outcomes_on_fixed_inputs(fault)]


@named([*{fault.operation: fault for fault in FIXED}.values()])
def test_fixed_inputs_show_nothing_where_a_kernel_is_right(fault):
    outcomes = outcomes_on_fixed_inputs(replace(fault, where=lambda seen: False))
    assert [outcome.status for outcome in outcomes] == ["held"] * len(outcomes)


@pytest.mark.thorough
@named([fault for fault in FAULTS if fault.mechanism not in (*UNSEEN, AUTOGRAD)])
def test_the_default_plan_shows_a_fault(fault):
    assert not verify(fault.implementation(), fail_fast=True).ok
