"""Lets KernelBench judge attention by proved error limits, next to its own comparison.

    import kernelbench.eval
    from judged import judged

    kernelbench.eval.run_and_check_correctness = judged(kernelbench.eval.run_and_check_correctness)

KernelBench calls Model and ModelNew on random inputs and compares them by allclose. Where Model returns
the result of one call of scaled_dot_product_attention, the outputs of ModelNew are judged by attnspec
too. A wrong one has `correctness` False, and its sentence in metadata["attnspec"].
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import attnspec

__all__ = ["judge_of", "judged"]

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_ARITHMETICS = {torch.float32: "float32", torch.float16: "float16-eager", torch.bfloat16: "bfloat16-eager"}


class _Recorder(TorchFunctionMode):
    """Records the calls of scaled_dot_product_attention: arguments by name, and the result."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[dict[str, Any], Any]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is torch.nn.functional.scaled_dot_product_attention:
            self.calls.append(({**dict(zip(_NAMES, args, strict=False)), **(kwargs or {})}, result))
        return result


def judge_of(model: Any, inputs: list[Any], arithmetic: str | None = None) -> Any:
    """Return a judge of a model's output on some inputs, or None if the output is not the result of one
    call of scaled_dot_product_attention without dropout.
    """
    with _Recorder() as recorder, torch.no_grad():
        out = model(*inputs)
    if len(recorder.calls) != 1 or recorder.calls[0][1] is not out or recorder.calls[0][0].get("dropout_p"):
        return None
    given = recorder.calls[0][0]
    mask = given.get("attn_mask")
    named = {"q": given["query"], "k": given["key"], "v": given["value"], "scale": given.get("scale")}
    named |= {"causal": bool(given.get("is_causal"))}
    if mask is not None:
        named["mask" if mask.dtype == torch.bool else "bias"] = mask
    return attnspec.judge("attention", named, arithmetic or _ARITHMETICS[given["query"].dtype])


def judged(run_and_check: Callable[..., Any], arithmetic: str | None = None) -> Callable[..., Any]:
    """Return KernelBench's run_and_check_correctness with a judgement of the outputs that it accepts."""

    @wraps(run_and_check)
    def judging(original: Any, new: Any, get_inputs: Callable[[], list[Any]], *args: Any, **options: Any) -> Any:
        seen: list[list[Any]] = []
        seen_outputs: list[Any] = []

        def watched(*inputs: Any) -> Any:
            seen.append([x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
            seen_outputs.append(new(*inputs))
            return seen_outputs[-1]

        result = run_and_check(original, _Watched(new, watched), get_inputs, *args, **options)
        for inputs, out in zip(seen, seen_outputs, strict=False) if result.correctness else ():
            judge = judge_of(original, inputs, arithmetic)
            verdict = None if judge is None else judge(out)
            if verdict is not None and not verdict:
                result.correctness = False
                result.metadata["attnspec"] = str(verdict)
                break
        return result

    return judging


class _Watched(torch.nn.Module):
    """A model whose calls are watched."""

    def __init__(self, model: Any, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self._call = model, call

    def forward(self, *inputs: Any) -> Any:
        """Return what the watched call returns."""
        return self._call(*inputs)
