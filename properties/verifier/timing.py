"""How long a verification may take: for most of it cases are drawn, by turns of the operations, and
the rest is for causes.
"""

import time
from math import inf

__all__ = ["Time"]

_DRAWING = (
    0.75  # of the time: looking for causes and smaller inputs takes seconds, and a violation without them says less
)


class Time:
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
