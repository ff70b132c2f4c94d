"""Where bias, sink and mask go: silent about right kernels, and the exact sentence about a mistake."""

from functools import partial

import numpy as np
import pytest

from oracles import Conventions
from properties.bugs.reference import REFERENCE
from properties.contract.operations import OPERATIONS
from properties.inspection.term_sentences import sentences_of_terms
from properties.inspection.terms import terms
from properties.tests.instrument_calls import FORMATS, of, probed, rounded
from properties.tests.measured_kernels import KERNELS, heads_of, scale_of, softmax
from properties.tests.readings import meaning

SDPA, GQA, ATTENTION = "scaled_dot_product_attention", "grouped_query_attention", "attention"


def sentences(implementation, **given):
    return sentences_of_terms(terms(*probed(implementation, **given)))


@pytest.mark.parametrize("arithmetic", FORMATS)
@pytest.mark.parametrize("operation", [SDPA, GQA, ATTENTION])
def test_no_sentence_is_about_a_right_kernel(operation, arithmetic):
    implementation = of(operation, rounded(REFERENCE[operation], FORMATS[arithmetic]), arithmetic)
    for options in ({}, {"softcap": 2.0}, {"scale": 0.0}, {"scale": -3.0}) if operation == ATTENTION else ({},):
        assert sentences(implementation, **options) == ()


@pytest.mark.parametrize(
    "conventions",
    [{"softcap_order": "after_bias"}, {"lse_sink": "excluded"}, {"lse_base": "2"}, {"mask_polarity": "true_blocks"}],
)
def test_declared_conventions_are_expected(conventions):
    declared = Conventions(**conventions)
    function = meaning(OPERATIONS[ATTENTION], declared)
    if "mask_polarity" in conventions:
        function = lambda *arguments, mask=None, **options: REFERENCE[ATTENTION](  # noqa: E731
            *arguments, mask=None if mask is None else ~mask, **options
        )
    assert sentences(of(ATTENTION, function, conventions=declared), softcap=2.0) == ()


def attention(q, k, v, *, scale=None, softcap=None, bias=None, sink=None, mask=None, **changes):
    """Attention in which some arguments are changed first, or a step is another one."""
    k, v = heads_of(q, k, v)
    change = {"order": "before", **dict.fromkeys(("of_bias", "of_sink", "of_mask"), lambda x: x), **changes}
    scores = q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale)
    bias = 0.0 if bias is None else change["of_bias"](bias)
    if softcap is not None:
        capped = lambda x: softcap * np.tanh(x / softcap)  # noqa: E731
        scores = capped(scores + bias) if change["order"] == "after" else capped(scores) + bias
    else:
        scores = scores + bias
    if mask is not None:
        scores = np.where(change["of_mask"](mask), scores, -np.inf)
    if sink is not None:
        sinks = change["of_sink"](sink)[:, None, None]
        scores = np.concatenate([scores, np.broadcast_to(sinks, (*scores.shape[:-1], 1))], -1)
    weights, sums = softmax(scores)
    if "sums" in change:
        sums = change["sums"](scores)
    return weights[..., : k.shape[-2]] @ v, sums


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"of_bias": lambda x: 0 * x}, "The bias is ignored."),
        ({"of_bias": lambda x: -x}, "The bias is subtracted."),
        ({"of_bias": lambda x: 0.5 * x}, "The bias is multiplied by the scale, 0.5."),
        ({"of_bias": lambda x: x / np.log(2)}, "The bias is divided by ln 2."),
        ({"of_bias": lambda x: np.roll(x, 1, 1)}, "Every query gets the bias of head (h − 1) mod 4."),
        (
            {"of_bias": lambda x: np.concatenate([x[:, :1], x[:, :1], x[:, 2:]], 1)},
            "Head 1 of 4 gets the bias of head 0.",
        ),
        ({"of_bias": lambda x: x[:1] + 0 * x}, "Batch 1 of 2 gets the bias of batch 0."),
        (
            {"of_bias": lambda x: x * np.array([1, 1, 3, 1])[:, None, None]},
            "The bias is multiplied by 3 (head 2 of 4).",
        ),
        (
            {"of_bias": np.square},
            "The bias is wrong in 40 of 40 rows: in batch 1, head 0, query 0 a value of 4 counts as 16.",
        ),
        ({"of_sink": lambda x: -np.inf * np.ones_like(x)}, "The sink is ignored."),
        ({"of_sink": lambda x: 0.5 * x}, "The sink is multiplied by the scale, 0.5."),
        ({"of_sink": lambda x: np.log(x)}, "The sink is added to the sum of exponentials without an exponential."),
        ({"of_sink": lambda x: x[[0, 0, 2, 3]]}, "Head 1 of 4 gets the sink of head 0."),
        ({"of_mask": np.ones_like}, "The mask is ignored."),
        ({"of_mask": lambda x: ~x}, "The masked keys are read, and the visible keys are not."),
        ({"of_mask": lambda x: x[:, :1] & np.ones_like(x)}, "Heads 1–3 of 4 get the mask of head 0."),
        ({"of_mask": lambda x: x[:1] & np.ones_like(x)}, "Batch 1 of 2 gets the mask of batch 0."),
        (
            {"sums": lambda s: softmax(s[..., :6])[1] if s.shape[-1] > 6 else softmax(s)[1]},
            "The log-sum-exp leaves out the sink, should include it.",
        ),
    ],
)
def test_a_mistake_with_a_term_is_told(changes, said):
    (found,) = sentences(of(ATTENTION, partial(attention, **changes)))
    assert found == said


