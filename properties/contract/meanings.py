"""What each value of a convention means, in a clause that a measurement can show."""

from collections.abc import Mapping
from typing import Any

__all__ = ["MEANINGS", "meaning"]

MEANINGS: Mapping[str, Mapping[Any, str]] = {
    "kv_heads": {
        "repeat": "query head h reads key head h // (query heads per key head)",
        "tile": "query head h reads key head h % (number of key heads)",
    },
    "causal": {
        "top_left": "with causal, query i sees the keys 0 … i",
        "bottom_right": "with causal, the last query is aligned with the last key",
    },
    "window": {
        "bound": "window=(2, …) allows the query's own key and 2 keys before it, 3 keys in all",
        "count": "window=(2, …) allows 2 keys, the query's own key included",
    },
    "scale_default": {
        "rsqrt": "the scale is 1/√head_dim if none is given",
        "one": "the scale is 1 if none is given",
    },
    "softcap_order": {
        "before_bias": "the softcap acts on the scores, before bias and mask",
        "after_bias": "the softcap acts on the sum of scores and bias, before the mask",
        "after_mask": "the softcap acts after bias and mask, so a masked key counts as −softcap",
    },
    "lse_base": {"e": "the log-sum-exp has base e", "2": "the log-sum-exp has base 2"},
    "lse_sink": {
        "included": "the log-sum-exp includes the sink",
        "excluded": "the log-sum-exp does not include the sink",
    },
    "mask_polarity": {
        "true_allows": "True in a mask lets a query see a key",
        "true_blocks": "True in a mask masks a key",
    },
    "causal_with_mask": {
        "compose": "a mask and causal=True both apply",
        "mask_wins": "causal=True has no effect beside a mask",
        "causal_wins": "a mask has no effect beside causal=True",
        "causal_alone": "neither a mask nor a bias has an effect beside causal=True",
        "refuse": "a mask together with causal=True is refused",
    },
    "dead_rows": {
        "zero": "a fully masked row is 0",
        "nan": "a fully masked row is NaN",
        "uniform": "a fully masked row is the mean of all values",
    },
    "dead_gradients": {
        "stop": "no gradient flows through the weights of a fully masked row",
        "flow": "gradients flow through the equal weights of a fully masked row",
    },
    "rope_pairing": {
        "adjacent": "channels 2i and 2i + 1 are rotated together",
        "half": "channels i and i + head_dim/2 are rotated together",
    },
    "odd_lane": {
        "literal": "the last channel of an odd width is multiplied by cos θ + sin θ",
        "passthrough": "the last channel of an odd width is not rotated",
        "reject": "an odd width is refused",
    },
    "mrope": {
        "sectioned": "pairs of time, height and width come in blocks",
        "interleaved": "pairs of time, height and width come in turn",
    },
    "padding_position": {
        "zero": "padding has the position 0",
        "one": "padding has the position 1",
    },
    "sinusoid_layout": {
        "interleaved": "columns of sine and cosine alternate",
        "concatenated": "all sines come first, with exponents 2i/d",
        "tensor2tensor": "all sines come first, with exponents i/(d/2 − 1)",
    },
    "alibi_slopes": {
        "press": "slope i is 2^(−8i/n), n the power of two up to the heads; then slopes 1, 3, 5 … of 2n heads follow",
        "geometric": "slope i of H heads is 2^(−8i/H) for every H",
    },
    "alibi_reference": {"distance": "biases are −slope · distance", "key": "biases are slope · key"},
    "yarn_truncate": {
        "truncated": "the ends of YaRN's ramp are rounded outwards",
        "exact": "the ends of YaRN's ramp are not rounded",
    },
    "yarn_upper": {
        "last_channel": "YaRN's ramp ends at most at the last channel",
        "last_pair": "YaRN's ramp ends at most at the last pair",
    },
    "longrope_switch": {
        "at_most": "short factors serve lengths up to the original length",
        "below": "short factors serve lengths below the original length",
    },
    "dynamic_length": {
        "current": "dynamic frequencies follow the current length",
        "configured": "dynamic frequencies follow the configured length",
    },
}
"""For each convention with named values the meaning of each value, in the order of a portrait."""

_OF_LAYOUTS: Mapping[str, Mapping[Any, str]] = {
    "packed_lse": {
        "heads_first": "the log-sum-exps have the shape (num_heads, total_q)",
        "rows_first": "the log-sum-exps have the shape (total_q, num_heads)",
    },
    "padding_rows": {
        "unspecified": "rows that no sequence uses may hold anything",
        "zero": "rows that no sequence uses are 0",
    },
    "max_seqlen": {
        "exact": "max_seqlen_q and max_seqlen_k are the longest lengths",
        "bound": "max_seqlen_q and max_seqlen_k may be larger than the longest lengths",
    },
    "page_layout": {
        "slots_first": "pages have the shape (num_pages, page_size, kv_heads, width)",
        "heads_first": "pages have the shape (num_pages, kv_heads, page_size, width)",
    },
    "fp8_scale": {"multiply": "a number is code × scale", "divide": "a number is code ÷ scale"},
    "scale_shape": {
        "tensor": "an array has one scale",
        "head": "each head has a scale",
        "token": "each row has a scale",
        "block16": "each 16 channels of a row have a scale",
        "block32": "each 32 channels of a row have a scale",
    },
}
"""The same for conventions that no portrait shows: they say how a function is called, or what is not judged."""


def meaning(convention: str, value: Any) -> str:
    """Return what a value of a convention means, in a clause."""
    if convention == "rope_base":
        return f"pair i of head_dim/2 has the frequency rope_scale · {value:g}^(−2i/head_dim)"
    if convention == "rope_scale":
        return f"pair 0 rotates by {value:g} rad per position"
    return (MEANINGS.get(convention) or _OF_LAYOUTS[convention])[value]
