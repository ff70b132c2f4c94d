"""Kernels in Triton run in its interpreter with the arithmetic of a GPU, one file of a package is loaded
without the package, and calls that are too slow are left out.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest

from properties import interpreters
from properties.bugs.reference import REFERENCE
from properties.command.cli import main
from properties.contract.caller import Caller
from properties.contract.costs import Costs
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.interpreters import single_file
from properties.interpreters.after_import import after_import

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed.")


@pytest.fixture
def undisturbed(monkeypatch):
    """Imports that a test changes are as before afterwards."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(single_file, "_STUBBED", [])


def test_actions_follow_the_import_of_their_module(tmp_path, undisturbed):
    (tmp_path / "late_module.py").write_text("value = 1\n")
    sys.path.insert(0, str(tmp_path))
    seen = []
    after_import(
        {"late_module": [lambda: seen.append(sys.modules["late_module"].value)], "json": [lambda: seen.append("json")]}
    )
    assert seen == ["json"]
    module = importlib.import_module("late_module")
    assert (seen, module.__spec__.loader.get_source("late_module")) == (["json", 1], "value = 1\n")


def test_actions_wait_if_a_module_is_found_and_not_imported(tmp_path, undisturbed):
    (tmp_path / "found_module.py").write_text("")
    sys.path.insert(0, str(tmp_path))
    seen = []
    after_import({"found_module": [lambda: seen.append("imported")]})
    assert importlib.util.find_spec("found_module") is not None
    assert seen == []
    importlib.import_module("found_module")
    assert seen == ["imported"]


def package(folder):
    """A package whose own code raises, with a module that imports two others."""
    inner = folder / "package" / "ops"
    inner.mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("raise RuntimeError\n")
    (inner / "__init__.py").write_text("raise RuntimeError\n")
    (inner / "numbers.py").write_text("TWO = 2\n")
    (inner / "kernel.py").write_text(
        textwrap.dedent("""\
            from package.platforms import Base, current, register

            from .numbers import TWO

            @register
            def double(x: "current | None"):
                return x * TWO

            class Kernel(Base):
                on_a_gpu = bool(current.is_cuda())
        """)
    )


def test_one_file_is_loaded_without_its_package(tmp_path, undisturbed):
    package(tmp_path)
    sys.path.insert(0, str(tmp_path))
    given = {"package.platforms.current.is_cuda()": True}
    loaded = single_file.load("package/ops/kernel.py", stubs=["package.platforms"], values=given)
    assert (loaded.__name__, loaded.double(3), loaded.Kernel.on_a_gpu) == ("package.ops.kernel", 6, True)
    assert single_file.stand_ins() == ["package.platforms"]


def test_a_stand_in_has_no_truth_value(tmp_path, undisturbed):
    package(tmp_path)
    sys.path.insert(0, str(tmp_path))
    with pytest.raises(TypeError) as raised:
        single_file.load("package/ops/kernel.py", stubs=["package.platforms"])
    name = "package.platforms.current.is_cuda()"
    assert str(raised.value) == f"{name} is a stand-in without a truth value: load(…, values={{{name!r}: …}})."
    assert "package.ops.kernel" not in sys.modules


def test_a_file_that_does_not_exist_is_named(tmp_path, undisturbed):
    package(tmp_path)
    sys.path.insert(0, str(tmp_path))
    with pytest.raises(ValueError, match=r"is not in the working directory.* Did you mean 'kernel.py'\?"):
        single_file.load("package/ops/kernels.py")
    with pytest.raises(ValueError, match="does not exist"):
        single_file.load(tmp_path / "none.py")
    with pytest.raises(ValueError, match="is not a Python file"):
        single_file.load("package")


# -- Slow calls ------------------------------------------------------------------------------------


