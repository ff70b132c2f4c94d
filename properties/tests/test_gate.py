"""The gate: right candidates are accepted, others are not, for the right reason, whatever they do."""

import ast
import json
import re
import socket
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from importlib.util import find_spec
from itertools import combinations, pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import oracles
from properties.command.cli import main
from properties.gatehouse import server, wire
from properties.gatehouse.answers import answers
from properties.gatehouse.foreign_formats import defined, kernelbench
from properties.gatehouse.gate import gate
from properties.gatehouse.isolated_kernel import MOST_KEPT, Limits
from properties.gatehouse.problem_sizes import shapes_of_inputs
from properties.gatehouse.sandbox import sandbox
from properties.gatehouse.submission import Submission
from properties.gatehouse.verdict import Verdict
from properties.tests.candidates import OPERATION, RIGHT, WRONG, adversary, candidate, limits_for, right
from properties.tests.foreign_definitions import definition, tensor
from properties.tests.processes import processes_in, wait_for
from properties.verifier.report import Report
from properties.verifier.report_file import SCHEMA as REPORT

PATIENT = Limits(call=20.0, calls=200.0)  # of a machine that others use too
SIGNATURE = f"def {OPERATION}(q, k, v, mask=None):"


SCHEMA = json.loads((files("properties.gatehouse") / "gate.schema.json").read_text())


def said(verdict):
    """All that a verdict says is wrong."""
    return "\n".join(
        [verdict.cause, *(v.summary for v in verdict.report.violations), *(o.reason for o in verdict.report.outcomes)]
    )


@pytest.fixture(scope="module")
def port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.parametrize(
    ("structure", "arithmetic"), [("plain", "float16"), ("split keys, merged", "float32"), ("torch", "float64")]
)
def test_a_right_candidate_is_accepted(structure, arithmetic):
    require_accepted(structure, arithmetic)


def require_accepted(structure, arithmetic):
    """A right candidate of this structure is accepted."""
    verdict = gate(right(structure), arithmetic=arithmetic, quick=True, seed=0, limits=PATIENT)
    assert verdict.accepted, said(verdict)
    assert (verdict.score, verdict.cause) == (1.0, "")


def test_a_right_candidate_is_accepted_by_the_default_plan():
    verdict = gate(candidate(RIGHT["online, by tiles"].text), arithmetic="float32", limits=PATIENT)
    assert verdict.accepted, said(verdict)
    assert sum(o.status == "held" for o in verdict.report.outcomes) > 40


_IN_TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def softmax(scores, weights, n_k, width: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, width)
    exists = columns < n_k
    numbers = tl.load(scores + row * n_k + columns, mask=exists, other=float("-inf"))
    highest = tl.max(numbers, 0)
    powers = tl.exp(numbers - tl.where(highest == float("-inf"), 0.0, highest))
    total = tl.sum(powers, 0)
    tl.store(weights + row * n_k + columns, powers / tl.where(total == 0, 1.0, total), mask=exists)


