"""Bad input is refused in a sentence that says what was given and what it should be, and nothing worse ever happens."""

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import oracles
from oracles import Conventions
from oracles.formats import PRESETS

pytestmark = pytest.mark.usefixtures("unchecked")

ONES, TABLE = np.ones((3, 4)), np.ones((3, 4))


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    return f"{caught.type.__name__}: {caught.value}"


FLOATS = "float16, bfloat16, float32, float64 or longdouble"
EVEN = Conventions(rope_pairing="half"), Conventions(odd_lane="reject")
PRESET_NAMES = ", ".join(preset.name for preset in PRESETS)
TENSOR2TENSOR = Conventions(sinusoid_layout="tensor2tensor")

SENTENCES: list[tuple[Callable[[], Any], str]] = [
    (lambda: oracles.causal_mask(2.0), "TypeError: n_q has type float, but should be an integer."),
    (lambda: oracles.causal_mask(-1), "ValueError: n_q=-1, but should be at least 0."),
    (lambda: oracles.causal_mask(2, True), "TypeError: n_k has type bool, but should be an integer."),
    (
        lambda: oracles.causal_mask(2**20, 2**20),
        "ValueError: n_q × n_k = 1048576 × 1048576, but should be at most 4294967296 entries.",
    ),
    (lambda: oracles.causal_mask(2, method="slow"), "ValueError: method='slow', but should be one of 'auto', 'fast', 'arb'."),
    (
        lambda: oracles.causal_mask(2, conventions="half"),
        "TypeError: conventions has type str, but should be an oracles.Conventions or None.",
    ),
    (
        lambda: oracles.causal_mask(2, arithmetic="float8"),
        f"ValueError: arithmetic='float8', but should be one of {PRESET_NAMES}, or an oracles.Arithmetic.",
    ),
    (lambda: oracles.sinusoidal_positional_encoding("3", 4), "TypeError: seq_len has type str, but should be an integer."),
    (lambda: oracles.sinusoidal_positional_encoding(3, -4), "ValueError: embed_dim=-4, but should be at least 0."),
    (lambda: oracles.sinusoidal_positional_encoding(0, 2**21), "ValueError: embed_dim=2097152, but should be at most 1048576."),
    (lambda: oracles.sinusoidal_positional_encoding(3, 4, -1), "ValueError: start_pos=-1, but should be at least 0."),
    (
        lambda: oracles.sinusoidal_positional_encoding(3, 4, 2**53),
        "ValueError: start_pos=9007199254740992, but should be at most 9007199254740989.",
    ),
    (
        lambda: oracles.sinusoidal_positional_encoding(2**30, 64),
        "ValueError: seq_len × embed_dim = 1073741824 × 64, but should be at most 2147483648 entries.",
    ),
    (
        lambda: oracles.sinusoidal_positional_encoding(3, 5, conventions=TENSOR2TENSOR),
        "ValueError: embed_dim=5, but should be even: sinusoid_layout='tensor2tensor'.",
    ),
    (
        lambda: oracles.multi_head_attention(np.ones((1, 2)), *[np.ones((2, 0))] * 3, np.ones((0, 2)), 10**9),
        "ValueError: num_heads=1000000000, but should be at most 1, as wq has no columns.",
    ),
    (lambda: oracles.add_positional_encoding([1.0], TABLE), "TypeError: x has type list, but should be an array."),
    (
        lambda: oracles.add_positional_encoding(np.ones(4), TABLE),
        "ValueError: x has shape (4,), but should have at least two axes: (…, seq_len, embed_dim).",
    ),
    (
        lambda: oracles.add_positional_encoding(ONES, np.ones((4, 3))),
        "ValueError: pos has shape (4, 3), but should be (3, 4), as x ends, or that of x.",
    ),
    (
        lambda: oracles.add_positional_encoding(ONES, TABLE.astype(int)),
        f"TypeError: pos has element type int64, but should be {FLOATS}.",
    ),
    (
        lambda: oracles.learned_positional_encoding(np.ones(3), 1),
        "ValueError: table has shape (3,), but should have two axes: (positions, embed_dim).",
    ),
    (
        lambda: oracles.learned_positional_encoding(TABLE, 3, 1),
        "ValueError: start_pos + seq_len = 1 + 3, but should be at most 3, the rows of the table.",
    ),
    (lambda: oracles.learned_positional_encoding(TABLE, 1, -1), "ValueError: start_pos=-1, but should be at least 0."),
    (lambda: oracles.rope(ONES * 1j), f"TypeError: x has element type complex128, but should be {FLOATS}."),
    (lambda: oracles.rope(ONES, 1.5), "TypeError: start_pos has type float, but should be an integer."),
    (lambda: oracles.rope(ONES, -1), "ValueError: start_pos=-1, but should be at least 0."),
    (
        lambda: oracles.rope(np.ones(4)),
        "ValueError: x has shape (4,), but should have at least two axes: (…, seq, head_dim).",
    ),
    (
        lambda: oracles.rope(np.ones((2, 3)), conventions=EVEN[0]),
        "ValueError: x has head_dim 3, but should have an even one: rope_pairing='half'.",
    ),
    (
        lambda: oracles.rope(np.ones((2, 3)), conventions=EVEN[1]),
        "ValueError: x has head_dim 3, but should have an even one: odd_lane='reject'.",
    ),
    (
        lambda: oracles.rope(ONES / 3, arithmetic="float32"),
        "ValueError: x[0, 0]=0.3333333333333333, but should be a binary32 number: inputs are not rounded.",
    ),
    (
        lambda: oracles.rope_vjp(ONES, np.ones((4, 4))),
        "ValueError: grad_out has shape (4, 4), but should be (3, 4), that of x.",
    ),
    (lambda: oracles.rope_vjp(ONES, None), "TypeError: grad_out has type NoneType, but should be an array."),
    (
        lambda: oracles.apply_rotary(ONES, np.ones((3, 2)), TABLE),
        "ValueError: cos has shape (3, 2), but should be (3, 4), as x ends.",
    ),
    (
        lambda: oracles.apply_rotary(ONES, TABLE, np.ones((2, 4))),
        "ValueError: sin has shape (2, 4), but should be (3, 4), as x ends.",
    ),
    (
        lambda: oracles.apply_rotary(ONES, TABLE, TABLE / 3, arithmetic="float16"),
        "ValueError: sin[0, 0]=0.3333333333333333, but should be a binary16 number: inputs are not rounded.",
    ),
    (
        lambda: oracles.apply_rotary_vjp(ONES, TABLE, TABLE, np.ones((3, 3))),
        "ValueError: grad_out has shape (3, 3), but should be (3, 4), that of x.",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), SENTENCES, ids=[sentence for _, sentence in SENTENCES])
