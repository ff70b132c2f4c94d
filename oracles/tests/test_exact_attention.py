"""Ball arithmetic agrees with mpmath, an unrelated code base, at 50 digits, and never reads what is blocked."""

import threading
from collections.abc import Callable
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

import oracles
from oracles.arb_matrix import enclosed
from oracles.ball import Ball
from oracles.conventions import Conventions
from oracles.exact import attention as arb_attention

DEFAULT = Conventions()
UNIFORM, NAN = Conventions(dead_rows="uniform"), Conventions(dead_rows="nan")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def digits() -> Any:
    with mp.workdps(50):
        yield


def matrix(x: Any) -> Any:
    return mpmath.matrix([[mpf(float(entry)) for entry in row] for row in np.asarray(x)])


def softmax(scores: Any, allowed: Any, dead: str) -> Any:
    weights = mpmath.zeros(scores.rows, scores.cols)
    for i in range(scores.rows):
        keys = [j for j in range(scores.cols) if allowed[i, j]]
        if not keys and dead == "uniform":
            weights[i, :] = mpmath.ones(1, scores.cols) / scores.cols
        top = max((scores[i, j] for j in keys), default=0)
        total = sum((mpmath.exp(scores[i, j] - top) for j in keys), mpf(0))
        for j in keys:
            weights[i, j] = mpmath.exp(scores[i, j] - top) / total
    return weights


def derivative(weights: Any, slopes: Any, allowed: Any) -> Any:
    result = mpmath.zeros(weights.rows, weights.cols)
    for i in range(weights.rows):
        mean = sum((weights[i, j] * slopes[i, j] for j in range(weights.cols) if allowed[i, j]), mpf(0))
        for j in range(weights.cols):
            result[i, j] = weights[i, j] * (slopes[i, j] - mean) if allowed[i, j] else mpf(0)
    return result


def attention(q: Any, k: Any, v: Any, allowed: Any, dead: str) -> tuple[Any, Any, Any]:
    """The weights, the output, and the scale."""
    scale = 1 / mpmath.sqrt(q.cols)
    weights = softmax(q * k.T * scale, allowed, dead)
    return weights, weights * v, scale


def attention_vjp(q: Any, k: Any, v: Any, allowed: Any, g: Any, dead: str) -> tuple[Any, Any, Any]:
    weights, _, scale = attention(q, k, v, allowed, dead)
    ds = derivative(weights, g * v.T, allowed) * scale
    return ds * k, ds.T * q, weights.T * g


def attention_jvp(q: Any, k: Any, v: Any, allowed: Any, dq: Any, dk: Any, dv: Any, dead: str) -> Any:
    weights, _, scale = attention(q, k, v, allowed, dead)
    return derivative(weights, (dq * k.T + q * dk.T) * scale, allowed) * v + weights * dv


def assert_agrees(found: Ball, witness: Any, *, ulps: float = 1.0) -> None:
    """The witness lies in the ball to 1e-40, and the ball is no wider than the rounding of its midpoint."""
    assert found.mid.shape == (witness.rows, witness.cols)
    for index, mid in np.ndenumerate(found.mid):
        slack = mpf(10) ** -40 * max(1, abs(witness[index]))
        assert abs(mpf(float(mid)) - witness[index]) <= mpf(float(found.rad[index])) + slack
    assert (found.rad <= ulps * np.spacing(np.abs(found.mid))).all()


def normal(*shape: int, size: float = 1.0) -> Any:
    return RNG.normal(size=shape) * size


def a_mask(n_q: int, n_k: int) -> Any:
    """Mixed, with a dead row where there is room for one, and a row with a single key."""
    allowed = RNG.random((n_q, n_k)) < 0.6
    allowed[0] = False
    if n_q > 1:
        allowed[1] = np.arange(n_k) == 0
    return allowed


CASES = [(1, 1, 1, 1, 1.0), (2, 3, 4, 2, 1.0), (5, 4, 3, 6, 30.0), (3, 7, 2, 1, 1e-3), (3, 3, 2, 2, 300.0)]


