"""`python -m research.gates` writes docs/gate.txt.

The command is timed in alternation on a right candidate of NumPy, a right one of PyTorch, and a
wrong one: in seconds of the clock, and in seconds of processors, summed over all processes. Then
the gate judges right candidates in all structures and arithmetics with many seeds, alone and beside
busy processes, and each adversary with one seed. It needs Linux, which reports the processor time of
processes that outlive their parents.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple

from properties.gatehouse.gate import gate
from properties.gatehouse.sandbox import sandbox
from properties.gatehouse.verdict import Verdict
from properties.tests.candidates import ARITHMETICS, RIGHT, UNSEEN, WRONG, adversary, limits_for, right
from properties.verifier.report import counted
from properties.views.whole import write_whole
from research.processors import measured

__all__ = ["main"]

_PAGE = Path(__file__).parents[2] / "docs/gate.txt"
_TIMED = (("right", "plain"), ("right", "torch"), ("wrong", "the mean of the values"))
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
_MOST_UNJUDGED = 0.01  # of right candidates beside busy processes


def main() -> int:
    """Measures, and writes the page. Returns 0 if the gate refuses no right candidate, leaves at most
    one of a hundred open, and accepts no adversary that it could judge.
    """
    parser = argparse.ArgumentParser(prog="python -m research.gates", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=30, metavar="N", help="of each right candidate (30)")
    parser.add_argument(
        "--load", type=int, default=6, metavar="N", help="busy processes beside the right candidates, in a round (6)"
    )
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="of each time (5)")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first adversaries (0)")
    parser.add_argument("--adversaries", type=int, default=len(WRONG), metavar="N", help="the first of the rest (all)")
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="candidates at a time, where nothing is timed (2)"
    )
    parser.add_argument("--output", type=Path, default=_PAGE, help="the page (docs/gate.txt)")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    measured_times, timed_right = _times(options.repeats)
    candidates = [*product(RIGHT, ARITHMETICS, range(options.seeds))]
    rounds = {}
    with ProcessPoolExecutor(options.jobs) as pool, socket.create_server(("127.0.0.1", 0)) as listening:
        for load in dict.fromkeys((0, options.load)):
            with _load(load):
                rounds[load] = Counter(pool.map(_status, candidates))
        names = list(WRONG)[options.skip :][: options.adversaries]
        passed = [*pool.map(partial(_passed, listening.getsockname()[1]), names)]
    judged = [verdict for verdict in passed if verdict is not None]
    accepted, unjudged = ([verdict.name for verdict in judged if verdict.status == each] for each in _STATUSES[::2])
    lines = [
        "A verdict of the command on scaled_dot_product_attention in float32, "
        f"on {counted(os.cpu_count() or 1, 'core')} with {busy:.1f} other processes at work before it: "
        f"medians of {options.repeats}, in alternation.",
        "",
        *measured_times,
        "",
        f"Right candidates, in {len(RIGHT)} structures and {len(ARITHMETICS)} arithmetics, with "
        f"{counted(options.seeds, 'seed')}, by the quick plan and its time limits. "
        "At load N, N other processes want the processors:",
        *(
            f"at load {load}: {', '.join(f'{number[each]} {each}' for each in _STATUSES)}."
            for load, number in rounds.items()
        ),
        f"Adversaries: {len(accepted)} of {len(judged)} accepted, by the quick plan.",
        *([f"Not judged, because the machine was busy: {', '.join(unjudged)}."] if unjudged else []),
        *_longest(judged, options.jobs),
        *_unconfined(names, passed),
        *(f"Not seen, by design: {name}: {source.notes['unseen']}." for name, source in UNSEEN.items()),
    ]
    text = "\n".join(lines) + "\n"
    write_whole(options.output, text)
    print(text, end="")
    total = sum(rounds.values(), Counter[str]())
    right_accepted = not total["refused"] and total["not judged"] <= _MOST_UNJUDGED * len(candidates)
    return 0 if timed_right and right_accepted and len(judged) > len(unjudged) and not accepted else 1


_STATUSES = ("accepted", "refused", "not judged")


def _status_of(verdict: Verdict) -> str:
    return _STATUSES[0 if verdict.accepted else 1 if verdict.judged else 2]


@contextmanager
def _load(number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run some processes that want a processor all the time. They end with this process, too."""
    others = [subprocess.Popen([sys.executable, "-S", "-c", _BUSY]) for _ in range(number)]
    try:
        yield others
    finally:
        for other in others:
            other.kill()
            other.wait()


