"""A campaign whose workers, driver and disk fail.

`python -m research.campaigns.disturbed FOLDER` writes docs/campaign-disturbed.txt. The command runs
the same campaign twice. In the first run it kills workers at random moments, kills the driver in
the middle, and fills the disk for a while. The second run, of all cases or the first ones, is
undisturbed. The first database must have each planned chunk once. Both databases must agree on
every chunk that both have, except when and by whom it was run. The disturbed database is in FOLDER
and stays there. FOLDER must be on a separate small file system, which `mount -t tmpfs -o size=64M
tmpfs FOLDER` makes. After SIGINT or SIGTERM, the same command with the same FOLDER continues.
"""

import argparse
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from properties.views.whole import write_whole
from research.campaigns.commands import TARGET, chunks, planned, rows, started, verdicts

__all__ = ["main"]

_PAGE = Path(__file__).parents[2] / "docs/campaign-disturbed.txt"
_SMALL = 2**30  # bytes that are free at most, so that nothing else is without a disk
_GRACE = 3.0  # seconds in which workers notice that their driver is gone


def main(arguments: list[str] | None = None) -> int:
    """Runs both campaigns and compares them. Returns 0 if they agree and no chunk is lost."""
    parser = argparse.ArgumentParser(prog="python -m research.campaigns.disturbed", description=main.__doc__)
    parser.add_argument("small", type=Path, metavar="FOLDER", help="on a small file system of its own")
    parser.add_argument("--target", default=TARGET, help=f"what is verified ({TARGET})")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="some implementations of it")
    parser.add_argument("--climb", default="25", metavar="N", help="steps of each climb (25)")
    parser.add_argument("--cases", type=int, default=20_000, metavar="N", help="of the campaign (20000)")
    parser.add_argument("--peaceful", type=int, metavar="N", help="of them, run in peace as well (all)")
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="of workers (100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the moments (0)")
    options = parser.parse_args(arguments)
    if not options.small.is_dir():
        parser.error(f"FOLDER is {options.small}, but should be a folder.")
    if (free := shutil.disk_usage(options.small).free) > _SMALL:
        parser.error(
            f"FOLDER has {free / 2**30:.3g} GiB of free space, which will be filled, "
            f"but should have at most {_SMALL >> 30}."
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options_of_target = ["--climb", options.climb, *(["--only", *options.only] if options.only else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peaceful, disturbed = folder / "peaceful.db", options.small / "disturbed.db"

        def start(database: Path, cases: int) -> "subprocess.Popen[str]":
            return started(folder, database, "--cases", str(cases), *options_of_target, target=options.target)

        page = [f"{options.target}, {options.cases:,} cases."]
        page += _disturbed(
            lambda: start(disturbed, options.cases), disturbed, options.cases, options.kills, Random(options.seed)
        )
        began = time.monotonic()
        start(peaceful, options.peaceful or options.cases).communicate()
        elapsed = time.monotonic() - began
        page.append(
            f"Undisturbed, {options.peaceful or options.cases:,} cases, {chunks(peaceful)} chunks: {elapsed:.0f} s."
        )
        alike = chunks(peaceful) > 0 and verdicts(peaceful) == verdicts(disturbed, peaceful)
        page.append(f"The two databases say {'the same' if alike else 'DIFFERENT THINGS'} of every chunk.")
        whole = planned(disturbed) >= options.cases
        page.append("No chunk is lost." if whole else "CHUNKS ARE MISSING.")
    write_whole(_PAGE, "\n".join(page) + "\n")
    print("\n".join(page))
    return 0 if alike and whole else 1


@dataclass
class _Done:
    """What was done to a campaign so far."""

    seconds: float = 0
    killed: int = 0
    idle: int = 0  # of the killed, those that were not at a chunk
    waited: int = 0  # times that something waited to be written
    driver_fell: bool = False
    disk_filled: bool = False


def _disturbed(
    start: Callable[[], "subprocess.Popen[str]"], database: Path, cases: int, kills: int, random: Random
) -> list[str]:
    """Run it, with all that goes wrong, evenly over the cases; sentences on what did. Stopped and
    begun again, it goes on.
    """
    notes = database.with_suffix(".json")
    done = _Done(**json.loads(notes.read_text())) if notes.exists() else _Done()
    began, sentences = time.monotonic(), list[str]()
    process = None
    try:
        while process is None or process.poll() is None:
            if process is None:
                process = start()
                assert process.stderr is not None
                threading.Thread(target=sentences.extend, args=(process.stderr,), daemon=True).start()
            share = planned(database) / cases
            if done.killed < kills * share:
                time.sleep(random.uniform(0, 0.5))
                done.killed += _kill_one(process.pid, random)
            if not done.driver_fell and share >= 1 / 3:
                process.kill()
                process.wait()
                process, done.driver_fell = None, True
                time.sleep(_GRACE)
            elif not done.disk_filled and share >= 2 / 3:
                _fill(database, sentences)
                done.disk_filled = True
            time.sleep(0.05)
    finally:
        if process is not None:
            process.terminate()
            process.wait()
        done.seconds += time.monotonic() - began
        done.waited += sum("waits to be written" in sentence for sentence in sentences)
        done.idle += sum("runs again" in sentence for sentence in sentences)
        write_whole(notes, json.dumps(asdict(done)))
    counts = rows(database, "SELECT count(*), count(DISTINCT chunk), sum(cases), sum(violated), sum(lost) FROM chunk")[
        0
    ]
    runs = rows(database, "SELECT count(*) FROM run")[0][0]
    driver, disk = ("once" if happened else "never" for happened in (done.driver_fell, done.disk_filled))
    return [
        f"Disturbed: {done.seconds:.0f} s in {runs} runs. {done.killed} workers were killed at random moments, "
        f"and the driver {driver}.",
        f"{done.idle} of these workers had not begun a chunk yet.",
        f"The disk was full {disk}: results of a chunk waited {done.waited} times, and were written then.",
        "In its database: {:,} chunks, {:,} of them distinct, {:,} cases, {} violations, {} given out again.".format(
            *counts
        ),
        f"Its chunks were planned to have {planned(database):,} cases and steps: a chunk without a law draws no case.",
    ]


def _kill_one(driver: int, random: Random) -> bool:
    """Kills one of the driver's child processes at any work. Returns whether the driver had one."""
    workers = [int(process.name) for process in Path("/proc").glob("[0-9]*") if _parent(process) == driver]
    if workers:
        with suppress(ProcessLookupError):
            os.kill(random.choice(workers), signal.SIGKILL)
            return True
    return False


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _fill(database: Path, sentences: list[str]) -> None:
    """Fill the file system until the campaign has said twice that it waits; then make room again."""
    ballast, before = database.parent / "ballast", len(sentences)
    with closing(sqlite3.connect(database, timeout=60)) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else there is room in the log
    try:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        end = time.monotonic() + 300
        while sum("waits to be written" in sentence for sentence in sentences[before:]) < 2 and time.monotonic() < end:
            time.sleep(0.2)
    finally:
        ballast.unlink()


if __name__ == "__main__":
    sys.exit(main())
