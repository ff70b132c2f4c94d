"""A judge of one call's outputs agrees with the oracles, and says what is wrong."""

import re

import numpy as np
import pytest
import torch

import attnspec
from oracles import Conventions
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 5, 8)).astype(np.float32)
Q, K, V = (torch.tensor(RANDOM.standard_normal((1, 2, 9, 16))).bfloat16() for _ in range(3))


def halves(x, start_pos=0):
    first, second = np.split(x, 2, axis=-1)
    angle = (start_pos + np.arange(x.shape[-2]))[:, None] * 10000.0 ** (-np.arange(first.shape[-1]) / first.shape[-1])
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def test_a_right_output_passes_in_the_kernels_own_arrays():
    out = torch.nn.functional.scaled_dot_product_attention(Q, K, V)
    verdict = attnspec.judge("attention", {"q": Q, "k": K, "v": V}, "bfloat16")(out)
    assert verdict
    assert 0 < verdict.error <= 1
    assert str(verdict).startswith("Each result is within its error limit: the largest error is 0.")
    wrong = attnspec.judge("attention", {"q": Q, "k": K, "v": V, "scale": 1.0}, "bfloat16")(out)
    assert not wrong


def test_a_wrong_output_names_its_entry_and_the_convention_under_which_it_is_right():
    judge = attnspec.judge("rope", {"x": X, "start_pos": 3}, "float64")
    verdict = judge(halves(X.astype(np.float64), 3))
    assert not verdict
    assert verdict.error > 1e3
    assert verdict.sentence.startswith("out[")
    assert verdict.sentence.endswith("It is right under Conventions(rope_pairing='half').")
    declared = attnspec.judge("rope", {"x": X, "start_pos": 3}, "float64", Conventions(rope_pairing="half"))
    assert declared(halves(X.astype(np.float64), 3))


def test_a_judge_keeps_the_inputs_that_it_was_given():
    x = X.astype(np.float64)
    judge = attnspec.judge("rope", {"x": x, "start_pos": 0}, "float64")
    out = halves(x)
    x[:] = 0
    assert "rope_pairing='half'" in judge(out).sentence


def test_results_that_are_left_out_at_the_end_are_not_judged():
    q, k, v = (x.float().numpy() for x in (Q, K, V))
    out, lse = REFERENCE["attention"](q, k, v)
    judge = attnspec.judge("attention", {"q": q, "k": k, "v": v}, "float32")
    assert judge(out)
    assert judge((out, lse))
    verdict = judge((out, lse + 1))
    assert verdict.sentence.startswith("lse[")
    with pytest.raises(ValueError, match="out has 3 results, but should have out, lse, or the first of them"):
        judge((out, lse, lse))


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        (np.zeros((2, 5)), "out.shape=(2, 5), but should be (2, 5, 8)."),
        (np.zeros((2, 5, 8), int), "out has element type int64, but should be"),
        (np.full((2, 5, 8), np.nan), "80 of 80 elements are outside."),
    ],
)
def test_an_output_of_another_shape_or_type_fails(out, sentence):
    verdict = attnspec.judge("rope", {"x": X, "start_pos": 0}, "float32")(out)
    assert not verdict
    assert verdict.error == np.inf
    assert sentence in verdict.sentence


def test_a_budget_that_shows_nothing_is_no_pass():
    q = 1000 * RANDOM.standard_normal((2, 4, 64)).astype(np.float16)
    verdict = attnspec.judge("scaled_dot_product_attention", {"q": q, "k": q[::-1], "v": q}, "float16")(
        np.zeros_like(q)
    )
    assert not verdict


def test_a_mask_is_compared_entry_by_entry():
    judge = attnspec.judge("causal_mask", {"n_q": 3, "n_k": 3}, "float64")
    assert judge(np.tri(3, dtype=bool))
    assert judge(np.tri(3, k=1, dtype=bool)).sentence == (
        "mask[0, 1]=True, but should be False; 2 of 9 entries differ."
    )
    assert judge(np.tri(2, dtype=bool)).sentence == "mask.shape=(2, 2), but should be (3, 3)."


@pytest.mark.parametrize(
    ("operation", "inputs", "sentence"),
    [
        ("ropes", {}, "Unknown operation 'ropes'. Did you mean 'rope'?"),
        ("decode", {}, "Unknown operation 'decode'."),
        ("rope", {"x": X, "start_pos": 0, "postions": 1}, "rope has no input 'postions'. Did you mean 'positions'?"),
        ("causal_attention", {"q": X}, "inputs lacks k, v, which causal_attention needs."),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(operation, inputs, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        attnspec.judge(operation, inputs, "float32")


def test_the_reference_passes_every_operation():
    """One everyday case of each operation that is one call."""
    for name, operation in OPERATIONS.items():
        if not operation.is_played:
            implementation = Implementation("reference", {name: REFERENCE[name]})
            domain = DOMAINS[name]["everyday"]
            arguments = Cases(operation, domain, implementation).draw(7)
            out = operation.call(REFERENCE[name], arguments)
            verdict = attnspec.judge(name, operation.named(arguments), "float64")(out)
            assert verdict or "vacuous" in verdict.sentence, (name, verdict)
