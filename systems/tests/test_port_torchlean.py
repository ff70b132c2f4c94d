"""TorchLean under test, over ℝ, in Float, with several heads, and corrected.

Over ℝ all laws hold with one head, in Float exp overflows, several heads mix tokens, and the
revision corrects both.
"""

import math

import numpy as np
import pytest

from properties.laws import find
from properties.verifier.plan import grouped
from properties.verifier.verify import check, examine
from spec import attention, positional_encoding
from systems import torchlean
from systems.torchlean import IMPLEMENTATIONS

BY_NAME = {i.name.removeprefix("TorchLean "): i for i in IMPLEMENTATIONS}
SDPA, HEADS = "scaled_dot_product_attention", "multi_head_attention"
SEVERAL = "multi-head attention, seed, ℝ, several heads"
EYE = np.eye(2)


def operation(name, of):
    return BY_NAME[name].operations[of]


def test_over_the_reals_a_score_of_800_is_a_score():
    q, k, v = np.array([[800.0]]), np.ones((2, 1)), np.array([[1.0], [3.0]])
    for name in ("attention, seed, ℝ", "attention, revised"):
        assert operation(name, SDPA)(q, k, v, np.ones((1, 2), bool)).tolist() == [[2.0]]


def test_in_float_a_score_of_710_is_nan_under_a_mask_only():
    softmax = operation("attention, seed, Float", "hard_masked_softmax")
    assert np.isnan(softmax(np.array([[710.0]]), np.array([[True]]))).all()
    assert softmax(np.array([[710.0]]), None).tolist() == [[1.0]]
    assert softmax(np.array([[709.0]]), np.array([[True]])).tolist() == [[1.0]]


def test_a_dead_row_is_zero_over_the_reals_and_nan_in_float():
    dead = np.array([[False]])
    for name, zero in (("attention, seed, ℝ", True), ("attention, revised", True), ("attention, seed, Float", False)):
        assert (operation(name, "hard_masked_softmax")(np.zeros((1, 1)), dead) == 0).all() == zero


def test_a_dead_row_reaches_every_key_in_float():
    q, k, v = np.zeros((2, 1)), np.ones((2, 1)), np.ones((2, 1))
    mask = np.array([[False, False], [True, True]])
    _, dk, dv = operation("attention, seed, Float", f"{SDPA}_vjp")(q, k, v, mask, np.ones((2, 1)))
    assert np.isnan(dk).all()
    assert np.isnan(dv).all()


def test_two_heads_of_the_seed_mix_tokens():
    x, zero = np.array([[1.0, 2.0], [3.0, 4.0]]), np.zeros((2, 2))
    arguments = (
        x,
        zero,
        zero,
        EYE,
        EYE,
        2,
        EYE.astype(bool),
    )  # each token attends to itself, so that the output is the input
    assert operation("multi-head attention, revised", HEADS)(*arguments).tolist() == x.tolist()
    assert operation(SEVERAL, HEADS)(*arguments).tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_the_odd_lane_is_scaled_in_the_seed_and_passes_through_in_the_revised_text():
    x = np.array([[1.0]])
    assert operation("rotary, seed", "rope")(x, 1)[0, 0] == pytest.approx(math.cos(1) + math.sin(1))
    assert operation("rotary, revised", "rope")(x, 1).tolist() == [[1.0]]