def test_an_earlier_call_bounds_the_time_of_a_larger_one():
    costs, rope = Costs(1.0), OPERATIONS["rope"]
    small, large = (np.zeros((30, 4)), 0), (np.zeros((300, 4)), 0)
    assert costs.refusal(rope, small) == ""
    sentence = "The call is large, and no smaller call has shown yet how long such calls take."
    assert costs.refusal(rope, large) == sentence
    costs.add(rope, small, 0.25)
    assert costs.predicted(rope, small) == 0.25
    assert costs.predicted(rope, large) == 0.25 * 10
    assert costs.predicted(rope, (np.zeros((30, 8)), 0)) == costs.predicted(rope, (np.zeros((60, 2)), 0)) == 0.5
    heavier = np.zeros((30, 40)), 0
    assert costs.refusal(rope, heavier) == "The call would take up to 2.5 s, and --cost allows 1 s."
    costs.add(rope, large, 0.5)
    assert costs.predicted(rope, small) == 0.25
    assert costs.predicted(rope, large) == 0.5
    costs.add(rope, small, 0.25)
    assert Costs(0.1, _seen=costs._seen).refusal(rope, small) == ""  # a small call is always made
    assert costs.left_out == {"rope": 2}


def test_longer_calls_than_all_others_may_be_slow_for_ten_seconds_in_all():
    costs, rope = Costs(0.2), OPERATIONS["rope"]
    usual, longer, longest = ((np.zeros((rows, 4)), 0) for rows in (25, 500, 5000))
    costs.add(rope, usual, 0.1)
    assert costs.refusal(rope, longest) == "The call would take up to 20 s, and --cost allows 0.2 s."
    for seconds in (2.0, 1.5, 6.0):
        assert costs.refusal(rope, longer) == ""
        costs.add(rope, longer, seconds)
    assert costs.refusal(rope, longer) == "The call would take up to 1.5 s, and --cost allows 0.2 s."
    assert costs.left_out == {"rope": 2}


def test_where_no_call_is_within_the_limit_longer_calls_are_made_too():
    costs, rope = Costs(0.2), OPERATIONS["rope"]
    costs.add(rope, (np.zeros((25, 4)), 0), 0.3)
    assert costs.refusal(rope, (np.zeros((300, 4)), 0)) == ""
    assert costs.refusal(rope, (np.zeros((25, 48)), 0)) == "The call would take up to 3.6 s, and --cost allows 0.2 s."


def test_a_call_that_raises_has_a_time_too():
    def raises(x, start_pos=0):
        raise ValueError("No.")

    costs = Costs(0.2)
    slow = Implementation("slow", {"rope": raises})
    slow = replace(slow, supports=replace(slow.support, costs=costs))
    with pytest.raises(BrokenError):
        Caller(slow, "rope").call("rope", (np.zeros((3, 4)), 0))
    assert costs.predicted(OPERATIONS["rope"], (np.zeros((3, 4)), 0)) < 0.2


def test_the_time_of_a_call_on_pages_depends_on_its_longest_sequence():
    costs, paged = Costs(0.2), OPERATIONS["paged_attention"]
    short, long = (
        (np.zeros((1, 1, 4)), *np.zeros((2, 8, 128, 1, 4)), np.arange(8)[None], np.array([keys]))
        for keys in (100, 1000)
    )
    costs.add(paged, short, 1.0)
    assert costs.predicted(paged, long) == 10.0


def test_a_kernel_without_small_calls_is_called():
    costs, rope = Costs(0.2), OPERATIONS["rope"]
    large, largest = (np.zeros((300, 4)), 0), (np.zeros((350, 4)), 0)
    assert all(costs.refusal(rope, arguments) for arguments in (largest, large, largest, large))
    assert costs.refusal(rope, largest)
    assert costs.refusal(rope, large) == ""
    costs.add(rope, large, 1.0)  # with what the library prepares
    assert costs.refusal(rope, large) == ""
    costs.add(rope, large, 0.5)
    assert costs.refusal(rope, large) == "The call would take up to 0.5 s, and --cost allows 0.2 s."


SLOW = """
import time
from properties.bugs.reference import REFERENCE as _REFERENCE

def rope(x, start_pos=0):
    time.sleep(1e-4 * x.size)
    return _REFERENCE["rope"](x, start_pos)
"""


