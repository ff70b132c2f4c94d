"""The subcommand that puts a candidate to the gate."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from properties.command.outputs import file_to_write, printing
from properties.command.parsing import duration, memory, positive

if TYPE_CHECKING:
    from properties.gatehouse.verdict import Verdict

__all__ = ["add_to"]

_MANY: dict[str, Any] = {"action": "append", "default": []}

_ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "candidate": (
        "kernel.py, with functions under the operations' names; or a solution for flashinfer-bench, in JSON",
        {"type": Path},
    ),
    "--operation": ("these operations only; may be repeated", _MANY | {"metavar": "NAME"}),
    "--function": (
        "a function and the operation that it implements, where it has another name; may be repeated",
        _MANY | {"metavar": "NAME=OPERATION"},
    ),
    "--reference-signature": (
        "the same for a function with other names or another order of arguments: its call in terms of the operation's, such as "
        "'flash(v, k, q, attn_mask=mask)=scaled_dot_product_attention'",
        _MANY | {"metavar": "CALL=OPERATION", "dest": "function"},
    ),
    "--kernelbench": (
        "the KernelBench problem that the candidate solves, by its class ModelNew",
        {"type": Path, "metavar": "PROBLEM"},
    ),
    "--arithmetic": ("the arithmetic to judge by (float64), such as float32 or bfloat16", {"metavar": "NAME"}),
    "--convention": (
        "a convention that it follows, such as causal=bottom_right; may be repeated",
        _MANY | {"metavar": "NAME=VALUE"},
    ),
    "--feature": (
        "a feature of attention, or an option of rope, that it takes; may be repeated",
        _MANY | {"metavar": "NAME"},
    ),
    "--supports": (
        "which inputs it takes, if not all: head_dim=64,128, or words such as 'positive sizes'; may be repeated",
        _MANY | {"metavar": "TEXT"},
    ),
    "--batch-ranks": (
        "how many leading axes it takes (0 1 2): 2 for (batch, heads, length, width) alone",
        {"type": int, "nargs": "+", "metavar": "N"},
    ),
    "--nondeterministic": ("the same call may give another result, within the budget", {"action": "store_true"}),
    "--arrays": ("whose arrays it takes and returns (numpy)", {"choices": ("numpy", "torch")}),
    "--library": (
        "a distribution that it may import, besides the one of its arrays; may be repeated",
        _MANY | {"metavar": "NAME"},
    ),
    "--quick": ("few laws on few cases: a verdict in a few seconds", {"action": "store_true"}),
    "--seed": ("seed of the cases; by default one that cannot be known beforehand", {"type": int, "metavar": "N"}),
    "--timeout": (
        "limit for one call (2, or 1 with --quick); an import may take 60",
        {"type": positive, "metavar": "SECONDS"},
    ),
    "--time-limit": (
        "time limit for all its calls together, such as 6s or 1m (6s, or 3s with --quick)",
        {"type": duration, "metavar": "TIME"},
    ),
    "--memory": ("limit of its address space, such as 512M or 4G (4G)", {"type": memory, "metavar": "SIZE"}),
    "--json": ("also write the verdict as JSON; - writes it to standard output, and nothing else", {"metavar": "FILE"}),
}
"""The arguments: what each is for, and how it is parsed."""


def add_to(commands: Any) -> None:
    """Add the subcommand to a parser's."""
    gate = commands.add_parser(
        "gate",
        help="accept an untrusted kernel, or not",
        description="Check a candidate against the laws in processes that know nothing of attnspec, on cases that cannot be foreseen. "
        "Exit status: 0 it is accepted, 1 it is not accepted, 2 it cannot be checked.",
    )
    for name, (purpose, how) in _ARGUMENTS.items():
        gate.add_argument(name, help=purpose, **how)
    gate.set_defaults(run=_gate)


