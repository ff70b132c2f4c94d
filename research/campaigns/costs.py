"""Measures the cost of campaigns: `python -m research.campaigns.costs` writes
docs/campaign-costs.txt.

Each engine runs the same chunks with one worker and with two, and one process runs them in a loop,
in alternation. The cost of an engine is the processor time of all its processes, Ray's own
included, divided by the processor time of the loop. Unlike rates and wall-clock time, this ratio
depends little on the load of the machine. The page also shows the share of the workers' time
without a chunk, which is waiting.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median

from properties.campaign.bench import Result
from properties.campaign.chunks import plan
from properties.campaign.examples import at
from properties.campaign.store import Store
from properties.views.whole import write_whole
from research.campaigns.commands import TARGET, rows, started, verdicts
from research.processors import measured

__all__ = ["driver_seconds", "main"]

_PAGE = Path(__file__).parents[2] / "docs/campaign-costs.txt"
_PRICE = 0.04  # dollars for an hour of a core: about what clouds ask
_FIRST = 100  # cases of one chunk; one for each worker is what the start is measured by
_CHUNKS = 2000  # by which the driver's part is measured


@dataclass(frozen=True)
class Cost:
    """What a campaign has cost: seconds by the clock, and of processors, of everything."""

    engine: str
    workers: int
    cases: int
    chunks: int
    seconds: float
    at_work: float
    processors: float

    @property
    def idle(self) -> float:
        """The share of the workers' time in which they were at no chunk."""
        return 1 - self.at_work / (self.workers * self.seconds)

    def beside(self, loop: "Cost", start: float) -> tuple[float, float, float, float]:
        """The processors' time of its start; in units of a loop's all of it, what is not the start,
        and its workers' time by the clock.
        """
        clock = self.workers * self.seconds / loop.seconds
        return start, self.processors / loop.processors, (self.processors - start) / loop.processors, clock


def main() -> int:
    """Run them all; 0 where all say the same."""
    parser = argparse.ArgumentParser(prog="python -m research.campaigns.costs", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=10_000, metavar="N", help="of each campaign (10000)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds, in each of which all are run (3)")
    parser.add_argument("--output", type=Path, default=_PAGE, help="the page (docs/campaign-costs.txt)")
    options = parser.parse_args()
    engines = ["local", *(["ray"] if find_spec("ray") else [])]
    rounds, answers = [], []
    with tempfile.TemporaryDirectory() as name:
        for turn in range(options.repeats):
            costs, starts = [], []
            for engine, workers in product(engines, (1, 2)):
                start_database, database = (Path(name) / f"{engine}{workers}-{turn}{part}.db" for part in ("-one", ""))
                first = _cost(Path(name), start_database, engine, workers, workers * _FIRST)
                starts.append(first.processors - _loop(start_database, first).processors)
                costs.append(_cost(Path(name), database, engine, workers, options.cases))
                answers.append(verdicts(database))
            loop = _loop(database, costs[-1])
            rounds.append((costs, [cost.beside(loop, start) for cost, start in zip(costs, starts, strict=True)]))
        page = _page(rounds, driver_seconds(Path(name)), all(cost == answers[0] for cost in answers))
    write_whole(options.output, page)
    print(page, end="")
    return 0 if all(cost == answers[0] for cost in answers) else 1


def _cost(folder: Path, database: Path, engine: str, workers: int, cases: int) -> Cost:
    campaign = partial(started, folder, database, "--cases", str(cases), "--climb", "0", engine=engine, jobs=workers)
    _, _, processor_seconds = measured(lambda: campaign().communicate())
    ((chunks, drawn, at_work, seconds),) = rows(
        database, "SELECT count(*), sum(cases), sum(seconds), max(finished) - (SELECT min(started) FROM run) FROM chunk"
    )
    return Cost(engine, workers, drawn, chunks, seconds, at_work, processor_seconds)


def _loop(database: Path, like: Cost) -> Cost:
    """What the chunks of a campaign cost, one after another in one process."""
    command = [sys.executable, "-P", "-m", "research.campaigns.loop", str(database)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process, _, processor_seconds = measured(
        partial(subprocess.run, command, check=True, env=environment, stdout=subprocess.PIPE)
    )
    seconds = float(process.stdout)
    return Cost("loop", 1, like.cases, like.chunks, seconds, seconds, processor_seconds)


def driver_seconds(folder: Path) -> float:
    """Seconds of the driver for a chunk: to plan it, to find that it is not done, to keep what came of it."""
    examples = at(str(folder / "none"))
    result = Result({"held": 40}, cases=100, examples=400, excess=0.5, seconds=1.0)
    with Store(folder / "driver.db", {}) as store:
        store.begin("none", 1, {})
        start = time.perf_counter()
        for chunk in plan([("an implementation", "attention")], range(_CHUNKS), 100):
            if not store.has(chunk):
                examples.note(chunk, result)
                store.add(chunk, result)
        return (time.perf_counter() - start) / _CHUNKS


def _page(rounds: list[tuple[list[Cost], list[tuple[float, float, float, float]]]], driver: float, alike: bool) -> str:
    costs = rounds[0][0]
    lines = [
        f"{TARGET}, {costs[0].cases} cases in {costs[0].chunks} chunks; {os.cpu_count()} cores, other work beside it.",
        "",
        "engine  workers  cases a second  seconds of a chunk  idle share",
    ]
    for cost in costs:
        rate, mean = cost.cases / cost.seconds, cost.at_work / cost.chunks
        lines.append(f"{cost.engine:6}  {cost.workers:7}  {rate:14.0f}  {mean:18.2f}  {100 * cost.idle:8.1f} %")
    lines += [
        "",
        f"In units of the same chunks in a loop in one process: medians of {len(rounds)}, in alternation. Processors'",
        "time is the sum over all processes. The start's time comes from a campaign of one chunk for each worker:",
        "its processors' time minus the loop's.",
        "",
        "engine  workers  start, seconds of processors  processors' time  without the start  clock × workers",
    ]
    for place, cost in enumerate(costs):
        start, whole, rest, clock = (
            median(column) for column in zip(*(beside[place] for _, beside in rounds), strict=True)
        )
        lines.append(f"{cost.engine:6}  {cost.workers:7}  {start:28.1f}  {whole:16.3f}  {rest:17.3f}  {clock:15.3f}")
    lines += [
        "",
        f"All say {'the same' if alike else 'DIFFERENT THINGS'} of every chunk.",
        f"The driver takes {1e3 * driver:.2f} ms for a chunk.",
    ]
    processor_seconds = min(cost.processors / cost.cases for costs, _ in rounds for cost in costs)
    hours = processor_seconds * 1e9 / 3600
    lines += [
        f"A case takes {1e3 * processor_seconds:.2f} ms of a core: {1 / processor_seconds:.0f} cases a second.",
        "",
        "cores  days for 10⁹ cases  dollars, at 0.04 for an hour of a core",
        *(f"{cores:5}  {hours / cores / 24:18.1f}  {hours * _PRICE:.0f}" for cores in (2, 64, 1000)),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
