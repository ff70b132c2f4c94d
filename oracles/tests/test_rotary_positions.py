"""RoPE at given positions and frequencies: enclosed as the definition says, within budget of
kernels, narrow at far positions.
"""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from flint import arb, ctx
from hypothesis import given, settings

import oracles
from oracles import FLOAT32, Conventions, Enclosure
from oracles.arb_matrix import working_precision
from oracles.ball import Array
from oracles.rotary.angles import Angles, _axes
from oracles.tests.test_generalised_attention import require_encloses
from spec import context
from spec.extended.rotary import rope as literal

FAR = st.one_of(st.integers(-50, 50), st.sampled_from([0, 2**31 - 1, -(2**31), 2**20, 2**53, -(2**53)]))


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, dict[str, Any], dict[str, Any]]:
    """An array, what the definition and the oracle are given alike, and conventions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.sampled_from([(3,), (2, 3), (2, 2, 2), (1, 0), (0, 2)]))
    pairs = draw(st.integers(0, 4))
    rotary_dim, dim = 2 * pairs, 2 * pairs + draw(st.sampled_from([0, 1, 2]))
    by: dict[str, Any] = {"rotary_dim": rotary_dim, "attention_factor": draw(st.sampled_from([1.0, 1.19, -0.5, 0.0]))}
    named = {
        "rope_pairing": draw(st.sampled_from(["adjacent", "half"])),
        "mrope": draw(st.sampled_from(["sectioned", "interleaved"])),
    }
    if draw(st.booleans()):
        by["inv_freq"] = rng.choice([0.0, 1.0, 0.25, -0.3, 7.1, 1e-5, 3e4], pairs)
    shape = draw(st.sampled_from([rows, rows[-1:], (*rows[:-1], 1), (1,)]))
    if draw(st.booleans()):
        h = draw(st.integers(0, pairs // 3))
        by["sections"] = (pairs - 2 * h, h, h)
        shape = (3, *shape)
    elif draw(st.booleans()):
        by["start_pos"], shape = draw(st.sampled_from([0, 5, 2**31])), None
    if shape is not None:
        by["positions"] = np.array([draw(FAR) for _ in range(int(np.prod(shape)))], dtype=np.int64).reshape(shape)
    return rng.uniform(-2, 2, (*rows, dim)), by, named


@settings(max_examples=80)
@given(problem=problems())
def test_the_definition_is_enclosed(problem: tuple[Array, dict[str, Any], dict[str, Any]]) -> None:
    """Rotation at −p is its adjoint, and so the definition of the gradient too."""
    x, by, named = problem
    back = dict(by)
    if "positions" in by:
        back["positions"] = -by["positions"]
    else:
        back["positions"] = -np.broadcast_to(by.pop("start_pos", 0) + np.arange(x.shape[-2]), x.shape[:-1])
        back.pop("start_pos", None)
        by["start_pos"] = -int(back["positions"].max(initial=-(2**53))) if x.size else 0
        if x.size == 0:
            back["positions"] = np.zeros(1, dtype=np.int64)
    for method in ("fast", "arb", "auto"):
        found = oracles.rope(x, **by, conventions=Conventions(**named), method=method)
        gradient = oracles.rope_vjp(x, x, **by, conventions=Conventions(**named), method=method)
        with working_precision(300):
            require_encloses(found, literal(x, **by, **named, scalar=context.ARB))
            require_encloses(gradient, literal(x, **back, **named, scalar=context.ARB))
        if method == "auto":
            assert found.judged
            assert (found.rad <= 1e-12).all()
    assert oracles.rope(x, **by, conventions=Conventions(**named), arithmetic="float64").contains(found.mid).all()


def test_positions_to_2_31_are_narrow_in_float64_and_to_2_53_by_balls() -> None:
    x = np.ones((2, 128))
    for far, bound in ((2**31, 2.0**-40), (2**40, 2.0**-20)):
        assert (oracles.rope(x, positions=np.array([far, far - 1]), method="fast").rad < bound).all()
    assert (oracles.rope(x, positions=np.array([2**53, 1 - 2**53])).rad < 2.0**-51).all()
    assert oracles.rope(x, positions=np.array([2**53, 1 - 2**53])).judged


def test_positions_by_the_row_are_positions_counted() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (2, 3, 4, 8))
    plain = oracles.rope(x, 7)
    same = oracles.rope(x, positions=np.arange(7, 11))
    assert (plain.mid == same.mid).all()
    assert (plain.rad == same.rad).all()
    ragged = np.array([[0, 1, 2, 3], [9, 8, 7, 100]])[:, None]
    found = oracles.rope(x, positions=ragged)
    for b in range(2):
        for i, p in enumerate(ragged[b, 0].tolist()):
            alone = oracles.rope(x[b, :, i : i + 1], p)
            assert (np.abs(found.mid[b, :, i : i + 1] - alone.mid) <= found.rad[b, :, i : i + 1] + alone.rad).all()


def test_the_radius_of_given_frequencies_is_that_of_angles() -> None:
    """|p|·rad at a position p, and what is wider than binary32's spacing is not judged."""
    x, f = np.ones((1, 2)), np.array([1e-3])
    for p in (1, 1000, -(10**6)):
        exact = oracles.rope(x, positions=np.array([p]), inv_freq=f)
        wide = oracles.rope(x, positions=np.array([p]), inv_freq=Enclosure(f, np.array([1e-9])))
        ends = [
            oracles.rope(x, positions=np.array([p]), inv_freq=np.array([g])) for g in (1e-3 + 9.99e-10, 1e-3 - 9.99e-10)
        ]
        assert all((np.abs(end.mid - wide.mid) <= wide.rad).all() for end in ends)
        assert (wide.rad <= (1 + 1e-6) * 2 * abs(p) * 1e-9 + 1e-12).all()
        assert (exact.rad < 1e-14).all()
    assert not wide.judged
    assert exact.judged
    exactly = oracles.rope(x, positions=np.array([10**6]), inv_freq=Enclosure(f, np.array([1e-9])), method="arb")
    assert (np.abs(exactly.rad - 2e-3) < 1e-3).all()


