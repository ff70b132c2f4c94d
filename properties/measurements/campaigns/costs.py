"""What campaigns cost: `python -m properties.measurements.campaigns.costs` writes docs/campaign-costs.txt.

The same chunks are run by each engine with one worker and with two. What an engine costs is the share of its workers' time in which they
are at no chunk: it does not depend on how busy the machine is otherwise, as rates do. Processor time is that of everything together.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from properties.campaign.bench import Result
from properties.campaign.chunks import plan
from properties.campaign.examples import at
from properties.campaign.store import Store
from properties.measurements.campaigns.commands import TARGET, rows, started, verdicts
from properties.views.whole import write_whole

__all__ = ["driver_seconds", "main"]

_PAGE = Path(__file__).parents[3] / "docs/campaign-costs.txt"
_PRICE = 0.04  # dollars for an hour of a core: about what clouds ask
_CHUNKS = 2000  # by which the driver's part is measured


@dataclass(frozen=True)
class Cost:
    """What a campaign has cost: seconds by the clock, and of processors, where that is known."""

    engine: str
    workers: int
    cases: int
    chunks: int
    seconds: float
    at_work: float
    processors: float | None

    @property
    def idle(self) -> float:
        """The share of the workers' time in which they were at no chunk."""
        return 1 - self.at_work / (self.workers * self.seconds)


def main() -> int:
    """Run them all; 0 where all say the same."""
    parser = argparse.ArgumentParser(prog="python -m properties.measurements.campaigns.costs", description=main.__doc__)
    parser.add_argument("--cases", type=int, default=10_000, metavar="N", help="of each campaign (10000)")
    options = parser.parse_args()
    engines = ["local", *(["ray"] if find_spec("ray") else [])]
    found, said = [], []
    with tempfile.TemporaryDirectory() as name:
        for engine in engines:
            for workers in (1, 2):
                database = Path(name) / f"{engine}{workers}.db"
                found.append(_cost(Path(name), database, engine, workers, options.cases))
                said.append(verdicts(database))
        page = _page(found, driver_seconds(Path(name)), all(each == said[0] for each in said))
    write_whole(_PAGE, page)
    print(page, end="")
    return 0 if all(each == said[0] for each in said) else 1


def _cost(folder: Path, database: Path, engine: str, workers: int, cases: int) -> Cost:
    before = _processors()
    process = started(folder, database, "--cases", str(cases), engine=engine, jobs=workers)
    process.communicate()
    spent = _processors() - before if engine == "local" else None  # Ray's processes are nobody's children
    ((chunks, drawn, at_work, seconds),) = rows(
        database, "SELECT count(*), sum(cases), sum(seconds), max(finished) - (SELECT min(started) FROM run) FROM chunk"
    )
    return Cost(engine, workers, drawn, chunks, seconds, at_work, spent)


def _processors() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def _page(found: list[Cost], driver: float, alike: bool) -> str:
    lines = [
        f"{TARGET}, {found[0].cases} cases in {found[0].chunks} chunks; {os.cpu_count()} cores, other work beside it.",
        "",
        "engine  workers  cases a second  seconds of a chunk  at no chunk",
    ]
    for each in found:
        rate, mean = each.cases / each.seconds, each.at_work / each.chunks
        lines.append(f"{each.engine:6}  {each.workers:7}  {rate:14.0f}  {mean:18.2f}  {100 * each.idle:9.1f} %")
    lines += [
        "",
        f"All say {'the same' if alike else 'DIFFERENT THINGS'} of every chunk.",
        f"The driver takes {1e3 * driver:.2f} ms for a chunk.",
    ]
    spent = min(each.processors / each.cases for each in found if each.processors is not None)
    hours = spent * 1e9 / 3600
    lines += [
        f"A case takes {1e3 * spent:.2f} ms of a core: {1 / spent:.0f} cases a second.",
        "",
        "cores  days for 10⁹ cases  dollars, at 0.04 for an hour of a core",
        *(f"{cores:5}  {hours / cores / 24:18.1f}  {hours * _PRICE:.0f}" for cores in (2, 64, 1000)),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
