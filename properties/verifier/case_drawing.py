"""Seeds as the caller's Hypothesis profile draws them. Hypothesis takes a while to load, and is
loaded only where they are asked for.
"""

import time
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import settings

__all__ = ["TimeLimit", "by_profile", "profile"]

_DRAWING = (
    0.75  # of the time: looking for causes and smaller inputs takes seconds, and a violation without them says less
)


def profile() -> "settings":
    """The caller's profile."""
    from hypothesis import settings

    return settings.default or settings()


def by_profile(hold: Callable[[int], None], number: int, most: int) -> None:
    """Call a function on so many seeds from 0 to the most; those on which it raised before come
    first. What it raises ends it.
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
    quietly(given(st.integers(0, most))(hold))()


class TimeLimit:
    """So many seconds from now on; without a number they have no end. `end` is by time.monotonic,
    which all processes have in common.
    """

    def __init__(self, seconds: float = inf) -> None:
        now = time.monotonic()
        self.end, self._drawing = now + seconds, now + _DRAWING * seconds

    def share(self, laws: int, left: int, workers: int = 1) -> float:
        """Until when cases of so many laws may be drawn, of all that are left, so that each law
        that is left gets as long.
        """
        now = time.monotonic()
        return now + max(0.0, self._drawing - now) * min(1.0, workers * laws / left)
