import math
from itertools import pairwise

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import spec
from spec import ARB, ARB_SERIES, FLOAT32, FLOAT64, MPF, REAL32, REAL64, SCALARS
from spec.activation import softmax_spec, softmax_vec_spec
from spec.attention import AttentionContext, hard_masked_softmax_vec_spec, scaled_dot_product_attention
from spec.context import lean_max, series, total_division
from spec.tensor_linalg import mat_mul_spec
from spec.tensor_reduction_shape import sum_spec
from spec.tests.cases import (
    EVERYTHING,
    MODERATE,
    NO_DIVISION_BY_ZERO,
    OPERATIONS,
    arrays,
    attention_inputs,
    context,
    lifted,
    masks,
)
from spec.tests.extended_cases import EXTENDED
from spec.tests.running import BINARY32, BINARY64, arbitrary_precision, running

# Two tests leave signatures unchecked, which would take four fifths of their time; the others check
# them on the same operations.
CASES = 40  # of each operation in each comparison below: 30 operations make 1,200 cases

by_name = {"argnames": "operation", "argvalues": (*OPERATIONS, *EXTENDED), "ids": lambda operation: operation.lean}


# -- Float64: the literal order of operations, bit for bit -----------------------------------------
#
# The folds below are written out in Python's own floats, whose + − × / are those of IEEE binary64;
# exp is NumPy's, as in the spec.


def bits(values):
    return np.asarray(values, np.float64).tobytes()


def fold_sum(terms):
    total = 0.0
    for term in terms:
        total = total + term
    return total


def fold_matmul(A, B, shape):
    rows, columns = shape
    product = [[0.0] * columns for _ in range(rows)]
    for i in range(rows):
        for j in range(columns):
            for k in range(len(B)):
                product[i][j] = product[i][j] + A[i][k] * B[k][j]
    return product


def fold_softmax(row):
    largest = row[0]
    for entry in row[1:]:
        largest = max(entry, largest)
    exponentials = [float(np.exp(entry - largest)) for entry in row]
    denominator = fold_sum(exponentials)
    return [e / denominator for e in exponentials]


def fold_masked_softmax(row, mask):
    exponentials = [float(np.exp(entry)) if allowed else 0.0 for entry, allowed in zip(row, mask, strict=True)]
    denominator = fold_sum(exponentials)
    return [0.0 if denominator == 0.0 else e / denominator for e in exponentials]


def fold_attention(Q, K, V, mask):
    (nQ, d), nK = Q.shape, len(K)
    q, k, v = Q.tolist(), K.tolist(), V.tolist()
    keys = [[k[j][c] for j in range(nK)] for c in range(d)]
    factor = 0.0 if d == 0 else 1.0 / math.sqrt(d)
    scores = [[s * factor for s in row] for row in fold_matmul(q, keys, (nQ, nK))]
    if mask is None:
        weights = [fold_softmax(row) for row in scores]
    else:
        weights = [fold_masked_softmax(row, allowed) for row, allowed in zip(scores, mask.tolist(), strict=True)]
    return fold_matmul(weights, v, (nQ, d))


doubles = st.floats(-1e3, 1e3) | st.sampled_from([-0.0, 5e-324, 0.1, 1e16, -1e16])


def matrices_of_doubles(rows, columns):
    size = rows * columns
    return st.lists(doubles, min_size=size, max_size=size).map(lambda values: np.array(values).reshape(rows, columns))


@given(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 3)).flatmap(
        lambda s: st.tuples(matrices_of_doubles(s[0], s[1]), matrices_of_doubles(s[1], s[2]))
    )
)
def test_a_matrix_product_over_float64_is_the_left_fold_bit_for_bit(matrices):
    A, B = matrices
    assert bits(mat_mul_spec(A, B)) == bits(fold_matmul(A.tolist(), B.tolist(), (len(A), B.shape[1])))


@given(st.lists(doubles, max_size=8))
def test_a_sum_over_float64_is_the_left_fold_bit_for_bit(values):
    assert bits(sum_spec(np.array(values, np.float64))) == bits(fold_sum(values))


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8))
def test_softmax_over_float64_is_the_left_fold_bit_for_bit(values):
    assert bits(softmax_vec_spec(np.array(values))) == bits(fold_softmax(values))