@pytest.mark.parametrize("conventions", [DEFAULT, UNIFORM])
@pytest.mark.parametrize(("n_q", "n_k", "d", "d_v", "size"), CASES)
def test_attention_and_its_derivatives_agree_with_mpmath(
    n_q: int, n_k: int, d: int, d_v: int, size: float, conventions: Conventions
) -> None:
    q, k, v, g = normal(n_q, d, size=size), normal(n_k, d), normal(n_k, d_v), normal(n_q, d_v)
    dq, dk, dv = normal(n_q, d), normal(n_k, d), normal(n_k, d_v)
    allowed, dead = a_mask(n_q, n_k), conventions.dead_rows
    mq, mk, mv, mg, mdq, mdk, mdv = map(matrix, (q, k, v, g, dq, dk, dv))
    (out,) = arb_attention.scaled_dot_product_attention((q, k, v), allowed, conventions=conventions)
    assert_agrees(out, attention(mq, mk, mv, allowed, dead)[1])
    grads = arb_attention.scaled_dot_product_attention_vjp((q, k, v), allowed, g, conventions=conventions)
    for found, witness in zip(grads, attention_vjp(mq, mk, mv, allowed, mg, dead), strict=True):
        assert_agrees(found, witness)
    (dout,) = arb_attention.scaled_dot_product_attention_jvp((q, k, v), allowed, (dq, dk, dv), conventions=conventions)
    assert_agrees(dout, attention_jvp(mq, mk, mv, allowed, mdq, mdk, mdv, dead))


@pytest.mark.parametrize("conventions", [DEFAULT, UNIFORM])
def test_softmax_agrees_with_mpmath(conventions: Conventions) -> None:
    scores, g, allowed = normal(4, 5, size=100), normal(4, 5), a_mask(4, 5)
    weights = softmax(matrix(scores), allowed, conventions.dead_rows)
    (found,) = arb_attention.hard_masked_softmax(scores, allowed, conventions=conventions)
    assert_agrees(found, weights)
    (found,) = arb_attention.hard_masked_softmax_vjp(scores, allowed, g, conventions=conventions)
    assert_agrees(found, derivative(weights, matrix(g), allowed))


@pytest.mark.parametrize("conventions", [DEFAULT, UNIFORM])
@pytest.mark.parametrize("heads", [1, 3])
def test_multi_head_attention_and_its_derivatives_agree_with_mpmath(heads: int, conventions: Conventions) -> None:
    n, d_model, width = 4, 5, 2
    x, dx, g = normal(n, d_model), normal(n, d_model), normal(n, d_model)
    weights = [normal(d_model, heads * width) for _ in range(3)] + [normal(heads * width, d_model)]
    moves = [normal(*w.shape) for w in weights]
    allowed, dead = a_mask(n, n), conventions.dead_rows
    mx, mdx, mg = map(matrix, (x, dx, g))
    (wq, wk, wv, wo), (dwq, dwk, dwv, dwo) = map(matrix, weights), map(matrix, moves)

    def block(whole: Any, head: int) -> Any:
        return whole[:, head * width : (head + 1) * width]

    def joined(parts: list[Any]) -> Any:
        whole = mpmath.zeros(n, heads * width)
        for head, part in enumerate(parts):
            whole[:, head * width : (head + 1) * width] = part
        return whole

    parts = [[block(mx * w, h) for w in (wq, wk, wv)] for h in range(heads)]
    tangents = [[block(mdx * w + mx * dw, h) for w, dw in ((wq, dwq), (wk, dwk), (wv, dwv))] for h in range(heads)]
    concat = joined([attention(*part, allowed, dead)[1] for part in parts])
    dconcat = joined([attention_jvp(*p, allowed, *t, dead) for p, t in zip(parts, tangents, strict=True)])
    pulled = [attention_vjp(*p, allowed, block(mg * wo.T, h), dead) for h, p in enumerate(parts)]
    dq, dk, dv = (joined([grads[i] for grads in pulled]) for i in range(3))

    (out,) = arb_attention.multi_head_attention((x, *weights), heads, allowed, conventions=conventions)
    assert_agrees(out, concat * wo)
    (dout,) = arb_attention.multi_head_attention_jvp(
        (x, *weights), heads, allowed, (dx, *moves), conventions=conventions
    )
    assert_agrees(dout, dconcat * wo + concat * dwo)
    expected = (dq * wq.T + dk * wk.T + dv * wv.T, mx.T * dq, mx.T * dk, mx.T * dv, concat.T * mg)
    found = arb_attention.multi_head_attention_vjp((x, *weights), heads, allowed, g, conventions=conventions)
    for one, witness in zip(found, expected, strict=True):
        assert_agrees(one, witness)


