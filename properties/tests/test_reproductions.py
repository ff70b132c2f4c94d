"""A counterexample that was written as a test fails on what is broken, and passes when it is mended."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from properties.command.cli import main
from properties.verifier.report import Cause, Report, Violation
from properties.views import reproductions as written_down
from properties.views.reproductions import reproductions

MENDED = """
import os
import time

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE


def rope(x, start_pos=0):
    return REFERENCE["rope"](x, start_pos)


def attention(q, k, v, mask=None):
    return REFERENCE["scaled_dot_product_attention"](q, k, v, mask)


GROUPS = {"it's NAME": [{"rope": rope, "scaled_dot_product_attention": attention}]}
"""
BROKEN = {
    "raises": ('REFERENCE["rope"](x, start_pos)', 'REFERENCE["rope"](x, 1 // (x.shape[-2] < 3))'),
    "aborts": ('REFERENCE["rope"](x, start_pos)', "os.abort()"),
    "hangs": ('REFERENCE["rope"](x, start_pos)', "time.sleep(10**6)"),
    "forgets the mask": ("(q, k, v, mask)\n\n\nG", "(q, k, v)\n\n\nG"),
}


def pytest_of(folder):
    """What pytest says of a folder's tests, run from elsewhere."""
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-q",
        str(folder / "regressions"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        line, capture_output=True, text=True, cwd=folder.parent, env=environment, timeout=120, check=False
    )
    return ran.returncode, ran.stdout


@pytest.mark.thorough
def test_each_fails_on_what_is_broken_and_passes_when_that_is_mended(tmp_path, monkeypatch):
    """All are verified one by one, and their tests are run together, first on what is broken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(written_down, "_SECONDS_OF_IMPORTS", 20.0)
    laws = ["--laws", "rope is within its error limit", "attention is within its error limit"]
    limits = ["--max-examples", "20", "--jobs", "1", "--timeout", "2"]
    modules = {name.replace(" ", "_"): change for name, change in BROKEN.items()}
    for name, change in modules.items():
        broken = MENDED.replace(*change).replace("NAME", name)
        assert broken != MENDED.replace("NAME", name)
        (tmp_path / f"{name}.py").write_text(broken)
        assert main(["verify", f"{name}:GROUPS", *laws, *limits, "--write-tests", "regressions"]) == 1
    written = sorted(Path("regressions").iterdir())
    assert {path.name.partition("_0_")[0] for path in written} == {f"test_groups_it_s_{name}" for name in modules}
    assert len(written) == len(modules)
    for path in written:
        ast.parse(path.read_text())
    status, said = pytest_of(tmp_path)
    assert (status, f"{len(modules)} failed" in said) == (1, True), said
    for name in modules:
        (tmp_path / f"{name}.py").write_text(MENDED.replace("NAME", name))
    status, said = pytest_of(tmp_path)
    assert (status, f"{len(modules)} passed" in said) == (0, True), said


def cause(name, law="a law", script="properties.replay()\n", **more):
    example = Violation(law, "rope", name, 'is wrong: """ \\ \udcff.', {"x": np.ones(1)}, 2.0, script=script)
    return Cause(name, (example.law_id,), example, **more)


def test_each_cause_has_a_file_of_its_own_and_what_no_case_shows_has_none(tmp_path):
    report = Report((), causes=(cause("a b"), cause("a-b"), cause("a b", "another law"), cause("c", script="")))
    found = reproductions(report, tmp_path)
    assert list(found) == ["test_a_b_a_law_rope.py", "test_a_b_a_law_rope_2.py", "test_a_b_another_law_rope.py"]
    for name, text in found.items():
        module = ast.parse(text.encode())
        assert "is wrong: ''' \\ \\udcff." in re.sub(r"\s+", " ", ast.get_docstring(module))
        assert [f"{f.name}.py" for f in module.body if isinstance(f, ast.FunctionDef)] == [name]


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    assert main(["verify", "nowhere:adapter", "--write-tests", str(tmp_path / "file" / "tests")]) == 2
    assert capsys.readouterr().err == f"attnspec: {tmp_path / 'file' / 'tests'} cannot be created: Not a directory.\n"