@given(st.lists(st.tuples(st.floats(-700, 700), st.booleans()), min_size=1, max_size=8))
def test_masked_softmax_over_float64_is_the_left_fold_bit_for_bit(entries):
    scores, mask = zip(*entries, strict=True)
    assert bits(hard_masked_softmax_vec_spec(np.array(scores), np.array(mask))) == bits(
        fold_masked_softmax(scores, mask)
    )


@st.composite
def attention_over_doubles(draw, masked):
    nQ, nK, d = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(0, 4))
    small = st.floats(-8, 8)

    def matrix(n):
        return np.array(draw(st.lists(small, min_size=n * d, max_size=n * d)), np.float64).reshape(n, d)

    return matrix(nQ), matrix(nK), matrix(nK), draw(masks(nQ, nK)) if masked else None


@given(attention_over_doubles(masked=False))
def test_attention_over_float64_is_the_left_fold_bit_for_bit(inputs):
    assert bits(scaled_dot_product_attention(AttentionContext(*inputs))) == bits(fold_attention(*inputs))


@given(attention_over_doubles(masked=True))
def test_masked_attention_over_float64_is_the_left_fold_bit_for_bit(inputs):
    assert bits(scaled_dot_product_attention(AttentionContext(*inputs))) == bits(fold_attention(*inputs))


def test_the_order_of_a_fold_shows_in_its_bits():
    assert fold_sum([1e16, 1.0, -1e16]) == 0.0 != fold_sum([1e16, -1e16, 1.0]) == 1.0


# -- Balls at 113 bits and mpmath at 50 digits -----------------------------------------------------


def each(operation, domain, examples=CASES):
    """Run the decorated check on that many drawn inputs of the operation, and count that they were run."""

    def run(check):
        seen = []

        @settings(max_examples=examples)  # a share for each operation, so that together they stay quick
        @given(operation.inputs(domain))
        def count_and_check(inputs):
            seen.append(inputs)
            check(inputs)

        count_and_check()
        assert len(seen) >= examples, f"{operation.lean} was checked on {len(seen)} cases, but should be on {examples}."

    return run


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(**by_name)
def test_balls_at_113_bits_and_mpmath_at_50_digits_agree(operation):
    """With M mpmath's result, x the exact one, A the ball over ARB and R the ball of the running
    error analysis: x ∈ A; x, M ∈ R.

    So A and M ± 2 rad R have a point in common. Both radii are below 2⁻⁶⁰ of the sum of absolute
    terms, so agreeing says something.
    """

    @each(operation, EVERYTHING)
    def check(inputs):
        with flint.ctx.workprec(113):
            enclosed = operation(ARB, inputs)
        with mpmath.workdps(50):
            computed = operation(MPF, inputs)
            with flint.ctx.workprec(256):
                bounds = operation(running(arbitrary_precision(mpmath.mp.prec)), inputs)
        assert len(enclosed) == len(computed) == len(bounds)
        with flint.ctx.workprec(256):
            for index, (ball, number, bound) in enumerate(zip(enclosed, computed, bounds, strict=True)):
                if number == -math.inf:  # the logarithm of an empty sum, over every scalar
                    assert ARB.is_neg_inf(ball)
                    assert ARB.is_neg_inf(bound.ball)
                    continue
                witness = flint.arb(number)
                assert bound.ball.contains(witness), (
                    f"{operation.lean}: mpf[{index}]={number}, but should be in {bound.ball}."
                )
                around = witness + flint.arb(0, 1) * (2 * bound.ball.rad())
                assert ball.overlaps(around), f"{operation.lean}: arb[{index}]={ball}, but should overlap {around}."
                assert ball.rad() <= bound.size * 2**-60, (
                    f"{operation.lean}: arb[{index}]={ball} is too wide for size {bound.size}."
                )
                assert bound.ball.rad() <= bound.size * 2**-60, (
                    f"{operation.lean}: {bound.ball} is too wide for size {bound.size}."
                )


def test_the_comparison_of_balls_and_mpmath_runs_on_a_thousand_cases():
    assert len({operation.lean for operation in OPERATIONS}) * CASES >= 1000


