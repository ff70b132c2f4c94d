"""The code in README runs."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_every_python_block_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_every_make_target_that_the_readme_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", README.with_name("Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z-]+)", README.read_text()))
    assert named
    assert named <= targets
