"""`attnspec new`: what it writes is importable and neat, says what is to be filled in, and works when it is."""

import importlib.util
import shutil
import subprocess
import sys
import textwrap

import pytest

from properties import verify
from properties.command.cli import main
from properties.command.new import _LIBRARIES, adapter
from properties.contract.operations import OPERATIONS
from properties.processes.adapters import load

RUFF = [sys.executable, "-m", "ruff"]
STUB = '    raise NotImplementedError("Fill in rope: call your kernel, and return its result.")\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory; what is imported from there is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_every_variant_is_neat_and_compiles(folder):
    for library in _LIBRARIES:
        for dtype in ("float64", "float32", "bfloat16"):
            text = adapter("kernels", OPERATIONS, library, dtype)
            compile(text, "kernels.py", "exec")
            (folder / f"{library}_{dtype}.py").write_text(text)
    for command in (["check"], ["format", "--check"]):
        ran = subprocess.run(
            [*RUFF, *command, "--isolated", "--no-cache", "."], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("library", "dtype"),
    [
        pytest.param("numpy", "float16", marks=pytest.mark.thorough),
        pytest.param("torch", "bfloat16", marks=pytest.mark.thorough),
        pytest.param("torch", "float32", marks=pytest.mark.thorough),
        ("jax", "bfloat16"),
        ("ctypes", "float32"),
    ],
)
def test_as_it_is_written_it_says_what_is_to_be_filled_in(folder, capsys, library, dtype):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed.")
    chosen = ["rope", "scaled_dot_product_attention_vjp"]
    assert main(["new", "kernels.py", "--operations", *chosen, "--library", library, "--dtype", dtype]) == 0
    written = capsys.readouterr().out
    assert written.startswith("kernels.py: fill in rope, scaled_dot_product_attention")
    assert written.endswith("; then `attnspec verify kernels.py`, in CI with `--strict`.\n")
    assert main(["verify", "kernels.py", "--max-examples", "4", "--jobs", "1"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    reason = "Fill in rope: call your kernel, and return its result."
    assert f"Every call raised NotImplementedError: {reason} all laws about rope" in said
    assert "Fill in scaled_dot_product_attention" in said
    assert "0 pass, 0 fail" in said
    assert load(["kernels.py"])[0].implementation.resolved_arithmetic.name == dtype


def test_a_derivative_of_torch_and_jax_comes_with_what_it_is_of():
    for library, forward in (("torch", True), ("jax", True), ("numpy", False), ("ctypes", False)):
        assert ("def rope(" in adapter("kernels", ["rope_vjp"], library, "float32")) == forward


def filled_in(text, **bodies):
    """An adapter's text with the bodies of some functions, given as text."""
    for name, body in bodies.items():
        start = text.index("    raise NotImplementedError", text.index(f"def {name}("))
        text = text[:start] + textwrap.indent(textwrap.dedent(body), "    ") + text[text.index("\n\n\n", start) + 1 :]
    assert "NotImplementedError(" not in text
    return text


TORCH = {
    "hard_masked_softmax": """
        allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand(scores.shape)
        weights = torch.softmax(torch.where(allowed, scores, -torch.inf), -1)
        return torch.where(allowed, weights, 0)
        """,
    "multi_head_attention": """
        q, k, v = ((x @ w).unflatten(-1, (num_heads, -1)).transpose(-2, -3) for w in (wq, wk, wv))
        scores = q @ k.mT / max(q.shape[-1], 1) ** 0.5
        allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.unsqueeze(-3)
        weights = torch.softmax(torch.where(allowed, scores, -torch.inf), -1)
        return (weights @ v).transpose(-2, -3).flatten(-2) @ wo
        """,
    "rope": """
        d, rows = x.shape[-1], torch.arange(start_pos, start_pos + x.shape[-2], dtype=x.dtype)
        angle = rows[:, None] * 10000.0 ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1).flatten(-2)
        """,
}


def test_autograd_s_derivatives_hold_when_the_operation_is_filled_in(folder):
    text = adapter("kernels", ["hard_masked_softmax_vjp", "multi_head_attention_jvp", "rope_vjp"], "torch", "float64")
    (folder / "kernels.py").write_text(filled_in(text, **TORCH))
    (found,) = load(["kernels.py"])
    laws = ["the VJP is within its error limit", "the JVP is within its error limit", "rope is within its error limit"]
    report = verify(found.implementation, laws=laws, max_examples=20)
    assert {o.operation: o.status for o in report.outcomes} == dict.fromkeys(
        ["hard_masked_softmax_vjp", "multi_head_attention_jvp", "rope", "rope_vjp"], "held"
    )


C = """
void rotate_half(const float *x, float *out, long rows, long d) {
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < d; i++) out[r * d + i] = i < d / 2 ? -x[r * d + i + d / 2] : x[r * d + i - d / 2];
}
"""
THROUGH_CTYPES = """
    x, out, d = np.ascontiguousarray(x), np.empty(x.shape, x.dtype), x.shape[-1]
    library().rotate_half(pointer(x), pointer(out), ctypes.c_long(x.size // max(d, 1)), ctypes.c_long(d))
    return out
    """


@pytest.mark.skipif(shutil.which("cc") is None, reason="There is no C compiler here.")
def test_a_c_library_is_called_through_ctypes_when_it_is_filled_in(folder):
    (folder / "kernels.c").write_text(C)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "libkernels.so", "kernels.c"], check=True)
    text = filled_in(adapter("kernels", ["rotate_half"], "ctypes", "float32"), rotate_half=THROUGH_CTYPES)
    (folder / "kernels.py").write_text(text.replace("from attnspec", "import numpy as np\nfrom attnspec", 1))
    assert main(["verify", "kernels.py", "--max-examples", "20", "--jobs", "1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["there.py"], "there.py exists, and stays unchanged: give another name."),
        (
            ["my-kernels.py"],
            "my-kernels.py cannot be imported: its name should be an identifier, such as my_kernels.py.",
        ),
        (["kernels"], "kernels cannot be imported: its name should be an identifier, such as my_kernels.py."),
        (["nowhere/kernels.py"], "nowhere/kernels.py cannot be written: No such file or directory."),
        (["kernels.py", "--operations", "rop_vjp"], "Unknown operation 'rop_vjp'. Did you mean 'rope_vjp'?"),
    ],
)
def test_what_cannot_be_written_is_a_sentence_and_nothing_is_overwritten(folder, capsys, arguments, sentence):
    (folder / "there.py").write_text("mine\n")
    assert main(["new", *arguments]) == 2
    assert f"attnspec: {sentence}" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("there.py", "mine\n")]
