"""The vectors' own kill matrix: which test is the first to kill each known bug, in which format."""

from collections.abc import Iterator

from properties.bugs.mutants import MUTANTS
from properties.contract.operations import OPERATIONS
from research.vectors.choice import FORMATS
from research.vectors.choosing import Chosen
from research.vectors.kills import MARGIN, beyond_vectors

__all__ = ["by_mutant", "markdown"]


def by_mutant(found: list[Chosen]) -> dict[str, dict[str, list[str]]]:
    """For each mutant and format the number of the first test that kills it, in a list."""
    killers: dict[str, dict[str, list[str]]] = {name: {} for name in MUTANTS}
    for operation in dict.fromkeys(case.choice.operation for case in found):
        for number, case in enumerate(case for case in found if case.choice.operation == operation):
            for arithmetic, kills in case.kills.items():
                for name in kills:
                    killers[name].setdefault(arithmetic, []).append(f"{number:03}")
    return killers


def markdown(found: list[Chosen]) -> str:
    """The page."""
    return "\n".join([*_summary(found), "", *_rows(found), "", *_left(found), ""])


def _summary(found: list[Chosen]) -> Iterator[str]:
    killers, shown = by_mutant(found), [name for name, mutant in MUTANTS.items() if not beyond_vectors(mutant)]
    yield "# What the vectors kill"
    yield ""
    total = sum(len(case.kills) for case in found)
    yield f"Written by `make vectors`: {total} tests, of {len(found)} cases, against {len(MUTANTS)} mutants. Each"
    yield "mutant is a known bug in one of its operations; it computes in float64 and then rounds to the format. A"
    yield f"test kills a mutant that raises an error, or that has an entry with an error above {MARGIN:g} budgets."
    yield ""
    yield "| format | tests | mutants killed | of |\n|---|---|---|---|"
    for arithmetic in FORMATS:
        tests = sum(arithmetic in case.kills for case in found)
        names_asked = [name for name in shown if _concerns(name, arithmetic)]
        killed = sum(arithmetic in killers[name] for name in names_asked)
        yield f"| {arithmetic} | {tests} | {killed} | {len(names_asked)} |"
    yield ""
    yield "The cases in float64 kill every mutant. The narrower formats miss mostly mutants that lose precision"
    yield "which these formats do not have, or that overflow at scores beyond their cases: `attnspec verify` draws"
    yield "more."
    yield ""
    yield f"Vectors cannot show {len(MUTANTS) - len(shown)} mutants: no single call on plain arrays shows them, or"
    yield "a file has no right answer to the calls that do. They are below, with the reason."


def _concerns(name: str, arithmetic: str) -> bool:
    """Whether a mutant can be in code of a format: masks and integers are tested in float64 alone, and
    some mutants have one format.
    """
    mutant = MUTANTS[name]
    is_exact = OPERATIONS[mutant.operation].is_exact
    return bool(mutant.bug.promises.get("arithmetic", "float64" if is_exact else arithmetic) == arithmetic)


def _rows(found: list[Chosen]) -> Iterator[str]:
    killers = by_mutant(found)
    yield "## Which test is the first to kill each bug"
    yield "\nTests by their numbers: `003` of a bug in rope and float32 is `rope/float32/003`. – where none does.\n"
    yield f"| bug | operation | {' | '.join(FORMATS)} |\n|---|---|{'---|' * len(FORMATS)}"
    for name, mutant in MUTANTS.items():
        if not beyond_vectors(mutant):
            cells = (" ".join(killers[name].get(arithmetic, ["–"])) for arithmetic in FORMATS)
            yield f"| {mutant.bug.id} | {mutant.operation} | {' | '.join(cells)} |"


def _left(found: list[Chosen]) -> Iterator[str]:
    yield "## Beyond vectors"
    yield "\n| bug | operation | why |\n|---|---|---|"
    for mutant in MUTANTS.values():
        if reason := beyond_vectors(mutant):
            yield f"| {mutant.bug.id} | {mutant.operation} | {reason} |"
