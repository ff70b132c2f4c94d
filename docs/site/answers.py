"""Answers to reports about rotary frequencies; some reports contradict each other.

The numbers in the answers are computed when the site is made.
"""

from collections.abc import Callable
from math import cos
from typing import Any, NamedTuple

import numpy as np

import oracles
from spec.extended.released import RELEASED

__all__ = ["ANSWERS", "Answer"]

MODELS = {model.name: model for model in RELEASED}


class Answer(NamedTuple):
    """The answer to a report: its place, its claim or its mistake, and what the definitions say."""

    report: str
    claim: str
    says: Callable[[], str]


def _of(model: str, **changes: Any) -> tuple[Any, float]:
    """The frequencies and the attention factor of a released model, with some parameters changed."""
    conventions = oracles.Conventions(**changes.pop("conventions", {}))
    inv_freq, factor = oracles.rotary_frequencies(**MODELS[model].arguments | changes, conventions=conventions)
    return inv_freq.mid, float(factor.mid)


def _plain(model: str) -> Any:
    """The frequencies of a released model by the default kind, which does not extend its length."""
    released = MODELS[model]
    head_dim, rotary_dim = released.head_dim, released.rotary_dim
    return oracles.rotary_frequencies("default", head_dim, base=released.base, rotary_dim=rotary_dim)[0].mid


def _mscale(factor: float, weight: float) -> float:
    """m(s, x), computed as an attention factor whose second weight is so small that it divides by
    1.
    """
    yarn = {"factor": factor, "original_max_position_embeddings": 4096, "mscale": weight, "mscale_all_dim": 1e-300}
    return float(oracles.rotary_frequencies("yarn", 64, **yarn)[1].mid)


def _squared() -> str:
    computed = _of("gpt-oss", factor=128.0)[1]
    return (
        f"For a factor of 128 the attention factor is 0.1 ln 128 + 1 = {computed:.4f}. "
        f"The product of the given and the computed factor is {computed**2:.4f}."
    )


def _both_weights() -> str:
    one, formula = _of("DeepSeek-V3")[1], _of("DeepSeek-V3", mscale_all_dim=None)[1]
    return (
        f"m(40, 1)/m(40, 1) = {one:g}, like in transformers. The value {formula:.4f} that the report asks for is the "
        "value without mscale_all_dim. DeepSeek also multiplies its softmax scale by "
        f"m(40, 1)² = {formula**2:.4f}: with both, the rotated part of a score would be sharpened twice."
    )


def _given() -> str:
    computed = _of("Qwen2.5 7B, as its documentation extends it")[1]
    return (
        f"A given factor of 1 is 1. The formula gives {computed:.4f} for s = 4, "
        f"and scores {computed**2:.4f} times as large."
    )


def _corrections() -> str:
    model = "Qwen2.5 7B, as its documentation extends it"
    (right, _), (wrong, _) = _of(model), _of(model, conventions={"yarn_truncate": "exact", "yarn_upper": "last_pair"})
    last = _of(model, conventions={"yarn_upper": "last_pair"})[0]
    relative, radians = np.abs(wrong / right - 1).max(), 131072 * np.abs(wrong - right).max()
    moved = "changes nothing, because its ramp ends earlier" if (last == right).all() else "moves frequencies too"
    return (
        f"For Qwen2.5 the ramp without rounding moves a frequency by up to {relative:.2%}, and an angle at position "
        f"131072 by up to {radians:.0f} radians; the limit r/2 − 1 alone {moved}."
    )


def _weights() -> str:
    named, other = _mscale(40.0, 1.0) ** 2, _mscale(40.0, 0.707) ** 2
    grows = f"With mscale 0.707, mscale_all_dim 1 and a factor of 40 the softmax scale grows by {named:.3f}"
    return f"{grows}; by mscale it would be {other:.3f}."


