"""The vectors are what is chosen, the same each time; they kill the known bugs, and raise no false alarm."""

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracles import preset
from properties.bugs.mutants import MUTANTS
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS
from properties.vectors.expectation import expected, is_right, judges, tolerances
from research.vectors.choice import FORMATS
from research.vectors.choosing import chosen, pruned, survivors, told_once
from research.vectors.kills import beyond_vectors, killed, mutants_of
from research.vectors.long import LONG
from research.vectors.matrix import markdown
from research.vectors.onnx_layout import CASES, write_onnx
from research.vectors.writing import VECTORS, write
from systems import GROUPS

DATA = VECTORS / "data"
CHOICES = chosen()
TESTS = [(one, arithmetic) for one in CHOICES for arithmetic in one.kills]


@pytest.mark.parametrize("operation", dict.fromkeys(one.choice.operation for one in CHOICES))
def test_what_is_published_is_what_is_written_to_the_byte(operation, tmp_path):
    """40 seconds of a processor for all operations."""
    assert len(list(write(tmp_path, [operation]))) == 1 + any(one.operation == operation for one in LONG)
    for file in tmp_path.rglob("*.*"):
        assert file.read_bytes() == (DATA / file.relative_to(tmp_path)).read_bytes(), file.name


def test_every_operation_but_those_of_caches_is_published_and_no_other_file():
    assert set(OPERATIONS) - {one.choice.operation for one in CHOICES} == {
        "decode",
        "batched_decode",
    }  # programs of several calls
    names = {*(one.choice.operation for one in CHOICES), *(f"long/{one.operation}" for one in LONG)}
    assert {str(file.relative_to(DATA)) for file in DATA.rglob("*.*")} == {
        f"{name}.{kind}" for name in names for kind in ("json", "safetensors")
    }


# -- What is chosen --------------------------------------------------------------------------------


def _arguments_and_expected(one, arithmetic):
    arguments = one.choice.arguments(arithmetic)
    return arguments, expected(one.choice.of, arguments, arithmetic, one.choice.reading)


def test_the_vectors_kill_every_bug_that_one_call_can_show():
    assert survivors(CHOICES) == []
    assert pruned(CHOICES) == told_once(CHOICES) == CHOICES


@pytest.mark.parametrize(
    ("one", "arithmetic"), TESTS[::23], ids=lambda x: x if isinstance(x, str) else x.choice.operation
)
def test_a_test_kills_what_it_says(one, arithmetic):
    """A share of them, to which all mutants are put: those that it kills and no test before it of the format."""
    arguments, wanted = _arguments_and_expected(one, arithmetic)
    assert judges(wanted)
    mutants = [m for m in mutants_of(one.choice) if not beyond_vectors(m)]
    before = CHOICES[: CHOICES.index(one)]
    told = {
        kill
        for other in before
        if other.choice.operation == one.choice.operation
        for kill in other.kills.get(arithmetic, ())
    }
    found = killed(one.choice, arithmetic, arguments, wanted, mutants)
    assert [kill for kill in found if kill not in told] == one.kills[arithmetic]


def test_the_page_has_a_row_for_each_mutant():
    rows = [line.split(" | ")[:2] for line in markdown(CHOICES).splitlines() if line.startswith("| ")]
    told = [(row[0].removeprefix("| "), row[1].removesuffix(" |")) for row in rows]
    assert {(m.bug.id, m.operation) for m in MUTANTS.values()} <= set(told)


PRESENT = [i for group in GROUPS.values() for i in group if not i.unavailable and "compiled" not in i.name]


RIGHT_ALARMS = {("torch SDPA math", "no keys")}
"""Of no keys at all its log-sum-exp and its tangent are NaN, where they should be −∞ and 0."""


