"""Writes the JSON of the verdict on each kernel: `python -m research.mended [NAME …]`.

A report has the fields of `attnspec verify --json` that say what is wrong: the counts and the causes.
All kernels take about two minutes of one processor.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from properties.verifier.report_file import text_of

__all__ = ["HERE", "KERNELS", "report_of", "verify"]

HERE = Path(__file__).parent
KERNELS = sorted(path.stem for path in (HERE / "kernels").glob("*.py"))
_KEPT = ("version", "ok", "counts", "narrowest", "causes")


def verify(kernel: Path, *options: str) -> int:
    """The exit status of `attnspec verify` on a kernel, run beside it."""
    command = [sys.executable, "-m", "attnspec", "verify", kernel.name, "--jobs", "1", *options]
    return subprocess.run(command, cwd=kernel.parent, capture_output=True, check=False).returncode


def report_of(name: str) -> str:
    """The report on a kernel, as text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        verify(HERE / "kernels" / f"{name}.py", "--json", str(file))
        report = json.loads(file.read_text("utf-8"))
    return text_of({key: report[key] for key in _KEPT}) + "\n"


def main(names: list[str]) -> None:
    """Write the reports on some kernels, by default on all."""
    for name in names or KERNELS:
        (HERE / "reports" / f"{name}.json").write_text(report_of(name), "utf-8")
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
