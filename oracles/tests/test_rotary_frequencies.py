"""Rotary frequencies: enclosed as the definitions say, by convention, within budget of libraries'
code, and refusing nonsense.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import oracles
from oracles import BINARY32, BINARY64, Conventions
from oracles.arb_matrix import working_precision
from oracles.ball import Array
from oracles.rotary import frequency_bands, frequency_kinds
from oracles.tests.test_generalised_attention import require_encloses
from spec import context
from spec.extended import rotary_frequencies as literal
from spec.extended.frequency_bands import yarn_ramp

SETTINGS = settings(max_examples=60)
Case = tuple[str, int, dict[str, Any]]

PHI = {
    "short_factor": np.linspace(1.05, 3.2, 48),
    "long_factor": np.linspace(1.03, 60.3, 48),
    "original_max_position_embeddings": 4096,
}
MODELS: dict[str, Case] = {
    "Llama 2": ("default", 128, {}),
    "Vicuna 16k": ("linear", 128, {"factor": 4.0}),
    "InternLM2": ("dynamic", 128, {"factor": 2.0, "max_position_embeddings": 32768, "base": 1e6, "seq_len": 65536}),
    "DeepSeek-V3": (
        "yarn",
        64,
        {"factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0},
    ),
    "unequal weights": (
        "yarn",
        64,
        {"factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.707, "mscale_all_dim": 0.5},
    ),
    "gpt-oss": (
        "yarn",
        64,
        {"factor": 32.0, "original_max_position_embeddings": 4096, "base": 150000.0, "truncate": False},
    ),
    "Llama 3.1": (
        "llama3",
        128,
        {
            "factor": 8.0,
            "low_freq_factor": 1,
            "high_freq_factor": 4,
            "original_max_position_embeddings": 8192,
            "base": 500000.0,
        },
    ),
    "Phi-3 short": ("longrope", 96, PHI | {"factor": 32.0, "seq_len": 4096}),
    "Phi-3 long": ("longrope", 96, PHI | {"factor": 32.0, "seq_len": 4097}),
    "Gemma 4": ("proportional", 512, {"partial_rotary_factor": 0.25, "base": 1e6}),
    "Pythia": ("default", 64, {"rotary_dim": 16}),
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A kind with any of its parameters that make sense."""
    kind = draw(st.sampled_from(list(literal.KINDS)))
    dim = 2 * draw(st.integers(2, 9))
    s = st.sampled_from([1.0, 2.0, 40.0, 1 / 3, 1 + 2.0**-52]) | st.floats(0.01, 1000)
    lengths = st.sampled_from([1, 2, 3, 4096, 131072]) | st.integers(1, 10**6)
    given: dict[str, Any] = {"base": draw(st.sampled_from([10000.0, 500000.0, 1.5, 2]))}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        given["factor"] = draw(s)
    if kind == "dynamic":
        given |= {"max_position_embeddings": draw(lengths), "seq_len": draw(st.none() | lengths)}
    if kind in ("yarn", "llama3"):
        given["original_max_position_embeddings"] = draw(lengths)
    if kind == "llama3":
        low = draw(st.floats(0.1, 10))
        given |= {"low_freq_factor": low, "high_freq_factor": low * draw(st.floats(1.01, 8))}
    if kind == "yarn":
        given["truncate"] = draw(st.booleans())
        given["beta_slow"] = draw(st.sampled_from([1, 0.5, 2.0]))
        given["beta_fast"] = given["beta_slow"] * draw(st.sampled_from([2.0, 32] + [1] * given["truncate"]))
        given["original_max_position_embeddings"] = (
            2 + int(2 * math.pi * given["beta_fast"]) + draw(st.integers(0, 10**5))
        )
        for name in draw(st.sampled_from([(), ("mscale",), ("mscale", "mscale_all_dim"), ("attention_factor",)])):
            given[name] = draw(st.sampled_from([0.0, 0.707, 1.0, 1.3]))
    if kind == "longrope":
        given |= {name: [draw(s) for _ in range(dim // 2)] for name in ("short_factor", "long_factor")}
        given |= {
            "original_max_position_embeddings": draw(lengths) + 1,
            "seq_len": draw(st.none() | lengths),
            "factor": draw(s),
        }
        if draw(st.booleans()):
            given["attention_factor"] = draw(st.sampled_from([1.5, 0.0, -1.0]))
    if kind == "proportional":
        given |= {
            "factor": draw(s),
            "partial_rotary_factor": draw(st.sampled_from([0.0, 0.3, Fraction(3, 10), 0.5, 1.0])),
        }
    return kind, dim, given


def require_frequencies(found: Any, kind: str, dim: int, given: dict[str, Any]) -> None:
    """Assert that the definition's balls are within what is found."""
    inv_freq, factor = literal.rotary_frequencies(kind, dim, scalar=context.ARB, **given)
    require_encloses(found[0], inv_freq)
    require_encloses(found[1], np.array(factor, dtype=object))


@pytest.mark.parametrize("method", ["fast", "arb"])
@pytest.mark.parametrize("arithmetic", [None, "float32"])
def test_the_attention_factor_is_a_number(arithmetic: str | None, method: Any) -> None:
    _, factor = oracles.rotary_frequencies("yarn", 64, **YARN, arithmetic=arithmetic, method=method)
    assert factor.mid.shape == factor.rad.shape == factor.excess(1.5).shape == ()
    oracles.assert_within(float(factor.mid), factor, name="factor")
    with pytest.raises(AssertionError, match=r"^factor=1\.5, but should be 1\.34657\d* ± "):
        oracles.assert_within(1.5, factor, name="factor")
    with pytest.raises(AssertionError, match=r"^out\.shape=\(1,\), but should be \(\)\.$"):
        oracles.assert_within(factor.mid.reshape(1), factor)


@SETTINGS
@given(case=cases())
def test_the_definitions_are_enclosed(case: Case) -> None:
    kind, dim, given = case
    try:
        with working_precision(300):
            literal.rotary_frequencies(kind, dim, scalar=context.ARB, **given)
    except ValueError:
        with pytest.raises(ValueError, match=r"^The ramp runs from low="):
            oracles.rotary_frequencies(kind, dim, **given)
        return
    found = oracles.rotary_frequencies(kind, dim, **given)
    with working_precision(300):
        require_frequencies(found, kind, dim, given)
    for certificate in found:
        assert (certificate.rad <= 2 * np.spacing(np.abs(certificate.mid))).all()
    for name in ("float64", "float32", "bfloat16"):
        for certificate, budget in zip(
            found, oracles.rotary_frequencies(kind, dim, arithmetic=name, **given), strict=True
        ):
            assert budget.contains(certificate.mid).all()


@pytest.mark.parametrize("name", MODELS)
def test_the_frequencies_of_released_models_are_enclosed(name: str) -> None:
    kind, dim, given = MODELS[name]
    with working_precision(200):
        require_frequencies(oracles.rotary_frequencies(kind, dim, **given), kind, dim, given)


def test_a_ramp_without_a_width_is_a_step() -> None:
    """Which balls of the definition cannot decide, where it is not truncated: corr(2) = corr(2) is 2.42."""
    f, s = oracles.inv_freq(8).mid, 4.0
    given = {"factor": s, "original_max_position_embeddings": 3300, "beta_fast": 2, "beta_slow": 2, "truncate": False}
    stepped = oracles.rotary_frequencies("yarn", 8, **given)[0]
    assert (np.abs(stepped.mid - f * [1, 1, 1, 1 / s]) <= stepped.rad).all()


def test_conventions_name_what_libraries_do_otherwise() -> None:
    def found(case: str, **changed: Any) -> Array:
        kind, dim, given = MODELS[case]
        reading = {name: changed.pop(name) for name in list(changed) if hasattr(Conventions(), name)}
        return oracles.rotary_frequencies(kind, dim, conventions=Conventions(**reading), **(given | changed))[0].mid

    assert (found("DeepSeek-V3", yarn_truncate="exact") == found("DeepSeek-V3", truncate=False)).all()
    assert (found("DeepSeek-V3", yarn_truncate="exact") != found("DeepSeek-V3")).any()
    assert (found("DeepSeek-V3", yarn_truncate="exact", truncate=True) == found("DeepSeek-V3")).all()
    assert (found("Phi-3 short", longrope_switch="below") == found("Phi-3 long")).all()
    assert (found("Phi-3 short", longrope_switch="below", seq_len=4095) == found("Phi-3 short")).all()
    assert (found("InternLM2", dynamic_length="configured") == found("InternLM2", seq_len=None)).all()
    assert (found("InternLM2", dynamic_length="configured") != found("InternLM2")).any()

    long = {"factor": 4.0, "original_max_position_embeddings": 10**5}
    kept = oracles.rotary_frequencies("yarn", 16, **long, conventions=Conventions(yarn_upper="last_pair"))[0]
    with working_precision(200):
        ramp = yarn_ramp(16, original_max_position_embeddings=10**5, upper=7, scalar=context.ARB)
        f, _ = literal.rotary_frequencies("default", 16, scalar=context.ARB)
        require_encloses(kept, np.array([a * ((1 - r) + r / 4) for a, r in zip(f, ramp, strict=True)]))
    assert (kept.mid != oracles.rotary_frequencies("yarn", 16, **long)[0].mid).any()


# -- Code as libraries write it, in binary32 and in binary64 ---------------------------------------

Power = Callable[[float, int, Any], Any]
POWERS: dict[str, Power] = {
    "reciprocal of a power": lambda base, r, of: of(1) / of(base) ** (np.arange(0, r, 2).astype(of) / of(r)),
    "power": lambda base, r, of: of(base) ** (-np.arange(0, r, 2).astype(of) / of(r)),
    "exponential of a product": lambda base, r, of: np.exp(np.arange(0, r, 2).astype(of) * -(np.log(of(base)) / of(r))),
    "power of two of a product": lambda base, r, of: np.exp2(
        -(np.arange(0, r, 2).astype(of) / of(r)) * np.log2(of(base))
    ),
}


def written(power: Power, kind: str, dim: int, given: dict[str, Any], of: Any, multiply: bool) -> tuple[Any, Any]:
    """Frequencies and the attention factor, every operation in one format; division by s is that,
    or a product with 1/s.
    """
    r, base, one = given.get("rotary_dim", dim), given.get("base", 10000.0), of(1)
    s = of(given.get("factor", 1.0))

    def over(f: Any, by: Any) -> Any:
        return f * (one / by) if multiply else f / by

    if kind == "dynamic":
        grown = s * of(given["seq_len"]) / of(given["max_position_embeddings"]) - (s - one)
        return power(of(base) * grown ** (of(r) / of(r - 2)), r, of), one
    f = power(base, r, of)
    if kind == "linear":
        return over(f, s), one
    if kind == "proportional":
        return np.where(np.arange(r // 2) < int(given["partial_rotary_factor"] * r // 2), over(f, s), of(0)), one
    most = given.get("original_max_position_embeddings")
    if kind == "longrope":
        scale = np.sqrt(one + np.log(s) / np.log(of(most)))
        return over(f, np.array(given["short_factor" if given["seq_len"] <= most else "long_factor"]).astype(of)), scale
    if kind == "llama3":
        low, high, wavelength = of(given["low_freq_factor"]), of(given["high_freq_factor"]), of(2 * math.pi) / f
        z = (of(most) / wavelength - low) / (high - low)
        found = np.where(wavelength > of(most) / low, over(f, s), f)
        between = ~(wavelength < of(most) / high) & ~(wavelength > of(most) / low)
        return np.where(between, (one - z) * over(f, s) + z * f if multiply else ((one - z) / s + z) * f, found), one
    if kind == "yarn":
        corr = [
            of(r) * np.log(of(most) / (of(turns) * of(2 * math.pi))) / (of(2) * np.log(of(base))) for turns in (32, 1)
        ]
        low, high = (np.floor(corr[0]), np.ceil(corr[1])) if given.get("truncate", True) else corr
        low, high = max(low, of(0)), min(high, of(r - 1))
        ramp = np.clip((np.arange(r // 2).astype(of) - low) / (high - low), of(0), one)
        kept = one - ramp
        m = [of(0.1) * of(given.get(name, 1)) * np.log(s) + one for name in ("mscale", "mscale_all_dim")]
        scale = m[0] / m[1] if "mscale" in given else m[0]
        if multiply:
            return f * (one - ramp * (one - one / s)), scale
        return over(f, s) * (one - kept) + f * kept, scale
    return f, one


@pytest.mark.parametrize("multiply", [False, True], ids=["divided", "multiplied"])
@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("name", MODELS)
def test_code_as_libraries_write_it_is_within_its_budget(name: str, power: str, multiply: bool) -> None:
    kind, dim, given = MODELS[name]
    for arithmetic, of in (("float32", np.float32), ("float64", np.float64), ("bfloat16", np.float32)):
        inv_freq, factor = oracles.rotary_frequencies(kind, dim, arithmetic=arithmetic, **given)
        found, scale = written(POWERS[power], kind, dim, given, of, multiply)
        assert found.dtype == scale.dtype == of
        oracles.assert_within(found, inv_freq)
        oracles.assert_within(scale, factor)
        assert inv_freq.format == factor.format == (BINARY64 if of is np.float64 else BINARY32)


@pytest.mark.parametrize("name", MODELS)
def test_other_parameters_and_frequencies_held_in_16_bits_are_outside(name: str) -> None:
    kind, dim, given = MODELS[name]
    budget = oracles.rotary_frequencies(kind, dim, arithmetic="bfloat16", **given)[0]
    held = (budget.mid.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert not budget.contains(held).all()
    others: list[dict[str, Any]] = [{"base": given.get("base", 10000.0) * 1.001}]
    others += {
        "linear": [{"factor": 3.99}],
        "dynamic": [{"factor": 1.99}, {"seq_len": None}],
        "yarn": [{"factor": 0.99 * given.get("factor", 1.0)}, {"truncate": not given.get("truncate", True)}],
        "llama3": [{"factor": 7.99}, {"low_freq_factor": 1.01}, {"high_freq_factor": 3.99}],
        "longrope": [{"seq_len": 8193 - given.get("seq_len", 0)}],
        "proportional": [{"partial_rotary_factor": 0.5}],
    }.get(kind, [])
    for other in others:
        wrong = oracles.rotary_frequencies(kind, dim, **(given | other))[0].mid
        assert not budget.contains(wrong).all(), other


U = 2.0**-24
LLAMA, YARN, PHI_3 = MODELS["Llama 3.1"][2], MODELS["gpt-oss"][2], MODELS["Phi-3 long"][2]
TERMS: list[tuple[str, int, dict[str, Any], Any, str, int]] = [
    ("linear", 128, {"factor": 3.0}, frequency_kinds, "DIVISION", 3),
    ("longrope", 96, PHI_3, frequency_kinds, "DIVISION", 3),
    ("llama3", 128, LLAMA, frequency_bands, "BLEND", 5),
    ("yarn", 64, YARN, frequency_bands, "BLEND", 5),
]


@pytest.mark.parametrize(
    ("kind", "dim", "given", "module", "term", "roundings"),
    TERMS,
    ids=[f"{kind}: {term}" for kind, *_, term, _ in TERMS],
)
def test_the_worst_gains_leave_the_budget_without_a_term(
    kind: str, dim: int, given: dict[str, Any], module: Any, term: str, roundings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that takes every rounding of its powers and gains, and all upwards."""
    exact = oracles.rotary_frequencies(kind, dim, **given)[0].mid
    x = np.log(given.get("base", 10000.0)) * np.arange(0, dim, 2) / dim
    out = exact * np.exp(0.999 * U * (np.where(x > 0, 3 * x + 9, 0) + roundings))

    def inside() -> bool:
        return bool(oracles.rotary_frequencies(kind, dim, arithmetic="float32", **given)[0].contains(out).all())

    assert inside()
    monkeypatch.setattr(module, term, 1)
    assert not inside()


def test_the_worst_base_band_and_factors_leave_the_budget_without_their_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of G, of the ends of a ramp and of logarithms as large as their derivations allow, nearly."""
    kind, dim, dynamic = MODELS["InternLM2"]
    x = np.arange(0, dim, 2) / dim
    grown = 3.0 - 0.99 * 5 * U * (4.0 + 2.0 + 1.0)
    base = 1e6 * grown ** (128 / 126) * math.exp(-0.99 * U * (3 * 128 / 126 * math.log(3) + 11))
    slow = base**-x * np.exp(0.99 * U * (3 * x * math.log(3e6) + np.where(x > 0, 9, 0)))

    low, high = (64 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(150000.0)) for turns in (32, 1))
    off = [c * (1 + 16 * U) + 5 * U * 64 / (2 * math.log(150000.0)) for c in (low, high)]
    ramp = np.clip((np.arange(32) - off[0]) / (off[1] - off[0]), 0, 1)
    bent = 150000.0 ** (-np.arange(0, 64, 2) / 64) * ((1 - ramp) + ramp / 32)

    mscale = (0.1 * math.log(40.0) * (1 + 12 * U) + 0.1 * U + 1) * (1 + 0.9 * U)
    root = math.sqrt(1 + math.log(32) * (1 + 9 * U) / (math.log(4096) * (1 - 8 * U))) * (1 + U)

    def inside() -> list[bool]:
        options: dict[str, Any] = {"arithmetic": "float32"}
        slow_budget = oracles.rotary_frequencies(kind, dim, **dynamic, **options)[0]
        bent_budget = oracles.rotary_frequencies("yarn", 64, **YARN, **options)[0]
        yarn = oracles.rotary_frequencies("yarn", 64, factor=40.0, original_max_position_embeddings=4096, **options)[1]
        phi = oracles.rotary_frequencies("longrope", 96, **PHI_3, **options)[1]
        found = zip((slow, bent, mscale, root), (slow_budget, bent_budget, yarn, phi), strict=True)
        return [bool(budget.contains(out).all()) for out, budget in found]

    assert inside() == [True] * 4
    monkeypatch.setattr(frequency_kinds.Dynamic, "base_moves", frequency_kinds.Default.base_moves)
    monkeypatch.setattr(frequency_bands.Yarn, "_off", lambda self, corr, u: 0.0)
    monkeypatch.setattr(frequency_bands, "LOGARITHM", 0)
    monkeypatch.setattr(frequency_kinds, "LOGARITHM", 0)
    assert inside() == [False] * 4


def worst_of_a_narrow_band() -> tuple[Case, Array]:
    """llama3: powers, turns, the line, its complement and the gain, all too large."""
    s, low, high, most, base = 8.0, 1.0, 1.0625, 7, 1.05
    parameters = {
        "factor": s,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": most,
        "base": base,
    }
    x = math.log(base) * np.arange(0, 128, 2) / 128
    powers, up = np.exp(-x), 0.999 * U * np.where(x > 0, 3 * x + 9, 0)
    turns = most * powers * np.exp(up + 7.9 * U) / (2 * math.pi)
    z = (turns - low * (1 - 1.9 * U)) / (high - low - 1.9 * U * (low + high)) * (1 + 2.9 * U)
    gain = np.where(z < 1, z + (1 - z) / s + 3.9 * U * (1 + 1 / s), 1.0) * math.exp(4.9 * U)
    return ("llama3", 128, parameters), powers * np.exp(up) * gain


def worst_of_a_wide_band() -> tuple[Case, Array]:
    """YaRN: powers, the complement of the ramp and the gain, all too small."""
    s, x = 40.0, math.log(10000.0) * np.arange(0, 64, 2) / 64
    ramp = np.clip((np.arange(32) - 10) / 13 * (1 + 2.9 * U), 0, 1)
    shift = np.where((ramp > 0) & (ramp < 1), 3.9 * U * (1 + 1 / s), 0.0)
    gain = (1 - ramp + ramp / s - shift) * math.exp(-4.9 * U)
    return MODELS["DeepSeek-V3"], np.exp(-x) * np.exp(-0.999 * U * np.where(x > 0, 3 * x + 9, 0)) * gain


@pytest.mark.parametrize(
    ("worst", "term"),
    [
        (worst_of_a_narrow_band, "TURNS"),
        (worst_of_a_narrow_band, "BLEND"),
        (worst_of_a_wide_band, "COMPLEMENTS"),
        (worst_of_a_wide_band, "BLEND"),
    ],
)
def test_the_worst_lines_leave_the_budget_without_their_terms(
    worst: Any, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kind, dim, parameters), out = worst()

    def inside() -> bool:
        return bool(oracles.rotary_frequencies(kind, dim, arithmetic="float32", **parameters)[0].contains(out).all())

    assert inside()
    monkeypatch.setattr(frequency_bands, term, 0)
    assert not inside()


def test_frequencies_that_underflow_leave_the_budget_without_their_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """3·10³⁸ to the last exponent is nearly as large as binary32's numbers, and its reciprocal is
    flushed; the factor makes it matter.
    """
    given: dict[str, Any] = {"base": 3e38, "factor": 2.0**-100}
    power = (3e38 ** -(np.arange(0, 256, 2) / 256)).astype(np.float32)
    out = np.where(power < 2.0**-126, np.float32(0), power) * np.float32(2.0**100)
    assert (out == 0).any()
    assert oracles.rotary_frequencies("linear", 256, arithmetic="float32", **given)[0].contains(out).all()
    monkeypatch.setattr("oracles.rotary.frequencies.held_range", lambda model: (0.0, np.inf))
    assert not oracles.rotary_frequencies("linear", 256, arithmetic="float32", **given)[0].contains(out).all()


def test_a_ceiling_that_binary32_cannot_decide_may_be_either() -> None:
    """corr(1) is 19.9999985, whose ceiling is 20; binary32 may take it for a little more than 20,
    and binary64 may not.
    """
    given = {"factor": 8.0, "original_max_position_embeddings": 628318}
    low, high = (32 * math.log(628318 / (2 * math.pi * turns)) / (2 * math.log(10000.0)) for turns in (32, 1))
    assert 20 - 2e-6 < high < 20
    f = oracles.inv_freq(32).mid
    for end, inside in ((20, (True, True)), (21, (True, False)), (22, (False, False))):
        ramp = np.clip((np.arange(16) - math.floor(low)) / (end - math.floor(low)), 0, 1)
        out = f * ((1 - ramp) + ramp / 8)
        for arithmetic, expected in zip(("float32", "float64"), inside, strict=True):
            assert (
                oracles.rotary_frequencies("yarn", 32, arithmetic=arithmetic, **given)[0].contains(out).all()
                == expected
            )


REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (
        ("ntk", 8),
        {},
        ValueError,
        "kind='ntk', but should be one of "
        "'default', 'linear', 'dynamic', 'yarn', 'llama3', 'longrope', 'proportional'.",
    ),
    (("linear", 8), {}, ValueError, "factor is missing, but is a parameter of 'linear' without a default."),
    (
        ("linear", 8),
        {"factor": 2.0, "beta_fast": 1},
        ValueError,
        "'linear' has no parameter 'beta_fast'. It takes factor.",
    ),
    (
        ("linear", 8),
        {"faktor": 2.0},
        ValueError,
        "'linear' has no parameter 'faktor'. Did you mean 'factor'?",
    ),
    (("linear", 8), {"factor": 0.0}, ValueError, "factor=0.0, but should be a finite number above 0."),
    (("linear", 8), {"factor": "2"}, TypeError, "factor has type str, but should be a real number or None."),
    (("default", 7), {}, ValueError, "head_dim=7, but should be even: channels rotate in pairs."),
    (("default", 8), {"rotary_dim": 10}, ValueError, "rotary_dim=10, but should be at most 8."),
    (("default", 8), {"base": 0.0}, ValueError, "base=0.0, but should be a finite number above 0."),
    (("default", 8), {"seq_len": -1}, ValueError, "seq_len=-1, but should be at least 0."),
    (
        ("dynamic", 2),
        {"factor": 2.0, "max_position_embeddings": 8},
        ValueError,
        "rotary_dim=2, but should not be 2: the exponent r/(r − 2) of the base has no value there.",
    ),
    (
        ("yarn", 8),
        {"factor": 2.0, "original_max_position_embeddings": 4096, "beta_fast": 1, "beta_slow": 32, "truncate": False},
        ValueError,
        "The ramp runs from low=2.81418 to high=1.30903, but should rise: see beta_fast=1.0 and beta_slow=32.0.",
    ),
    (
        ("yarn", 8),
        {"factor": 2.0, "original_max_position_embeddings": 8, "base": 1},
        ValueError,
        "base=1.0, but should be above 1: a pair's wavelength should grow with its number.",
    ),
    (
        ("yarn", 8),
        {"factor": 2.0, "original_max_position_embeddings": 8, "truncate": 1},
        TypeError,
        "truncate has type int, but should be a bool.",
    ),
    (
        ("llama3", 8),
        {"factor": 2.0, "original_max_position_embeddings": 8, "low_freq_factor": 4, "high_freq_factor": 4},
        ValueError,
        "high_freq_factor=4, but should be above low_freq_factor=4.",
    ),
    (
        ("longrope", 8),
        {"short_factor": [1.0], "long_factor": [1.0], "original_max_position_embeddings": 8, "factor": 2.0},
        ValueError,
        "short_factor has 1 numbers, but should have 4, one for each pair of rotary_dim=8.",
    ),
    (
        ("longrope", 2),
        {"short_factor": [1.0], "long_factor": [1.0], "original_max_position_embeddings": 1, "factor": 2.0},
        ValueError,
        "original_max_position_embeddings=1, but should be above 1: ln 1 = 0 divides.",
    ),
    (
        ("longrope", 2),
        {"short_factor": [1.0], "long_factor": [1.0], "original_max_position_embeddings": 8},
        ValueError,
        "factor is missing, but is needed where attention_factor is not given.",
    ),
    (
        ("proportional", 8),
        {"rotary_dim": 4},
        ValueError,
        "rotary_dim=4, but should be head_dim=8: the pairs of 'proportional' are those of the head.",
    ),
    (
        ("proportional", 8),
        {"partial_rotary_factor": 1.5},
        ValueError,
        "partial_rotary_factor=1.5, but should be from 0 to 1.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "given", "error", "sentence"), REFUSED, ids=[sentence[:40] for *_, sentence in REFUSED]
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[Any, ...], given: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error) as refusal:
        oracles.rotary_frequencies(*arguments, **given)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(("share", "pairs"), [(0.3, 3), (Fraction(0.3), 2), (Fraction(3, 10), 3), (1, 10), (0.0, 0)])
def test_a_proportional_share_is_multiplied_as_configurations_do_where_it_is_a_float(share: Any, pairs: int) -> None:
    found, _ = oracles.rotary_frequencies("proportional", 20, partial_rotary_factor=share)
    assert np.count_nonzero(found.mid) == pairs
    tiny, _ = oracles.rotary_frequencies("proportional", 20, partial_rotary_factor=1e-30, arithmetic="float32")
    assert (tiny.rad == 0).all()
