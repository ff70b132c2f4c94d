"""Twins: paths that agree pass, a path that does not is named, and what is no twin is refused when it is declared."""

import subprocess
import sys

import numpy as np
import pytest

import properties
from oracles import Conventions
from properties import Implementation, Twin
from properties.bugs import reference_positions
from properties.bugs import twins as bugs_of_twins
from properties.bugs.mutants import MUTANTS
from properties.bugs.reference import REFERENCE
from properties.contract.operations import FEATURES
from properties.contract.operations import OPERATIONS as OPERATIONS_
from properties.tests.diagnosing import causes
from properties.tests.readings import meaning
from properties.verifier.verify import verify

SDPA, GQA, LAW = (
    "scaled_dot_product_attention",
    "grouped_query_attention",
    "all code paths of an implementation give the same result",
)


SLOW = ("sdpa-evaluation-path-rounds-otherwise", "sdpa-compiled-does-not-broadcast-masks")


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug.id, marks=[pytest.mark.thorough] * (bug.id in SLOW)) for bug in bugs_of_twins.bug.bugs],
)
def test_a_path_that_differs_is_seen_by_the_law_of_twins_and_by_no_other(bug):
    mutant = MUTANTS[bug].implementation()
    (name,) = mutant.twins
    report = verify(mutant, max_examples=5, exclude=[LAW])
    assert {o.status for o in report.outcomes} <= {"held", "not applicable"}
    for seed in range(3):
        (cause,) = causes(mutant, 60, seed, laws=[LAW], fail_fast=True)
        assert cause.example.summary.startswith(f"On the path {name!r} ")
        assert cause.diagnosis == ()


def in_float32(operation):
    """A path in float32 and back, of an operation that takes arrays alone."""

    def call(*arguments, **options):
        wide = [x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x for x in arguments]
        wide_options = {
            p: x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x
            for p, x in options.items()
        }
        found = REFERENCE[operation](*wide, **wide_options)
        return tuple(map(np.float32, found)) if isinstance(found, tuple) else np.asarray(found, np.float32)

    return call


FEW = (
    "scaled_dot_product_attention_vjp",
    "attention",
    "merge_attention",
    "rope",
    "multi_head_attention",
    "causal_mask",
)
TWINS = {
    "itself, exactly": Twin(REFERENCE, exactly=True),
    "rounded otherwise": {name: meaning(OPERATIONS_[name], Conventions()) for name in FEW},
    "in float32": Twin({name: in_float32(name) for name in FEW[:-1]}, promises={"arithmetic": "float32"}),
}


@pytest.mark.parametrize(
    ("operation", "seed"),
    [
        pytest.param(operation, seed, marks=[pytest.mark.thorough] * (operation == "attention" or seed > 0))
        for operation in FEW
        for seed in (0, 1)
    ],
)
def test_paths_that_agree_pass(operation, seed):
    declared = {name: twin for name, twin in TWINS.items() if operation in getattr(twin, "operations", twin)}
    i = Implementation("NumPy", REFERENCE, features=FEATURES, twins=declared)
    (found,) = verify(i, laws=[f"{LAW}[{operation}]"], max_examples=10, seed=seed).outcomes
    assert (found.status, found.reason) == ("held", "")
    assert found.informative > 5


class Kept:
    """Rotations by tables that are kept by their place and shape, and not by their type."""

    def __init__(self):
        self.tables = {}

    def __call__(self, x, start_pos=0):
        key = (start_pos, *x.shape[-2:])
        if key not in self.tables:
            self.tables[key] = tuple(t.astype(x.dtype) for t in reference_positions.chunk_tables(*key))
        cos, sin = (t.astype(x.dtype) for t in self.tables[key])
        return x * cos + reference_positions.rotated(x) * sin


def test_one_object_called_in_one_type_after_another_is_seen_to_keep_the_coarse_tables():
    rope = Kept()
    i = Implementation(
        "kept", {"rope": rope}, twins={"float16": Twin({"rope": rope}, promises={"arithmetic": "float16-elementwise"})}
    )
    found = {
        o.law: o
        for o in verify(
            i,
            laws=["calls of other sizes or implementations do not change later results", "rope is within"],
            max_examples=40,
        ).outcomes
    }
    assert {law: o.status for law, o in found.items()} == {
        "calls of other sizes or implementations do not change later results": "violated",
        "rope is within its error limit": "held",
    }
    assert (
        "That would be right for kept, float16"
        in found["calls of other sizes or implementations do not change later results"].violation.summary
    )