@pytest.mark.parametrize(
    "reached", ["large logits", "a dead row", "an odd width", "width zero", "no mask", "a rectangle", "one key"]
)
def test_the_drawn_attention_inputs_reach(reached):
    def holds(inputs):
        Q, K, mask = inputs["Q"], inputs["K"], inputs["mask"]
        return {
            "large logits": lambda: np.abs(Q @ K.T).max(initial=0) > 1e3 * max(1, Q.shape[1]) ** 0.5,
            "a dead row": lambda: mask is not None and not mask.any(axis=1).all() and mask.any(),
            "an odd width": lambda: Q.shape[1] == 3,
            "width zero": lambda: Q.shape[1] == 0,
            "no mask": lambda: mask is None,
            "a rectangle": lambda: len(Q) != len(K),
            "one key": lambda: len(K) == 1,
        }[reached]()

    find(
        attention_inputs(EVERYTHING), holds, settings=settings(max_examples=400, phases=[Phase.generate])
    )  # raises where there is none


# -- NumPy's floats against the bound of running error analysis ------------------------------------


@pytest.mark.parametrize(
    ("alpha", "model"), [(REAL64, BINARY64), (REAL32, BINARY32)], ids=lambda part: getattr(part, "name", "")
)
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(**by_name)
def test_floats_are_within_the_bound_of_running_error_analysis(operation, alpha, model):
    """The bound contains the exact value, which the ball over ARB witnesses, and the float; on
    these inputs it is below 2¹² u of size.
    """

    @each(operation, MODERATE, examples=20)
    def check(inputs):
        floats = operation(alpha, inputs)
        with flint.ctx.workprec(113):
            exact, bounds = operation(ARB, inputs), operation(running(model), inputs)
            assert len(floats) == len(bounds) == len(exact)
            for index, (value, bound, ball) in enumerate(zip(floats, bounds, exact, strict=True)):
                assert type(value) is alpha.element
                if value == -math.inf:
                    assert ARB.is_neg_inf(ball)
                    assert ARB.is_neg_inf(bound.ball)
                    continue
                assert bound.ball.contains(float(value)), (
                    f"{operation.lean}[{index}]={value!r}, but should be in {bound.ball}."
                )
                assert bound.ball.contains(ball)
                assert bound.ball.rad() <= bound.size * model.unit_roundoff * 2**12 + 2**8 * model.underflow


def test_the_bound_of_binary64_refuses_a_result_in_binary32():
    attention = next(operation for operation in OPERATIONS if operation.lean == "scaledDotProductAttention")
    inputs = {"Q": np.array([[0.5]]), "K": np.array([[1.0], [-1.0]]), "V": np.array([[1.0], [0.0]]), "mask": None}
    with flint.ctx.workprec(113):
        (bound,) = attention(running(BINARY64), inputs)
    assert bound.ball.contains(float(attention(REAL64, inputs)[0]))
    assert not bound.ball.contains(float(attention(REAL32, inputs)[0]))


@pytest.mark.parametrize(("real", "ieee"), [(REAL64, FLOAT64), (REAL32, FLOAT32)], ids=["64 bits", "32 bits"])
@pytest.mark.parametrize(**by_name)
def test_real_and_float_are_equal_bit_for_bit_where_nothing_is_divided_by_zero(operation, real, ieee):
    @each(operation, NO_DIVISION_BY_ZERO, examples=20)
    def check(inputs):
        over_real, over_ieee = operation(real, inputs), operation(ieee, inputs)
        assert np.array(over_real, real.dtype).tobytes() == np.array(over_ieee, ieee.dtype).tobytes()
        assert all(type(entry) is real.element for entry in over_real + over_ieee)


def test_real_and_float_part_where_something_is_divided_by_zero():
    dead = AttentionContext(np.ones((1, 1)), np.ones((2, 1)), np.ones((2, 1)), np.zeros((1, 2), bool))
    assert scaled_dot_product_attention(dead, REAL64).tolist() == [[0.0]]
    assert math.isnan(scaled_dot_product_attention(dead, FLOAT64).item())


# -- Division --------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [REAL64, REAL32, MPF, ARB], ids=repr)
def test_division_by_zero_is_zero_over_the_reals(alpha):
    for numerator in (0, 1, -1):
        quotient = alpha.div(alpha.of_nat(0) + numerator * alpha.one, alpha.zero)
        assert quotient == 0
        assert type(quotient) is alpha.element


def test_division_by_negative_zero_is_zero_too():
    assert total_division(np.float64(1), np.float64(-0.0)) == 0
    assert total_division(np.float64(np.nan), np.float64(0.0)) == 0


