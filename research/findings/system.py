"""What is found about a system under test whose documentation says another thing: the promise, an
input, and what comes out.
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

    promised is what the documentation says, and source where that stands or was reported. input
    says in words what the script calls. recorded is what the script printed where the packages that
    it imports were installed: it stands for them where they are not.
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
