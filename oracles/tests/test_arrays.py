"""Whatever array comes in, its values come out as float64, exactly; whatever is none is refused in a sentence."""

import array
import subprocess
import sys
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from oracles import arrays
from oracles.formats import BFLOAT16, BINARY16, BINARY32, BINARY64, BRAIN16, FLOAT16, FLOAT32, FLOAT64

SETTINGS = settings(max_examples=200)
VALUES = np.array([[0.0, -0.0, 1.5], [-3.0, np.inf, np.nan]])


def foreign(values: Any, *, dlpack: bool) -> Any:
    """An array that is read through DLPack alone, or through `__array__` alone."""
    if not dlpack:
        return type("Foreign", (), {"__array__": lambda self, dtype=None, copy=None: values})()
    members = {
        "__dlpack__": lambda self, **keywords: values.__dlpack__(**keywords),
        "__dlpack_device__": lambda self: values.__dlpack_device__(),
    }
    return type("Foreign", (), members)()


def refusal(x: Any, **keywords: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        arrays.float_array(x, "x", **keywords)
    return f"{caught.type.__name__}: {caught.value}"


SOURCES = {
    "float64": VALUES,
    "float32": VALUES.astype(np.float32),
    "float16": VALUES.astype(np.float16),
    "longdouble": VALUES.astype(np.longdouble),
    "bfloat16": VALUES.astype(ml_dtypes.bfloat16),
    "big-endian": VALUES.astype(">f8"),
    "read-only": np.broadcast_to(VALUES, (2, 3)),
    "negative strides": VALUES[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": np.asfortranarray(VALUES),
    "torch float64": torch.tensor(VALUES),
    "torch float32": torch.tensor(VALUES, dtype=torch.float32),
    "torch float16": torch.tensor(VALUES, dtype=torch.float16),
    "torch bfloat16": torch.tensor(VALUES, dtype=torch.bfloat16),
    "torch bfloat16 transposed": torch.tensor(VALUES.T.copy(), dtype=torch.bfloat16).T,
    "torch requires_grad": torch.tensor(VALUES, requires_grad=True) * 1,
    "torch bfloat16 requires_grad": torch.tensor(VALUES, dtype=torch.bfloat16, requires_grad=True),
    "torch parameter": torch.nn.Parameter(torch.tensor(VALUES)),
    "torch negated view": torch._neg_view(torch.tensor(-VALUES)),
    "DLPack": foreign(VALUES, dlpack=True),
    "__array__": foreign(VALUES, dlpack=False),
    "bfloat16 through __array__": foreign(VALUES.astype(ml_dtypes.bfloat16), dlpack=False),
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_values_of_any_array_come_out_exactly(source: str) -> None:
    values = arrays.float_array(SOURCES[source], "x")
    assert values.dtype == np.float64
    assert np.array_equal(values, VALUES, equal_nan=True)
    assert np.array_equal(np.signbit(values[:, :2]), np.signbit(VALUES[:, :2]))


@pytest.mark.parametrize("source", SOURCES)
def test_the_result_cannot_be_written(source: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        arrays.float_array(SOURCES[source], "x")[0, 0] = 1.0


def test_an_input_stays_writable_and_as_it_was() -> None:
    x = VALUES.copy()
    arrays.float_array(x, "x")
    assert x.flags.writeable
    assert np.array_equal(x, VALUES, equal_nan=True)


@SETTINGS
@given(st.integers(0, 2**16 - 1))
def test_every_bfloat16_and_every_float16_is_read_as_ml_dtypes_and_numpy_read_it(bits: int) -> None:
    pattern = np.array([bits], dtype=np.uint16)
    for source in (pattern.view(ml_dtypes.bfloat16), pattern.view(np.float16)):
        assert np.array_equal(arrays.float_array(source, "x"), source.astype(np.float64), equal_nan=True)


def test_reading_an_array_imports_no_other_library() -> None:
    code = (
        "import sys, numpy as np; from oracles import arrays; arrays.float_array(np.ones(3), 'x');"
        "print(sorted({'torch', 'jax', 'cupy', 'mlx', 'ml_dtypes'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("x", [[1.0, 2.0], (1.0,), 1.0, None, "abc", {}, object(), np.ndarray, memoryview(b"ab")])
def test_what_is_not_an_array_is_refused(x: Any) -> None:
    assert refusal(x) == f"TypeError: x has type {type(x).__name__}, but should be an array."


@pytest.mark.parametrize(
    "dtype",
    [
        *[np.int64, np.uint8, np.bool_, np.complex128, object, "U3", "M8[s]", "f8,f8"],
        *[ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4],
    ],
)
def test_other_element_types_are_refused(dtype: Any) -> None:
    x = np.zeros((2,), dtype=dtype)
    assert refusal(x) == (
        f"TypeError: x has element type {x.dtype}, but should be float16, bfloat16, float32, float64 or longdouble."
    )


def test_torch_tensors_of_other_element_types_are_refused() -> None:
    sentence = "TypeError: x has element type {}, but should be float16, bfloat16, float32, float64 or longdouble."
    assert refusal(torch.ones(2, dtype=torch.int32)) == sentence.format("int32")
    assert refusal(torch.ones(2, dtype=torch.complex64)) == sentence.format("complex64")


def test_tensors_without_readable_memory_are_refused() -> None:
    for tensor in (torch.ones(2, device="meta"), torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.float8_e5m2)):
        assert refusal(tensor).startswith("TypeError: x of type Tensor could not be read as an array: ")


def test_an_array_that_fails_to_be_read_is_refused() -> None:
    broken = type("Broken", (), {"__array__": lambda self, dtype=None, copy=None: 1 / 0})()
    assert refusal(broken) == "TypeError: x of type Broken could not be read as an array: division by zero."


def test_a_masked_array_is_refused() -> None:
    assert refusal(np.ma.masked_array([1.0], mask=[True])) == (
        "TypeError: x is a masked array, but should be an array: fill it, and pass the mask as a mask."
    )


@pytest.mark.parametrize("x", [np.array(1.0), torch.tensor(1.0)])
def test_an_array_without_axes_is_refused(x: Any) -> None:
    assert refusal(x) == "ValueError: x has shape (), but should have at least one axis."


def test_a_longdouble_that_float64_cannot_hold_is_refused() -> None:
    for value in (np.longdouble(1) + np.longdouble(2) ** -60, np.longdouble(10) ** 400):
        assert refusal(np.array([[0, value]])) == (
            f"ValueError: x[0, 1]={value!s}, but should be a float64 number: inputs are not rounded."
        )


@pytest.mark.parametrize(
    ("arithmetic", "dtype"), [(FLOAT16, np.float16), (BFLOAT16, ml_dtypes.bfloat16), (FLOAT32, np.float32)]
)
def test_exactly_the_numbers_of_the_input_format_are_accepted(arithmetic: Any, dtype: Any) -> None:
    """Every 16-bit pattern, and for binary32 those with a zero or one in the places below."""
    bits = np.arange(2**16, dtype=np.uint32)
    half = np.dtype(dtype).itemsize == 2
    numbers = bits.astype(np.uint16).view(dtype) if half else np.concatenate([bits << 16, bits << 16 | 1]).view(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        numbers = numbers.astype(np.float64)
    arrays.float_array(numbers, "x", arithmetic=arithmetic)
    finite = numbers[np.isfinite(numbers) & (numbers != 0)]
    for wrong in (np.nextafter(finite, 0), np.nextafter(finite, 1e308) * np.sign(finite)):
        for value in wrong[:: len(wrong) // 50]:
            assert refusal(np.array([1.0, value]), arithmetic=arithmetic) == (
                f"ValueError: x[1]={value}, but should be a {arithmetic.inputs.name} number: inputs are not rounded."
            )


def test_numbers_beyond_the_input_format_are_refused() -> None:
    assert refusal(np.array([[1.0], [65536.0]]), arithmetic=FLOAT16) == (
        "ValueError: x[1, 0]=65536.0, but should be a binary16 number: inputs are not rounded."
    )
    assert arrays.float_array(np.array([5e-324, 1e300]), "x", arithmetic=FLOAT64).tolist() == [5e-324, 1e300]


def test_one_format_holds_another_if_it_has_its_numbers() -> None:
    assert all(target.holds(target) and BINARY64.holds(target) for target in (BINARY16, BRAIN16, BINARY32, BINARY64))
    assert all(BINARY32.holds(narrow) for narrow in (BINARY16, BRAIN16))
    assert not any(
        target.holds(other) for target, other in ((BINARY16, BRAIN16), (BRAIN16, BINARY16), (BINARY32, BINARY64))
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_numbers_beyond_a_format_as_fine_as_their_own_are_refused(dtype: Any) -> None:
    small = replace(FLOAT64, inputs=replace(BINARY64, name="small", largest=1.0))
    assert (
        refusal(np.array([1.0, 2.0], dtype), arithmetic=small)
        == "ValueError: x[1]=2.0, but should be a small number: inputs are not rounded."
    )


def test_a_wrong_entry_is_named_far_into_a_large_array() -> None:
    x = np.ones((600, 1000))
    x[599, 998] = 0.1
    assert refusal(x, arithmetic=FLOAT32) == (
        "ValueError: x[599, 998]=0.1, but should be a binary32 number: inputs are not rounded."
    )


def test_a_table_has_the_format_of_tables() -> None:
    arrays.table_array(np.float32([0.1]), "cos", arithmetic=FLOAT32)
    with pytest.raises(ValueError, match=r"^cos\[0\]=0\.1, but should be a binary32 number: inputs are not rounded\.$"):
        arrays.table_array(np.array([0.1]), "cos", arithmetic=FLOAT32)


def test_masks_are_broadcast_and_say_what_is_allowed() -> None:
    mask = np.array([[True], [False]])
    for given_mask in (mask, torch.tensor(mask)):
        allows = arrays.bool_mask(given_mask, "mask", (3, 2, 4), "true_allows")
        blocks = arrays.bool_mask(given_mask, "mask", (3, 2, 4), "true_blocks")
        assert allows is not None
        assert blocks is not None
        assert allows.shape == (3, 2, 4)
        assert (allows == mask).all()
        assert (blocks == ~mask).all()
    assert arrays.bool_mask(None, "mask", (2, 4), "true_blocks") is None


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 4), (4, 2), (0, 4)])
def test_a_mask_that_does_not_broadcast_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="mask") as caught:
        arrays.bool_mask(np.ones(shape, dtype=bool), "mask", (2, 4), "true_allows")
    assert str(caught.value) == f"mask has shape {shape}, but should broadcast to (2, 4)."


@pytest.mark.parametrize("dtype", [np.float64, np.int8, object])
def test_a_mask_of_anything_but_booleans_is_refused(dtype: Any) -> None:
    with pytest.raises(TypeError) as caught:
        arrays.bool_mask(np.ones((2, 4), dtype=dtype), "mask", (2, 4), "true_allows")
    assert str(caught.value) == f"mask has element type {np.dtype(dtype)}, but should be bool."


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (-1, "ValueError: n=-1, but should be at least 0."),
        (2**53 + 1, "ValueError: n=9007199254740993, but should be at most 9007199254740992."),
        (-(10**400), "ValueError: n=-2**1328…, but should be at least 0."),
        (True, "TypeError: n has type bool, but should be an integer."),
        (1.0, "TypeError: n has type float, but should be an integer."),
        ("1", "TypeError: n has type str, but should be an integer."),
    ],
)
def test_sizes_and_positions_are_natural_numbers(value: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        arrays.natural(value, "n")
    assert f"{caught.type.__name__}: {caught.value}" == sentence


@pytest.mark.parametrize("value", [0, 7, np.int32(7), np.uint8(7), 2**53])
def test_any_integer_type_is_a_natural_number(value: Any) -> None:
    assert arrays.natural(value, "n") == int(value)


def test_an_array_too_large_to_work_on_is_refused_before_any_work():
    sentence = "ValueError: x has shape (1048576, 1048576), but should have at most 268435456 entries."
    assert refusal(np.broadcast_to(np.ones(1), (2**20, 2**20))) == sentence


class Buffered(array.array):
    """An array as MLX's on another device: its DLPack is refused, its buffer is there."""

    def __dlpack__(self, **keywords):
        raise BufferError("not on this device")

    def __dlpack_device__(self):
        return (8, 0)


def test_what_dlpack_does_not_hand_over_a_buffer_may():
    assert arrays.float_array(Buffered("f", [1.5, -2.0]), "x").tolist() == [1.5, -2.0]
    without = type(
        "Foreign", (), {"__dlpack__": Buffered.__dlpack__, "__dlpack_device__": Buffered.__dlpack_device__}
    )()
    assert refusal(without) == "TypeError: x of type Foreign could not be read as an array: not on this device."
