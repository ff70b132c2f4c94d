"""The accuracy of exponentials and sums: right intervals of right kernels, and sums that stop."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.contract.support import OutsideError
from properties.inspection.measurements import measured
from properties.inspection.micrometer import micrometer, sentences_of_micrometer
from properties.tests.instrument_calls import FORMATS, arguments_of, of, probed, rounded
from properties.tests.measured_kernels import heads_of, scale_of

SDPA, GQA, ATTENTION, SOFTMAX = (
    "scaled_dot_product_attention",
    "grouped_query_attention",
    "attention",
    "hard_masked_softmax",
)


def sentences(implementation, **given):
    return sentences_of_micrometer(micrometer(*probed(implementation, **given)))


@pytest.mark.parametrize("arithmetic", FORMATS)
@pytest.mark.parametrize("operation", [SDPA, "causal_attention", GQA, ATTENTION, SOFTMAX])
def test_no_sentence_is_about_a_right_kernel(operation, arithmetic):
    implementation = of(operation, rounded(REFERENCE[operation], FORMATS[arithmetic]), arithmetic)
    probe, shape = probed(implementation)
    found = micrometer(probe, shape)
    assert sentences_of_micrometer(found) == ()
    assert probe.calls >= 49
    if operation != "causal_attention":
        assert all(low <= 0 <= high for low, high in found.exponentials.values())
        assert all(each.row[0] <= each.length <= each.row[1] for each in found.sums)


WIDTHS = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-5, "bfloat16": 1e-5}


@pytest.mark.parametrize("arithmetic", FORMATS)
def test_an_exponential_is_measured_much_finer_than_results_are_stored(arithmetic):
    factor = 1 + 8 * WIDTHS[arithmetic]

    def attends(q, k, v, mask=None):
        powers = np.exp(q @ k.swapaxes(-1, -2) * scale_of(q))
        powers = np.where(powers < 0.9, factor * powers, powers)
        return powers @ v / powers.sum(-1, keepdims=True)

    found = micrometer(*probed(of(SDPA, rounded(attends, FORMATS[arithmetic]), arithmetic)))
    low, high = found.exponentials[1.0]
    assert low <= factor - 1 <= high
    assert high - low < WIDTHS[arithmetic] < low


def coarse(q, k, v, mask=None, error=0.001):
    """Attention whose exponentials are too large."""
    powers = np.exp(q @ k.swapaxes(-1, -2) * scale_of(q))
    powers = np.where(powers < 0.9, (1 + error) * powers, powers)
    powers = powers if mask is None else powers * mask
    return powers @ v / powers.sum(-1, keepdims=True)


def test_a_coarse_exponential_is_told():
    (first, *_) = sentences(of(SDPA, rounded(coarse, "f4"), "float32"))
    assert first == "The weight of the score −1, divided by that of 0, has a relative error between 0.001 and 0.001."


def rows(scores, mask=None, dtype=np.float32, late=False):
    """A softmax whose rows are summed one after the other in a type; or with a maximum that is not
    subtracted from the last 32 scores of long rows.
    """
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - largest)
    last = (np.arange(scores.shape[-1]) >= scores.shape[-1] - 32) & late & (scores.shape[-1] > 512)
    terms = np.where(last, np.exp(scores), powers).astype(dtype)
    total = np.zeros((*scores.shape[:-1], 1), dtype)
    for key in range(scores.shape[-1]):
        total += terms[..., key : key + 1]
    return powers / total.astype(float)


@pytest.mark.parametrize(("name", "stop"), [("float16", 2048), ("bfloat16", 256)])
def test_row_sums_that_stop_are_told(name, stop):
    wrong = of(SOFTMAX, rounded(partial(rows, dtype=FORMATS[name]), "f4"), "float32")
    (said,) = sentences(wrong)
    assert said == f"Row sums stop at {stop}, as sums in {name} do."
    assert measured(wrong, SOFTMAX, arguments_of(SOFTMAX)) == (said,)


def test_a_late_tile_without_the_maximum_is_told():
    wrong = of(SOFTMAX, partial(rows, dtype=float, late=True))
    said = ("The maximum is not subtracted from the scores of 32 of 4096 keys.",)
    assert sentences(wrong) == said


def test_another_row_sum_is_told_by_its_numbers():
    wrong = of(SOFTMAX, lambda scores, mask=None: rows(scores, dtype=float) * (1 + 0.5 * (scores.shape[-1] > 64)))
    assert sentences(wrong) == ("The row sum of 512 equal scores of 0 is 341.33, should be 512.",)


def test_a_key_beyond_the_end_is_told_by_the_largest_relative_error():
    beyond = lambda scores, mask=None: np.exp(scores) / (np.exp(scores).sum(-1, keepdims=True) + 1)  # noqa: E731
    assert sentences(of(SOFTMAX, beyond))[0] == "The row sum of 64 equal scores of 0 is 65, should be 64."


@pytest.mark.parametrize("operation", [SDPA, GQA])
def test_sums_of_values_that_stop_are_told(operation):
    def attends(q, k, v, mask=None):
        k, v = (k, v) if operation == SDPA else heads_of(q, k, v)
        scores = (q @ k.swapaxes(-1, -2) * scale_of(q)).astype("f4")
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        out = np.zeros((*weights.shape[:-1], v.shape[-1]), ml_dtypes.bfloat16)
        for key in range(k.shape[-2]):
            out = (out + weights[..., key : key + 1] * v[..., key : key + 1, :]).astype(out.dtype)
        return out.astype(float)

    wrong = of(operation, rounded(attends, ml_dtypes.bfloat16), "bfloat16")
    (said, *_) = sentences(wrong)
    assert said == "Sums of weights times values stop after 256 equal products, as sums in bfloat16 do."


def accumulated(q, k, v, mask=None, dtype=np.float16, change=lambda scores: scores):
    """Attention whose products of q and k are added up in a type, one after the other."""
    scores = np.zeros((*q.shape[:-1], k.shape[-2]), dtype)
    for channel in range(q.shape[-1]):
        scores = (scores + q[..., channel, None] * k[..., None, :, channel]).astype(dtype)
    scores = change(scores.astype(float)) * scale_of(q)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers @ v / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("name", "stop"), [("float16", 2048), ("bfloat16", 256)])
def test_sums_of_products_that_stop_are_told(name, stop):
    wrong = of(SDPA, rounded(partial(accumulated, dtype=FORMATS[name]), "f4"), "float32")
    assert sentences(wrong)[0] == f"Sums of products of q and k stop at {stop}, as sums in {name} do."


def test_bounded_scores_and_missing_channels_are_no_sums_that_stop():
    bounded = partial(accumulated, dtype=float, change=lambda scores: np.minimum(scores, 100))
    first = lambda q, k, v, mask=None: accumulated(q[..., :1], k[..., :1], v, dtype=float)  # noqa: E731
    for attends in (bounded, first):
        assert not any("Sums of products" in said for said in sentences(of(SDPA, attends)))


def test_keys_that_are_not_read_are_no_row_sums_that_stop():
    def attends(q, k, v, mask=None):
        return REFERENCE[SDPA](q, k[..., :256, :], v[..., :256, :])

    assert not any("stop" in said for said in sentences(of(SDPA, attends)))


def test_a_scale_of_zero_and_one_key_are_not_measured():
    function = REFERENCE[ATTENTION]
    with pytest.raises(OutsideError, match="a scale of 0"):
        sentences(of(ATTENTION, function), scale=0.0)
    one = {"k": np.ones((2, 2, 1, 4)), "v": np.ones((2, 2, 1, 3))}
    with pytest.raises(OutsideError, match="only one key"):
        sentences(of(ATTENTION, function, supports={"n_k": [1]}), **one)
