"""Candidates of scaled dot-product attention: right ones in several structures, and adversaries,
which try to be accepted otherwise.
"""

import re
from pathlib import Path

import oracles
from properties.gatehouse.submission import Submission

__all__ = ["ARITHMETICS", "OPERATION", "RIGHT", "WRONG", "adversary", "candidate", "right"]

OPERATION = "scaled_dot_product_attention"
ARITHMETICS = ("float64", "float32", "float16")


def _sections(file: str) -> dict[str, tuple[str, dict[str, str]]]:
    """The sources of a file by their names, each after the one that they have in common, and what
    is said of them, "said" and "needs".
    """
    text = (Path(__file__).parent / file).read_text("utf-8")
    common, *others = re.split(r"^#### ", text, flags=re.MULTILINE)[1:]
    found = {}
    for name, _, source in (section.partition("\n") for section in others):
        found[name] = (
            common.partition("\n")[2] + source,
            dict(re.findall(r"^# (said|needs): (.*)$", source, re.MULTILINE)),
        )
    return found


RIGHT, WRONG = _sections("candidates_right.txt"), _sections("candidates_wrong.txt")
"""The sources by their names. Of an adversary "said" is found in what the verdict says, and "needs"
what the system must hold it to.
"""


def candidate(text: str) -> Submission:
    """A source as it is put to the gate, with arrays of the library that it imports."""
    return Submission(
        "kernel.py",
        {"kernel.py": text},
        {OPERATION: ("kernel", OPERATION)},
        "torch" if "import torch" in text else "numpy",
    )


def right(structure: str) -> Submission:
    """A right candidate."""
    return candidate(RIGHT[structure][0])


def adversary(name: str, port: int) -> Submission:
    """An adversary, which is told where attnspec is installed, and a port of this machine at which
    something listens.
    """
    source = WRONG[name][0].replace("HOME", str(Path(oracles.__file__).parents[1]))
    return candidate(source.replace("PORT", str(port)))
