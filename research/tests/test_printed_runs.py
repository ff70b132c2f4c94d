"""Only verdicts get into README and the guide, and pages stay as they are if nothing has changed."""

import subprocess

import pytest

from research import printed_runs
from research.stamp import ROOT

ROPE = "from properties.bugs.reference import rope"


def page(kernel, *runs):
    shown = "".join(f"```console\n$ attnspec {command}\n```\n\n```text\n{text}```\n" for command, text in runs)
    return f"```python\n# my_kernels.py\n{kernel}\n```\n\n{shown}"


@pytest.mark.parametrize(
    "kernel",
    ["raise ZeroDivisionError", "adapter = {}", f"{ROPE}\nadapter = {{'rope': rope}}"],
    ids=["no import", "no operation", "nothing is broken"],
)
def test_a_run_without_a_violation_is_never_shown(kernel):
    with pytest.raises(RuntimeError, match="should end with a verdict and status 1, but"):
        printed_runs.printed(page(kernel, ("verify my_kernels.py --quick", "as before\n")))


def test_a_kernel_that_cannot_be_inspected_is_never_shown():
    with pytest.raises(RuntimeError, match="should end with a verdict and status 0 or 1, but has status 2"):
        printed_runs.printed(page("raise ZeroDivisionError", ("inspect my_kernels.py", "as before\n")))


def test_a_traceback_with_status_1_is_never_shown(monkeypatch):
    crashed = subprocess.CompletedProcess([], 1, "", "Traceback (most recent call last):")
    monkeypatch.setattr(printed_runs.subprocess, "run", lambda *arguments, **options: crashed)
    with pytest.raises(RuntimeError, match="Traceback"):
        printed_runs.printed((ROOT / "README.md").read_text("utf-8"))


def test_each_run_of_a_page_gets_its_text(monkeypatch):
    text = page(ROPE, ("verify a", "as before\n"), ("inspect b  # a comment", "as before\n"))
    assert [run.arguments for run in printed_runs.runs(text)] == [("verify", "a"), ("inspect", "b")]
    monkeypatch.setattr(printed_runs.Run, "printed", lambda run: f"{run.arguments[1]}, and more\n")
    assert [run.shown for run in printed_runs.runs(printed_runs.printed(text))] == ["a, and more\n", "b, and more\n"]


@pytest.mark.parametrize(
    ("today", "changes"),
    [("rope  7 calls, 1.2 ms a call\n  bits  the same\n", False), ("rope  8 calls, 30 µs a call\n", True)],
)
def test_a_text_changes_only_if_more_changes_than_times_and_bits(monkeypatch, today, changes):
    before = page(ROPE, ("inspect my_kernels.py", "rope  7 calls, 30 µs a call\n"))
    monkeypatch.setattr(printed_runs.Run, "printed", lambda run: today)
    assert (printed_runs.printed(before) != before) == changes


@pytest.mark.parametrize("name", printed_runs.PAGES)
def test_each_run_of_a_page_names_a_file_of_the_page(name):
    found = printed_runs.runs((ROOT / name).read_text("utf-8"))
    assert found
    for run in found:
        target = run.arguments[1].partition(":")[0].removesuffix(".py")
        assert f"{target}.py" in run.files
