"""`python -m properties`: check every law on the implementations that come with attnspec, and print what held."""

import argparse
import os
import sys
from concurrent.futures.process import BrokenProcessPool
from typing import get_args

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from properties.laws import LAWS
from properties.report import print_deviations, print_table, print_violation
from properties.runner import load, run
from properties.verifier import Outcome, Status, plan

__all__ = ["main"]


def _natural(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a whole number from 1.")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Run the checks and print them. Returns 0 when every check was made, said something and found nothing undeclared; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m properties", description=__doc__)
    parser.add_argument("--examples", type=_natural, default=100, help="cases for each law and implementation (100)")
    parser.add_argument("--seed", type=int, default=0, help="what the cases are drawn from (0): the same seed, the same cases")
    parser.add_argument("--jobs", type=_natural, default=os.cpu_count() or 1, help="processes (one for each processor)")
    parser.add_argument(
        "--implementations", default="properties.implementations:GROUPS", metavar="MODULE:NAME", help="what is put under test"
    )
    options = parser.parse_args(arguments)

    try:
        groups = load(options.implementations)
        total = sum(len(plan(LAWS, implementations)) for implementations in groups.values())
    except (ImportError, AttributeError, ValueError) as error:
        parser.error(f"--implementations {options.implementations}: {error}")

    os.environ["OMP_NUM_THREADS"] = "1"  # the workers share the processors among them
    console, log = Console(), Console(stderr=True)
    found: list[tuple[str, int, Outcome]] = []
    columns = (SpinnerColumn(), TextColumn("{task.completed}/{task.total} checks"), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        with Progress(*columns, console=log, transient=True, disable=not log.is_terminal) as progress:
            task = progress.add_task("", total=total)
            for group, place, outcome in run(options.implementations, options.examples, options.seed, options.jobs):
                found.append((group, place, outcome))
                line = f"{outcome.implementation}: {outcome.law}"
                progress.update(task, advance=1, description=escape(line))
                if not log.is_terminal:
                    print(f"[{len(found)}/{total}] {line}: {outcome.status}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        console.print(f"Interrupted: {len(found)} of {total} checks were done. What they found:", style="bold red")
    except BrokenProcessPool:
        message = f"A process died in an implementation: {len(found)} of {total} checks were done. JOBS=1 shows where."
        console.print(message, style="bold red")

    outcomes = {group: [o for g, _, o in sorted(found, key=lambda f: f[1]) if g == group] for group in groups}
    for group, implementations in groups.items():
        print_table(console, group, implementations, outcomes[group])
    everything = [o for group in outcomes.values() for o in group]
    print_deviations(console, everything)
    for o in everything:
        if o.status == "violated":
            print_violation(console, o, options.implementations)
    counts = {status: sum(o.status == status for o in everything) for status in get_args(Status)}
    passed = counts["vacuous"] == counts["violated"] == 0 and len(found) == total
    console.print(", ".join(f"{n} {status}" for status, n in counts.items()), style="bold green" if passed else "bold red")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
