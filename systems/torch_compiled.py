"""Attention as it is usually written, softmax(q·kᵀ/√d + mask)·v, compiled by `torch.compile` for
the CPU.

Sizes are symbols to the compiler, so that a few programs serve all sizes from 2 on; sizes 0 and 1
would each be compiled by themselves, and are not supported here, nor are batches. Another layout
would be compiled by itself too, so contiguous copies are made. A row with no allowed key is NaN, a
softmax over −∞ alone. It needs a C++ compiler, and compiling takes most of the time: about ten
seconds in a process.

Inductor writes where its cache is into the environment, TORCHINDUCTOR_CACHE_DIR, whenever it
compiles and finds it missing. Here it is there from the beginning, so that no call changes it.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from oracles import Conventions
from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS", "attend"]

_PROGRAMS = (
    64  # one for each pattern of sizes that are equal, and each layout; there are 8 by default, and any more raises
)
_NO_COMPILER = (
    "" if shutil.which("g++") or shutil.which("clang++") else "There is no C++ compiler, neither g++ nor clang++."
)

os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor_{os.environ.get('USER', 'attnspec')}")
)


def _written_out(q: Any, k: Any, v: Any, mask: Any) -> torch.Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)
    out: torch.Tensor = weights @ v
    return out


def attend(
    q: Any, k: Any, v: Any, mask: Any = None, *, compiled: bool = True, transposed: bool = False
) -> torch.Tensor:
    """The compiled program, on contiguous copies, of which that of the keys may be transposed in
    memory, or what was compiled; no mask is one that allows everything."""
    if min(*q.shape, *v.shape) < 2:
        raise ValueError(
            f"q, k and v have shapes {q.shape}, {k.shape} and {v.shape}, but every size should be at least 2."
        )
    if mask is None:
        mask = torch.ones(len(q), len(k), dtype=torch.bool)
    function = torch.compile(_written_out, dynamic=True, fullgraph=True) if compiled else _written_out
    keys = k.mT.contiguous().mT if transposed else k.contiguous()
    with torch._dynamo.config.patch(recompile_limit=_PROGRAMS):
        out: torch.Tensor = function(q.contiguous(), keys, v.contiguous(), mask.expand(len(q), len(k)).contiguous())
    return out


def _several(n: int) -> bool:
    return n > 1


IMPLEMENTATIONS = [
    Implementation(
        name="torch compiled float64",
        operations={"scaled_dot_product_attention": attend},
        conventions=Conventions(dead_rows="nan"),
        arrays="torch",
        batch_ranks=(0,),
        supports=dict.fromkeys(("n_q", "n_k", "head_dim", "value_dim"), _several),
        refuses=(ValueError,),
        unavailable=_NO_COMPILER,
    )
]
