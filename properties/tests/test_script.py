"""The script of a violation is Python that shows the same again, in a process that knows nothing of the first."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from oracles import preset
from properties.laws import find
from properties.processes.adapters import load
from properties.verifier.call_record import RecordedCall
from properties.verifier.report import Violation
from properties.verifier.script import literal, script, script_of_call
from properties.verifier.verify import check

ADAPTERS = """
import numpy as np
from properties.contract.implementation import Implementation
from properties.bugs.reference import REFERENCE

attention = REFERENCE["scaled_dot_product_attention"]

def ignores_the_mask(q, k, v, mask=None):
    return attention(q, k, v)

def scales_twice(q, k, v, mask=None):
    return attention(q / np.sqrt(q.shape[-1]), k, v, mask)

def drops_the_last_of_many_keys(q, k, v, mask=None):
    n = k.shape[-2] - (k.shape[-2] > 64)
    return attention(q, k[..., :n, :], v[..., :n, :], None if mask is None else mask[..., :n])

def rounds(q, k, v, mask=None):
    return attention(q, k, v, mask).astype(np.float32)

q = {"scaled_dot_product_attention": ignores_the_mask}
twice = Implementation("twice", {"scaled_dot_product_attention": scales_twice})
drops = {"scaled_dot_product_attention": drops_the_last_of_many_keys}
GROUPS = {"a": [twice], "b": [drops, Implementation("of it's own", q)]}
rounded = Implementation("rounded", {"scaled_dot_product_attention": rounds}, supports=())
"""
AGREEMENT = "attention is within its error limit"


@pytest.fixture
def adapters(tmp_path, monkeypatch):
    (tmp_path / "planted_adapters.py").write_text(ADAPTERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("planted_adapters", None)


def run(folder, code):
    (folder / "shown.py").write_text(code)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "shown.py"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("target", "place", "arithmetic"),
    [
        ("planted_adapters:q", 0, None),
        ("planted_adapters:twice", 0, "float32"),
        pytest.param("planted_adapters:GROUPS", 1, None, marks=pytest.mark.thorough),
        ("planted_adapters:GROUPS", 2, None),
        ("planted_adapters:rounded", 0, None),
        (
            "planted_adapters:twice",
            0,
            replace(preset("float32"), name="mine", sum_depth=64, scores=preset("float16").inputs),
        ),
        pytest.param("planted_adapters:twice", 0, preset("float32-torch-tanh"), marks=pytest.mark.thorough),
    ],
)
def test_a_script_fails_with_the_same_summary(adapters, target, place, arithmetic):
    found = load([target], arithmetic)[place]
    (chosen,) = find(AGREEMENT)
    violation = check(chosen, found.implementation, 20).violation
    code = script(violation, target, found.pick, arithmetic)
    ran = run(adapters, code)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"properties.contract.results.BrokenError: {violation.summary}"
    assert len(code) < 4000


def test_without_a_target_there_is_a_line_to_fill_in():
    violation = Violation("a law", "rope", "mine", "is wrong.", {"x": np.eye(2), "start_pos": 3}, 2.0)
    assert script(violation) == (
        "import numpy as np\n\n"
        "from attnspec import properties\n\n"
        "implementation = ...  # the implementation under test\n"
        "x = np.array([[1.0, 0.0], [0.0, 1.0]])\n"
        'properties.replay("a law[rope]", implementation, x=x, start_pos=3)\n'
    )


def test_a_violation_without_a_case_has_no_script():
    assert (
        script(Violation("a law", "rope", "mine", "is declared to be broken, but held.", {}, 0.0), "module:adapter")
        == ""
    )


def test_a_call_that_ends_the_process_ends_the_script_too(adapters):
    noted = RecordedCall("scaled_dot_product_attention", (np.eye(1), np.eye(1), np.eye(1), None), "transposed")
    code = script_of_call(noted, "planted_adapters:q")
    assert (
        'properties.call("scaled_dot_product_attention", implementation, q=q, k=k, v=v, mask=None, layout="transposed")'
        in code
    )
    assert run(adapters, code).returncode == 0
    (adapters / "planted_adapters.py").write_text(
        "import os\nq = {'scaled_dot_product_attention': lambda *a: os.abort()}\n"
    )
    assert run(adapters, code).returncode < 0


RNG = np.random.default_rng(0)
SPARSE = np.zeros((300, 8))
SPARSE[7, 3], SPARSE[299, 0] = -0.0, np.inf


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.0, -0.0, np.nan], [np.inf, -np.inf, 5e-324]]),
        np.array(1.5),
        np.zeros((0, 3)),
        np.zeros((2, 0), bool),
        np.array([[True, False]]),
        np.arange(6, dtype=np.int32).reshape(1, 2, 3),
        np.arange(300)[:, None] % 17,
        np.zeros((0, 2), np.int64),
        np.float32([0.1, 2.0]),
        RNG.standard_normal((4, 8)),
        RNG.integers(-8, 8, (30, 7)) / 16,
        RNG.standard_normal((300, 8)),
        RNG.random((300, 70)) < 0.5,
        SPARSE,
        np.full((20, 20), -3.25),
        np.where(RNG.random((40, 40)) < 0.7, np.nan, 1.0),
        np.asfortranarray(RNG.standard_normal((20, 30))),
    ],
    ids=lambda x: f"{x.dtype}{x.shape}",
)
def test_every_array_is_rebuilt_to_the_last_bit(array):
    code = script(Violation("a law", "rope", "mine", "is wrong.", {"x": array}, 2.0)).replace(
        "properties.replay(", "found.update("
    )
    code = code.replace('"a law[rope]", implementation, ', "")
    found = {}
    exec(code, {"found": found})
    assert found["x"].dtype == array.dtype
    assert found["x"].shape == array.shape
    assert found["x"].tobytes() == np.ascontiguousarray(array).tobytes()
    assert max(map(len, code.splitlines())) <= 140


def test_entries_that_are_no_arrays_are_written_as_they_are():
    assert (
        literal(("strided", None, 3, [1.5, float("nan")], np.float64(-np.inf)))
        == '("strided", None, 3, [1.5, np.nan], -np.inf)'
    )
