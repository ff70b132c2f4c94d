"""Rotary frequencies and the rotation: against a vectorised reference over mpmath's numbers, on
released configurations, and by laws.
"""

import math
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import config

from spec import ARB, ARB_SERIES, FLOAT32, REAL64
from spec.context import series
from spec.extended.frequency_bands import yarn_mscale, yarn_ramp
from spec.extended.released import RELEASED
from spec.extended.rotary import mrope_axes, rope
from spec.extended.rotary_frequencies import rotary_frequencies
from spec.positional_encoding import rope_apply_spec
from spec.tensor_core import tensor
from spec.tests.cases import EVERYTHING, MODERATE
from spec.tests.extended_cases import KINDS, frequencies, rotations

POWER, LOG, MPF, COS, SIN = (
    np.frompyfunc(f, n, 1)
    for f, n in ((mpmath.power, 2), (mpmath.log, 1), (mpmath.mpf, 1), (mpmath.cos, 1), (mpmath.sin, 1))
)


@pytest.fixture(autouse=True, scope="module")
def _at_113_bits_with_signatures_unchecked():
    """Other tests check signatures on the same definitions."""
    config.update("jaxtyping_disable", True)
    with flint.ctx.workprec(113), mpmath.workdps(60):
        yield
    config.update("jaxtyping_disable", False)


def assert_encloses(balls, numbers):
    assert balls.shape == numbers.shape
    for ball, number in zip(balls.flat, numbers.flat, strict=True):
        exact = flint.arb(mpmath.mpf(number))
        assert abs(ball - exact) <= 1e-28 * (1 + abs(exact)), f"{ball}, but should be {exact}."


def assert_overlaps(some, others):
    assert all(a.overlaps(b) and a.rad() < 1e-28 for a, b in zip(some, others, strict=True)), (
        f"{some}, but should be {others}."
    )


# -- Frequencies -----------------------------------------------------------------------------------


