"""1,000 workers, on paper: `python -m research.campaigns.paper` writes docs/campaign-paper.txt.

A simulation of the loop in `properties.campaign.campaign`. One driver takes some time for each
chunk that comes back, and each worker has one chunk at a time. Workers fail, and the driver gives
their chunks out again; some workers are slow. Durations of chunks are lognormal, like the measured
ones. All numbers are constants below, and the page prints them.
"""

import heapq
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

from properties.views.whole import write_whole

__all__ = ["main", "simulated"]

_PAGE = Path(__file__).parents[2] / "docs/campaign-paper.txt"
_CASE = 0.006  # seconds of a worker for a case
_SPREAD = 0.9  # of the logarithm of a chunk's seconds
_DRIVER = 0.0005  # seconds of the driver for a chunk
_LIFE = 24 * 3600.0  # mean seconds between two failures of a worker
_AWAY = 60.0  # seconds until it is back
_SLOW, _SLOWNESS = 0.01, 10.0  # the share of workers that are slow, and how much
_HOURS = 1.0


@dataclass(frozen=True)
class Day:
    """The result of a simulation: finished chunks, lost chunks, shares of time, and the seconds
    from the end to the last chunk.
    """

    chunks: int
    lost: int
    useful: float
    driver: float
    tail: float


def simulated(
    workers: int, cases: int, seed: int = 0, hours: float = _HOURS, life: float = _LIFE, driver: float = _DRIVER
) -> Day:
    """A simulation of `workers` workers for `hours` hours, with `cases` cases in a chunk.

    `useful` is the share of the workers' time spent on chunks that were kept, `driver` the share of
    the driver's time in which it was busy, and `tail` the seconds from the end until the last chunk
    came back.
    """
    random, end = Random(seed), hours * 3600
    paces = [_SLOWNESS if random.random() < _SLOW else 1.0 for _ in range(workers)]
    failures = [random.expovariate(1 / life) for _ in range(workers)]
    mean = _CASE * cases
    free = busy = useful = last = (
        0.0  # when the driver is free, for how long it was busy, and what the workers have done
    )
    chunks = lost = 0
    events: list[tuple[float, int, float]] = [
        (0.0, worker, 0.0) for worker in range(workers)
    ]  # when, who, for how long it was at it
    while events:
        now, worker, worked = heapq.heappop(events)
        if worked:
            chunks, useful, last = chunks + 1, useful + min(worked, max(0.0, end - (now - worked))), max(last, now)
        free = max(free, now) + driver
        busy += driver if free < end else 0.0
        begins = free
        if begins >= end:
            continue
        duration = paces[worker] * mean * random.lognormvariate(-(_SPREAD**2) / 2, _SPREAD)
        while (
            failures[worker] < begins + duration
        ):  # it is lost, and given out again when the worker, or another in its place, is there
            lost += failures[worker] >= begins
            begins = max(begins, failures[worker] + _AWAY)
            failures[worker] += _AWAY + random.expovariate(1 / life)
        heapq.heappush(events, (begins + duration, worker, duration))
    return Day(chunks, lost, useful / (workers * end), busy / end, max(0.0, last - end))


def main() -> int:
    """Write the table."""
    lines = [
        f"{_HOURS:g} h. A case takes {1e3 * _CASE:g} ms of a worker, a chunk {1e3 * _DRIVER:g} ms of the driver. "
        f"A worker fails once in {_LIFE / 3600:g} h",
        f"and is back after {_AWAY:g} s; {100 * _SLOW:g} % of the workers are {_SLOWNESS:g} times as slow.",
        "",
        "workers  cases of a chunk  seconds  chunks kept  given out again  workers' time used  driver busy  "
        "cases an hour  last one after",
    ]
    for workers in (2, 100, 1000):
        for cases in (100, 1000, 5000):
            result = simulated(workers, cases)
            used, busy, rate = (
                f"{100 * result.useful:.1f} %",
                f"{100 * result.driver:.1f} %",
                result.chunks * cases / _HOURS,
            )
            work = f"{workers:7}  {cases:16}  {_CASE * cases:7.1f}  {result.chunks:11}  {result.lost:15}"
            lines.append(f"{work}  {used:>18}  {busy:>11}  {rate:13.2g}  {result.tail:12.0f} s")
    write_whole(_PAGE, "\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