@pytest.mark.parametrize("alpha", [FLOAT64, FLOAT32], ids=repr)
def test_division_by_zero_is_ieee_over_float(alpha):
    assert math.isnan(alpha.div(alpha.zero, alpha.zero))
    assert alpha.div(alpha.one, alpha.zero) == math.inf
    assert alpha.div(-alpha.one, alpha.zero) == -math.inf
    assert alpha.div(alpha.one, -alpha.zero) == -math.inf


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
def test_division_by_anything_else_divides(alpha):
    half = alpha.div(alpha.one, alpha.two)
    assert (half[0] if alpha is ARB_SERIES else half) == 0.5


@pytest.mark.parametrize("divisor", [flint.arb(0, 1), flint.arb(1, 1), flint.arb("nan")], ids=str)
@pytest.mark.parametrize("numerator", [flint.arb(0), flint.arb(1)], ids=str)
def test_a_ball_that_contains_zero_without_being_zero_divides_to_an_indeterminate_ball(numerator, divisor):
    quotient = ARB.div(numerator, divisor)
    assert not quotient.is_finite()
    assert quotient.contains(0)
    assert quotient.contains(17)


def test_a_ball_next_to_zero_divides_to_a_finite_ball():
    assert ARB.div(flint.arb(1), flint.arb(3, 1)).contains(0.25)
    assert ARB.div(flint.arb(1), flint.arb(3, 1)).is_finite()


def test_a_series_divides_by_the_quotient_rule():
    quotient = ARB_SERIES.div(series(6, 1), series(2, 3))  # 6/2, and (1·2 − 6·3)/2²
    assert quotient[0] == 3
    assert quotient[1] == -4


def test_a_series_divided_by_a_function_that_vanishes_to_first_order_is_zero():
    quotient = ARB_SERIES.div(series(6, 1), series(0, 0))
    assert quotient[0] == 0
    assert quotient[1] == 0


@pytest.mark.parametrize("slope", [flint.arb(1), flint.arb(0, 1)], ids=str)
def test_a_series_divided_by_a_function_with_a_zero_here_has_value_zero_and_an_indeterminate_derivative(slope):
    quotient = ARB_SERIES.div(series(6, 1), series(0, slope))
    assert quotient[0] == 0
    assert not quotient[1].is_finite()


@pytest.mark.parametrize("divisor", [flint.arb(0, 1), flint.arb("nan")], ids=str)
def test_a_series_divided_by_what_may_be_zero_is_indeterminate(divisor):
    quotient = ARB_SERIES.div(series(6, 1), series(divisor, 1))
    assert not quotient[0].is_finite()
    assert not quotient[1].is_finite()


# -- Maximum and square root -----------------------------------------------------------------------


def test_lean_max_takes_the_right_argument_on_a_tie_and_keeps_a_nan_only_on_the_left():
    assert lean_max(np.float64(1), np.float64(2)) == 2
    assert lean_max(np.float64(2), np.float64(1)) == 2
    assert math.copysign(1, lean_max(np.float64(0.0), np.float64(-0.0))) == -1
    assert math.copysign(1, lean_max(np.float64(-0.0), np.float64(0.0))) == 1
    assert math.isnan(lean_max(np.float64(np.nan), np.float64(1)))
    assert lean_max(np.float64(1), np.float64(np.nan)) == 1


@given(st.integers(-8, 8), st.integers(0, 8), st.integers(-8, 8), st.integers(0, 8))
def test_the_maximum_of_balls_encloses_the_maximum_of_any_two_points(a, r, b, s):
    ball = ARB.max(flint.arb(a, r), flint.arb(b, s))
    for x in (a - r, a, a + r):
        for y in (b - s, b, b + s):
            assert ball.contains(max(x, y))


def test_the_maximum_of_overlapping_balls_is_neither_of_them():
    x, y = flint.arb(0, 2), flint.arb(1, 0.5)
    assert ARB.max(x, y).contains(2)
    assert not y.contains(2)


@given(st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 4)), min_size=1, max_size=4))
def test_softmax_of_overlapping_balls_contains_softmax_of_any_point_in_them(balls):
    with flint.ctx.workprec(113):
        enclosed = softmax_spec(spec.tensor([flint.arb(m, r / 64) for m, r in balls], ARB))
    with flint.ctx.workprec(256):
        for side in (-1, 0, 1):
            point = softmax_spec(spec.tensor([flint.arb(m) + flint.arb(side * r) / 64 for m, r in balls], ARB))
            assert all(ball.is_finite() and ball.overlaps(exact) for ball, exact in zip(enclosed, point, strict=True))


