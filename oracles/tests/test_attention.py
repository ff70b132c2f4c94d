"""Attention's enclosures: sound, blind to what is blocked, by convention, and refusing what makes no sense."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from oracles.ball import Array
from oracles.conventions import Conventions
from oracles.dot_product import (
    causal_attention,
    grouped_query_attention,
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.enclosure import Enclosure
from oracles.formats import BINARY64, BRAIN16, FLOAT32, FLOAT64, Arithmetic
from oracles.multi_head import multi_head_attention, multi_head_attention_jvp, multi_head_attention_vjp
from oracles.softmax import hard_masked_softmax, hard_masked_softmax_vjp

KINDS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "plain": lambda rng, shape: rng.standard_normal(shape),
    "grid": lambda rng, shape: np.round(2 * rng.standard_normal(shape)),
    "large": lambda rng, shape: 100 * rng.standard_normal(shape),
    "offset": lambda rng, shape: rng.standard_normal(shape) + 1000 * rng.standard_normal(),
    "subnormal": lambda rng, shape: rng.standard_normal(shape) * 2.0**-1060,
    "tiny": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(-560, -500, shape),
    "mixed": lambda rng, shape: rng.standard_normal(shape) * 10 ** rng.uniform(-8, 8, shape),
    "sparse": lambda rng, shape: np.where(rng.random(shape) < 0.5, 0.0, 30 * rng.standard_normal(shape)),
}
SETTINGS = settings(max_examples=100)


def enclosures(x: Enclosure | tuple[Enclosure, ...]) -> tuple[Enclosure, ...]:
    """One enclosure or several, as a tuple."""
    return x if isinstance(x, tuple) else (x,)


def require_sound(operation: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Assert that the exact ball lies inside the fast enclosure of every result."""
    fast = enclosures(operation(*arguments, method="fast", **options))
    exact = enclosures(operation(*arguments, method="arb", **options))
    for ours, theirs in zip(fast, exact, strict=True):
        known = np.isfinite(ours.rad) & ~np.isnan(ours.mid)
        assert (np.isnan(ours.mid) == np.isnan(theirs.mid))[known].all()
        assert (ours.mid[np.isinf(ours.mid)] == theirs.mid[np.isinf(ours.mid)]).all()
        known &= np.isfinite(ours.mid)
        distance = np.abs(ours.mid[known] - theirs.mid[known])
        assert (distance <= ours.rad[known]).all()
        assert (distance * (1 - 2.0**-50) + theirs.rad[known] <= ours.rad[known] * (1 + 2.0**-30) + 2.0**-1060).all()


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes, values of every kind, a mask or none, and conventions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_q, n_k = draw(st.integers(1, 7)), draw(st.sampled_from([1, 2, 3, 9]))
    d, d_v = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    shapes = ((n_q, d), (n_k, d), (n_k, d_v), (n_q, d_v), (n_q, d), (n_k, d), (n_k, d_v))
    kinds = st.sampled_from(sorted(KINDS))
    density = draw(st.sampled_from([None, 0.2, 0.5, 0.9]))
    dead_rows = draw(st.sampled_from(["zero", "nan", "uniform"]))
    causal = draw(st.sampled_from(["top_left", "bottom_right"]))
    return {
        "values": [KINDS[draw(kinds)](rng, shape) for shape in shapes],
        "mask": None if density is None else rng.random((n_q, n_k)) < density,
        "options": {
            "conventions": {"dead_rows": dead_rows, "causal": causal},
            "is_causal": draw(st.booleans()),
            "scale": draw(st.sampled_from([None, 1.0, -0.3, 0.0, 2.0**-30])),
        },
    }


@SETTINGS
@given(problem=problems())
def test_the_exact_output_gradients_and_derivative_are_enclosed(problem: dict[str, Any]) -> None:
    q, k, v, g, dq, dk, dv = problem["values"]
    mask, options = problem["mask"], problem["options"]
    options = options | {"conventions": Conventions(**options["conventions"])}
    require_sound(scaled_dot_product_attention, q, k, v, mask, **options)
    require_sound(scaled_dot_product_attention_vjp, q, k, v, mask, g, **options)
    require_sound(scaled_dot_product_attention_jvp, q, k, v, mask, dq, dk, dv, **options)


