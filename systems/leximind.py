"""LexiMind's positional encodings in torch: a sinusoidal table in a buffer, and a learned table.

Each module adds its table to its input before dropout. Both take tokens (batch, seq_len, d_model)
and count positions from 0. Positions come from the second axis, so the modules accept an input
without a batch axis, and compute a wrong result for it.

Source: github.com/OliverPerrin/LexiMind, src/models/positional_encoding.py.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from oracles import FLOAT32, FLOAT64, Arithmetic
from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS", "LearnedPositionalEncoding", "PositionalEncoding"]


class PositionalEncoding(nn.Module):
    """x plus sin(p·10000^(−2i/d_model)) in column 2i and the cosine in column 2i + 1, then dropout.

    The table and its angles are computed in single precision. The buffer `pe` keeps the table, (1,
    max_len, d_model). The sum has the wider type of x and the table.

    Edge cases: an odd d_model has one column of cosines too many, and torch raises RuntimeError.
    d_model 1 passes, because one column broadcasts into zero columns. d_model 0 raises
    ZeroDivisionError.
    """

    pe: Tensor

    def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        frequencies = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        angles = torch.arange(max_len, dtype=torch.float32)[:, None] * frequencies
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = angles.sin()
        table[:, 1::2] = angles.cos()
        self.register_buffer("pe", table[None])

    def forward(self, x: Tensor) -> Tensor:
        """x plus the first positions of the table, (batch, seq_len, d_model) like x.

        Edge cases: for more than max_len positions torch raises RuntimeError, but broadcasts a
        table of one position to all positions.
        """
        out: Tensor = self.dropout(x + self.pe[:, : x.size(1)])
        return out


class LearnedPositionalEncoding(nn.Module):
    """x plus row p of a trained table (max_len, d_model) at position p, then dropout.

    `padding_idx` is accepted and has no effect.
    """

    def __init__(self, d_model: int, max_len: int = 1024, dropout: float = 0.1, padding_idx: int = 1) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(max_len, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x plus the first rows of the table, (batch, seq_len, d_model) like x.

        Edge cases: for more than max_len positions torch raises IndexError.
        """
        positions = torch.arange(x.size(1), device=x.device).expand(x.size(0), -1)
        out: Tensor = self.dropout(x + self.embeddings(positions))
        return out


# The operations.

_POSITIONS = 4096  # the positions of the sinusoidal table: half for the first position, half for the sequence


def _sinusoid(dtype: torch.dtype, train: bool, seq_len: int, embed_dim: int, start_pos: int = 0) -> Tensor:
    """The encoding, which is the sum at the last rows of a longer sequence of zeros.

    The module is in evaluation, or in training without dropout.
    """
    module = PositionalEncoding(embed_dim, _POSITIONS, dropout=0.0 if train else 0.1).train(train)
    zeros = torch.zeros(1, 1, 1, dtype=dtype).expand(1, start_pos + seq_len, embed_dim)
    out: Tensor = module(zeros)[0, start_pos:]
    return out


def _learned_module(table: Tensor, train: bool) -> LearnedPositionalEncoding:
    """A module with that table, made on the device "meta", so that it draws no random table."""
    with torch.device("meta"):
        module = LearnedPositionalEncoding(table.shape[1], table.shape[0], dropout=0.0 if train else 0.1)
    module.load_state_dict({"embeddings.weight": table}, assign=True)
    return module.train(train)


@torch.no_grad()
def _add(train: bool, x: Tensor, pos: Tensor) -> Tensor:
    """x + pos, where each sequence has a learned encoding whose table is its encoding."""
    out, tables = torch.empty_like(x), pos.expand(x.shape)
    for batch in np.ndindex(x.shape[:-2]):
        out[batch] = _learned_module(tables[batch], train)(x[batch][None])[0]
    return out


@torch.no_grad()
def _learned(train: bool, table: Tensor, seq_len: int, start_pos: int = 0) -> Tensor:
    """The encoding, which is the sum at a sequence of zeros; it begins at position 0."""
    if start_pos:
        raise ValueError(f"start_pos={start_pos}, but should be 0: the module counts positions from the first token.")
    out: Tensor = _learned_module(table, train)(table.new_zeros(1, seq_len, table.shape[1]))[0]
    return out


def _sinusoidal(arithmetic: Arithmetic, train: bool) -> Implementation:
    """The sinusoidal module on tokens of a type; its table is in single precision for all types."""
    return Implementation(
        name=f"LexiMind sinusoidal {arithmetic.name} {_MODE[train]}",
        operations={"sinusoidal_positional_encoding": partial(_sinusoid, getattr(torch, arithmetic.name), train)},
        arithmetic=replace(arithmetic, angle=FLOAT32.angle, trig_absolute=FLOAT32.trig_absolute),
        arrays="torch",
        supports={
            **dict.fromkeys(("seq_len", "start_pos"), lambda n: 2 * n <= _POSITIONS),
            "embed_dim": lambda d: d == 1 or (d % 2 == 0 and d > 0),
        },
        refuses=(RuntimeError, ZeroDivisionError),
    )


def _trained(arithmetic: str, train: bool) -> Implementation:
    """The learned module with a given table."""
    return Implementation(
        name=f"LexiMind learned {arithmetic} {_MODE[train]}",
        operations={
            "learned_positional_encoding": partial(_learned, train),
            "add_positional_encoding": partial(_add, train),
        },
        arithmetic=arithmetic,
        arrays="torch",
        supports={"start_pos": [0]},
        refuses=(ValueError,),
    )


_MODE = {False: "eval", True: "train without dropout"}
IMPLEMENTATIONS = [
    *(_sinusoidal(arithmetic, train) for arithmetic in (FLOAT32, FLOAT64) for train in (False, True)),
    *(_trained(arithmetic, train) for arithmetic in ("float32", "float64") for train in (False, True)),
]