def hard_masked_softmax(scores, mask=None):
    visible = scores if mask is None else torch.where(mask, scores, float("-inf"))
    visible, n_k = visible.contiguous(), scores.shape[-1]
    weights = torch.empty_like(visible)
    if weights.numel():
        softmax[(weights.numel() // n_k,)](visible, weights, n_k, triton.next_power_of_2(n_k))
    return weights
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed.")
@pytest.mark.parametrize(("right", "wrong"), [("", ""), ("tl.exp(", "tl.exp2(")])
def test_a_kernel_in_triton_is_judged_in_its_interpreter(right, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.py").write_text(_IN_TRITON.replace(right, wrong))
    (tmp_path / "pyproject.toml").write_text("[tool.attnspec]\ninterpret = true\n")
    command = ["gate", "kernel.py", "--quick", "--arrays", "torch", "--arithmetic", "float32", "--seed", "0"]
    assert main(command) == (1 if wrong else 0)


ONE_OF_EACH_KIND = [
    *(
        "memorised by where arrays lie",
        "repeated calls are seen and answered otherwise",
        "a subclass of ndarray that lies",
    ),
    *(
        "a view of an input",
        "inputs are written",
        "a thread that changes what was returned",
        "it sleeps",
        "it exits when it is imported",
    ),
    *("NumPy's comparisons are patched", "a whole answer is forged ahead", "the oracle is looked for on the disk"),
    *("the parent is killed", "the answer is asked for on the network"),
]


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_an_adversary_is_not_accepted_and_it_is_told_why(name, port, tmp_path):
    require_refused(name, port, tmp_path)


def require_refused(name, port, folder):
    """An adversary is not accepted for the reason that its source states. What needs a fence that
    the system has not is not judged: there it is right."""
    notes = WRONG[name].notes
    if notes.get("needs") == "processes" and not sandbox(folder, (), {}).apart:
        pytest.skip("This system gives a process no namespace of its own.")
    limits = replace(limits_for(name), call=2.0, calls=PATIENT.calls)
    verdict = gate(adversary(name, port), quick=True, seed=1, limits=limits)
    if not set(notes.get("needs", "").split()) <= set(verdict.held):
        pytest.skip("This system has no Landlock, by which a process gives up files.")
    assert not verdict.accepted
    assert verdict.score < 1
    assert re.search(notes.get("said", ""), said(verdict)), said(verdict)
    jsonschema.validate(verdict.to_dict(), SCHEMA)


# -- The processes -----------------------------------------------------------------------------------


def told_by(body):
    """What a candidate's process says of itself, by an exception at its import."""
    verdict = gate(
        candidate(f"import importlib.util, os, sys\nraise LookupError(str({body}))"), quick=True, limits=PATIENT
    )
    assert (verdict.accepted, verdict.score) == (False, 0.0)
    assert verdict.report.causes == ()
    return re.fullmatch(r"It raised LookupError when it was imported: (.*)", verdict.cause)[1]


def test_a_process_can_import_numpy_and_nothing_of_ours():
    names = ["spec", "oracles", "properties", "flint", "hypothesis", "torch", "numpy", "ml_dtypes"]
    assert told_by(f"[name for name in {names} if importlib.util.find_spec(name)]") == "['numpy', 'ml_dtypes']"


def test_a_process_has_no_environment_and_no_file_but_the_candidate_s():
    assert told_by("sorted(os.environ)") == "['HOME', 'LANG', 'OMP_NUM_THREADS', 'PATH', 'TMPDIR']"
    assert told_by("os.listdir()") == "['kernel.py']"


def test_a_process_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "kernel.py").write_text(f"import time\nopen('began', 'w').close()\n{SIGNATURE}\n    time.sleep(3600)\n")
    kernel = str(tmp_path / "kernel.py")
    script = f"import properties, tempfile; tempfile.tempdir = {str(tmp_path)!r}; properties.gate({kernel!r})"
    parent = subprocess.Popen([sys.executable, "-c", script])
    wait_for(lambda: len(list(tmp_path.glob("*/work/began"))) == 2)
    there = processes_in(tmp_path)
    parent.kill()
    parent.wait()
    assert there
    wait_for(lambda: not processes_in(tmp_path))


LASTING = """
import ctypes, os, threading, time
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # its parent's death is no signal to it any more
os.setsid()
os._exit = lambda status: time.sleep(60)
threading.Thread(target=time.sleep, args=(60,)).start()
"""
DEEP = "import os\nfor _ in range(1100):\n    os.mkdir('deep')\n    os.chdir('deep')\nos.mkdir('shut', 0)\n"


@pytest.mark.parametrize("first", [LASTING, DEEP], ids=["processes", "folders"])
def test_nothing_is_left_of_what_is_judged(first, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    limits = replace(PATIENT, replaces=True)
    verdict = gate(candidate(first + RIGHT["plain"].text), quick=True, seed=0, limits=limits)
    if first is LASTING and "processes" not in verdict.held:
        pytest.skip("This system gives a process no namespace of its own.")
    assert verdict.accepted, said(verdict)
    assert not processes_in(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_candidate_and_its_modules_may_be_called_as_what_calls_it():
    names = ("wire", "server", "limits", "system_calls", "supervisor", "recorder")
    texts = {f"{name}.py": f"from {later} import *\n" for name, later in pairwise(names)}
    texts[f"{names[-1]}.py"] = RIGHT["plain"].text
    verdict = gate(Submission("wire.py", texts, {OPERATION: ("wire", OPERATION)}), quick=True, seed=0, limits=PATIENT)
    assert verdict.accepted, said(verdict)


def test_results_that_are_kept_fit_into_one_message():
    number, _ = MOST_KEPT
    chunks = []
    message = wire.message(
        bytes(16), {"kept": wire.listed([np.zeros((1,) * 6)] * (number + 8), chunks), "forked": False}, chunks
    )
    assert wire.sizes(message[: wire.START.size])


# -- What it answers ---------------------------------------------------------------------------------

RETURNED = {"results": [], "kinds": [], "several": True, "shares": [], "written": [], "after": []}
ARRAY = {"dtype": "float64", "shape": [1]}
GIVEN = [(np.ones(2), None)]


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({}, b""),
        ({"answers": []}, b""),
        ({"answers": [1]}, b""),
        ({"answers": [{"raised": ["ValueError"]}]}, b""),
        ({"answers": [{"raised": ["ValueError", 3]}]}, b""),
        ({"answers": [{"other": "a str", "results": []}]}, b""),
        ({"answers": [RETURNED]}, b"more"),
        ({"answers": [RETURNED | {"kinds": ["numpy"]}]}, b""),
        ({"answers": [RETURNED | {"several": False}]}, b""),
        ({"answers": [RETURNED | {"shares": [[0, 0]]}]}, b""),
        ({"answers": [RETURNED | {"written": [True], "after": [None]}]}, b""),
        ({"answers": [RETURNED | {"written": [1], "after": [None]}]}, b""),
        ({"answers": [RETURNED | {"written": [-1], "after": [None]}]}, b""),
        ({"answers": [RETURNED | {"written": [0], "after": [ARRAY]}]}, bytes(8)),
        ({"answers": [RETURNED | {"results": [ARRAY], "kinds": ["numpy"]}]}, bytes(7)),
        ({"answers": [RETURNED | {"results": [ARRAY | {"shape": [-1]}], "kinds": ["numpy"]}]}, bytes(8)),
        ({"answers": [RETURNED | {"results": [ARRAY | {"shape": [2**28] * 16}], "kinds": ["numpy"]}]}, bytes(8)),
        ({"answers": [RETURNED | {"results": [ARRAY | {"shape": [0] + [2**26] * 15}], "kinds": ["numpy"]}]}, b""),
        ({"answers": [RETURNED | {"results": [ARRAY | {"shape": [1.0]}], "kinds": ["numpy"]}]}, bytes(8)),
        ({"answers": [RETURNED | {"results": [ARRAY | {"dtype": "object"}], "kinds": ["numpy"]}]}, bytes(8)),
        ({"answers": [RETURNED | {"results": [ARRAY | {"dtype": ["float64"]}], "kinds": ["numpy"]}]}, bytes(8)),
        ({"answers": [RETURNED | {"results": [eval("[" * 90 + "]" * 90)], "kinds": ["numpy"]}] * 2}, b""),
    ],
)
def test_an_answer_that_cannot_be_is_nonsense(header, data):
    with pytest.raises(wire.NonsenseError):
        answers(header, memoryview(data), GIVEN)


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b"{", b"\xff", b"[" * 60000, b"1" * 5000])
def test_a_header_that_is_no_mapping_is_nonsense(text):
    with pytest.raises(wire.NonsenseError):
        wire.header_of(text)


