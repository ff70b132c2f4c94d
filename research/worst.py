"""The worst inputs of PyTorch's kernels: `python -m research.worst` climbs on error ÷ budget, and
writes docs/worst.md.

A kernel is an operation of an implementation in float32 or bfloat16. The search climbs on each of
its results separately. It goes through all domains of its cases, and starts from a case of a fresh
seed or from the worst case so far. build/worst.json keeps all worst cases, and the next run starts
from them. The search shrinks the cases near 1 while they stay near 1, and writes them as Python
that makes the call again.
"""

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np
import torch

from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.laws.agreement import AGREEMENT
from properties.verifier.call_record import RecordedCall
from properties.verifier.case_json import packed, unpacked
from properties.verifier.report import counted
from properties.verifier.script import script_of_call
from properties.verifier.shrinking import simpler
from properties.verifier.worst_input import Worst, climb, ratios
from systems import GROUPS

__all__ = ["Kernel", "kernels", "main"]

_FORMATS = ("binary32", "bfloat16")
_STEPS = 200  # calls of one climb
_NEAR = 0.9  # error ÷ budget from which an input is written out
_KEPT = 0.99  # of it that a smaller input must have
_TRIES = 600  # smaller inputs that are looked at
_LONGEST = 6000  # characters of an input that is written out

_LAWS = {law.operation: law for law in AGREEMENT}

Kernel = tuple[str, str, str]
"""An implementation, an operation, and a result."""


def _implementations() -> dict[str, Implementation]:
    return {implementation.name: implementation for group in GROUPS.values() for implementation in group}


def kernels(only: str = "") -> tuple[list[Kernel], list[str]]:
    """The results of PyTorch's entries to climb on, where the entry's name contains a text; and a
    sentence for each entry that is left out.
    """
    climbed: list[Kernel] = []
    left = []
    for name, implementation in _implementations().items():
        if (
            not name.startswith("torch")
            or only not in name
            or implementation.resolved_arithmetic.inputs.name not in _FORMATS
        ):
            continue
        if implementation.unavailable:
            left.append(f"{name}: {implementation.unavailable}")
            continue
        for operation in implementation.operations:
            definition, law = OPERATIONS[operation], _LAWS[operation]
            if reason := implementation.known_deviations.get(law.name) or implementation.known_deviations.get(law.id):
                left.append(f"{name}, {operation}: {reason}")
            else:
                climbed += [
                    (name, operation, x)
                    for x in definition.outputs
                    if not definition.is_exact and x not in implementation.support.untold(definition)
                ]
    return climbed, left


@dataclass(frozen=True)
class _Known:
    """The worst case of a kernel so far, the domain that it was found in, and how many calls were made in all."""

    worst: Worst | None = None
    domain: str = ""
    calls: int = 0

    def after(self, climbed: Worst | None, domain: str) -> "_Known":
        """With what one more climb found."""
        calls = self.calls + (climbed.calls if climbed else _STEPS)
        higher = climbed is not None and (self.worst is None or climbed.ratio > self.worst.ratio)
        return _Known(climbed, domain, calls) if higher else replace(self, calls=calls)


def _climbed(kernel: Kernel, domain: str, seed: int, known: Worst | None) -> Worst | None:
    name, operation, output = kernel
    return climb(_implementations()[name], operation, domain, seed, _STEPS, known.case if known else None, output)


def _search(known: dict[Kernel, _Known], seed: int, jobs: int, seconds: float) -> None:
    """Climbs on all kernels in rounds until the time is over. Every second climb of a kernel starts
    at its worst case so far.
    """
    start, turns = time.monotonic(), _turns(known, seed)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[Worst | None], tuple[Kernel, str]] = {}
        while True:
            while len(running) < jobs and time.monotonic() - start <= seconds:
                kernel, domain, number, begun = next(turns)
                running[pool.submit(_climbed, kernel, domain, number, begun)] = kernel, domain
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                kernel, domain = running.pop(future)
                known[kernel] = known[kernel].after(future.result(), domain)