def _unscaled() -> str:
    scaled, plain = _of("Llama 3.1 8B")[0], _plain("Llama 3.1 8B")
    off = np.abs(scaled - plain)
    return (
        f"Pairs up to {int(np.flatnonzero(off > 0).min()) - 1} are the same, so short prompts look right. "
        f"Pair {int(off.argmax())} has an error of at least a radian from position {int(np.ceil(1 / off.max()))} on."
    )


def _switch() -> str:
    short, long = (_of("Phi-3-vision 128k", seq_len=n)[0] for n in (4096, 4097))
    more = (short / long).max()
    return (
        "L = M is short: 4096 positions have the short list. "
        f"With the long list a frequency would be up to {more:.1f} times smaller."
    )


def _mid_sequence() -> str:
    short, long = (_of("Phi-3-vision 128k", seq_len=n)[0] for n in (4096, 4097))
    off = 4095 * np.abs(short - long)
    return (
        "Each report is right about the other's mistake. When the list changes at 4097, a cached key at position "
        f"4095 has an error of {off.max():.0f} radians in one pair, and of more than one radian in "
        f"{int((off > 1).sum())} of {len(off)} pairs. A list for the configured length keeps the cache right, but "
        "gives short prompts frequencies that the model was not trained with. Both mistakes disappear only if keys "
        "are rotated again, or if the cache keeps keys that are not rotated."
    )


def _always() -> str:
    plain, grown = (_of("InternLM2 1.8B", seq_len=n)[0] for n in (32768, 65536))
    slower = plain[-1] / grown[-1]
    return (
        "Up to M nothing changes. With L replaced by M·s the last pair is s² − (s − 1) = "
        f"{slower:.0f} times as slow, at every length."
    )


_SMALL = {"base": 100.0, "factor": 2.0, "max_position_embeddings": 8}


def _cached() -> str:
    then, now = (oracles.rotary_frequencies("dynamic", 4, seq_len=n, **_SMALL)[0].mid[1] for n in (9, 16))
    return (
        "The smallest example has 4 channels, base 100, M = 8, s = 2. With 9 positions the key at position 8 is "
        f"rotated by {8 * then:.4f} radians, with 16 positions by {8 * now:.4f}. Every cache of rotated keys has this "
        "difference: decoding cannot equal prefill there."
    )


def _doubled() -> str:
    return (
        "Every kind rotates pair 0 at position 1 by 1 radian: "
        f"the cosine is cos 1 = {cos(1):.4f}, not cos 2 = {cos(2):.4f}."
    )


ANSWERS: dict[str, tuple[Answer, ...]] = {
    "yarn": (
        Answer("sgl-project/sglang#33558", "A given attention factor is multiplied by the computed one.", _squared),
        Answer(
            "turboderp-org/exllamav3#259",
            "With mscale = mscale_all_dim = 1 the factor should be 0.1 ln s + 1; others assert 1.",
            _both_weights,
        ),
        Answer("ml-explore/mlx-lm#1507", "A given attention factor is ignored.", _given),
        Answer("keras-team/keras-hub#2981", "The ramp is not rounded, and its upper limit is r/2 − 1.", _corrections),
        Answer(
            "NVIDIA/Megatron-LM#1429", "The softmax scale takes mscale where it should take mscale_all_dim.", _weights
        ),
    ),
    "llama3": (
        Answer(
            "lablup/mlxcel#1355, unslothai/unsloth#6197",
            "The configuration has the scaling, and one path ignores it.",
            _unscaled,
        ),
    ),
    "longrope": (
        Answer("unslothai/unsloth#10681", "At exactly M positions the long list is used.", _switch),
        Answer(
            "vllm-project/vllm#27431",
            "The list changes in the middle of a sequence; the repair takes the list for the configured length, "
            "which others report as the bug.",
            _mid_sequence,
        ),
    ),
    "dynamic": (
        Answer("vllm-project/vllm#41236", "Short sequences are scaled too.", _always),
        Answer("huggingface/transformers#25104", "Decoding past M with a cache differs from one pass.", _cached),
        Answer("lablup/mlxcel#1324", "Every position is doubled.", _doubled),
    ),
}
"""The answers, by kind of frequencies."""
