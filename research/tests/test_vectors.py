"""The vectors are what is chosen, the same each time; they kill the known bugs, and raise no false alarm."""

import subprocess
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
from research.vectors.onnx_layout import CASES, Attention, write_onnx
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


def _has_its_axes(implementation, choice, arguments):
    """Whether an implementation declares the sections of a call, if there are two of them."""
    return len(choice.of.named(arguments).get("sections") or ()) != 2 or "axial" in implementation.features


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
            if arguments is not None and i.takes(choice.of, arguments) and _has_its_axes(i, choice, arguments):
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_what_is_left_out_of_a_case_for_onnx_is_off_by_a_tenth(case):
    """And the tolerances that follow from the error limits are below a thousandth, or a hundredth in
    float16, so that any up to that are right.
    """
    wanted = case.expected()
    assert max(tolerances(wanted)) <= {"float32": 1e-3, "float16": 1e-2}[case.dtype]
    assert not wanted.vacuous
    slips = _slips_of_attention(case) if isinstance(case, Attention) else _slips_of_rotary(case)
    for slip in slips:
        assert np.abs(slip.expected().value - wanted.value).max() >= 0.1 * np.abs(wanted.value).max()


def _slips_of_rotary(case):
    """Wrong pairs, all channels or half of them, and positions that are one late."""
    yield replace(case, is_interleaved=not case.is_interleaved)
    yield replace(case, rotates=12 - case.rotates)
    yield replace(case, late=1)


def _slips_of_attention(case):
    """A case without an option, with a mask of another form, and with a band that is one key too wide or too narrow."""
    slips = [
        replace(case, options={name: x for name, x in case.options.items() if name != left_out})
        for left_out in case.options
    ]
    if case.lengths:
        slips.append(replace(case, lengths=()))
    if "mask" in case.options:
        mask = case.options["mask"]
        others = [~mask, *([mask.swapaxes(-1, -2)] if mask.shape[-1] == mask.shape[-2] else [])]
        slips += [replace(case, options={"mask": other}) for other in others]
    if "window" in case.options:
        left, right = case.options["window"]
        slips += [replace(case, options={**case.options, "window": (left + e, right)}) for e in (-1, 1)]
        slips += [
            replace(case, options={**case.options, "window": (left, right + e)}) for e in (-1, 1) if right is not None
        ]
    if "causal" in case.options:
        later, (*_, n_q, _), n_k = {**case.options, "causal": False}, case.arrays()["Q"].shape, case.n_k
        slips += [
            replace(case, options={**later, "mask": np.tri(n_q, n_k, case.past + e, dtype=bool)}) for e in (-1, 1)
        ]
    return slips


def _reference_of_onnx(model, given):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, given)


def _onnxruntime(model, given):
    import onnxruntime

    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)


def test_the_cases_for_onnx_are_what_is_written_to_the_byte(tmp_path):
    assert len(list(write_onnx(tmp_path))) == 1
    for name in ("cases.json", "cases.safetensors"):
        assert (tmp_path / name).read_bytes() == (VECTORS / "onnx" / name).read_bytes()
    assert sum(len(case.opsets) for case in CASES) >= 200


@pytest.mark.parametrize(("engine", "run"), [("onnx", _reference_of_onnx), ("onnxruntime", _onnxruntime)])
def test_engines_of_onnx_pass_what_is_materialised_in_its_layout(engine, run, tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: its layout was not written.")
    pytest.importorskip(engine, reason=f"{engine} is not installed: it was not asked.")
    from onnx.backend.test.loader import load_model_tests

    command = [sys.executable, VECTORS / "onnx" / "materialise.py", tmp_path / "simple"]
    subprocess.run(command, check=True)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*.*") if file.is_file())
    assert size < 8e6
    cases = load_model_tests(str(tmp_path), "simple")
    assert len(cases) == sum(len(case.opsets) for case in CASES)
    wrong = []
    for case in cases:
        model, data = onnx.load(f"{case.model_dir}/model.onnx"), Path(case.model_dir, "test_data_set_0")
        inputs, outputs = (
            [
                onnx.numpy_helper.to_array(onnx.load_tensor(data / f"{kind}_{i}.pb"))
                for i in range(len(getattr(model.graph, kind)))
            ]
            for kind in ("input", "output")
        )
        given = dict(zip([x.name for x in model.graph.input], inputs, strict=True))
        found = run(model, given)
        if not all(np.allclose(x, y, case.rtol, case.atol) for x, y in zip(found, outputs, strict=True)):
            wrong.append(case.name)
        assert not np.allclose(found[0][..., ::-1, :], outputs[0], rtol=1e-3, atol=1e-3)
    assert wrong == []
