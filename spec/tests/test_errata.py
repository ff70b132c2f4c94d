"""Each erratum's witness runs: its law fails for the literal definition and holds for the corrected one."""

import re
from pathlib import Path

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spec
from spec import attention, errata
from spec.attention import AttentionContext, MultiHeadAttention, causal_mask
from spec.context import ARB, FLOAT64, REAL64, SCALARS
from spec.errata import ERRATA
from spec.tensor_core import tensor

every_erratum = pytest.mark.parametrize("erratum", ERRATA.values(), ids=ERRATA)


@every_erratum
def test_the_literal_definition_breaks_the_law(erratum):
    assert not erratum.law(erratum.literal).holds


@every_erratum
def test_the_corrected_definition_keeps_the_law(erratum):
    finding = erratum.law(erratum.corrected)
    assert finding.actual == finding.expected, erratum.law_says


@every_erratum
def test_an_erratum_states_what_it_is_about(erratum):
    assert all((erratum.says, erratum.law_says, erratum.fixed, erratum.law(erratum.literal).witness))
    names = Path(__file__).with_name("declarations.txt").read_text()
    assert re.search(rf"\b{re.escape(erratum.declaration)}\b", names), f"{erratum.declaration} is no declaration"


def test_every_erratum_that_a_docstring_names_exists():
    modules = Path(spec.__file__).parent.glob("*.py")
    named = {
        id
        for module in modules
        for group in re.findall(r"`spec\.errata`((?:, `[a-z-]+`)+)", module.read_text())
        for id in re.findall(r"[a-z-]{2,}", group)
    }
    assert named
    assert named <= set(ERRATA)


def test_the_known_numbers_of_each_witness():
    literal = {id: erratum.law(erratum.literal).actual for id, erratum in ERRATA.items()}
    assert literal["head-split-inverse"] == [1, 3, 2, 4]
    assert literal["head-split-causality"] == [1]
    assert literal["multi-head-adjoint"] == [0.5]
    assert literal["masked-sum-overflow"] == [0, 0]
    assert literal["rope-odd-lane"] == [
        pytest.approx((np.cos(1) + np.sin(1)) ** 2, rel=4e-16)
    ]  # three roundings of half an ulp


def matrices(rows, columns):
    """Small integers over 8: exact in every scalar."""
    entries = st.lists(st.integers(-16, 16), min_size=rows * columns, max_size=rows * columns)
    return entries.map(lambda values: np.array(values, dtype=float).reshape(rows, columns) / 8)


@st.composite
def multi_head_cases(draw):
    n, d_model, num_heads, head_dim = (draw(st.integers(low, 3)) for low in (1, 0, 0, 0))
    width = num_heads * head_dim
    x, *W = (draw(matrices(*shape)) for shape in [(n, d_model), *[(d_model, width)] * 3, (width, d_model)])
    mask = draw(
        st.none()
        | st.lists(st.booleans(), min_size=n * n, max_size=n * n).map(lambda bits: np.array(bits).reshape(n, n))
    )
    return x, W, num_heads, head_dim, mask


def single_heads(mha):
    """The heads of mha, each a multi-head attention of one head: for these the literal split is
    right, and so is the literal text.
    """
    d = mha.head_dim
    blocks = [slice(h * d, (h + 1) * d) for h in range(mha.num_heads)]
    return [
        MultiHeadAttention(mha.Wq[:, b], mha.Wk[:, b], mha.Wv[:, b], mha.Wo[b], 1, d, scalar=mha.scalar) for b in blocks
    ]


def overlaps(actual, expected):
    return actual.shape == expected.shape and all(
        a.overlaps(b) for a, b in zip(actual.flat, expected.flat, strict=True)
    )


@pytest.mark.thorough
@given(multi_head_cases(), st.data())
def test_corrected_multi_head_attention_is_the_sum_of_literal_single_heads_over_the_reals(case, data):
    x, W, num_heads, head_dim, mask = case
    dx, g, *dW = (tensor(data.draw(matrices(*t.shape)), ARB) for t in (x, x, *W))
    mha, x = MultiHeadAttention(*(tensor(w, ARB) for w in W), num_heads, head_dim, scalar=ARB), tensor(x, ARB)
    dmha = MultiHeadAttention(*dW, num_heads, head_dim, scalar=ARB)
    zero = tensor(np.zeros(x.shape), ARB)
    forward = sum((head.forward(x, mask) for head in single_heads(mha)), zero)
    assert overlaps(errata.multi_head_attention_forward(mha, x, mask), forward)
    pairs = zip(single_heads(mha), single_heads(dmha), strict=True)
    tangent = sum((attention.multi_head_attention_jvp(head, dhead, x, dx, mask) for head, dhead in pairs), zero)
    assert overlaps(errata.multi_head_attention_jvp(mha, dmha, x, dx, mask), tangent)
    parts = [attention.multi_head_attention_backward(head, x, mask, g) for head in single_heads(mha)]
    grads = errata.multi_head_attention_backward(mha, x, mask, g)
    assert overlaps(grads[0], sum((part[0] for part in parts), zero))
    for index, axis in ((1, 1), (2, 1), (3, 1), (4, 0)):
        assert overlaps(
            grads[index],
            np.concatenate([part[index] for part in parts], axis) if parts else mha.Wo.reshape(grads[index].shape),
        )


MULTI_HEAD = {
    "forward": lambda mha, x, mask: [errata.multi_head_attention_forward(mha, x, mask)],
    "backward": lambda mha, x, mask: errata.multi_head_attention_backward(mha, x, mask, np.ones(x.shape)),
    "jvp": lambda mha, x, mask: [errata.multi_head_attention_jvp(mha, mha, x, np.ones(x.shape), mask)],
}
ONE, TWO = np.ones((1, 2)), np.ones((2, 1))


