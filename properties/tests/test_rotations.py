"""Rotations as models use them: what is declared, what is passed, what is told from outputs, and
what a call leaves behind.
"""

import subprocess
import sys
from itertools import combinations, product

import mpmath
import numpy as np
import pytest

import oracles
from oracles import Conventions
from properties import verify
from properties.bugs import CATALOGUE
from properties.bugs.mutants import MUTANTS
from properties.bugs.reference import REFERENCE
from properties.contract.features import FEATURES, KINDS, ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.laws.rope_options import axes_of
from properties.strategies import adjustments, drawn_rotations
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices
from properties.strategies.domain import EDGES
from properties.strategies.domains import DOMAINS, ROTATIONS
from properties.strategies.drawn_frequencies import ends, rises
from properties.tests.diagnosing import first_cause
from properties.tests.readings import meaning
from properties.verifier.rotary_layouts import in_layout

NUMPY = Implementation("NumPy", REFERENCE, features=FEATURES)
FREQUENCIES = OPERATIONS["rotary_frequencies"]


def cases_of(operation, domain, i=NUMPY, seeds=range(1, 120)):
    cases = Cases(OPERATIONS[operation], DOMAINS[operation][domain], i)
    return [dict(zip(OPERATIONS[operation].parameters, cases.draw(seed), strict=True)) for seed in seeds]


def recording(operation, seen):
    def called(*arguments, **options):
        seen.append((arguments, options))
        return REFERENCE[operation](*arguments, **options)

    return called


@pytest.mark.parametrize(
    ("operation", "declared"),
    [
        pytest.param(operation, declared, marks=[pytest.mark.thorough] * (operation == "rope_vjp" and is_thorough))
        for declared, is_thorough in (
            ((), True),
            (("inv_freq",), True),
            (("positions", "sections"), False),
            (("rotary_dim", "attention_factor"), True),
        )
        for operation in ("rope", "rope_vjp")
    ],
)
def test_rope_is_passed_what_is_declared_and_nothing_else(operation, declared):
    seen = []
    offered = {"rope": REFERENCE["rope"], operation: recording(operation, seen)}
    assert verify(Implementation("some", offered, features=declared), max_examples=20).ok
    assert {p for _, options in seen for p in options} == set(declared)


def test_kinds_and_parameters_that_are_not_declared_are_never_passed():
    seen = []
    declared = ("linear", "yarn", "mscale", "base")
    offered = {"rotary_frequencies": recording("rotary_frequencies", seen)}
    report = verify(Implementation("some", offered, features=declared), max_examples=40)
    assert report.ok
    assert {kind for (kind, _), _ in seen} == {"default", "linear", "yarn"}
    assert {p for _, options in seen for p in options} == {
        "base",
        "factor",
        "original_max_position_embeddings",
        "mscale",
    }
    (outcome,) = [o for o in report.outcomes if o.law == "the sequence length selects the short or the long factors"]
    assert (outcome.status, outcome.reason) == ("not applicable", "It does not declare the feature longrope.")


def test_every_pair_of_options_of_rope_comes_up_with_and_without_each():
    given = [{p for p in ROTATION if x[p] is not None} for x in cases_of("rope", ROTATIONS)]
    met = {(a, b, a in x, b in x) for x in given for a, b in combinations(ROTATION, 2)}
    assert met >= {(a, b, *has) for a, b in combinations(ROTATION, 2) for has in product((True, False), repeat=2)}
    assert not any(x[p] is not None for x in cases_of("rope", "everyday") for p in ROTATION)


def test_positions_are_packed_and_far_and_differ_between_axes_and_problems():
    found = [
        x
        for x in cases_of("rope", ROTATIONS, seeds=range(1, 300))
        if x["positions"] is not None and x["x"].shape[-2] > 2
    ]
    assert any((np.diff(x["positions"]) < 0).any() and x["positions"].max() < 40 for x in found)
    assert any(x["positions"].max() > 2**16 for x in found)
    assert any(x["sections"] and (x["positions"][0] != x["positions"][1]).any() for x in found)
    assert any(
        x["positions"].ndim > 1 and x["sections"] is None and (x["positions"] != x["positions"][:1]).any()
        for x in found
    )
    assert all(x["start_pos"] == 0 for x in found)


