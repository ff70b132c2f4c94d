"""Loads one file of a released package, at the version that requirements.txt pins."""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from properties.interpreters.single_file import load

__all__ = ["RELEASES", "Released"]

RELEASES = dict(
    line.split("==")
    for line in Path(__file__).with_name("requirements.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
)
"""The pinned version of each package."""


class Released:
    """One file of a package. `unavailable` says why it cannot be used here; it is "" if it can.

    `kernels.load` gets `stubs` and the result of `values`. With `whole`, the file is imported as usual,
    with the packages around it.
    """

    def __init__(
        self,
        package: str,
        path: str,
        stubs: Collection[str] = (),
        values: Callable[[], Mapping[str, Any]] = dict,
        whole: bool = False,
    ) -> None:
        self.module: Any = None
        release = RELEASES[package]
        try:
            found = version(package)
        except PackageNotFoundError:
            self.unavailable = f"{package}=={release} is not installed."
            return
        self.unavailable = "" if found == release else f"{package} is {found}, and the recipe is for {release}."
        if not self.unavailable:
            name = path.removesuffix(".py").replace("/", ".")
            self.module = import_module(name) if whole else load(path, stubs=stubs, values=values())
