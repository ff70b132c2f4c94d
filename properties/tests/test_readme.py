"""The code in README runs, prints what README says, and each make target that README names exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from properties.command.cli import main

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def adapter(tmp_path, monkeypatch):
    """The file my_kernels.py, README's first block, in the working directory."""
    assert BLOCKS[0].startswith("# my_kernels.py\n")
    (tmp_path / "my_kernels.py").write_text(BLOCKS[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_kernels", None)


def test_every_python_block_of_the_readme_runs(adapter):
    assert BLOCKS
    for block in BLOCKS:
        exec(block, {})


def test_the_command_prints_what_the_readme_shows(adapter, monkeypatch, capsys):
    assert "$ attnspec verify my_kernels.py " in README.read_text("utf-8")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["verify", "my_kernels.py"]) == 1
    shown = re.search(r"```text\n(.*?)```", README.read_text("utf-8"), re.DOTALL)[1]
    assert without_numbers(capsys.readouterr().out) == without_numbers(shown)


def without_numbers(text):
    """The words of a text. Numbers differ from machine to machine, and change with each new law."""
    return re.sub(r"-?\d++(\.\d*+)?(e[-+]?\d++)?", "#", text).split()


def test_every_make_target_that_the_readme_names_exists():
    named = set(re.findall(r"(?<!to )`?make ([a-z-]+)", README.read_text("utf-8")))
    assert named >= {"verify", "test"}
    assert make_refuses(named) == ""


def make_refuses(targets):
    """What make says of targets that it has no rule for; "" where it knows them all. Nothing is run."""
    return subprocess.run(
        ["make", "--question", "help", *targets], cwd=README.parent, capture_output=True, text=True, check=False
    ).stderr
