"""Which arithmetic is it? Named before any bug where it is the truth, never where a bug gives what
was returned on every call.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from oracles import preset
from oracles.formats import BINARY32, BRAIN16, PRESETS
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import Call
from properties.inspection.measurements import calls_of_equal_scores
from properties.strategies.choices import rounded
from properties.tests.diagnosing import causes
from properties.tests.test_causes import AGREEMENT, cause_of
from properties.verifier.arithmetics import _explains_directed, _may_flush, other_arithmetics
from properties.verifier.tightest_preset import finer_presets
from properties.verifier.verify import verify

SDPA = "scaled_dot_product_attention"
SIN = "sinusoidal_positional_encoding"


def attention(given, scores, returned):
    """In float32, with inputs, scores and results as they are stored."""

    def function(q, k, v, mask=None):
        q, k, v = (x.astype(given).astype(np.float32) for x in (q, k, v))
        found = (q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(max(q.shape[-1], 1)))).astype(scores).astype(np.float32)
        found = found if mask is None else np.where(mask, found, np.float32(-np.inf))
        weights = np.exp(found - found.max(-1, keepdims=True))
        return (weights @ v / weights.sum(-1, keepdims=True)).astype(returned)

    return function


def sinusoids(seq_len, embed_dim, start_pos=0):
    return REFERENCE[SIN](seq_len, embed_dim, start_pos).astype(ml_dtypes.bfloat16).astype(np.float32)


def diagnosis_of(operation, function, arithmetic, law):
    (cause,) = causes(Implementation("rounded", {operation: function}, arithmetic), 30, laws=[f"{law}[{operation}]"])
    return cause.diagnosis


@pytest.mark.parametrize(
    "law", ["attention is within its error limit", "a key with a far higher score determines the output"]
)
def test_float64_attention_of_float32_accuracy_is_named_so(law):
    first, second, *_ = diagnosis_of(SDPA, attention(np.float32, np.float32, np.float64), "float64", law)
    assert first.mechanism.startswith("All results are within the error limits of a kernel in which")
    assert "arithmetic=float32" in (first.id, second.id)


@pytest.mark.parametrize("law", ["attention is within its error limit", "a vector added to all keys changes nothing"])
def test_scores_of_16_bits_are_named_so(law):
    first, *_ = diagnosis_of(SDPA, attention(np.float32, np.float16, np.float32), "float32", law)
    assert first.id == "scores=float16"
    assert (
        first.mechanism == "All results are within the error limits of a kernel in which scores are stored in float16."
    )
    assert first.repair == "Keep more bits there, or declare an arithmetic that rounds there if your kernel is right."
    assert 0 < first.distance <= 1


def softmax(stored, summed):
    """In float32, with weights in one format and their sum in another."""

    def function(scores, mask=None):
        visible = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
        shifted = scores - np.max(scores, -1, keepdims=True, where=visible, initial=-3e38)
        powers = np.where(visible, np.exp(np.where(visible, shifted, np.float32(0.0))), np.float32(0.0))
        total = powers.astype(summed).sum(-1, keepdims=True).astype(np.float32)
        return (powers / np.where(total == 0, np.float32(1.0), total)).astype(stored).astype(np.float32)

    return function


@pytest.mark.parametrize(
    ("stored", "summed", "is_named"), [(ml_dtypes.bfloat16, np.float32, True), (np.float32, np.float16, False)]
)
def test_weights_are_stored_in_bfloat16_only_if_they_are_its_numbers(stored, summed, is_named):
    found = diagnosis_of("hard_masked_softmax", softmax(stored, summed), "float32", "softmax is within its error limit")
    ids = {each.id for each in found if not each.partial}
    assert bool(ids & {"weights=bfloat16", "output=bfloat16"}) == is_named


def test_inputs_converted_to_16_bits_are_named_so():
    first, *_ = diagnosis_of(
        SDPA, attention(np.float16, np.float32, np.float32), "float32", "attention is within its error limit"
    )
    assert first.id == "inputs=float16"


@pytest.mark.parametrize("name", ["sink", "alibi"])
def test_one_array_converted_to_16_bits_is_named_so(name):
    """The input family of plain packings gives neither, so the features are declared."""

    def packed(*arrays, **options):
        options[name] = None if options.get(name) is None else rounded(options[name], BRAIN16)
        return tuple(np.float32(x) for x in REFERENCE["packed_attention"](*arrays, **options))

    implementation = Implementation("rounded", {"packed_attention": packed}, "float32", features=(name, "causal"))
    (cause,) = causes(implementation, 60, laws=["attention over packed sequences is within its error limit"])
    assert cause.diagnosis[0].id == f"{name}=bfloat16"
    assert cause.diagnosis[0].mechanism.endswith(f"a kernel in which {name} is converted to bfloat16.")


def test_slopes_are_converted_to_the_format_of_an_arithmetic_that_rounds_between_products():
    """The oracle refuses a slope that is not a number of this format."""
    q, slopes = np.zeros((1, 2, 4)), np.array([1.886])
    arguments = OPERATIONS["attention"].arguments((q, q, q), {"alibi": rounded(slopes, BINARY32)})
    call = Call("attention", arguments, "contiguous", (q, np.full((1, 2), np.log(2))))
    found = {each.id: each for each in other_arithmetics(preset("float32"))}["elementwise=bfloat16"]
    (out, lse) = found.expected(call, Implementation("zeros", {"attention": REFERENCE["attention"]}, "float32"))
    assert (out.mid == 0).all()
    assert lse.mid[0, 0] == pytest.approx(np.log1p(np.exp(-1.8828125)))


def test_results_of_more_bits_are_not_stored_in_16_bits():
    found = {each.id: each for each in other_arithmetics(preset("float32"))}["output=bfloat16"]
    for number, is_stored in ((1.0078125, True), (1.00390625, False), (np.nan, True)):
        assert found.stores(Call(SDPA, (), "contiguous", (np.array([0.5, number]),)), BINARY32) == is_stored
    assert found.stores(Call(SDPA, (), "contiguous", (np.array([1.00390625]),)), BRAIN16)  # as declared


@pytest.mark.parametrize(
    "law",
    ["the sinusoidal encoding is within its error limit", "the angle of p + s is the angle of p plus the angle of s"],
)
def test_sinusoids_of_bfloat16_are_named_so(law):
    first, *_ = diagnosis_of(SIN, sinusoids, "float32", law)
    assert first.id == "angle.table=bfloat16"


def test_products_in_tf32_are_named():
    def cut(x):
        return ((np.ascontiguousarray(x, np.float32).view(np.int32) + 0x1000) & ~0x1FFF).view(np.float32)

    def function(q, k, v, mask=None):
        scores = cut(q) @ cut(k).swapaxes(-1, -2) / np.float32(np.sqrt(max(q.shape[-1], 1)))
        scores = scores if mask is None else np.where(mask, scores, np.float32(-np.inf))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return cut(weights / weights.sum(-1, keepdims=True)) @ cut(v)

    named = diagnosis_of(SDPA, function, "float32", "attention is within its error limit")
    assert named[0].id == "product=float16"  # which has as many bits as TF32 rounded to the nearest


REALLY = ("sdpa-weights-in-half-precision",)
"""Bugs that are an arithmetic on many cases: it is named beside them."""


@pytest.mark.parametrize("bug", REALLY)
def test_a_bug_that_is_an_arithmetic_is_named_first_and_the_arithmetic_beside_it(bug):
    found = cause_of(AGREEMENT[SDPA], CATALOGUE[bug].fresh()) or cause_of(
        AGREEMENT[SDPA], CATALOGUE[bug].fresh(), "float64"
    )
    first, second, *_ = found.diagnosis
    assert first.id == bug
    assert second.mechanism.startswith("All results are within the error limits of a kernel in which")


LANES = ("rope-half-split-pairs", "sdpa-scale-missing", "sdpa-last-key-dropped", "sin-concatenated-layout")


@pytest.mark.parametrize("bug", LANES)
def test_no_arithmetic_explains_a_bug_that_is_none(bug):
    found = cause_of(AGREEMENT[CATALOGUE[bug].operation], CATALOGUE[bug].fresh())
    assert not [
        d
        for d in found.diagnosis
        if d.mechanism.startswith("All results are within the error limits of a kernel in which")
    ]


@pytest.mark.parametrize("bug", ["merge-in-base-two", "merge-lost-with-an-empty-part"])
def test_log_sum_exps_are_converted_to_the_format_in_which_another_arithmetic_saves_them(bug):
    """Those of float32 are no numbers of 16 bits, nor is −∞ beyond any of them."""
    wrong = CATALOGUE[bug].fresh()

    def merged(*given):
        return tuple(x.astype(np.float32) for x in wrong(*(x.astype(np.float64) for x in given)))

    (cause,) = causes(Implementation("merged", {"merge_attention": merged}, "float32"), 40)
    assert cause.diagnosis[0].id == bug


def test_what_is_wrong_beyond_rounding_is_no_arithmetic():
    """A share of one part in a thousand would be within 16 bits; a key that is left out is not, on all cases."""

    def without_last(q, k, v, mask=None):
        cut = None if mask is None else mask[..., : max(1, k.shape[-2] - 1)]
        keys = slice(0, max(1, k.shape[-2] - 1))
        return attention(np.float32, np.float32, np.float32)(q, k[..., keys, :], v[..., keys, :], cut)

    found = diagnosis_of(SDPA, without_last, "float32", "attention is within its error limit")
    assert not [
        d for d in found if d.mechanism.startswith("All results are within the error limits of a kernel in which")
    ]


def test_candidates_are_arithmetics_that_differ():
    for a in PRESETS:
        found = list(other_arithmetics(a))
        assert len({c.id for c in found}) == len(found)
        assert all(c.converted is not None or replace(c.arithmetic, name=a.name) != a for c in found if not c.preset)
    ids = {c.id for c in other_arithmetics(preset("float32"))}
    assert ids >= {"scores=float16", "inputs=bfloat16", "product=TF32", "arithmetic=bfloat16-eager"}


def test_no_format_is_finer_than_that_of_the_inputs():
    ids = {c.id for c in other_arithmetics(preset("bfloat16"))}
    assert ids
    assert not ids & {"scores=float16", "accumulate=float16", "product=TF32", "product=float16", "inputs=float16"}


def rows_of_16_bits(q, k, v, mask=None):
    """Attention with sums of rows in bfloat16, one after the other."""
    weights = np.exp(q @ k.swapaxes(-1, -2) - (q @ k.swapaxes(-1, -2)).max(-1, keepdims=True))
    total = np.zeros((*weights.shape[:-1], 1), np.float32)
    for key in range(weights.shape[-1]):
        total = (total + weights[..., key : key + 1]).astype(ml_dtypes.bfloat16).astype(np.float32)
    return weights @ v / total


def explains(function, name, error, arithmetic="float32"):
    """Whether an arithmetic explains the calls with equal scores, if the largest error is known."""
    implementation = Implementation("rows", {SDPA: function}, arithmetic)
    shapes = {"q": (2, 4), "k": (3, 4), "v": (3, 3)}
    call = Call(SDPA, (*(np.ones(shape) for shape in shapes.values()), None), "contiguous", ())
    (other,) = [each for each in other_arithmetics(preset(arithmetic)) if each.id == name]
    return _explains_directed(other, calls_of_equal_scores(implementation, call), error, implementation)


@pytest.mark.parametrize(
    ("name", "error", "is_explained"),
    [
        ("accumulate=bfloat16", 9.0, True),
        ("accumulate=bfloat16", 1.5, False),  # its budget accepts everything where the sums stop
        ("output=bfloat16", 1.5, False),  # its budget has no room for sums that stop
        ("output=bfloat16", 9.0, False),
    ],
)
def test_rows_of_equal_scores_must_be_explained_too(name, error, is_explained):
    assert explains(rows_of_16_bits, name, error) == is_explained


def test_a_small_error_is_named_only_if_a_row_of_equal_scores_shows_it():
    right = attention(np.float32, np.float32, np.float32)
    assert [explains(right, "scores=float16", error) for error in (1.9, 2.1)] == [False, True]


@pytest.mark.parametrize(("largest", "is_possible"), [(40.0, False), (44.0, True), (1e200, True), (2.0**-130, True)])
def test_numbers_are_flushed_only_if_some_may_be_subnormal(largest, is_possible):
    scores = np.array([[largest, -1.0]])
    arithmetic = "float64" if largest > 1e38 else "float32"
    softmax = Implementation("softmax", {"hard_masked_softmax": REFERENCE["hard_masked_softmax"]}, arithmetic)
    call = Call("hard_masked_softmax", (scores, None), "contiguous", ())
    assert _may_flush(call, softmax) == is_possible


def test_a_rotation_of_ordinary_numbers_flushes_nothing():
    call = Call("rope", (np.ones((2, 4)), 1), "contiguous", ())
    assert not _may_flush(call, Implementation("rope", {"rope": REFERENCE["rope"]}, "float32"))


# -- A passing implementation ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arithmetic", "finer"),
    [
        ("float64", ()),
        ("float32", ()),
        ("tf32", ("float32",)),
        ("bfloat16", ()),
        ("bfloat16-stored-gradients", ("bfloat16",)),
    ],
)
def test_finer_presets_round_nothing_to_fewer_bits(arithmetic, finer):
    assert tuple(p.name for p in finer_presets(preset(arithmetic))) == finer


@pytest.mark.parametrize(("declared", "narrowest"), [("float32", "float32"), ("tf32", "float32")])
def test_a_passing_implementation_is_told_the_narrowest_preset_it_is_within(declared, narrowest):
    exact = attention(np.float32, np.float32, np.float32)
    report = verify({SDPA: exact}, arithmetic=declared, laws=["attention is within its error limit"], max_examples=50)
    assert report.ok
    ((name, calls),) = report.narrowest().values()
    assert (name, calls > 1) == (narrowest, True)
    assert report.to_dict()["narrowest"] == {"implementation": {"arithmetic": narrowest, "calls": calls}}
