"""Quantised codes in packed sequences and in pages: the definition lies within the radius. Each
sequence has the budgets of attention. Unused scales are not read, and wrong shapes are refused.
"""

import re

import flint
import numpy as np
import pytest

import oracles
from oracles import Conventions
from oracles.tests.test_packed import meets
from spec import ARB
from spec.extended.quantised_sequences import quantised_packed_attention, quantised_paged_attention

LENGTHS, QUERIES = [5, 0, 4, 1], [2, 1, 0, 3]
CU_Q, CU_K = np.array([0, 2, 3, 3, 6]), np.array([0, 5, 5, 9, 10])
TABLE = np.array([[1, 0, 3], [-1, 9, 0], [1, 2, 9], [3, -1, 0]], np.int32)
KINDS = ["tensor", "head", "token", "block"]


def codes(*shape, seed=0):
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.int8)


def scales(*shape, seed=0):
    return np.float32(2.0 ** np.random.default_rng(seed).uniform(-4, 1, shape))


def scales_of(kind, arrays, key_heads=2):
    """A scale of this kind for each array (…, H, d)."""
    shapes = {
        "tensor": lambda x: (),
        "head": lambda x: (len(LENGTHS), key_heads),
        "token": lambda x: x.shape[:-1],
        "block": lambda x: (*x.shape[:-1], 2),
    }
    return {f"{name[0]}_scale": scales(*shapes[kind](x), seed=len(name)) for name, x in arrays.items()}


def packed(kind):
    """Four sequences with a row behind the last one on each side, which is poisoned."""
    arrays = {"q": codes(7, 4, 4), "k": codes(11, 2, 4, seed=1), "v": codes(11, 2, 6, seed=2)}
    given = scales_of(kind, arrays)
    for name in given:
        if kind in ("token", "block"):
            given[name][-1] = np.nan
    return arrays | {"cu_q": CU_Q, "cu_k": CU_K} | given


def paged(kind, *, batch=False):
    """Sequences 0 and 2 share page 1; page 2 is full and page 3 is shared; unused slots are poisoned."""
    q = codes(4, 2, 4, 4) if batch else codes(6, 4, 4)
    arrays = {"q": q, "k_pages": codes(5, 2, 2, 4, seed=1), "v_pages": codes(5, 2, 2, 6, seed=2)}
    given = scales_of(kind, arrays)
    if kind in ("token", "block"):
        for name in ("k_scale", "v_scale"):
            given[name][3, 1] = given[name][4] = np.nan
    ragged = {} if batch else {"cu_q": CU_Q}
    return arrays | {"block_table": TABLE, "lengths": np.array(LENGTHS)} | ragged | given


CASES = [
    *((oracles.packed_attention, quantised_packed_attention, kind, packed(kind)) for kind in KINDS),
    *((oracles.paged_attention, quantised_paged_attention, kind, paged(kind)) for kind in KINDS),
    *((oracles.paged_attention, quantised_paged_attention, kind, paged(kind, batch=True)) for kind in KINDS),
]


@pytest.mark.parametrize(("oracle", "defined", "kind", "case"), CASES)
@pytest.mark.parametrize("convention", ["multiply", "divide"])
def test_the_definition_is_enclosed(oracle, defined, kind, case, convention):
    conventions = Conventions(fp8_scale=convention, causal="bottom_right")
    found = oracle(**case, causal=True, conventions=conventions)
    with flint.ctx.workprec(113):
        expected = defined(**case, grid="INT8", causal=True, fp8_scale=convention, scalar=ARB)
    for enclosure, exact in zip(found, expected, strict=True):
        assert enclosure.mid.shape == exact.shape
        assert meets(enclosure, exact)
        assert (enclosure.rad[np.isfinite(enclosure.rad)] < 1e-8).all()


def of_sequence(case, kind, b):
    """The arrays of sequence b with heads first, and its scales, as `oracles.attention` takes them."""
    sides = {"q": slice(CU_Q[b], CU_Q[b + 1]), "k": slice(CU_K[b], CU_K[b + 1]), "v": slice(CU_K[b], CU_K[b + 1])}
    arrays = {name: np.swapaxes(case[name][rows], 0, 1) for name, rows in sides.items()}
    choose = {
        "tensor": lambda scale, rows: scale,
        "head": lambda scale, rows: scale[b],
        "token": lambda scale, rows: np.swapaxes(scale[rows], 0, 1),
        "block": lambda scale, rows: np.swapaxes(scale[rows], 0, 1),
    }[kind]
    return arrays | {f"{name}_scale": choose(case[f"{name}_scale"], rows) for name, rows in sides.items()}


