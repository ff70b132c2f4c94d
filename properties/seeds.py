"""False alarms: every law on correct implementations, seed after seed. `python -m properties.seeds` writes docs/seeds.txt.

The implementations are those of `properties.implementations`, with their declared conventions and deviations. A law that is violated, or
that says too little, is a false alarm, and so is a declared deviation that does not happen.
"""

import argparse
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from properties.implementations import GROUPS
from properties.verifier import verify

__all__ = ["main"]


def alarms(name: str, seed: int, examples: int) -> tuple[str, int, Counter[str], float, list[str]]:
    """(name, seed, outcomes by status, the largest error in budgets, alarms) of one implementation."""
    (implementation,) = [i for group in GROUPS.values() for i in group if i.name == name]
    report = verify(implementation, max_examples=examples, seed=seed)
    wrong = [o for o in report.outcomes if o.status in ("violated", "vacuous", "not run")]
    sentences = [f"{name}, seed {seed}: {o.law}[{o.operation}]: {o.violation.summary if o.violation else o.reason}" for o in wrong]
    worst = max((o.worst_excess for o in report.outcomes if o.status == "held"), default=0.0)
    return name, sum(o.examples for o in report.outcomes), Counter(o.status for o in report.outcomes), worst, sentences


def main(arguments: list[str] | None = None) -> int:
    """Run them; returns 1 if there was a false alarm."""
    parser = argparse.ArgumentParser(prog="python -m properties.seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="from 0 on (50)")
    parser.add_argument("--examples", type=int, default=100, help="of each law, for each seed (100)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("docs/seeds.txt"))
    options = parser.parse_args(arguments)
    names = [i.name for group in GROUPS.values() for i in group]
    tasks = [(name, seed) for name in names for seed in range(options.seeds)]
    examples: Counter[str] = Counter()
    statuses: dict[str, Counter[str]] = {name: Counter() for name in names}
    worst = dict.fromkeys(names, 0.0)
    found: list[str] = []
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for name, cases, counts, largest, wrong in pool.map(alarms, *zip(*tasks, strict=True), [options.examples] * len(tasks)):
            examples[name] += cases
            statuses[name] += counts
            worst[name] = max(worst[name], largest)
            found += wrong
            print(f"{name}: {cases} examples, {len(wrong)} alarms", flush=True)
    width = max(map(len, names))
    lines = [
        f"False alarms on correct implementations, seeds 0 to {options.seeds - 1}, {options.examples} examples of each law for each seed.",
        "",
        f"{'implementation':{width}}  {'held':>9}  {'declared':>8}  {'examples':>9}  {'worst error ÷ budget':>20}  {'false alarms':>12}",
        *(
            f"{name:{width}}  {statuses[name]['held']:9}  {statuses[name]['declared']:8}  {examples[name]:9}  {worst[name]:20.3g}  "
            f"{statuses[name]['violated'] + statuses[name]['vacuous'] + statuses[name]['not run']:12}"
            for name in names
        ),
        "",
        *(found or ["No false alarm."]),
    ]
    options.output.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
