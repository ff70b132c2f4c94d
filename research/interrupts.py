"""Ends the command at random moments: `python -m research.interrupts` writes docs/interrupts.txt.

`attnspec verify` runs on the reference and on a kernel with a known bug, and gets SIGHUP, SIGINT,
SIGTERM or SIGKILL at a random moment of its undisturbed duration. At every moment it must end soon,
with the signal's exit status unless it has finished. No process that it started may live on. The
report and the page must be complete or absent. The folder of temporary files must be empty, except
after SIGKILL, which a process does not notice.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation

__all__ = ["ADAPTERS", "main"]

ADAPTERS = [
    Implementation("right", {name: REFERENCE[name] for name in ("rope", "hard_masked_softmax")}),
    Implementation("wrong", {"rope": CATALOGUE["rope-half-split-pairs"].fresh()}),
]
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_SOON = 60.0  # seconds in which it ends: what is known is written down first, and a page takes its time
_PAGES = 0.25  # the share of runs that write a page, too
_GRACE = 5.0  # seconds in which a process whose parent was killed notices it


@dataclass(frozen=True)
class Ended:
    """The end of a run: the signal, the exit status as a shell gives it, a sentence for each
    problem, and the number of temporary folders that remain.
    """

    number: int
    status: int
    wrong: tuple[str, ...]
    remains: int


def run(number: int | None, moment: float, page: bool) -> Ended:
    """Runs the command once, with a page or without, and sends a signal after `moment` seconds, or
    no signal if the number is None.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("temporary", "out"):
            (folder / each).mkdir()
        command = [sys.executable, "-P", "-m", "attnspec", "verify", "research.interrupts:ADAPTERS", "--jobs", "2"]
        command += ["--quick", "--max-examples", "10", "--json", str(folder / "out" / "report.json")]
        command += ["--html", str(folder / "out" / "page")] if page else []
        environment = {**os.environ, "TMPDIR": str(folder / "temporary"), "PYTHONPATH": os.pathsep.join(sys.path)}
        started = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in _SIGNALS[:-1]],
        )
        with started:
            time.sleep(moment)
            if number is not None:
                started.send_signal(number)
            try:
                status = started.wait(_SOON if number is not None else None)
            except subprocess.TimeoutExpired:
                started.kill()
                status = started.wait()
                return Ended(number or 0, status, (f"It did not end within {_SOON:g} s.",), 0)
        wrong = [*_orphans(folder), *_halves(folder / "out", number)]
        remains = list((folder / "temporary").iterdir())
        if remains and number != signal.SIGKILL:
            wrong.append(f"{len(remains)} temporary folders were left.")
        status_told = -status + 128 if status < 0 else status
        if status_told not in (1, 128 + (number or 0)):  # one of the two adapters is wrong
            wrong.append(f"The exit status was {status_told}.")
        return Ended(number or 0, status_told, tuple(wrong), len(remains))


def _orphans(folder: Path) -> list[str]:
    """Sentences on the processes that live on: those whose temporary files would be in the folder."""
    until = time.monotonic() + _GRACE
    mark = f"TMPDIR={folder}".encode()
    while living := [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if mark in _read(path)]:
        if time.monotonic() > until:
            return [f"{len(living)} processes live on."]
        time.sleep(0.1)
    return []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has just ended, or is another user's
        return b""


def _halves(folder: Path, number: int | None) -> list[str]:
    """A sentence for each file that is neither complete nor absent. After SIGKILL, temporary files
    of a write may remain.
    """
    wrong = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        text = path.read_text("utf-8")
        if path.name == "report.json":
            try:
                json.loads(text)
            except ValueError:
                wrong.append("report.json is half written.")
        elif path.name == "index.html":
            if not text.rstrip().endswith("</html>"):
                wrong.append("index.html is half written.")
        elif number != signal.SIGKILL:
            wrong.append(f"{path.name} was left.")
    return wrong


def _page(ended: list[Ended], seconds: dict[bool, float]) -> str:
    lines = [
        f"`attnspec verify` ended by a signal {len(ended)} times, each at a random moment of the time that it takes: "
        f"{seconds[False]:.1f} s, and {seconds[True]:.1f} s where it writes a page.",
        "",
        f"{'signal':8}  {'runs':>5}  {'exit statuses':24}  {'temporary folders left':>22}  {'wrong':>5}",
    ]
    for number in _SIGNALS:
        these = [end_of_run for end_of_run in ended if end_of_run.number == number]
        statuses = ", ".join(
            f"{status} ({n})" for status, n in sorted(Counter(end_of_run.status for end_of_run in these).items())
        )
        remains, wrong = (
            sum(bool(end_of_run.remains) for end_of_run in these),
            sum(bool(end_of_run.wrong) for end_of_run in these),
        )
        lines.append(f"{signal.Signals(number).name:8}  {len(these):5}  {statuses:24}  {remains:22}  {wrong:5}")
    status_told = [
        f"{signal.Signals(end_of_run.number).name}: {sentence}" for end_of_run in ended for sentence in end_of_run.wrong
    ]
    fine = (
        "No process lived on, no file was half written, and each exit status was the signal's, "
        "or 1, the verdict's, where it was through."
    )
    return "\n".join([*lines, "", *(status_told or [fine])]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Runs all. Returns 1 if there was a problem."""
    parser = argparse.ArgumentParser(prog="python -m research.interrupts", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many (100)")
    parser.add_argument("--seed", type=int, default=0, help="what signals and moments are drawn from (0)")
    parser.add_argument("--output", type=Path, default=Path("docs/interrupts.txt"))
    options = parser.parse_args(arguments)
    seconds: dict[bool, float] = {}
    for page in (False, True):
        start = time.monotonic()
        if wrong := run(None, 0.0, page).wrong:
            raise SystemExit(f"Undisturbed: {' '.join(wrong)}")
        seconds[page] = time.monotonic() - start
    ended, random = [], Random(options.seed)
    for place in range(options.runs):
        number, page = random.choice(_SIGNALS), random.random() < _PAGES
        moment = random.uniform(0, seconds[page])
        ended.append(run(number, moment, page))
        print(
            f"[{place + 1}/{options.runs}] {signal.Signals(number).name} after {moment:.2f} s: {ended[-1]}", flush=True
        )
        options.output.write_text(_page(ended, seconds))
    print(options.output.read_text(), end="")
    return 1 if any(end_of_run.wrong for end_of_run in ended) else 0


if __name__ == "__main__":
    raise SystemExit(main())
