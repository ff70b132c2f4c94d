"""Attention as it is used today: against a vectorised reference, against numbers by hand, and by
the laws between its arguments.

The reference is NumPy over mpmath's numbers at 60 digits, written with whole arrays, repeated heads
and no maximum subtracted. The definition runs over balls at 113 bits, 34 digits. Rounding takes
fewer than 20 of 60 digits on these inputs, so that both agree to 28.
"""

import math

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import config

from spec import ARB, ARB_SERIES, FLOAT64, REAL64, corrected
from spec.attention import AttentionContext
from spec.extended.alibi import alibi_bias, alibi_slopes
from spec.extended.attention import attention, merge_attention
from spec.extended.attention_derivatives import attention_jvp, attention_vjp
from spec.extended.attention_steps import attention_scores, softcap_scores, visible_keys
from spec.tensor_core import derivative, taylor, tensor, value
from spec.tests.cases import MODERATE
from spec.tests.extended_cases import inputs_of_attention

EXP, TANH, LOG, MPF = (np.frompyfunc(f, 1, 1) for f in (mpmath.exp, mpmath.tanh, mpmath.log, mpmath.mpf))


@pytest.fixture(autouse=True, scope="module")
def _at_113_bits_with_signatures_unchecked():
    """Other tests check signatures on the same definitions."""
    config.update("jaxtyping_disable", True)
    with flint.ctx.workprec(113), mpmath.workdps(60):
        yield
    config.update("jaxtyping_disable", False)


