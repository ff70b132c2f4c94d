"""A finding: what should come out of a script, why another thing does, and what the script prints."""

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What every finding has: the library, a title, an explanation, a script, and the text that the
    script should print.

    `oracle` is a Python expression that computes `expected` again, with the names of
    `research.findings.expected`.
    """

    library: str
    title: str
    detail: str
    script: str
    expected: str
    oracle: str = ""

    @property
    def name(self) -> str:
        """The library and the title."""
        return f"{self.library}: {self.title}"
