"""Defines the subcommand `attnspec gate`, which accepts or rejects an untrusted kernel."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from properties.command.outputs import file_to_write, printing
from properties.command.parsing import (
    FLAG,
    INTERPRET,
    REPEATED,
    Options,
    add_options,
    duration,
    memory,
    positive,
    sizes,
)

if TYPE_CHECKING:
    from properties.gatehouse.verdict import Verdict

__all__ = ["add_to"]

_ARGUMENTS: Options = {
    "candidate": (
        "a Python file whose functions have the names of operations; or a solution of --definition, in JSON",
        {"type": Path},
    ),
    "--operation": ("check only this operation; may be repeated", REPEATED | {"metavar": "NAME"}),
    "--function": (
        "check the function NAME as OPERATION, if its name is not the operation's; may be repeated",
        REPEATED | {"metavar": "NAME=OPERATION"},
    ),
    "--reference-signature": (
        "how to call a function whose arguments have other names or another order. Write the call with the "
        "operation's argument names, such as 'flash(v, k, q, attn_mask=mask)=scaled_dot_product_attention'; "
        "may be repeated",
        REPEATED | {"metavar": "CALL=OPERATION", "dest": "function"},
    ),
    "--kernelbench": (
        "the KernelBench problem that the class ModelNew of the candidate solves",
        {"type": Path, "metavar": "PROBLEM"},
    ),
    "--definition": (
        "the definition.json of flashinfer-bench or SOL-ExecBench that the candidate solves",
        {"type": Path, "metavar": "FILE"},
    ),
    "--workloads": (
        "the workloads of the definition, in JSON lines; their sizes are judged first",
        {"type": Path, "metavar": "FILE"},
    ),
    "--shape": (
        "also check laws at exactly these sizes, such as batch=2,n_q=1,n_k=4096; may be repeated",
        REPEATED | {"type": sizes, "dest": "shapes", "metavar": "SIZES"},
    ),
    "--arithmetic": (
        "derive error limits from this number format, such as bfloat16 (default: float64)",
        {"metavar": "NAME"},
    ),
    "--convention": (
        "judge by this convention, such as causal=bottom_right; may be repeated",
        REPEATED | {"metavar": "NAME=VALUE"},
    ),
    "--feature": (
        "an optional argument that the kernel takes, such as window or positions; may be repeated",
        REPEATED | {"metavar": "NAME"},
    ),
    "--supports": (
        "use only inputs that the kernel supports, such as head_dim=64,128 or 'positive sizes' (default: all inputs); "
        "may be repeated",
        REPEATED | {"metavar": "TEXT"},
    ),
    "--batch-ranks": (
        "how many leading axes the kernel accepts, such as 2 if it accepts only (batch, heads, length, width) "
        "(default: 0 1 2)",
        {"type": int, "nargs": "+", "metavar": "N"},
    ),
    "--nondeterministic": ("the same call may give another result, within the error limit", FLAG),
    "--arrays": (
        "the library of the arrays that the kernel takes and returns (default: numpy)",
        {"choices": ("numpy", "torch")},
    ),
    "--library": (
        "one more Python package that the kernel may import, by its distribution name; may be repeated",
        REPEATED | {"metavar": "NAME"},
    ),
    "--quick": ("check few laws on few inputs: a verdict in a few seconds", FLAG),
    "--interpret": (INTERPRET, FLAG),
    "--seed": ("seed of the test inputs; the default cannot be predicted", {"type": int, "metavar": "N"}),
    "--timeout": (
        "time limit for one call (default: 2, or 1 with --quick, or 60 with --interpret); an import may take 60",
        {"type": positive, "metavar": "SECONDS"},
    ),
    "--time-limit": (
        "time limit for all calls together, such as 6s or 1m (default: 6s, or 3s with --quick, or 10m with "
        "--interpret)",
        {"type": duration, "metavar": "TIME"},
    ),
    "--memory": ("limit of the address space, such as 512M or 4G (default: 4G)", {"type": memory, "metavar": "SIZE"}),
    "--require": (
        "what the system must confine the kernel to: files, processes, syscalls, or some of them, as files,processes; "
        "where it cannot, the kernel is not run",
        {"metavar": "LIST", "type": lambda text: tuple(text.split(",")), "default": ()},
    ),
    "--forbid": (
        "modules and functions that the kernel may not use, such as torch.nn.functional,torch.ops,scipy",
        {"metavar": "LIST", "type": lambda text: tuple(text.split(",")), "default": ()},
    ),
    "--allow-replaced": (
        "also accept a kernel that replaces functions of Python's library, NumPy or torch, such as a timer",
        FLAG | {"dest": "replaces"},
    ),
    "--json": ("also write the verdict as JSON; - prints only the JSON", {"metavar": "FILE"}),
}


def add_to(commands: Any) -> None:
    """Add the subcommand to the parser."""
    gate = commands.add_parser(
        "gate",
        help="accept or reject an untrusted kernel",
        description="Check an untrusted kernel against the laws. The kernel runs in separate processes that cannot "
        "import attnspec, on inputs that the kernel cannot predict. "
        "Exit status: 0 accepted · 1 not accepted · 2 the kernel cannot be checked · 3 not judged: out of time.",
    )
    add_options(gate, _ARGUMENTS)
    gate.set_defaults(run=_gate)


def _gate(options: argparse.Namespace) -> int:
    from properties.command.configuration import table
    from properties.gatehouse.gate import gate
    from properties.gatehouse.isolated_kernel import CONFINED
    from properties.verifier.report_file import text_of
    from properties.views.whole import write_whole

    place = file_to_write(options.json, "--json") if options.json not in (None, "-") else None
    try:
        submission = _submission(options)
        promises = _promises(options, submission)
        interpret = options.interpret or table().get("interpret", False)
        limits = _limits(options, interpret)
        settings = {"quick": options.quick, "interpret": interpret, "seed": options.seed, "limits": limits}
        verdict = gate(submission, **settings, **promises)
    except TypeError as error:
        raise ValueError(str(error)) from error
    json_text = text_of(verdict.to_dict()) + "\n"
    file_name = options.candidate.name
    summary = f"{file_name} {_STATUSES[_status(verdict)]}" + (f". {verdict.cause}" if verdict.cause else "")
    if place is not None:
        try:
            write_whole(place, json_text)
        except OSError as error:
            raise ValueError(f"{place} cannot be written: {error.strerror}. The verdict was: {summary}") from error
    unconfined = [part for part in CONFINED if part not in verdict.held] if verdict.report.outcomes else []
    if unconfined:
        print(
            f"Warning: this system did not confine {', '.join(unconfined)}. The kernel could reach what this user "
            f"can reach. With --require {','.join(unconfined)} it is not run here.",
            file=sys.stderr,
        )
    with printing(summary):
        if options.json == "-":
            print(json_text, end="")
        else:
            _print(verdict, summary)
    return _status(verdict)


_STATUSES = {0: "is accepted", 1: "is not accepted", 3: "is not judged: out of time"}


def _status(verdict: "Verdict") -> int:
    """Return the exit status of a verdict."""
    return 3 if not verdict.judged else 0 if verdict.accepted else 1


def _print(verdict: "Verdict", said: str) -> None:
    """Print the checks that fail, and the verdict."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    if verdict.judged and not verdict.accepted:
        from properties.views.violation import print_cause, print_indented  # loads tables, which take a while

        for cause in verdict.report.causes:
            print_cause(console, cause)
            console.print()
        for outcome in (outcome for outcome in verdict.report.outcomes if verdict.report.fails(outcome)):
            why = outcome.violation.summary if outcome.violation else outcome.reason
            print_indented(console, f"{outcome.law} [{outcome.operation}]: {why}")
    held = f" the system confined {', '.join(verdict.held) or 'nothing'};" if verdict.report.outcomes else ""
    console.print(f"Seed {verdict.report.settings['seed']};{held} {verdict.seconds:.1f} s.")
    console.print(f"Covered: {verdict.report.coverage.line or 'nothing'}", markup=False)
    for heading, functions in (("Used", verdict.used), ("Replaced", verdict.replaced)):
        if functions:
            console.print(f"{heading}: {', '.join(functions)}", markup=False)
    console.print(
        f"Score {verdict.score:.3f}: {said}", style="bold green" if verdict.accepted else "bold red", markup=False
    )