def vectorised(
    q,
    k,
    v,
    *,
    mask=None,
    bias=None,
    scale=None,
    causal=False,
    offset=None,
    window=(None, None),
    softcap=None,
    sink=None,
    alibi=None,
    dropout_mask=None,
    dropout=0.0,
):
    """(out, lse) with whole arrays."""
    q, k, v = MPF(q), *(np.repeat(MPF(t), q.shape[-3] // k.shape[-3], axis=-3) for t in (k, v))
    s = np.matmul(q, np.swapaxes(k, -1, -2)) * (1 / mpmath.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap is not None:
        s = softcap * TANH(s / softcap)
    if bias is not None:
        s = s + np.where(bias == -math.inf, 0, MPF(bias))
    first = np.asarray(0 if offset is None else offset)[..., None, None, None]
    ahead = np.arange(s.shape[-1]) - np.arange(s.shape[-2])[:, None] - first
    if alibi is not None:
        s = s - MPF(alibi)[:, None, None] * np.abs(ahead)
    left, right = (math.inf if side is None else side for side in window)
    seen = np.broadcast_to((-left <= ahead) & (ahead <= right), s.shape)
    for condition in (ahead <= 0 if causal else None, mask, None if bias is None else bias != -math.inf):
        seen = seen if condition is None else seen & condition
    e = np.where(seen, EXP(s), mpmath.mpf(0))
    D = e.sum(-1) + (0 if sink is None else EXP(MPF(sink))[:, None])
    empty = D == 0
    D = np.where(empty, mpmath.mpf(1), D)
    of_values = e if dropout_mask is None else np.where(dropout_mask, e / (1 - mpmath.mpf(dropout)), mpmath.mpf(0))
    return np.matmul(of_values, v) / D[..., None], np.where(empty, -mpmath.inf, LOG(D))


def assert_encloses(balls, numbers):
    assert balls.shape == numbers.shape
    for index in np.ndindex(*balls.shape):
        ball, number = balls[index], numbers[index]
        if number == -mpmath.inf:
            assert ARB.is_neg_inf(ball)
            continue
        assert ball.rad() < 1e-28, f"[{index}] {ball} is too wide to say anything."
        exact = flint.arb(mpmath.mpf(number))
        assert abs(ball - exact) < 1e-28, f"[{index}]={ball}, but should be {exact}."


def assert_overlaps(some, others):
    assert some.shape == others.shape
    for a, b in zip(some.flat, others.flat, strict=True):
        assert (ARB.is_neg_inf(a) and ARB.is_neg_inf(b)) or (a.overlaps(b) and a.rad() < 1e-28), (
            f"{a}, but should be {b}."
        )


def assert_same(some, others):
    """The same bits, in each of the results."""
    for a, b in zip(some, others, strict=True):
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def over_balls(inputs):
    return {
        name: tensor(x, ARB) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for name, x in inputs.items()
    }


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).integers(-64, 64, shape) / 32


@given(inputs_of_attention(MODERATE))
def test_attention_is_the_vectorised_reference(inputs):
    out, lse = attention(**over_balls(inputs), scalar=ARB)
    expected_out, expected_lse = vectorised(**inputs)
    assert_encloses(out, expected_out)
    assert_encloses(lse, expected_lse)


EVERYTHING = {
    "mask": np.array([[False, True, False, True], [True, True, True, True], [True, False, True, True]]),
    "bias": np.where(np.arange(4) == 1, -np.inf, drawn(2, 2, 1, 4, seed=5)),
    "scale": 0.5,
    "causal": True,
    "offset": np.array([1, -1]),
    "window": (2, 1),
    "softcap": 2.0,
    "sink": np.array([0.25, -np.inf]),
    "alibi": np.array([0.5, -1.25]),
}
QKV = {"q": drawn(2, 2, 3, 2), "k": drawn(2, 1, 4, 2, seed=1), "v": drawn(2, 1, 4, 3, seed=2)}


@pytest.mark.parametrize("left_out", [None, *EVERYTHING])
def test_each_argument_changes_the_result_of_all_of_them_together(left_out):
    """So the reference above has met every argument, and each one matters."""
    inputs = QKV | {name: x for name, x in EVERYTHING.items() if name != left_out}
    out, lse = attention(**over_balls(inputs), scalar=ARB)
    expected_out, expected_lse = vectorised(**inputs)
    assert_encloses(out, expected_out)
    assert_encloses(lse, expected_lse)
    whole = attention(**over_balls(QKV | EVERYTHING), scalar=ARB)
    assert (left_out is None) == all(a.overlaps(b) for a, b in zip(lse.flat, whole[1].flat, strict=True))


# -- By hand ---------------------------------------------------------------------------------------


def test_two_keys_of_weights_one_and_two_thirds_give_their_mean():
    bias = tensor([0, 0], ARB)
    bias[1] = flint.arb(2).log()
    out, lse = attention(*(tensor(t, ARB) for t in ([[[0]]], [[[1], [1]]], [[[1], [4]]])), bias=bias)
    assert out[0, 0, 0].contains(3)
    assert lse[0, 0].overlaps(flint.arb(3).log())


def test_a_score_of_c_log_2_is_capped_to_three_fifths_of_c():
    s = np.array([10 * flint.arb(2).log()])
    assert softcap_scores(s, 10)[0].contains(6)


def test_the_slopes_of_heads_that_are_no_power_of_two_are_every_second_of_twice_the_power():
    exponents = [
        -1,
        -2,
        -3,
        -4,
        -5,
        -6,
        -7,
        -8,
        -0.5,
        -1.5,
        -2.5,
        -3.5,
    ]  # of the 12 heads: those of 8, then the odd ones of 16
    assert_overlaps(alibi_slopes(12, ARB), np.array([flint.arb(2) ** flint.arb(e) for e in exponents]))
    assert alibi_slopes(8, REAL64).tolist() == [2.0**e for e in exponents[:8]]
    assert [len(alibi_slopes(n, REAL64)) for n in (0, 1, 5)] == [0, 1, 5]


def test_the_alibi_bias_falls_with_the_distance_on_both_sides():
    bias = alibi_bias(2, 1, 3, offset=1, scalar=REAL64)
    assert bias.tolist() == [[[-1 / 16, 0, -1 / 16]], [[-1 / 256, 0, -1 / 256]]]
    assert alibi_bias(2, 1, 3, offset=np.array([1, 2]), scalar=REAL64)[0].tolist() == bias.tolist()


# -- Edges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [REAL64, FLOAT64, ARB], ids=repr)
@pytest.mark.parametrize("n_k", [0, 2])
def test_a_row_without_a_visible_key_is_zero_and_with_a_sink_its_lse_is_the_sink(alpha, n_k):
    q, k, v = (tensor(np.ones(shape), alpha) for shape in ((1, 1, 2), (1, n_k, 2), (1, n_k, 3)))
    for sink, expected in ((None, -math.inf), (-math.inf, -math.inf), (0.75, 0.75)):
        out, lse = attention(q, k, v, mask=np.zeros(n_k, bool), sink=None if sink is None else tensor([sink], alpha))
        assert [x == 0 for x in out.flat] == [True] * 3
        assert lse[0, 0] == alpha.lift(expected)


@pytest.mark.parametrize(("heads", "n_q", "d", "d_v"), [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 0), (1, 2, 0, 1)])
def test_sizes_of_zero_are_computed(heads, n_q, d, d_v):
    out, lse = attention(np.ones((heads, n_q, d)), np.ones((heads, 2, d)), np.ones((heads, 2, d_v)))
    assert out.tolist() == np.ones((heads, n_q, d_v)).tolist()
    assert (
        np.exp(lse).round(12).tolist()
        == np.full((heads, n_q), 2.0 if d == 0 else 2 * np.exp(1).round(12)).round(12).tolist()
    )


def test_what_is_not_visible_is_not_read():
    visible = visible_keys(
        (2, 2, 3, 4), mask=EVERYTHING["mask"], causal=True, offset=EVERYTHING["offset"], window=(2, 1)
    )
    hidden = ~visible.any(axis=(1, 2))[:, None, :]  # keys that no query of the sequence sees
    assert hidden.any()
    given_all = EVERYTHING | {"bias": np.zeros((2, 2, 3, 4))}
    poisoned = {name: np.where(hidden[..., None], np.nan, QKV[name]) for name in ("k", "v")}
    assert_same(attention(**QKV | given_all), attention(**QKV | poisoned, **given_all))
    cotangents = {"grad_out": drawn(2, 2, 3, 3, seed=7), "grad_lse": drawn(2, 2, 3, seed=8)}
    assert_same(
        attention_vjp(**QKV, **cotangents, **given_all), attention_vjp(**QKV | poisoned, **cotangents, **given_all)
    )
    tangents = {"d" + name: drawn(*x.shape, seed=9) for name, x in (QKV | {"sink": given_all["sink"]}).items()}
    bad = tangents | {f"d{name}": np.where(hidden[..., None], np.nan, tangents[f"d{name}"]) for name in ("k", "v")}
    bad["dsink"] = np.array([tangents["dsink"][0], np.nan])  # of a sink of −∞
    assert_same(attention_jvp(**QKV, **tangents, **given_all), attention_jvp(**QKV | poisoned, **bad, **given_all))


def test_the_cotangents_of_a_row_without_a_key_are_not_read():
    nothing = np.full((2, 2, 3, 3), np.nan), np.full((2, 2, 3), np.nan)
    gradients = attention_vjp(**QKV, grad_out=nothing[0], grad_lse=nothing[1], mask=np.zeros((3, 4), bool))
    assert all(not g.any() for g in gradients if g is not None)


# -- One argument by another -----------------------------------------------------------------------

NEUTRAL = {
    "no causal and no window": ({}, {"window": (10, 10)}),
    "a mask that allows all": ({}, {"mask": np.ones((1, 4), bool)}),
    "a bias of 0": ({}, {"bias": np.zeros(())}),
    "a sink of −∞": ({}, {"sink": np.full(2, -np.inf)}),
    "causal is a window": ({"causal": True}, {"window": (None, 0)}),
    "a wider window beside causal": ({"causal": True, "window": (1, None)}, {"causal": True, "window": (1, 5)}),
    "a window equals the mask of its band": (
        {"window": (1, 2), "offset": 1},
        {"mask": np.abs(np.arange(4) - np.arange(3)[:, None] - 1.5) <= 1.5},
    ),
    "a bias of −∞ is a mask": ({"mask": np.eye(3, 4, dtype=bool)}, {"bias": np.where(np.eye(3, 4), 0, -np.inf)}),
    "the scale by default": ({"scale": 1 / np.sqrt(2.0)}, {}),
    "an offset for all sequences": ({"causal": True, "offset": 1}, {"causal": True, "offset": np.array([1, 1])}),
}


@pytest.mark.parametrize("law", NEUTRAL)
def test_two_ways_to_say_the_same_give_the_same_bits(law):
    one, other = NEUTRAL[law]
    assert_same(attention(**QKV, **one), attention(**QKV, **other))


def test_a_softcap_of_c_moves_a_score_by_at_most_its_cube_over_three_c_squared():
    """0 ≤ x − tanh x ≤ x³/3 for x ≥ 0, and tanh is odd: so the cap is none as c → ∞."""
    s = attention_scores(*(tensor(QKV[name], ARB) for name in "qk"))
    for c in (1, 64, 2**40):
        capped = softcap_scores(s, c)
        for x, t in zip(s.flat, capped.flat, strict=True):
            assert abs(x - t) < abs(x) ** 3 / (3 * c**2) + 1e-30
            assert abs(t) < c
        assert_overlaps(softcap_scores(-s, c), -capped)


def test_without_the_new_arguments_each_head_is_the_corrected_attention_of_torchlean():
    for mask in (None, np.tri(3, 4, dtype=bool)):
        out, _ = attention(QKV["q"], QKV["k"], QKV["v"][..., :2], mask=mask)
        for b in range(2):
            for h in range(2):
                ctx = AttentionContext(QKV["q"][b, h], QKV["k"][b, 0], QKV["v"][b, 0][:, :2].copy(), mask)
                assert out[b, h].tobytes() == corrected.scaled_dot_product_attention(ctx).tobytes()


def test_grouped_heads_are_repeated_key_heads():
    q, k, v = drawn(4, 3, 2), drawn(2, 4, 2), drawn(2, 4, 1)
    assert_same(attention(q, k, v), attention(q, k.repeat(2, axis=0), v.repeat(2, axis=0)))
    assert attention(q, k, v)[0].tobytes() != attention(q, np.tile(k, (2, 1, 1)), np.tile(v, (2, 1, 1)))[0].tobytes()


# -- Bias, sink and log-sum-exp --------------------------------------------------------------------


def test_a_constant_along_the_keys_moves_the_lse_alone():
    plain, shifted = (attention(**over_balls(QKV), bias=tensor(np.full((3, 1), shift), ARB)) for shift in (0.0, 0.75))
    assert_overlaps(plain[0], shifted[0])
    assert_overlaps(plain[1] + flint.arb(0.75), shifted[1])


def test_a_sink_of_log_m_is_m_keys_of_score_and_value_zero():
    q, k, v = (tensor(QKV[name][0], ARB) for name in "qkv")
    more = tensor(np.zeros((1, 2, 2)), ARB), tensor(np.zeros((1, 2, 3)), ARB)
    sunk = attention(q, k, v, sink=np.array([flint.arb(2).log()] * 2))
    padded = attention(q, np.concatenate([k, more[0]], axis=1), np.concatenate([v, more[1]], axis=1))
    assert_overlaps(sunk[0], padded[0])
    assert_overlaps(sunk[1], padded[1])


def test_a_sink_may_be_added_afterwards_by_the_sigmoid_of_lse_minus_sink():
    plain, sunk = (attention(**over_balls(QKV), sink=sink) for sink in (None, tensor([0.5, -1.0], ARB)))
    sigmoid = np.array(
        [[1 / (1 + (s - lse).exp()) for lse in row] for b in plain[1] for s, row in zip((0.5, -1.0), b, strict=True)]
    )
    assert_overlaps(sunk[0], plain[0] * sigmoid.reshape(2, 2, 3, 1))


def _parts(cut, **given):
    """Attention over the first keys and over the others: positions of the second part count from its first key."""
    before, after = ({name: QKV[name][..., keys, :] for name in "kv"} for keys in (slice(cut), slice(cut, None)))
    sink = given.pop("sink")
    return (
        attention(**over_balls(QKV | before), sink=tensor(sink, ARB), **given, scalar=ARB),
        attention(**over_balls(QKV | after), **given | {"offset": 1 - cut}, scalar=ARB),
    )


@pytest.mark.parametrize("cut", range(5))
def test_merging_the_parts_at_any_cut_gives_the_whole_in_either_order(cut):
    given = {"causal": True, "offset": 1, "window": (2, None), "softcap": 4.0, "sink": np.array([0.5, -np.inf])}
    one, other = _parts(cut, **given)
    whole = attention(**over_balls(QKV | given), scalar=ARB)
    for merged in (merge_attention(*one, *other), merge_attention(*other, *one)):
        assert_overlaps(merged[0], whole[0])
        assert_overlaps(merged[1], whole[1])


def test_merging_is_associative_and_an_empty_part_is_not_read():
    parts = [(tensor(drawn(3, 2, seed=s), ARB), tensor(drawn(3, seed=s + 9), ARB)) for s in range(3)]
    left = merge_attention(*merge_attention(*parts[0], *parts[1]), *parts[2])
    right = merge_attention(*parts[0], *merge_attention(*parts[1], *parts[2]))
    assert_overlaps(left[0], right[0])
    assert_overlaps(left[1], right[1])
    out, lse = drawn(3, 2), drawn(3)
    assert_same(merge_attention(out, lse, np.full((3, 2), np.nan), np.full(3, -np.inf)), (out, lse))
    nothing = np.full((3, 2), np.nan), np.full(3, -np.inf)
    assert_same(merge_attention(*nothing, *nothing), (np.zeros((3, 2)), np.full(3, -np.inf)))


# -- Sequences in parts ----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(4))
def test_a_chunk_at_its_offset_is_the_rows_of_the_whole(cut):
    given = {"causal": True, "window": (1, None), "softcap": 3.0, "sink": np.array([0.0, 1.0])}
    whole = attention(**QKV, **given)
    chunk = attention(**QKV | {"q": QKV["q"][..., cut:, :]}, **given, offset=cut)
    assert_same(chunk, (whole[0][..., cut:, :], whole[1][..., cut:]))


def test_sequences_side_by_side_under_a_block_mask_are_the_sequences():
    lengths = [2, 0, 1]  # of q, k and v alike
    of = np.repeat(np.arange(3), lengths)
    packed = {"q": drawn(2, 3, 2), "k": drawn(1, 3, 2, seed=1), "v": drawn(1, 3, 2, seed=2)}
    together = attention(**packed, mask=of[:, None] == of, causal=True)
    for s in range(3):
        alone = attention(**{name: x[:, of == s] for name, x in packed.items()}, causal=True)
        assert_same(alone, (together[0][:, of == s], together[1][:, of == s]))


# -- Derivatives -----------------------------------------------------------------------------------

DIFFERENTIABLE = ("q", "k", "v", "bias", "sink")


def along(inputs):
    """The inputs over series, moving along their tangents; where a bias or a sink is −∞ it stays there."""
    moving = {
        n: taylor(x, np.where(np.isneginf(x), 0, inputs["d" + n])) for n, x in inputs.items() if n in DIFFERENTIABLE
    }
    return {n: x for n, x in inputs.items() if n[0] != "d"} | moving


@given(inputs_of_attention(MODERATE, ("tangents",)))
def test_the_jvp_is_the_certified_derivative(inputs):
    series = attention(**along(inputs), scalar=ARB_SERIES)
    jvp = attention_jvp(**over_balls(inputs), scalar=ARB)
    for certified, written_out in zip(series, jvp, strict=True):
        assert_overlaps(written_out, derivative(certified))
    for certified, plain in zip(
        series, attention(**over_balls({n: x for n, x in inputs.items() if n[0] != "d"}), scalar=ARB), strict=True
    ):
        assert_overlaps(value(certified), plain)


@given(inputs_of_attention(MODERATE, ("tangents", "cotangents")))
def test_the_vjp_is_the_adjoint_of_the_jvp(inputs):
    """⟨g, dout⟩ + ⟨g_lse, dlse⟩ = ⟨dq, q̇⟩ + ⟨dk, k̇⟩ + ⟨dv, v̇⟩ + ⟨dbias, ḃ⟩ + ⟨dsink, ṡ⟩, in each
    case to 28 digits.
    """
    over = over_balls(inputs)
    cotangents = {"grad_out": over.pop("grad_out"), "grad_lse": over.pop("grad_lse")}
    tangents = {name: over.pop(name) for name in list(over) if name[0] == "d"}
    pair = [
        (cotangents[f"grad_{name}"], t)
        for name, t in zip(("out", "lse"), attention_jvp(**over, **tangents, scalar=ARB), strict=True)
    ]
    gradients = dict(
        zip(("dq", "dk", "dv", "dbias", "dsink"), attention_vjp(**over, **cotangents, scalar=ARB), strict=True)
    )
    assert {name for name, g in gradients.items() if g is not None} == set(tangents)
    difference = sum((a * b for g, t in pair for a, b in zip(g.flat, t.flat, strict=True)), flint.arb(0))
    difference -= sum(
        (a * b for name, t in tangents.items() for a, b in zip(gradients[name].flat, t.flat, strict=True)), flint.arb(0)
    )
    assert difference.contains(0)
    assert difference.rad() < 1e-28


def test_certified_derivatives_are_central_differences():
    """With h = 10⁻²⁵ and 100 digits: a difference errs by h² times a third derivative, below 10⁻⁴⁰
    here, and by 10⁻⁷⁵ of rounding.
    """
    inputs = QKV | EVERYTHING
    tangents = {"d" + name: drawn(*inputs[name].shape, seed=3 + i) for i, name in enumerate(DIFFERENTIABLE)}
    series = attention(**along(inputs | tangents), scalar=ARB_SERIES)
    with mpmath.workdps(100):
        h = mpmath.mpf(10) ** -25
        moved = [
            vectorised(
                **inputs | {name: moved_by(inputs[name], tangents["d" + name], sign * h) for name in DIFFERENTIABLE}
            )
            for sign in (1, -1)
        ]
        for result, plus, minus in zip(series, *moved, strict=True):
            finite = np.where(np.vectorize(mpmath.isfinite, otypes=[bool])(plus), plus - minus, 0)
            assert_encloses(derivative(result), finite / (2 * h))


def moved_by(x, dx, h):
    return np.array([mpmath.mpf(a) + h * mpmath.mpf(b) for a, b in zip(x.flat, dx.flat, strict=True)], object).reshape(
        x.shape
    )


@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 1), (2, 1, 2, 3), (2, 2, 2, 3)])
def test_the_cotangent_of_a_bias_has_its_shape_and_is_summed_over_what_it_was_broadcast_along(shape):
    q, k, v = drawn(2, 2, 2, 1), drawn(2, 2, 3, 1, seed=1), drawn(2, 2, 3, 1, seed=2)
    g, g_lse = drawn(2, 2, 2, 1, seed=3), drawn(2, 2, 2, seed=4)
    whole = attention_vjp(q, k, v, g, g_lse, bias=np.zeros((2, 2, 2, 3)))[3]
    part = attention_vjp(q, k, v, g, g_lse, bias=np.zeros(shape))[3]
    axes = tuple(i for i, n in enumerate((1,) * (4 - len(shape)) + shape) if n == 1)
    assert part.shape == shape
    assert (
        np.abs(part - whole.sum(axes).reshape(shape)).max() <= 24 * 2.0**-52 * np.abs(whole).sum()
    )  # two orders of 24 summands


