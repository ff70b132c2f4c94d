"""False alarms: every law on correct implementations, seed after seed. `python -m properties.measurements.seeds` writes docs/seeds.txt.

The implementations are NumPy's, PyTorch's and, where they are installed, ONNX' engines of `properties.implementations`, with their declared
conventions and deviations. A law that is violated, or that says too little, is a false alarm, and so is a declared deviation that does not
happen. The file is written after every seed: a run that is interrupted leaves what it has found. A law is suspicious with a seed where some
error was beyond the statistical line and within the budget: of correct code that is a false alarm of the line, and counted by itself.
"""

import argparse
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from properties.contract.implementation import Implementation
from properties.implementations import GROUPS
from properties.verifier.report import Report
from properties.verifier.verify import verify

__all__ = ["main"]

_ONLY = (
    *("NumPy", "torch float", "torch math", "torch flash", "torch MHA"),
    *("torch flex", "torch features", "torch SDPA", "torch cache", "torch rotations", "ONNX", "onnxruntime"),
)
_ALARMS = ("violated", "vacuous", "not run")


def _chosen(only: list[str]) -> dict[str, Implementation]:
    """The implementations that can be run here and whose names begin with one of some texts."""
    every = (i for group in GROUPS.values() for i in group)
    return {i.name: i for i in every if i.name.startswith(tuple(only)) and not i.unavailable}


def _verified(name: str, seed: int, examples: int) -> Report:
    return verify(_chosen([name])[name], max_examples=examples, seed=seed)


@dataclass
class _Tally:
    """What an implementation has come to over the seeds so far."""

    examples: int = 0
    worst: float = 0.0
    worst_line: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)

    def add(self, name: str, seed: int, report: Report) -> None:
        """One more seed."""
        self.examples += sum(o.examples for o in report.outcomes)
        passed = [o for o in report.outcomes if o.status in ("held", "suspicious")]
        self.worst = max([self.worst, *(o.worst_excess for o in passed)])
        self.worst_line = max([self.worst_line, *(o.worst_line for o in passed)])
        self.statuses.update(o.status for o in report.outcomes)
        for o in report.outcomes:
            if o.status in _ALARMS:
                said = o.violation.summary if o.violation else o.reason
                self.alarms.append(f"{name}, seed {seed}: {o.law_id}: {said}")


def _page(tallies: dict[str, _Tally], seeds: int, examples: int) -> str:
    width = max(map(len, tallies))
    alarms = [alarm for tally in tallies.values() for alarm in tally.alarms]
    lines = [
        f"False alarms on correct implementations, seeds 0 to {seeds - 1}, {examples} cases of each operation for each seed.",
        "",
        f"{'implementation':{width}}  {'held':>9}  {'declared':>8}  {'examples':>9}  {'max error ÷ budget':>20}  "
        f"{'÷ line':>6}  {'suspicious':>10}  {'false alarms':>12}",
        *(
            f"{name:{width}}  {t.statuses['held']:9}  {t.statuses['declared']:8}  {t.examples:9}  {t.worst:20.3g}  {t.worst_line:6.2g}  "
            f"{t.statuses['suspicious']:10}  {len(t.alarms):12}"
            for name, t in tallies.items()
        ),
        "",
        *(alarms or ["No false alarm."]),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run them; returns 1 if there was a false alarm."""
    parser = argparse.ArgumentParser(prog="python -m properties.measurements.seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="from 0 on (50)")
    parser.add_argument("--examples", type=int, default=100, help="cases of each operation, for each seed (100)")
    parser.add_argument("--only", nargs="+", default=list(_ONLY), metavar="TEXT", help=f"how names begin ({', '.join(_ONLY)})")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("docs/seeds.txt"))
    options = parser.parse_args(arguments)
    tallies = {name: _Tally() for name in _chosen(options.only)}
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for seed in range(options.seeds):
            reports = pool.map(_verified, tallies, [seed] * len(tallies), [options.examples] * len(tallies))
            for (name, tally), report in zip(tallies.items(), reports, strict=True):
                tally.add(name, seed, report)
            options.output.write_text(_page(tallies, seed + 1, options.examples))
            print(f"seed {seed}: {sum(len(t.alarms) for t in tallies.values())} false alarms so far", flush=True)
    print(options.output.read_text(), end="")
    return 1 if any(t.alarms for t in tallies.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
