"""Forward definitions over `ARB_SERIES` give certified derivatives; the written-out JVPs and VJPs
are held against them.

Balls are at 113 bits. Every comparison also asserts that its radii are below 2⁻⁶⁰ of the sum of the
absolute values of what was added, computed by the definition itself (`running`): overlapping balls
say nothing unless they are small.
"""

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import config

from spec import ARB, ARB_SERIES, errata
from spec import attention as literal
from spec import positional_encoding as pos
from spec.activation import softmax_backward_spec, softmax_spec
from spec.attention import (
    AttentionContext,
    MultiHeadAttention,
    hard_masked_softmax_spec,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
    scaled_dot_product_attention_jvp,
    self_attention,
    softmax_backward_from_weights_spec,
)
from spec.tensor_core import derivative, taylor, tensor, value
from spec.tests.cases import (
    MODERATE,
    PARAMETERS,
    Domain,
    arrays,
    attention_jvp_inputs,
    masked_scores,
    multi_head_inputs,
    parameters,
    sizes,
)
from spec.tests.running import Rounding, running

LARGE = Domain(magnitudes=(1, 8, 2**10))
SIZE = running(Rounding(unit_roundoff=0.0, elementary=0.0, underflow=0.0))
RELATIVE = flint.arb(2) ** -60


@pytest.fixture(autouse=True, scope="module")
def _at_113_bits_with_signatures_unchecked():
    """Checking signatures takes four fifths of the time; other tests do it on the same definitions."""
    config.update("jaxtyping_disable", True)
    with flint.ctx.workprec(113):
        yield
    config.update("jaxtyping_disable", False)


def balls(*tensors):
    return tuple(tensor(t, ARB) for t in tensors)


def sized(*tensors):
    return tuple(tensor(t, SIZE) for t in tensors)


def lines(*pairs):
    return tuple(taylor(*pair) for pair in pairs)


def assert_small(ball, size):
    assert ball.is_finite()
    assert ball.rad() <= RELATIVE * size, f"{ball} is too wide for size {size}."


def assert_certified(written_out, certified, sizes):
    """Entry by entry: both balls contain the one derivative, so they overlap; both are small, so
    that says where it is.
    """
    assert written_out.shape == certified.shape == sizes.shape
    for index in np.ndindex(*certified.shape):
        a, b, size = written_out[index], certified[index], sizes[index].size
        assert a.overlaps(b), f"jvp[{index}]={a}, but should overlap {b}."
        assert_small(a, size)
        assert_small(b, size)


def assert_adjoint(*pairings):
    """⟨g, J·t⟩ = ⟨Jᵀ·g, t⟩: the first pairing equals the sum of the others. Each is ((u, v), (size
    of u, size of v)).
    """
    sides = []
    for (u, v), (u_size, v_size) in pairings:
        terms = [a * b for a, b in zip(u.flat, v.flat, strict=True)]
        size = sum((a.size * b.size for a, b in zip(u_size.flat, v_size.flat, strict=True)), flint.arb(0))
        sides.append((sum(terms, flint.arb(0)), size))
    (left, left_size), *others = sides
    difference = left - sum((other for other, _ in others), flint.arb(0))
    assert difference.contains(0), f"⟨g, J·t⟩ − ⟨Jᵀ·g, t⟩ = {difference}, but should contain 0."
    assert_small(difference, left_size + sum((size for _, size in others), flint.arb(0)))


# -- Softmax ---------------------------------------------------------------------------------------


@st.composite
def rows_and_directions(draw):
    shape = draw(st.lists(sizes(0, 3), max_size=2))
    return draw(arrays(*shape, magnitudes=(1, 8, 2**10))), draw(arrays(*shape))


@given(rows_and_directions())
def test_softmax_backward_is_the_certified_derivative_of_softmax(inputs):
    """The Jacobian of softmax is symmetric: its VJP is its JVP."""
    x, dx = balls(*inputs)
    assert_certified(
        softmax_backward_spec(x, dx, ARB),
        derivative(softmax_spec(taylor(x, dx), ARB_SERIES)),
        softmax_backward_spec(*sized(x, dx), SIZE),
    )