def test_weight_gradients_are_summed_over_the_batch() -> None:
    x, g = normal(2, 3, 4), normal(2, 3, 4)
    weights = [normal(4, 4) for _ in range(4)]
    whole = arb_attention.multi_head_attention_vjp((x, *weights), 2, None, g, conventions=DEFAULT)
    parts = [
        arb_attention.multi_head_attention_vjp((x[b], *weights), 2, None, g[b], conventions=DEFAULT) for b in range(2)
    ]
    assert np.array_equal(whole[0].mid, np.stack([part[0].mid for part in parts]))
    for i in range(1, 5):
        distance = np.abs(whole[i].mid - (parts[0][i].mid + parts[1][i].mid))
        assert (distance <= 4 * np.spacing(np.abs(parts[0][i].mid) + np.abs(parts[1][i].mid))).all()


def test_logits_beyond_the_range_of_float64_are_no_problem() -> None:
    q, k, v = np.array([[1e300], [-1e300]]), np.array([[1e300], [1.0], [-2e300]]), np.array([[1.0], [2.0], [3.0]])
    (out,) = arb_attention.scaled_dot_product_attention((q, k, v), None, conventions=DEFAULT)
    assert out.mid.tolist() == [[1.0], [3.0]]
    assert (out.rad <= 1e-15).all()


def test_a_cancelled_gradient_is_resolved() -> None:
    """dq is 2⁻¹²¹ of the cotangents of the weights; 113 bits see nothing of it."""
    q, k, v = np.array([[0.0]]), np.array([[1.0], [-1.0]]), np.array([[1.0, 0.0], [1.0, 2.0**-60]])
    grads = arb_attention.scaled_dot_product_attention_vjp(
        (q, k, v), None, np.array([[2.0**60, 1.0]]), conventions=DEFAULT
    )
    assert grads[0].mid.tolist() == [[-(2.0**-61)]]
    assert grads[0].rad[0, 0] <= np.spacing(2.0**-61)


def test_what_cannot_be_settled_ends_in_bounded_precision() -> None:
    """Equal values give a gradient of exactly 0, which ball arithmetic can only narrow down."""
    q, k = normal(1, 2), normal(3, 2)
    dq, _, _ = arb_attention.scaled_dot_product_attention_vjp(
        (q, k, np.ones((3, 2))), None, np.ones((1, 2)), conventions=DEFAULT
    )
    assert (np.abs(dq.mid) <= 5e-324).all()
    assert (dq.rad <= 5e-324).all()


POISON = [np.nan, np.inf, -np.inf, 1e300]


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("conventions", [DEFAULT, NAN, UNIFORM])
def test_blocked_entries_are_never_read(poison: float, conventions: Conventions) -> None:
    q, k, v, g = normal(3, 2), normal(4, 2), normal(4, 2), normal(3, 2)
    allowed = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]], dtype=bool)
    bad_k, bad_v = k.copy(), v.copy()
    bad_k[3], bad_v[3] = poison, poison
    for clean, dirty in [
        (
            arb_attention.scaled_dot_product_attention((q, k, v), allowed, conventions=conventions),
            arb_attention.scaled_dot_product_attention((q, bad_k, bad_v), allowed, conventions=conventions),
        ),
        (
            arb_attention.scaled_dot_product_attention_vjp((q, k, v), allowed, g, conventions=conventions),
            arb_attention.scaled_dot_product_attention_vjp((q, bad_k, bad_v), allowed, g, conventions=conventions),
        ),
        (
            arb_attention.scaled_dot_product_attention_jvp((q, k, v), allowed, (q, k, v), conventions=conventions),
            arb_attention.scaled_dot_product_attention_jvp(
                (q, bad_k, bad_v), allowed, (q, bad_k, bad_v), conventions=conventions
            ),
        ),
    ]:
        for one, other in zip(clean, dirty, strict=True):
            assert np.array_equal(one.mid, other.mid)
            assert np.array_equal(one.rad, other.rad)


