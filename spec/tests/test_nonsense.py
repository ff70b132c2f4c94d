"""Nonsense at every public function: whatever is given, it is computed or refused with a ValueError
or TypeError, in bounded time.
"""

import inspect
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spec
from spec import SCALARS
from spec.attention import AttentionContext, MultiHeadAttention
from spec.extended import arguments
from spec.positional_encoding import PositionalEncodingSpec
from spec.tensor_core import BroadcastTo

pytestmark = pytest.mark.usefixtures("unchecked")

RECORDS = {
    "Attended",
    "Context",
    "Erratum",
    "Finding",
    "LeanFile",
    "Stated",
    "Tensor",
    "Array",
    "Scalar",
}  # records of what is given, and types
REFUSALS = {"definition", "conform", "conformed", "stated", "expect_type"} | set(
    arguments.__all__
)  # what refusals are made with
PRIMITIVES = REFUSALS | {"total_division", "scope"}  # Python's own division of two scalars; what sets alpha


def public():
    """Every public function and structure of the package by its name, methods included."""
    found = {}
    package = Path(spec.__file__).parent
    for path in [*sorted(package.glob("[!_]*.py")), *sorted((package / "extended").glob("[!_]*.py"))]:
        module = import_module(".".join(("spec", *path.relative_to(package).with_suffix("").parts)))
        for name in sorted(set(module.__all__) - RECORDS - PRIMITIVES):
            if callable(getattr(module, name)) and getattr(module, name) not in SCALARS:
                found[f"{getattr(module, name).__module__}.{name}"] = getattr(module, name)
    return found | {"spec.attention.MultiHeadAttention.forward": MultiHeadAttention.forward}


PUBLIC = public()

ARRAYS = [
    np.array(1.0),
    np.zeros((0, 2)),
    np.ones(2),
    np.ones((1, 1)),
    np.ones((2, 2)),
    np.ones((1, 2, 1)),
    np.full((2, 2), np.nan),
    np.ones((2, 2), np.float32),
    np.ones((2, 2), ">f8"),
    np.ones((2, 2), int),
    np.ones((2, 2), complex),
    np.ones((2, 2), bool),
    np.ones(2, bool),
    np.array(["a", "b"]),
    np.zeros(2, "M8[s]"),
    np.zeros(2, [("a", float)]),
    np.ones((2, 2)).view(np.matrix),
    np.ones((2, 2), bool).view(np.matrix),
    np.ma.masked_array(np.ones((2, 2)), np.eye(2, dtype=bool)),
    np.empty((0,), object),
    np.array([1, None], object),
    np.array([flint.arb(1), "a"], object),
    np.array([[flint.arb(1), mpmath.mpf(1)], [1.0, flint.arb(2)]], object),
    np.array([[flint.arb(1), flint.arb_series([1], 1)], [1.0, flint.arb(2)]], object),
    np.array([[flint.arb("nan"), flint.arb(0, 1)], [flint.arb(0), flint.arb(2)]], object),
]
STRUCTURES = [
    AttentionContext(np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2)), np.eye(2, dtype=bool)),
    MultiHeadAttention(*[np.ones((2, 2))] * 4, 2, 1),
    MultiHeadAttention(np.ones((2, 0)), np.ones((2, 0)), np.ones((2, 0)), np.ones((0, 2)), 0, 1),
    PositionalEncodingSpec(np.ones((2, 2))),
    BroadcastTo((2,), (2, 2)),
]
NUMBERS = [
    -1,
    0,
    1,
    2,
    10**20,
    10**60,
    10**400,
    True,
    1.5,
    float("nan"),
    1j,
    np.int8(2),
    np.float32(0.5),
    flint.arb(2),
    mpmath.mpf(2),
]
ENDLESS = []
ENDLESS.append(ENDLESS)
OTHERS = [
    None,
    "",
    "ab",
    b"a",
    [],
    [1.0],
    [[1.0, 2.0], [3.0]],
    ENDLESS,
    (),
    (2,),
    (2, 2),
    (-1, 2),
    (10**20,),
    {},
    {1: 2},
    object(),
    len,
]

nonsense = (
    st.sampled_from(ARRAYS)
    | st.sampled_from(STRUCTURES)
    | st.sampled_from(NUMBERS)
    | st.sampled_from(OTHERS)
    | st.sampled_from(SCALARS)
)


def plausible(parameter):
    """What may stand there, drawn half of the time, so that nonsense meets the code behind the first check too."""
    name = parameter.name
    if name == "scalar":
        return st.none() | st.sampled_from(SCALARS)
    if name in ("mha", "dmha", "self"):
        return st.sampled_from(STRUCTURES[1:3])
    if name == "kind":
        return st.sampled_from(["default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional"])
    if name in ("causal", "truncate"):
        return st.booleans()
    if name in ("window", "sections"):
        return st.sampled_from([(None, None), (1, 0), (1, 0, 0)])
    if parameter.default is None and name != "mask":
        return st.none() | nonsense
    if name == "mask":
        return st.none() | st.just(np.eye(2, dtype=bool))
    if name == "ctx":
        return st.just(STRUCTURES[0])
    if name == "pe":
        return st.just(STRUCTURES[3])
    if name in ("f", "entry", "part"):
        return st.just(lambda *_: np.ones(2))
    if name in ("name", "letters", "reason"):
        return st.just("n d")
    return st.sampled_from(ARRAYS[2:7]) | st.sampled_from([0, 1, 2]) | st.just((2, 2))


@st.composite
def calls(draw, function):
    arguments, named = [], {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= {"a": draw(nonsense), "b": draw(nonsense)}
            continue
        argument = draw(
            nonsense
            if parameter.name not in ("name", "letters", "reason") and draw(st.booleans())
            else plausible(parameter)
        )
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = argument
        else:
            arguments.append(argument)
    return arguments, named


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PUBLIC)
@settings(deadline=10_000, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_nonsense_is_computed_or_refused_with_a_value_or_type_error(name, data):
    arguments, named = data.draw(calls(PUBLIC[name]))
    with suppress(ValueError, TypeError):
        PUBLIC[name](*arguments, **named)


def test_every_function_of_the_package_is_given_nonsense():
    assert {
        "spec.tensor_core.tensor",
        "spec.attention.AttentionContext",
        "spec.corrected.split_heads",
        "spec.extended.rotary.rope",
    } <= set(PUBLIC)
    assert all(
        f"{function.__module__}.{name}" in PUBLIC
        for name, function in vars(spec).items()
        if inspect.isfunction(function)
    )
