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
from spec.extended.arguments import broadcast, finite, pairs_of, positive
from spec.extended.frequency_kinds import default_frequencies
from spec.extended.rotary_frequencies import rotary_frequencies
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, nat, tabulate

__all__ = ["mrope_axes", "rope", "rotary_embedding"]


@definition()
def rope(
    x: Tensor[Array, "*rows headDim"],
    positions: Any = None,
    *,
    start_pos: int = 0,
    inv_freq: Tensor[Array, "pairs"] | None = None,
    attention_factor: Scalar = 1.0,
    rotary_dim: int | None = None,
    sections: tuple[int, ...] | None = None,
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

    With sections = (t, h, w) positions have a first axis of three: time, height and width; with
    sections = (h, w), of two: height and width. `mrope_axes` says by which of them a pair rotates. If
    all positions of a row are equal, the result equals rotation along one axis.

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


@definition()
def rotary_embedding(
    q: Tensor[Array, "*rows headDim"],
    k: Tensor[Array, "*others headDim"],
    positions: Any,
    kind: str,
    *,
    freq_factors: Tensor[Array, "pairs"] | None = None,
    rope_pairing: str = "adjacent",
    scalar: Context | None = None,
    **parameters: Any,
) -> tuple[Tensor[Array, "*rows headDim"], Tensor[Array, "*others headDim"]]:
    """Return q and k, each rotated by `rope` with the frequencies and the attention factor of a kind:
    pair i rotates by the position times f_i / freqFactors_i.

    kind and its parameters, base, rotary_dim and seq_len among them, are those of
    `rotary_frequencies`. Without freqFactors the frequencies are not divided.

    >>> q = np.array([[1.0, 0.0]])
    >>> rotary_embedding(q, 2 * q, [1], "linear", factor=2.0, freq_factors=np.array([0.5]))[1].round(4)  # angle 1
    array([[1.0806, 1.6829]])
    """
    f, m = rotary_frequencies(kind, q.shape[-1], **parameters)
    if freq_factors is not None and len(freq_factors) != len(f):
        raise ValueError(f"freq_factors has {len(freq_factors)} numbers, but should have {len(f)}, one for each pair.")
    turn: dict[str, Any] = {"attention_factor": m, "rotary_dim": parameters.get("rotary_dim")}
    turn |= {"positions": positions, "rope_pairing": rope_pairing}
    if freq_factors is not None:
        f = _divided(f, freq_factors)
    return rope(q, inv_freq=f, **turn), rope(k, inv_freq=f, **turn)


@definition()
def _divided(
    f: Tensor[Array, "pairs"], factors: Tensor[Array, "pairs"], scalar: Context | None = None
) -> Tensor[Array, "pairs"]:
    """Return each frequency over its factor. A factor that is not above 0 is refused."""
    return tabulate(f.shape, lambda i: alpha.div(f[i], positive(factors[i], f"freq_factors[{i}]")))


def mrope_axes(pairs: int, sections: tuple[int, ...], mrope: str = "sectioned") -> list[int]:
    """Return for each pair the axis by whose positions it rotates: 0 for time, 1 for height, 2 for
    width. sections = (t, h, w) says how many pairs each axis has. Axial positions have two sections
    (h, w): 0 for height, 1 for width.

    - `sectioned`: t pairs of time, then h of height, then w of width.
    - `interleaved`: pair i is height where i mod 3 = 1 and i < 3h, width where i mod 3 = 2 and i <
      3w, and time elsewhere. With two sections pair i is width where i mod 2 = 1 and i < 2w, and
      height elsewhere. Large h and w are saturated: 3h beyond the number of pairs gives fewer
      than h pairs of height, and time has the others.

    Raises ValueError if the sections do not add up to the number of pairs.

    Qwen2-VL (`mrope_section` 16, 24, 24) is sectioned, Qwen3-VL (24, 20, 20) interleaved, both with
    heads of 128 channels (the defaults of transformers 5.23, `modeling_qwen2_vl.py` and
    `modeling_qwen3_vl.py`).

    >>> mrope_axes(4, (2, 1, 1)), mrope_axes(4, (2, 1, 1), "interleaved")
    ([0, 0, 1, 2], [0, 1, 2, 0])
    >>> mrope_axes(64, (16, 24, 24))[16], mrope_axes(64, (24, 20, 20), "interleaved")[58:64]
    (1, [1, 2, 0, 0, 0, 0])
    >>> [mrope_axes(32, (8, 12, 12), "interleaved").count(axis) for axis in range(3)]  # saturated
    [11, 11, 10]
    """
    n, numbers = _section_count(sections), [nat(number, f"sections[{axis}]") for axis, number in enumerate(sections)]
    if sum(numbers) != pairs:
        raise ValueError(f"sections={sections} have {sum(numbers)} pairs, but should have {pairs}.")
    if mrope == "sectioned":
        return [axis for axis, number in enumerate(numbers) for _ in range(number)]
    if mrope != "interleaved":
        raise ValueError(f"mrope={mrope!r}, but should be 'sectioned' or 'interleaved'.")
    return [i % n if i < n * numbers[i % n] else 0 for i in range(pairs)]


def _section_count(sections: tuple[int, ...]) -> int:
    """Return the number of axes of positions. Raises ValueError unless it is two or three."""
    if len(sections) not in (2, 3):
        raise ValueError(f"sections={sections}, but should have two numbers or three.")
    return len(sections)


def _positions_of(positions: Any, start_pos: int, rows: tuple[int, ...], sections: Any) -> Array:
    """Return the position of each row along each axis. The first axis of the result has one entry,
    or one for each section.
    """
    axes = (1,) if sections is None else (_section_count(sections),)
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
            f"but should have an axis of {axes[0]} in front, one entry for each section."
        )
    return np.stack([broadcast(of_axis, "positions", rows) for of_axis in position_array])


def _partners(r: int, rope_pairing: str) -> list[tuple[int, int]]:
    """Return for each of r channels the number of its pair, and the other channel of that pair."""
    if rope_pairing == "adjacent":
        return [(j // 2, j ^ 1) for j in range(r)]
    if rope_pairing == "half":
        return [(j % (r // 2), (j + r // 2) % r) for j in range(r)]
    raise ValueError(f"rope_pairing={rope_pairing!r}, but should be 'adjacent' or 'half'.")