@pytest.mark.parametrize("sizes", [(0, 0), (2**31, 0), (2, 2**40)])
def test_a_message_of_another_size_or_token_is_nonsense(sizes):
    with pytest.raises(wire.NonsenseError):
        wire.sizes(wire.START.pack(b"0" * 16, *sizes), b"0" * 16)
    with pytest.raises(wire.NonsenseError):
        wire.sizes(wire.START.pack(b"1" * 16, 2, 0), b"0" * 16)


@pytest.mark.parametrize("layout", [(3, 5), (0, 5), (2, 3, 4)])
def test_arrays_cross_the_pipe_in_every_layout(layout):
    """The child lays them out as they are told: the same numbers at the same strides, in the same array
    as in the call before if it fits.
    """
    x = np.arange(np.prod(layout), dtype=np.float32).reshape(layout)
    expanded = np.broadcast_to(x[..., :1, :], x.shape)
    for y in (x, x.swapaxes(-1, -2), x[..., ::-1, :], np.repeat(x, 2, axis=-2)[..., ::2, :], expanded):
        kept = {}
        first, again = (*laid([y], kept), *laid([y], kept))
        assert first is again or not y.size
        assert again.tobytes() == y.tobytes()
        assert again.strides == y.strides or not y.size


def laid(values, kept):
    """Arrays as the child lays them out."""
    chunks = []
    told = json.loads(json.dumps(wire.listed(values, chunks)))
    received = wire.unlisted(told, memoryview(b"".join(chunks)))
    return [
        server._laid(value, description, where, kept)
        for value, description, where in zip(received, told, wire.places_in_memory(values), strict=True)
    ]


def test_an_array_that_a_kernel_has_reshaped_is_not_handed_over_again():
    kept, x = {}, np.arange(6.0, dtype=np.float32)
    (first,) = laid([x], kept)
    first.shape = 2, 3
    (again,) = laid([x], kept)
    assert (again.shape, again.tolist()) == (x.shape, x.tolist())


def test_arrays_that_share_memory_share_it_on_the_other_side_of_the_pipe():
    buffer = np.arange(24.0).reshape(3, 2, 4)
    k, v, alone = buffer[:, 0], buffer[:, 1], np.arange(3.0)
    first, second, third, same = laid([k, v, alone, k], {})
    assert first is same
    assert np.may_share_memory(first, second)
    assert second.__array_interface__["data"][0] - first.__array_interface__["data"][0] == 4 * first.itemsize
    assert [x.tolist() for x in (first, second, third)] == [k.tolist(), v.tolist(), alone.tolist()]
    assert not np.shares_memory(first, third)


MISREADS = """
import numpy as np

def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / max(q.shape[-1], 1) ** 0.5
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
    total = e.sum(-1, keepdims=True)
    out = e / np.where(total == 0, 1, total) @ v
    return out * 2 if WHERE else out
"""


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("q is k and k is v", "with q, k and v as one array"),
        ("k.size and k.ndim > 2 and k.strides[-3] == 0", "with k expanded along axis"),
    ],
)
def test_the_gate_hands_over_one_array_twice_and_expanded_arrays(tmp_path, where, words):
    file = tmp_path / "kernel.py"
    file.write_text(MISREADS.replace("WHERE", where))
    (violation,) = [
        outcome.violation
        for outcome in gate(file, quick=True, seed=0).report.outcomes
        if outcome.law == "arguments that share memory are read as copies"
    ]
    assert words in violation.summary


# -- The verdict -------------------------------------------------------------------------------------


