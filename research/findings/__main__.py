"""Write docs/findings.md."""

import argparse
from pathlib import Path

from research.findings.page import markdown

parser = argparse.ArgumentParser(prog="python -m research.findings", description=__doc__)
parser.add_argument("--output", type=Path, default=Path("docs/findings.md"))
options = parser.parse_args()
text = markdown()
options.output.write_text(text)