@SETTINGS
@given(seed=st.integers(0, 2**32 - 1), kinds=st.tuples(*[st.sampled_from(sorted(KINDS))] * 2), density=st.floats(0, 1))
def test_the_exact_softmax_and_its_gradient_are_enclosed(seed: int, kinds: tuple[str, str], density: float) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 4)), int(rng.integers(1, 9)))
    s, g = (KINDS[kind](rng, shape) for kind in kinds)
    mask = rng.random(shape) < density
    require_sound(hard_masked_softmax, s, mask)
    require_sound(hard_masked_softmax_vjp, s, mask, g)


@settings(SETTINGS, max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1), kinds=st.lists(st.sampled_from(["plain", "grid", "offset"]), min_size=5, max_size=5)
)
def test_exact_multi_head_attention_and_its_derivatives_are_enclosed(seed: int, kinds: list[str]) -> None:
    rng = np.random.default_rng(seed)
    n, heads, d_model, head = (int(i) for i in rng.integers(1, 4, 4))
    shapes = ((2, n, d_model), *((d_model, heads * head),) * 3, (heads * head, d_model))
    arguments, tangents = ([KINDS[kind](rng, s) for kind, s in zip(kinds, shapes, strict=True)] for _ in range(2))
    mask = rng.random((n, n)) < 0.7
    dead_rows = ("zero", "nan", "uniform")[int(rng.integers(3))]
    options = {"conventions": Conventions(dead_rows=dead_rows), "is_causal": bool(rng.integers(2))}
    require_sound(multi_head_attention, *arguments, heads, mask, **options)
    require_sound(multi_head_attention_vjp, *arguments, heads, mask, tangents[0], **options)
    require_sound(multi_head_attention_jvp, *arguments, heads, mask, *tangents, **options)


def drawn(*shapes: tuple[int, ...]) -> list[Array]:
    """Normal values of given shapes."""
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape) for shape in shapes]


def require_same(ours: Enclosure, theirs: Enclosure, where: Any = ...) -> None:
    """Assert that two enclosures are equal, entry by entry, NaN being equal to NaN."""
    np.testing.assert_array_equal(ours.mid[where], theirs.mid[where])
    np.testing.assert_array_equal(ours.rad[where], theirs.rad[where])


def require_close(ours: Enclosure, theirs: Enclosure) -> None:
    """Assert that two enclosures may hold the same values: products of other shapes are rounded
    otherwise by some BLAS kernels.
    """
    assert ours.mid.shape == theirs.mid.shape
    assert (np.abs(ours.mid - theirs.mid) <= ours.rad + theirs.rad).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("arithmetic", [None, "float64"])
def test_blocked_keys_and_values_change_nothing(poison: float, arithmetic: str | None) -> None:
    q, k, v, g, dq, dk, dv = drawn((5, 4), (6, 4), (6, 3), (5, 3), (5, 4), (6, 4), (6, 3))
    mask = np.ones((5, 6), dtype=bool)
    mask[:, 2] = False  # blocked for every row
    mask[:3, 4] = False  # blocked for some
    poisoned = [x.copy() for x in (k, v, dk, dv)]
    for x in poisoned:
        x[2] = poison
    options: dict[str, Any] = {"arithmetic": arithmetic, "method": "fast"}
    clean = scaled_dot_product_attention(q, k, v, mask, **options)
    require_same(scaled_dot_product_attention(q, *poisoned[:2], mask, **options), clean)
    for ours, theirs in zip(
        scaled_dot_product_attention_vjp(q, *poisoned[:2], mask, g, **options),
        scaled_dot_product_attention_vjp(q, k, v, mask, g, **options),
        strict=True,
    ):
        require_same(ours, theirs)
    require_same(
        scaled_dot_product_attention_jvp(q, *poisoned[:2], mask, dq, *poisoned[2:], **options),
        scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, dv, **options),
    )
    for x in poisoned:
        x[4] = poison
    require_same(scaled_dot_product_attention(q, *poisoned[:2], mask, **options), clean, slice(0, 3))
    dq_poisoned = scaled_dot_product_attention_vjp(q, *poisoned[:2], mask, g, **options)[0]
    require_same(dq_poisoned, scaled_dot_product_attention_vjp(q, k, v, mask, g, **options)[0], slice(0, 3))