# -- What is refused -------------------------------------------------------------------------------

ONE = {"q": np.ones((2, 1, 1)), "k": np.ones((1, 3, 1)), "v": np.ones((1, 3, 1))}
SENTENCES = {
    "q has 2 heads and k has 3, but the first number should be a multiple of the second.": {
        "k": np.ones((3, 3, 1)),
        "v": np.ones((3, 3, 1)),
    },
    "v has shape (1, 2, 1), but should have shape (1, 3, 1): nK is 3 in k: nothing broadcasts.": {
        "v": np.ones((1, 2, 1))
    },
    "bias[1]=nan, but should be a finite number, or −∞ to hide the key.": {"bias": np.array([0, np.nan, 0])},
    "bias[0]=inf, but should be a finite number, or −∞ to hide the key.": {"bias": np.array([np.inf, np.nan, 0])},
    "bias has shape (2,), but should broadcast to (2, 1, 3).": {"bias": np.zeros(2)},
    "mask has shape (1, 2, 1, 3), but should broadcast to (2, 1, 3).": {"mask": np.ones((1, 2, 1, 3), bool)},
    "mask holds int64, but should be a numpy.ndarray of bool.": {"mask": np.ones(3, int)},
    "softcap=0.0, but should be a finite number above 0.": {"softcap": 0.0},
    "softcap=-1.0, but should be a finite number above 0.": {"softcap": -1.0},
    "softcap=inf, but should be a finite number above 0.": {"softcap": math.inf},
    "softcap=nan, but should be a finite number above 0.": {"softcap": math.nan},
    "scale=nan, but should be a finite number.": {"scale": math.nan},
    "window[0]=-1, but should be a natural number.": {"window": (-1, None)},
    "window[1]=1.5 is a float, but should be a natural number.": {"window": (None, 1.5)},
    "window=3, but should be a pair (left, right), each a natural number or None.": {"window": 3},
    "sink has shape (1,), but should have shape (2,): H is 2 in q.": {"sink": np.zeros(1)},
    "sink[1]=nan, but should be a finite number, or −∞ for none.": {"sink": np.array([0, np.nan])},
    "sink[0]=inf, but should be a finite number, or −∞ for none.": {"sink": np.array([np.inf, 0])},
    "offset=0.5, but should be an integer, or integers over the batch axes ().": {"offset": 0.5},
    "offset has shape (2,), but should broadcast to ().": {"offset": np.array([0, 1])},
    "causal is of type int, but should be of type bool.": {"causal": 1},
}


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("function", [attention, attention_vjp, attention_jvp])
def test_bad_input_is_refused_by_a_sentence(function, sentence):
    given_inputs = ONE | SENTENCES[sentence]
    more = {
        attention: {},
        attention_vjp: {"grad_out": np.ones((2, 1, 1))},
        attention_jvp: {"d" + name: given_inputs[name] for name in ("q", "k", "v")},
    }
    with pytest.raises((ValueError, TypeError)) as refusal:
        function(**given_inputs, **more[function])
    assert str(refusal.value) == sentence


