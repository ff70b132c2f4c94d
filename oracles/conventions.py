"""The conventions on which frameworks differ without saying so, as data: each is a named field with
named values.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import isfinite
from numbers import Real
from typing import Any, Literal, get_args

from oracles.spelling import did_you_mean


@dataclass(frozen=True)
class Conventions:
    """The conventions that an implementation follows, and that an oracle's answer follows.

    dead_rows         what a query without a visible key gives. `zero`: its output and gradients are
                      0. `nan`: its output is NaN, its dq is unchecked, and it adds nothing to dk
                      and dv. `uniform`: its output is the mean over all n_k values, its dq is 0,
                      and it adds grad_out/n_k to dv
    dead_gradients    the derivatives of such a query under `uniform`. `stop`: its equal weights are
                      constants, as where a fill replaces masked scores. `flow`: it has the
                      derivatives of equal logits, as where a finite fill is added that absorbs the
                      scores
    causal            query i sees the keys j ≤ i (`top_left`) or j ≤ i + n_k − n_q
                      (`bottom_right`); of packed sequences each counts its own rows
    blocked_values    masked entries are `finite` numbers; or a kernel leaves them `unread`, so that
                      they may be NaN or ±∞. The oracles themselves never read them
    mask_polarity     a true mask entry makes a key visible (`true_allows`) or masks it
                      (`true_blocks`)
    rope_pairing      a rotated pair consists of channels (2i, 2i + 1) (`adjacent`) or (i, i + d/2)
                      (`half`, for even d only)
    odd_lane          the last channel of an odd d, which has no partner, is multiplied by cos θ +
                      sin θ (`literal`, as in TorchLean's text) or not rotated (`passthrough`); or
                      an odd d is refused (`reject`)
    rope_base         rotary frequencies are rope_scale·rope_base^(−2i/d); a number of at least 1
    rope_scale        the factor of these frequencies, such as 1/4 for positions stretched fourfold;
                      a number above 0
    sinusoid_layout   sine and cosine columns alternate (`interleaved`), or all sines come before
                      all cosines, with the same exponents 2i/d (`concatenated`) or with i/(d/2 − 1)
                      (`tensor2tensor`, for even d except 2)
    kv_heads          query head h uses key head h // group (`repeat`) or h mod H_kv (`tile`)
    window            what the left side L of a window means: a `bound`, j ≥ p − L, which leaves L +
                      1 keys visible; or a `count` of at least 1 visible keys, the query's own key
                      included. The right side is always a bound
    packed_lse        the log-sum-exps of packed sequences have the axis of heads first
                      (`heads_first`: num_heads, total_q), or the rows first (`rows_first`)
    padding_rows      what the results of packed sequences hold in rows that no sequence uses:
                      anything (`unspecified`) or 0 (`zero`)
    max_seqlen        the lengths max_seqlen_q and max_seqlen_k are those of the longest sequences
                      (`exact`), or may be larger (`bound`)
    page_layout       the pages of keys and values have the axis of slots before that of heads
                      (`slots_first`: num_pages, page_size, kv_heads, width), or after it
                      (`heads_first`)
    fp8_scale         the number of a quantised code is code × scale (`multiply`) or code ÷ scale
                      (`divide`), for queries, keys and values alike
    scale_shape       the scales of quantised arrays that attnspec passes: one number (`tensor`),
                      (…, kv_heads) with one for each head (`head`), (…, heads, n) with one for each
                      row (`token`), or (…, heads, n, blocks) with one for each 16 or 32 channels
                      (`block16`, `block32`). The oracles accept each shape
    softcap_order     a softcap acts on the score (`before_bias`), on the sum of score and bias
                      (`after_bias`), or on that sum after masking (`after_mask`). In the last case
                      masked keys have the logit −c, and are read
    lse_base          log-sum-exps and their cotangents are natural (`e`) or of base `2`
    lse_sink          the log-sum-exp has the sink in it (`included`) or not (`excluded`)
    scale_default     the default scale: 1/√d (`rsqrt`) or 1 (`one`)
    causal_with_mask  a mask and causality `compose`; or only one of them counts (`mask_wins`,
                      `causal_wins`); or causality counts, and neither the mask nor the bias does
                      (`causal_alone`); or a mask with causality is refused (`refuse`)
    alibi_slopes      the slopes of n heads. `press`: 2^(−8h/m) for the largest power of two m ≤ n,
                      then every second slope of 2m heads. `geometric`: 2^(−8h/n)
    alibi_reference   biases are −slope·|p − j| (`distance`) or slope·j (`key`)
    yarn_truncate     where `truncate` is not given, the ends of YaRN's ramp are rounded outwards
                      (`truncated`) or not rounded (`exact`)
    yarn_upper        these ends are at most r − 1 (`last_channel`) or r/2 − 1 (`last_pair`), where
                      r channels rotate
    longrope_switch   LongRoPE's short factors apply to lengths L ≤ M (`at_most`) or L < M
                      (`below`), where M is the original context length
    dynamic_length    the base of dynamic frequencies grows with the sequence length (`current`), or
                      depends only on the length in the configuration (`configured`)
    padding_position  the position of padding, by `position_ids`: 0 (`zero`) or 1 (`one`)
    mrope             the pairs of time, of height and of width form three blocks (`sectioned`) or
                      take turns (`interleaved`)

    Raises ValueError for an unknown value of a field, and TypeError for a value of the wrong type.
    """

    dead_rows: Literal["zero", "nan", "uniform"] = "zero"
    dead_gradients: Literal["stop", "flow"] = "stop"
    causal: Literal["top_left", "bottom_right"] = "top_left"
    blocked_values: Literal["finite", "unread"] = "finite"
    mask_polarity: Literal["true_allows", "true_blocks"] = "true_allows"
    rope_pairing: Literal["adjacent", "half"] = "adjacent"
    odd_lane: Literal["literal", "passthrough", "reject"] = "literal"
    rope_base: float = 10000.0
    rope_scale: float = 1.0
    sinusoid_layout: Literal["interleaved", "concatenated", "tensor2tensor"] = "interleaved"
    kv_heads: Literal["repeat", "tile"] = "repeat"
    window: Literal["bound", "count"] = "bound"
    packed_lse: Literal["heads_first", "rows_first"] = "heads_first"
    padding_rows: Literal["unspecified", "zero"] = "unspecified"
    max_seqlen: Literal["exact", "bound"] = "exact"
    page_layout: Literal["slots_first", "heads_first"] = "slots_first"
    fp8_scale: Literal["multiply", "divide"] = "multiply"
    scale_shape: Literal["tensor", "head", "token", "block16", "block32"] = "tensor"
    softcap_order: Literal["before_bias", "after_bias", "after_mask"] = "before_bias"
    lse_base: Literal["e", "2"] = "e"
    lse_sink: Literal["included", "excluded"] = "included"
    scale_default: Literal["rsqrt", "one"] = "rsqrt"
    causal_with_mask: Literal["compose", "mask_wins", "causal_wins", "causal_alone", "refuse"] = "compose"
    alibi_slopes: Literal["press", "geometric"] = "press"
    alibi_reference: Literal["distance", "key"] = "distance"
    yarn_truncate: Literal["truncated", "exact"] = "truncated"
    yarn_upper: Literal["last_channel", "last_pair"] = "last_channel"
    longrope_switch: Literal["at_most", "below"] = "at_most"
    dynamic_length: Literal["current", "configured"] = "current"
    padding_position: Literal["zero", "one"] = "zero"
    mrope: Literal["sectioned", "interleaved"] = "sectioned"

    @classmethod
    def onnx(cls, version: str) -> "Conventions":
        """Return the conventions of ONNX's Attention (opset 23) in a version of ONNX, from "1.18"
        to "1.23". Its text changed between these versions.

            1.18   heads that share keys are tiled; a softcap comes after the mask; a row without keys is NaN
            1.20   heads are repeated; causality counts the cached keys, which the adapter gives as the offset
            1.22   a softcap comes before the bias and the mask
            1.23   a row without keys is 0

        "1.19" means the same as "1.18"; "1.19.1" and "1.21" mean the same as "1.20".

        Raises ValueError for another version.
        Source: onnx/onnx, onnx/defs/nn/defs.cc and onnx/reference/ops/op_attention.py at these
        versions; #7867, #7913.
        """
        if (mended := _UNCHANGED.get(version, version)) not in ONNX:
            raise ValueError(
                f"version={version!r}, but should be one of {', '.join(map(repr, sorted((*ONNX, *_UNCHANGED))))}."
            )
        return cls(**ONNX[mended])

    @property
    def dead_rows_flow(self) -> bool:
        """Whether a query without a visible key has the derivatives of a query that attends to all
        keys by equal logits.
        """
        return (self.dead_rows, self.dead_gradients) == ("uniform", "flow")

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "rope_base":
                object.__setattr__(self, field.name, _number(field.name, value, "at least 1", lambda x: x >= 1))
            elif field.name == "rope_scale":
                object.__setattr__(self, field.name, _number(field.name, value, "more than 0", lambda x: x > 0))
            else:
                _require_named(field.name, value, get_args(field.type))


ONNX: dict[str, dict[str, Any]] = {
    "1.18": {"dead_rows": "nan", "softcap_order": "after_mask", "kv_heads": "tile"},
    "1.20": {"dead_rows": "nan", "softcap_order": "after_mask"},
    "1.22": {"dead_rows": "nan"},
    "1.23": {},
}
"""For each version of ONNX, the fields in which its Attention differs from the defaults."""

_UNCHANGED = {"1.19": "1.18", "1.19.1": "1.20", "1.21": "1.20"}
"""Versions whose text means the same as another version's, by `op_attention.py` at their tags."""


def _require_named(field: str, value: object, names: tuple[str, ...]) -> None:
    choices = ", ".join(map(repr, names))
    if not isinstance(value, str):
        raise TypeError(f"Conventions.{field} has type {type(value).__name__}, but should be one of {choices}.")
    if value not in names:
        raise ValueError(f"Conventions.{field}={value!r}, but should be one of {choices}.{did_you_mean(value, names)}")


def _number(field: str, value: object, bound: str, within: Callable[[float], bool]) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"Conventions.{field} has type {type(value).__name__}, but should be a real number.")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not (isfinite(number) and within(number) and number == value):
        raise ValueError(f"Conventions.{field}={value}, but should be a finite float64 number of {bound}.")
    return number


DEFAULT = Conventions()


def resolve(conventions: Conventions | None) -> Conventions:
    """Return the given conventions, or the defaults for None. Raises TypeError for anything else."""
    if conventions is None:
        return DEFAULT
    if not isinstance(conventions, Conventions):
        raise TypeError(
            f"conventions has type {type(conventions).__name__}, but should be an oracles.Conventions or None."
        )
    return conventions


def odd_is_refused(dim: int, conventions: Conventions) -> str:
    """Return the convention that refuses an odd head_dim, or "" if head_dim is even or no
    convention refuses it.
    """
    if dim % 2 == 0:
        return ""
    if conventions.rope_pairing == "half":
        return "rope_pairing='half'"
    return "odd_lane='reject'" if conventions.odd_lane == "reject" else ""