@pytest.mark.parametrize("function", MULTI_HEAD)
@pytest.mark.parametrize("scalar", [FLOAT64, REAL64], ids=repr)
def test_corrected_multi_head_attention_of_dead_rows_is_zero(function, scalar):
    mha = MultiHeadAttention(ONE, ONE, ONE, TWO, 2, 1, scalar=scalar)
    results = MULTI_HEAD[function](mha, np.array([[1.0], [2.0]]), np.zeros((2, 2), bool))
    assert all((part == 0).all() for part in results)


@pytest.mark.parametrize("function", MULTI_HEAD)
@pytest.mark.parametrize("score", [710.0, 709.5, -746.0])
def test_corrected_multi_head_attention_under_an_all_true_mask_is_that_without_at_any_score(function, score):
    mha = MultiHeadAttention(score * ONE, ONE, ONE, TWO, 2, 1, scalar=FLOAT64)
    x = np.array([[1.0], [1.0]])
    masked, unmasked = (MULTI_HEAD[function](mha, x, mask) for mask in (np.ones((2, 2), bool), None))
    for a, b in zip(masked, unmasked, strict=True):
        assert np.isfinite(a).all()
        assert np.array_equal(a, b)


@pytest.mark.parametrize("scalar", [FLOAT64, REAL64], ids=repr)
def test_the_corrected_derivatives_of_attention_are_zero_at_dead_rows_and_finite_at_large_scores(scalar):
    Q, K, V, g = np.array([[710.0], [0.0]]), np.ones((2, 1)), np.array([[1.0], [3.0]]), np.ones((2, 1))
    ctx = AttentionContext(Q, K, V, np.array([[True, True], [False, False]]), scalar=scalar)
    dQ, dK, dV = errata.scaled_dot_product_attention_backward(ctx, g)
    assert (dQ.tolist(), dK.tolist(), dV.tolist()) == ([[0], [0]], [[-355], [355]], [[0.5], [0.5]])
    assert errata.scaled_dot_product_attention_jvp(ctx, g, K * 0, V).tolist() == [[2], [0]]


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.booleans(), st.data())
def test_the_corrected_derivatives_of_attention_are_the_literal_ones_over_the_reals(nQ, nK, d, masked, data):
    Q, K, V, dQ, dK, dV = (tensor(data.draw(matrices(n, d)), ARB) for n in (nQ, nK, nK) * 2)
    bits = data.draw(st.lists(st.booleans(), min_size=nQ * nK, max_size=nQ * nK))
    ctx = AttentionContext(Q, K, V, np.array(bits).reshape(nQ, nK) if masked else None, scalar=ARB)
    assert overlaps(
        errata.scaled_dot_product_attention_jvp(ctx, dQ, dK, dV),
        attention.scaled_dot_product_attention_jvp(ctx, dQ, dK, dV),
    )
    for a, b in zip(
        errata.scaled_dot_product_attention_backward(ctx, dQ),
        attention.scaled_dot_product_attention_backward(ctx, dQ),
        strict=True,
    ):
        assert overlaps(a, b)


@given(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3), st.data())
def test_the_corrected_split_and_combine_undo_each_other(n, num_heads, head_dim, data):
    x = data.draw(matrices(n, num_heads * head_dim))
    heads = errata.split_heads(x, num_heads, head_dim)
    assert heads.shape == (num_heads, n, head_dim)
    assert np.array_equal(attention.combine_heads_spec(heads), x)


@given(st.integers(2, 4), st.data())
def test_corrected_multi_head_attention_is_causal_under_a_causal_mask(n, data):
    mha, x = (
        MultiHeadAttention(*(data.draw(matrices(*s)) for s in [(2, 4)] * 3 + [(4, 2)]), 2, 2),
        data.draw(matrices(n, 2)),
    )
    future = np.vstack([x[:-1], data.draw(matrices(1, 2))])
    before, after = (errata.multi_head_attention_forward(mha, y, causal_mask(n)) for y in (x, future))
    assert np.array_equal(before[:-1], after[:-1])


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.data())
def test_corrected_attention_is_the_literal_one_over_the_reals(nQ, nK, d, data):
    Q, K, V = (tensor(data.draw(matrices(n, d)), ARB) for n in (nQ, nK, nK))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=nQ * nK, max_size=nQ * nK))).reshape(nQ, nK)
    ctx = AttentionContext(Q, K, V, mask, scalar=ARB)
    pairs = zip(
        errata.scaled_dot_product_attention(ctx).flat, attention.scaled_dot_product_attention(ctx).flat, strict=True
    )
    assert all(a.overlaps(b) and a.is_finite() for a, b in pairs)


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
@pytest.mark.parametrize("score", [-1e4, -746.0, 0.0, 709.5, 1e4])
def test_corrected_attention_averages_equal_keys_at_any_score(scalar, score):
    q, k, v = tensor([[score]], scalar), tensor([[1], [1], [1]], scalar), tensor([[1], [3], [99]], scalar)
    out = errata.scaled_dot_product_attention(AttentionContext(q, k, v, np.array([[True, True, False]])))[0, 0]
    enclosed = out[0] if isinstance(out, flint.arb_series) else flint.arb(float(out)) if scalar != ARB else out
    assert enclosed.contains(2)


def test_the_table_prints_every_erratum(capsys):
    errata.main()
    printed = capsys.readouterr().out
    assert all(id in printed for id in ERRATA)
    assert FLOAT64.name in printed
