"""A kernel may refuse a size by abort(), if its adapter declares it."""

import os
import signal

import pytest

from properties import AbortedError, Implementation, verify
from properties.bugs.reference import REFERENCE
from properties.contract.aborts import aborts


def rope(x, start_pos=0):
    if x.shape[-1] % 2:
        os.abort()
    return REFERENCE["rope"](x, start_pos)


def careless_rope(x, start_pos=0):
    return x if x.shape[-1] % 2 else rope(x, start_pos)


def test_an_abort_is_told_from_every_other_end():
    assert aborts(os.abort)
    assert not aborts(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert not aborts(lambda: 1 / 0)
    assert not aborts(lambda: None)


@pytest.mark.parametrize(("function", "status"), [(rope, "held"), (careless_rope, "violated")])
def test_a_declared_abort_refuses_a_size_and_a_wrong_result_does_not(function, status):
    mine = Implementation(
        "mine", {"rope": function}, supports={"head_dim": lambda dim: dim % 2 == 0}, refuses=(AbortedError,)
    )
    (outcome,) = verify(mine, laws=["unsupported sizes are refused"], max_examples=5).outcomes
    assert outcome.status == status
    if outcome.violation:
        assert "but should refuse it by AbortedError" in outcome.violation.summary