def _submission(options: argparse.Namespace) -> Any:
    """Return the submission (kernel and declarations) that the options describe. Raises ValueError
    for options that do not fit together.
    """
    from properties.gatehouse import foreign_formats
    from properties.gatehouse.submission import of_file

    foreign = options.kernelbench or options.definition
    given = [name for name in ("operation", "function", "arrays") if getattr(options, name)]
    if foreign and given:
        raise ValueError(f"--{given[0]} cannot be used here: the file of the other project already says it.")
    if options.workloads and not options.definition:
        raise ValueError("--workloads belongs to --definition.")
    if options.kernelbench is not None:
        return foreign_formats.kernelbench(options.kernelbench, options.candidate, libraries=tuple(options.library))
    if options.definition is not None:
        paths = options.definition, options.candidate
        return foreign_formats.defined(*paths, tuple(options.library), options.workloads)
    if options.candidate.suffix == ".json":
        raise ValueError(f"{options.candidate} solves a definition. Name its file: --definition definition.json.")
    functions = {}
    for text in options.function:
        function, equals_sign, operation = text.rpartition("=")
        if not equals_sign or ")" in operation:
            raise ValueError(
                f"--function {text!r}, but should be NAME=OPERATION, as flash=scaled_dot_product_attention."
            )
        functions[function.strip()] = operation.strip()
    functions |= {name: name for name in options.operation}
    return of_file(
        options.candidate, functions or None, arrays=options.arrays or "numpy", libraries=tuple(options.library)
    )


def _promises(options: argparse.Namespace, submission: Any) -> dict[str, Any]:
    """Return the declarations that the options make about the kernel, by name."""
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
    if options.shapes:
        found["shapes"] = [*submission.promises.get("shapes", ()), *options.shapes]
    if options.supports:
        found["supports"] = [*submission.promises.get("supports", ()), *map(_supported, options.supports)]
    return found


def _supported(text: str) -> Any:
    """Return one entry of the declaration `supports` for a text: sizes of an axis, or a word."""
    size, equals_sign, numbers = text.partition("=")
    if not equals_sign:
        return text
    try:
        return {size.strip(): [(float if size.strip() == "scale" else int)(number) for number in numbers.split(",")]}
    except ValueError:
        raise ValueError(
            f"--supports {text!r}, but should list whole numbers, as head_dim=64,128, or scales of scores."
        ) from None


_OF_LIMITS = {
    **{"call": "timeout", "calls": "time_limit", "memory": "memory"},
    **{name: name for name in ("require", "forbid", "replaces")},
}


def _limits(options: argparse.Namespace, interpret: bool) -> Any:
    """Return the limits of the kernel: the default ones, except those that options set."""
    from dataclasses import replace

    from properties.gatehouse.gate import usual_limits

    given = {name: getattr(options, option) for name, option in _OF_LIMITS.items()}
    usual = usual_limits(options.quick, interpret)
    return replace(usual, **{name: limit for name, limit in given.items() if limit is not None})