def vectorised(kind, head_dim, *, base=10000.0, rotary_dim=None, seq_len=None, factor=1.0, attention_factor=None, **p):
    """(inv_freq, attention_factor) with whole arrays: bands by clipping, exponents from one range,
    the lists stacked.
    """
    r, s, base = rotary_dim or head_dim, mpmath.mpf(factor), mpmath.mpf(base)
    M = p.get("original_max_position_embeddings")
    m = mpmath.mpf(1)
    if kind == "dynamic":
        M = p["max_position_embeddings"]
        base *= (s * max(seq_len or M, M) / M - s + 1) ** (mpmath.mpf(r) / (r - 2))
    f = 1 / POWER(base, MPF(np.arange(0, r, 2)) / r)
    if kind in ("linear", "proportional"):
        f = f / s
    if kind == "proportional":
        f = np.where(np.arange(r // 2) < math.floor(p["partial_rotary_factor"] * r / 2), f, 0)
    if kind == "llama3":
        low, high = p["low_freq_factor"], p["high_freq_factor"]
        z = np.clip((M * f / (2 * mpmath.pi) - low) / (high - low), 0, 1)
        f = f * (z + (1 - z) / s)
    if kind == "yarn":
        turns = [mpmath.mpf(p.get(name, default)) for name, default in (("beta_fast", 32), ("beta_slow", 1))]
        low, high = (r * (mpmath.log(M) - mpmath.log(2 * mpmath.pi * n)) / mpmath.log(base) / 2 for n in turns)
        if p.get("truncate", True):
            low, high = mpmath.floor(low), mpmath.ceil(high)
        low, high = max(low, 0), min(high, r - 1)
        ramp = np.clip((np.arange(r // 2) - low) / (high - low if high > low else mpmath.mpf("0.001")), 0, 1)
        f = f * (1 - ramp) + f / s * ramp
        weights = [p.get("mscale"), p.get("mscale_all_dim")]
        n, d = (
            (mpmath.mpf(x) * mpmath.log(s) / 10 + 1 for x in weights) if all(weights) else (mpmath.log(s) / 10 + 1, 1)
        )
        m = n / d
    if kind == "longrope":
        f = f / MPF(np.stack([p["short_factor"], p["long_factor"]])[int((seq_len or 0) > M)])
        m = mpmath.sqrt(1 + mpmath.log(s) / mpmath.log(M)) if attention_factor is None else m
    return f, m if attention_factor is None else mpmath.mpf(attention_factor)


@given(frequencies(EVERYTHING, least=4))
def test_frequencies_are_the_vectorised_reference(inputs):
    inv_freq, factor = rotary_frequencies(**inputs, scalar=ARB)
    expected, expected_factor = vectorised(**inputs)
    assert_encloses(inv_freq, expected)
    assert_encloses(np.array(factor), np.array(expected_factor))


MODELS = {model.name: model.arguments for model in RELEASED}


@pytest.mark.parametrize("seq_len", [None, 1, 4096, 4097, 131072])
@pytest.mark.parametrize("model", MODELS)
def test_the_frequencies_of_released_configurations_are_the_vectorised_reference(model, seq_len):
    inv_freq, factor = rotary_frequencies(**MODELS[model], seq_len=seq_len, scalar=ARB)
    expected, expected_factor = vectorised(**MODELS[model], seq_len=seq_len)
    assert_encloses(inv_freq, expected)
    assert_encloses(np.array(factor), np.array(expected_factor))


# -- By hand ---------------------------------------------------------------------------------------


def test_four_channels_of_base_100_rotate_by_one_and_by_a_tenth():
    inv_freq, factor = rotary_frequencies("default", 4, base=100.0, scalar=ARB)
    assert inv_freq[0] == 1
    assert inv_freq[1].overlaps(flint.arb(1) / 10)
    assert factor == 1


def test_dynamic_at_twice_the_length_with_factor_2_takes_three_times_as_long_in_the_last_pair():
    model = {"base": 100.0, "factor": 2.0, "max_position_embeddings": 4, "scalar": ARB}
    for length, slower in (
        (None, 1),
        (1, 1),
        (4, 1),
        (8, 3),
        (12, 5),
    ):  # 2 L'/M − 1, as the exponent r/(r − 2) is 2 and pair 1 has half
        inv_freq, _ = rotary_frequencies("dynamic", 4, seq_len=length, **model)
        assert inv_freq[0] == 1
        assert inv_freq[1].overlaps(flint.arb(1) / (10 * slower))


def test_the_weights_of_yarn_that_are_both_one_cancel():
    """exllamav3#259 asks for 0.1 ln s + 1 here; transformers, and the quotient, say 1."""
    deepseek = MODELS["DeepSeek-V3"]
    assert rotary_frequencies(**deepseek, scalar=ARB)[1].contains(1)
    alone = {name: x for name, x in deepseek.items() if name != "mscale_all_dim"}
    for given_weights in (alone, deepseek | {"mscale": 0}, {n: x for n, x in alone.items() if n != "mscale"}):
        assert rotary_frequencies(**given_weights, scalar=ARB)[1].overlaps(flint.arb(40).log() / 10 + 1)
    assert rotary_frequencies(**deepseek, attention_factor=1.5, scalar=ARB)[1] == 1.5
    assert yarn_mscale(0.5, scalar=ARB) == 1


def test_where_the_ramp_of_yarn_has_no_width_it_is_a_step():
    """Both corrections of so short a length are below 0: low is 0, and high, a ceiling of 0 or
    less, is refused or 0.
    """
    ramp = yarn_ramp(8, original_max_position_embeddings=6, beta_fast=32, beta_slow=1, scalar=ARB)
    assert ramp.tolist() == [0, 1, 1, 1]
    with pytest.raises(ValueError, match="but should rise: see beta_fast=32 and beta_slow=4"):
        yarn_ramp(8, original_max_position_embeddings=1, beta_fast=32, beta_slow=4, scalar=ARB)


def test_the_attention_factor_of_phi_3_is_the_root_of_17_twelfths_and_the_lists_change_after_the_length():
    phi = MODELS["Phi-3-vision 128k"]
    short, long = phi["short_factor"], phi["long_factor"]
    assert len(short) == len(long) == 48
    assert rotary_frequencies(**phi, scalar=ARB)[1].overlaps((flint.arb(17) / 12).sqrt())
    at = {n: rotary_frequencies(**phi, seq_len=n, scalar=REAL64)[0][0] for n in (None, 4096, 4097)}
    assert at == {None: 1 / short[0], 4096: 1 / short[0], 4097: 1 / long[0]}
    assert rotary_frequencies(**phi | {"factor": 1.0}, scalar=ARB)[1] == 1


def test_the_number_of_proportional_pairs_is_that_of_configurations_for_a_float_and_exact_for_a_fraction():
    for share, pairs in ((0.3, 3), (Fraction(0.3), 2), (Fraction(3, 10), 3), (1, 10), (0, 0)):
        inv_freq, _ = rotary_frequencies("proportional", 20, partial_rotary_factor=share, scalar=REAL64)
        assert np.count_nonzero(inv_freq) == pairs
    whole, _ = rotary_frequencies("default", 20, scalar=REAL64)
    half, _ = rotary_frequencies("proportional", 20, partial_rotary_factor=0.5, scalar=REAL64)
    assert half[:5].tolist() == whole[:5].tolist()
    assert (
        half[1] != rotary_frequencies("default", 20, rotary_dim=10, scalar=REAL64)[0][1]
    )  # whose exponents are over 10


# -- Laws of frequencies ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "yarn without truncation", "llama3", "proportional"])
def test_a_factor_of_1_is_the_default(kind):
    given_parameters = {n: x for n, x in KINDS[kind].items() if not n.startswith("mscale")} | {"factor": 1.0}
    given_parameters |= {"proportional": {"partial_rotary_factor": 1.0}, "dynamic": {"seq_len": 64}}.get(kind, {})
    inv_freq, factor = rotary_frequencies(kind.split(" ")[0], 16, **given_parameters, scalar=ARB)
    expected, one = rotary_frequencies("default", 16, scalar=ARB)
    assert_overlaps(inv_freq, expected)
    assert factor.contains(one)


@given(frequencies(EVERYTHING, least=4))
def test_frequencies_never_rise_and_lie_between_the_default_and_its_quotient_by_the_factor(inputs):
    kind, s = inputs["kind"], inputs.get("factor", 1.0)
    if kind == "longrope":
        return  # its lists are arbitrary
    inv_freq, _ = rotary_frequencies(**inputs, scalar=REAL64)
    assert (np.diff(inv_freq) <= 0).all()
    if kind in ("linear", "yarn", "llama3"):
        f, _ = rotary_frequencies("default", inputs["head_dim"], base=inputs["base"], scalar=REAL64)
        assert (inv_freq <= f * (1 + 2.0**-50)).all()
        assert (inv_freq * s >= f * (1 - 2.0**-50)).all()


@pytest.mark.parametrize(
    "model", ["gpt-oss", "DeepSeek-V3", "Qwen2.5 7B, as its documentation extends it", "Llama 3.1 8B"]
)
def test_a_band_that_ends_inside_reaches_both_the_default_and_its_quotient(model):
    inv_freq, _ = rotary_frequencies(**MODELS[model], scalar=ARB)
    f, _ = rotary_frequencies("default", MODELS[model]["head_dim"], base=MODELS[model].get("base", 10000.0), scalar=ARB)
    assert inv_freq[0].overlaps(f[0])
    assert (MODELS[model]["factor"] * inv_freq[-1]).overlaps(f[-1])
    assert any(
        not a.overlaps(b) and not (MODELS[model]["factor"] * a).overlaps(b) for a, b in zip(inv_freq, f, strict=True)
    )


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "yarn without truncation", "llama3"])
@pytest.mark.parametrize("parameter", ["factor", "base"])
def test_the_derivative_by_a_parameter_is_the_central_difference(kind, parameter):
    """With h = 10⁻²⁰ and 60 digits: the difference errs by h² times a third derivative, below 10⁻³⁵
    here, and by 10⁻⁴⁰ of rounding.
    """
    at = KINDS[kind] | {"base": 10000.0}
    name = kind.split(" ")[0]
    moving = at | {parameter: series(at[parameter], 1)}
    inv_freq, factor = rotary_frequencies(name, 8, **moving, scalar=ARB_SERIES)
    h = mpmath.mpf(10) ** -20
    (f_plus, m_plus), (f_minus, m_minus) = (
        vectorised(name, 8, **at | {parameter: at[parameter] + sign * h}) for sign in (1, -1)
    )
    assert_encloses(np.array([x[1] for x in inv_freq]), (f_plus - f_minus) / (2 * h))
    assert_encloses(np.array(factor[1]), np.array((m_plus - m_minus) / (2 * h)))


# -- The rotation ----------------------------------------------------------------------------------


def rotated(x, positions, r, sections, rope_pairing, attention_factor):
    """Each pair as a complex number, times m · exp(i p f)."""
    f = 1 / POWER(mpmath.mpf(10000), MPF(np.arange(0, r, 2)) / max(r, 1))
    place = np.asarray(positions)
    per_pair = (
        place[..., None] + np.zeros(r // 2, int)
        if sections is None
        else np.repeat(np.moveaxis(place, 0, -1), sections, axis=-1)
    )
    turn = MPF(per_pair) * f
    lanes = np.arange(r).reshape((-1, 2) if rope_pairing == "adjacent" else (2, -1))
    a, b = (lanes[:, 0], lanes[:, 1]) if rope_pairing == "adjacent" else lanes
    result = MPF(x) if x.size else x.astype(object)
    x = result.copy()
    result[..., a] = (x[..., a] * COS(turn) - x[..., b] * SIN(turn)) * attention_factor
    result[..., b] = (x[..., b] * COS(turn) + x[..., a] * SIN(turn)) * attention_factor
    return result


@given(rotations(EVERYTHING))
def test_the_rotation_is_multiplication_by_a_complex_number(inputs):
    result = rope(tensor(inputs["x"], ARB), **{name: x for name, x in inputs.items() if name != "x"}, scalar=ARB)
    named = {name: inputs.get(name) for name in ("x", "positions", "sections", "rope_pairing", "attention_factor")}
    assert_encloses(result, rotated(r=inputs["rotary_dim"], **named))


def test_on_all_channels_it_is_the_rotary_encoding_of_torchlean():
    x = tensor(np.arange(12).reshape(2, 6), ARB)
    assert_overlaps(rope(x, start_pos=7).flat, rope_apply_spec(x, 7).flat)


@given(rotations(MODERATE))
def test_rotation_at_the_negated_position_is_the_adjoint(inputs):
    """Σ g · R(p) x = Σ R(−p) g · x."""
    given_arguments = {name: x for name, x in inputs.items() if name not in ("x", "positions")}
    x, p = tensor(inputs["x"], ARB), inputs["positions"]
    g = tensor(np.cos(np.arange(x.size)).reshape(x.shape), ARB)
    forth, back = rope(x, p, **given_arguments, scalar=ARB), rope(g, -p, **given_arguments, scalar=ARB)
    difference = sum((a * b for a, b in zip(g.flat, forth.flat, strict=True)), flint.arb(0))
    difference -= sum((a * b for a, b in zip(back.flat, x.flat, strict=True)), flint.arb(0))
    assert difference.contains(0)
    assert difference.rad() < 1e-28


X = np.arange(1, 33).reshape(4, 8) / 8


def test_position_0_multiplies_the_channels_that_rotate_and_the_others_are_left_alone():
    result = rope(X, np.zeros(4, int), rotary_dim=4, attention_factor=1.5)
    assert result.tolist() == (X * np.array([1.5] * 4 + [1] * 4)).tolist()
    assert rope(X, start_pos=3, rotary_dim=4)[:, 4:].tolist() == X[:, 4:].tolist()
    assert rope(X, start_pos=3, rotary_dim=0).tolist() == X.tolist()


@pytest.mark.parametrize("mrope", ["sectioned", "interleaved"])
def test_three_equal_axes_are_one_and_distinct_ones_differ_by_layout(mrope):
    p, sections = np.array([0, 1, 5, 9]), (2, 1, 1)
    along_one = rope(X, p)
    assert rope(X, np.stack([p, p, p]), sections=sections, mrope=mrope).tobytes() == along_one.tobytes()
    distinct = np.stack([p, p + 1, p + 2])
    assert rope(X, distinct, sections=sections, mrope=mrope).tobytes() != along_one.tobytes()
    assert (
        rope(X, distinct, sections=sections).tobytes()
        != rope(X, distinct, sections=sections, mrope="interleaved").tobytes()
    )


@given(st.tuples(*[st.integers(-64, 64)] * 3))
def test_scores_depend_on_the_differences_of_positions_along_each_axis(shift):
    q, k = tensor(X[:1], ARB), tensor(X[1:2], ARB)
    at, there = np.array([[3], [1], [4]]), np.array([[1], [5], [9]])

    def score(by):
        turned = (rope(x, p + by, sections=(2, 1, 1)) for x, p in ((q, at), (k, there)))
        return sum((a * b for a, b in zip(*(t.flat for t in turned), strict=True)), flint.arb(0))

    together = np.array(shift)[:, None]
    assert score(together).overlaps(score(np.zeros((3, 1), int)))
    alone = together * np.array([[1], [0], [0]]) if shift[0] else np.array([[1], [0], [0]])
    turned = rope(q, at + alone, sections=(2, 1, 1))
    assert not all(a.overlaps(b) for a, b in zip(turned.flat, rope(q, at, sections=(2, 1, 1)).flat, strict=True))


@given(st.lists(st.integers(0, 12), min_size=2, max_size=3))
def test_the_axes_are_blocks_or_those_of_slices_of_every_second_or_third_pair(sections):
    """The slices are transformers', `modeling_qwen3_vl.py`, which saturate."""
    count, pairs = len(sections), sum(sections)
    assert mrope_axes(pairs, tuple(sections)) == np.repeat(np.arange(count), sections).tolist()
    axes = np.zeros(pairs, int)
    for axis in range(1, count):
        axes[axis : sections[axis] * count : count] = axis
    assert mrope_axes(pairs, tuple(sections), "interleaved") == axes.tolist()


# -- What is refused -------------------------------------------------------------------------------

YARN, LLAMA = KINDS["yarn"], KINDS["llama3"]
SENTENCES = {
    "kind='ntk', but should be one of 'default', 'linear', 'dynamic', 'yarn', 'llama3', 'longrope', 'proportional'.": (
        "ntk",
        4,
        {},
    ),
    "factor is no parameter of 'default', which takes none.": ("default", 4, {"factor": 2.0}),
    "factor is missing, but is a parameter of 'linear' without a default.": ("linear", 4, {}),
    "rotary_dim=3, but should be even: channels rotate in pairs.": ("default", 3, {}),
    "base=0.0, but should be a finite number above 0.": ("default", 4, {"base": 0.0}),
    "base=nan, but should be a finite number above 0.": ("default", 4, {"base": math.nan}),
    "factor=-1.0, but should be a finite number above 0.": ("linear", 4, {"factor": -1.0}),
    "rotary_dim=2, but should not be 2: the exponent r/(r − 2) of the base has no value there.": (
        "dynamic",
        2,
        KINDS["dynamic"],
    ),
    "seq_len=-1, but should be a natural number.": ("dynamic", 4, KINDS["dynamic"] | {"seq_len": -1}),
    "max_position_embeddings=0, but should be at least 1.": (
        "dynamic",
        4,
        {"factor": 2.0, "max_position_embeddings": 0},
    ),
    "base=1.0, but should be above 1: a pair's wavelength should grow with its number.": (
        "yarn",
        4,
        YARN | {"base": 1.0},
    ),
    "beta_fast=0, but should be a finite number above 0.": ("yarn", 4, YARN | {"beta_fast": 0}),
    "truncate is of type int, but should be of type bool.": ("yarn", 4, YARN | {"truncate": 1}),
    "attention_factor=inf, but should be a finite number.": ("yarn", 4, YARN | {"attention_factor": math.inf}),
    "high_freq_factor=1.0, but should be above low_freq_factor=1.0.": ("llama3", 4, LLAMA | {"high_freq_factor": 1.0}),
    "short_factor has 1 numbers, but should have 2, one for each pair of rotary_dim=4.": (
        "longrope",
        4,
        KINDS["longrope"] | {"short_factor": [1.0], "long_factor": [1.0, 1.0]},
    ),
    "long_factor[1]=0.0, but should be a finite number above 0.": (
        "longrope",
        4,
        KINDS["longrope"] | {"short_factor": [1.0, 1.0], "long_factor": [1.0, 0.0]},
    ),
    "factor is missing, but is needed where attention_factor is not given.": (
        "longrope",
        2,
        {"original_max_position_embeddings": 2, "short_factor": [1.0], "long_factor": [1.0]},
    ),
    "original_max_position_embeddings=1, but should be above 1: ln 1 = 0 divides.": (
        "longrope",
        2,
        {"original_max_position_embeddings": 1, "short_factor": [1.0], "long_factor": [1.0]},
    ),
    "partial_rotary_factor=1.5, but should be from 0 to 1.": ("proportional", 4, {"partial_rotary_factor": 1.5}),
    "rotary_dim=2, but should be head_dim=4: the pairs of 'proportional' are those of the head.": (
        "proportional",
        4,
        {"rotary_dim": 2},
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_bad_parameters_are_refused_by_a_sentence(sentence):
    kind, head_dim, parameters = SENTENCES[sentence]
    with pytest.raises((ValueError, TypeError)) as refusal:
        rotary_frequencies(kind, head_dim, **parameters, scalar=REAL64)
    assert str(refusal.value) == sentence


def test_a_parameter_is_not_rounded_to_binary32():
    with pytest.raises(ValueError, match=r"^0\.1 is not a number of FLOAT32"):
        rotary_frequencies("linear", 4, factor=0.1, scalar=FLOAT32)


ROTATIONS = {
    "headDim=3, but should be even: channels rotate in pairs.": (np.ones((1, 3)), {}),
    "rotary_dim=6, but should be at most headDim=4.": (np.ones((1, 4)), {"rotary_dim": 6}),
    "inv_freq has 1 frequencies, but should have 2, one for each pair of the 4 channels that rotate.": (
        np.ones((1, 4)),
        {"inv_freq": np.ones(1)},
    ),
    "positions and start_pos=1 are given, but should not both be: add start_pos to the positions.": (
        np.ones((1, 2)),
        {"positions": [0], "start_pos": 1},
    ),
    "positions hold float64, but should be integers.": (np.ones((1, 2)), {"positions": [0.5]}),
    "positions has shape (2,), but should broadcast to (1,).": (np.ones((1, 2)), {"positions": [0, 1]}),
    "positions have shape (1,), but should have an axis of 3 in front, one entry for each section.": (
        np.ones((1, 2)),
        {"positions": [0], "sections": (1, 0, 0)},
    ),
    "sections=(1, 1, 0) have 2 pairs, but should have 1.": (np.ones((1, 2)), {"sections": (1, 1, 0)}),
    "sections=(1,), but should have two numbers or three.": (np.ones((1, 2)), {"sections": (1,)}),
    "mrope='mixed', but should be 'sectioned' or 'interleaved'.": (
        np.ones((1, 2)),
        {"sections": (1, 0, 0), "mrope": "mixed"},
    ),
    "rope_pairing='split', but should be 'adjacent' or 'half'.": (np.ones((1, 2)), {"rope_pairing": "split"}),
    "attention_factor=nan, but should be a finite number.": (np.ones((1, 2)), {"attention_factor": math.nan}),
}


@pytest.mark.parametrize("sentence", ROTATIONS)
def test_a_bad_rotation_is_refused_by_a_sentence(sentence):
    x, arguments = ROTATIONS[sentence]
    with pytest.raises((ValueError, TypeError)) as refusal:
        rope(x, **arguments)
    assert str(refusal.value) == sentence
