"""PositionalEmbeddings.jl's port: the output that its documentation prints, and the code's results.

The laws notice a change of one line.
"""

import re

import mpmath
import numpy as np
import pytest

import oracles
from oracles import Conventions
from oracles.ball import gamma
from properties.verifier.plan import grouped, plan
from properties.verifier.verify import examine
from systems import positional_embeddings_jl as port
from systems.positional_embeddings_jl import (
    IMPLEMENTATIONS,
    AbsolutePE,
    RoPE,
    RoPEMultiHeadAttention,
    compute_frequencies,
    create_causal_mask,
    create_padding_mask,
    neg_half,
)

BY_NAME = {i.name.removeprefix("PositionalEmbeddings.jl "): i for i in IMPLEMENTATIONS}


def _declared(law, implementation):
    return bool({law.name, law.id} & set(implementation.known_deviations))


@pytest.mark.parametrize("name", BY_NAME)
def test_it_agrees_with_the_oracles_but_where_it_declares_not_to(name):
    implementation = BY_NAME[name]
    for laws in grouped(law for law in plan(implementation) if law.agreement or _declared(law, implementation)):
        for law, found in zip(laws, examine(laws, implementation, 5, 0), strict=True):
            assert found.status == ("declared" if _declared(law, implementation) else "held"), law.id


def test_frequencies_have_half_the_rows_that_the_docstring_promises():
    angles = compute_frequencies(4, 3)
    assert angles.shape == (2, 3)  # the docstring: (4, 3)
    assert np.array_equal(angles, [[0.0, 1.0, 2.0], [0.0, 0.01, 0.02]])
    assert compute_frequencies(5, 3).shape == (3, 3)


def test_neg_half_exchanges_the_halves_that_its_docstring_leaves_in_place():
    assert np.array_equal(
        neg_half(np.array([1.0, 2.0, 3.0, 4.0])), [-3.0, -4.0, 1.0, 2.0]
    )  # the docstring: [1, 2, −3, −4]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_neg_half_along_any_axis_is_a_quarter_turn(axis):
    x = np.arange(24.0).reshape(4, 2, 3)
    if x.shape[axis] % 2 == 0:
        assert np.array_equal(neg_half(neg_half(x, axis), axis), -x)
    assert np.array_equal(neg_half(np.moveaxis(x, axis, 0)), np.moveaxis(neg_half(x, axis), axis, 0))


def test_neg_half_of_an_odd_size_negates_the_longer_half():
    assert np.array_equal(neg_half(np.array([1.0, 2.0, 3.0])), [-2.0, -3.0, 1.0])


def test_tables_are_stacked_twice_and_a_scale_of_zero_turns_nothing():
    rope = RoPE.rotations(6, 9)
    assert rope.cos_cached.shape == (6, 9)
    assert rope.cos_cached.dtype == np.float32
    assert np.array_equal(rope.sin_cached[:3], rope.sin_cached[3:])
    x = np.random.default_rng(0).normal(size=(6, 9, 2))
    assert np.array_equal(RoPE.rotations(6, 9, scale=0.0)(x), x)


def test_the_scale_stretches_positions():
    halved, whole = RoPE.rotations(6, 9, scale=0.5), RoPE.rotations(6, 5)
    assert np.array_equal(halved.cos_cached[:, ::2], whole.cos_cached)