# -- Kernels in the arithmetic that a budget is for ------------------------------------------------


def rotated(x: Any, cos: Any, sin: Any, half: int) -> Any:
    """By halves, as in transformers, with the channels that pass."""
    turning, passing = x[..., : 2 * half], x[..., 2 * half :]
    quarter = torch.cat([-turning[..., half:], turning[..., :half]], -1)
    return torch.cat([turning * cos + quarter * sin, passing], -1)


@pytest.mark.parametrize(
    ("name", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float64", torch.float64)]
)
@pytest.mark.parametrize("where", ["tables", "rounded tables", "operands"])
def test_kernels_with_yarn_s_frequencies_and_factor_are_within_their_budget(
    name: str, dtype: torch.dtype, where: str
) -> None:
    """The attention factor multiplies the tables, before or after these are rounded to x's format,
    or what they rotate.
    """
    real = torch.float64 if dtype is torch.float64 else torch.float32
    model: dict[str, Any] = {"factor": 40.0, "original_max_position_embeddings": 4096}
    f, factor = oracles.rotary_frequencies("yarn", 48, arithmetic=name, **model)
    given, scale = torch.tensor(f.mid).to(real), float(factor.mid)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 64, 64, generator=g, dtype=torch.float64).to(dtype)
    for start in (0, 4000, 10**6):
        positions = torch.arange(start, start + 64)
        angles = torch.cat([positions.to(real)[:, None] * given] * 2, -1)
        cos, sin = angles.cos(), angles.sin()
        if where == "tables":
            out = rotated(x, (cos * scale).to(dtype), (sin * scale).to(dtype), 24)
        elif where == "rounded tables":
            out = rotated(x, cos.to(dtype) * scale, sin.to(dtype) * scale, 24)
        else:
            out = rotated(x, cos.to(dtype), sin.to(dtype), 24)
            out[..., :48] *= scale
        by = {
            "inv_freq": f,
            "attention_factor": factor,
            "rotary_dim": 48,
            "conventions": Conventions(rope_pairing="half"),
        }
        eager = "bfloat16-elementwise" if dtype is torch.bfloat16 else name  # each operation rounds to x's format
        budget = oracles.rope(x, positions=positions.numpy(), arithmetic=eager, **by)
        assert budget.contains(out).all(), float(budget.excess(out).max())
        twice = rotated(x, (cos * scale * scale).to(dtype), (sin * scale * scale).to(dtype), 24)
        assert not budget.contains(twice).all()


