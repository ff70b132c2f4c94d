"""Writes docs/results/DEVICE.md and .json, the verdicts of the CUDA entries on this device. `make
results` runs it.

    python -m research.results --examples 100

The JSON is the report of `attnspec verify` under all laws, whose environment also names the device
and its libraries. The page has a matrix of entries and operations, and every cause of a violation
with its smallest input. Without a device the command writes no file.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from properties.command.cli import main as attnspec
from properties.contract.operations import OPERATIONS
from properties.verifier.report_file import read

__all__ = ["device", "main", "markdown"]

Row = dict[str, Any]

_WORDS = {
    "held": "held",
    "suspicious": "suspicious",
    "declared": "declared",
    "vacuous": "undecided",
    "not run": "not run",
    "violated": "**violated**",
}


def device() -> dict[str, str]:
    """The device, and the versions of its libraries; empty without a device."""
    if not torch.cuda.is_available():
        return {}
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "compute capability": f"{properties.major}.{properties.minor}",
        "memory": f"{properties.total_memory / 2**30:.0f} GiB",
        "CUDA": str(torch.version.cuda),
        "cuDNN": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
    }


def _cell(rows: Sequence[Row]) -> str:
    """How many laws came to what, and the largest error ÷ budget of those that passed."""
    count = Counter(row["status"] for row in rows)
    worst = max((float(row["worst_excess"]) for row in rows if row["status"] in ("held", "suspicious")), default=0.0)
    counts = [f"{count[status]} {word}" for status, word in _WORDS.items() if count[status]]
    return ", ".join([*counts, *([f"{worst:.2g}"] if worst else [])])


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    columns = [operation for operation in OPERATIONS if any(row["operation"] == operation for row in rows)]
    yield f"| entry | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in dict.fromkeys(row["implementation"] for row in rows):
        cells = [
            _cell([row for row in rows if (row["implementation"], row["operation"]) == (name, operation)])
            for operation in columns
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def _causes(report: Row) -> Iterator[str]:
    """Every cause of violations, with the laws that it breaks, what explains it, and the smallest input."""
    for cause in report["causes"]:
        example = cause["example"]
        likely = [d["id"] for d in cause["diagnosis"] if not d["partial"]][:1]
        yield f"\n### {cause['implementation']}: {likely[0] if likely else example['law']}\n"
        yield f"{example['summary']}\n\n- {'; '.join(cause['laws'])}"
        yield from (f"- {note}" for note in example["notes"])
        if example["script"]:
            yield f"\n```python\n{example['script'].strip()}\n```"


def markdown(report: Row) -> str:
    """The page of a report."""
    settings = report["settings"]
    where = {name: settings["environment"].get(name, "") for name in ("device", *settings["environment"])}
    reasons = {
        f"{outcome['implementation']}: {outcome['reason']}": 0
        for outcome in report["outcomes"]
        if outcome["status"] in ("not run", "vacuous")
    }
    lines = [
        f"# {where.pop('device')}",
        "",
        f"Every law on the entries for CUDA, {settings['max_examples']} cases of each operation, seed",
        f"{settings['seed']}. {'The run was interrupted.' if report['interrupted'] else ''}".strip(),
        "",
        "| | |\n|---|---|",
        *(f"| {name} | {version} |" for name, version in where.items()),
        "",
        "## What came of the laws",
        "",
        "How many laws of each operation came to what, and the largest error ÷ budget of those that held.",
        "",
        *_matrix([row for row in report["outcomes"] if row["status"] != "not applicable"]),
        *(["", "Not decided, or not run:", "", *(f"- {sentence}" for sentence in reasons)] if reasons else []),
        "",
        "## Violations",
        *(_causes(report) if report["causes"] else ["", "There are none."]),
    ]
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> int:
    """Verifies, and writes both files. Returns the exit status of `attnspec verify`, or 1 without a
    device.
    """
    parser = argparse.ArgumentParser(prog="python -m research.results", description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="cases of each operation (100)")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn from (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the device (1)")
    parser.add_argument("--output", type=Path, default=Path("docs/results"), help="the folder (docs/results)")
    options = parser.parse_args(arguments)
    description = device()
    if not description:
        print(
            "There is no CUDA device: nothing was run, and nothing written. Run `make results` on a machine with one.",
            file=sys.stderr,
        )
        return 1
    with TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        numbers = {"--max-examples": options.examples, "--seed": options.seed, "--jobs": options.jobs}
        arguments = [text for name, n in numbers.items() for text in (name, str(n))]
        status = attnspec(["verify", "systems:GROUPS", "--only", "CUDA", "--json", str(file), *arguments])
        if not file.exists():
            return status
        report = read(file)
    report["settings"]["environment"] = description | report["settings"]["environment"]
    options.output.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", description["device"]).strip("-").lower()
    options.output.joinpath(f"{name}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    options.output.joinpath(f"{name}.md").write_text(markdown(report), "utf-8")
    print(f"{options.output / name}.md and .json")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
