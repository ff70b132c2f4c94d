"""Quantised attention: against einsum, with a scale of each shape, and its refusals."""

import re

import ml_dtypes
import numpy as np
import pytest

from spec import ARB, REAL64
from spec.extended.attention import attention
from spec.extended.quantised import GRIDS, dequantised, quantised_attention

RANDOM = np.random.default_rng(0)
TYPES = {
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
    "E2M1": ml_dtypes.float4_e2m1fn,
    "INT8": np.int8,
    "INT4": ml_dtypes.int4,
}
SHAPES = {(): "tensor", (2, 3): "head", (2, 3, 4): "token", (2, 3, 4, 2): "block"}


@pytest.mark.parametrize("grid", GRIDS)
def test_a_grid_has_the_finite_numbers_of_its_type(grid):
    bits = 4 if grid in ("E2M1", "INT4") else 8
    codes = np.arange(2**bits, dtype=np.uint8).view(TYPES[grid]).astype(np.float64)
    assert GRIDS[grid] == set(codes[np.isfinite(codes)].tolist())


@pytest.mark.parametrize("shape", SHAPES, ids=SHAPES.get)
@pytest.mark.parametrize("fp8_scale", ["multiply", "divide"])
def test_a_scale_belongs_to_a_tensor_a_head_a_token_or_a_block(shape, fp8_scale):
    codes, scale = RANDOM.integers(-8, 8, (2, 3, 4, 6)).astype(np.int8), RANDOM.integers(1, 9, shape) / 8
    each = np.repeat(scale, 3, -1) if len(shape) == 4 else np.reshape(scale, (*shape, *[1] * (4 - len(shape))))
    wanted = codes * each if fp8_scale == "multiply" else codes / each
    assert (dequantised(codes, scale, "INT4", fp8_scale, scalar=REAL64) == wanted).all()


def test_a_query_head_has_the_scale_of_its_key_head():
    q, kv = np.ones((1, 4, 1, 1)), np.ones((1, 2, 3, 1))
    scales = np.array([[2.0, 8.0]])
    out, lse = quantised_attention(q, kv, kv, "E4M3", q_scale=scales, scale=1.0, scalar=REAL64)
    assert np.allclose(lse[0, :, 0], np.log(3) + np.array([2, 2, 8, 8]), rtol=1e-15)
    assert out.tolist() == [[[[1.0]]] * 4]


def test_the_result_is_attention_of_the_numbers():
    q, k, v = (RANDOM.choice(sorted(GRIDS["E4M3"]), (2, 3, 4)).astype(TYPES["E4M3"]) for _ in range(3))
    scales = {f"{name}_scale": np.float32(2.0**-9 * RANDOM.uniform(1, 2, (2, 3))) for name in "qkv"}
    numbers = (x.astype(float) * scales[f"{name}_scale"][..., None] for name, x in zip("qkv", (q, k, v), strict=True))
    found = quantised_attention(q, k, v, "E4M3", causal=True, scalar=ARB, **scales)
    wanted = attention(*numbers, causal=True, scalar=ARB)
    for one, other in zip(found, wanted, strict=True):
        assert all(x.overlaps(y) and x.rad() < 1e-9 for x, y in zip(one.flat, other.flat, strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": "E3M4"}, "grid='E3M4', but should be one of E4M3, E5M2, E2M1, INT8, INT4."),
        ({"fp8_scale": "times"}, "fp8_scale='times', but should be 'multiply' or 'divide'."),
        ({"codes": np.full((1, 1, 1), 2.5)}, "codes[0, 0, 0]=2.5, but should be a number of INT8."),
        ({"codes": np.full((1, 1, 1), 128.0)}, "codes[0, 0, 0]=128.0, but should be a number of INT8."),
        ({"codes": np.full((1, 1, 1), np.nan)}, "codes[0, 0, 0]=nan, but should be a number of INT8."),
        ({"scale": 0.0}, "scale=0.0, but should be a finite number above 0."),
        ({"scale": -1.0}, "scale=-1.0, but should be a finite number above 0."),
        ({"scale": np.nan}, "scale=nan, but should be a finite number above 0."),
        ({"scale": np.inf}, "scale=inf, but should be a finite number above 0."),
        (
            {"scale": np.ones(2)},
            "scale has shape (2,), but should be (), (1,), (1, 1), or (1, 1) and blocks that divide 1.",
        ),
    ],
)
def test_a_wrong_argument_is_refused(changes, message):
    given = {"codes": np.ones((1, 1, 1)), "scale": 1.0, "grid": "INT8"} | changes
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dequantised(**given, scalar=REAL64)
