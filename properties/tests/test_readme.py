"""The code in README runs, and prints what README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from properties.command.cli import main
from research import numbers

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def adapter(tmp_path, monkeypatch):
    (tmp_path / "my_kernels.py").write_text(numbers.adapter(README.read_text())[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_kernels", None)


def test_every_python_block_of_the_readme_runs(adapter):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) > 3
    for block in blocks:
        exec(block, {})


def test_the_command_prints_what_the_readme_shows(adapter, monkeypatch, capsys):
    """Numbers may differ in the last digits from machine to machine, and are left out."""
    monkeypatch.setenv("COLUMNS", numbers.COLUMNS)
    assert main(numbers.command(README.read_text())) == 1
    assert without_numbers(capsys.readouterr().out) == without_numbers(numbers.shown(README.read_text()))


def without_numbers(text):
    """The words of a text; of its numbers those that count something."""
    return re.sub(r"-?\d++(\.\d*+)?(e[-+]?\d++)?(?! (more )?(laws?|causes?|held|violated|not|declared)\b)", "#", text).split()


@pytest.mark.parametrize(
    "kernel",
    ["raise ZeroDivisionError", "adapter = {}", "from properties.bugs.reference import rope\nadapter = {'rope': rope}"],
    ids=["no import", "no operation", "nothing is broken"],
)
def test_what_is_no_verdict_is_never_shown(kernel):
    page = f"```python\n# my_kernels.py\n{kernel}\n```\n\n$ attnspec verify my_kernels.py --quick\n\n```text\nas before\n```\n"
    with pytest.raises(RuntimeError, match="should print a violation, and end with a verdict and status 1"):
        numbers.printed(page)


def test_a_traceback_with_status_1_is_never_shown(monkeypatch):
    crashed = subprocess.CompletedProcess([], 1, "", "Traceback (most recent call last):")
    monkeypatch.setattr(numbers.subprocess, "run", lambda *arguments, **options: crashed)
    with pytest.raises(RuntimeError, match="Traceback"):
        numbers.printed(README.read_text())


def test_every_make_target_that_the_readme_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", README.with_name("Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z-]+)", README.read_text()))
    assert named
    assert named <= targets


def test_the_numbers_of_the_readme_are_those_of_today():
    assert numbers.counted(README.read_text()) == README.read_text()


def test_the_guide_shows_what_its_command_prints():
    page = README.parent / "docs" / "guide" / "verdicts.md"
    assert without_numbers(numbers.printed(page.read_text())) == without_numbers(page.read_text())
