"""The program for ggml runs where ggml is at hand: GGML_INCLUDE and GGML_LIB name its folders."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "integrations/ggml/test_vectors.c").read_text("utf-8")
BUILT = ROOT / "build/native/ggml"


def folders():
    """The folders of ggml's headers and libraries; skips the test without them."""
    headers = [os.environ.get("GGML_INCLUDE", ""), *map(str, BUILT.glob("*/vendor/llama.cpp/ggml/include"))]
    libraries = os.environ.get("GGML_LIB", str(BUILT / "src"))
    found = [folder for folder in headers if folder and Path(folder, "ggml.h").exists()]
    if not found or not list(Path(libraries).glob("libggml-cpu.*")) or not shutil.which("cc"):
        pytest.skip("ggml is not built here: set GGML_INCLUDE and GGML_LIB.")
    return found[0], libraries


def printed(source, folder):
    """What the program prints, and its exit status."""
    headers, libraries = folders()
    (folder / "program.c").write_text(source)
    included = [f"-I{headers}", f"-I{ROOT / 'vectors/readers/c'}"]
    linked = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lggml-base", "-lggml-cpu", "-lm"]
    words = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", *included, "program.c", *linked, "-o", "program"]
    subprocess.run(words, cwd=folder, check=True)
    words = [str(folder / "program"), str(ROOT / "vectors/data")]
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_ggml_fails_no_test(tmp_path):
    ended = printed(SOURCE, tmp_path)
    assert ended.returncode == 0, ended.stdout
    counts = re.findall(r": (\d+) pass, 0 fail, \d+ skip", ended.stdout)
    assert [*map(int, counts)] == [7, 14, 8, 5, 7]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("rope_of(test, out, 0)", "rope_of(test, out, 2)"),
        ('"dead_rows=nan"', '""'),
        ("? 0.0f : -INFINITY", "? -INFINITY : 0.0f"),
        ("1.0f / sqrtf((float)d)", "1.0f"),
        ("((b * heads + h) * n + row)", "((b * n + row) * heads + h)"),
    ],
)
def test_a_misread_interface_fails(right, wrong, tmp_path):
    assert SOURCE.count(right) == 1
    assert printed(SOURCE.replace(right, wrong), tmp_path).returncode > 0