def test_single_precision_tables_are_the_default_for_double_precision_sequences():
    x = np.array([1.0, 0.0]).reshape(2, 1, 1).repeat(2, axis=1)
    turned = RoPE.rotations(2, 2)(x)[:, 1, 0]
    assert turned.dtype == np.float64
    assert np.array_equal(turned, turned.astype(np.float32))
    assert abs(turned[0] - np.cos(1)) > 2.0**-27


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: RoPE.rotations(3, 4), "head_size=3, but should be even."),
        (lambda: RoPE.rotations(4, 2)(np.zeros((4, 3, 1))), "x has 3 positions, but should have at most 2."),
        (lambda: RoPE.rotations(4, 2)(np.zeros((2, 2, 1))), "x has head_size 2, but should have 4."),
        (lambda: AbsolutePE.sinusoidal(4, 2)(np.zeros((3, 4, 1))), "x has 3 positions, but should have at most 2."),
        (lambda: AbsolutePE.sinusoidal(4, 2)(np.zeros((2, 3, 1))), "x has 3 features, but should have 4."),
        (lambda: _attention(6, 4), "d_model=6, but should be divisible by num_heads=4."),
        (lambda: _attention(6, 2), "head_size=3, but should be even."),
        (lambda: _attention(4, 2, maxlen=2)(np.zeros((4, 3, 1))), "x has 3 positions, but should have at most 2."),
    ],
)
def test_a_refusal_says_what_was_given_and_what_it_should_be(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        call()


def test_an_odd_embedding_size_fails_in_the_cosines_but_for_one():
    with pytest.raises(
        ValueError, match=re.escape("could not broadcast input array from shape (2,4) into shape (1,4)")
    ):
        AbsolutePE.sinusoidal(3, 4)
    assert np.array_equal(AbsolutePE.sinusoidal(1, 2).embeddings, np.float32([[0.0, np.sin(1)]]))


def test_a_square_sequence_with_its_features_first_is_encoded_the_wrong_way_round():
    """AbsolutePE has positions first and RoPE features first: with equal sizes no error shows the
    mistake.
    """
    table = AbsolutePE.sinusoidal(2, 2)
    assert np.array_equal(
        table(np.zeros((2, 2, 1)))[..., 0], table.embeddings.T
    )  # rows for positions, whatever the caller meant
    assert table.embeddings[0, 1] != table.embeddings[1, 0]


def test_the_causal_mask_is_the_printed_one():
    mask = create_causal_mask(3)
    assert mask.shape == (3, 3, 1)
    assert np.array_equal(mask[..., 0], [[1, 1, 1], [0, 1, 1], [0, 0, 1]])


def test_the_causal_mask_is_causal_where_true_keeps_and_keys_come_first_and_not_as_its_prose_reads_it():
    mask = create_causal_mask(3)[..., 0]
    causal = np.tri(3, dtype=bool)
    assert np.array_equal(mask.T, causal)
    assert np.array_equal(~mask, [[0, 0, 0], [1, 0, 0], [1, 1, 0]])  # what may be attended to, as the prose reads it
    assert np.array_equal(np.argwhere(~mask != causal), [[0, 0], [1, 1], [2, 2]])


def test_the_padding_mask_has_the_printed_entries_in_another_shape():
    mask = create_padding_mask(np.array([2, 3]), 4)
    assert mask.shape == (1, 4, 2)  # the docstring: (2, 4, 1)
    assert np.array_equal(mask[0].T, [[0, 0, 1, 1], [0, 0, 0, 1]])


def test_the_printed_shapes_of_the_combined_masks_do_not_broadcast():
    causal, padding = create_causal_mask(5), create_padding_mask(np.array([3, 4]), 5)
    with pytest.raises(ValueError, match="could not be broadcast"):
        causal | padding.transpose(2, 1, 0)  # (5, 5, 1) and, as printed, (2, 5, 1)
    assert (causal | padding).shape == (5, 5, 2)


def test_the_combined_mask_keeps_all_keys_of_padded_queries_and_blocks_no_padded_key():
    """`causal .| padding` mixes a mask of visible keys with a mask of masked keys, along the
    queries.

    Of 16 entries 8 should be visible, but 10 are.
    """
    combined = (create_causal_mask(4) | create_padding_mask(np.array([2]), 4))[..., 0].T  # (query, key)
    right = np.tri(4, dtype=bool) & (np.arange(4) < 2)
    assert np.array_equal(right, [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]])
    assert np.array_equal(combined, [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]])


def _attention(d_model, num_heads, **options):
    weights = np.random.default_rng(0).integers(-8, 9, (4, d_model, d_model)) / 8.0
    typed = weights.astype(options.pop("dtype", np.float64))
    return RoPEMultiHeadAttention.of_weights(*typed, num_heads=num_heads, **options)