def test_an_array_of_frequencies_is_rounded_only_where_it_is_not_the_kernel_s_own() -> None:
    x, p = np.ones((1, 2)), np.array([2**16])
    held, other = np.array([np.float32(0.1)], dtype=np.float64), np.array([0.1])
    own = oracles.rope(x, positions=p, inv_freq=held, arithmetic=FLOAT32).rad
    taken = oracles.rope(x, positions=p, inv_freq=other, arithmetic=FLOAT32).rad
    assert (taken - own > 0.9 * 2**16 * 0.1 * 2.0**-24).all()
    out = torch.tensor([[1.0, 1.0]])
    theta = torch.tensor(float(p[0])) * torch.tensor(0.1)
    out = torch.stack([theta.cos() - theta.sin(), theta.cos() + theta.sin()])[None]
    assert oracles.rope(x, positions=p, inv_freq=other, arithmetic=FLOAT32).contains(out).all()
    within = Enclosure(other, np.array([2e-9]), format=oracles.BINARY32)
    assert oracles.rope(x, positions=p, inv_freq=within, arithmetic=FLOAT32).contains(out).all()


def test_a_factor_takes_two_roundings() -> None:
    """A kernel whose cosine, factor and product are all rounded upwards, at an angle that is exact."""
    exact = replace(FLOAT32, trig_absolute=0.0)
    for factor, roundings, inside in ((1.1, 3, True), (1.1, 3.1, False), (1.0, 1, True), (1.0, 1.1, False)):
        out = np.full((1, 2), np.cos(0.5) * factor * np.exp(0.999 * roundings * 2.0**-24))
        cos, _ = oracles.rotary_tables(np.array([1]), np.array([0.5]), factor, arithmetic=exact)
        assert cos.contains(out).all() == inside


def test_ball_arithmetic_stops_where_a_radius_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, exactly = [], Angles.exactly

    def noted(self: Angles, length: int) -> Any:
        seen.append(ctx.prec)
        return exactly(self, length)

    monkeypatch.setattr(Angles, "exactly", noted)
    oracles.rope(np.ones((1, 2)), 3, inv_freq=Enclosure(np.array([0.3]), np.array([1e-9])), method="arb")
    assert seen == [113, 226]


def test_binary32_loses_a_thousandth_where_its_angles_do() -> None:
    """The angle of pair 0 is exact to 2²⁴; that of the next is off by u·p·f at most some roundings."""
    x = np.ones((1, 128))
    f, _ = oracles.rotary_frequencies("default", 128, arithmetic="float32")
    widths = [
        float(oracles.rope(x, positions=np.array([p]), inv_freq=f, arithmetic="float32").rad.max())
        for p in (100, 10**4, 10**6)
    ]
    assert widths[0] < 1e-3 < widths[1] < widths[2]


# -- Tables ----------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(problem=problems(), method=st.sampled_from(["fast", "arb"]))
def test_tables_contain_cosines_and_sines(problem: tuple[Array, dict[str, Any], dict[str, Any]], method: Any) -> None:
    _, by, named = problem
    if "positions" not in by or "inv_freq" not in by:
        return
    positions, f, factor, sections = (
        by.get(name) for name in ("positions", "inv_freq", "attention_factor", "sections")
    )
    reading = Conventions(**named)
    rows, pairs = positions.shape if sections is None else positions.shape[1:], len(f)
    tables = oracles.rotary_tables(positions, f, factor, sections, conventions=reading, method=method)
    axes = [0] * pairs if sections is None else _axes(pairs, sections, reading.mrope)
    along = positions[None] if sections is None else positions
    with working_precision(300):
        for table, function in zip(tables, (arb.cos, arb.sin), strict=True):
            assert table.mid.shape == (*rows, 2 * pairs)
            expected = np.empty(table.mid.shape, dtype=object)
            for index in np.ndindex(*table.mid.shape):
                i = index[-1] % pairs if named["rope_pairing"] == "half" else index[-1] // 2
                expected[index] = arb(factor) * function(arb(int(along[axes[i]][index[:-1]])) * arb(float(f[i])))
            require_encloses(table, expected)