def test_every_kind_comes_up_with_each_of_its_parameters_and_lengths_beside_the_original():
    found = cases_of("rotary_frequencies", "everyday", seeds=range(1, 400))
    for kind, (given, optional) in KINDS.items():
        own = [x for x in found if x["kind"] == kind]
        assert own
        assert all(x[p] is not None for x in own for p in given)
        assert all({x[p] is None for x in own} == {True, False} for p in optional)
    long = [x for x in found if x["kind"] == "longrope"]
    assert {np.sign((x["seq_len"] or 0) - x["original_max_position_embeddings"]) for x in long} == {-1, 0, 1}
    ramps = [x for x in found if x["kind"] == "yarn"]
    assert all(rises(x, NUMPY) for x in ramps)
    inside = [0 < low < high < x["head_dim"] // 2 - 1 for x in ramps for low, high in [ends(x)]]
    assert any(inside)


def test_frequencies_that_are_drawn_are_powers_rounded_once():
    """1e6 ** −0.16666666666666666 is so near the middle of two numbers that NumPy's power depends on the processor."""
    exponents = -(np.arange(48) / 48)
    with mpmath.workprec(200):
        wanted = [float(mpmath.mpf(1e6) ** x) for x in exponents.tolist()]
    assert drawn_rotations._powers(1e6, exponents).tolist() == wanted


def test_tables_that_are_drawn_are_cosines_and_sines_rounded_once():
    """NumPy's depend on the processor, too; two tables in three are no rotations, and stay as they were."""
    reference, rotated = Implementation("reference", REFERENCE), 0
    for seed in range(1, 30):
        choose, drawn = Choices(seed), {"cos": np.zeros((2, 6)), "sin": np.zeros((2, 6))}
        adjustments.rotations(OPERATIONS["apply_rotary"], reference, drawn, Choices(seed))
        if choose.integer(0, 2) == 2:
            start, rotated = (
                choose.among([choose.integer(0, 16), choose.among(EDGES), choose.integer(0, 2**20)]),
                rotated + 1,
            )
            with mpmath.workprec(200):
                angles = [(start + p) * mpmath.mpf(10000) ** (-2.0 * (j // 2) / 6) for p in range(2) for j in range(6)]
                assert drawn["cos"].ravel().tolist() == [float(mpmath.cos(angle)) for angle in angles]
                assert drawn["sin"].ravel().tolist() == [float(mpmath.sin(angle)) for angle in angles]
        else:
            assert not drawn["cos"].any()
    assert rotated > 3


NAMED = [
    "yarn-attention-factor-twice",
    "yarn-ramp-not-rounded",
    "longrope-switched-below",
    "rope-attention-factor-twice",
    "rope-pairs-at-half-the-head",
    "rope-blocks-where-axes-interleave",
]
SAME = {"longrope-switched-below": "longrope_switch=below", "rope-blocks-where-axes-interleave": "mrope=sectioned"}


@pytest.mark.parametrize("bug", NAMED)
def test_a_slip_is_named_from_outputs_alone(bug):
    """In float32, from float64 rounded once, so that no number is the reference's own."""
    planted = CATALOGUE[bug]

    def rounded(*arguments, **options):
        found = planted.fresh()(*map(doubled, arguments), **{p: doubled(x) for p, x in options.items()})
        return tuple(x.astype(np.float32) for x in found) if isinstance(found, tuple) else found.astype(np.float32)

    offered = {planted.operation: rounded}
    blind = Implementation("blind", offered, arithmetic="float32", features=FEATURES, **planted.promises)
    cause = first_cause(blind)
    assert {bug, SAME.get(bug)} & {d.id for d in cause.diagnosis[:2]}


def doubled(x):
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def test_a_slip_of_adjacent_pairs_is_named_in_code_that_rotates_halves():
    conventions = Conventions(rope_pairing="half")
    rotated = meaning(OPERATIONS["rope"], conventions)

    def twice(x, start_pos, *, attention_factor=1.0, **options):
        return rotated(x, start_pos, attention_factor=attention_factor**2, **options)

    cause = first_cause(Implementation("halves", {"rope": twice}, conventions=conventions, features=ROTATION))
    assert cause.diagnosis[0].id == "rope-attention-factor-twice"


def test_what_is_relaid_is_the_oracle_of_the_other_layout():
    o, half = OPERATIONS["rope"], Conventions(rope_pairing="half")
    x, options = np.arange(24.0).reshape(3, 8), {"rotary_dim": 6}
    found = in_layout(o, REFERENCE["rope"], Conventions(), half)(x, 5, **options)
    assert oracles.rope(x, 5, conventions=half, arithmetic="float64", **options).contains(found).all()
    assert in_layout(o, REFERENCE["rope"], half, half) is REFERENCE["rope"]


@pytest.mark.parametrize(
    ("bug", "operation"),
    [
        pytest.param(name, operation, marks=[pytest.mark.thorough] * (operation != CATALOGUE[name].operation))
        for name in (
            *("longrope-long-once-long", "dynamic-base-of-the-longest-so-far", "frequencies-cached-without-their-base"),
            *("rope-frequencies-of-an-earlier-length", "rotary-table-that-grows-keeps-its-rows"),
        )
        for operation in CATALOGUE[name].mutants
    ],
)
def test_what_is_remembered_is_seen(bug, operation):
    mutant = MUTANTS[bug if operation == CATALOGUE[bug].operation else f"{bug}[{operation}]"].implementation()
    (found,) = verify(
        mutant, laws=[f"a call does not depend on earlier calls[{operation}]"], max_examples=25, fail_fast=True
    ).outcomes
    assert found.status == "violated"


def test_axes_interleave_as_long_as_there_are_some_left():
    assert axes_of(6, (2, 2, 2), "interleaved").tolist() == [0, 1, 2, 0, 1, 2]
    assert axes_of(5, (3, 1, 1), "interleaved").tolist() == [0, 1, 2, 0, 0]
    assert axes_of(4, (2, 1, 1), "sectioned").tolist() == [0, 0, 1, 2]


WRONG = """
import properties
from properties.bugs import CATALOGUE
from properties.contract.features import FEATURES

wrong = CATALOGUE["rope-axes-in-reverse"].mutants
adapter = properties.Implementation("mine", {"rope": wrong["rope"]()}, features=FEATURES)
"""


def test_the_command_shows_options_that_are_given_and_no_others(tmp_path):
    (tmp_path / "mine.py").write_text(WRONG)
    laws = [
        "--laws",
        "rope is within its error limit[rope]",
        "each pair rotates by the position of the axis that it belongs to[rope]",
    ]
    line = [
        sys.executable,
        "-P",
        "-m",
        "attnspec",
        "verify",
        "mine.py",
        "-v",
        *laws,
        "--json",
        "r.json",
        "--html",
        "page",
    ]
    ran = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stderr.count("Traceback")) == (1, 0)
    assert "likely cause: rope-axes-in-reverse\n" in ran.stdout
    assert "sections=(" in ran.stdout
    assert "inv_freq=None" not in ran.stdout
    script = ran.stdout.split("To reproduce it:")[1].split("adapter:")[0]
    assert "properties.replay(" in script