def test_a_padding_mask_by_itself_leaves_real_queries_without_keys():
    """The mask is true at padding, the attention takes true for visible, and the axis is the
    queries' axis.
    """
    x = np.ones((2, 3, 1))
    out = _attention(2, 1)(x, create_padding_mask(np.array([2]), 3))
    assert np.array_equal(np.isnan(out[0, :, 0]), [True, True, False])


def test_a_padding_mask_of_several_sequences_does_not_fit_several_heads():
    with pytest.raises(ValueError, match="could not be broadcast"):
        _attention(4, 2)(np.ones((4, 3, 2)), create_padding_mask(np.array([2, 3]), 3))


def test_the_attention_of_the_example_divides_double_scores_by_a_root_in_single_precision():
    """With single weights and double x the result is double; tables and the root are single."""
    x = np.random.default_rng(1).normal(size=(6, 5, 2))
    layer = _attention(6, 1, dtype=np.float32)
    assert layer(x).dtype == np.float64
    assert layer.scale == np.float32(np.sqrt(6))
    assert abs(float(layer.scale) / np.sqrt(6) - 1) > 2.0**-27


def _heads(x, weight, head_dim):
    """x·weight by heads, (heads, n, head_dim), exactly: all numbers are multiples of 1/64."""
    return (weight @ x).T.reshape(x.shape[1], -1, head_dim).swapaxes(0, 1)


