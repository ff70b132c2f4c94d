"""Candidates of scaled dot-product attention: right ones in several structures, and adversaries,
which try to be accepted otherwise. Some adversaries implement another operation.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import oracles
from properties.gatehouse.gate import QUICK
from properties.gatehouse.isolated_kernel import Limits
from properties.gatehouse.submission import Submission

__all__ = ["ARITHMETICS", "OPERATION", "RIGHT", "UNSEEN", "WRONG", "adversary", "candidate", "limits_for", "right"]

OPERATION = "scaled_dot_product_attention"
ARITHMETICS = ("float64", "float32", "float16")

_WHEN = f"""
def {OPERATION}(q, k, v, mask=None):
    global calls
    calls += 1
    n_q, n_k, d, d_v = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
    out = attention(q, k, v, mask)
    return 1.25 * out if CONDITION else out
"""
_KEPT_BY = f"""
def {OPERATION}(q, k, v, mask=None):
    key = CONDITION
    if key not in kept:
        kept[key] = attention(q, k, v, mask)
    return kept[key].copy()
"""
_TEMPLATES = {"when": _WHEN, "kept by": _KEPT_BY}


class Source(NamedTuple):
    """The source of a candidate, and what its comments say of it.

    said        a pattern in what the verdict says
    needs       what the system must confine it to
    forbid      the modules that it may not use
    operation   the operation that it implements
    when        when its results are wrong
    kept by     the key by which it keeps results
    unseen      why the gate does not see that it is wrong
    """

    text: str
    notes: dict[str, str]


def _sections(file: str) -> dict[str, Source]:
    """The sources of a file by their names, each after the one that they have in common."""
    text = (Path(__file__).parent / file).read_text("utf-8")
    common, *others = re.split(r"^#### ", text, flags=re.MULTILINE)[1:]
    return {
        name: _source(common.partition("\n")[2], section)
        for name, _, section in (other.partition("\n") for other in others)
    }


def _source(common: str, section: str) -> Source:
    notes = dict(re.findall(r"^# (said|needs|forbid|operation|when|kept by|unseen): (.*)$", section, re.MULTILINE))
    functions = "".join(
        template.replace("CONDITION", notes[kind]) for kind, template in _TEMPLATES.items() if kind in notes
    )
    return Source(common + section + functions, notes)


RIGHT, _ALL = _sections("candidates_right.txt"), _sections("candidates_wrong.txt")
WRONG = {name: source for name, source in _ALL.items() if "unseen" not in source.notes}
"""The adversaries by their names."""
UNSEEN = {name: source for name, source in _ALL.items() if "unseen" in source.notes}
"""The adversaries that the gate cannot see, by their names."""


def candidate(text: str, operation: str = OPERATION) -> Submission:
    """A source as it is put to the gate, with arrays of the library that it imports."""
    return Submission(
        "kernel.py",
        {"kernel.py": text},
        {operation: ("kernel", operation)},
        "torch" if "import torch" in text else "numpy",
    )


def right(structure: str) -> Submission:
    """A right candidate."""
    return candidate(RIGHT[structure].text)


def adversary(name: str, port: int) -> Submission:
    """An adversary, which is told where attnspec is installed, and a port of this machine at which
    something listens.
    """
    text, notes = _ALL[name]
    text = text.replace("HOME", str(Path(oracles.__file__).parents[1])).replace("PORT", str(port))
    return candidate(text, notes.get("operation", OPERATION))


def limits_for(name: str) -> Limits:
    """The limits of the quick plan, and what the adversary may not use."""
    return replace(QUICK, forbid=tuple(_ALL[name].notes.get("forbid", "").split()))
