"""The curve of weights over scores: silent about right kernels, and the exact sentence about a mistake."""

from functools import partial

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.contract.support import OutsideError
from properties.inspection.curve import curve
from properties.inspection.curve_sentences import sentences_of_curve
from properties.inspection.measurements import measured
from properties.tests.instrument_calls import FORMATS, arguments_of, of, probed, rounded
from properties.tests.measured_kernels import heads_of, scale_of, softmax

SDPA, ATTENTION = "scaled_dot_product_attention", "attention"
OPERATIONS = (SDPA, "causal_attention", "grouped_query_attention", ATTENTION)
OPTIONS = ({}, {"softcap": 5.0}, {"scale": 0.001, "softcap": 30.0}, {"scale": -2.0}, {"scale": 0.0})


def sentences(implementation, **given):
    return sentences_of_curve(curve(*probed(implementation, **given)))


@pytest.mark.parametrize("arithmetic", FORMATS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_sentence_is_about_a_right_kernel(operation, arithmetic):
    implementation = of(operation, rounded(REFERENCE[operation], FORMATS[arithmetic]), arithmetic)
    for options in OPTIONS if operation == ATTENTION else OPTIONS[:1]:
        assert sentences(implementation, **options) == ()


def attention(
    q, k, v, mask=None, *, softcap=None, fill=-np.inf, clip=np.inf, capped=None, dtype=float, scale=None, **_
):
    """Attention with mistakes: in float32, with a fill, a clipped softmax, or another softcap."""
    k, v = heads_of(q, k, v)
    scores = (q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale)).astype(dtype)
    if softcap is not None:
        with np.errstate(all="ignore"):
            scores = capped(scores, softcap)
    scores = scores if mask is None else np.where(mask, scores, fill)
    weights, sums = softmax(np.maximum(scores, scores.max(-1, keepdims=True) - clip))
    return weights @ v, sums


def by_exponentials(scores, cap):
    """The hyperbolic tangent without a bound of its argument."""
    powers = np.exp(np.float32(2) * (scores / np.float32(cap)))
    return np.float32(cap) * ((powers - 1) / (powers + 1))


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ({"capped": lambda s, c: s}, "With softcap=5, scores are not capped."),
        (
            {"capped": lambda s, c: np.clip(s, -c, c)},
            "With softcap=5, scores are cut off at ± the softcap, should be c·tanh(s / c).",
        ),
        (
            {"capped": lambda s, c: s / np.hypot(1, s / c)},
            "With softcap=5, capped scores are s / √(1 + (s / c)²), should be c·tanh(s / c).",
        ),
        (
            {"capped": lambda s, c: 1.3 * c * np.tanh(s / c)},
            "With softcap=5, a key with the score -1 beside scores of 0 gets e^-1.283 times their weight, "
            "should get e^-0.9869 times.",
        ),
    ],
)
def test_another_softcap_is_told(mistake, said):
    wrong = of(ATTENTION, partial(attention, **mistake))
    assert sentences(wrong, softcap=5.0) == (said,)


def test_a_softcap_that_overflows_is_told_with_its_limit():
    function = rounded(partial(attention, capped=by_exponentials, dtype="f4"), "f4")
    wrong = of(ATTENTION, function, "float32-tanh-by-exponentials")
    (said,) = sentences(wrong, softcap=30.0)
    limits = (
        "beside scores of 0, scores from 44.37 × the softcap on give NaN; up to 44.36 × the softcap they are right."
    )
    assert said == f"With softcap=30, {limits}"
    assert measured(wrong, ATTENTION, arguments_of(ATTENTION, softcap=30.0)) == (said,)
    assert sentences(wrong) == ()


@pytest.mark.parametrize("fill", [0.0, -10000.0, -1e9])
def test_a_finite_fill_is_told(fill):
    wrong = of(SDPA, lambda q, k, v, mask=None: attention(q, k, v, mask, fill=fill)[0])
    assert sentences(wrong) == (f"Masked keys get the score {fill:.6g}, should get the weight 0.",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s, mask: s, "Masked keys keep their scores, should get the weight 0."),
        (
            lambda s, mask: s + np.where(mask, 0.0, -1e4),
            "Masked keys get -10000 added to their scores, should get the weight 0.",
        ),
        (
            lambda s, mask: np.where(mask, -np.inf, s),
            "Visible keys get the weight 0, and masked keys do not: a true entry of the mask masks, should allow.",
        ),
        (
            lambda s, mask: np.where(mask & (s > -20), s, -np.inf),
            "Scores from −20.000001 on of the only visible key give every key the weight 0; up to −20 they are right.",
        ),
    ],
)
def test_a_mask_that_acts_otherwise_is_told(change, said):
    def attends(q, k, v, mask=None):
        scores = q @ k.swapaxes(-1, -2) * scale_of(q)
        return softmax(scores if mask is None else change(scores, mask))[0] @ v

    assert sentences(of(SDPA, attends)) == (said,)


def test_a_softcap_after_the_mask_is_told_by_its_fill():
    wrong = of(ATTENTION, partial(attention, capped=lambda s, c: c * np.tanh(s / c), fill=-5.0))
    assert sentences(wrong, softcap=5.0) == ("Masked keys get the score -5, should get the weight 0.",)


def test_a_clipped_softmax_is_told():
    wrong = of(SDPA, lambda q, k, v, mask=None: attention(q, k, v, mask, clip=64.0)[0])
    assert sentences(wrong) == ("Beside scores of 0, scores from ±64.01 on count as ±64; up to ±64 they are right.",)


def test_a_small_weight_of_masked_keys_is_told():
    def attends(q, k, v, mask=None):
        weights, _ = softmax(q @ k.swapaxes(-1, -2) * scale_of(q))
        return weights @ v if mask is None else attention(q, k, v, mask)[0] + np.exp(-9.0) * v.sum(-2, keepdims=True)

    assert sentences(of(SDPA, attends)) == ("Masked keys get the weight e^-9, should get the weight 0.",)


def test_a_softmax_without_a_maximum_is_told():
    def attends(q, k, v, mask=None):
        with np.errstate(all="ignore"):
            scores = (q @ k.swapaxes(-1, -2) * scale_of(q)).astype("f4")
            powers = np.exp(scores if mask is None else np.where(mask, scores, -np.inf))
            return powers @ v / powers.sum(-1, keepdims=True)

    (said,) = sentences(of(SDPA, rounded(attends, "f4"), "float32"))
    assert said == "Beside scores of 0, scores from 88.74 on give NaN; up to 88.72 they are right."


def test_one_wrong_head_is_told():
    def attends(q, k, v, mask=None):
        out = attention(q, k, v, mask)[0]
        out[0] = attention(q, k, v, mask, clip=64.0)[0][0]
        return out

    assert sentences(of(SDPA, attends))[0].endswith("(in 1 of 2 batch entries and heads).")


def test_fixed_sizes_are_measured_in_several_calls():
    wrong = lambda q, k, v, mask=None: attention(q, k, v, mask, clip=64.0)[0]  # noqa: E731
    fixed = of(SDPA, wrong, supports=({"n_q": [5], "n_k": [6]}, "no masks"))
    assert sentences(fixed)[0] == "Beside scores of 0, scores from ±64.01 on count as ±64; up to ±64 they are right."
    one_key = of(SDPA, wrong, supports={"n_k": [1]})
    with pytest.raises(OutsideError, match="The implementation takes only one key"):
        sentences(one_key, k=np.ones((2, 1, 4)), v=np.ones((2, 1, 3)))
