"""The code in the guide runs and prints what the guide says."""

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import oracles.error_analysis.ball_attention
from oracles.error_analysis.roundings import terms
from oracles.tests.simulated.single_roundings import CASES, without, worst
from properties.command.cli import main
from properties.inspection.signatures import NAMES
from properties.tests.test_readme import without_numbers
from research import table_of_roundings
from research.printed_runs import steady

ROOT = Path(__file__).parents[2]
GUIDE = sorted((ROOT / "docs/guide").glob("*.md"))
BLOCK = re.compile(r"((?:^% [^\n]*\n)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code: what it needs, the status that its command ends with, its language, and its text."""

    needs: tuple[str, ...]
    exits: int
    language: str
    text: str


def blocks(text):
    found = []
    for marks, language, body in BLOCK.findall(text):
        needs = re.search(r"^% needs: (.*)$", marks, re.MULTILINE)
        exits = re.search(r"^% exits: (\d)$", marks, re.MULTILINE)
        found.append(Block(tuple(needs[1].split(", ")) if needs else (), int(exits[1]) if exits else 0, language, body))
    return found


SECTIONS = [
    pytest.param(blocks(section), id=f"{page.stem}: {section.splitlines()[0].lstrip('# ')}")
    for page in GUIDE
    for section in re.split(r"^(?=##? [A-Z])", page.read_text("utf-8"), flags=re.MULTILINE)
    if blocks(section)
]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_code_of_a_section_runs_and_prints_what_it_shows(section, tmp_path, monkeypatch, capsys):
    """Blocks run in order, in one place; those that begin with a file's name are that file. Numbers
    that are printed may differ.
    """
    for need in dict.fromkeys(need for block in section for need in block.needs):
        if not shutil.which(need) and not importlib.util.find_spec(need):
            pytest.skip(f"This section needs {need}, which is not installed.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    before, names, printed = set(sys.modules), {"__name__": "section"}, ""
    for block in section:
        named = re.match(r"(?:#|//|/\*) ([\w.]+\.\w+)", block.text)
        if named:
            Path(named[1]).write_text(block.text)
        elif block.language == "python":
            exec(block.text, names)
        elif block.language == "console":
            for command in re.findall(r"^\$ (.*)$", block.text.replace("\\\n", ""), re.MULTILINE):
                printed = run(command, block.exits, capsys)
        elif block.language == "text":
            assert without_numbers(steady(printed)) == without_numbers(steady(block.text))
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def run(command, status, capsys):
    words = [a or b for a, b in re.findall(r'"(.*?)"|(\S+)', command)]
    if words[:2] == ["attnspec", "inspect"]:  # it forks
        process = subprocess.run([sys.executable, "-m", *words], check=False, capture_output=True, text=True)
        assert process.returncode == status, process.stdout + process.stderr
        return process.stdout
    if words[0] == "attnspec":
        assert main(words[1:]) == status
        return capsys.readouterr().out
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_every_section_with_code_is_found():
    assert sum(len(re.findall(r"^```\w", page.read_text("utf-8"), re.MULTILINE)) for page in GUIDE) == sum(
        len(section.values[0]) for section in SECTIONS
    )


def test_the_guide_lists_the_names_of_parameters_that_portraits_know():
    text = (ROOT / "docs/guide/portraits.md").read_text("utf-8").partition("names of parameters |")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
    assert {name: tuple(re.findall(r"\w+", listed)) for name, listed in rows} == NAMES


@pytest.mark.parametrize("name", CASES)
def test_the_guide_says_what_a_rounding_costs_when_it_is_forgotten(name, monkeypatch):
    text = (ROOT / "docs/guide/budgets.md").read_text("utf-8")
    shown = re.search(rf"^\| `{name}` \|.*$", text, re.MULTILINE)[0]
    *words, within, forgotten = shown.removesuffix(" |").split(" | ")
    assert words == table_of_roundings.words(name)
    assert worst(name) == pytest.approx(float(within), rel=0.05)  # two digits are shown
    monkeypatch.setattr(oracles.error_analysis.ball_attention, "terms", lambda *given: without(name, terms(*given)))
    assert worst(name) == pytest.approx(float(forgotten), rel=0.05)


def test_the_guide_has_the_rows_of_the_table_in_their_order():
    text = (ROOT / "docs/guide/budgets.md").read_text("utf-8").partition("## The roundings")[2]
    assert re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE) == list(CASES)