@given(rows_and_directions())
def test_softmax_backward_from_weights_is_the_certified_derivative_of_softmax(inputs):
    x, dx = balls(*inputs)
    weights, weight_sizes = softmax_spec(x, ARB), softmax_spec(tensor(x, SIZE), SIZE)
    written_out = softmax_backward_from_weights_spec(weights, dx, ARB)
    sizes_of_it = softmax_backward_from_weights_spec(weight_sizes, tensor(dx, SIZE), SIZE)
    assert_certified(written_out, derivative(softmax_spec(taylor(x, dx), ARB_SERIES)), sizes_of_it)


@given(st.data())
def test_softmax_backward_from_weights_is_the_certified_derivative_of_masked_softmax(data):
    inputs = data.draw(masked_scores(MODERATE, 2))
    mask, (x, dx) = inputs["mask"], balls(inputs["scores"], data.draw(arrays(*inputs["scores"].shape)))
    written_out = softmax_backward_from_weights_spec(hard_masked_softmax_spec(x, mask, ARB), dx, ARB)
    sizes_of_it = softmax_backward_from_weights_spec(
        hard_masked_softmax_spec(tensor(x, SIZE), mask, SIZE), tensor(dx, SIZE), SIZE
    )
    assert_certified(written_out, derivative(hard_masked_softmax_spec(taylor(x, dx), mask, ARB_SERIES)), sizes_of_it)


# -- Attention -------------------------------------------------------------------------------------

NAMES = ("Q", "K", "V")


def attention_jvp(over, inputs):
    """The written-out JVP over balls or sizes."""
    Q, K, V, dQ, dK, dV = over(*(inputs[name] for name in (*NAMES, "dQ", "dK", "dV")))
    scalar = ARB if over is balls else SIZE
    return scaled_dot_product_attention_jvp(AttentionContext(Q, K, V, inputs["mask"], scalar=scalar), dQ, dK, dV)


def certified_attention_derivative(inputs):
    Q, K, V = lines(*((inputs[name], inputs["d" + name]) for name in NAMES))
    return scaled_dot_product_attention(AttentionContext(Q, K, V, inputs["mask"], scalar=ARB_SERIES))


def check_attention_jvp(inputs):
    assert_certified(
        attention_jvp(balls, inputs), derivative(certified_attention_derivative(inputs)), attention_jvp(sized, inputs)
    )


@given(attention_jvp_inputs(LARGE, masked=False))
def test_the_attention_jvp_is_the_certified_derivative(inputs):
    check_attention_jvp(inputs)


@given(attention_jvp_inputs(LARGE, masked=True))
def test_the_attention_jvp_is_the_certified_derivative_under_a_mask_dead_rows_included(inputs):
    check_attention_jvp(inputs)


@given(attention_jvp_inputs(LARGE))
def test_the_value_over_series_is_the_value_over_balls(inputs):
    forward = scaled_dot_product_attention(
        AttentionContext(*balls(*(inputs[n] for n in NAMES)), inputs["mask"], scalar=ARB)
    )
    for a, b in zip(value(certified_attention_derivative(inputs)).flat, forward.flat, strict=True):
        assert a.overlaps(b)
        assert a.is_finite()


MIXED = np.array([[True, False, True], [False, False, False]])
FIXED = {
    "rectangular": (2, 3, 2, None),
    "rectangular, masked, with a dead row": (2, 3, 2, MIXED),
    "all rows dead": (2, 3, 2, np.zeros((2, 3), bool)),
    "one key": (3, 1, 2, None),
    "one key, blocked": (3, 1, 2, np.array([[True], [False], [True]])),
    "one query": (1, 3, 3, None),
    "d = 1": (2, 2, 1, np.tril(np.ones((2, 2), bool))),
    "d = 0": (2, 2, 0, None),
    "d = 0, masked": (2, 2, 0, np.eye(2, dtype=bool)),
}


@pytest.mark.parametrize("case", FIXED)
def test_the_attention_jvp_is_the_certified_derivative_on_fixed_shapes(case):
    nQ, nK, d, mask = FIXED[case]
    entry = np.random.default_rng(0).standard_normal
    inputs = {"mask": mask} | {
        name: entry((nQ if name.endswith("Q") else nK, d)) for name in ("Q", "K", "V", "dQ", "dK", "dV")
    }
    check_attention_jvp(inputs)
    check_attention_adjoint(inputs | {"dOut": entry((nQ, d))})