def _turned(x, base, scale):
    """Channels i and i + d/2 of row p, as a complex number, times exp(i·p·scale·base^(−2i/d)), in
    mpmath.
    """
    half = x.shape[-1] // 2
    out = np.empty(x.shape, dtype=object)
    for h, p, i in np.ndindex(len(x), x.shape[1], half):
        angle = p * mpmath.mpf(scale) * mpmath.power(base, -mpmath.mpf(2 * i) / (2 * half))
        z = mpmath.mpc(x[h, p, i], x[h, p, i + half]) * mpmath.expj(angle)
        out[h, p, i], out[h, p, i + half] = z.real, z.imag
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("base", "scale"), [(10000.0, 1.0), (100.0, 0.5)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_rotation_is_that_of_turned_queries_and_keys(dtype, base, scale, causal):
    """Against mpmath at 40 digits. Projections are exact, and so errors begin with the rotation's,
    bounded by the oracle of rope.

    With |q̂ − q| ≤ r and |k̂ − k| ≤ t, and d + 2 roundings of products, sums, root and quotient,
    scores move by δ = (Σ (|q| + r)(|k| + t)(1 + γ_{d+2}) − Σ |q||k|)/√d at most. Subtracting the
    maximum costs u·(|s − m| + 2δ), the exponential 8u (4 ulp). So weights before normalising move
    by a factor exp(±D), after it by exp(±2D), with n roundings in the sum and one in the quotient;
    n more follow with the values and d_model with wo, whose terms are |weight|·|value|·|wo|.
    """
    n, d_model, num_heads = 5, 8, 2
    d = d_model // num_heads
    layer = _attention(d_model, num_heads, dtype=dtype, base=base, scale=scale)
    x = np.random.default_rng(2).integers(-16, 17, (d_model, n)) / 8.0
    out = layer(x.astype(dtype)[..., None], create_causal_mask(n) if causal else None)[..., 0]
    assert out.dtype == dtype
    still = _attention(d_model, num_heads, dtype=dtype, scale=0.0)(
        x.astype(dtype)[..., None], create_causal_mask(n) if causal else None
    )

    arithmetic, reading = np.dtype(dtype).name, Conventions(rope_pairing="half", rope_base=base, rope_scale=scale)
    u = float(np.finfo(dtype).eps) / 2
    q, k, v = (_heads(x, np.float64(w), d) for w in (layer.Wq, layer.Wk, layer.Wv))
    # Budget and certificate: how far a kernel and the exact value may be from the midpoint.
    r, t = (sum(oracles.rope(y, arithmetic=a, conventions=reading).rad for a in (arithmetic, None)) for y in (q, k))
    expected, budget = np.empty((num_heads, d, n), dtype=object), np.empty((num_heads, d, n))
    with mpmath.workdps(40):
        q, k = _turned(q, base, scale), _turned(k, base, scale)
        for h, i in np.ndindex(num_heads, n):
            keys = slice(0, i + 1 if causal else n)
            s = (k[h, keys] @ q[h, i]) / mpmath.sqrt(d)
            size, reach = abs(k[h, keys]) @ abs(q[h, i]), (abs(k[h, keys]) + t[h, keys]) @ (abs(q[h, i]) + r[h, i])
            delta = float(max((reach * (1 + gamma(d + 2, u)) - size) / mpmath.sqrt(d)))
            weights = np.array([mpmath.exp(y - max(s)) for y in s])
            weights = weights / sum(weights)
            moved = delta + u * (float(max(s) - min(s)) + 2 * delta) + gamma(8, u)
            expected[h, :, i] = weights @ v[h, keys]
            budget[h, :, i] = (weights @ abs(v[h, keys])).astype(float) * np.expm1(
                2 * moved + gamma(2 * n + 1 + d_model, u)
            )
        wo = np.float64(layer.Wo)
        error = np.abs((out - wo @ expected.reshape(d_model, n)).astype(float))
    budget = np.abs(wo) @ budget.reshape(d_model, n)
    assert (error <= budget).all()
    assert (
        (np.abs(still[..., 0] - out) > budget)[:, 1:].any(axis=0).all()
    )  # without its rotation each query but the first would be noticed


def _by(attribute, change):
    """A function of the port that changes its result."""
    original = getattr(port, attribute)
    return lambda *arguments, **options: change(original(*arguments, **options))


CORRUPTIONS = {
    "another base": (
        "compute_frequencies",
        lambda d, n, base=10000.0: compute_frequencies(d, n, base + 1),
        "RoPE float32",
    ),
    "positions from 1": (
        "compute_frequencies",
        lambda d, n, base=10000.0: compute_frequencies(d, n + 1, base)[:, 1:],
        "RoPE float64",
    ),
    "base of an absolute encoding": (
        "compute_frequencies",
        lambda d, n, base=10000.0: compute_frequencies(d, n, 9999.0),
        "AbsolutePE float32",
    ),
    "frequencies of another width": (
        "compute_frequencies",
        lambda d, n, base=10000.0: compute_frequencies(d + 1, n, base),
        "AbsolutePE float64",
    ),
    "the other direction": ("neg_half", _by("neg_half", np.negative), "RoPE float32, base 500000"),
    "halves left in place": (
        "neg_half",
        _by("neg_half", lambda x: np.roll(x, len(x) // 2, 0)),
        "RoPE float32, scale 1/4",
    ),
    "an inverted mask": (
        "create_causal_mask",
        _by("create_causal_mask", np.logical_not),
        "masks as its attention reads them: true keeps, keys first",
    ),
    "padding that begins late": (
        "create_padding_mask",
        lambda lengths, max_len: create_padding_mask(np.asarray(lengths) + 1, max_len),
        "masks as its docstrings read them: true blocks, queries first",
    ),
    "a softmax over queries": (
        "_softmax",
        lambda s, softmax=port._softmax: softmax(s.swapaxes(0, 1)).swapaxes(0, 1),
        "attention float32",
    ),
    "weights from the right": ("_times", lambda w, x: np.tensordot(w.T, x, axes=1), "attention float64"),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_laws_notice_a_change_of_one_line(name, monkeypatch):
    attribute, changed, which = CORRUPTIONS[name]
    monkeypatch.setattr(port, attribute, changed)
    groups = grouped(law for law in plan(BY_NAME[which]) if not _declared(law, BY_NAME[which]))
    assert any(found.status == "violated" for laws in groups for found in examine(laws, BY_NAME[which], 5, 0))