def test_nan_in_an_allowed_entry_gives_nan_there_and_nowhere_else() -> None:
    q, k, v, g = drawn((4, 3), (5, 3), (5, 2), (4, 2))
    mask = np.tri(4, 5, dtype=bool)
    v[2, 1] = np.nan
    out = scaled_dot_product_attention(q, k, v, mask)
    expected = np.zeros((4, 2), dtype=bool)
    expected[2:, 1] = True
    np.testing.assert_array_equal(np.isnan(out.mid), expected)
    np.testing.assert_array_equal(np.isinf(out.rad), expected)
    g[1, 0] = np.inf
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, np.nan_to_num(v), mask, g)
    np.testing.assert_array_equal(np.isnan(dq.mid).all(axis=1), [False, True, False, False])
    np.testing.assert_array_equal(np.isnan(dk.mid).any(axis=1), [True, True, False, False, False])
    np.testing.assert_array_equal(np.isnan(dv.mid), [[True, False], [True, False]] + [[False, False]] * 3)


@pytest.mark.parametrize("dead_rows", ["zero", "nan", "uniform"])
@pytest.mark.parametrize("poisoned", range(6))
def test_nan_times_an_exact_zero_is_nan_by_both_methods(poisoned: int, dead_rows: Any) -> None:
    c, mask = Conventions(dead_rows=dead_rows), np.array([[0, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    inputs, tangents = drawn((3, 2), *[(2, 2)] * 4), drawn((3, 2), *[(2, 2)] * 4)
    (g,) = drawn((3, 2))
    [*inputs, g][poisoned][0, 1] = np.nan
    for operation, arguments in (
        (multi_head_attention, (*inputs, 1, mask)),
        (multi_head_attention_vjp, (*inputs, 1, mask, g)),
        (multi_head_attention_jvp, (*inputs, 1, mask, *tangents)),
    ):
        fast, arb = (
            enclosures(operation(*arguments, conventions=c, method=method))  # type: ignore[operator]
            for method in ("fast", "arb")
        )
        for ours, theirs in zip(fast, arb, strict=True):
            np.testing.assert_array_equal(np.isnan(ours.mid), np.isnan(theirs.mid))
            np.testing.assert_array_equal(np.isinf(ours.rad), np.isinf(theirs.rad))
    if poisoned == 4 and dead_rows == "zero":
        out = multi_head_attention(*inputs, 1, mask, conventions=c, method="arb")
        assert np.isnan(out.mid).tolist() == [[False, True]] * 3


def test_a_row_with_no_allowed_key_is_what_its_convention_says() -> None:
    q, k, v, g = drawn((2, 3), (4, 3), (4, 2), (2, 2))
    mask = np.array([[False] * 4, [True] * 4])

    def answer(dead_rows: Any) -> tuple[Enclosure, ...]:
        c = Conventions(dead_rows=dead_rows)
        out = scaled_dot_product_attention(q, k, v, mask, conventions=c)
        return (out, *scaled_dot_product_attention_vjp(q, k, v, mask, g, conventions=c))

    out, dq, dk, dv = answer("zero")
    assert (out.mid[0] == 0).all()
    assert (out.rad[0] == 0).all()
    assert (dq.mid[0] == 0).all()
    assert (dq.rad[0] == 0).all()
    out_nan, dq_nan, dk_nan, dv_nan = answer("nan")
    assert np.isnan(out_nan.mid[0]).all()
    assert (out_nan.rad[0] == 0).all()
    assert np.isinf(dq_nan.rad[0]).all()
    require_same(dk_nan, dk)
    require_same(dv_nan, dv)
    out_mean, dq_mean, dk_mean, dv_mean = answer("uniform")
    assert out_mean.contains(np.stack([v.mean(axis=0), out.mid[1]])).all()
    assert (dq_mean.mid[0] == 0).all()
    assert (dq_mean.rad[0] == 0).all()
    require_same(dk_mean, dk)
    assert dv_mean.contains(dv.mid + g[0] / 4).all()


def test_masks_broadcast_causal_is_a_mask_and_rows_are_a_choice() -> None:
    q, k, v, g = drawn((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 2), (2, 3, 5, 2))
    for causal, offset in (("top_left", 0), ("bottom_right", 2)):
        c = Conventions(causal=causal)  # type: ignore[arg-type]
        full = scaled_dot_product_attention(q, k, v, is_causal=True, conventions=c)
        require_same(scaled_dot_product_attention(q, k, v, np.tri(5, 7, offset, dtype=bool)), full)
        some = scaled_dot_product_attention(q, k, v, is_causal=True, conventions=c, rows=[4, 1])
        assert full.contains(np.zeros_like(full.mid) + full.mid).all()
        np.testing.assert_array_equal(np.abs(some.mid - full.mid[..., [4, 1], :]) <= some.rad, True)
        (dq,) = scaled_dot_product_attention_vjp(q, k, v, None, g, is_causal=True, conventions=c, rows=[4, 1])
        whole = scaled_dot_product_attention_vjp(q, k, v, None, g, is_causal=True, conventions=c)[0]
        assert (np.abs(dq.mid - whole.mid[..., [4, 1], :]) <= dq.rad).all()
    padding = np.arange(7) < np.array([[[[7]]], [[[3]]]])
    masked = scaled_dot_product_attention(q, k, v, padding)
    require_same(scaled_dot_product_attention(q, k, v, np.broadcast_to(padding, (2, 3, 5, 7))), masked)
    blocks = scaled_dot_product_attention(q, k, v, ~padding, conventions=Conventions(mask_polarity="true_blocks"))
    require_same(blocks, masked)
    empty = scaled_dot_product_attention(q[:0], k[:0], v[:0], arithmetic="float64")
    assert empty.mid.shape == (0, 3, 5, 2)


@pytest.mark.parametrize("method", ["fast", "arb"])
@pytest.mark.parametrize("rows", [[2, 1, 0], [0, 0, 1], [1]])
def test_chosen_rows_take_their_own_cotangents_and_tangents(rows: list[int], method: Any) -> None:
    q, k, v, g, tq, tk, tv = drawn((3, 2), (4, 2), (4, 2), (3, 2), (3, 2), (4, 2), (4, 2))
    whole = scaled_dot_product_attention_vjp(q, k, v, None, g, is_causal=True, method=method)[0]
    (dq,) = scaled_dot_product_attention_vjp(q, k, v, None, g, is_causal=True, method=method, rows=rows)
    assert (np.abs(dq.mid - whole.mid[rows]) <= dq.rad + whole.rad[rows]).all()
    all_out = scaled_dot_product_attention_jvp(q, k, v, None, tq, tk, tv, is_causal=True, method=method)
    dout = scaled_dot_product_attention_jvp(q, k, v, None, tq, tk, tv, is_causal=True, method=method, rows=rows)
    assert (np.abs(dout.mid - all_out.mid[rows]) <= dout.rad + all_out.rad[rows]).all()


def test_many_keys_are_merged_from_tiles() -> None:
    q, k, v, g = drawn((2, 3), (1100, 3), (1100, 2), (2, 2))
    require_sound(scaled_dot_product_attention, q, 6 * k, v, is_causal=False)
    require_sound(scaled_dot_product_attention_vjp, q, 6 * k, v, None, g, is_causal=False)
    sorted_keys = k[np.argsort(k @ q[0])]
    require_sound(scaled_dot_product_attention, q, 6 * sorted_keys, v)


@pytest.mark.parametrize(("causal", "offset"), [("top_left", 0), ("bottom_right", 2)])
def test_causal_attention_is_attention_under_the_causal_mask(causal: Any, offset: int) -> None:
    q, k, v = drawn((2, 3, 2), (2, 5, 2), (2, 5, 1))
    options: dict[str, Any] = {"rows": [2, 0], "scale": 0.5, "conventions": Conventions(causal=causal)}
    mask = np.tri(3, 5, offset, dtype=bool)
    require_same(causal_attention(q, k, v, **options), scaled_dot_product_attention(q, k, v, mask, **options))


def test_grouped_heads_read_the_head_of_their_convention() -> None:
    q, k, v = drawn((4, 3, 2), (2, 5, 2), (2, 5, 2))
    for kv_heads, reads in (("repeat", [0, 0, 1, 1]), ("tile", [0, 1, 0, 1])):
        c = Conventions(kv_heads=kv_heads)  # type: ignore[arg-type]
        require_close(
            grouped_query_attention(q, k, v, conventions=c), scaled_dot_product_attention(q, k[reads], v[reads])
        )
        exact = scaled_dot_product_attention(q, k[reads], v[reads], method="arb")
        require_same(grouped_query_attention(q, k, v, conventions=c, method="arb"), exact)


def test_a_certificate_is_sharpened_where_one_number_per_row_does_not_do() -> None:
    """A huge value that has next to no weight; 600 × 600 scores are too many for ball arithmetic."""
    q, k, v = drawn((600, 2), (600, 2), (600, 2))
    q[:, 0], k[0], v[0] = 1.0, (-40.0, 0.0), 1e12
    found = scaled_dot_product_attention(q, k, v)
    assert found.judged
    assert found.rad.max() <= 1e-9


@pytest.mark.parametrize("kv_heads", ["repeat", "tile"])
def test_grouped_heads_have_masks_and_rows_of_their_own(kv_heads: Any) -> None:
    q, k, v = drawn((2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 2))
    blocked = np.random.default_rng(1).random((4, 3, 5)) < 0.4
    c = Conventions(kv_heads=kv_heads, mask_polarity="true_blocks")
    reads = [0, 0, 1, 1] if kv_heads == "repeat" else [0, 1, 0, 1]
    require_close(
        grouped_query_attention(q, k, v, blocked, rows=[2, 0], conventions=c),
        scaled_dot_product_attention(q, k[:, reads], v[:, reads], blocked, rows=[2, 0], conventions=c),
    )


def test_grouped_heads_without_queries_or_keys_are_legal() -> None:
    q, k, v = drawn((4, 3, 2), (2, 5, 2), (2, 5, 3))
    nan_rows = Conventions(dead_rows="nan")
    for method in ("fast", "arb"):
        assert grouped_query_attention(q[:, :0], k, v, method=method).mid.shape == (4, 0, 3)  # type: ignore[arg-type]
        out = grouped_query_attention(q, k[:, :0], v[:, :0], method=method)  # type: ignore[arg-type]
        assert (out.mid == 0).all()
        assert (out.rad == 0).all()
        given = {"method": method, "conventions": nan_rows}
        nan = grouped_query_attention(q, k[:, :0], v[:, :0], **given)  # type: ignore[arg-type]
        assert np.isnan(nan.mid).all()


def test_shared_heads_are_not_copied() -> None:
    q, k = np.zeros((64, 1, 1)), np.zeros((1, 1 << 16, 1))
    tracemalloc.start()
    grouped_query_attention(q, k, k)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 * k.nbytes / 2


def test_the_budget_of_an_arithmetic_finer_than_float64_does_not_judge() -> None:
    q, k, v = drawn((3, 2), (4, 2), (4, 2))
    extended = replace(FLOAT64, accumulate=2.0**-64, elementwise=replace(BINARY64, unit_roundoff=2.0**-64))
    for method in ("auto", "fast", "arb"):
        assert not scaled_dot_product_attention(q, k, v, arithmetic=extended, method=method).judged
        assert scaled_dot_product_attention(q, k, v, arithmetic=FLOAT64, method=method).judged


def test_a_budget_that_accepts_anything_is_vacuous() -> None:
    q, k, v, g = drawn((4, 8), (300, 8), (300, 2), (4, 2))
    narrow: Arithmetic = replace(FLOAT32, accumulate=BRAIN16.unit_roundoff, grad_accumulate=BRAIN16.unit_roundoff)
    q, k, v, g = (np.round(4 * x) / 4 for x in (q, k, v, g))
    assert scaled_dot_product_attention(q, k, v, arithmetic=narrow).vacuous
    assert all(x.vacuous for x in scaled_dot_product_attention_vjp(q, k, v, None, g, arithmetic=narrow))
    assert not scaled_dot_product_attention(q, k, v, arithmetic=FLOAT32).vacuous
    assert not any(x.vacuous for x in scaled_dot_product_attention_vjp(q, k, v, None, g, arithmetic=FLOAT32))
    assert not scaled_dot_product_attention(q[:, :0], k[:, :0], v, arithmetic=FLOAT32).vacuous
    assert not scaled_dot_product_attention(q, k[:1], v[:1], arithmetic=FLOAT32).vacuous


def test_a_budget_that_accepts_the_mean_is_vacuous_only_if_it_is_as_wide_as_the_values() -> None:
    k, v = (np.round(4 * x) / 4 for x in drawn((300, 8), (300, 2)))
    uniform = scaled_dot_product_attention(np.zeros((4, 8)), k, v, arithmetic=FLOAT32)
    assert uniform.contains(np.tile(v.mean(axis=0), (4, 1))).all()
    assert not uniform.vacuous


def test_a_row_that_is_nan_by_convention_does_not_hide_that_a_budget_is_vacuous() -> None:
    x, w = (np.round(4 * x) / 4 for x in drawn((3, 2), (2, 2)))
    narrow = replace(FLOAT32, accumulate=0.5)
    mask = np.array([[0, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    for dead_rows in ("zero", "nan"):
        c = Conventions(dead_rows=dead_rows)  # type: ignore[arg-type]
        assert multi_head_attention(x, w, w, w, w, 1, mask, arithmetic=narrow, conventions=c).vacuous
        assert not multi_head_attention(x, w, w, w, w, 1, mask, arithmetic=FLOAT32, conventions=c).vacuous
    all_dead = multi_head_attention(
        x, w, w, w, w, 1, mask & False, arithmetic=narrow, conventions=Conventions(dead_rows="nan")
    )
    assert not all_dead.vacuous


def test_scores_beyond_the_range_of_the_arithmetic_have_an_infinite_radius() -> None:
    q, k, v = np.array([[2.0**100], [0.0]]), np.array([[2.0**60], [2.0]]), np.array([[1.0], [2.0]])
    assert np.isinf(scaled_dot_product_attention(q, k, v, arithmetic="float32").rad).all(axis=1).tolist() == [
        True,
        False,
    ]
    assert np.isfinite(scaled_dot_product_attention(q, k, v).rad).all()


def test_auto_takes_ball_arithmetic_where_float64_cannot_tell() -> None:
    q, k, v = drawn((3, 2), (4, 2), (4, 2))
    q, k = 1e7 * q, 1e7 * k
    fast = scaled_dot_product_attention(q, k, v, method="fast")
    assert not fast.judged
    best = scaled_dot_product_attention(q, k, v)
    assert best.judged
    assert best.rad.max() < 1e-15
    wide = scaled_dot_product_attention(np.tile(q, (400, 1)), np.tile(k, (400, 1)), np.tile(v, (400, 1)))
    assert not wide.judged


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": np.zeros(4)}, ValueError, "q has shape (4,), but should be (…, n_q, d)."),
        ({"q": np.zeros((0, 4))}, ValueError, "q has shape (0, 4), but should have at least one row."),
        ({"k": np.zeros((3, 5))}, ValueError, "k has 5 columns, but should have 4 like q."),
        ({"v": np.zeros((2, 5))}, ValueError, "v has 2 rows, but should have 3 like k."),
        ({"k": np.zeros((1, 3, 4))}, ValueError, "k has leading axes (1,), but should have () like q."),
        ({"mask": np.zeros((2, 2), dtype=bool)}, ValueError, "mask has shape (2, 2), but should broadcast to (2, 3)."),
        ({"is_causal": 1}, TypeError, "is_causal has type int, but should be a bool."),
        ({"scale": "1"}, TypeError, "scale has type str, but should be a real number or None."),
        ({"scale": np.inf}, ValueError, "scale is not a finite float64 number, but should be."),
        *[
            (
                {"scale": x},
                ValueError,
                f"scale is only close to {float(x)}, but should be a float64 number: it is not rounded.",
            )
            for x in (2**53 + 1, Fraction(1, 3))
        ],
        ({"rows": np.array(0)}, ValueError, "rows has shape (), but should have one axis."),
        ({"rows": np.array([[0]])}, ValueError, "rows has shape (1, 1), but should have one axis."),
        ({"rows": 3}, TypeError, "rows has type int, but should be a sequence of integers or None."),
        ({"rows": [2]}, ValueError, "rows[0]=2, but should be at most 1."),
        ({"method": "slow"}, ValueError, "method='slow', but should be one of 'auto', 'fast', 'arb'."),
        ({"method": 1}, TypeError, "method has type int, but should be one of 'auto', 'fast', 'arb'."),
    ],
)
def test_bad_arguments_of_attention_are_refused_in_a_sentence(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    good: dict[str, Any] = {"q": np.zeros((2, 4)), "k": np.zeros((3, 4)), "v": np.zeros((3, 5))}
    with pytest.raises(error) as refusal:
        scaled_dot_product_attention(**(good | change))
    assert str(refusal.value) == message


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_of_other_operations_are_refused_in_a_sentence() -> None:
    q, k, v = np.zeros((2, 4)), np.zeros((3, 4)), np.zeros((3, 5))
    x, w, wo = np.zeros((3, 4)), np.zeros((4, 6)), np.zeros((6, 4))

    def refusal(operation: Callable[..., Any], *arguments: Any) -> str:
        with pytest.raises(ValueError, match="should") as refused:
            operation(*arguments)
        return str(refused.value)

    vjp, jvp = scaled_dot_product_attention_vjp, scaled_dot_product_attention_jvp
    assert refusal(vjp, q, k, v, None, q) == "grad_out has shape (2, 4), but should be (2, 5)."
    assert refusal(jvp, q, k, v, None, q, q, v) == "dk has shape (2, 4), but should be (3, 4)."
    heads = grouped_query_attention
    assert refusal(heads, q, k, v) == "q has shape (2, 4), but should be (…, H, n_q, d)."
    assert refusal(heads, q[None].repeat(3, 0), k[None].repeat(2, 0), v[None].repeat(2, 0)) == (
        "q has 3 heads, but should have a multiple of k's 2."
    )
    assert refusal(heads, q[None], k[None][:0], v[None][:0]) == "k has 0 heads, but should have at least one."
    assert refusal(heads, q[None], k[None], v[None].repeat(2, 0)) == "v has 2 heads, but should have 1 like k."
    mha = multi_head_attention
    assert refusal(mha, x, w, w, w, wo, 4) == "num_heads=4, but should divide the 6 columns of wq."
    assert refusal(mha, x[0], w, w, w, wo, 2) == "x has shape (4,), but should be (…, n, d_model) with n at least 1."
    assert refusal(mha, x, wo, w, w, wo, 2) == (
        "wq has shape (6, 4), but should be (4, num_heads·head_dim) as x has shape (3, 4)."
    )
    assert refusal(mha, x, w, wo, w, wo, 2) == "wk has shape (6, 4), but should be (4, 6) as wq has shape (4, 6)."
    assert refusal(hard_masked_softmax, np.zeros((2, 0))) == (
        "scores has shape (2, 0), but should have at least one entry in a row."
    )
    assert (
        refusal(hard_masked_softmax_vjp, x, None, x[0])
        == "grad_weights has shape (4,), but should be (3, 4) like scores."
    )