def test_a_run_leaves_out_calls_that_cost_too_much(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_kernels.py").write_text(SLOW)
    arguments = ["verify", "slow_kernels.py", "--laws", "rope is within its error limit", "--cost", "0.05"]
    start = time.monotonic()
    assert main([*arguments, "--max-examples", "20", "--jobs", "1", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["coverage"]["left_out"] > 0
    assert "slower calls left out (--cost)" in report["coverage"]["line"]
    assert report["coverage"]["largest"]["seq_len"] > 600  # longer calls than all others may be slow
    assert time.monotonic() - start < 60


# -- Interpreters ----------------------------------------------------------------------------------


def test_without_an_interpreter_one_sentence_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(interpreters, "find_spec", lambda name: None)
    monkeypatch.setattr(interpreters, "_ON", [])
    with pytest.raises(ValueError, match=r"pip install triton torch") as raised:
        interpreters.interpret()
    assert "\n" not in str(raised.value)
    assert not interpreters.is_interpreting()


def test_an_implementation_on_a_gpu_is_interpreted_on_the_cpu(monkeypatch):
    monkeypatch.setattr(interpreters, "_ON", [True])
    assert Implementation("on a GPU", {"rope": REFERENCE["rope"]}, device="cuda").device == "cpu"


NUMBERS = """
import numpy as np
from properties import interpreters

interpreters.interpret()

import torch
import triton
import triton.language as tl
from triton.language.extra.libdevice import tanh


@triton.jit
def narrow(x, y, out, n: tl.constexpr):
    place = tl.arange(0, n)
    a, b = tl.load(x + place), tl.load(y + place)
    tl.store(out + place, a * b)
    tl.store(out + n + place, a + b)
    tl.store(out + 2 * n + place, (a.to(tl.float32) / 3).to(out.dtype.element_ty))
    tl.store(out + 3 * n + place, tanh(a.to(tl.float32)).to(out.dtype.element_ty))


@triton.jit
def product(x, y, out, n: tl.constexpr, precision: tl.constexpr):
    places = tl.arange(0, n)[:, None] * n + tl.arange(0, n)
    tl.store(out + places, tl.dot(tl.load(x + places), tl.load(y + places), input_precision=precision))


@triton.jit
def eight_bits(x, out, n: tl.constexpr):
    tl.store(out + tl.arange(0, n), tl.load(x + tl.arange(0, n)).to(tl.float8e4nv))


@triton.autotune(configs=[triton.Config({"block": 32}), triton.Config({"block": 64})], key=["n"])
@triton.jit
def tuned(out, n, block: tl.constexpr):
    tl.store(out, block)


torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    x, y = (torch.randn(256).to(dtype) for _ in range(2))
    out = torch.empty(4, 256, dtype=dtype)
    narrow[(1,)](x, y, out, 256)
    expected = torch.stack([x * y, x + y, (x.float() / 3).to(dtype), x.float().tanh().to(dtype)])
    assert torch.equal(out[:3], expected[:3])
    assert (out[3].float() - expected[3].float()).abs().max() <= 2.0**-8
    a, b, total = x.reshape(16, 16), y.reshape(16, 16), torch.empty(16, 16)
    product[(1,)](a, b, total, 16, "ieee")
    assert (total.double() - a.double() @ b.double()).abs().max() <= 16 * 2.0**-22 * (a.abs() @ b.abs()).max()

one = torch.full((16, 16), 1 + 2.0**-11)
for precision, entry in (("tf32", 16.0), ("ieee", 16 * (1 + 2.0**-11))):
    product[(1,)](one, torch.ones(16, 16), total, 16, precision)
    assert (total == entry).all(), (precision, total)

x, out = torch.tensor([1.0625, 1.1875, 1e6, -1e6]), torch.empty(4, dtype=torch.float8_e4m3fn)
eight_bits[(1,)](x, out, 4)
assert out.float().tolist() == [1.0, 1.25, 448.0, -448.0], out

tuned[lambda meta: (1,)](number := torch.empty(1), 1)
assert number.item() == 32
assert number.is_cuda and torch.cuda.get_device_capability() == (9, 0)
"""


@needs_triton
def test_the_interpreter_rounds_as_a_gpu_does():
    subprocess.run([sys.executable, "-c", NUMBERS], check=True)