def raises(q, k, v, mask=None):
    raise RuntimeError("not compiled")


def test_a_path_that_raises_is_named():
    i = Implementation("mine", {SDPA: REFERENCE[SDPA]}, twins={"compiled": {SDPA: raises}})
    with pytest.raises(AssertionError, match=r"^The path 'compiled' raised RuntimeError: not compiled$"):
        properties.replay(f"{LAW}[{SDPA}]", i, q=np.zeros((1, 1)), k=np.zeros((1, 1)), v=np.zeros((1, 1)), mask=None)


def refuses_no_keys(q, k, v, mask=None):
    if not k.shape[-2]:
        raise IndexError("no keys")
    return REFERENCE[GQA](q, k, v, mask)


@pytest.mark.parametrize(("refuses", "status"), [(IndexError, "held"), (ValueError, "violated")])
def test_a_path_may_refuse_a_case_without_keys_by_an_exception_that_is_declared(refuses, status):
    twin = Twin({GQA: refuses_no_keys}, promises={"refuses": (refuses,)})
    i = Implementation("mine", {GQA: REFERENCE[GQA]}, twins={"another": twin})
    (found,) = verify(i, laws=[LAW], max_examples=100).outcomes
    assert found.status == status
    assert found.violation is None or found.violation.summary == "The path 'another' raised IndexError: no keys"


def test_without_twins_the_law_does_not_apply_and_says_so():
    (found,) = verify({"rope": REFERENCE["rope"]}, laws=[LAW]).outcomes
    assert (found.status, found.reason) == ("not applicable", "It names no other path of rope.")


@pytest.mark.parametrize(
    ("twins", "error", "sentence"),
    [
        ([raises], TypeError, "should be a mapping from names of paths to mappings of functions."),
        ({"": {SDPA: raises}}, TypeError, "The name of a twin is '', but should be a str that is not empty."),
        ({"compiled": raises}, TypeError, "but should be a mapping of functions, or a properties.Twin."),
        (
            {"compiled": {}},
            ValueError,
            "twins['compiled'] is a path of nothing, but should be one of the offered operations: rope.",
        ),
        (
            {"compiled": {SDPA: raises}},
            ValueError,
            f"twins['compiled'] is another path of '{SDPA}', but should be one of the offered",
        ),
        ({"compiled": {"rope": 3}}, TypeError, "operations['rope'] has type int, but should be a function."),
    ],
)  # fmt: skip
def test_what_is_no_twin_is_refused(twins, error, sentence):
    with pytest.raises(error) as raised:
        Implementation("mine", {"rope": REFERENCE["rope"]}, twins=twins)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"operations": raises}, TypeError, "should be a mapping of functions."),
        ({"exactly": 1}, TypeError, "Twin.exactly=1, but should be a bool."),
        ({"promises": ["float32"]}, TypeError, "should be a mapping from fields of Implementation to values."),
        (
            {"promises": {"name": "x"}},
            ValueError,
            "Twin.promises has 'name', but should have some of arithmetic, conventions, ",
        ),
    ],
)
def test_what_a_twin_is_made_of_is_refused_in_a_sentence(given, error, sentence):
    with pytest.raises(error) as raised:
        Twin(**{"operations": {"rope": raises}, **given})
    assert sentence in str(raised.value)


ADAPTER = """
import os
import numpy as np
from properties import Implementation
from properties.bugs.reference import REFERENCE

def ends(x, start_pos=0):
    os._exit(3) if x.shape[-2] > 1 else None
    return REFERENCE["rope"](x, start_pos)

def halved(x, start_pos=0):
    return REFERENCE["rope"](x, start_pos / 2)

adapter = Implementation("mine", {"rope": REFERENCE["rope"]}, twins={"compiled": {"rope": FUNCTION}})
"""


@pytest.mark.parametrize(
    ("function", "said"), [("halved", "On the path 'compiled' out["), ("ends", "ended the process with exit status 3")]
)
def test_the_command_tells_which_path_differs_and_survives_one_that_ends_the_process(tmp_path, function, said):
    (tmp_path / "kernels.py").write_text(ADAPTER.replace("FUNCTION", function))
    command = [sys.executable, "-m", "attnspec", "verify", "kernels.py", "--laws", LAW, "--max-examples", "10"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert said in " ".join(done.stdout.split())
