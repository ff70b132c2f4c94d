"""Benchmarks of attention and rotary kernels for `kernels benchmark`, judged by proved error limits.

Put this file into the folder `benchmarks/` of a kernel. The runner compares `self.out` with what
`verify_*` returns by allclose(atol=1e-2). Here `verify_*` judges `self.out` first: it raises, with a
sentence, if an entry is outside the error limit of its arithmetic, and otherwise returns `self.out`.
"""

from typing import Any

import torch
from kernels.benchmark import Benchmark

import attnspec

_ARITHMETICS = {
    torch.float16: "float16-tensor-core-flash",
    torch.bfloat16: "bfloat16-tensor-core-flash",
    torch.float32: "float32-flash",
}


def judged(operation: str, inputs: dict[str, Any], out: Any, returned: Any, **conventions: Any) -> Any:
    """Return `returned` if an output is right. Raises AssertionError, with a sentence, for a wrong one."""
    arrays = [x for x in inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point()]
    judge = attnspec.judge(operation, inputs, _ARITHMETICS[arrays[0].dtype], attnspec.Conventions(**conventions))
    verdict = judge(out)
    if not verdict:
        raise AssertionError(f"{operation}: {verdict}")
    return returned


def first(result: Any) -> Any:
    """Return the output of a kernel that may return more."""
    return result[0] if isinstance(result, tuple | list) else result


class FlashAttentionBenchmark(Benchmark):
    """Benchmarks `flash_attn_func(q, k, v, causal=…)`, whose heads are behind the sequence."""

    seed = 42
    dtype = torch.float16

    def _setup(self, n_q: int, n_k: int, heads: int = 8, kv_heads: int = 2, width: int = 64) -> None:
        self.q = torch.randn(2, n_q, heads, width, device=self.device, dtype=self.dtype)
        self.k, self.v = (torch.randn(2, n_k, kv_heads, width, device=self.device, dtype=self.dtype) for _ in "kv")

    def _verify(self, causal: bool) -> Any:
        q, k, v, out = (x.transpose(1, 2) for x in (self.q, self.k, self.v, self.out))
        inputs = {"q": q, "k": k, "v": v, "causal": causal}
        return judged("attention", inputs, out, self.out, causal="bottom_right")

    def setup_grouped(self) -> None:
        """Grouped heads, and a length that is not a multiple of a tile."""
        self._setup(129, 129)

    def benchmark_grouped(self) -> None:
        """Call the kernel."""
        self.out = first(self.kernel.flash_attn_func(self.q, self.k, self.v, causal=False))

    def verify_grouped(self) -> Any:
        """Judge the output."""
        return self._verify(causal=False)

    def setup_causal(self) -> None:
        """More keys than queries, as in chunked prefill."""
        self._setup(65, 193)

    def benchmark_causal(self) -> None:
        """Call the kernel."""
        self.out = first(self.kernel.flash_attn_func(self.q, self.k, self.v, causal=True))

    def verify_causal(self) -> Any:
        """Judge the output."""
        return self._verify(causal=True)


class PackedAttentionBenchmark(Benchmark):
    """Benchmarks `flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_q, max_k, causal=True)`."""

    seed = 42
    lengths = (1, 48, 0, 65)

    def setup(self) -> None:
        """Sequences of unequal lengths, one of which is empty."""
        total = sum(self.lengths)
        self.q, self.k, self.v = (
            torch.randn(total, heads, 64, device=self.device, dtype=torch.float16) for heads in (8, 2, 2)
        )
        ends = torch.tensor([0, *self.lengths]).cumsum(0)
        self.cu = ends.to(self.device, torch.int32)

    def benchmark_packed(self) -> None:
        """Call the kernel."""
        longest = max(self.lengths)
        given = (self.q, self.k, self.v, self.cu, self.cu, longest, longest)
        self.out = first(self.kernel.flash_attn_varlen_func(*given, causal=True))

    def verify_packed(self) -> Any:
        """Judge the output."""
        cu = self.cu.cpu().numpy()
        inputs = {"q": self.q, "k": self.k, "v": self.v, "cu_q": cu, "cu_k": cu, "causal": True}
        return judged("packed_attention", inputs, self.out, self.out, causal="bottom_right")


class PagedAttentionBenchmark(Benchmark):
    """Benchmarks `flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=…, block_table=…, causal=True)`."""

    seed = 42

    def setup(self) -> None:
        """Sequences of unequal lengths whose pages are shuffled."""
        self.q = torch.randn(3, 1, 8, 64, device=self.device, dtype=torch.float16)
        self.k, self.v = (torch.randn(16, 16, 2, 64, device=self.device, dtype=torch.float16) for _ in "kv")
        self.table = torch.randperm(16)[:12].reshape(3, 4).to(self.device, torch.int32)
        self.lengths = torch.tensor([1, 33, 64], device=self.device, dtype=torch.int32)

    def benchmark_paged(self) -> None:
        """Call the kernel."""
        options = {"cache_seqlens": self.lengths, "block_table": self.table, "causal": True}
        self.out = first(self.kernel.flash_attn_with_kvcache(self.q, self.k, self.v, **options))

    def verify_paged(self) -> Any:
        """Judge the output."""
        pages = {"block_table": self.table.cpu().numpy(), "lengths": self.lengths.cpu().numpy()}
        return judged(
            "paged_attention", {"q": self.q, "k_pages": self.k, "v_pages": self.v, **pages}, self.out, self.out
        )


class RotaryBenchmark(Benchmark):
    """Benchmarks `apply_rotary(x1, x2, cos, sin, out1, out2, conj)`, which rotates the halves of each row."""

    seed = 42

    def setup(self) -> None:
        """Rows up to a position whose angles need a good reduction."""
        self.x = torch.randn(2, 65, 4, 64, device=self.device)
        angles = torch.arange(65)[:, None] * 10000.0 ** (-torch.arange(32) / 32)
        self.cos, self.sin = (t.to(self.device)[:, None] for t in (angles.cos(), angles.sin()))
        self.out = torch.empty_like(self.x)

    def benchmark_rotary(self) -> None:
        """Call the kernel."""
        halves = (*self.x.chunk(2, -1), self.cos, self.sin, *self.out.chunk(2, -1))
        self.kernel.apply_rotary(*halves, False)

    def verify_rotary(self) -> Any:
        """Judge the output: tables have a column for each pair."""
        tables = {name: torch.cat([table[:, 0]] * 2, -1) for name, table in (("cos", self.cos), ("sin", self.sin))}
        x, out = (a.transpose(1, 2) for a in (self.x, self.out))
        return judged("apply_rotary", {"x": x, **tables}, out, self.out, rope_pairing="half")
