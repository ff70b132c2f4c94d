"""SGLang's attention of new tokens over a prefix in pages in Triton (sglang 0.5.23): the keys of the new tokens
are given in a row, and one slot for each key of the prefix.

Found by `attnspec verify systems/kernels/sglang_extend_attention.py --interpret`: a window that shows no key
before the query's own is taken for none.
"""

from typing import Any

import torch

from properties.contract.implementation import Implementation
from systems.kernels.paging import lasts, slots, starts
from systems.kernels.vendors import sglang

__all__ = ["IMPLEMENTATIONS"]

_EXTEND = sglang("extend_attention.py")


def _attend(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, *, cu_q: Any, **options: Any
) -> torch.Tensor:
    """The output (total_q, heads, d_v) of q (total_q, heads, d)."""
    all_keys, counts = slots(block_table, lengths, k_pages.shape[1]), cu_q.diff()
    prefixes = [row[: len(row) - count] for row, count in zip(all_keys, counts.tolist(), strict=True)]
    buffers = [pages.flatten(0, 1).contiguous() for pages in (k_pages, v_pages)]
    new = torch.cat(lasts(cu_q, all_keys))
    out = torch.empty(*q.shape[:-1], v_pages.shape[-1], dtype=q.dtype)
    left, _ = options.get("window") or (None, None)
    _EXTEND.module.extend_attention_fwd(
        *(q.contiguous(), *(buffer[new] for buffer in buffers), out, *buffers),
        *(cu_q.int(), starts(lengths - counts), torch.cat(prefixes), None, options.get("causal") is not False, None),
        *(int(counts.max()), 1.0, 1.0),
        sm_scale=options.get("scale"),
        logit_cap=options.get("softcap") or 0.0,
        sliding_window_size=-1 if left is None else left,
        sinks=options.get("sink"),
    )
    return out


def _extend(name: str, *features: str) -> Implementation:
    return Implementation(
        f"SGLang extend_attention, {name}",
        {"paged_attention": _attend},
        arithmetic="bfloat16",
        arrays="torch",
        device="cuda",
        supports=[
            *("ragged queries", "no log-sum-exp", "heads divide", "left windows"),
            {name: lambda n: n > 0 for name in ("sequences", "total_q", "num_heads", "kv_heads")},
            {name: lambda n: n > 0 for name in ("head_dim", "value_dim")},
            {"n_k_minus_n_q": lambda n: n >= 0, "scale": lambda s: s != 0},
        ],
        features=("cu_q", "scale", "causal", *features),
        unavailable=_EXTEND.unavailable,
    )


IMPLEMENTATIONS = [_extend("softcaps and sinks", "softcap", "sink"), _extend("windows", "window")]
