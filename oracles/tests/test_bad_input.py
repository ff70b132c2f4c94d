"""Bad input is refused in a sentence that says what was given and what it should be, and nothing worse ever happens."""

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import oracles
from oracles import Conventions
from oracles.formats import PRESETS
from oracles.rotary import frequencies

pytestmark = pytest.mark.usefixtures("unchecked")

ONES, TABLE, EMPTY = np.ones((3, 4)), np.ones((3, 4)), np.ones((2, 0))


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
        lambda: oracles.causal_mask(0, 2**53),
        "ValueError: n_k=9007199254740992, but should be at most 268435456.",
    ),
    (
        lambda: oracles.causal_mask(2**20, 2**20),
        "ValueError: n_q × n_k = 1048576 × 1048576, but should be at most 268435456 entries.",
    ),
    (
        lambda: oracles.causal_mask(2, method="slow"),
        "ValueError: method='slow', but should be one of 'auto', 'fast', 'arb'.",
    ),
    (
        lambda: oracles.causal_mask(2, conventions="half"),
        "TypeError: conventions has type str, but should be an oracles.Conventions or None.",
    ),
    (
        lambda: oracles.causal_mask(2, arithmetic="float8"),
        f"ValueError: arithmetic='float8', but should be one of {PRESET_NAMES}, or an oracles.Arithmetic. "
        "Did you mean 'float64'?",
    ),
    (
        lambda: oracles.sinusoidal_positional_encoding("3", 4),
        "TypeError: seq_len has type str, but should be an integer.",
    ),
    (lambda: oracles.sinusoidal_positional_encoding(3, -4), "ValueError: embed_dim=-4, but should be at least 0."),
    (
        lambda: oracles.sinusoidal_positional_encoding(0, 2**21),
        "ValueError: embed_dim=2097152, but should be at most 1048576.",
    ),
    (lambda: oracles.sinusoidal_positional_encoding(3, 4, -1), "ValueError: start_pos=-1, but should be at least 0."),
    (
        lambda: oracles.sinusoidal_positional_encoding(3, 4, 2**53),
        "ValueError: start_pos=9007199254740992, but should be at most 9007199254740989.",
    ),
    (
        lambda: oracles.sinusoidal_positional_encoding(2**30, 64),
        "ValueError: seq_len × embed_dim = 1073741824 × 64, but should be at most 268435456 entries.",
    ),
    (
        lambda: oracles.sinusoidal_positional_encoding(0, 5, conventions=TENSOR2TENSOR),
        "ValueError: embed_dim=5, but should be even: sinusoid_layout='tensor2tensor'.",
    ),
    (
        lambda: oracles.sinusoidal_positional_encoding(3, 2, conventions=TENSOR2TENSOR),
        "ValueError: embed_dim=2, but should be 0 or at least 4: "
        "sinusoid_layout='tensor2tensor' divides by embed_dim/2 − 1.",
    ),
    (
        lambda: oracles.tensor2tensor_sinusoidal(0, 2),
        "ValueError: embed_dim=2, but should be 0 or at least 4: "
        "sinusoid_layout='tensor2tensor' divides by embed_dim/2 − 1.",
    ),
    (
        lambda: oracles.tensor2tensor_sinusoidal(3, 7),
        "ValueError: embed_dim=7, but should be even: sinusoid_layout='tensor2tensor'.",
    ),
    (
        lambda: oracles.tensor2tensor_sinusoidal(3, 4, conventions="tensor2tensor"),
        "TypeError: conventions has type str, but should be an oracles.Conventions or None.",
    ),
    (lambda: oracles.padding_mask(3, 4), "TypeError: lengths has type int, but should be an array."),
    (lambda: oracles.padding_mask("33", 4), "TypeError: lengths has type str, but should be an array."),
    (
        lambda: oracles.padding_mask(np.ones(2), 4),
        "TypeError: lengths has element type float64, but should be an integer one.",
    ),
    (lambda: oracles.padding_mask([1, 2.0], 4), "TypeError: lengths[1] has type float, but should be an integer."),
    (lambda: oracles.padding_mask([1, 5], 4), "ValueError: lengths[1]=5, but should be at most 4."),
    (lambda: oracles.padding_mask(np.array([-1, 2]), 4), "ValueError: lengths[0]=-1, but should be at least 0."),
    (lambda: oracles.padding_mask(np.array([[1, 5]]), 4), "ValueError: lengths[0, 1]=5, but should be at most 4."),
    (lambda: oracles.padding_mask(np.array(9), 4), "ValueError: lengths=9, but should be at most 4."),
    (
        lambda: oracles.padding_mask(np.array([[1, 2]]), 4),
        "ValueError: lengths has shape (1, 2), but should have one axis.",
    ),
    (lambda: oracles.padding_mask([1], None), "TypeError: max_len has type NoneType, but should be an integer."),
    (
        lambda: oracles.padding_mask([1, 1], 2**28),
        "ValueError: batch × max_len = 2 × 268435456, but should be at most 268435456 entries.",
    ),
    (lambda: oracles.combine_masks(), "ValueError: masks=(), but should have at least one array."),
    (lambda: oracles.combine_masks(None, None), "ValueError: masks=(None, None), but should have at least one array."),
    (lambda: oracles.combine_masks(TABLE), "TypeError: masks[0] has element type float64, but should be bool."),
    (lambda: oracles.combine_masks(None, [True]), "TypeError: masks[1] has type list, but should be an array."),
    (
        lambda: oracles.combine_masks(TABLE > 0, np.ones((2, 3), dtype=bool)),
        "ValueError: masks have shapes (3, 4), (2, 3), but should broadcast to one.",
    ),
    (
        lambda: oracles.combine_masks(np.ones((2**15, 1), dtype=bool), np.ones(2**15, dtype=bool)),
        "ValueError: masks broadcast to (32768, 32768), but should have at most 268435456 entries.",
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
    (
        lambda: oracles.learned_positional_encoding(TABLE, 2, 1, offset=1),
        "ValueError: start_pos + seq_len = 1 + 2, but should be at most 2, the rows of the table from offset=1 on.",
    ),
    (
        lambda: oracles.learned_positional_encoding(TABLE, 1, 2, max_len=2),
        "ValueError: start_pos + seq_len = 2 + 1, but should be at most 2, the given max_len.",
    ),
    (
        lambda: oracles.learned_positional_encoding(TABLE, 4, max_len=5),
        "ValueError: start_pos + seq_len = 0 + 4, but should be at most 3, the rows of the table.",
    ),
    (lambda: oracles.learned_positional_encoding(TABLE, 0, offset=4), "ValueError: offset=4, but should be at most 3."),
    (
        lambda: oracles.learned_positional_encoding(TABLE, 0, offset=-1),
        "ValueError: offset=-1, but should be at least 0.",
    ),
    (
        lambda: oracles.learned_positional_encoding(TABLE, 1, max_len=1.0),
        "TypeError: max_len has type float, but should be an integer.",
    ),
    (lambda: oracles.table_lookup(TABLE, [0, 3]), "ValueError: indices[1]=3, but should be at most 2."),
    (lambda: oracles.table_lookup(TABLE, np.array([[-1]])), "ValueError: indices[0, 0]=-1, but should be at least 0."),
    (
        lambda: oracles.table_lookup(TABLE, np.array([True])),
        "TypeError: indices has element type bool, but should be an integer one.",
    ),
    (lambda: oracles.table_lookup(TABLE, 1), "TypeError: indices has type int, but should be an array."),
    (lambda: oracles.table_lookup(TABLE, [1], padding_row=3), "ValueError: padding_row=3, but should be at most 2."),
    (
        lambda: oracles.table_lookup(TABLE[:0], []),
        "ValueError: table has shape (0, 4), but should have at least one row.",
    ),
    (
        lambda: oracles.table_lookup(TABLE[0], [0]),
        "ValueError: table has shape (4,), but should have two axes: (positions, embed_dim).",
    ),
    (
        lambda: oracles.table_lookup(np.ones((1, 2**20)), np.zeros(2**9, int)),
        "ValueError: indices × embed_dim = 512 × 1048576, but should be at most 268435456 entries.",
    ),
    (
        lambda: oracles.rotate_half(np.ones((2, 3))),
        "ValueError: x has size 3 along axis -1, but should have an even one.",
    ),
    (lambda: oracles.rotate_half(TABLE, axis=0), "ValueError: x has size 3 along axis 0, but should have an even one."),
    (lambda: oracles.rotate_half(TABLE, axis=2), "ValueError: axis=2, but should be at most 1."),
    (lambda: oracles.rotate_half(TABLE, axis=-3), "ValueError: axis=-3, but should be at least -2."),
    (lambda: oracles.rotate_half(TABLE, axis=None), "TypeError: axis has type NoneType, but should be an integer."),
    (lambda: oracles.rotate_half(TABLE * 1j), f"TypeError: x has element type complex128, but should be {FLOATS}."),
    (lambda: oracles.inv_freq(4.0), "TypeError: head_dim has type float, but should be an integer."),
    (lambda: oracles.inv_freq(2**21), "ValueError: head_dim=2097152, but should be at most 1048576."),
    (
        lambda: oracles.inv_freq(3, conventions=EVEN[0]),
        "ValueError: head_dim=3, but should be even: rope_pairing='half'.",
    ),
    (
        lambda: oracles.rope_angles(2, 3, conventions=EVEN[1]),
        "ValueError: head_dim=3, but should be even: odd_lane='reject'.",
    ),
    (
        lambda: oracles.rope_tables(2, 1, conventions=EVEN[0]),
        "ValueError: head_dim=1, but should be even: rope_pairing='half'.",
    ),
    (lambda: oracles.rope_tables(2, 4, -1), "ValueError: start_pos=-1, but should be at least 0."),
    (
        lambda: oracles.rope_angles(2, 4, 2**53 - 1),
        "ValueError: start_pos=9007199254740991, but should be at most 9007199254740990.",
    ),
    (
        lambda: oracles.rope_tables(2**30, 64),
        "ValueError: seq_len × head_dim = 1073741824 × 64, but should be at most 268435456 entries.",
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


RELATIVE = "should be a finite float64 number of at least 0 and below 1."
FIELDS: list[tuple[Any, dict[str, Any], str]] = [
    (oracles.FLOAT32, {"name": None}, "TypeError: Arithmetic.name has type NoneType, but should be a str."),
    (
        oracles.FLOAT32,
        {"inputs": None},
        "TypeError: Arithmetic.inputs has type NoneType, but should be an oracles.Format.",
    ),
    (
        oracles.FLOAT32,
        {"output": "float32"},
        "TypeError: Arithmetic.output has type str, but should be an oracles.Format.",
    ),
    (
        oracles.FLOAT32,
        {"elementwise": None},
        "TypeError: Arithmetic.elementwise has type NoneType, but should be an oracles.Format.",
    ),
    (
        oracles.FLOAT32,
        {"scores": 1},
        "TypeError: Arithmetic.scores has type int, but should be an oracles.Format or None.",
    ),
    (
        oracles.FLOAT32,
        {"exp": 2.0**-21},
        "TypeError: Arithmetic.exp has type float, but should be an oracles.Elementary.",
    ),
    (
        oracles.FLOAT32,
        {"angle": None},
        "TypeError: Arithmetic.angle has type NoneType, but should be an oracles.Angle.",
    ),
    (oracles.FLOAT32, {"flush_to_zero": 1}, "TypeError: Arithmetic.flush_to_zero has type int, but should be a bool."),
    (
        oracles.FLOAT32,
        {"accumulate": None},
        "TypeError: Arithmetic.accumulate has type NoneType, but should be a real number.",
    ),
    (
        oracles.FLOAT32,
        {"accumulate": True},
        "TypeError: Arithmetic.accumulate has type bool, but should be a real number.",
    ),
    (oracles.FLOAT32, {"accumulate": 1.0}, f"ValueError: Arithmetic.accumulate=1.0, but {RELATIVE}"),
    (oracles.FLOAT32, {"grad_accumulate": -1.0}, f"ValueError: Arithmetic.grad_accumulate=-1.0, but {RELATIVE}"),
    (oracles.FLOAT32, {"product": Fraction(1, 3)}, f"ValueError: Arithmetic.product=1/3, but {RELATIVE}"),
    (
        oracles.FLOAT32,
        {"trig_absolute": np.inf},
        "ValueError: Arithmetic.trig_absolute=inf, but should be a finite float64 number of at least 0.",
    ),
    (oracles.FLOAT32, {"rescale_block": 0}, "ValueError: Arithmetic.rescale_block=0, but should be at least 1."),
    (oracles.FLOAT32, {"rescale_block": -3}, "ValueError: Arithmetic.rescale_block=-3, but should be at least 1."),
    (
        oracles.FLOAT32,
        {"rescale_block": 1.5},
        "TypeError: Arithmetic.rescale_block has type float, but should be an integer or None.",
    ),
    (
        oracles.FLOAT32,
        {"rescale_slack": -1.0},
        "ValueError: Arithmetic.rescale_slack=-1.0, but should be a finite float64 number of at least 0.",
    ),
    (oracles.FLOAT32, {"grad_block": 0}, "ValueError: Arithmetic.grad_block=0, but should be at least 1."),
    (oracles.FLOAT32, {"sum_depth": -5}, "ValueError: Arithmetic.sum_depth=-5, but should be at least 1."),
    (
        oracles.FLOAT32,
        {"sum_depth": "8"},
        "TypeError: Arithmetic.sum_depth has type str, but should be an integer or None.",
    ),
    (oracles.FLOAT32.exp, {"relative": 1.0}, f"ValueError: Elementary.relative=1.0, but {RELATIVE}"),
    (oracles.FLOAT32.angle, {"frequency": np.nan}, f"ValueError: Angle.frequency=nan, but {RELATIVE}"),
    (
        oracles.FLOAT32.angle,
        {"table": None},
        "TypeError: Angle.table has type NoneType, but should be an oracles.Format.",
    ),
    (oracles.BINARY16, {"unit_roundoff": 1}, f"ValueError: Format.unit_roundoff=1, but {RELATIVE}"),
    (
        oracles.BINARY16,
        {"largest": 10**309},
        f"ValueError: Format.largest={10**309}, but should be a finite float64 number of at least 0.",
    ),
    (
        oracles.BINARY16,
        {"smallest_normal": 0.0},
        "ValueError: Format has smallest_subnormal=5.960464477539063e-08, smallest_normal=0.0 and largest=65504.0, "
        "but these should be positive and in ascending order.",
    ),
]


@pytest.mark.parametrize(("record", "change", "sentence"), FIELDS, ids=[str(change) for _, change, _ in FIELDS])
def test_what_a_field_of_an_arithmetic_should_be_is_said(record: Any, change: dict[str, Any], sentence: str) -> None:
    assert refusal(lambda: replace(record, **change)) == sentence


@pytest.mark.parametrize("count", [1, np.int64(3), None])
def test_any_integer_is_a_count_and_any_exact_number_an_error(count: Any) -> None:
    numbers: dict[str, Any] = {"product": Fraction(1, 4), "accumulate": np.float32(0.5), "trig_absolute": 1}
    model = replace(oracles.FLOAT32, sum_depth=count, **numbers)
    assert model == replace(oracles.FLOAT32, sum_depth=count, product=0.25, accumulate=0.5, trig_absolute=1.0)
    assert {type(x) for x in (model.product, model.accumulate, model.trig_absolute)} == {float}
    assert type(model.sum_depth) in (int, type(None))


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
    [
        None,
        True,
        False,
        0,
        1,
        2,
        3,
        -1,
        2**53,
        10**30,
        -(10**400),
        0.5,
        float("nan"),
        float("inf"),
        1j,
        "",
        "arb",
        "float32",
        b"x",
    ]
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        *[
            [],
            [1.0],
            [[1.0]],
            (),
            {},
            {1},
            range(3),
            slice(0),
            object(),
            type,
            np.ndarray,
            lambda: 0,
            Ellipsis,
            memoryview(b"ab"),
        ],
        *[np.float64(1), np.int64(2), np.bool_(True), np.ma.ones((2, 2)), oracles.FLOAT32, EVEN[0], TENSOR2TENSOR],
        *[
            oracles.Enclosure(np.ones((2, 2)), np.ones((2, 2))),
            ValueError("x"),
            np.dtype("f8"),
            torch.ones(1, device="meta"),
        ],
    ]
)
MATRICES: st.SearchStrategy[Any] = st.builds(
    lambda rows, columns: np.ones((rows, columns)), st.integers(0, 4), st.integers(0, 4)
)
NONSENSE = st.one_of(MATRICES, ARRAYS, TENSORS, SPECIAL, PLAIN, ODD)
KEYWORDS = {
    "arithmetic": st.sampled_from([*("float64", "float32", "bfloat16"), oracles.TF32]) | NONSENSE,
    "conventions": st.sampled_from(
        [Conventions(), *EVEN, Conventions(dead_rows="nan"), Conventions(mask_polarity="true_blocks")]
    )
    | NONSENSE,
    "method": st.sampled_from(["auto", "fast", "arb"]) | NONSENSE,
    "scale": NONSENSE,
    "is_causal": st.booleans() | NONSENSE,
    "positions": st.integers(-1, 3).map(np.array) | NONSENSE,
    "sections": st.sampled_from([(1, 0, 0), (0, 1, 1)]) | NONSENSE,
    "rows": st.lists(st.integers(-1, 3), max_size=3) | NONSENSE,
}
PUBLIC = [name for name in oracles.__all__ if inspect.isfunction(getattr(oracles, name))]


