"""What `verify --quick --interpret` says of fifty faults in five kernels: `python -m research.planted` writes
docs/planted.md.

Each fault of `systems.planted_faults` is planted alone. The first cause of its verdict is compared with
the description that was written beside the fault:

- described truly: the description is found in the first diagnosis, or, without a diagnosis, in what the
  verdict measured or notes
- only measured: the verdict shows a wrong result and names no cause, or measures something else
- misdescribed: the first diagnosis says something else
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from properties.views.whole import write_whole
from systems.planted_faults import FAULTS, Fault

__all__ = ["DESCRIBED", "MEASURED", "MISDESCRIBED", "NOT_SEEN", "Row", "judged", "markdown", "measured", "verdict"]

_PAGE = Path(__file__).parents[1] / "docs/planted.md"
NOT_SEEN, MISDESCRIBED, MEASURED, DESCRIBED = "not seen", "misdescribed", "only measured", "described truly"
_FORMATS = "The call got the numbers as "  # such a note describes the call, not the mistake
_ADAPTER = """

from dataclasses import replace as _replace

IMPLEMENTATIONS = [
    _replace(each, operations={{name: each.operations[name] for name in {operations} or each.operations}})
    for each in IMPLEMENTATIONS
    if {name!r} in each.name
]
"""


@dataclass(frozen=True)
class Row:
    """A fault, what became of it, the sentence of the verdict, and the seconds."""

    kernel: str
    fault: str
    result: str
    sentence: str
    seconds: float


def verdict(fault: Fault, folder: Path) -> dict[str, Any]:
    """The report of `attnspec verify` on a kernel with the fault, as JSON has it."""
    name, _, operation = fault.only.partition("[")
    operations = [operation.rstrip("]")] if operation else []
    text = fault.source + _ADAPTER.format(name=name.strip(), operations=operations)
    (folder / "planted.py").write_text(text, "utf-8")
    command = [sys.executable, "-m", "attnspec", "verify", "planted.py:IMPLEMENTATIONS", "--quick", "--interpret"]
    command += ["--jobs", "1", "--json", "-"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ended.returncode not in (0, 1, 3):
        raise RuntimeError(f"{fault.kernel}, {fault.name}: status {ended.returncode}. {ended.stderr}")
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def judged(fault: Fault, report: dict[str, Any]) -> tuple[str, str]:
    """What became of a fault, and the sentence of the verdict that says so."""
    if not report["causes"]:
        return NOT_SEEN, ""
    cause = report["causes"][0]
    if cause["diagnosis"]:
        first = cause["diagnosis"][0]
        sentence = f"{first['id']}: {first['mechanism']}"
        return DESCRIBED if re.search(fault.truth, sentence) else MISDESCRIBED, sentence
    example = cause["example"]
    notes = [note for note in example["notes"] if not str(note).startswith(_FORMATS)]
    for sentence in [*example["measured"], *notes]:
        if re.search(fault.truth, str(sentence)):
            return DESCRIBED, str(sentence)
    return MEASURED, " ".join(map(str, [*example["measured"][:1], example["summary"]]))


def measured(fault: Fault) -> Row:
    """The row of one fault."""
    with TemporaryDirectory() as folder:
        start = time.monotonic()
        report = verdict(fault, Path(folder))
        return Row(fault.kernel, fault.name, *judged(fault, report), round(time.monotonic() - start, 1))


def _line(row: Row) -> str:
    """The line of the table for a fault."""
    sentence = " ".join(row.sentence.replace("|", r"\|").split())
    return f"| {row.kernel} | {row.fault} | {row.result} | {sentence} | {row.seconds} |"


def markdown(rows: Sequence[Row]) -> str:
    """The page."""
    results = [row.result for row in rows]
    seen, described = len(rows) - results.count(NOT_SEEN), results.count(DESCRIBED)
    wrong = results.count(MISDESCRIBED)
    lines = [
        "# Faults planted in five kernels\n",
        "Ten faults are planted in each of five kernels of this repository, one at a time. `attnspec verify --quick "
        "--interpret` judges each on a CPU. The description of a fault was written before its verdict.\n",
        f"Of {len(rows)} faults, {seen} are seen, {described} are described truly, and {wrong} are misdescribed.\n",
        "| kernel | fault | result | the verdict says | seconds |",
        "|---|---|---|---|---:|",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page. With --records, go on with a run that was interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, help="a file of JSON lines: its faults are not measured again")
    parser.add_argument("--output", type=Path, default=_PAGE)
    options = parser.parse_args()
    lines = options.records.read_text("utf-8").splitlines() if options.records and options.records.exists() else []
    rows = {(row.kernel, row.fault): row for row in (Row(**json.loads(line)) for line in lines)}
    for fault in FAULTS:
        if (fault.kernel, fault.name) in rows:
            continue
        rows[fault.kernel, fault.name] = row = measured(fault)
        print(f"{row.kernel}, {row.fault}: {row.result}. {row.sentence} ({row.seconds} s)", flush=True)
        if options.records:
            with options.records.open("a", encoding="utf-8") as file:
                print(json.dumps(asdict(row)), file=file)
    write_whole(options.output, markdown([rows[fault.kernel, fault.name] for fault in FAULTS]))


if __name__ == "__main__":
    main()
