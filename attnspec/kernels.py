"""Helps to call GPU kernels: `interpret` runs them on a CPU, as --interpret does, and `load` imports
one file of a package.

    from attnspec import kernels
    rope = kernels.load("liger_kernel/ops/rope.py")
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from properties.interpreters import interpret
    from properties.interpreters.single_file import load
else:
    from attnspec.properties.interpreters import interpret
    from attnspec.properties.interpreters.single_file import load

__all__ = ["interpret", "load"]