@pytest.mark.parametrize("share", range(3))
def test_no_alarm_is_false_on_what_comes_with_attnspec(share):
    """Implementations of every system that declare no deviation pass the tests that they take, each
    in its own reading: a share, by turns.

    What is compiled first is left out: it takes a minute.
    """
    alarms, asked = [], 0
    for i in (i for i in PRESENT if not i.known_deviations):
        arithmetic, reading = i.resolved_arithmetic, replace(i.resolved_conventions, mask_polarity="true_allows")
        named = [one.choice for one, name in TESTS if name == arithmetic.name and not one.choice.conventions]
        for choice in named[share::12] if arithmetic in map(preset, FORMATS) else ():
            arguments = choice.arguments(arithmetic.name) if choice.operation in i.operations else None
            if arguments is not None and i.takes(choice.of, arguments):
                with suppress(ValueError):  # a reading refuses, or the masks are not those that it takes
                    wanted = expected(choice.of, arguments, arithmetic.name, reading)
                    outputs, *_ = Caller(i, choice.operation).run(choice.of, arguments)
                    asked += 1
                    alarms += [
                        (i.name, choice) for x, of in zip(outputs, wanted, strict=True) if not is_right(x, of).all()
                    ]
    assert {(name.partition(",")[0], choice.domain) for name, choice in alarms} <= RIGHT_ALARMS
    assert asked > 20


# -- ONNX's layout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_left_out_of_a_case_for_onnx_is_off_by_a_tenth(case):
    """And the tolerances that follow from the budgets are below a thousandth, so that any up to that are right."""
    wanted = case.expected()
    assert max(tolerances(wanted)) <= 1e-3
    assert not wanted.vacuous
    slips = [
        replace(case, options={name: x for name, x in case.options.items() if name != left_out})
        for left_out in case.options
    ]
    if "mask" in case.options:
        slips += [replace(case, options={"mask": mask}) for mask in (case.options["mask"].T, ~case.options["mask"])]
    if "window" in case.options:
        left, right = case.options["window"]
        slips += [replace(case, options={**case.options, "window": (left + e, right)}) for e in (-1, 1)]
        slips += [
            replace(case, options={**case.options, "window": (left, right + e)}) for e in (-1, 1) if right is not None
        ]
    if "causal" in case.options:
        later = {name: x for name, x in case.options.items() if name != "causal"}
        slips += [
            replace(case, options={**later, "mask": np.tri(*case.tensors()["Q"].shape[-2:-1] * 2, e, dtype=bool)})
            for e in (-1, 1)
        ]
    for slip in slips:
        assert np.abs(slip.expected().value - wanted.value).max() >= 0.1 * np.abs(wanted.value).max()


def _reference_of_onnx(model, given):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, given)


def _onnxruntime(model, given):
    import onnxruntime

    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)


@pytest.mark.parametrize(("engine", "run"), [("onnx", _reference_of_onnx), ("onnxruntime", _onnxruntime)])
def test_engines_of_onnx_pass_what_is_written_in_its_layout(engine, run, tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: its layout was not written.")
    pytest.importorskip(engine, reason=f"{engine} is not installed: it was not asked.")
    from onnx.backend.test.loader import load_model_tests

    written_cases = [*write_onnx(tmp_path / "simple")]
    written, kept = (
        {f.relative_to(place): f.read_bytes() for f in place.rglob("*.*")}
        for place in (tmp_path / "simple", DATA.parent / "onnx")
    )
    assert written == kept
    cases = load_model_tests(str(tmp_path), "simple")
    assert len(cases) == sum(len(case.opsets) for case in CASES) == len(written_cases)
    for case in cases:
        model, data = onnx.load(f"{case.model_dir}/model.onnx"), Path(case.model_dir, "test_data_set_0")
        numbers = [
            onnx.numpy_helper.to_array(onnx.load_tensor(data / f"input_{i}.pb")) for i in range(len(model.graph.input))
        ]
        wanted = onnx.numpy_helper.to_array(onnx.load_tensor(data / "output_0.pb"))
        given = dict(zip([x.name for x in model.graph.input], numbers, strict=True))
        out, *_ = run(model, given)
        np.testing.assert_allclose(out, wanted, rtol=case.rtol, atol=case.atol)
        assert not np.allclose(out[..., ::-1, :], wanted, rtol=1e-3, atol=1e-3)


def test_without_onnx_its_layout_is_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ValueError, match=r"pip install 'attnspec\[onnx\]'"):
        next(write_onnx(tmp_path))