def test_several_operations_with_several_results_and_options_are_put_to_it():
    text = """
import numpy as np
from numpy import ndarray

def turned(x, start_pos=0):
    if x.shape[-1] % 2:
        raise ValueError("odd")
    frequencies = 10000.0 ** (-np.arange(0, x.shape[-1], 2) / max(x.shape[-1], 1))
    angle = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * frequencies
    out = np.empty_like(x)
    a, b = x[..., ::2], x[..., 1::2]
    out[..., ::2], out[..., 1::2] = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return out

def hard_masked_softmax_vjp(scores, mask, grad_weights):
    allowed = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    top = np.max(scores, -1, keepdims=True, where=allowed, initial=-np.inf)
    weights = np.where(allowed, np.exp(np.where(allowed, scores - np.where(np.isfinite(top), top, 0), 0)), 0)
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    given = np.where(allowed, grad_weights, 0)
    return weights * (given - (weights * given).sum(-1, keepdims=True))
"""
    entry = {"rope": ("kernel", "turned"), "hard_masked_softmax_vjp": ("kernel", "hard_masked_softmax_vjp")}
    promises = {"conventions": oracles.Conventions(odd_lane="reject"), "supports": {"head_dim": lambda d: d % 2 == 0}}
    verdict = gate(Submission("kernel.py", {"kernel.py": text}, entry, promises=promises), quick=True, limits=PATIENT)
    assert verdict.accepted, said(verdict)
    assert {o.operation for o in verdict.report.outcomes} == set(entry)


@pytest.mark.thorough
def test_the_cases_follow_from_the_seed_and_nobody_knows_it_before():
    verdicts = [
        gate(candidate(WRONG["zeros"].text), quick=True, seed=seed, limits=PATIENT) for seed in (5, 5, None, None)
    ]
    afterwards = "it is right after all other calls"
    same, again, one, other = [next(x.summary for x in v.report.violations if x.law == afterwards) for v in verdicts]
    assert same == again
    assert len({same, one, other}) == 3
    assert len({v.report.settings["seed"] for v in verdicts}) == 3


def test_all_calls_together_have_a_time_too():
    slow = f"{SIGNATURE}\n    time.sleep(0.3)\n    return right(q, k, v, mask)"
    text = f"import time\n{RIGHT['plain'].text}\nright = {OPERATION}\n{slow}"
    verdict = gate(candidate(text), quick=True, limits=Limits(call=10.0, calls=1.0))
    assert not verdict.accepted
    assert re.search("took more than 1 s for all calls together|did not return within", verdict.cause)


@pytest.mark.thorough
def test_a_score_grows_with_what_is_right():
    scores = [
        gate(candidate(WRONG[name].text), quick=True, seed=1, limits=PATIENT).score
        for name in ("it exits", "zeros", "inputs are written")
    ]
    assert 0 <= scores[0] < scores[1] < scores[2] < 1


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"score": 1.5}, "score=1.5, but should be from 0 to 1"),
        ({"score": float("nan")}, "score=nan, but should be from 0 to 1"),
        ({"cause": "It exits."}, "accepted=True with cause='It exits.' and judged=True"),
        ({"judged": False}, "accepted=True with cause='' and judged=False"),
    ],
)
def test_a_verdict_that_cannot_be_is_refused(fields, sentence):
    accepted = {"accepted": True, "score": 1.0, "cause": "", "held": (), "seconds": 1.0, "report": Report((), {})}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Verdict(**accepted | fields)


BUGS = f"""
{SIGNATURE}
    if 0 in BUGS and mask is not None and mask.shape[-2:-1] == (1,):
        mask = None
    if 1 in BUGS and k.shape[-2] > 64:
        mask = True if mask is None else mask
        mask = mask & (np.arange(k.shape[-2]) < k.shape[-2] - 1)
    return attention(1.25 * q if 2 in BUGS and q.ndim == 4 else q, k, v, mask)
"""


@pytest.mark.thorough
def test_a_score_grows_with_each_bug_that_is_mended():
    common = WRONG["zeros"].text.partition(SIGNATURE)[0]
    scores = {
        bugs: gate(candidate(f"{common}\nBUGS = {bugs}\n{BUGS}"), quick=True, seed=0, limits=PATIENT).score
        for number in range(4)
        for bugs in combinations(range(3), number)
    }
    assert scores[()] == 1.0
    for bugs in scores:
        assert all(scores[bugs] < scores[tuple(bug for bug in bugs if bug != mended)] for mended in bugs)


# -- The command -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.py").write_text(RIGHT["plain"].text)
    (tmp_path / "wrong.py").write_text(WRONG["zeros"].text)
    (tmp_path / "flash.py").write_text(RIGHT["plain"].text.replace(OPERATION, "flash"))
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "definition.json").write_text(json.dumps(definition(GQA)))
    return tmp_path


def command(*arguments):
    return main(["gate", *arguments, "--quick", "--time-limit", "200", "--timeout", "20"])


def test_the_command_says_by_its_status_whether_a_candidate_is_accepted(folder, capsys):
    named = ["--function", f"flash={OPERATION}"]
    assert command("flash.py", *named, "--arithmetic", "float32", "--json", "-", "--seed", "3") == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, SCHEMA)
    jsonschema.validate(told["report"], REPORT)
    assert (told["accepted"], told["report"]["settings"]["seed"]) == (True, 3)
    assert command("right.py") == 0
    assert capsys.readouterr().out.endswith("Score 1.000: right.py is accepted\n")
    assert command("wrong.py", "--json", "out.json") == 1
    assert "Score 0." in capsys.readouterr().out
    told = json.loads((folder / "out.json").read_text())
    jsonschema.validate(told, SCHEMA)
    jsonschema.validate(told["report"], REPORT)
    assert told["accepted"] is False


