"""Ten faults that are planted in the kernels in Triton are found by `--quick --interpret`, without a GPU."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from systems import triton_attention, triton_paged

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed.")

_ATTENTION, _PAGED = (Path(module.__file__) for module in (triton_attention, triton_paged))

FAULTS = {
    "tile": (_ATTENTION, "range(0, n_k, block)", "range(0, n_k // block * block, block)"),
    "stride": (_ATTENTION, "key_places[:, None] * k_row", "key_places[:, None] * d"),
    "dtype": (
        _ATTENTION,
        "output = output * shrink[:, None] +",
        "output = output.to(values.dtype) * shrink[:, None] +",
    ),
    "mask": (_ATTENTION, "mask + (head * n_q + rows[:, None])", "mask + (rows[:, None])"),
    "scale": (_ATTENTION, "(d**-0.5 if", "(power_of_two(d)**-0.5 if"),
    "lse": (_ATTENTION, "(highest + tl.log2(total)) * 0.6931471805599453", "highest + tl.log2(total)"),
    "window": (_ATTENTION, "ahead >= -left", "ahead > -left"),
    "gqa": (_ATTENTION, "k + head // group * k_head", "k + head % group * k_head"),
    "page": (_PAGED, "(page * page_size + places % page_size)", "(page * block + places % page_size)"),
    "split": (_PAGED, "tl.cdiv(tl.cdiv(length, parts), block)", "tl.cdiv(length // parts, block)"),
}
"""A file, a text in it, and the text that replaces it."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, tmp_path):
    file, right, wrong = FAULTS[name]
    text = file.read_text("utf-8")
    assert text.count(right) == 1
    (tmp_path / "planted.py").write_text(text.replace(right, wrong))
    dtype = "bfloat16" if name == "dtype" else "float32"
    command = [sys.executable, "-m", "attnspec", "verify", "planted.py:IMPLEMENTATIONS", "--quick", "--interpret"]
    command += ["--only", dtype, "--jobs", "1", "--fail-fast"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1, ended.stdout + ended.stderr