class _Judged(NamedTuple):
    """An adversary, its status, and how long the verdict took."""

    name: str
    status: str
    seconds: float


def _times(repeats: int) -> tuple[list[str], bool]:
    """A row for each candidate and plan, the verdict and the medians of the seconds; and whether
    all verdicts are as they should be. Without repeats there are no rows.
    """
    if not repeats:
        return [], True
    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for (kind, name), plan in product(_TIMED, ("quick", "default")):
            submission = adversary(name, 0) if kind == "wrong" else right(name)
            file = Path(folder, f"{kind}_{submission.arrays}.py")
            file.write_text(submission.sources["kernel.py"], "utf-8")
            more = ["--quick"] if plan == "quick" else []
            commands[kind, name, plan] = [str(file), "--arithmetic", "float32", "--arrays", submission.arrays, *more]
        timings = {key: list[tuple[int, float, float]]() for key in commands}
        for key, command in [*commands.items()] * repeats:
            timings[key].append(_timed(command))
    rows, fine = [f"{'candidate':{_WIDTH}}  plan     verdict       seconds  of processors"], True
    for (kind, name, plan), measured_times in timings.items():
        codes = {code for code, _, _ in measured_times}
        fine &= codes == {kind == "wrong"}
        verdict_text = "accepted" if codes == {0} else "not accepted" if codes == {1} else f"exit {sorted(codes)}"
        seconds, processors = (median(column) for column in list(zip(*measured_times, strict=True))[1:])
        rows.append(f"{f'{kind}: {name}':{_WIDTH}}  {plan:7}  {verdict_text:12}  {seconds:7.2f}  {processors:13.2f}")
    return rows, fine


_WIDTH = max(len(f"{kind}: {name}") for kind, name in _TIMED)


def _timed(arguments: Iterable[str]) -> tuple[int, float, float]:
    """The exit status of `attnspec gate`, its seconds, and the processor seconds of all its
    processes.
    """
    command = [sys.executable, "-P", "-m", "attnspec", "gate", *arguments]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONDONTWRITEBYTECODE": "",
    }  # as it is installed
    run = partial(
        subprocess.run, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=environment
    )
    process, seconds, processors = measured(run)
    return process.returncode, seconds, processors


def _status(candidate: tuple[str, str, int]) -> str:
    """The status of a right candidate; what is wrong with one that is not accepted is printed."""
    structure, arithmetic, seed = candidate
    verdict = gate(right(structure), arithmetic=arithmetic, quick=True, seed=seed)
    if not verdict.accepted:
        print(f"{structure}, {arithmetic}, seed {seed}: {verdict.cause}", file=sys.stderr)
    return _status_of(verdict)


def _passed(port: int, name: str) -> _Judged | None:
    """The verdict on an adversary. None if the system does not enforce the limits that make it
    wrong, or if it would end this process.
    """
    needs = set(WRONG[name].notes.get("needs", "").split())
    with tempfile.TemporaryDirectory() as folder:
        if "processes" in needs and not sandbox(Path(folder).resolve(), (), {}).apart:
            return None
    verdict = gate(adversary(name, port), quick=True, limits=limits_for(name))
    if not needs <= set(verdict.held):
        return None
    if verdict.accepted:
        print(f"{name} is accepted with seed {verdict.report.settings['seed']}", file=sys.stderr)
    return _Judged(name, _status_of(verdict), verdict.seconds)


def _longest(judged: list[_Judged], jobs: int) -> list[str]:
    if not judged:
        return []
    longest = max(judged, key=lambda verdict: verdict.seconds)
    return [
        f"With {jobs} at a time, a verdict on one adversary took {median(verdict.seconds for verdict in judged):.1f} s "
        f"in the median, and {longest.seconds:.1f} s at most: {longest.name}."
    ]


def _unconfined(names: list[str], passed: list[_Judged | None]) -> list[str]:
    missing = [name for name, verdict in zip(names, passed, strict=True) if verdict is None]
    return [f"Not judged, because this system cannot enforce the limits: {', '.join(missing)}."] if missing else []


if __name__ == "__main__":
    sys.exit(main())