@pytest.mark.parametrize("off_by", [2.0**-40, -(2.0**-40)])
def test_a_jvp_that_is_off_by_a_millionth_of_a_millionth_is_not_certified(off_by):
    inputs = {
        "mask": None,
        **{name: np.ones((2, 1)) for name in ("Q", "V", "dQ", "dV")},
        "K": np.array([[0.0], [1.0]]),
        "dK": np.ones((2, 1)),
    }
    wrong = attention_jvp(balls, inputs)
    wrong[0, 0] += off_by
    with pytest.raises(AssertionError, match="but should overlap"):
        assert_certified(wrong, derivative(certified_attention_derivative(inputs)), attention_jvp(sized, inputs))


def attention_backward(over, inputs):
    Q, K, V, dOut = over(*(inputs[name] for name in (*NAMES, "dOut")))
    scalar = ARB if over is balls else SIZE
    return scaled_dot_product_attention_backward(AttentionContext(Q, K, V, inputs["mask"], scalar=scalar), dOut)


def check_attention_adjoint(inputs):
    g, g_size = balls(inputs["dOut"])[0], sized(inputs["dOut"])[0]
    jvp = ((g, attention_jvp(balls, inputs)), (g_size, attention_jvp(sized, inputs)))
    tangents = [inputs["d" + name] for name in NAMES]
    backward, sizes_of_it = attention_backward(balls, inputs), attention_backward(sized, inputs)
    assert_adjoint(
        jvp,
        *(
            ((grad, *balls(t)), (size, *sized(t)))
            for grad, size, t in zip(backward, sizes_of_it, tangents, strict=True)
        ),
    )


@given(st.data(), st.booleans())
def test_the_attention_backward_is_the_adjoint_of_the_jvp(data, masked):
    inputs = data.draw(attention_jvp_inputs(LARGE, masked))
    check_attention_adjoint(inputs | {"dOut": data.draw(arrays(*inputs["Q"].shape))})


