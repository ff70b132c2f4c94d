"""The exact values of rotary frequencies, rotations and tables.

Where `inv_freq` is a mapping, it is the arguments of `rotary_frequencies`: its exact frequencies
and attention factor are those meant.
"""

from collections.abc import Mapping
from typing import Any

import flint
import numpy as np

from oracles import Conventions
from research.benchmarks.exact.reading import Given
from spec import ARB, tensor
from spec.extended import rotary
from spec.extended.frequency_bands import yarn_ramp
from spec.extended.frequency_kinds import default_frequencies
from spec.extended.rotary_frequencies import rotary_frequencies as literal
from spec.tensor_core import Array as Balls

__all__ = ["rope", "rope_vjp", "rotary_embedding", "rotary_frequencies", "rotary_tables"]

DECIDED = 1024
"""Bits in which branches of frequencies are decided: the definitions refuse to guess one."""


def rotary_frequencies(given: Given) -> tuple[Balls, ...]:
    """(inv_freq, attention_factor)."""
    keywords = dict(given)
    conventions: Conventions = keywords.pop("conventions", Conventions())
    kind, head_dim = keywords.pop("kind"), keywords.pop("head_dim")
    last_pair = False
    match kind:
        case "yarn":
            keywords.setdefault("truncate", conventions.yarn_truncate == "truncated")
            last_pair = conventions.yarn_upper == "last_pair"
        case "longrope" if (
            conventions.longrope_switch == "below"
            and keywords.get("seq_len") == keywords["original_max_position_embeddings"]
        ):
            keywords["seq_len"] += 1
        case "dynamic" if conventions.dynamic_length == "configured":
            keywords["seq_len"] = None
    with flint.ctx.workprec(max(flint.ctx.prec, DECIDED)):
        inv_freq, factor = literal(kind, head_dim, **keywords, scalar=ARB)
        if last_pair:
            inv_freq = _to_the_last_pair(keywords.get("rotary_dim") or head_dim, keywords)
        return inv_freq, np.array(factor, dtype=object)


def _to_the_last_pair(channels: int, keywords: dict[str, Any]) -> Balls:
    """YaRN's frequencies where the ramp ends at pair r/2 − 1 at the latest."""
    names = ("original_max_position_embeddings", "base", "beta_fast", "beta_slow", "truncate")
    ramp = yarn_ramp(
        channels,
        upper=max(channels // 2 - 1, 0),
        scalar=ARB,
        **{name: keywords[name] for name in names if name in keywords},
    )
    f, _ = default_frequencies(channels, base=keywords.get("base", 10000.0), scalar=ARB)
    frequencies: Balls = f * ((1 - ramp) + ramp / flint.arb(keywords["factor"]))
    return frequencies


def rope(given: Given, back: bool = False) -> tuple[Balls, ...]:
    """(rotated,): x, or rotated back grad_out."""
    x, conventions = given["grad_out" if back else "x"], given.get("conventions") or Conventions()
    channels = x.shape[-1] if given.get("rotary_dim") is None else given["rotary_dim"]
    inv_freq, factor = _frequencies(given, channels, conventions)
    positions = given.get("positions")
    if positions is None:
        counted = given.get("start_pos", 0) + np.arange(x.shape[-2])
        positions = (
            np.broadcast_to(counted, (len(given["sections"]), x.shape[-2])) if given.get("sections") else counted
        )
    keywords = {
        "rotary_dim": channels,
        "sections": given.get("sections"),
        "rope_pairing": conventions.rope_pairing,
        "mrope": conventions.mrope,
    }
    turned = rotary.rope(
        tensor(x, ARB),
        -positions if back else positions,
        inv_freq=inv_freq,
        attention_factor=factor,
        scalar=ARB,
        **keywords,
    )
    return (turned,)


def rotary_embedding(given: Given) -> tuple[Balls, ...]:
    """(q_rotated, k_rotated): each rotated by the frequencies of the kind, over their factors."""
    others = ("q", "k", "positions", "freq_factors")
    of_kind = {name: x for name, x in given.items() if name not in others} | {"head_dim": given["q"].shape[-1]}
    inv_freq, factor = rotary_frequencies(of_kind)
    if given.get("freq_factors") is not None:
        inv_freq = np.array([f / flint.arb(x) for f, x in zip(inv_freq, given["freq_factors"], strict=True)])
    conventions: Conventions = given.get("conventions") or Conventions()
    turn: dict[str, Any] = {"rotary_dim": given.get("rotary_dim"), "rope_pairing": conventions.rope_pairing}
    turn |= {"inv_freq": inv_freq, "attention_factor": factor.item(), "scalar": ARB}
    return tuple(rotary.rope(tensor(given[name], ARB), given["positions"], **turn) for name in "qk")


def rope_vjp(given: Given) -> tuple[Balls, ...]:
    """(dx,): rotation at −p is the adjoint of rotation at p."""
    return rope(given, back=True)


def rotary_tables(given: Given) -> tuple[Balls, ...]:
    """(cos, sin): the first and the second channel of a pair that was (1, 0), for both channels of the pair."""
    conventions, positions = given.get("conventions") or Conventions(), given["positions"]
    frequencies = given["inv_freq"]
    pairs = len(rotary_frequencies(frequencies)[0]) if isinstance(frequencies, Mapping) else len(frequencies)
    rows = positions.shape[1:] if given.get("sections") else positions.shape
    half = conventions.rope_pairing == "half"
    first, second = (slice(0, pairs), slice(pairs, None)) if half else (slice(0, None, 2), slice(1, None, 2))
    x = np.zeros((*rows, 2 * pairs))
    x[..., first] = 1.0
    (turned,) = rope({"x": x, **given})
    return tuple(
        np.concatenate([y, y], axis=-1) if half else np.repeat(y, 2, axis=-1)
        for y in (turned[..., first], turned[..., second])
    )


def _frequencies(given: Given, channels: int, conventions: Conventions) -> tuple[Balls, Any]:
    """The frequency of each pair, and the attention factor."""
    frequencies = given.get("inv_freq")
    if isinstance(frequencies, Mapping):
        inv_freq, number = rotary_frequencies(frequencies)
        return inv_freq, number.item()
    factor = flint.arb(given.get("attention_factor", 1.0))
    if frequencies is not None:
        return tensor(frequencies, ARB), factor
    return default_frequencies(channels, base=conventions.rope_base, scalar=ARB)[0] * flint.arb(
        conventions.rope_scale
    ), factor