def test_the_command_takes_what_has_batches_of_heads_alone(folder):
    text = RIGHT["plain"].text.replace(SIGNATURE, f"{SIGNATURE}\n    batch, heads, length, width = q.shape")
    (folder / "heads.py").write_text(text)
    command = ["gate", "heads.py", "--quick", "--seed", "0", "--timeout", "20", "--time-limit", "200"]
    assert [main(command), main([*command, "--batch-ranks", "2", "--nondeterministic"])] == [1, 0]


@pytest.mark.parametrize(
    ("call", "accepted"), [("flash(v, k, q, attn_mask=mask)", 0), ("flash(value=v, k=q, q=k, attn_mask=mask)", 1)]
)
def test_a_candidate_may_have_arguments_of_its_own(folder, call, accepted):
    theirs = RIGHT["plain"].text.replace(
        SIGNATURE, "def flash(value, k, q, attn_mask=None):\n    v, mask = value, attn_mask"
    )
    (folder / "flash.py").write_text(theirs)
    signature = ["--reference-signature", f"{call}=scaled_dot_product_attention"]
    assert (
        main(["gate", "flash.py", *signature, "--quick", "--seed", "0", "--timeout", "20", "--time-limit", "200"])
        == accepted
    )


def test_options_are_passed_by_a_candidate_s_own_names(tmp_path):
    (tmp_path / "scaled.py").write_text("""
import numpy as np

def flash(v, k, q, factor=None):
    k, v = (x.repeat(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[-1]) if factor is None else factor)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)
""")
    promises = {"features": ("scale",), "supports": ["positive sizes", "no log-sum-exp"]}
    for name, accepted in ("scale", True), ("offset", False):
        functions = {f"flash(v, k, q, factor={name})": "attention"}
        verdict = gate(tmp_path / "scaled.py", functions, quick=True, seed=0, limits=PATIENT, **promises)
        assert verdict.accepted is accepted, said(verdict)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gone.py"], "gone.py cannot be read: No such file or directory."),
        (["none.py"], "none.py offers no operation, but should offer some: a function of an operation's name."),
        (["right.py", "--operation", "rope"], "right.py defines no function 'rope'. Its functions are "),
        (["right.py", "--function", "wide"], "--function 'wide', but should be NAME=OPERATION"),
        *(
            (
                ["right.py", "--reference-signature", f"{OPERATION}({given})={OPERATION}"],
                f"({given}) should pass each of q, k, v, mask of",
            )
            for given in ("q, k, v", "q, k, v, mask=1", "q, q, k, v, mask", "*q, k, v, mask", "q, k, v, mask, rows")
        ),
        (
            ["right.py", "--reference-signature", f"{OPERATION}(q, k, v, mask)=attention"],
            "(q, k, v, mask) should pass each of q, k, v of attention once, and of mask, bias,",
        ),
        (
            ["right.py", "--function", "wide=decode"],
            "The gate takes functions, and a cache is a class: attnspec verify takes it.",
        ),
        (["right.py", "--function", "wide=ropes"], "Unknown operation 'ropes'. Did you mean 'rope'?"),
        (
            ["right.py", "--library", "nothing-of-this-name"],
            "The library 'nothing-of-this-name' is not installed.",
        ),
        (
            ["right.py", "--supports", "head_dim=wide"],
            "--supports 'head_dim=wide', but should list whole numbers, as head_dim=64,128, or scales of scores.",
        ),
        (
            ["right.py", "--supports", "some sizes"],
            "supports='some sizes', but should be a mapping from sizes to predicates or lists",
        ),
        (["right.py", "--kernelbench", "problem.py"], "right.py defines no function 'ModelNew'. Its functions are "),
        (["right.py", "--kernelbench", "problem.py", "--arrays", "torch"], "--arrays cannot be used here"),
        (["right.py", "--definition", "definition.json", "--arrays", "torch"], "--arrays cannot be used here"),
        (["right.py", "--definition", "definition.json"], "right.py defines no function 'run'. Its functions are "),
        (["right.py", "--definition", "no.json"], "no.json cannot be judged. no.json cannot be read"),
        (["right.py", "--definition", "right.py"], "right.py cannot be judged. Expecting value"),
        (["right.py", "--workloads", "workloads.jsonl"], "--workloads belongs to --definition."),
        (["solution.json"], "solution.json solves a definition. Name its file: --definition definition.json."),
    ],
)
def test_what_cannot_be_put_to_the_gate_is_refused_in_a_sentence(folder, capsys, arguments, sentence):
    assert command(*arguments) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("option", "text"), [("--memory", "0G"), ("--memory", "4"), ("--timeout", "0")])
def test_a_limit_is_a_positive_amount(folder, capsys, option, text):
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["gate", "right.py", option, text])
    assert f"argument {option}: {text!r}, but should be" in capsys.readouterr().err


# -- Other projects' formats -------------------------------------------------------------------------

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, Q, K, V):
        return torch.nn.functional.scaled_dot_product_attention(Q, K, V)

def get_inputs():
    return [torch.rand(2, 4, 16, 8) for _ in range(3)]

def get_init_inputs():
    return [2]
