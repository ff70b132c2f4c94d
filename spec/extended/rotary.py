"""The rotation of a rotary encoding as models use it: of some channels, by given frequencies, at
positions of one or of three axes.

This module is not TorchLean's: see `spec.extended`. A pair of channels at position p with frequency
f rotates by the angle θ = p · f, in radians, and is multiplied by the attention factor m:

    (a, b) ↦ m · (a cos θ − b sin θ,  b cos θ + a sin θ)

Positions are integers, counted from 0 at the first token; negative ones rotate backwards. Rotation
at −p is the adjoint of rotation at p. So the cotangent of x is `rope` of the output's cotangent at
the negated positions.

Sources: Su et al., RoFormer, 2021; Wang et al., Qwen2-VL, 2024, section 2.1 (M-RoPE, in blocks);
Qwen3-VL, 2025 (interleaved)
"""

from typing import Any

import numpy as np

from spec.context import Context, Scalar
from spec.extended.arguments import broadcast, finite, pairs_of
from spec.extended.frequency_kinds import default_frequencies
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, nat, tabulate

__all__ = ["mrope_axes", "rope"]


@definition()
def rope(
    x: Tensor[Array, "*rows headDim"],
    positions: Any = None,
    *,
    start_pos: int = 0,
    inv_freq: Tensor[Array, "pairs"] | None = None,
    attention_factor: Scalar = 1.0,
    rotary_dim: int | None = None,
    sections: tuple[int, int, int] | None = None,
    rope_pairing: str = "adjacent",
    mrope: str = "sectioned",
    scalar: Context | None = None,
) -> Tensor[Array, "*rows headDim"]:
    """Return x with the first r channels of each row rotated: pair i rotates by the row's position
    times the pair's frequency. The other channels do not change.

    r is rotary_dim; by default all channels rotate. inv_freq has r/2 frequencies, by default
    `default_frequencies`. positions are integers that broadcast to the axes of x without the last
    one. Without them row p of the next-to-last axis is at start_pos + p. The pairs lie inside the r
    channels: (2i, 2i + 1) where rope_pairing is `adjacent`, (i, i + r/2) where it is `half`.

    With sections = (t, h, w) positions have a first axis of three: time, height and width.
    `mrope_axes` says by which of them a pair rotates. If the three positions are equal, the result
    equals rotation along one axis.

    Edge cases
    - Position 0 multiplies the r channels by the attention factor.
    - An odd r, and an r above headDim, are refused. r = 0 leaves x unchanged.

    Pythia 160M (`rotary-pct` 0.25, 768/12 = 64 channels in a head, so that r is 16;
    EleutherAI/pythia, `models/160M/pythia-160m.yml`): the pairing is `half`, so channels 0 and 8
    are a pair.

    >>> x = np.zeros((2, 64))
    >>> x[:, 0] = 1.0
    >>> rope(x, rotary_dim=16, rope_pairing="half")[:, [0, 8, 16]].round(4)  # position 0, then cos 1 and sin 1
    array([[1.    , 0.    , 0.    ],
           [0.5403, 0.8415, 0.    ]])
    >>> rope(np.array([[1.0, 0.0]]), start_pos=1, attention_factor=2.0).round(4)
    array([[1.0806, 1.6829]])
    """
    *rows, head_dim = x.shape
    r = head_dim if rotary_dim is None else nat(rotary_dim, "rotary_dim")
    pairs = pairs_of(r, "headDim" if rotary_dim is None else "rotary_dim")
    if r > head_dim:
        raise ValueError(f"rotary_dim={r}, but should be at most headDim={head_dim}.")
    f = default_frequencies(r)[0] if inv_freq is None else inv_freq
    if len(f) != pairs:
        raise ValueError(
            f"inv_freq has {len(f)} frequencies, "
            f"but should have {pairs}, one for each pair of the {r} channels that rotate."
        )
    place = _positions_of(positions, start_pos, tuple(rows), sections)
    axis = [0] * pairs if sections is None else mrope_axes(pairs, sections, mrope)
    pair_and_partner = _partners(r, rope_pairing)
    m = finite(attention_factor, "attention_factor")

    def entry(*index: int) -> Scalar:
        *row, j = index
        if j >= r:
            return x[index]
        i, partner = pair_and_partner[j]
        p = int(place[axis[i], *row])
        theta = alpha.of_nat(abs(p)) * f[i]
        quarter = (
            x[*row, partner] if (partner < j) == (p >= 0) else -x[*row, partner]
        )  # the pair turned by 90°, the way of the position
        return x[index] * (m * alpha.cos(theta)) + quarter * (m * alpha.sin(theta))

    return tabulate(x.shape, entry)


