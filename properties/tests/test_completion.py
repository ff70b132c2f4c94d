"""Completion: what a shell is told when Tab is pressed, and that the command starts as fast as without."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import attnspec.__main__
from oracles.formats import PRESETS
from properties.bugs import CATALOGUE
from properties.command.cli import main
from properties.contract.names import hyphenated
from properties.contract.operations import OPERATIONS
from properties.laws import LAWS, find


def ask(line, folder, *flags):
    """What is offered after a line, asked as argcomplete's shell code asks, and what the command said besides."""
    answer = folder / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    environment = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    command = [sys.executable, *flags, "-P", "-m", "attnspec"]
    ran = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return [word.strip() for word in answer.read_text().split("\n")], ran.stderr


def offered(line, folder):
    return ask(line, folder)[0]


def test_subcommands_and_options_are_offered(tmp_path):
    assert {"verify", "report", "laws", "bugs", "explain", "completion"} <= set(offered("attnspec ", tmp_path))
    assert {"--arithmetic", "--laws", "--json"} <= set(offered("attnspec verify --", tmp_path))
    assert offered("attnspec completion z", tmp_path) == ["zsh"]


@pytest.mark.parametrize("line", ["attnspec explain ", "attnspec laws ", "attnspec verify kernels --laws "])
def test_laws_are_offered_with_hyphens(line, tmp_path):
    assert {hyphenated(law.name) for law in LAWS} <= set(offered(line, tmp_path))


def test_what_is_offered_for_a_law_is_a_name_of_it(capsys):
    names = dict.fromkeys(law.name for law in LAWS)
    assert all({law.name for law in find(hyphenated(name))} == {name} for name in names)
    name = next(iter(names))
    assert main(["explain", hyphenated(name)]) == 0
    assert capsys.readouterr().out.startswith(name + "\n")


def test_the_operations_of_a_law_are_offered_after_a_bracket(tmp_path):
    assert offered("attnspec explain 'rotating by p and then by q rotates by p + q[", tmp_path) == [
        "rotating by p and then by q rotates by p + q[rope]",
        "rotating by p and then by q rotates by p + q[rope_vjp]",
    ]
    assert offered("attnspec explain rotating-by-p-and-then-by-q-rotates-by-p-q[", tmp_path) == [
        r"rotating-by-p-and-then-by-q-rotates-by-p-q\[rope\]",
        r"rotating-by-p-and-then-by-q-rotates-by-p-q\[rope_vjp\]",
    ]


def test_a_name_in_quotes_is_completed_with_spaces(tmp_path):
    assert "rotating by p and then by q rotates by p + q" in offered("attnspec explain 'rotating by", tmp_path)


def test_bugs_arithmetics_and_modules_are_offered(tmp_path):
    (tmp_path / "my_kernels.py").touch()
    assert set(CATALOGUE) <= set(offered("attnspec bugs ", tmp_path))
    assert set(OPERATIONS) <= set(offered("attnspec new k.py --operations ", tmp_path))
    assert {hyphenated(LAWS[0].name), *CATALOGUE, *OPERATIONS} <= set(offered("attnspec explain ", tmp_path))
    assert {preset.name for preset in PRESETS} <= set(offered("attnspec verify kernels --arithmetic ", tmp_path))
    assert offered("attnspec verify my", tmp_path) == ["my_kernels"]


@pytest.mark.parametrize(
    "shell", ["bash --norc --noprofile -i", "zsh -f -i", "fish --no-config"], ids=lambda shell: shell.split()[0]
)
def test_tab_completes_the_line(shell, tmp_path):
    name, *_ = shell.split()
    if shutil.which(name) is None:
        pytest.skip(f"There is no {name} here.")
    on_path = tmp_path / "attnspec"
    on_path.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m attnspec "$@"\n')
    on_path.chmod(0o755)
    load = {
        "bash": 'eval "$(attnspec completion bash)"',
        "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(attnspec completion zsh)"',
        "fish": "attnspec completion fish | source",
    }[name]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "120"}
    in_terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *shell.split()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen(in_terminal, **pipes, env=environment, cwd=tmp_path) as running:
        os.set_blocking(running.stdout.fileno(), False)
        running.stdin.write(f"{load}; echo rea''dy\r".encode())
        seen, typed, end = "", False, time.monotonic() + 40
        while "rotating-by-p-and-then-by-q-rotates-by-p-q" not in seen.partition("ready")[2] and time.monotonic() < end:
            if "ready" in seen and not typed:
                typed = bool(running.stdin.write(b"attnspec explain rotating-by\t"))
            time.sleep(0.05)
            seen += (running.stdout.read() or b"").decode(errors="replace")
        running.kill()
    assert "rotating-by-p-and-then-by-q-rotates-by-p-q" in seen.partition("ready")[2], seen


HEAVY = {"numpy", "rich", "hypothesis", "pytest", "torch"}


def imported(said):
    """The top-level packages that -X importtime names."""
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in said.splitlines()}


def test_the_command_starts_without_argcomplete_or_anything_heavy():
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-P", "-m", "attnspec", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "argparse" in imported(ran.stderr)
    assert not (HEAVY | {"argcomplete"}) & imported(ran.stderr)


def test_subcommands_and_options_are_completed_without_anything_heavy(tmp_path):
    for line in ("attnspec ver", "attnspec verify --m"):
        words, said = ask(line, tmp_path, "-X", "importtime")
        assert len(words) == 1
        assert "argcomplete" in imported(said)
        assert not HEAVY & imported(said)


def test_the_marker_for_global_completion_is_where_argcomplete_looks():
    assert "PYTHON_ARGCOMPLETE_OK" in Path(attnspec.__main__.__file__).read_text("utf-8")[:1024]