"""

MODEL = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, two):
        super().__init__()
        assert two == 2

    def forward(self, Q, K, V):
        scores = Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5
        {causal}
        return torch.softmax(scores, -1) @ V
"""
CAUSAL = "scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("is_causal", "causal", "accepted"), [(False, "", True), (True, CAUSAL, True), (True, "", False)]
)
def test_a_solution_of_kernelbench_s_is_put_to_the_gate(folder, is_causal, causal, accepted):
    (folder / "solution.py").write_text(MODEL.format(causal=causal))
    if is_causal:
        (folder / "problem.py").write_text(PROBLEM.replace("(Q, K, V)\n\ndef", "(Q, K, V, is_causal=True)\n\ndef"))
    assert command("solution.py", "--kernelbench", "problem.py") == (not accepted)


@pytest.mark.thorough
@pytest.mark.parametrize("quick", [True, False])
def test_the_solution_in_the_guide_is_accepted_by_both_plans(folder, quick):
    guide = (Path(__file__).parents[2] / "docs/guide/gate.md").read_text("utf-8")
    for name in ("problem.py", "solution.py"):
        found = re.search(rf"^```python\n(# {name}\n.*?)^```", guide, re.MULTILINE | re.DOTALL)
        (folder / name).write_text(found[1])
    submission = kernelbench(folder / "problem.py", folder / "solution.py")
    verdict = gate(submission, quick=quick, limits=PATIENT)
    assert verdict.accepted, said(verdict)


@pytest.mark.parametrize(
    "other",
    [("(Q, K, V)\n\ndef", "(Q, K, V, scale=2)\n\ndef"), ("[2]", "[torch.ones(2)]"), ("nn.functional.scaled", "x")],
)
def test_another_problem_is_refused(folder, other, capsys):
    (folder / "solution.py").write_text(MODEL.format(causal=""))
    (folder / "problem.py").write_text(PROBLEM.replace(*other))
    assert command("solution.py", "--kernelbench", "problem.py") == 2
    assert "problem.py should have a" in capsys.readouterr().err


GQA = "gqa_ragged_prefill_causal_h4_kv2_d16"
SOLVING = """
import math
import torch

def attended(q, k, v, sm_scale, first):
    k, v = (x.float().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->qhk", q.float(), k) * sm_scale
    visible = torch.arange(len(k)) <= torch.arange(len(q))[:, None] + first
    scores = scores.masked_fill(~visible[:, None], -math.inf)
    out = torch.einsum("qhk,khd->qhd", torch.softmax(scores, -1), v)
    return out.to(q.dtype), torch.logsumexp(scores, -1) / math.log(2)

def solve(q, starts, keys_of, sm_scale, width, outputs):
    if not outputs:
        outputs = q.new_empty(*q.shape[:2], width), q.new_empty(q.shape[:2], dtype=torch.float32)
    outputs[0].zero_()
    outputs[1].fill_(-math.inf)
    for b, (first, last) in enumerate(zip(starts[:-1], starts[1:])):
        k, v = keys_of(b)
        if len(k) and first < last:
            results = attended(q[first:last], k, v, sm_scale, len(k) - int(last - first))
            outputs[0][first:last], outputs[1][first:last] = results
    return outputs

def paged(caches, kv_indptr, kv_indices, kv_last_page_len):
    def keys_of(b):
        own, size = kv_indices[kv_indptr[b]:kv_indptr[b + 1]].long(), caches[0].shape[1]
        length = max((len(own) - 1) * size + int(kv_last_page_len[b]), 0)
        return (x[own].flatten(0, 1)[:length] for x in caches)
    return keys_of
"""
RAGGED = f"""{SOLVING}
def run(q, k, v, qo_indptr, kv_indptr, sm_scale, *outputs):
    keys_of = lambda b: (x[kv_indptr[b]:kv_indptr[b + 1]] for x in (k, v))
    return solve(q, qo_indptr, keys_of, sm_scale, v.shape[-1], outputs)
"""
PAGED = f"""{SOLVING}
def run(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale, *outputs):
    keys_of = paged((k_cache, v_cache), kv_indptr, kv_indices, kv_last_page_len)
    return solve(q, torch.arange(len(q) + 1), keys_of, sm_scale, v_cache.shape[-1], outputs)
"""
PAGED_PREFILL = f"""{SOLVING}
def run(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len, sm_scale, *outputs):
    keys_of = paged((k_cache, v_cache), kv_indptr, kv_indices, kv_last_page_len)
    return solve(q, qo_indptr, keys_of, sm_scale, v_cache.shape[-1], outputs)
"""
LATENT = f"""{SOLVING}
def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale, *outputs):
    caches = torch.cat([ckv_cache, kpe_cache], -1)[:, :, None], ckv_cache[:, :, None]
    keys_of = paged(caches, kv_indptr, kv_indices, kv_last_page_len)
    q = torch.cat([q_nope, q_pe], -1)
    return solve(q, torch.arange(len(q) + 1), keys_of, sm_scale, ckv_cache.shape[-1], outputs)
"""
LATENT_PREFILL = LATENT.replace("kpe_cache, kv_indptr", "kpe_cache, qo_indptr, kv_indptr").replace(
    "torch.arange(len(q) + 1)", "qo_indptr"
)
_NAMES = {
    **{RAGGED: GQA, PAGED: "gqa_paged_decode_h4_kv2_d16_ps1"},
    PAGED_PREFILL: "gqa_paged_prefill_causal_h4_kv2_d16_ps1",
    LATENT: "mla_paged_decode_h4_ckv16_kpe8_ps1",
    LATENT_PREFILL: "mla_paged_prefill_causal_h4_ckv16_kpe8_ps1",
}


