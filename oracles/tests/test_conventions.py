"""Every field of `Conventions` takes its named values and nothing else."""

import re
from dataclasses import FrozenInstanceError, asdict, fields
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest

from oracles import conventions
from oracles.conventions import Conventions

pytestmark = pytest.mark.usefixtures("unchecked")
NAMED = [(field.name, value) for field in fields(Conventions) for value in get_args(field.type)]


def refusal(field: str, value: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        Conventions(**{field: value})
    return f"{caught.type.__name__}: {caught.value}"


@pytest.mark.parametrize(("field", "value"), NAMED)
def test_every_named_value_is_accepted(field: str, value: str) -> None:
    assert getattr(Conventions(**{field: value}), field) == value


def test_the_defaults_are_the_first_named_values() -> None:
    for field in fields(Conventions):
        assert field.default == (get_args(field.type) or ({"rope_base": 10000.0, "rope_scale": 1.0}[field.name],))[0]


def test_an_unknown_value_is_refused_with_the_known_ones() -> None:
    assert refusal("dead_rows", "none") == (
        "ValueError: Conventions.dead_rows='none', but should be one of 'zero', 'nan', 'uniform'."
    )


def test_what_onnx_means_is_what_it_means_by_version() -> None:
    usual, versions = asdict(Conventions()), ("1.18", "1.20", "1.22", "1.23")
    differ = {v: {f: x for f, x in asdict(Conventions.onnx(v)).items() if x != usual[f]} for v in versions}
    assert differ == {
        "1.18": {"dead_rows": "nan", "softcap_order": "after_mask", "kv_heads": "tile"},
        "1.20": {"dead_rows": "nan", "softcap_order": "after_mask"},
        "1.22": {"dead_rows": "nan"},
        "1.23": {},
    }
    assert Conventions.onnx("1.19") == Conventions.onnx("1.18")
    assert Conventions.onnx("1.19.1") == Conventions.onnx("1.21") == Conventions.onnx("1.20")
    named = "'1.18', '1.19', '1.19.1', '1.20', '1.21', '1.22', '1.23'"
    with pytest.raises(ValueError, match=rf"^version='1\.17', but should be one of {re.escape(named)}\.$"):
        Conventions.onnx("1.17")


def test_a_value_that_is_not_a_name_is_refused() -> None:
    assert refusal("causal", ["top_left"]) == (
        "TypeError: Conventions.causal has type list, but should be one of 'top_left', 'bottom_right'."
    )


@pytest.mark.parametrize("base", [0.5, -1, float("nan"), float("inf"), 10**400, Fraction(4, 3), 2**53 + 1])
def test_a_base_that_is_no_float64_number_of_at_least_1_is_refused(base: Any) -> None:
    assert refusal("rope_base", base) == (
        f"ValueError: Conventions.rope_base={base}, but should be a finite float64 number of at least 1."
    )


@pytest.mark.parametrize("base", [True, "10000", 1j, None])
def test_a_base_that_is_no_real_number_is_refused(base: Any) -> None:
    assert refusal("rope_base", base) == (
        f"TypeError: Conventions.rope_base has type {type(base).__name__}, but should be a real number."
    )


@pytest.mark.parametrize("base", [1, 500000, np.float32(1e4), Fraction(5, 2), 1e6])
def test_any_real_number_of_at_least_1_is_a_base(base: Any) -> None:
    assert Conventions(rope_base=base).rope_base == float(base)


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), float("inf"), 10**400, Fraction(1, 3), 2**53 + 1])
def test_a_scale_that_is_no_float64_number_above_0_is_refused(scale: Any) -> None:
    assert refusal("rope_scale", scale) == (
        f"ValueError: Conventions.rope_scale={scale}, but should be a finite float64 number of more than 0."
    )


@pytest.mark.parametrize("scale", [True, "1", 1j, None])
def test_a_scale_that_is_no_real_number_is_refused(scale: Any) -> None:
    assert refusal("rope_scale", scale) == (
        f"TypeError: Conventions.rope_scale has type {type(scale).__name__}, but should be a real number."
    )


@pytest.mark.parametrize("scale", [1, 5e-324, np.float32(0.25), Fraction(5, 2), 1.7e308])
def test_any_real_number_above_0_is_a_scale(scale: Any) -> None:
    assert Conventions(rope_scale=scale).rope_scale == float(scale)


def test_conventions_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Conventions().dead_rows = "nan"  # type: ignore[misc]


def test_none_means_the_defaults_and_anything_else_is_refused() -> None:
    given = Conventions(causal="bottom_right")
    assert conventions.resolve(None) == Conventions()
    assert conventions.resolve(given) is given
    with pytest.raises(TypeError) as caught:
        conventions.resolve("half")  # type: ignore[arg-type]
    assert str(caught.value) == "conventions has type str, but should be an oracles.Conventions or None."