@given(
    st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 4), st.integers(-4, 4)), min_size=1, max_size=4),
    st.sampled_from([-1, 0, 1]),
)
def test_softmax_of_overlapping_series_contains_value_and_derivative_at_any_point_in_them(entries, side):
    """The maximum over series picks one of them: here it may pick another than the one that is largest at the point."""
    with flint.ctx.workprec(113):
        tangent = [t for _, _, t in entries]
        enclosed = softmax_spec(spec.tensor([series(flint.arb(m, r / 16), t) for m, r, t in entries], ARB_SERIES))
    with flint.ctx.workprec(256):
        exponentials = [(flint.arb(m) + flint.arb(side * r) / 16).exp() for m, r, _ in entries]
        total = sum(exponentials, flint.arb(0))
        weights = [e / total for e in exponentials]
        mean = sum((w * t for w, t in zip(weights, tangent, strict=True)), flint.arb(0))
        for result, w, t in zip(enclosed, weights, tangent, strict=True):
            assert result[0].is_finite()
            assert result[1].is_finite()
            assert result[0].overlaps(w)
            assert result[1].overlaps(w * (t - mean))


@given(st.permutations([series(flint.arb(0, 1), 1), series(flint.arb(0.5, 1), -2), series(3, 1), series(3, -1)]))
def test_softmax_over_series_gives_overlapping_results_whichever_entry_the_maximum_picks(entries):
    with flint.ctx.workprec(113):
        total = {}
        for entry, result in zip(entries, softmax_spec(spec.tensor(entries, ARB_SERIES)), strict=True):
            total[str(entry)] = result
        again = softmax_spec(spec.tensor(list(reversed(entries)), ARB_SERIES))
        for entry, result in zip(reversed(entries), again, strict=True):
            assert result[0].overlaps(total[str(entry)][0])
            assert result[1].overlaps(total[str(entry)][1])


def test_the_square_root_of_the_constant_zero_series_is_zero():
    root = ARB_SERIES.sqrt(series(0))
    assert root[0] == 0
    assert root[1] == 0
    assert not ARB_SERIES.sqrt(series(0, 1))[1].is_finite()


# -- Naturals, constants and precision -------------------------------------------------------------


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
def test_the_constants_of_a_scalar_are_its_own_elements(alpha):
    for constant, expected in ((alpha.zero, 0), (alpha.one, 1), (alpha.two, 2)):
        assert type(constant) is alpha.element
        assert (constant[0] if alpha is ARB_SERIES else constant) == expected
    assert type(alpha.log10000) is alpha.element


def test_log10000_follows_the_working_precision():
    with flint.ctx.workprec(53):
        wide = ARB.log10000
    with flint.ctx.workprec(200):
        narrow = ARB.log10000
    assert wide.contains(narrow)
    assert narrow.rad() < wide.rad()
    assert REAL64.log10000 == math.log(10000)


def test_balls_at_rising_precision_are_nested_in_one_another():
    inputs = {"Q": np.array([[0.5, 1.0]]), "K": np.eye(2), "V": np.eye(2), "mask": None}
    results = []
    for precision in (53, 80, 113):
        with flint.ctx.workprec(precision):
            results.append(scaled_dot_product_attention(context(ARB, **lifted(inputs, ARB))))
    for wide, narrow in pairwise(results):
        assert all(a.overlaps(b) and b.rad() < a.rad() for a, b in zip(wide.flat, narrow.flat, strict=True))


@given(arrays(2, 2), st.sampled_from(SCALARS))
def test_lifting_is_exact(values, alpha):
    for entry, given_entry in zip(spec.tensor(values, alpha).flat, values.flat, strict=True):
        assert (entry[0] if alpha is ARB_SERIES else entry) == float(given_entry)


def test_an_integer_of_any_size_is_held_whole_where_it_can_be():
    for n in (2**53 + 1, np.int64(2**53 + 1)):
        assert ARB.lift(n) == flint.arb(2**53 + 1)
        with mpmath.workprec(64):
            assert MPF.lift(n) == 2**53 + 1
        assert REAL64.lift(n - 1) == 2.0**53