def lost(found: Ball) -> list[Any]:
    """Where the midpoint is NaN, which is where the radius is infinite."""
    assert np.array_equal(np.isnan(found.mid), np.isinf(found.rad))
    return np.isnan(found.mid).astype(int).tolist()


@pytest.mark.parametrize("poison", POISON[:3])
def test_an_allowed_nan_reaches_what_depends_on_it_and_nothing_else(poison: float) -> None:
    q, k, v, g = normal(3, 2), normal(3, 2), normal(3, 2), normal(3, 2)
    allowed = np.tri(3, dtype=bool)
    k[1, 0] = poison
    assert lost(arb_attention.scaled_dot_product_attention((q, k, v), allowed, conventions=DEFAULT)[0]) == [
        [0, 0],
        [1, 1],
        [1, 1],
    ]
    dq, dk, dv = arb_attention.scaled_dot_product_attention_vjp((q, k, v), allowed, g, conventions=DEFAULT)
    assert lost(dq) == [[0, 0], [1, 1], [1, 1]]
    assert lost(dk) == lost(dv) == [[1, 1], [1, 1], [1, 1]]
    k[1, 0], v[2, 1] = 0.0, poison
    assert lost(arb_attention.scaled_dot_product_attention((q, k, v), allowed, conventions=DEFAULT)[0]) == [
        [0, 0],
        [0, 0],
        [0, 1],
    ]
    dq, dk, dv = arb_attention.scaled_dot_product_attention_vjp((q, k, v), allowed, g, conventions=DEFAULT)
    assert lost(dq) == [[0, 0], [0, 0], [1, 1]]
    assert lost(dk) == [[1, 1], [1, 1], [1, 1]]
    assert lost(dv) == [[0, 0], [0, 0], [0, 0]]
    v[2, 1], g[1, 0] = 0.0, poison
    dq, dk, dv = arb_attention.scaled_dot_product_attention_vjp((q, k, v), allowed, g, conventions=DEFAULT)
    assert lost(dq) == [[0, 0], [1, 1], [0, 0]]
    assert lost(dk) == [[1, 1], [1, 1], [0, 0]]
    assert lost(dv) == [[1, 0], [1, 0], [0, 0]]


def test_dead_rows_follow_their_convention() -> None:
    q, k, v, g = normal(2, 2), normal(4, 2), normal(4, 2), normal(2, 2)
    allowed = np.array([[False] * 4, [True] * 4])

    def run(conventions: Conventions) -> tuple[Ball, ...]:
        forward = arb_attention.scaled_dot_product_attention((q, k, v), allowed, conventions=conventions)
        return *forward, *arb_attention.scaled_dot_product_attention_vjp((q, k, v), allowed, g, conventions=conventions)

    out, dq, dk, dv = run(DEFAULT)
    assert out.mid[0].tolist() == out.rad[0].tolist() == dq.mid[0].tolist() == dq.rad[0].tolist() == [0.0, 0.0]
    nan_out, nan_dq, nan_dk, nan_dv = run(NAN)
    assert np.isnan(nan_out.mid[0]).all()
    assert (nan_out.rad[0] == 0).all()
    assert lost(nan_dq) == [[1, 1], [0, 0]]
    assert np.array_equal(nan_dk.mid, dk.mid)
    assert np.array_equal(nan_dv.mid, dv.mid)
    flat_out, flat_dq, flat_dk, flat_dv = run(UNIFORM)
    assert (np.abs(flat_out.mid[0] - v.mean(axis=0)) <= 1e-15).all()
    assert flat_dq.mid[0].tolist() == [0.0, 0.0]
    assert np.array_equal(flat_dk.mid, dk.mid)
    assert (np.abs(flat_dv.mid - dv.mid - g[0] / 4) <= 1e-15).all()


