"""Defines the chunks (pieces of work) of a campaign, each with a unique name, and their order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Literal

from properties.strategies.domains import DOMAINS, QUIRKS

__all__ = ["Chunk", "Kind", "Row", "parsed_seeds", "plan"]

Kind = Literal["draw", "climb"]
Row = tuple[str, str]  # the names of an implementation and of one of its operations


@dataclass(frozen=True)
class Chunk:
    """A piece of a campaign's work: one operation of an implementation on `cases` test inputs,
    which follow from a seed.

    A chunk of the kind "climb" searches instead for the worst input, in that number of steps. It
    starts from the seed's input in a domain (an input family), or from `start`, a known input as
    JSON.
    """

    implementation: str
    operation: str
    seed: int
    cases: int
    kind: Kind = "draw"
    domain: str = ""
    start: str = ""

    @property
    def id(self) -> str:
        """The unique name of the chunk."""
        within = f" {self.domain}" if self.domain else ""
        within += f" from {sha256(self.start.encode()).hexdigest()[:16]}" if self.start else ""
        return f"{self.kind} {self.implementation}[{self.operation}]{within} seed={self.seed} cases={self.cases}"


def plan(
    rows: Sequence[Row], seeds: Iterable[int], cases: int, climbs: Sequence[Row] = (), steps: int = 0
) -> Iterator[Chunk]:
    """Yield the chunks of each seed. A row is one operation of one implementation.

    First comes a chunk of test inputs for every row, then a search for the worst input (a climb)
    for some rows. Each seed searches in another input family.
    """
    for seed in seeds:
        for row in rows:
            yield Chunk(*row, seed, cases)
        for implementation, operation in climbs:
            usual_domains = [
                name for name, domain in DOMAINS[operation].items() if name not in QUIRKS and not domain.points
            ]
            if usual_domains:
                yield Chunk(implementation, operation, seed, steps, "climb", usual_domains[seed % len(usual_domains)])


def parsed_seeds(text: str) -> Iterable[int]:
    """Return the seeds that a text means: "0:100" is 0 to 99, "7:" is 7 and all later ones, "7" is
    this seed alone. Raises ValueError, with a sentence, for any other text.
    """
    seed_range = re.fullmatch(r"(\d{1,18})(?:(:)(\d{1,18})?)?", text)
    if seed_range is None or (seed_range[3] and int(seed_range[3]) <= int(seed_range[1])):
        raise ValueError(f"--seeds {text!r}, but should be a range, such as 0:100 (0 to 99) or 0: (without end).")
    first = int(seed_range[1])
    if seed_range[3]:
        return range(first, int(seed_range[3]))
    return count(first) if seed_range[2] else [first]
