"""The recipes for continuous integration do what the guide says: on kernels that are right, and on
kernels that are not.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

PAGE = (Path(__file__).parents[2] / "docs/guide/ci.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = {name[1]: text for _, text in BLOCKS if (name := re.match(r"# ([\w.-]+\.\w+)", text))}
COMMANDS = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
WRONG = ("b * np.cos(angle) + a * np.sin(angle)", "b * np.cos(angle) - a * np.sin(angle)")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The project of the page, its false declaration taken out; a function that breaks its kernel."""
    table, _, _ = FILES["pyproject.toml"].partition("[tool.attnspec.known-deviations")
    (tmp_path / "pyproject.toml").write_text(table)
    for name in ("my_kernels.py", "test_my_kernels.py"):
        (tmp_path / name).write_text(FILES[name])
    monkeypatch.chdir(tmp_path)

    def break_kernel():
        assert WRONG[0] in FILES["my_kernels.py"]
        (tmp_path / "my_kernels.py").write_text(FILES["my_kernels.py"].replace(*WRONG))

    return break_kernel


def run(command, **environment):
    """A command as a shell runs it, by this Python."""
    words = shlex.split(command, comments=True)
    ours = {"attnspec": ["-P", "-m", "attnspec"], "python": []}[words[0]]
    line = [
        sys.executable,
        *ours,
        *words[1:],
        *(["-p", "no:xdist", "-p", "no:cacheprovider"] if "pytest" in words else []),
    ]
    known = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    return subprocess.run(line, capture_output=True, text=True, env={**known, **environment}, timeout=300, check=False)


def test_the_workflow_verifies_annotates_and_hands_on_what_it_wrote(project, tmp_path):
    workflow = yaml.safe_load(FILES["attnspec.yml"])
    assert workflow["permissions"] == {"contents": "read", "security-events": "write"}
    steps = workflow["jobs"]["verify"]["steps"]
    (verify,) = [step["run"] for step in steps if step.get("run", "").startswith("attnspec")]
    handed_on = [step["with"] for step in steps if step.get("if") == "always()"]
    workplace = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(tmp_path)}

    ran = run(verify, **workplace)
    assert (ran.returncode, "::error" in ran.stderr) == (0, False), ran.stdout
    project()
    ran = run(verify, **workplace)
    assert ran.returncode == 1
    line = 1 + FILES["my_kernels.py"][: FILES["my_kernels.py"].index("def rope")].count("\n")
    assert f"\n::error file=my_kernels.py,line={line},title=attnspec%3A my kernels%3A rope" in ran.stderr
    (results,) = [run["results"] for run in json.loads((tmp_path / handed_on[0]["sarif_file"]).read_text())["runs"]]
    assert {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results} == {"my_kernels.py"}
    written = {path.name for path in tmp_path.glob(handed_on[1]["path"])}
    assert written == {"attnspec.json", "attnspec.xml", "attnspec.sarif", "attnspec-tests"}
    assert ElementTree.parse("attnspec.xml").getroot().find("testsuite").get("failures") == str(len(results))
    assert len(list((tmp_path / "attnspec-tests").iterdir())) == len(results)


def test_the_hook_of_pre_commit_lets_right_kernels_pass_and_no_others(project):
    (repository,) = yaml.safe_load(FILES["pre-commit-config.yaml"])["repos"]
    (hook,) = repository["hooks"]
    assert {"id", "name", "entry", "language"} <= set(hook)
    assert (repository["repo"], hook["pass_filenames"]) == ("local", False)
    assert [name for name in FILES if re.search(hook["files"], name)] == ["pyproject.toml", "my_kernels.py"]
    assert run(hook["entry"]).returncode == 0
    project()
    assert run(hook["entry"]).returncode == 1


def test_the_commands_of_the_page_run(project):
    assert len(COMMANDS) == 5
    for command in COMMANDS:
        ran = run(command)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    project()
    assert [run(command).returncode for command in COMMANDS[1::2]] == [1, 1]  # against the baseline, and in pytest


ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def run_action(place, **given):
    """Run the steps of the composite action as a runner does, until one fails. `python -m pip` is recorded.

    Returns the exit status of the last step, and what pip was asked for.
    """
    tools = place / "tools"
    tools.mkdir(exist_ok=True)
    for name, line in {
        "attnspec": f'exec {sys.executable} -P -m attnspec "$@"',
        "python": f'printf "%s\\n" "$@" >> {tools}/asked',
    }.items():
        (tools / name).write_text(f"#!/bin/bash\n{line}\n")
        (tools / name).chmod(0o755)
    inputs = {name: told.get("default", "") for name, told in ACTION["inputs"].items()} | given
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        for name, value in step["env"].items():
            (named,) = re.findall(r"^\$\{\{ inputs\.(\w+) \}\}$", value)
            environment[name] = inputs[named]
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        status = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False).returncode
        if status:
            break
    return status, (tools / "asked").read_text().split("\n")


def test_the_action_installs_verifies_and_writes_its_reports(project, tmp_path):
    assert ACTION["runs"]["using"] == "composite"
    status, asked = run_action(tmp_path, install="attnspec @ git+https://example.org/attnspec@main")
    assert status == 0
    assert "attnspec @ git+https://example.org/attnspec@main" in asked
    names = {path.name for path in (tmp_path / "attnspec-report").iterdir()}
    assert names == {"attnspec.json", "attnspec.xml", "attnspec.sarif"}
    project()
    status, _ = run_action(tmp_path, kernels="my_kernels.py", options="--max-examples 20", folder="again")
    assert status == 1
    assert json.loads((tmp_path / "again" / "attnspec.json").read_text())["settings"]["max_examples"] == 20


def test_the_hook_that_others_name_lets_right_kernels_pass_and_no_others(project):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["id"] == "attnspec"
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    assert [name for name in FILES if re.search(hook["files"], name)] == [
        "pyproject.toml",
        "my_kernels.py",
        "test_my_kernels.py",
    ]
    assert run(hook["entry"]).returncode == 0
    project()
    assert run(hook["entry"]).returncode == 1