@pytest.mark.parametrize(
    ("batch", "n_q", "n_k", "d", "d_v"), [((0,), 2, 3, 1, 2), ((2, 0), 1, 1, 1, 1), ((2,), 3, 2, 0, 0)]
)
def test_empty_axes_are_legal(batch: tuple[int, ...], n_q: int, n_k: int, d: int, d_v: int) -> None:
    q, k, v = np.ones((*batch, n_q, d)), np.ones((*batch, n_k, d)), np.ones((*batch, n_k, d_v))
    (out,) = arb_attention.scaled_dot_product_attention((q, k, v), None, conventions=DEFAULT)
    assert out.mid.shape == (*batch, n_q, d_v)
    grads = arb_attention.scaled_dot_product_attention_vjp(
        (q, k, v), None, np.ones((*batch, n_q, d_v)), conventions=DEFAULT
    )
    assert [grad.mid.shape for grad in grads] == [q.shape, k.shape, v.shape]


def test_without_columns_in_q_the_output_is_the_mean() -> None:
    v = np.array([[1.0], [2.0], [6.0]])
    (out,) = arb_attention.scaled_dot_product_attention(
        (np.ones((1, 0)), np.ones((3, 0)), v), None, conventions=DEFAULT
    )
    assert out.mid.tolist() == [[3.0]]


def test_the_scale_can_be_given() -> None:
    q, k, v = normal(2, 4), normal(3, 4), normal(3, 1)
    (default,) = arb_attention.scaled_dot_product_attention((q, k, v), None, conventions=DEFAULT)
    (given,) = arb_attention.scaled_dot_product_attention((q, k, v), None, scale=0.5, conventions=DEFAULT)
    assert np.array_equal(default.mid, given.mid)


def one_entry(entry: flint.arb) -> Ball:
    """A single entry as a float64 ball."""
    (found,) = enclosed(lambda: [([entry], np.zeros(1, dtype=bool))], 4000)
    return found


def test_the_radius_goes_upwards_and_covers_the_rounding_of_the_midpoint() -> None:
    with flint.ctx.workprec(113):
        third = one_entry(flint.arb(1) / 3)
    error = abs(mpf(float(third.mid[0])) - mpf(1) / 3)
    assert error < mpf(float(third.rad[0])) <= 0.51 * np.spacing(third.mid[0])
    wide = one_entry(flint.arb(1, 2.0**-40))
    assert 2.0**-40 <= wide.rad[0] <= 2.0**-40 * (1 + 2.0**-20)
    tiny = one_entry(flint.arb(2) ** -1080)
    assert (tiny.mid[0], tiny.rad[0]) == (0.0, 2.0**-1074)
    assert one_entry(flint.arb(0.5)).rad[0] == 0


def in_threads(work: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # reported below, in the thread of the test
            failures.append(failure)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_do_not_disturb_each_other_nor_the_process_wide_precision() -> None:
    before = flint.ctx.prec
    q, k, v = normal(4, 3), normal(5, 3), np.ones((5, 2))
    expected = arb_attention.scaled_dot_product_attention_vjp((q, k, v), None, q[:, :2], conventions=DEFAULT)

    def work() -> None:
        for _ in range(5):
            found = arb_attention.scaled_dot_product_attention_vjp((q, k, v), None, q[:, :2], conventions=DEFAULT)
            for one, other in zip(found, expected, strict=True):
                assert np.array_equal(one.mid, other.mid)
                assert np.array_equal(one.rad, other.rad)

    in_threads(work)
    assert flint.ctx.prec == before


@pytest.mark.parametrize("method", ["fast", "arb"])
def test_a_row_of_scores_by_itself_is_that_of_a_matrix(method):
    scores, mask, g = np.array([0.5, -1.0, 2.0]), np.array([True, False, True]), np.array([1.0, 2.0, -1.0])
    for operation, row in (
        (oracles.hard_masked_softmax, (scores, mask)),
        (oracles.hard_masked_softmax_vjp, (scores, mask, g)),
    ):
        alone, whole = operation(*row, method=method), operation(*(x[np.newaxis] for x in row), method=method)
        assert np.array_equal(alone.mid, whole.mid[0])
        assert np.array_equal(alone.rad, whole.rad[0])