def test_a_backward_of_another_sign_is_not_the_adjoint():
    u, v = balls(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    pair = (u, v), sized(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    assert_adjoint(pair, pair)
    with pytest.raises(AssertionError, match="should contain 0"):
        assert_adjoint(pair, ((-u, v), pair[1]))


def test_a_pairing_too_wide_to_say_anything_is_refused():
    wide = np.array([flint.arb(0, 1)], object)
    with pytest.raises(AssertionError, match="is too wide"):
        assert_adjoint(*(((wide, wide), sized(np.ones(1), np.ones(1))),) * 2)


# -- Several heads ---------------------------------------------------------------------------------


def multi_head_over(over, inputs, tangents=False):
    names = tuple("d" + name for name in PARAMETERS) if tangents else PARAMETERS
    scalar = ARB if over is balls else SIZE
    named = dict(zip(names, over(*(inputs[name] for name in names)), strict=True))
    return parameters(scalar, num_heads=inputs["num_heads"], head_dim=inputs["head_dim"], **named)


def multi_head_jvp(over, inputs, jvp):
    mha, dmha = multi_head_over(over, inputs), multi_head_over(over, inputs, tangents=True)
    return jvp(mha, dmha, *over(inputs["x"], inputs["dx"]), inputs["mask"])


def multi_head_derivative(inputs, forward):
    W = lines(*((inputs[name], inputs["d" + name]) for name in PARAMETERS))
    mha = MultiHeadAttention(*W, inputs["num_heads"], inputs["head_dim"], scalar=ARB_SERIES)
    return derivative(forward(mha, taylor(inputs["x"], inputs["dx"]), inputs["mask"]))


def check_multi_head_jvp(inputs, forward, jvp):
    assert_certified(
        multi_head_jvp(balls, inputs, jvp), multi_head_derivative(inputs, forward), multi_head_jvp(sized, inputs, jvp)
    )


def check_multi_head_adjoint(inputs, jvp, backward):
    def pairings(over):
        (g,) = over(inputs["g"])
        grads = backward(multi_head_over(over, inputs), *over(inputs["x"]), inputs["mask"], g)
        tangents = over(*(inputs[name] for name in ("dx", "dWq", "dWk", "dWv", "dWo")))
        return [(g, multi_head_jvp(over, inputs, jvp)), *zip(grads, tangents, strict=True)]

    assert_adjoint(*zip(pairings(balls), pairings(sized), strict=True))


def literal_forward(mha, x, mask):
    return mha.forward(x, mask)


@given(multi_head_inputs(MODERATE, ("dmha",), most_heads=1))
def test_the_literal_multi_head_jvp_of_one_head_is_the_certified_derivative(inputs):
    check_multi_head_jvp(inputs, literal_forward, literal.multi_head_attention_jvp)


@given(multi_head_inputs(MODERATE, ("dmha",), most_heads=2))
def test_the_literal_multi_head_jvp_is_the_certified_derivative_of_the_literal_forward(inputs):
    """The forward mixes tokens, and the JVP goes through the same graph: it is its derivative all the same."""
    check_multi_head_jvp(inputs, literal_forward, literal.multi_head_attention_jvp)


@given(multi_head_inputs(MODERATE, ("dmha", "g"), most_heads=1))
def test_the_literal_multi_head_backward_of_one_head_is_the_adjoint_of_the_jvp(inputs):
    check_multi_head_adjoint(inputs, literal.multi_head_attention_jvp, literal.multi_head_attention_backward)


@given(multi_head_inputs(MODERATE, ("dmha",), most_heads=3))
def test_the_corrected_multi_head_jvp_is_the_certified_derivative(inputs):
    check_multi_head_jvp(inputs, errata.multi_head_attention_forward, errata.multi_head_attention_jvp)


@given(multi_head_inputs(MODERATE, ("dmha", "g"), most_heads=3))
def test_the_corrected_multi_head_backward_is_the_adjoint_of_the_jvp(inputs):
    check_multi_head_adjoint(inputs, errata.multi_head_attention_jvp, errata.multi_head_attention_backward)


# Two tokens, two heads of width 1; Wq = 0, so every weight is ½ and stays ½, and Wv = Wo = the
# identity. The literal split puts the values 1 … 4 of x, as they lie, into heads (1, 2) and (3, 4):
# the output is (3/2, 7/2) in both rows.
I, O = np.eye(2), np.zeros((2, 2))  # noqa: E741
WITNESS = {
    "x": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "dx": np.array([[0.0, 1.0], [0.0, 0.0]]),
    "g": np.array([[1.0, 0.0], [0.0, 0.0]]),
    "mask": None,
    "num_heads": 2,
    "head_dim": 1,
    **dict(zip(PARAMETERS, (O, O, I, I), strict=True)),
    **{"d" + name: O for name in PARAMETERS},
}


def test_the_literal_multi_head_backward_of_two_heads_is_not_the_adjoint_of_the_literal_jvp():
    """⟨g, J·dx⟩ = ½: entry x[0, 1] is in head 0 of the forward. ⟨Jᵀ·g, dx⟩ = 0: the backward puts
    its cotangent to x[1, 0].
    """
    with pytest.raises(AssertionError, match=r"⟨g, J·t⟩ − ⟨Jᵀ·g, t⟩ = 0\.5000"):
        check_multi_head_adjoint(WITNESS, literal.multi_head_attention_jvp, literal.multi_head_attention_backward)
    jvp = multi_head_jvp(balls, WITNESS, literal.multi_head_attention_jvp)
    (dx, *_) = literal.multi_head_attention_backward(
        multi_head_over(balls, WITNESS), *balls(WITNESS["x"]), None, *balls(WITNESS["g"])
    )
    assert jvp.tolist() == [[0.5, 0.0], [0.5, 0.0]]
    assert dx.tolist() == [[0.5, 0.0], [0.5, 0.0]]


def test_the_corrected_multi_head_backward_is_the_adjoint_on_the_same_witness():
    check_multi_head_adjoint(WITNESS, errata.multi_head_attention_jvp, errata.multi_head_attention_backward)
    check_multi_head_jvp(WITNESS, literal_forward, literal.multi_head_attention_jvp)


def test_the_literal_forward_is_not_the_corrected_one_on_the_witness():
    with pytest.raises(AssertionError, match="but should overlap"):
        check_multi_head_jvp(WITNESS, errata.multi_head_attention_forward, literal.multi_head_attention_jvp)


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.data())
def test_the_corrected_split_is_undone_by_combining_and_is_its_adjoint(n, num_heads, head_dim, data):
    x, y = data.draw(arrays(n, num_heads * head_dim)), data.draw(arrays(num_heads, n, head_dim))
    split = errata.split_heads(x, num_heads, head_dim)
    assert literal.combine_heads_spec(split).tolist() == x.tolist()
    assert sum((split * y).flat) == sum(
        (x * literal.combine_heads_spec(y)).flat
    )  # multiples of 2⁻¹⁴, so exact in any order


@given(st.integers(1, 3), st.integers(0, 2), st.integers(0, 3), st.data())
def test_self_attention_is_multi_head_attention_of_one_head(n, d_model, proj, data):
    """A second way to the certified derivative: the same series through `self_attention`."""
    x, dx = data.draw(arrays(n, d_model)), data.draw(arrays(n, d_model))
    W = [data.draw(arrays(d_model, proj)) for _ in range(3)] + [data.draw(arrays(proj, d_model))]
    series = [taylor(x, dx), *(taylor(w, np.zeros(w.shape)) for w in W)]
    zero = MultiHeadAttention(*balls(*(np.zeros(w.shape) for w in W)), 1, proj, scalar=ARB)
    jvp = literal.multi_head_attention_jvp(MultiHeadAttention(*balls(*W), 1, proj, scalar=ARB), zero, *balls(x, dx))
    for a, b in zip(jvp.flat, derivative(self_attention(*series, scalar=ARB_SERIES)).flat, strict=True):
        assert a.overlaps(b)
        assert a.is_finite()
        assert b.is_finite()


# -- Positional encodings --------------------------------------------------------------------------


@given(sizes(0, 3), sizes(0, 5), st.integers(0, 2**20), st.data())
def test_rope_is_linear_so_that_its_certified_derivative_is_itself_on_the_direction(n, d, start_pos, data):
    x, dx = data.draw(arrays(n, d)), data.draw(arrays(n, d))
    assert_certified(
        pos.rope_apply_spec(tensor(dx, ARB), start_pos, ARB),
        derivative(pos.rope_apply_spec(taylor(x, dx), start_pos, ARB_SERIES)),
        pos.rope_apply_spec(tensor(dx, SIZE), start_pos, SIZE),
    )


@given(sizes(0, 3), sizes(0, 5), st.integers(0, 2**20), st.data())
def test_the_adjoint_of_rope_is_rope_with_every_second_lane_negated_before_and_after(n, d, start_pos, data):
    """J·R·J with J = diag(1, −1, 1, …): negating a lane of each pair turns the other way. An
    unpaired lane is scaled, J or not.
    """
    x, g = data.draw(arrays(n, d)), data.draw(arrays(n, d))
    J = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)

    def pairings(over, scalar):
        (bx, bg, reflected), sign = over(x, g, g * J), tensor(np.tile(J, (n, 1)), scalar)
        vjp = pos.mul_spec(pos.rope_apply_spec(reflected, start_pos, scalar), sign, scalar)
        return (bg, pos.rope_apply_spec(bx, start_pos, scalar)), (vjp, bx)

    assert_adjoint(*zip(pairings(balls, ARB), pairings(sized, SIZE), strict=True))


