"""No instrument says anything about a right kernel that takes few sizes, masks or shapes."""

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.inspection.bits import bits, sentences_of_bits
from properties.inspection.measurements import measured
from properties.inspection.terms import terms
from properties.tests.instrument_calls import arguments_of, of, probed

SDPA, ATTENTION = "scaled_dot_product_attention", "attention"
FIXED = {"n_q": [5], "n_k": [6], "head_dim": [4], "value_dim": [3]}


def without_sums(*arguments, **options):
    return REFERENCE[ATTENTION](*arguments, **options)[0]


@pytest.mark.parametrize(
    "supports",
    [FIXED, {"value_dim": [3, 64]}, "no masks", "key masks", "full masks", "at most 2 shapes", "positive sizes"],
)
@pytest.mark.parametrize("operation", [SDPA, ATTENTION])
def test_no_sentence_is_about_a_right_kernel_with_restrictions(operation, supports):
    right = of(operation, REFERENCE[operation], supports=supports)
    options = {"softcap": 5.0, "sink": np.array([0.0, 1.0, -2.0, 3.0])} if operation == ATTENTION else {}
    assert measured(right, operation, arguments_of(operation, **options)) == ()
    fresh = of(operation, REFERENCE[operation], supports=supports)
    assert sentences_of_bits(bits(*probed(fresh))) == ()


def test_no_sentence_is_about_a_right_kernel_without_batch_axes_or_log_sum_exps():
    single = of(SDPA, REFERENCE[SDPA], supports="no batch axes")
    arrays = {name: np.ones(size) for name, size in (("q", (5, 4)), ("k", (6, 4)), ("v", (6, 3)))}
    assert measured(single, SDPA, arguments_of(SDPA, **arrays)) == ()
    silent = of(ATTENTION, without_sums, supports="no log-sum-exp")
    assert measured(silent, ATTENTION, arguments_of(ATTENTION, sink=np.ones(4))) == ()
    assert [term.name for term in terms(*probed(silent))] == ["bias", "sink", "sink in the log-sum-exp", "mask"]
