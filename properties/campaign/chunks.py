"""What a campaign consists of: chunks of work, each with a name of its own, and the order in which
they are given out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Literal

from properties.strategies.domains import DOMAINS, QUIRKS

__all__ = ["Chunk", "Kind", "Row", "parsed_seeds", "plan"]

Kind = Literal["draw", "climb"]
Row = tuple[str, str]  # an implementation and one of its operations, by their names


@dataclass(frozen=True)
class Chunk:
    """An operation of an implementation on so many `cases` of a seed; or a climb of so many steps
    in a domain, from a case of the seed, or from one that is known, `start`, as JSON."""

    implementation: str
    operation: str
    seed: int
    cases: int
    kind: Kind = "draw"
    domain: str = ""
    start: str = ""

    @property
    def id(self) -> str:
        """What no other chunk is called."""
        within = f" {self.domain}" if self.domain else ""
        within += f" from {sha256(self.start.encode()).hexdigest()[:16]}" if self.start else ""
        return f"{self.kind} {self.implementation}[{self.operation}]{within} seed={self.seed} cases={self.cases}"


def plan(
    rows: Sequence[Row], seeds: Iterable[int], cases: int, climbs: Sequence[Row] = (), steps: int = 0
) -> Iterator[Chunk]:
    """All chunks, seed after seed: every row on so many cases, and then a climb of some rows, in a
    domain whose turn it is.
    """
    for seed in seeds:
        for row in rows:
            yield Chunk(*row, seed, cases)
        for implementation, operation in climbs:
            usual = [name for name in DOMAINS[operation] if name not in QUIRKS]
            if usual:
                yield Chunk(implementation, operation, seed, steps, "climb", usual[seed % len(usual)])


def parsed_seeds(text: str) -> Iterable[int]:
    """The seeds that "0:100", "7:" or "7" mean: a range without its end, one without an end, or one
    seed. Raises ValueError, a sentence.
    """
    found = re.fullmatch(r"(\d{1,18})(?:(:)(\d{1,18})?)?", text)
    if found is None or (found[3] and int(found[3]) <= int(found[1])):
        raise ValueError(
            f"--seeds {text!r}, but should be as 0:100, of which the last is 99, or as 0:, which has no end."
        )
    first = int(found[1])
    if found[3]:
        return range(first, int(found[3]))
    return count(first) if found[2] else [first]