@pytest.mark.parametrize("tiled", ["repeat", "tile"])
@pytest.mark.parametrize("kind", KINDS)
def test_budgets_are_those_of_attention_on_each_sequence(kind, tiled):
    conventions, case = Conventions(causal="bottom_right", kv_heads=tiled), packed(kind)
    options = {"causal": True, "arithmetic": "bfloat16-int8", "conventions": conventions}
    found = oracles.packed_attention(**case, **options)
    for b in range(len(LENGTHS)):
        expected = oracles.attention(**of_sequence(case, kind, b), **options)
        rows = slice(CU_Q[b], CU_Q[b + 1])
        for mine, other in zip(
            (found[0].mid[rows], found[0].rad[rows]), (expected[0].mid, expected[0].rad), strict=True
        ):
            assert np.array_equal(mine, np.swapaxes(other, 0, 1))
        assert np.array_equal(found[1].rad[:, rows], expected[1].rad)


@pytest.mark.parametrize("kind", KINDS)
def test_scales_follow_the_layout_of_pages(kind):
    case, turned = paged(kind), paged(kind)
    for name in ("k_pages", "v_pages", *(("k_scale", "v_scale") if kind in ("token", "block") else ())):
        turned[name] = np.swapaxes(case[name], 1, 2)
    expected = oracles.paged_attention(**case)
    found = oracles.paged_attention(**turned, conventions=Conventions(page_layout="heads_first"))
    for mine, other in zip(found, expected, strict=True):
        assert np.array_equal(mine.mid, other.mid)
        assert np.array_equal(mine.rad, other.rad)


SEEN = np.ones((5, 2, 2), np.float32)
SEEN[1, 0, 0] = 0.0
REFUSED = {
    "k_scale has shape (5, 2), but should be (), (4, 2), (5, 2, 2), or (5, 2, 2) and blocks that divide 4.": (
        oracles.paged_attention,
        paged("head") | {"k_scale": np.ones((5, 2), np.float32)},
    ),
    "v_scale has shape (5, 2, 2, 4), but should be (), (4, 2), (5, 2, 2), or (5, 2, 2) and blocks that divide 6.": (
        oracles.paged_attention,
        paged("head") | {"v_scale": np.ones((5, 2, 2, 4), np.float32)},
    ),
    "q_scale has shape (8, 4), but should be (), (4, 2), (4, 2, 4), or (4, 2, 4) and blocks that divide 4.": (
        oracles.paged_attention,
        paged("head", batch=True) | {"q_scale": np.ones((8, 4), np.float32)},
    ),
    "q_scale has shape (4, 4), but should be (), (4, 2), (7, 4), or (7, 4) and blocks that divide 4.": (
        oracles.packed_attention,
        packed("head") | {"q_scale": np.ones((4, 4), np.float32)},
    ),
    "k_scale has a number that is NaN, infinite or at most 0, but scales should be above 0.": (
        oracles.paged_attention,
        paged("token") | {"k_scale": SEEN},
    ),
    "v_scale=0.1, but should be a binary32 number: inputs are not rounded.": (
        oracles.packed_attention,
        packed("head") | {"v_scale": 0.1},
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_scale_is_refused_with_a_sentence(sentence):
    oracle, case = REFUSED[sentence]
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        oracle(**case)


def test_a_scale_with_the_shape_of_heads_and_of_rows_is_per_head():
    """Two sequences with 0 and 2 rows: the rows of the second one have its scale, not scales of their own."""
    arrays = {name: np.ones((2, 1, 1)) for name in "qkv"}
    out, _ = oracles.packed_attention(
        **arrays, cu_q=np.array([0, 0, 2]), cu_k=np.array([0, 0, 2]), v_scale=np.array([[3.0], [5.0]])
    )
    assert out.mid.ravel().tolist() == [5.0, 5.0]


def test_the_gradient_takes_no_scales():
    case = packed("tensor")
    with pytest.raises(TypeError, match=r"has no option 'q_scale'"):
        oracles.packed_attention_vjp(*(case[name] for name in ("q", "k", "v", "cu_q", "cu_k")), case["q"], q_scale=1.0)
