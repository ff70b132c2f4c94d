"""Recipes for released kernels find what their pages say, where the package is on the import path."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import systems.kernels
from properties.contract.implementation import Implementation

FINDINGS = {
    "liger_rope": "rows are wrong",
    "sglang_merge_state": "likely cause: merge-of-two-empty-parts",
    "vllm_unified_attention": "miss key",
}
"""A text that the verdict of each recipe has."""


@pytest.mark.parametrize("name", FINDINGS)
def test_a_recipe_finds_what_its_page_says(name):
    module = import_module(f"systems.kernels.{name}")
    assert all(isinstance(each, Implementation) for each in module.IMPLEMENTATIONS)
    unavailable = module.IMPLEMENTATIONS[0].unavailable
    if unavailable:
        assert unavailable.endswith("is not installed.") or "the recipe is for" in unavailable
        pytest.skip(unavailable)
    file = Path(systems.kernels.__path__[0]) / f"{name}.py"
    command = [sys.executable, "-m", "attnspec", "verify", file, "--interpret", "--quick", "--time-limit", "5m"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert FINDINGS[name] in " ".join(ended.stdout.split())


def test_every_recipe_has_a_finding():
    files = {path.stem for path in Path(systems.kernels.__path__[0]).glob("*.py")}
    assert files == {*FINDINGS, "__init__", "released"}