def test_what_was_given_and_what_it_should_be_is_said(call: Callable[[], Any], sentence: str) -> None:
    assert refusal(call) == sentence


DTYPES = ["f8", "f4", "f2", "g", "?", "i8", "u1", "c16", "O", "U2", "M8[s]", "f8,i4", ">f8"]
ARRAYS = st.builds(
    lambda shape, dtype, value: np.full(shape, value).astype(dtype),
    st.lists(st.integers(0, 3), max_size=4).map(tuple),
    st.sampled_from(["f8", "f4"]) | st.sampled_from(DTYPES),
    st.sampled_from([0, 1, 2]),
).map(lambda x: x[::-1] if x.ndim else x)
TENSORS = st.builds(
    lambda shape, dtype: torch.ones(shape, dtype=dtype),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from([torch.float64, torch.bfloat16, torch.bool, torch.int8, torch.complex64]),
)
SPECIAL = st.builds(lambda value: np.full((2, 2), value), st.sampled_from([np.nan, np.inf, -np.inf, 1e308, 5e-324]))
PLAIN: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, 0, 1, 2, 3, -1, 2**53, 10**30, -(10**400), 0.5, float("nan"), float("inf"), 1j, "", "arb", "float32", b"x"]
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        *[[], [1.0], [[1.0]], (), {}, {1}, range(3), slice(0), object(), type, np.ndarray, lambda: 0, Ellipsis, memoryview(b"ab")],
        *[np.float64(1), np.int64(2), np.bool_(True), np.ma.ones((2, 2)), oracles.FLOAT32, EVEN[0], TENSOR2TENSOR],
        *[oracles.Enclosure(np.ones((2, 2)), np.ones((2, 2))), ValueError("x"), np.dtype("f8"), torch.ones(1, device="meta")],
    ]
)
MATRICES: st.SearchStrategy[Any] = st.builds(lambda rows, columns: np.ones((rows, columns)), st.integers(0, 4), st.integers(0, 4))
NONSENSE = st.one_of(MATRICES, ARRAYS, TENSORS, SPECIAL, PLAIN, ODD)
KEYWORDS = {
    "arithmetic": st.sampled_from([*("float64", "float32", "bfloat16"), oracles.TF32]) | NONSENSE,
    "conventions": st.sampled_from([Conventions(), *EVEN, Conventions(dead_rows="nan"), Conventions(mask_polarity="true_blocks")])
    | NONSENSE,
    "method": st.sampled_from(["auto", "fast", "arb"]) | NONSENSE,
    "scale": NONSENSE,
    "is_causal": st.booleans() | NONSENSE,
    "rows": st.lists(st.integers(-1, 3), max_size=3) | NONSENSE,
}
PUBLIC = [name for name in oracles.__all__ if inspect.isfunction(getattr(oracles, name))]


@pytest.mark.parametrize("name", PUBLIC)
@settings(max_examples=300, deadline=2000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_nonsense_is_refused_by_a_value_error_or_a_type_error(name: str, data: st.DataObject) -> None:
    function = getattr(oracles, name)
    parameters = inspect.signature(function).parameters.values()
    required = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    same = data.draw(st.none() | NONSENSE)
    arguments = [data.draw(NONSENSE) if same is None or data.draw(st.booleans()) else same for _ in required]
    named = {p.name: KEYWORDS.get(p.name, NONSENSE) for p in parameters if p.kind is p.KEYWORD_ONLY}
    keywords = data.draw(st.fixed_dictionaries({}, optional=named))
    allowed = (ValueError, TypeError, AssertionError) if name == "assert_within" else (ValueError, TypeError)
    with contextlib.suppress(*allowed):
        function(*arguments, **keywords)


@settings(max_examples=300, deadline=2000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(NONSENSE, min_size=3, max_size=3), st.fixed_dictionaries({}, optional={"format": NONSENSE, "rope_base": NONSENSE}))
def test_nonsense_in_what_is_constructed_is_refused_as_well(arguments: list[Any], keywords: dict[str, Any]) -> None:
    mid, rad, out = arguments
    calls = [
        lambda: oracles.Enclosure(mid, rad, format=keywords.get("format")),
        lambda: oracles.Enclosure(np.ones((2, 2)), np.ones((2, 2))).excess(out),
        lambda: oracles.Enclosure(np.ones((2, 2)), np.ones((2, 2))).contains(out),
        lambda: oracles.Enclosure(np.ones((2, 2)), np.ones((2, 2))).ulps(out),
        lambda: Conventions(**({"rope_base": keywords["rope_base"]} if "rope_base" in keywords else {"dead_rows": mid})),
    ]
    for call in calls:
        with contextlib.suppress(ValueError, TypeError):
            call()