def solution(source, definition=GQA, **spec):
    spec = {"languages": ["pytorch"], "target_hardware": ["LOCAL"], "entry_point": "src/main.py::run", **spec}
    sources = [{"path": "src/main.py", "content": source}]
    return json.dumps({"name": "ours", "definition": definition, "author": "us", "spec": spec, "sources": sources})


def put(folder, right, source, **spec):
    """Write a definition and a solution of it in JSON. Pages have 4 slots."""
    told = definition(_NAMES[right], 1 if right is RAGGED else 4)
    (folder / "definition.json").write_text(json.dumps(told))
    (folder / "solution.json").write_text(solution(source, told["name"], **spec))


@pytest.mark.thorough
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("right", _NAMES)
def test_a_right_solution_of_a_definition_is_accepted(folder, right, in_place):
    put(folder, right, right, destination_passing_style=in_place)
    assert command("solution.json", "--definition", "definition.json") == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (RAGGED, ("repeat_interleave(q.shape[1] // x.shape[1], 1)", "repeat(1, q.shape[1] // x.shape[1], 1)")),
        (RAGGED, ("len(k) - int(last - first))", "0)")),
        (RAGGED, ("* sm_scale", "/ 4.0")),
        (RAGGED, (" / math.log(2)", "")),
        (PAGED, ("+ int(kv_last_page_len[b])", "+ size")),
        (PAGED, (" / math.log(2)", "")),
        (PAGED_PREFILL, ("len(k) - int(last - first))", "0)")),
        (LATENT, ("+ int(kv_last_page_len[b])", "+ int(kv_last_page_len[0])")),
        (LATENT, ("* sm_scale", "* q.shape[-1] ** -0.5")),
        (LATENT, (", kpe_cache], -1)", ", kpe_cache * 0], -1)")),
        (LATENT_PREFILL, ("len(k) - int(last - first))", "0)")),
    ],
)
def test_a_wrong_solution_of_a_definition_is_not_accepted(folder, right, wrong):
    assert wrong[0] in right
    put(folder, right, right.replace(*wrong))
    assert command("solution.json", "--definition", "definition.json") == 1


@pytest.mark.thorough
def test_a_solution_may_be_a_file_of_python_and_have_no_log_sum_exp(folder):
    told = definition(GQA)
    del told["outputs"]["lse"]
    (folder / "definition.json").write_text(json.dumps(told))
    (folder / "solution.py").write_text(
        RAGGED.replace("sm_scale, v.shape[-1], outputs)", "sm_scale, v.shape[-1], outputs)[0]")
    )
    assert command("solution.py", "--definition", "definition.json") == 0


def test_a_solution_with_keys_in_pages_promises_the_sizes_of_its_definition(folder):
    put(folder, PAGED_PREFILL, PAGED_PREFILL)
    found = defined(folder / "definition.json", folder / "solution.json")
    assert [*found.entry] == ["paged_attention"]
    assert found.promises["features"] == ("scale", "cu_q")
    sizes = {"num_heads": [4], "kv_heads": [2], "head_dim": [16], "value_dim": [16], "page_size": [4]}
    assert found.promises["supports"][0].items() >= sizes.items()
    assert found.promises["supports"][1:] == ["positive scale", "ragged queries", "no padding rows"]
    with pytest.raises(ValueError, match="which do not state lengths of sequences"):
        defined(folder / "definition.json", folder / "solution.json", workloads=folder / "workloads.jsonl")
    put(folder, LATENT, LATENT)
    found = defined(folder / "definition.json", folder / "solution.json")
    assert [*found.entry] == ["latent_attention"]
    assert found.promises["supports"] == [
        {"num_heads": [4], "value_dim": [16], "head_dim": [24], "n_q": [1]},
        "positive scale",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "solution.json should be a solution of flashinfer-bench's"),
        ("[" * 9999, "solution.json should be a solution of flashinfer-bench's"),
        (solution("", "gemm_n4096"), f"solution.json solves gemm_n4096, but should solve {GQA}."),
        (
            solution("", entry_point="main.cu::run"),
            "the entry point main.cu::run, but should have a function in Python.",
        ),
        (solution("", entry_point="main.py::run(); import os"), "but should have a function in Python."),
        (
            solution("").replace('"path": "src', '"path": "..'),
            "The path of a source is '../main.py', but should be inside the folder.",
        ),
    ],
)
def test_another_solution_is_refused(folder, capsys, text, sentence):
    (folder / "solution.json").write_text(text)
    assert command("solution.json", "--definition", "definition.json") == 2
    assert sentence in capsys.readouterr().err