@pytest.mark.parametrize("name", PUBLIC)
@settings(deadline=2000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_nonsense_is_refused_by_a_value_error_or_a_type_error(name: str, data: st.DataObject) -> None:
    function = getattr(oracles, name)
    parameters = inspect.signature(function).parameters.values()
    required = [p for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    same = data.draw(st.none() | NONSENSE)
    arguments = [data.draw(NONSENSE) if same is None or data.draw(st.booleans()) else same for _ in required]
    named = {p.name: KEYWORDS.get(p.name, NONSENSE) for p in parameters if p.kind is p.KEYWORD_ONLY}
    keywords = data.draw(st.fixed_dictionaries({}, optional=named))
    if name == "rotary_frequencies" and data.draw(st.booleans()):  # whose kinds take keywords of their own
        kind = data.draw(st.sampled_from(list(frequencies.KINDS)))
        own = [field.name for field in fields(frequencies.KINDS[kind]) if field.name != "of"]
        arguments, keywords = (
            [kind, data.draw(st.integers(0, 8))],
            keywords | data.draw(st.fixed_dictionaries(dict.fromkeys(own, NONSENSE))),
        )
    allowed = (ValueError, TypeError, AssertionError) if name == "assert_within" else (ValueError, TypeError)
    with contextlib.suppress(*allowed):
        function(*arguments, **keywords)


@settings(deadline=2000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(NONSENSE, min_size=3, max_size=3),
    st.fixed_dictionaries({}, optional={"format": NONSENSE, "rope_base": NONSENSE, "rope_scale": NONSENSE}),
)
def test_nonsense_in_what_is_constructed_is_refused_as_well(arguments: list[Any], keywords: dict[str, Any]) -> None:
    mid, rad, out = arguments
    calls = [
        lambda: oracles.Enclosure(mid, rad, format=keywords.get("format")),
        lambda: oracles.Enclosure(np.ones((2, 2)), np.ones((2, 2))).excess(out),
        lambda: oracles.Enclosure(np.ones((2, 2)), np.ones((2, 2))).contains(out),
        lambda: oracles.Enclosure(np.ones((2, 2)), np.ones((2, 2))).ulps(out),
        *[
            lambda name=name: Conventions(**{name: keywords[name]})
            for name in ("rope_base", "rope_scale")
            if name in keywords
        ],
        lambda: Conventions(dead_rows=mid),
    ]
    for call in calls:
        with contextlib.suppress(ValueError, TypeError):
            call()


RECORDS = [oracles.FLOAT32, oracles.FLOAT32.exp, oracles.FLOAT32.angle, oracles.BINARY32]


@settings(deadline=2000, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(RECORDS), st.data())
def test_an_arithmetic_with_a_field_of_nonsense_is_refused_or_works(record: Any, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from([field.name for field in fields(record)]))
    with contextlib.suppress(ValueError, TypeError):
        changed = replace(record, **{field: data.draw(PLAIN | ODD)})
        place = {oracles.Elementary: "exp", oracles.Angle: "angle", oracles.Format: "elementwise"}.get(type(record))
        model = changed if place is None else replace(oracles.FLOAT32, **{place: changed})
        oracles.scaled_dot_product_attention_vjp(ONES, ONES, ONES, None, ONES, arithmetic=model)
        oracles.sinusoidal_positional_encoding(2, 2, arithmetic=model)


@pytest.mark.parametrize("num_heads", [1, 2, 10**9])
def test_heads_without_columns_add_nothing_however_many_they_are(num_heads):
    out = oracles.multi_head_attention(np.ones((3, 2)), EMPTY, EMPTY, EMPTY, EMPTY.T, num_heads)
    assert np.array_equal(out.mid, np.zeros((3, 2)))
    assert not out.rad.any()