def _turns(known: dict[Kernel, _Known], seed: int) -> Iterator[tuple[Kernel, str, int, Worst | None]]:
    """The climbs in order: kernel, domain, number of the climb, and start. Every second start of a
    kernel is its worst case so far, beginning with the first climb if it has one.
    """
    number = seed * 2**20
    for turn in count():
        for kernel, so_far in known.items():
            number += 1
            domains, again = _LAWS[kernel[1]].domains, turn % 2 == 0 and so_far.worst is not None
            yield (
                kernel,
                so_far.domain if again else domains[turn // 2 % len(domains)],
                number,
                so_far.worst if again else None,
            )


# -- What is written -------------------------------------------------------------------------------


def _cut_down(kernel: Kernel, worst: Worst) -> Worst:
    """A smaller case that is nearly as bad."""
    name, operation, _ = kernel
    implementation, definition = _implementations()[name], OPERATIONS[operation]
    caller, best, left = Caller(implementation, operation), worst, _TRIES
    cases = simpler(definition, unpacked(worst.case), implementation)
    while left and (case := next(cases, None)) is not None:
        left -= 1
        ratio = ratios(caller, case).get(worst.output, 0.0)
        if ratio >= _KEPT * worst.ratio:
            best, cases = replace(best, ratio=ratio, case=packed(case)), simpler(definition, case, implementation)
    return best


def _script(kernel: Kernel, worst: Worst) -> str:
    """Python that makes the call again, and prints the error ÷ budget."""
    name, operation, _ = kernel
    definition, group = (
        OPERATIONS[operation],
        next(
            title
            for title, searched in GROUPS.items()
            if any(implementation.name == name for implementation in searched)
        ),
    )
    case = unpacked(worst.case)
    pick = f'next(i for i in GROUPS["{group}"] if i.name == "{name}")'
    script = script_of_call(
        RecordedCall(operation, tuple(case[parameter] for parameter in definition.parameters), "contiguous"),
        "systems:GROUPS",
        pick,
    )
    shown = (
        "results = found if isinstance(found, tuple) else (found,)\n"
        "print([float(result.budget.excess(result.value).max()) for result in results])"
    )
    return script.replace("\nproperties.call(", "\nfound = properties.call(") + shown


def _page(known: dict[Kernel, _Known], left: list[str], settings: str) -> str:
    lines = [
        "# The worst inputs that were found",
        "",
        "`make worst` changes numbers, sizes, masks and options to raise the error ÷ budget of PyTorch's kernels.",
        "Above 1, a kernel or its budget is wrong. Below 1, a wrong value can hide in the gap between the worst",
        "input and 1. A dash: every budget was vacuous.",
        "",
        settings,
        "",
        "| kernel | operation | result | worst | domain | seed | numbers | calls |",
        "|---|---|---|---:|---|---:|---:|---:|",
    ]
    for (name, operation, output), known_case in sorted(
        known.items(), key=lambda item: -(item[1].worst.ratio if item[1].worst else -1.0)
    ):
        if known_case.worst is None:
            lines.append(f"| {name} | {operation} | {output} | – | | | | {known_case.calls:,} |")
        else:
            n = sum(x.size for x in unpacked(known_case.worst.case).values() if isinstance(x, np.ndarray))
            lines.append(
                f"| {name} | {operation} | {output} | {known_case.worst.ratio:.3g} | {known_case.domain} "
                f"| {known_case.worst.seed} | {n:,} | {known_case.calls:,} |"
            )
    if left:
        lines += ["", "Left out:", "", *(f"- {sentence}" for sentence in left)]
    near = {
        kernel: known_case.worst
        for kernel, known_case in known.items()
        if known_case.worst is not None and known_case.worst.ratio >= _NEAR
    }
    lines += ["", f"## Inputs with {_NEAR} or more", "", *(() if near else ("There are none.",))]
    for kernel, worst in sorted(near.items(), key=lambda item: -item[1].ratio):
        smaller = _cut_down(kernel, worst)
        text = _script(kernel, smaller)
        lines += [f"### {kernel[0]}, {kernel[1]}, {kernel[2]}: {smaller.ratio:.4g}", ""]
        lines += (
            ["```python", text, "```", ""]
            if len(text) <= _LONGEST
            else ["Too large to be written out: build/worst.json has it.", ""]
        )
    return "\n".join(lines).rstrip() + "\n"


def _kept(file: Path) -> dict[Kernel, _Known]:
    """What earlier runs kept."""
    entries = json.loads(file.read_text("utf-8")) if file.exists() else []
    return {tuple(entry["kernel"]): _Known(Worst(**entry["worst"]), entry["domain"]) for entry in entries}


def _again(kernel: Kernel, known: _Known) -> _Known:
    """The kept case of a kernel, measured again; empty if it is not a case any more."""
    name, operation, output = kernel
    kept = known.worst
    climbed = kept and climb(_implementations()[name], operation, known.domain, kept.seed, 1, kept.case, output)
    return replace(known, worst=climbed) if climbed else _Known()


def main(arguments: list[str] | None = None) -> int:
    """Search, and write the page; returns 1 if an input was beyond its budget."""
    parser = argparse.ArgumentParser(prog="python -m research.worst", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to search (60)")
    parser.add_argument("--seed", type=int, default=0, help="what climbs begin from (0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--only", default="", metavar="TEXT", help="those of PyTorch's entries whose names hold a text")
    parser.add_argument(
        "--kept", type=Path, default=Path("build/worst.json"), help="where worst cases are kept (build/worst.json)"
    )
    parser.add_argument("--output", type=Path, default=Path("docs/worst.md"), help="the page (docs/worst.md)")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"  # the workers share the processors among them
    searched, left = kernels(options.only)
    if not searched:
        print(
            f"--only {options.only!r} leaves none of PyTorch's entries in float32 and bfloat16. {' '.join(left)}",
            file=sys.stderr,
        )
        return 2
    every, start = _kept(options.kept), time.monotonic()
    known = {kernel: _again(kernel, every.get(kernel, _Known())) for kernel in searched}
    try:
        _search(known, options.seed, options.jobs, 60 * options.minutes)
    finally:  # what was found before an interrupt, or the death of a process, is not lost
        worst = _write(options, every | known, known, left, (time.monotonic() - start) / 60)
    return 1 if worst > 1 else 0


def _write(
    options: argparse.Namespace,
    every: dict[Kernel, _Known],
    known: dict[Kernel, _Known],
    left: list[str],
    minutes: float,
) -> float:
    """Keep the worst cases of every kernel, and write the page of those that were searched; the
    largest error ÷ budget.
    """
    settings = (
        f"{minutes:.3g} minutes on {counted(options.jobs, 'core')}, seed {options.seed}, "
        f"{f'entries with {options.only!r} in their names alone, ' if options.only else ''}"
        f"{sum(known_case.calls for known_case in known.values()):,} calls; torch {torch.__version__}, "
        f"NumPy {np.__version__}, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}."
    )
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    kept = [
        {"kernel": kernel, "domain": known_case.domain, "worst": asdict(known_case.worst)}
        for kernel, known_case in every.items()
        if known_case.worst
    ]
    options.kept.write_text(json.dumps(kept), "utf-8")
    options.output.write_text(_page(known, left, settings), "utf-8")
    worst = max((known_case.worst.ratio for known_case in known.values() if known_case.worst), default=0.0)
    print(f"{settings} The worst error is {worst:.4g} times its budget; see {options.output}.")
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
