"""A released library: its version, and the reason if it cannot run here, both without importing it."""

from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

__all__ = ["Library"]


@dataclass(frozen=True)
class Library:
    """A library: the name of its distribution, and of its module if that is a different name."""

    distribution: str
    module: str = ""

    @cached_property
    def version(self) -> str:
        """The installed version; "" if the library is not installed."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return ""

    @cached_property
    def unavailable(self) -> str:
        """A sentence that says why the library cannot run here; "" if it can."""
        return (
            "" if find_spec(self.module or self.distribution) else f"{self.distribution} is not installed: make peers."
        )

    def called(self, text: str) -> str:
        """The name of an implementation: the library, its version, and `text`, which names the
        function.
        """
        return " ".join(part for part in (self.distribution, self.version, text) if part)
