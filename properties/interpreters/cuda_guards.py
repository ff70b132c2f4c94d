"""Answers what code that launches kernels asks PyTorch about CUDA, as if a GPU were there.

Tensors stay on the CPU, and `torch.cuda.is_available()` stays False.
"""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

__all__ = ["guard"]

CAPABILITY = 9, 0
"""The compute capability that kernels see: that of an H100."""

_PROPERTIES = SimpleNamespace(
    name="Triton's interpreter",
    major=CAPABILITY[0],
    minor=CAPABILITY[1],
    multi_processor_count=132,
    total_memory=2**36,
    warp_size=32,
    shared_memory_per_block_optin=232448,
    max_threads_per_multi_processor=2048,
)
_STREAM = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)

_ANSWERS: dict[str, Any] = {
    "current_device": 0,
    "device_count": 1,
    "get_device_capability": CAPABILITY,
    "get_device_name": _PROPERTIES.name,
    "get_device_properties": _PROPERTIES,
    "current_stream": _STREAM,
    "set_device": None,
    "synchronize": None,
}
"""What the functions of torch.cuda return."""


def guard() -> None:
    """Make the functions of torch.cuda answer, and make every tensor say that it is on CUDA."""
    import torch

    for name, answer in _ANSWERS.items():
        setattr(torch.cuda, name, lambda *arguments, answer=answer, **options: answer)
    torch.cuda.device = lambda *arguments: nullcontext()  # type: ignore[assignment, misc]
    torch.library.wrap_triton = lambda kernel: kernel
    torch.Tensor.is_cuda = True
