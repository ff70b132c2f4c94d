"""`python -m research.checkers`: measure, and write docs/checkers.json, docs/checkers.md and docs/checkers.svg."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from properties.bugs import CATALOGUE
from research.checkers.counts import by_group
from research.checkers.exhibits import exhibits
from research.checkers.page import markdown
from research.checkers.picture import svg
from research.checkers.table import COLUMNS, alarms, verdicts

__all__ = ["as_json", "main", "measured", "write"]


def as_json(measurements: dict[str, Any]) -> str:
    """What was measured, as text: a bug a line."""
    rows = ",\n".join(
        f"  {json.dumps(bug)}: {json.dumps(answers, ensure_ascii=False)}"
        for bug, answers in measurements["verdicts"].items()
    )
    others = {name: x for name, x in measurements.items() if name != "verdicts"}
    return json.dumps(others, indent=1, ensure_ascii=False)[:-2] + ',\n "verdicts": {\n' + rows + "\n }\n}\n"


def write(measurements: dict[str, Any], folder: Path) -> None:
    """Write the three files into a folder."""
    (folder / "checkers.json").write_text(as_json(measurements), "utf-8")
    (folder / "checkers.md").write_text(markdown(measurements), "utf-8")
    (folder / "checkers.svg").write_text(svg(by_group(measurements["verdicts"])), "utf-8")


def measured(jobs: int, known: dict[str, Any]) -> dict[str, Any]:
    """All that is written; of the bugs that are known what is known, and of the rest what is measured now."""
    measurements = known or {"alarms": alarms(jobs), "exhibits": exhibits(), "verdicts": {}}
    new_verdicts = verdicts(jobs, [bug for bug in CATALOGUE if bug not in measurements["verdicts"]])
    return measurements | {
        "verdicts": {bug: new_verdicts.get(bug) or measurements["verdicts"][bug] for bug in CATALOGUE}
    }


def main(arguments: list[str] | None = None) -> int:
    """Measures and writes. Returns 1 if all our checks miss some bug of the catalogue, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m research.checkers", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--keep", action="store_true", help="keep what is known, and put only those bugs to the checkers that are new"
    )
    parser.add_argument("--output", type=Path, default=Path("docs"), help="the folder to write to (docs)")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    measurements = measured(
        options.jobs, json.loads((options.output / "checkers.json").read_text("utf-8")) if options.keep else {}
    )
    write(json.loads(json.dumps(measurements)), options.output)
    ours = [name for name in COLUMNS if name.startswith("attnspec")]
    missed = [bug for bug, answers in measurements["verdicts"].items() if "seen" not in map(answers.get, ours)]
    print(f"{time.monotonic() - began:.0f} s. Bugs that all our checks miss: {', '.join(missed) or 'none'}.")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
