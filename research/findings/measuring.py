"""What the scripts of `systems` share: a result in a line, and inputs on which the output shows the weights."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch

__all__ = ["by_both_engines", "by_the_evaluator", "outcome", "shown", "values", "zeros"]


def outcome(call: Callable[[], Any]) -> str:
    """What a call returns, or the exception that it raises, with the first line of its message."""
    try:
        return shown(call())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".removesuffix(": ")


def shown(x: Any) -> str:
    """An array or a number in few digits; booleans as 0 and 1."""
    with suppress(AttributeError):
        x = x.detach().numpy()
    x = np.asarray(x)
    if x.dtype == np.bool_:
        x = x.astype(int)
    return re.sub(r" +(?=[],])|(?<=\[) +", "", " ".join(np.array2string(x, precision=5, separator=", ").split()))


def zeros(n_q: int, n_k: int, d: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """PyTorch's queries and keys of zeros, and values that show the weights."""
    return torch.zeros(1, 1, n_q, d), torch.zeros(1, 1, n_k, d), torch.eye(n_k)[None, None]


def values(n_q: int, n_k: int, kind: str = "float32") -> dict[str, Any]:
    """ONNX's queries and keys of zeros, and values of 0, 1, …: the output is the mean of the visible
    keys' numbers.
    """
    q, k, v = (
        np.zeros((1, 1, n_q, 1), kind),
        np.zeros((1, 1, n_k, 1), kind),
        np.arange(n_k, dtype=kind).reshape(1, 1, n_k, 1),
    )
    return {"Q": q, "K": k, "V": v}


def by_both_engines(feeds: dict[str, Any], **attributes: Any) -> str:
    """What onnx' reference evaluator and onnxruntime make of an input. Raises ImportError without both."""
    import onnxruntime  # noqa: F401

    from systems.onnx_engines import runtime_attention

    runtime = _out(runtime_attention, feeds, **attributes)
    return f"reference: {by_the_evaluator(feeds, **attributes)}; onnxruntime: {runtime}"


def by_the_evaluator(feeds: dict[str, Any], **attributes: Any) -> str:
    """What onnx' reference evaluator makes of an input. Raises ImportError without onnx."""
    import onnx  # noqa: F401

    from systems.onnx_engines import reference_attention

    return _out(reference_attention, feeds, **attributes)


def _out(run: Callable[..., Any], feeds: dict[str, Any], **attributes: Any) -> str:
    """The result in a line, or the kind of error."""
    printed = outcome(lambda: run(feeds, **attributes)[0].ravel())
    return printed if printed.startswith("[") else printed.partition(":")[0]
