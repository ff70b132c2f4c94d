"""Write docs/torchlean.md."""

from pathlib import Path

from research.torchlean import markdown

Path("docs/torchlean.md").write_text(markdown(), "utf-8")
