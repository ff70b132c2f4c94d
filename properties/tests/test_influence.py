"""Which outputs a change of one entry changes: silent about right kernels, and true about a mistake."""

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.inspection.influence import influence, sentences_of_influence
from properties.inspection.measurements import measured
from properties.tests.instrument_calls import FORMATS, arguments_of, of, probed, rounded
from properties.tests.measured_kernels import scale_of, softmax

SDPA, CAUSAL, GQA, ATTENTION = (
    "scaled_dot_product_attention",
    "causal_attention",
    "grouped_query_attention",
    "attention",
)
OPERATIONS = (SDPA, CAUSAL, GQA, ATTENTION, "rope", f"{SDPA}_vjp", f"{ATTENTION}_vjp", "hard_masked_softmax")


def sentences(implementation, **given):
    return sentences_of_influence(influence(*probed(implementation, **given)))


@pytest.mark.parametrize("arithmetic", FORMATS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_sentence_is_about_a_right_kernel(operation, arithmetic):
    implementation = of(operation, rounded(REFERENCE[operation], FORMATS[arithmetic]), arithmetic)
    assert sentences(implementation) == ()


def attention(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) * scale_of(q)
    return softmax(scores if mask is None else np.where(mask, scores, -np.inf))[0] @ v


def leaking(q, k, v):
    """Causal attention in which query 1 sees the last key too."""
    visible = np.arange(q.shape[-2])[:, None] >= np.arange(k.shape[-2])
    visible[1, -1] = True
    return attention(q, k, v, visible)


@pytest.mark.parametrize(
    ("operation", "function", "said"),
    [
        (
            SDPA,
            lambda q, k, v, mask=None: attention(q, k + 0.5 * k[::-1], v, mask),
            "Changing batch 1, key 5, channel 3 of k changes out (batch 0 of 2).",
        ),
        (
            SDPA,
            lambda q, k, v, mask=None: attention(q + 0.5 * np.roll(q, 1, -2), k, v, mask),
            "Changing batch 1, query 4, channel 3 of q changes out (batch 1 of 2, query 0 of 5).",
        ),
        (
            SDPA,
            lambda q, k, v, mask=None: attention(q * [1, 1, 1, 0], k, v, mask),
            "Changing batch 1, query 4, channel 3 of q does not change out (batch 1 of 2, query 4 of 5).",
        ),
        (CAUSAL, leaking, "Changing batch 1, key 5, channel 3 of k changes out (batch 1 of 2, query 1 of 5)."),
        (
            GQA,
            lambda q, k, v, mask=None: attention(q, *(np.concatenate([x, x], -3) for x in (k, v)), mask),
            "Changing batch 1, key head 1, key 5, channel 3 of k changes out (batch 1 of 2, head 1 of 4).",
        ),
        (
            "rope",
            lambda x, start_pos=0, **_: REFERENCE["rope"](x + np.roll(x, 1, -2), start_pos),
            "Changing batch 1, row 3, channel 3 of x changes out (batch 1 of 2, row 0 of 4, channels 2–3 of 4).",
        ),
    ],
)
def test_a_change_that_should_change_nothing_is_told(operation, function, said):
    assert sentences(of(operation, function)) == (said,)


def test_a_call_that_changes_later_calls_is_told():
    memory = {}

    def stale(q, k, v, mask=None):
        """Attention with the keys of the first call of its shape."""
        return attention(q, memory.setdefault(k.shape, k), v, mask)

    (said,) = sentences(of(SDPA, stale))
    assert said == "Changing batch 1, key 5, channel 3 of k does not change out (batch 1 of 2)."


def test_the_measurements_of_a_wrong_softmax_are_of_its_weights():
    leaks = lambda scores, mask=None: softmax(scores + 0.5 * np.roll(scores, 1, -2))[0]  # noqa: E731
    said, _ = measured(of("hard_masked_softmax", leaks), "hard_masked_softmax", arguments_of("hard_masked_softmax"))
    assert said.startswith(
        "The weights with a score of the first key are wrong in 48 of 60 entries: at batch 0, query 0, key 0 "
    )


def test_a_random_result_is_told():
    random = np.random.default_rng(0)
    noisy = of(SDPA, lambda q, k, v, mask=None: attention(q, k, v, mask) + random.normal())
    assert sentences(noisy) == ("The same call, made again, gives another out.",)


def test_other_last_bits_are_no_mistake():
    shaken = lambda q, k, v, mask=None: attention(q, k, v, mask) * (1 + 2.0**-52 * (k.sum() > 0))  # noqa: E731
    found = influence(*probed(of(SDPA, shaken)))
    assert sentences_of_influence(found) == ()