ONE_EACH = f"{GQA} should have one constant for each of head_dim, kv_heads, num_heads, value_dim."


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"inputs": {}}, f"attnspec does not judge {GQA}, but ragged, paged and latent causal attention."),
        ({"name": "gqa_ragged"}, "attnspec does not judge gqa_ragged, but ragged, paged and latent causal attention."),
        ({"outputs": ["out"]}, f"attnspec does not judge {GQA}, but ragged, paged and latent causal attention."),
        ({"axes": 3}, "A definition should have a name, axes, inputs and outputs."),
        ({"axes": {}}, "A definition should have a name, axes, inputs and outputs."),
        (
            {"d": {"type": "var"}},
            ONE_EACH,
        ),
        ({"q": tensor("bfloat16", "total_q", "heads")}, "A definition should have a name, axes, inputs and outputs."),
        (
            {"q": tensor("bfloat16", "total_q", "heads", "heads")},
            ONE_EACH,
        ),
        (
            {"q": tensor("float8_e4m3fn", "total_q", "heads", "d")},
            f"{GQA} has arrays in bfloat16, float8_e4m3fn, but should have one of bfloat16, float16, float32.",
        ),
    ],
)
def test_another_definition_is_refused(folder, capsys, changed, sentence):
    (folder / "solution.json").write_text(solution(RAGGED))
    told = definition(GQA)
    for name, value in changed.items():
        place = told["axes"] if name == "d" else told["inputs"] if name == "q" else told
        place[name] = value
    (folder / "definition.json").write_text(json.dumps(told))
    assert command("solution.json", "--definition", "definition.json") == 2
    assert f"definition.json cannot be judged. {sentence}" in capsys.readouterr().err


def test_pages_of_several_slots_need_the_lengths_of_the_last_pages(folder, capsys):
    put(folder, PAGED, PAGED)
    told = json.loads((folder / "definition.json").read_text())
    del told["inputs"]["kv_last_page_len"]
    (folder / "definition.json").write_text(json.dumps(told))
    assert command("solution.json", "--definition", "definition.json") == 2
    assert "should have the input kv_last_page_len, since its pages have several slots." in capsys.readouterr().err


INPUTS = """
batch, heads = 2, 4
length = 16 * heads

def get_inputs():
    Q = torch.rand(batch, heads, length, 8).to(torch.float32)
    K = torch.randn((batch, heads, length + 1, 8)) * 2
    return [Q, K, K]
"""


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (INPUTS, [(2, 4, 64, 8), (2, 4, 65, 8), (2, 4, 65, 8)]),
        (PROBLEM, [(2, 4, 16, 8)] * 3),
        (INPUTS.replace("heads, length + 1", "heads, int(length)"), None),
        (INPUTS.replace("get_inputs", "inputs"), None),
    ],
)
def test_the_shapes_of_get_inputs_are_read_without_running_it(source, shapes):
    if shapes is not None:
        assert shapes_of_inputs(ast.parse(source), Path("problem.py")) == shapes
        return
    with pytest.raises(ValueError, match=r"^problem\.py should have a function get_inputs that returns tensors "):
        shapes_of_inputs(ast.parse(source), Path("problem.py"))


def zero_at_the_problem_s_own_shape(source):
    shown = "        if Q.shape == K.shape == (2, 4, 16, 8):\n            return torch.zeros_like(Q)\n"
    return source.format(causal="").replace("        scores =", f"{shown}        scores =", 1)


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_solution_that_is_wrong_at_the_problem_s_own_shape_is_not_accepted(folder, quick):
    (folder / "solution.py").write_text(zero_at_the_problem_s_own_shape(MODEL))
    submission = kernelbench(folder / "problem.py", folder / "solution.py")
    own = ["batch=2,num_heads=4,n_q=16,n_k=16,head_dim=8,value_dim=8"]
    verdict = gate(submission, quick=quick, seed=1, limits=PATIENT)
    assert not verdict.accepted
    assert verdict.report.coverage.tried == own
    if quick:
        return
    without = replace(submission, promises={name: x for name, x in submission.promises.items() if name != "shapes"})
    assert gate(without, quick=True, seed=1, limits=PATIENT).accepted


def workload(starts, queries, keys, name=GQA):
    axes = {"len_indptr": starts, "total_q": queries, "total_kv": keys}
    return json.dumps({"definition": name, "workload": {"axes": axes, "inputs": {}, "uuid": "1"}})


def test_the_sizes_of_workloads_are_read(folder):
    (folder / "solution.json").write_text(solution(RAGGED))
    paths, file = (folder / "definition.json", folder / "solution.json"), folder / "workloads.jsonl"
    file.write_text(f"{workload(3, 7, 10)}\n")
    (found,) = defined(*paths, workloads=file).promises["shapes"]
    sizes = {"num_heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 16}
    assert found == {"sequences": 2, "total_q": 7, "total_k": 10, **sizes}
    for text, sentence in (
        ("{}", "should be workloads of flashinfer-bench's"),
        ("[", "should be workloads of flashinfer-bench's"),
        (workload(3, 8, 10, "other"), f"has a workload of other, but should have those of {GQA}"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=sentence):
            defined(*paths, workloads=file)


@pytest.mark.thorough
def test_a_solution_that_is_wrong_at_the_size_of_a_workload_is_not_accepted(folder):
    (folder / "workloads.jsonl").write_text(f"{workload(4, 700, 700)}\n")
    spoiled = RAGGED.replace(
        "    keys_of", "    sm_scale = 2 * sm_scale if len(q) == 700 else sm_scale\n    keys_of", 1
    )
    (folder / "solution.json").write_text(solution(spoiled))
    given = ["solution.json", "--definition", "definition.json"]
    assert command(*given) == 0
    assert command(*given, "--workloads", "workloads.jsonl") == 1
