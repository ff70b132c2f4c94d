"""A finding about a released library: a script that shows it, the expected text, and the line of
source that causes it.

A script needs the library alone. A separate process runs it, and its output is
compared with the expected text. The line of the library's source is found by its text. Both
comparisons tell when a release has changed.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from research.findings.finding import Finding

__all__ = ["CAUSES", "FAMILIES", "LibraryFinding", "shown"]

CAUSES = ("defect", "convention", "arithmetic")
"""What a finding may be: at odds with the library's documentation or with itself; one of several
readings; rounding, or overflow.
"""
_OF_SEQUENCES = ("left_padding_mask", "document_mask", "prefix_mask", "chunked_mask", "tree_mask")
FAMILIES = {
    "attention": (
        *("scaled_dot_product", "causal_attention", "grouped_query", "attention", "packed", "paged", "latent", "merge"),
    ),
    "multi-head attention": ("multi_head", "attention_layer"),
    "caches": ("decode", "batched_decode"),
    "masks": ("causal_mask", "padding_mask", "combine_masks", *_OF_SEQUENCES, "hard_masked_softmax"),
    "rotary": ("rope", "rotary", "apply_rotary", "rotate_half", "inv_freq"),
    "positions and biases": (
        *("sinusoidal", "add_positional", "learned", "table_lookup", "alibi", "relative", "position_ids"),
    ),
    "whole models": (),
}
"""What a finding may be about, the columns of the matrix on the page: operations, by the beginnings
of their names; a model is none.
"""
_SECONDS = 300
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")


@dataclass(frozen=True, kw_only=True)
class LibraryFinding(Finding):
    """A finding about a released library, whose script prints another text than `expected`.

    library is the name of a distribution. family is one of `FAMILIES` and names the part at fault:
    state that a model keeps between calls counts as caches, and "whole models" has the findings
    that no single operation explains. cause is one of `CAUSES`. known says where it was reported,
    as far as was found. module and line give the place of the cause by module and text. If a line
    stands in several places, the text includes the line before it. Compiled code has no line to
    look up: `line` is absent, and `module` gives the place upstream. mpmath is a Python expression
    that computes the expected numbers by mpmath alone, with the names of
    `research.findings.confirmed`.
    """

    family: str = field(metadata={"choices": FAMILIES})
    cause: str = field(metadata={"choices": CAUSES})
    known: str
    module: str
    line: str = ""
    mpmath: str = ""

    @property
    def where(self) -> str:
        """The file of the library, and the number of the line. Raises ValueError where the text is
        not there, or more than once.
        """
        if not self.line:
            return self.module
        top, *rest = self.module.split(".")
        package_spec = find_spec(top)
        if package_spec is None or not package_spec.submodule_search_locations:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        text = Path(package_spec.submodule_search_locations[0]).joinpath(*rest).with_suffix(".py").read_text("utf-8")
        if (places := text.count(self.line)) != 1:
            raise ValueError(
                f"{self.module} has {self.line!r} in {places} places, but should have it in one: "
                f"see {self.title!r} again."
            )
        before, _ = text.split(self.line)
        return f"{self.module.replace('.', '/')}.py:{(before + self.line).count(chr(10)) + 1}"

    @cached_property
    def actual(self) -> str:
        """The text that the script prints in a fresh process, the last line of its error,
        "nothing", or "nothing in … s" if it does not end.
        """
        try:
            process = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", self.script], capture_output=True, text=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"nothing in {_SECONDS} s"
        lines = ((not process.returncode and process.stdout.strip()) or process.stderr.strip()).splitlines()
        errors = [
            line for line in lines if process.returncode and _ERROR.match(line)
        ]  # behind which a library may have notes of its own
        return (errors or lines or ["nothing"])[-1].strip()

    def markdown(self, confirmed: str) -> Iterator[str]:
        """The finding, measured now, with what mpmath confirmed. Raises ImportError without the
        library, and ValueError where the script prints what it should."""
        place, actual = self.where, self.actual
        yield f"\n#### {self.name}\n"
        yield f"{self.detail}\n"
        yield "| | |\n|---|---|"
        fields = {"expected": f"`{self.expected}`", "actual": f"`{actual}`", "cause": self.cause, "source": place}
        fields |= {"known upstream": self.known} | ({"confirmed by mpmath": confirmed} if confirmed else {})
        yield from (f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in fields.items())
        yield f"\n```python\n{self.script}```"
        if actual == self.expected:
            raise ValueError(f"{self.library} prints {actual} now, as it should: take the finding {self.title!r} away.")


def shown(findings: Sequence[LibraryFinding], wrong: list[str]) -> Iterator[str]:
    """Every finding, measured now, under headings of the third level. Adds to `wrong` a finding that no
    longer happens.
    """
    for finding in findings:
        try:
            yield from [line.replace("\n####", "\n###") for line in finding.markdown("")]
        except ImportError as missing:
            yield f"\n### {finding.name}\n\nNot run here: {missing}."
        except ValueError as changed:
            wrong.append(str(changed))