@given(sizes(0, 3), sizes(0, 4), st.data())
def test_the_backward_of_a_learned_encoding_is_the_adjoint_of_its_certified_derivative(n, d, data):
    x, table, dx, d_table, g = (data.draw(arrays(n, d)) for _ in range(5))
    encoding = pos.PositionalEncodingSpec(taylor(table, d_table), scalar=ARB_SERIES)
    jvp = derivative(pos.add_positional_encoding_spec(encoding, taylor(x, dx)))
    encoding = pos.PositionalEncodingSpec(tensor(table, ARB), scalar=ARB)
    grad_pos, grad_x = pos.add_positional_encoding_backward_spec(encoding, tensor(g, ARB))
    g_ball, dx_ball, d_table_ball = balls(g, dx, d_table)
    g_size, dx_size, d_table_size = sized(g, dx, d_table)
    jvp_size = pos.add_spec(dx_size, d_table_size, SIZE)
    assert_adjoint(
        ((g_ball, jvp), (g_size, jvp_size)),
        ((grad_pos, d_table_ball), (g_size, d_table_size)),
        ((grad_x, dx_ball), (g_size, dx_size)),
    )


@given(sizes(0, 3), sizes(0, 4), st.integers(0, 64), st.data())
def test_adding_a_sinusoidal_encoding_has_the_identity_as_its_derivative(n, d, start_pos, data):
    x, dx = data.draw(arrays(n, d)), data.draw(arrays(n, d))
    result = derivative(pos.add_sinusoidal_positional_encoding_spec(taylor(x, dx), start_pos, ARB_SERIES))
    assert all(a == b for a, b in zip(result.flat, tensor(dx, ARB).flat, strict=True))