def test_a_rectangular_causal_mask_is_a_corner_of_the_square_one():
    mask = operation("masks", "causal_mask")
    assert mask(2, 3).tolist() == [[True, False, False], [True, True, False]]
    assert mask(2).tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize(
    ("name", "of", "arguments", "sentence"),
    [
        ("masks", "causal_mask", (10, 2), r"^The sizes are \(10, 2\), but should be at most 9\.$"),
        (
            "encodings",
            "sinusoidal_positional_encoding",
            (3, 11),
            r"^The sizes are \(3, 11\), but should be at most 9\.$",
        ),
        (
            "multi-head attention, seed, ℝ, several heads",
            HEADS,
            (EYE, EYE, EYE, EYE, EYE, 1),
            r"^num_heads=1, but should be one of \(2, 3\)\.$",
        ),
    ],
)
def test_what_would_take_too_long_is_refused(name, of, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        operation(name, of)(*arguments)


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("masks", "a causal mask equals its definition"),
        ("encodings", "the sinusoidal encoding is within its error limit"),
        ("rotary, seed", "the last channel of an odd width follows its convention[rope]"),
        ("rotary, revised", "the last channel of an odd width follows its convention[rope]"),
        ("attention, seed, ℝ", "attention is within its error limit[scaled_dot_product_attention]"),
        ("attention, revised", "attention is within its error limit[scaled_dot_product_attention]"),
        ("multi-head attention, revised", "tokens depend on visible tokens only[multi_head_attention]"),
        ("multi-head attention, seed, ℝ, one head", "multi-head attention is within its error limit"),
    ],
)
def test_what_is_right_declares_nothing_and_holds(name, law):
    assert not BY_NAME[name].known_deviations
    (chosen,) = find(law)
    assert check(chosen, BY_NAME[name], 10, 0).status == "held"


@pytest.mark.parametrize("implementation", [i for i in IMPLEMENTATIONS if i.known_deviations], ids=lambda i: i.name)
def test_every_other_declared_deviation_happens(implementation):
    laws = [
        law
        for declared in implementation.known_deviations
        for law in find(declared)
        if not law.operation.endswith("jvp")
    ]
    for group in grouped(laws[::2]):
        assert {found.law: found.status for found in examine(group, implementation, 30, 1)} == {
            law.name: "declared" for law in group
        }


# Corruptions, each of one line.


def broken(name, law):
    (chosen,) = find(law)
    return examine([chosen], BY_NAME[name], 20, 0)[0].status == "violated"


def test_a_causal_mask_that_hides_the_present_is_caught(monkeypatch):
    monkeypatch.setattr(attention, "causal_mask", lambda n: np.tri(n, k=-1, dtype=bool))
    assert broken("masks", "a causal mask equals its definition[causal_mask]")


def test_a_tangent_without_the_scale_is_caught(monkeypatch):
    monkeypatch.setattr(torchlean.corrected, "attention_scale_denom", lambda d, alpha: alpha.one)
    assert broken("attention, revised", "attention is within its error limit[scaled_dot_product_attention]")


def test_the_seeds_split_in_the_revised_text_is_caught(monkeypatch):
    monkeypatch.setattr(torchlean.corrected, "split_heads", attention.split_heads_spec)
    assert broken("multi-head attention, revised", "multi-head attention is within its error limit")


def test_a_dead_row_that_takes_the_mean_is_caught(monkeypatch):
    plain = torchlean.corrected.hard_masked_softmax
    monkeypatch.setattr(
        torchlean.corrected,
        "hard_masked_softmax",
        lambda s, mask, *rest: plain(s, mask | ~mask.any(-1)[:, None], *rest),
    )
    assert broken("attention, revised", f"a fully masked row follows its convention[{SDPA}_vjp]")


def test_another_base_is_caught(monkeypatch):
    plain = positional_encoding.posenc_freq_denom_spec
    monkeypatch.setattr(positional_encoding, "posenc_freq_denom_spec", lambda i, d, *rest: plain(i, d + 1, *rest))
    assert broken("encodings", "the sinusoidal encoding is within its error limit[sinusoidal_positional_encoding]")
    assert broken("rotary, seed", "rope is within its error limit[rope]")


def test_positions_that_count_from_one_are_caught(monkeypatch):
    plain = positional_encoding.posenc_angle_spec
    monkeypatch.setattr(positional_encoding, "posenc_angle_spec", lambda pos, *rest: plain(pos + 1, *rest))
    assert broken("rotary, revised", "rope is within its error limit[rope]")
