"""What reviews found in verdicts: right kernels that were refused, wrong ones that were not, and
reports that were wrong.
"""

import ml_dtypes
import numpy as np
import pytest

import properties
from oracles import Conventions, preset
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import USUAL_REFUSALS, Implementation
from properties.contract.operations import OPERATIONS as CONTRACTS
from properties.strategies.axes import along
from properties.tests.diagnosing import causes
from properties.verifier.plan import QUICKLY
from properties.verifier.verify import verify

SDPA = "scaled_dot_product_attention"


DTYPES = {"binary16": np.float16, "bfloat16": ml_dtypes.bfloat16, "binary32": np.float32}


def in_format(name, arithmetic):
    """The reference in float64, rounded once."""

    def found(*arguments):
        given = (np.asarray(x, np.float64) if isinstance(x, np.ndarray) and x.dtype != bool else x for x in arguments)
        return REFERENCE[name](*given).astype(DTYPES[preset(arithmetic).output.name])

    return found


@pytest.mark.parametrize(
    "arithmetic", ["float16-eager", "bfloat16-eager", "bfloat16-scaled-inputs", "tf32", "float16-elementwise"]
)
def test_a_law_of_large_scores_says_something_of_coarse_ones(arithmetic):
    implementation = Implementation("coarse", {SDPA: in_format(SDPA, arithmetic)}, arithmetic)
    (outcome,) = verify(
        implementation, laws=["a key with a far higher score determines the output"], max_examples=20
    ).outcomes
    assert outcome.status == "held"


def shifted_beyond(width):
    """RoPE whose table has so many channels: wider inputs are not rotated from there on."""

    def rope(x, start_pos=0):
        if x.shape[-1] % 2:
            raise ValueError("The width is odd, but should be even.")
        out = REFERENCE["rope"](x, start_pos)
        out[..., width:] = x[..., width:]
        return out

    return rope


def test_what_is_wrong_of_other_widths_than_those_drawn_is_reported():
    """A law that calls with twice the width leaves the last arguments out."""
    conventions = Conventions(odd_lane="reject")
    wide = Implementation(
        "wide", {"rope": shifted_beyond(128)}, conventions=conventions, supports={"head_dim": lambda d: d % 2 == 0}
    )
    assert verify(wide, laws=["pair 2i at width 2d has the same angle as pair i at width d"], max_examples=60).causes


def test_a_law_of_odd_widths_says_nothing_of_even_ones():
    """To which a smaller input may be cut."""
    properties.replay(
        "the last channel of an odd width follows its convention[rope]",
        {"rope": REFERENCE["rope"]},
        x=np.array([[0.0, 1.0]]),
        start_pos=1,
    )


def test_lengths_stay_within_what_is_left_of_a_mask():
    case = {"lengths": np.array([32, 3]), "max_len": 33}
    assert along(CONTRACTS["padding_mask"], case, "max_len", range(16))["lengths"].tolist() == [16, 3]


def test_a_batch_stride_that_is_computed_from_that_of_a_head_is_seen():
    """As it is of contiguous arrays, and not of heads that were split off channels."""

    def misread(x):
        strides = list(x.strides)
        if x.ndim > 3:
            strides[-4] = x.shape[-3] * strides[-3]
        return np.lib.stride_tricks.as_strided(x, x.shape, strides)

    def attention(q, k, v, mask=None):
        return REFERENCE[SDPA](misread(q), misread(k), misread(v), mask)

    report = verify({SDPA: attention}, laws=["a view gives the same result as its contiguous copy"], max_examples=60)
    assert not report.ok
    assert "heads-inside" in report.violations[0].summary


def test_every_width_of_a_list_is_drawn():
    """128 besides 64, which a domain of other widths has too; and a domain that has neither is not left out."""
    seen = set()

    def attention(*arguments, **options):
        seen.add(arguments[0].shape[-1])
        return REFERENCE["attention"](*arguments, **options)

    widths = Implementation("widths", {"attention": attention}, features=["causal"], supports={"head_dim": (64, 128)})
    report = verify(widths, max_examples=20)
    assert report.ok
    assert seen >= {64, 128}  # others are to be refused
    assert sum(outcome.status == "not applicable" for outcome in report.outcomes) < len(report.outcomes) / 2


def masked_before_scaling(refuses):
    """Attention that sets what is masked to −∞ before it scales, and may refuse the scales of which that makes NaN."""

    def attention(q, k, v, **options):
        if refuses and options.get("scale") is not None and options["scale"] <= 0:
            raise ValueError(f"scale={options['scale']}, but should be above 0.")
        return CATALOGUE["attention-masked-before-the-scale"].fresh()(q, k, v, **options)

    return {"attention": attention}


@pytest.mark.thorough
def test_scales_of_0_and_below_are_drawn_and_need_not_be_taken():
    features = ("scale", "causal")
    found = causes(Implementation("early mask", masked_before_scaling(False), features=features), 25)
    assert [cause.likely.id for cause in found] == ["attention-masked-before-the-scale"]
    for positive in ((0.125, 2.0), lambda scale: scale > 0):
        promises = {"features": features, "supports": {"scale": positive}, "refuses": USUAL_REFUSALS}
        assert verify(Implementation("refuses", masked_before_scaling(True), **promises), max_examples=25).ok
        silent = causes(Implementation("silent", masked_before_scaling(False), **promises), 25)
        assert [cause.laws for cause in silent] == [("unsupported sizes are refused[attention]",)]


def test_a_kernel_of_no_scale_that_is_drawn_is_told_so():
    of_tenths = Implementation("tenths", REFERENCE, features=("scale",), supports={"scale": lambda scale: scale == 0.1})
    (outcome,) = verify(of_tenths, laws=["columns of values are computed independently[attention]"]).outcomes
    assert "supports none of the drawn scales" in outcome.reason


@pytest.mark.parametrize(
    "difference", [-1, *(pytest.param(n, marks=pytest.mark.thorough) for n in (8, -7)), 700], ids=str
)
def test_sizes_that_differ_by_a_number_are_drawn(difference):
    """Also where no domain has two such sizes; the domain without keys is left out where one key
    would be its nearest.
    """
    tied = Implementation(
        "tied", {SDPA: REFERENCE[SDPA]}, supports=["positive sizes", {"n_k_minus_n_q": lambda n: n == difference}]
    )
    report = verify(tied, max_examples=5)
    assert report.ok
    states = {outcome.law: outcome.status for outcome in report.outcomes}
    assert sum(status == "held" for status in states.values()) > len(states) / 2
    assert states["without keys every row is fully masked"] == "not applicable"


@pytest.mark.parametrize(
    ("quick", "seed"),
    [
        pytest.param(quick, seed, marks=[pytest.mark.thorough] * (seed > 0))
        for quick in (True, False)
        for seed in range(3)
    ],
)
def test_masks_of_keys_are_drawn_by_every_plan(quick, seed):
    """Padding, which all queries share: a kernel that leaves such masks out was accepted with most seeds."""
    wrong = Implementation("wrong", {SDPA: CATALOGUE["sdpa-masks-of-keys-ignored"].fresh()})
    found = causes(wrong, QUICKLY if quick else 100, seed, quick=quick)
    assert [cause.likely.id for cause in found] == ["sdpa-masks-of-keys-ignored"]