def _gate(options: argparse.Namespace) -> int:
    from properties.gatehouse.gate import gate
    from properties.views.whole import write_whole

    place = file_to_write(options.json, "--json") if options.json not in (None, "-") else None
    try:
        submission = _submission(options)
        promises = _promises(options, submission)
        verdict = gate(submission, quick=options.quick, seed=options.seed, limits=_limits(options), **promises)
    except TypeError as error:
        raise ValueError(str(error)) from error
    text = json.dumps(verdict.to_dict(), indent=1, allow_nan=False) + "\n"
    name = options.candidate.name
    said = f"{name} is accepted" if verdict.accepted else f"{name} is not accepted. {verdict.cause}"
    if place is not None:
        try:
            write_whole(place, text)
        except OSError as error:
            raise ValueError(f"{place} cannot be written: {error.strerror}. The verdict was: {said}") from error
    with printing(said):
        if options.json == "-":
            print(text, end="")
        else:
            _print(verdict, said)
    return 0 if verdict.accepted else 1


def _print(verdict: "Verdict", said: str) -> None:
    """What is wrong, and the verdict."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    if not verdict.accepted:
        from properties.views.violation import print_cause, print_indented  # loads tables, which take a while

        for cause in verdict.report.causes:
            print_cause(console, cause)
            console.print()
        for o in (o for o in verdict.report.outcomes if verdict.report.fails(o)):
            print_indented(console, f"{o.law} [{o.operation}]: {o.violation.summary if o.violation else o.reason}")
    held = " and ".join(verdict.held) or "nothing"
    console.print(f"Seed {verdict.report.settings['seed']}; the system confined {held}; {verdict.seconds:.1f} s.")
    console.print(
        f"Score {verdict.score:.3f}: {said}", style="bold green" if verdict.accepted else "bold red", markup=False
    )


def _submission(options: argparse.Namespace) -> Any:
    """What is put to the gate, as options name it. Raises ValueError."""
    from properties.gatehouse import foreign_formats
    from properties.gatehouse.submission import of_file

    foreign = options.kernelbench is not None or options.candidate.suffix == ".json"
    given = [name for name in ("operation", "function", "arrays") if getattr(options, name)]
    if foreign and given:
        raise ValueError(f"--{given[0]} is for a candidate by itself; another project's format says it.")
    if options.kernelbench is not None:
        return foreign_formats.kernelbench(options.kernelbench, options.candidate, libraries=tuple(options.library))
    if options.candidate.suffix == ".json":
        return foreign_formats.flashinfer_bench(options.candidate, libraries=tuple(options.library))
    functions = {}
    for text in options.function:
        function, mark, operation = text.rpartition("=")
        if not mark or ")" in operation:
            raise ValueError(
                f"--function {text!r}, but should be NAME=OPERATION, as flash=scaled_dot_product_attention."
            )
        functions[function.strip()] = operation.strip()
    functions |= {name: name for name in options.operation}
    return of_file(
        options.candidate, functions or None, arrays=options.arrays or "numpy", libraries=tuple(options.library)
    )


def _promises(options: argparse.Namespace, submission: Any) -> dict[str, Any]:
    """What options promise besides; what they say nothing of is left out."""
    from dataclasses import replace

    from oracles import Conventions
    from properties.command.conventions import parsed

    found: dict[str, Any] = {}
    if options.arithmetic is not None:
        found["arithmetic"] = options.arithmetic
    if options.convention:
        found["conventions"] = replace(
            submission.promises.get("conventions", Conventions()), **parsed(options.convention)
        )
    if options.feature:
        found["features"] = tuple(options.feature)
    if options.batch_ranks:
        found["batch_ranks"] = tuple(options.batch_ranks)
    if options.nondeterministic:
        found["deterministic"] = False
    if options.supports:
        found["supports"] = [*submission.promises.get("supports", ()), *map(_supported, options.supports)]
    return found


def _supported(text: str) -> Any:
    """What is supported: a list of sizes by a name, or a word as it is."""
    size, mark, numbers = text.partition("=")
    if not mark:
        return text
    try:
        return {size.strip(): [(float if size.strip() == "scale" else int)(number) for number in numbers.split(",")]}
    except ValueError:
        raise ValueError(
            f"--supports {text!r}, but should list whole numbers, as head_dim=64,128, or scales of scores."
        ) from None


def _limits(options: argparse.Namespace) -> Any:
    """The limits of the candidate: the usual ones, except for those that options give."""
    from dataclasses import replace

    from properties.gatehouse.gate import QUICK
    from properties.gatehouse.isolated_kernel import Limits

    given = {"call": options.timeout, "calls": options.time_limit, "memory": options.memory}
    usual = QUICK if options.quick else Limits()
    return replace(usual, **{name: limit for name, limit in given.items() if limit is not None})
