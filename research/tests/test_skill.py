"""The skill for agents is short, and its files, commands and fields are those of attnspec."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from properties.command.cli import main
from research.tests.test_guide import ROOT, blocks

SKILL = (ROOT / "skills" / "attnspec" / "SKILL.md").read_text("utf-8")


def test_the_skill_fits_on_two_screens_and_has_the_head_that_agents_read():
    assert len(SKILL.splitlines()) <= 120
    assert re.match(r"---\nname: attnspec\ndescription: .{50,1000}\n---\n", SKILL)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder in which the files of the skill were written and its commands run, and their exit statuses."""
    folder, statuses = tmp_path_factory.mktemp("skill"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for block in blocks(SKILL):
            if block.language == "python":
                Path(re.match(r"# (\w+\.py)", block.text)[1]).write_text(block.text)
            for command in re.findall(r"^\$ attnspec (.*)$", block.text, re.MULTILINE):
                try:
                    statuses[command] = main(shlex.split(command))
                except SystemExit as ended:
                    statuses[command] = ended.code
                if command == "verify kernels.py --quick --json report.json":
                    (folder / "report.json").rename(folder / "first.json")
    for name in ("kernels", "mended"):
        sys.modules.pop(name, None)
    return folder, statuses


def test_its_commands_end_as_it_says(ran):
    _, statuses = ran
    assert statuses == {
        "inspect kernels.py --quick --json portrait.json": 0,
        "verify kernels.py --quick --json report.json": 1,
        "explain rope-half-split-pairs": 0,
        "verify mended.py --quick --json report.json": 0,
    }


def test_the_fields_that_it_names_are_there(ran):
    folder, _ = ran
    report = json.loads((folder / "first.json").read_text())
    assert report.keys() >= {"causes", "outcomes", "narrowest"}
    cause = report["causes"][0]
    assert cause["laws"]
    assert cause["diagnosis"][0].keys() >= {"mechanism", "repair", "partial"}
    assert "rope_pairing='half'" in cause["diagnosis"][0]["repair"]
    assert cause["example"].keys() >= {"summary", "counterexample", "script", "notes", "measured"}
    assert all(outcome.keys() >= {"not_taken", "reason", "status"} for outcome in report["outcomes"])
    assert json.loads((folder / "portrait.json").read_text())


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`attnspec (\w+)[^`]*`", SKILL))))
def test_each_command_that_it_names_has_the_options_that_it_names(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    known = capsys.readouterr().out
    for line in re.findall(rf"`(attnspec {command}[^`]*)`", SKILL):
        assert all(option in known for option in re.findall(r"--[\w-]+", line)), line
