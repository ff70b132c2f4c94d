"""A released library: its version, and why it cannot be run here, both without an import of it."""

from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

__all__ = ["Library"]


@dataclass(frozen=True)
class Library:
    """A library by the name of its distribution, and of the module that is imported, where that is another one."""

    distribution: str
    module: str = ""

    @cached_property
    def version(self) -> str:
        """The version that is installed; "" where none is."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return ""

    @cached_property
    def unavailable(self) -> str:
        """Why nothing of it runs here, a sentence; "" where it does."""
        return (
            "" if find_spec(self.module or self.distribution) else f"{self.distribution} is not installed: make peers."
        )

    def called(self, text: str) -> str:
        """The name of an implementation: the library, its version, and what of it is run."""
        return " ".join(part for part in (self.distribution, self.version, text) if part)
