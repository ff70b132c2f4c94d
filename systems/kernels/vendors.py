"""Loads files of vLLM and SGLang with stand-ins for the modules around them, as on an H100."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from systems.kernels.released import Released

__all__ = ["sglang", "vllm"]

_VLLM_STUBS = ("envs", "logger", "platforms", "triton_utils", "utils", "v1.kv_cache_interface")
_SGLANG_STUBS = ("srt.environ", "srt.utils")
_SGLANG_ANSWERS = {"is_cuda": True, "is_hip": False, "is_gfx95_supported": False, "is_gfx1250_supported": False}


def vllm(path: str, values: Mapping[str, Any] | None = None) -> Released:
    """Return a file of vLLM, such as "v1/attention/ops/prefix_prefill.py". `values` are further values of
    stand-ins.
    """
    stubs = [f"vllm.{name}" for name in _VLLM_STUBS]
    return Released("vllm", f"vllm/{path}", stubs, lambda: _of_vllm() | dict(values or {}))


def _of_vllm() -> dict[str, Any]:
    import torch
    import triton
    import triton.language as tl

    platform = SimpleNamespace(
        is_cuda=lambda: True,
        is_rocm=lambda: False,
        is_xpu=lambda: False,
        is_cuda_alike=lambda: True,
        fp8_dtype=lambda: torch.float8_e4m3fn,
        is_device_capability_family=lambda *capability: False,
        has_device_capability=lambda *capability: True,
        get_device_capability=lambda *device: (9, 0),
    )
    return {
        "vllm.triton_utils.tl": tl,
        "vllm.triton_utils.triton": triton,
        "vllm.platforms.current_platform": platform,
        "vllm.envs.VLLM_BATCH_INVARIANT": False,
        "vllm.utils.math_utils.RCP_LN2": 1.4426950216,
    }


def sglang(path: str) -> Released:
    """Return a file of SGLang's folder of attention kernels, such as "decode_attention.py"."""
    answers = {f"sglang.srt.utils.{name}()": answer for name, answer in _SGLANG_ANSWERS.items()}
    stubs = [f"sglang.{name}" for name in _SGLANG_STUBS]
    return Released("sglang", f"sglang/kernels/ops/attention/{path}", stubs, lambda: answers)
