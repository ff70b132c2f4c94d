"""Only a verdict with a violation gets into README and the guide."""

import subprocess

import pytest

from research import printed_runs
from research.stamp import ROOT


@pytest.mark.parametrize(
    "kernel",
    ["raise ZeroDivisionError", "adapter = {}", "from properties.bugs.reference import rope\nadapter = {'rope': rope}"],
    ids=["no import", "no operation", "nothing is broken"],
)
def test_what_is_no_verdict_is_never_shown(kernel):
    command = "$ attnspec verify my_kernels.py --quick"
    page = f"```python\n# my_kernels.py\n{kernel}\n```\n\n{command}\n\n```text\nas before\n```\n"
    with pytest.raises(RuntimeError, match="should print a violation, and end with a verdict and status 1"):
        printed_runs.printed(page)


def test_a_traceback_with_status_1_is_never_shown(monkeypatch):
    crashed = subprocess.CompletedProcess([], 1, "", "Traceback (most recent call last):")
    monkeypatch.setattr(printed_runs.subprocess, "run", lambda *arguments, **options: crashed)
    with pytest.raises(RuntimeError, match="Traceback"):
        printed_runs.printed((ROOT / "README.md").read_text("utf-8"))


@pytest.mark.parametrize("page", printed_runs.PAGES)
def test_a_page_names_the_file_that_its_command_verifies(page):
    text = (ROOT / page).read_text("utf-8")
    assert printed_runs.command(text)[1].startswith(printed_runs.adapter(text)[0].removesuffix(".py"))
    assert printed_runs.shown(text).startswith("✗ ")
