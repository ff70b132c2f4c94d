"""Recipes for released kernels find what their pages say, where the package is on the import path."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import systems.kernels
from properties.contract.implementation import Implementation
from systems.kernels import NO_FINDING, RECIPES
from systems.kernels.released import RELEASES

SHARED = {"__init__", "paging", "released", "rotating", "vendors"}
"""The modules that are no recipes."""


@pytest.mark.parametrize("name", RECIPES)
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
    assert ended.returncode == int(RECIPES[name] != NO_FINDING)
    assert RECIPES[name] in " ".join(ended.stdout.split())


def test_every_recipe_is_in_the_table():
    files = {path.stem for path in Path(systems.kernels.__path__[0]).glob("*.py")}
    assert files == {*RECIPES, *SHARED}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_the_release_that_is_pinned(name):
    file = Path(systems.kernels.__path__[0]) / f"{name}.py"
    named = re.findall(r"\(([\w-]+) (\d[\d.]*\d)\)", file.read_text("utf-8").split('"""')[1])
    assert named
    assert all(RELEASES[package] == release for package, release in named)
