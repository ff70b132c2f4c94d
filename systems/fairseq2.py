"""fairseq2's position encoders, written again from its pages and its code: one sinusoidal, one
learned, and two rotary encoders.

All encoders add or rotate in float32. Row 0 of their tables is for padding, so position p reads row
p + 1. Incremental decoding shifts every row by its step, and so the row of padding: from step 1 on,
padding reads the row of position step − 1.

Source: facebookresearch/fairseq2, `fairseq2.nn.position_encoder` at 027bdeb. Its sequences are
([N], S, *, E), with positions along the second axis; here they are (…, S, E), as on the page.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from oracles import BFLOAT16, BINARY32, FLOAT16, FLOAT32, Angle, Conventions
from properties.contract.implementation import Implementation

__all__ = [
    "IMPLEMENTATIONS",
    "LearnedPositionEncoder",
    "ReferenceRotaryEncoder",
    "RotaryEncoder",
    "SinusoidalPositionEncoder",
]


class PositionEncoder(nn.Module):
    """The base of the encoders: a width, a longest sequence, and the table row of each position."""

    def __init__(self, encoding_dim: int, max_seq_len: int) -> None:
        super().__init__()
        self.encoding_dim, self.max_seq_len = encoding_dim, max_seq_len

    def rows(self, seqs: Tensor, positions: Tensor | None, step: int) -> Tensor:
        """The table rows for sequences (…, S, E).

        Positions (…, S) count from 0, by default along S, and −1 is padding. `step` is the position
        of the first row in incremental decoding; training ignores it. Raises ValueError if a
        sequence ends after `max_seq_len`.
        """
        start = 0 if self.training else step
        along = torch.arange(seqs.shape[-2], device=seqs.device) if positions is None else positions
        longest = start + int(along.max()) + 1 if along.numel() else start
        if longest > self.max_seq_len:
            raise ValueError(
                f"The longest sequence ends after {longest} positions, but should end after at most {self.max_seq_len}."
            )
        return along + 1 + start


def _require_even(encoding_dim: int) -> None:
    if encoding_dim % 2:
        raise ValueError(f"encoding_dim={encoding_dim}, but should be even.")


class SinusoidalPositionEncoder(PositionEncoder):
    """Adds sin(p·f) to the first half of the columns and cos(p·f) to the second half.

    Column i of a half has f = 10000^(−i/(E/2 − 1)). The table and the sum are float32, and the
    result is cast to the type of the sequences. With `legacy_pad_idx` position p has the angles of
    position p + 1 + legacy_pad_idx, as in fairseq. Width 2 divides by zero: its table is NaN.
    Raises ValueError for an odd width.
    """

    freqs: Tensor

    def __init__(self, encoding_dim: int, max_seq_len: int, legacy_pad_idx: int | None = None) -> None:
        super().__init__(encoding_dim, max_seq_len)
        _require_even(encoding_dim)
        offset = 0 if legacy_pad_idx is None else 1 + legacy_pad_idx
        pairs = encoding_dim // 2
        frequencies = torch.exp(torch.arange(pairs, dtype=torch.float32) * -math.log(10000.0) / (pairs - 1))
        angles = torch.outer(torch.arange(offset, offset + max_seq_len, dtype=torch.float32), frequencies)
        padding = torch.zeros(1, encoding_dim)
        self.register_buffer(
            "freqs", torch.cat([padding, torch.cat([angles.sin(), angles.cos()], dim=-1)]), persistent=False
        )

    def forward(self, seqs: Tensor, positions: Tensor | None = None, step: int = 0) -> Tensor:
        """The sequences plus the rows of their positions; arguments and errors as for `rows`."""
        return (seqs.float() + self.freqs[self.rows(seqs, positions, step)]).type_as(seqs)


class LearnedPositionEncoder(PositionEncoder):
    """Adds row p + 1 of the weights (max_seq_len + 1, E) at position p.

    Padding gets row 0, which is zero.
    """

    def __init__(self, encoding_dim: int, max_seq_len: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(encoding_dim, max_seq_len)
        self.weight = nn.Parameter(torch.randn(max_seq_len + 1, encoding_dim, dtype=dtype))
        with torch.no_grad():
            self.weight[0] = 0.0

    def forward(self, seqs: Tensor, positions: Tensor | None = None, step: int = 0) -> Tensor:
        """The sequences plus the weights of their positions, in the type of the sequences.

        Padding has no gradient. Errors as for `rows`.
        """
        return seqs + embedding(self.rows(seqs, positions, step), self.weight, padding_idx=0)


class RotaryEncoder(PositionEncoder):
    """Multiplies channels (2i, 2i + 1), as real and imaginary part, by exp(j·p·θ^(−2i/E)).

    It computes in float32, and multiplies padding by 0. Raises ValueError for an odd width.
    """

    freqs: Tensor

    def __init__(self, encoding_dim: int, max_seq_len: int, theta: float = 10000.0) -> None:
        super().__init__(encoding_dim, max_seq_len)
        _require_even(encoding_dim)
        self.theta = theta
        angles = torch.outer(torch.arange(max_seq_len, dtype=torch.float32), self.frequencies())
        padding = torch.zeros(1, encoding_dim // 2, dtype=torch.complex64)
        self.register_buffer(
            "freqs", torch.cat([padding, torch.polar(torch.ones_like(angles), angles)]), persistent=False
        )

    def frequencies(self) -> Tensor:
        """θ^(−2i/E) for every pair i."""
        exponents = torch.arange(0, self.encoding_dim, 2, dtype=torch.float32) / self.encoding_dim
        return 1.0 / self.theta**exponents

    def forward(self, seqs: Tensor, positions: Tensor | None = None, step: int = 0) -> Tensor:
        """The sequences with each pair rotated by the angle of its position.

        `rows` describes the arguments and errors.
        """
        pairs = seqs.float().reshape(*seqs.shape[:-1], self.encoding_dim // 2, 2)
        rotated = torch.view_as_complex(pairs) * self.freqs[self.rows(seqs, positions, step)]
        return torch.view_as_real(rotated).flatten(-2).type_as(seqs)


class ReferenceRotaryEncoder(PositionEncoder):
    """Rotates channels (i, i + E/2) by p·θ^(−2i/E): x ⊙ cos + (−second half, first half) ⊙ sin.

    It computes in float32, and padding becomes 0. Raises ValueError for an odd width.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, encoding_dim: int, max_seq_len: int, theta: float = 10000.0) -> None:
        super().__init__(encoding_dim, max_seq_len)
        _require_even(encoding_dim)
        frequencies = theta ** (-2.0 * torch.arange(encoding_dim // 2, dtype=torch.float32) / encoding_dim)
        angles = torch.arange(max_seq_len, dtype=torch.float32)[:, None] @ frequencies[None, :]
        padding = torch.zeros(1, encoding_dim)
        for name, half in (("cos", angles.cos()), ("sin", angles.sin())):
            self.register_buffer(name, torch.cat([padding, half.repeat(1, 2)]), persistent=False)

    def forward(self, seqs: Tensor, positions: Tensor | None = None, step: int = 0) -> Tensor:
        """The sequences with each pair rotated by the angle of its position.

        `rows` describes the arguments and errors.
        """
        rows, x = self.rows(seqs, positions, step), seqs.float()
        return (x * self.cos[rows] + rotate_half(x) * self.sin[rows]).type_as(seqs)


def rotate_half(x: Tensor) -> Tensor:
    """(−second half, first half) along the last axis, whose size is the encoder's even width."""
    _require_even(x.shape[-1])
    first, second = x.tensor_split(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


# -- The operations --------------------------------------------------------------------------------
# Each call makes an encoder with no more positions than it needs, and at most _LONGEST.

_LONGEST = 8192


def _long(start_pos: int, seq_len: int) -> int:
    return min(start_pos + seq_len, _LONGEST)


def _sinusoid(dtype: torch.dtype, seq_len: int, embed_dim: int, start_pos: int = 0) -> Tensor:
    """The encoding, which is the sum at a sequence of zeros.

    Raises ValueError for width 2, for which the encoder's table is NaN.
    """
    if embed_dim == 2:
        raise ValueError("embed_dim=2, but should be 0 or at least 4: the frequencies divide by embed_dim/2 − 1.")
    encoder = SinusoidalPositionEncoder(embed_dim, _long(start_pos, seq_len)).eval()
    encoded: Tensor = encoder(torch.zeros(seq_len, embed_dim, dtype=dtype), step=start_pos)
    return encoded


def _trained(table: Tensor) -> LearnedPositionEncoder:
    """The encoder that has learned a table."""
    with torch.device("meta"):  # so that the encoder draws no random weights
        encoder = LearnedPositionEncoder(table.shape[1], table.shape[0], table.dtype)
    encoder.load_state_dict({"weight": torch.cat([table.new_zeros(1, table.shape[1]), table])}, assign=True)
    return encoder.eval().requires_grad_(False)


def _learned(table: Tensor, seq_len: int, start_pos: int = 0) -> Tensor:
    encoded: Tensor = _trained(table)(table.new_zeros(seq_len, table.shape[1]), step=start_pos)
    return encoded


def _lookup(table: Tensor, indices: Tensor) -> Tensor:
    positions = indices.long()
    encoded: Tensor = _trained(table)(table.new_zeros(*positions.shape, table.shape[1]), positions)
    return encoded


def _add(x: Tensor, pos: Tensor) -> Tensor:
    """A learned encoder that has a weight for each row of pos."""
    table = pos.flatten(0, -2)
    encoded: Tensor = _trained(table)(x, torch.arange(len(table)).view(pos.shape[:-1]))
    return encoded


class _Rotary:
    """A rotary encoder's operations."""

    def __init__(self, encoder: type[RotaryEncoder] | type[ReferenceRotaryEncoder]) -> None:
        self.encoder = encoder

    def operations(self) -> dict[str, Callable[..., Any]]:
        """All operations by name."""
        return {"rope": self.rope, "rope_vjp": self.rope_vjp, "rope_tables": self.rope_tables}

    def rope(self, x: Tensor, start_pos: int = 0) -> Tensor:
        """x rotated by the encoder in incremental decoding."""
        rotated: Tensor = self.encoder(x.shape[-1], _long(start_pos, x.shape[-2])).eval()(x, step=start_pos)
        return rotated

    def rope_vjp(self, x: Tensor, grad_out: Tensor, start_pos: int = 0) -> Tensor:
        """The gradient of x by autograd."""
        return torch.autograd.grad(self.rope(x.requires_grad_(), start_pos), x, grad_out)[0]

    def rope_tables(self, seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Tensor, Tensor]:
        """The cosines and sines of the encoder's rows, for each channel."""
        encoder = self.encoder(head_dim, _long(start_pos, seq_len)).eval()
        rows = encoder.rows(torch.empty(seq_len, head_dim), None, start_pos)
        if isinstance(encoder, ReferenceRotaryEncoder):
            return encoder.cos[rows], encoder.sin[rows]
        turns = encoder.freqs[rows].repeat_interleave(2, dim=-1)
        return turns.real, turns.imag


def _frequencies(head_dim: int) -> Tensor:
    return RotaryEncoder(head_dim, 0).frequencies()


# In 16 bits too, tables and computations are float32.
_NARROW = Angle(frequency=2.0**-24, product=2.0**-24, table=BINARY32)
_ARITHMETIC = {
    "float32": FLOAT32,
    "float16": replace(FLOAT16, angle=_NARROW),
    "bfloat16": replace(BFLOAT16, angle=_NARROW),
}


def _even(n: int) -> bool:
    return n % 2 == 0


_SHORT = dict.fromkeys(("start_pos", "seq_len"), lambda n: n <= _LONGEST // 2)


def _implementation(
    name: str, dtype: str, operations: dict[str, Callable[..., Any]], **promises: Any
) -> Implementation:
    return Implementation(
        name=f"fairseq2 {name} {dtype}",
        operations=operations,
        arithmetic=_ARITHMETIC[dtype],
        arrays="torch",
        refuses=(ValueError,),
        **promises,
    )


def _of(dtype: str) -> list[Implementation]:
    """The encoders for sequences of a type; frequencies are float32 for all types."""
    sinusoid: dict[str, Callable[..., Any]] = {
        "sinusoidal_positional_encoding": partial(_sinusoid, getattr(torch, dtype))
    }
    learned: dict[str, Callable[..., Any]] = {
        "learned_positional_encoding": _learned,
        "table_lookup": _lookup,
        "add_positional_encoding": _add,
    }
    adjacent, half = _Rotary(RotaryEncoder).operations(), _Rotary(ReferenceRotaryEncoder).operations()
    if dtype == "float32":
        adjacent["inv_freq"], half["rotate_half"] = _frequencies, rotate_half
    return [
        _implementation(
            "sinusoidal",
            dtype,
            sinusoid,
            conventions=Conventions(sinusoid_layout="tensor2tensor"),
            supports=_SHORT | {"embed_dim": lambda d: _even(d) and d != 2},
        ),
        _implementation("learned", dtype, learned),
        _implementation(
            "rotary", dtype, adjacent, conventions=Conventions(odd_lane="reject"), supports=_SHORT | {"head_dim": _even}
        ),
        _implementation(
            "reference rotary",
            dtype,
            half,
            conventions=Conventions(rope_pairing="half", odd_lane="reject"),
            supports=_SHORT | {"head_dim": _even},
        ),
    ]


IMPLEMENTATIONS = [implementation for dtype in _ARITHMETIC for implementation in _of(dtype)]
