"""SGLang's attention of one query each over keys in pages in Triton (sglang 0.5.23). The keys are read in up to
four splits, whose results a second kernel merges.

Found by `attnspec verify systems/kernels/sglang_decode_attention.py --interpret`: with one query head for each
key head, products of queries and keys are rounded to bfloat16 before their sum.
"""

from typing import Any

import torch

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.kernels.paging import slots, starts
from systems.kernels.vendors import sglang

__all__ = ["IMPLEMENTATIONS"]

_DECODE = sglang("decode_attention.py")
_SPLITS = 4


def _attend(q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, **options: Any) -> Any:
    """The output (sequences, 1, heads, d_v). Each sequence has its own number of splits."""
    batch, _, heads, d = q.shape
    width = v_pages.shape[-1]
    out = q.new_empty(batch, heads, width)
    parts, sums = torch.empty(batch, heads, _SPLITS, width), torch.empty(batch, heads, _SPLITS)
    splits = torch.arange(batch, dtype=torch.int32) % _SPLITS + 1
    _DECODE.module.decode_attention_fwd(
        *(q[:, 0].contiguous(), k_pages.flatten(0, 1).contiguous(), v_pages.flatten(0, 1).contiguous(), out),
        *(starts(lengths), torch.cat(slots(block_table, lengths, k_pages.shape[1])), parts, sums, splits, _SPLITS),
        *(d**-0.5 if options.get("scale") is None else options["scale"], 1.0, 1.0),
        logit_cap=options.get("softcap") or 0.0,
        sinks=options.get("sink"),
    )
    return out[:, None]


def _decoding(name: str, **sizes: Any) -> Implementation:
    return Implementation(
        f"SGLang decode_attention, {name}",
        {"paged_attention": _attend},
        arithmetic="bfloat16",
        arrays="torch",
        device="cuda",
        conventions=Conventions(dead_rows="nan"),
        supports=[
            *("heads divide", "no log-sum-exp"),
            {name: lambda n: n > 0 for name in ("sequences", "num_heads", "kv_heads", "head_dim", "value_dim")},
            {"n_q": (1,), **sizes},
        ],
        features=("scale", "softcap", "sink"),
        unavailable=_DECODE.unavailable,
    )


IMPLEMENTATIONS = [
    _decoding("one query head for each key head", num_heads_minus_kv_heads=(0,)),
    _decoding("groups of query heads", num_heads_minus_kv_heads=lambda n: n > 0),
]