def test_a_tangent_of_what_is_not_there_is_refused():
    tangents = {"d" + name: x for name, x in ONE.items()}
    for name, shape in (("dbias", (3,)), ("dsink", (2,))):
        with pytest.raises(ValueError, match=rf"^{name} is given without {name[1:]}, but is the tangent of it\.$"):
            attention_jvp(**ONE, **tangents, **{name: np.zeros(shape)})


@pytest.mark.parametrize("lse", [math.nan, math.inf])
def test_a_log_sum_exp_that_is_none_is_not_merged(lse):
    with pytest.raises(ValueError, match=rf"^lse={lse}, but should be a finite number, or −∞ for no key\.$"):
        merge_attention(np.ones((1, 1)), np.array([lse]), np.ones((1, 1)), np.zeros(1))


@given(st.integers(-3, 5), st.booleans(), st.none() | st.integers(0, 3), st.none() | st.integers(0, 3))
def test_a_query_sees_the_positions_in_its_window(offset, causal, left, right):
    seen = visible_keys((1, 2, 3), causal=causal, offset=offset, window=(left, right))
    for i in range(2):
        reach = range(
            i + offset - (9 if left is None else left),
            i + offset + (0 if causal else 9 if right is None else right) + 1,
        )
        assert np.flatnonzero(seen[0, i]).tolist() == [j for j in range(3) if j in reach]