def mrope_axes(pairs: int, sections: tuple[int, int, int], mrope: str = "sectioned") -> list[int]:
    """Return for each pair the axis by whose positions it rotates: 0 for time, 1 for height, 2 for
    width. sections = (t, h, w) says how many pairs each axis has.

    - `sectioned`: t pairs of time, then h of height, then w of width.
    - `interleaved`: pair i is height where i mod 3 = 1 and i < 3h, width where i mod 3 = 2 and i <
      3w, and time elsewhere.

    Raises ValueError if the sections do not add up to the number of pairs, or if the rule gives
    other numbers of pairs.

    Qwen2-VL (`mrope_section` 16, 24, 24) is sectioned, Qwen3-VL (24, 20, 20) interleaved, both with
    heads of 128 channels (the defaults of transformers 5.23, `modeling_qwen2_vl.py` and
    `modeling_qwen3_vl.py`).

    >>> mrope_axes(4, (2, 1, 1)), mrope_axes(4, (2, 1, 1), "interleaved")
    ([0, 0, 1, 2], [0, 1, 2, 0])
    >>> mrope_axes(64, (16, 24, 24))[16], mrope_axes(64, (24, 20, 20), "interleaved")[58:64]
    (1, [1, 2, 0, 0, 0, 0])
    """
    t, h, w = (nat(n, f"sections[{axis}]") for axis, n in enumerate(sections))
    if t + h + w != pairs:
        raise ValueError(f"sections={sections} have {t + h + w} pairs, but should have {pairs}.")
    if mrope == "sectioned":
        return [0] * t + [1] * h + [2] * w
    if mrope != "interleaved":
        raise ValueError(f"mrope={mrope!r}, but should be 'sectioned' or 'interleaved'.")
    axes = [1 if i % 3 == 1 and i < 3 * h else 2 if i % 3 == 2 and i < 3 * w else 0 for i in range(pairs)]
    counts = tuple(axes.count(axis) for axis in range(3))
    if counts != (t, h, w):
        raise ValueError(
            f"sections={sections}, but interleaving {pairs} pairs by them gives {counts}: there is no such layout."
        )
    return axes


def _positions_of(positions: Any, start_pos: int, rows: tuple[int, ...], sections: Any) -> Array:
    """Return the position of each row along each axis. The first axis of the result has one entry,
    or three with sections.
    """
    axes = (1,) if sections is None else (3,)
    if positions is None:
        return np.broadcast_to(start_pos + np.arange(rows[-1] if rows else 1).reshape(rows[-1:]), (*axes, *rows))
    if start_pos:
        raise ValueError(
            f"positions and start_pos={start_pos} are given, but should not both be: add start_pos to the positions."
        )
    position_array = np.asarray(positions)
    if position_array.dtype.kind not in "iu":
        raise TypeError(f"positions hold {position_array.dtype}, but should be integers.")
    if sections is None:
        return broadcast(position_array, "positions", rows)[np.newaxis]
    if position_array.shape[:1] != axes:
        raise ValueError(
            f"positions have shape {position_array.shape}, "
            "but should have an axis of 3 in front: time, height and width."
        )
    return np.stack([broadcast(of_axis, "positions", rows) for of_axis in position_array])


def _partners(r: int, rope_pairing: str) -> list[tuple[int, int]]:
    """Return for each of r channels the number of its pair, and the other channel of that pair."""
    if rope_pairing == "adjacent":
        return [(j // 2, j ^ 1) for j in range(r)]
    if rope_pairing == "half":
        return [(j % (r // 2), (j + r // 2) % r) for j in range(r)]
    raise ValueError(f"rope_pairing={rope_pairing!r}, but should be 'adjacent' or 'half'.")
