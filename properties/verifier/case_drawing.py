"""Decides which cases (arguments of one test) are drawn: how many of each domain (family of
inputs), from which seeds, in which order, and until when.

Hypothesis takes a while to load, so it is loaded only where its profile decides.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import ceil, inf
from random import Random
from typing import TYPE_CHECKING

from properties.strategies.domain import Domain

if TYPE_CHECKING:
    from hypothesis import settings

__all__ = ["MAX_SEED", "TimeLimit", "by_profile", "numbers_of_cases", "profile", "turns"]

MAX_SEED = 2**24 - 1

_CASES_FOR_ONE = 20  # every domain gets at least one case of 20, however small its share
_SHARE_OF_DRAWING = 0.75  # of the time; finding causes and smaller inputs takes seconds, and explains a violation


class TimeLimit:
    """A time limit: a number of seconds from now on. Without a number, there is no limit.

    `end` is a reading of time.monotonic, a clock that all processes share.
    """

    def __init__(self, seconds: float = inf) -> None:
        now = time.monotonic()
        self.end, self._end_of_drawing = now + seconds, now + _SHARE_OF_DRAWING * seconds

    def share(self, laws: int, left: int, workers: int = 1) -> float:
        """Return when some laws must stop drawing test inputs, as a reading of time.monotonic.

        `left` is the number of laws that have not drawn yet, and `laws` the number of those that
        draw now. Each law gets the same share of the remaining time. `workers` processes work in
        parallel.
        """
        now = time.monotonic()
        return now + max(0.0, self._end_of_drawing - now) * min(1.0, workers * laws / left)


def numbers_of_cases(domains: Mapping[str, Domain], total: int) -> dict[str, int]:
    """Return how many cases (test inputs) each domain (family of inputs) gets: its share of the
    total, but at least one in twenty.
    """
    shares = sum(domain.share for domain in domains.values())
    least = ceil(total / _CASES_FOR_ONE)
    return {name: max(ceil(total * domain.share / shares), least) for name, domain in domains.items()}


def turns(
    operation: str,
    domains: Iterable[str],
    numbers: Mapping[str, int],
    random_seed: int,
    round_name: str,
    fixed: Collection[str] = (),
) -> Iterator[tuple[str, int]]:
    """Yield the domain (family of inputs) and the seed of each case to draw, in order. Every domain
    gets its cases in proportion to its number, spread over the whole order. The seeds of `fixed`
    domains are consecutive, from a multiple of their number on.

    For this reason a run that is cut short has drawn from all domains. The order depends on the
    numbers alone: a run with a time limit draws the first cases of a run without one.
    """
    order = [
        (place / numbers[name], name, seed)
        for name in domains
        for place, seed in enumerate(
            _consecutive(f"{random_seed} {operation} {name}", numbers[name])
            if name in fixed
            else _seeds(f"{random_seed} {operation} {name} {round_name}", numbers[name], round_name)
        )
    ]
    for _, name, seed in sorted(order, key=lambda turn: turn[0]):
        yield name, seed


def _consecutive(source: str, number: int) -> range:
    """Return the seeds of `number` fixed cases: the remainder of a seed is the place of its case."""
    start = number * Random(source).randint(0, MAX_SEED // number - 1)
    return range(start, start + number)


def _seeds(source: str, number: int, round_name: str) -> list[int]:
    """Return seeds for `number` cases of a domain (family of inputs). The first round, "", starts
    with the seed of the simplest case, 0.
    """
    random = Random(source)
    return [*([] if round_name else [0]), *(random.randint(1, MAX_SEED) for _ in range(number))][:number]


def profile() -> "settings":
    """Return the current Hypothesis profile."""
    from hypothesis import settings

    return settings.default or settings()


def by_profile(hold: Callable[[int], None], number: int) -> None:
    """Call a function on `number` seeds that Hypothesis draws by the current profile.

    Hypothesis first tries seeds on which the function raised in an earlier run. An exception ends
    the drawing and is raised again.
    """
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    quietly = settings(
        profile(),
        max_examples=number,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        print_blob=False,
        phases=(Phase.reuse, Phase.generate),
    )
    quietly(given(st.integers(0, MAX_SEED))(hold))()
