"""The code in README runs, and prints what README says."""

import re
import sys
from pathlib import Path

import pytest

from properties.bugs import CATALOGUE
from properties.command.cli import main
from properties.contract.operations import OPERATIONS
from properties.implementations import GROUPS
from properties.laws import LAWS
from properties.verifier.verify import plan

README = Path(__file__).parents[2] / "README.md"
ADAPTER = re.search(r"```python\n(# my_kernels.py\n.*?)```", README.read_text(), re.DOTALL).group(1)


@pytest.fixture
def adapter(tmp_path, monkeypatch):
    (tmp_path / "my_kernels.py").write_text(ADAPTER)
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
    monkeypatch.setenv("COLUMNS", "100")
    command = re.search(r"\$ attnspec (verify my_kernels:adapter.*?)   #", README.read_text()).group(1)
    assert main([a or b for a, b in re.findall(r'"(.*?)"|(\S+)', command)]) == 1
    shown = re.search(r"```text\n(.*?)```", README.read_text(), re.DOTALL).group(1)
    assert without_numbers(capsys.readouterr().out) == without_numbers(shown)


def without_numbers(text):
    return re.sub(r"-?\d+(\.\d*)?(e[-+]?\d+)?", "#", text).split()


def test_every_make_target_that_the_readme_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", README.with_name("Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z-]+)", README.read_text()))
    assert named
    assert named <= targets


def test_the_numbers_of_the_readme_are_those_of_today():
    text = README.read_text()
    assert f"There are {len({law.name for law in LAWS})} laws of {len(OPERATIONS)} operations, and {len(CATALOGUE)} known bugs" in text
    for system, group in GROUPS.items():
        present = [i for i in group if not i.unavailable]
        applicable = [(i, law) for i in present for law in plan(i) if not law.not_applicable(i)]
        declared = sum(bool({law.name, law.id} & set(i.known_deviations)) for i, law in applicable)
        assert f"| {system} | {len(present)} | {len(applicable)} | {declared} |" in text
