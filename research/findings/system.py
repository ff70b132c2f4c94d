"""A finding about a system under test whose documentation differs: the promise, an input, and the
actual output.
"""

import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from io import StringIO

from research.findings.finding import Finding

__all__ = ["SystemFinding"]


@dataclass(frozen=True, kw_only=True)
class SystemFinding(Finding):
    """A finding about a port in `systems`, about PyTorch or about ONNX.

    promised quotes or summarises the documentation, and source says where it stands or was
    reported. input says in words what the script calls. recorded is the text that the script
    printed where its packages were installed; it is the result where they are missing.
    """

    promised: str
    source: str
    input: str
    recorded: str = ""

    @cached_property
    def actual(self) -> str:
        """What the script prints. Raises ImportError where it cannot import a package, unless an output is recorded."""
        printed = StringIO()
        with redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(self.script, {"__name__": "__main__"})
            except ImportError:
                if self.recorded:
                    return self.recorded
                raise
        return printed.getvalue().removesuffix("\n")
