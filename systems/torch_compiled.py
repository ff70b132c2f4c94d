"""The usual formula of attention, softmax(q·kᵀ/√d + mask)·v, compiled by `torch.compile` for the
CPU.

The compiler takes sizes as symbols, so a few programs serve all sizes from 2 on. It would compile
one more program for each of the sizes 0 and 1 and for each batch: this implementation does not
support them. It would also compile one for each layout: this implementation makes contiguous
copies. A fully masked row is NaN, because all scores of its softmax are −∞. The compiler needs a
C++ compiler, and takes most of the time: about ten seconds in a process.

Inductor writes the place of its cache to the environment variable TORCHINDUCTOR_CACHE_DIR when it
compiles and the variable is missing. This module sets the variable first, so that no call changes
it.
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

_PROGRAMS = 64  # one for each pattern of equal sizes and each layout; by default the ninth raises an error
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
    """Attention by the compiled program on contiguous copies; without a mask all keys are visible.

    With `transposed` the copy of the keys is transposed in memory. Without `compiled` the function
    runs that the program was compiled from.
    """
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
