"""Checks of attention and rotary kernels for GPU MODE's kernelbot, by proved error limits.

In a problem's reference.py:

    from attnspec_check import checker

    check_implementation = checker(
        "attention", lambda data: dict(zip("qkv", data), causal=True), "float16-tensor-core-flash"
    )

The checker returns (True, "") or (False, reason), as eval.py wants it. Older evaluations want a text:
`as_text(checker(…))` returns "" or the reason.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attnspec

__all__ = ["as_text", "checker"]

Check = Callable[[Any, Any], tuple[bool, str]]


def checker(operation: str, inputs: Callable[[Any], Mapping[str, Any]], arithmetic: str, **conventions: Any) -> Check:
    """Return check_implementation(data, output) -> (whether it is right, reason).

    `inputs` returns the arguments of the operation by name, given the data of a test. The conventions
    are fields of `attnspec.Conventions`.
    """
    declared = attnspec.Conventions(**conventions)

    def check_implementation(data: Any, output: Any) -> tuple[bool, str]:
        verdict = attnspec.judge(operation, inputs(data), arithmetic, declared)(output)
        return bool(verdict), "" if verdict else f"{operation}: {verdict}"

    return check_implementation


def as_text(check: Check) -> Callable[[Any, Any], str]:
    """Return check_implementation(data, output) -> reason, or "" if the output is right."""
    return lambda data, output: check(data, output)[1]