def test_a_softcap_of_the_sum_with_the_bias_is_told():
    (said,) = sentences(of(ATTENTION, partial(attention, order="after")), softcap=2.0)
    assert said == "The softcap, 2, is applied to the bias too."
    after = Conventions(softcap_order="after_bias")
    (said,) = sentences(of(ATTENTION, attention, conventions=after), softcap=2.0)
    assert said == "The softcap, 2, is not applied to the bias."


def test_a_sink_without_the_maximum_is_told():
    def sunk(q, k, v, *, scale=None, sink=None, **options):
        out, sums = attention(q, k, v, scale=scale, **options)
        if sink is None:
            return out, sums
        scores = q @ heads_of(q, k, v)[0].swapaxes(-1, -2) * (scale_of(q) if scale is None else scale)
        total = np.exp(scores - scores.max(-1, keepdims=True)).sum(-1)
        share = total / (total + np.exp(sink)[:, None])
        return out * share[..., None], np.logaddexp(sums, sink[:, None])

    assert sentences(of(ATTENTION, sunk)) == ("The maximum is not subtracted from the sink.",)


def test_a_wrong_scale_or_softcap_is_no_mistake_with_the_sink():
    larger = lambda q, k, v, **options: attention(1.25 * q, k, v, **options)  # noqa: E731
    assert sentences(of(ATTENTION, larger)) == ()
    looser = lambda q, k, v, softcap=None, **options: attention(  # noqa: E731
        q, k, v, softcap=None if softcap is None else 2 * softcap, **options
    )
    assert sentences(of(ATTENTION, looser), softcap=2.0) == ()


def test_a_sink_of_key_0_is_told():
    (said,) = sentences(KERNELS["sink_of_a_key"](True))
    assert said == "The sink is added to the score of key 0, should be a separate key."
    assert sentences(KERNELS["sink_of_a_key"](False)) == ()


def test_a_bias_with_queries_and_keys_exchanged_is_told():
    exchanged = of(ATTENTION, partial(attention, of_bias=lambda x: x.swapaxes(-1, -2)))
    square = {"q": np.ones((2, 4, 5, 4)), "k": np.ones((2, 2, 5, 4)), "v": np.ones((2, 2, 5, 3))}
    assert sentences(exchanged, **square) == ("The bias of query i and key j goes to query j and key i.",)


def test_only_what_is_taken_is_measured():
    bare = of(ATTENTION, REFERENCE[ATTENTION], supports="no masks")
    assert [term.name for term in terms(*probed(bare))] == ["bias", "sink", "sink in the log-sum-exp"]
    assert terms(*probed(of("causal_attention", REFERENCE["causal_attention"]))) == ()