def test_a_radius_of_frequencies_counts_by_the_position_and_not_by_the_farthest_of_its_neighbours() -> None:
    inv_freq, _ = oracles.rotary_frequencies("default", 8, arithmetic="float32")
    near, far = np.array([1, 2]), np.array([1, 2, 2**30])
    for alone, beside in zip(
        *(oracles.rotary_tables(p, inv_freq, arithmetic="float32") for p in (near, far)), strict=True
    ):
        assert (beside.rad[:2] == alone.rad).all()
        assert (beside.rad[2] > 1000 * alone.rad[0])[2:].all()


def test_tables_are_those_of_every_position_and_fit_rope() -> None:
    f = oracles.inv_freq(16)
    for pairing in ("adjacent", "half"):
        reading = Conventions(rope_pairing=pairing)
        for name in (None, "float32"):
            known = oracles.rope_tables(50, 16, conventions=reading, arithmetic=name)
            given = oracles.rotary_tables(np.arange(50), f, conventions=reading, arithmetic=name)
            for a, b in zip(known, given, strict=True):
                assert (np.abs(a.mid - b.mid) <= a.rad + b.rad).all()
                assert (b.rad <= 2 * a.rad + 1e-14).all()
    cos, sin = oracles.rotary_tables(np.array([[0, 3]]), f, 1.5)
    assert cos.mid.shape == (1, 2, 16)
    assert (cos.mid[0, 0] == 1.5).all()
    assert (sin.mid[0, 0] == 0).all()


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"positions": np.arange(3.0)}, TypeError, "positions have element type float64, but should be integers."),
    ({"positions": np.arange(4)}, ValueError, "positions have shape (4,), but should broadcast to (2, 3)."),
    (
        {"positions": np.array([0, 1, 2**53 + 1])},
        ValueError,
        "positions[2]=9007199254740993, but should be within ±2**53.",
    ),
    (
        {"positions": np.arange(3), "start_pos": 2},
        ValueError,
        "positions and start_pos=2 are given, but should not both be: add start_pos to the positions.",
    ),
    (
        {"positions": np.zeros((2, 3), int), "sections": (2, 1, 1)},
        ValueError,
        "positions have shape (2, 3), but should have an axis of 3 in front, one entry for each section.",
    ),
    ({"sections": (2, 1, 0)}, ValueError, "sections=(2, 1, 0) have 3 pairs, but should have 4."),
    ({"sections": 4}, TypeError, "sections have type int, but should be a tuple of pairs of time, height and width."),
    (
        {"sections": (4,)},
        ValueError,
        "sections have 1 numbers, but should have three (time, height and width) or two (height and width).",
    ),
    ({"rotary_dim": 3}, ValueError, "rotary_dim=3, but should be even: channels rotate in pairs."),
    ({"rotary_dim": 10}, ValueError, "rotary_dim=10, but should be at most 8."),
    (
        {"inv_freq": np.ones(3)},
        ValueError,
        "inv_freq has shape (3,), but should be (4,): one for each pair of 8 channels.",
    ),
    ({"inv_freq": np.array([1, np.nan, 1, 1])}, ValueError, "inv_freq is not finite everywhere, but should be."),
    ({"attention_factor": np.inf}, ValueError, "attention_factor is not a finite float64 number, but should be."),
    (
        {"attention_factor": Enclosure(np.ones(2), np.ones(2))},
        ValueError,
        "attention_factor is an enclosure of shape (2,), but should be of one finite number, shape ().",
    ),
]


@pytest.mark.parametrize(("by", "error", "sentence"), REFUSED, ids=[sentence[:40] for *_, sentence in REFUSED])
def test_what_makes_no_sense_is_refused(by: dict[str, Any], error: type[Exception], sentence: str) -> None:
    x = np.ones((2, 3, 8))
    with pytest.raises(error) as refusal:
        oracles.rope(x, **by)
    assert str(refusal.value) == sentence
    with pytest.raises(error) as refusal:
        oracles.rope_vjp(x, x, **by)
    assert str(refusal.value) == sentence


def test_an_odd_width_is_refused_where_pairs_are_given() -> None:
    for by in ({"inv_freq": np.ones(1)}, {"sections": (1, 0, 0)}, {"attention_factor": 2.0}):
        with pytest.raises(ValueError, match=r"^head_dim=3, but should be even: channels rotate in pairs\.$"):
            oracles.rope(np.ones((1, 3)), **by)
    assert (
        oracles.rope(np.ones((1, 3)), positions=np.array([5])).mid.tolist()
        == oracles.rope(np.ones((1, 3)), 5).mid.tolist()
    )
