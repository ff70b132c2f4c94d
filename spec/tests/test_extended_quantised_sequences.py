"""Quantised packed and paged attention: each sequence gives what quantised attention gives on its own
codes, also where sequences share a page and have different scales; and the refusals.
"""

import re

import numpy as np
import pytest

from spec import ARB
from spec.extended.quantised import quantised_attention
from spec.extended.quantised_sequences import quantised_packed_attention, quantised_paged_attention

RANDOM = np.random.default_rng(0)
LENGTHS = [3, 0, 2]
TABLE = np.array([[1, 0], [9, -1], [1, 2**31 - 1]])
SLOTS = [[(1, 0), (1, 1), (0, 0)], [], [(1, 0), (1, 1)]]
SHAPES = ["tensor", "head", "token", "block"]


def scale_of(kind, codes, key_heads):
    shape = {
        "tensor": (),
        "head": (len(LENGTHS), key_heads),
        "token": codes.shape[:-1],
        "block": (*codes.shape[:-1], 2),
    }
    return RANDOM.integers(1, 9, shape[kind]) / 8


def of_sequence(scale, kind, b, slots, name):
    """The scale of sequence b, as `quantised_attention` takes it with heads first."""
    if kind == "tensor":
        return scale
    if kind == "head":
        return scale[b]
    rows = scale[b] if name == "q_scale" else np.array([scale[slot] for slot in slots]).reshape(-1, *scale.shape[2:])
    return rows.swapaxes(0, 1)


def alike(found, expected):
    assert found.shape == expected.shape
    assert all(x.overlaps(y) or x == y for x, y in zip(found.flat, expected.flat, strict=True))


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("fp8_scale", ["multiply", "divide"])
def test_a_sequence_in_pages_gives_what_its_codes_give(kind, fp8_scale):
    q, k, v = (RANDOM.integers(-8, 8, shape) for shape in ((3, 2, 4, 2), (2, 2, 2, 2), (2, 2, 2, 4)))
    q_scale, k_scale, v_scale = (scale_of(kind, x, 2) for x in (q, k, v))
    scales = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    out, lse = quantised_paged_attention(
        q, k, v, TABLE, LENGTHS, grid="INT4", scalar=ARB, causal=False, fp8_scale=fp8_scale, **scales
    )
    for b, slots in enumerate(SLOTS):
        rows = [np.array([x[slot] for slot in slots]).reshape(-1, *x.shape[2:]) for x in (k, v)]
        own = {name: of_sequence(scale, kind, b, slots, name) for name, scale in scales.items()}
        arrays = (np.swapaxes(x, 0, 1) for x in (q[b], *rows))
        expected = quantised_attention(*arrays, "INT4", causal=False, fp8_scale=fp8_scale, scalar=ARB, **own)
        alike(out[b], np.swapaxes(expected[0], 0, 1))
        alike(lse[b], expected[1])


@pytest.mark.parametrize("kind", SHAPES)
def test_a_packed_sequence_gives_what_its_codes_give(kind):
    q, k, v = (RANDOM.integers(-8, 8, shape) for shape in ((5, 4, 2), (6, 2, 2), (6, 2, 4)))
    scales = {f"{name}_scale": scale_of(kind, x, 2) for name, x in zip("qkv", (q, k, v), strict=True)}
    cu_q, cu_k = [0, 2, 3, 4], [0, 3, 3, 5]
    out, lse = quantised_packed_attention(q, k, v, cu_q, cu_k, grid="INT4", scalar=ARB, **scales)
    for b in range(3):
        rows, keys = slice(*cu_q[b : b + 2]), slice(*cu_k[b : b + 2])
        own = {}
        for name, scale in scales.items():
            of_rows = rows if name == "q_scale" else keys
            own[name] = scale if kind == "tensor" else scale[b] if kind == "head" else scale[of_rows].swapaxes(0, 1)
        arrays = (np.swapaxes(x, 0, 1) for x in (q[rows], k[keys], v[keys]))
        expected = quantised_attention(*arrays, "INT4", scalar=ARB, **own)
        alike(out[rows], np.swapaxes(expected[0], 0, 1))
        alike(lse[:, rows], expected[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k_scale": 0.0}, "scale=0.0, but should be a finite number above 0."),
        ({"grid": "E3M4"}, "grid='E3M4', but should be one of E4M3, E5M2, E2M1, INT8, INT4."),
        ({"fp8_scale": "times"}, "fp8_scale='times', but should be 'multiply' or 'divide'."),
    ],
)
def test_a_wrong_argument_is_refused(changes, message):
    ones = np.ones((1, 1, 1, 1))
    given = {"q": ones, "k_pages": ones, "v_pages": ones, "grid": "INT8", "k_scale": 1.0}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        quantised_paged_attention(**given | {"block_table": [[0]], "lengths": [1]} | changes, scalar=ARB)
