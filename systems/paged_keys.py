"""Attention over keys in pages: in NumPy page by page, and in PyTorch behind the signatures of
flash-attention, vLLM and FlashInfer.

The kernels of these libraries run on CUDA only. The functions here have their arguments and their
meaning: a window of −1 is open, a softcap of 0 is none, and FlashInfer's log-sum-exp is in base 2.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems import packed_sequences

__all__ = [
    "IMPLEMENTATIONS",
    "BatchPrefillWithPagedKVCacheWrapper",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
]

Array = NDArray[Any]
Tensor = torch.Tensor


# -- Page by page ----------------------------------------------------------------------------------


class _Rows:
    """The queries of a sequence, with the largest score, the sum and the output so far."""

    def __init__(self, queries: Array, value_dim: int, sink: Any) -> None:
        self.queries, shape = queries, queries.shape[:2]
        self.largest = (
            np.full(shape, -np.inf, queries.dtype) if sink is None else np.repeat(sink[None], len(queries), 0)
        )
        self.total = np.where(np.isneginf(self.largest), 0, 1).astype(queries.dtype)
        self.out = np.zeros((*shape, value_dim), queries.dtype)

    def add(self, scores: Array, values: Array) -> None:
        """Add the keys of a page: scores (n_q, heads, keys), −∞ where masked, and values (keys, heads, value_dim)."""
        largest = np.maximum(self.largest, scores.max(-1, initial=-np.inf))
        reference = np.where(np.isneginf(largest), 0, largest)
        weights, kept = np.exp(scores - reference[..., None]), np.exp(self.largest - reference)
        self.total = self.total * kept + weights.sum(-1)
        self.out = self.out * kept[..., None] + np.einsum("ihj,jhc->ihc", weights, values)
        self.largest = largest

    def results(self) -> tuple[Array, Array]:
        """The output, and the log-sum-exp (n_q, heads)."""
        with np.errstate(divide="ignore"):
            lse = np.where(np.isneginf(self.largest), 0, self.largest) + np.log(self.total)
        return self.out / np.where(self.total == 0, 1, self.total)[..., None], lse


def _by_pages(
    q: Array, k_pages: Array, v_pages: Array, block_table: Array, lengths: Array, **options: Any
) -> tuple[Array, Array]:
    """The output and the log-sum-exp, one page after the other, as a kernel with a loop over pages."""
    cu_q, size, group = options.get("cu_q"), k_pages.shape[1], q.shape[-2] // k_pages.shape[2]
    spans = [(b, b + 1) for b in range(len(q))] if cu_q is None else [*pairwise(cu_q.tolist())]
    out, lse = np.zeros((*q.shape[:-1], v_pages.shape[-1]), q.dtype), np.zeros(q.shape[:-1], q.dtype)
    for (first, last), numbers, length in zip(spans, block_table, lengths.tolist(), strict=True):
        own = slice(first, last) if cu_q is not None else first
        rows = _Rows(q[own], v_pages.shape[-1], options.get("sink"))
        for start in range(0, length, size):
            keys = min(size, length - start)
            k, v = (pages[numbers[start // size], :keys].repeat(group, 1) for pages in (k_pages, v_pages))
            rows.add(_scores(rows.queries, k, start, length, options), v)
        out[own], lse[own] = rows.results()
    return out, np.ascontiguousarray(lse.swapaxes(-1, -2))


def _of_codes(
    q: Array, k_pages: Array, v_pages: Array, block_table: Array, lengths: Array, **options: Any
) -> tuple[Array, Array]:
    """Codes with a scale for each head and slot, or row: their numbers, page by page."""

    def numbers(name: str, codes: Array) -> Array:
        scale = options.pop(f"{name}_scale", None)
        scaled: Array = codes.astype(np.float64) * (1.0 if scale is None else scale[..., None])
        return scaled

    return _by_pages(numbers("q", q), numbers("k", k_pages), numbers("v", v_pages), block_table, lengths, **options)


def _scores(queries: Array, k: Array, start: int, length: int, options: dict[str, Any]) -> Array:
    """The scores of a page whose first key has the position `start`, −∞ where masked."""
    scale, softcap = options.get("scale"), options.get("softcap")
    scale = 1 / np.sqrt(max(queries.shape[-1], 1)) if scale is None else scale
    scores = np.einsum("ihc,jhc->ihj", queries, k) * queries.dtype.type(scale)
    scores = scores if softcap is None else softcap * np.tanh(scores / queries.dtype.type(softcap))
    ahead = start + np.arange(len(k)) - (length - len(queries) + np.arange(len(queries)))[:, None]
    left, right = options.get("window") or (None, None)
    seen = (ahead <= 0) | (options.get("causal") is False)
    seen &= True if left is None else ahead >= -left
    seen &= True if right is None else ahead <= right
    return np.where(seen[:, None], scores, -np.inf)


# -- The signatures of libraries -------------------------------------------------------------------


def _gathered(pages: Tensor, numbers: list[Tensor], lengths: list[int]) -> Tensor:
    """The keys or values of all sequences, one behind the other."""
    return torch.cat([pages[n.long()].flatten(0, 1)[:length] for n, length in zip(numbers, lengths, strict=True)])


def flash_attn_varlen_func(
    *, q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, seqused_k: Tensor, block_table: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """vLLM's: the output and the log-sum-exp (heads, total_q) of ragged queries over keys in pages."""
    assert options.pop("return_softmax_lse")
    lengths = seqused_k.tolist()
    assert options.pop("max_seqlen_k") >= max(lengths)
    used = [row[: -(-length // k.shape[1])] for row, length in zip(block_table, lengths, strict=True)]
    cu_k = torch.nn.functional.pad(seqused_k.cumsum(0), (1, 0))
    longest = options.pop("max_seqlen_q"), max(lengths)
    keys, values = (_gathered(pages, used, lengths) for pages in (k, v))
    return packed_sequences.flash_attn_varlen_func(q, keys, values, cu_seqlens_q, cu_k, *longest, **options)


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, *, cache_seqlens: Tensor, block_table: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp (batch, heads, n_q), of as many queries for each sequence."""
    batch, n_q = q.shape[:2]
    out, lse = flash_attn_varlen_func(
        q=q.flatten(0, 1), k=k_cache, v=v_cache, seqused_k=cache_seqlens, block_table=block_table,
        cu_seqlens_q=n_q * torch.arange(batch + 1), max_seqlen_q=n_q, max_seqlen_k=int(cache_seqlens.max()), **options,
    )  # fmt: skip
    return out.reshape(batch, n_q, *out.shape[1:]), lse.reshape(-1, batch, n_q).transpose(0, 1)


class BatchPrefillWithPagedKVCacheWrapper:
    """FlashInfer's wrapper, with the arguments that an adapter needs."""

    def __init__(self, workspace: Tensor, kv_layout: str) -> None:
        assert kv_layout == "NHD"

    def plan(self, *indices: Tensor, **planned: Any) -> None:
        """Keep qo_indptr, paged_kv_indptr, paged_kv_indices and paged_kv_last_page_len, and the options."""
        self.indices, self.planned = indices, planned

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], *, return_lse: bool) -> tuple[Tensor, Tensor]:
        """The output, and the log-sum-exp (total_q, heads) in base 2."""
        assert return_lse
        qo_indptr, kv_indptr, kv_indices, last_page_len = self.indices
        page_size, window_left = self.planned["page_size"], self.planned["window_left"]
        counts = kv_indptr.diff()
        lengths = torch.where(counts == 0, 0, (counts - 1) * page_size + last_page_len).tolist()
        used = [kv_indices[start:end] for start, end in pairwise(kv_indptr.tolist())]
        cu_k = torch.tensor([0, *np.cumsum(lengths).tolist()])
        k, v = (_gathered(pages, used, lengths) for pages in paged_kv_cache)
        out, lse = packed_sequences.flash_attn_varlen_func(
            q, k, v, qo_indptr, cu_k, 0, 0,
            softmax_scale=self.planned["sm_scale"], causal=self.planned["causal"], window_size=(window_left, -1),
            softcap=self.planned["logits_soft_cap"] or 0.0,
        )  # fmt: skip
        return out, lse.T / np.log(2)


def _flash(q: Tensor, k_pages: Tensor, v_pages: Tensor, block_table: Tensor, lengths: Tensor, **options: Any) -> Any:
    """The operation by `flash_attn_with_kvcache`."""
    left, right = (-1 if side is None else side for side in options.get("window", (None, None)))
    return flash_attn_with_kvcache(
        q, k_pages, v_pages, cache_seqlens=lengths, block_table=block_table, return_softmax_lse=True,
        softmax_scale=options.get("scale"), causal=options.get("causal", True), window_size=(left, right),
        softcap=options.get("softcap") or 0.0,
    )  # fmt: skip


_OPTIONS = ("scale", "causal", "window", "softcap")
IMPLEMENTATIONS = [
    *(
        Implementation(
            f"NumPy by pages {name}",
            {"paged_attention": _by_pages},
            arithmetic=name,
            conventions=Conventions(blocked_values="unread"),
            supports=(),
            features=(*_OPTIONS, "sink", "cu_q"),
        )
        for name in ("float64", "float32")
    ),
    Implementation(
        "NumPy by pages of int8",
        {"paged_attention": _of_codes},
        arithmetic="float64-int8",
        conventions=Conventions(blocked_values="unread", scale_shape="token"),
        supports=(),
        features=(*_OPTIONS, "sink", "cu_q", "q_scale", "k_scale", "v_scale"),
    ),
    Implementation(
        "torch pages float32",
        {"paged_attention": _flash},
        arithmetic="float32",
        arrays="torch",
        supports={"sequences": lambda number: number > 0},
        features=_OPTIONS,
    ),
]
