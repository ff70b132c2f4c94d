"""Names the optional features of operations that an implementation can declare, such as a window.
attnspec passes each of them by keyword, and only to an implementation that declares it.
"""

__all__ = ["ATTENTION", "FEATURES", "KINDS", "NEEDS", "PACKED", "PAGED", "QUANTISED", "ROTATION"]

ATTENTION = (
    "mask",
    "bias",
    "scale",
    "causal",
    "offset",
    "offsets",
    "window",
    "softcap",
    "sink",
    "grad_lse",
    "alibi",
    "dropout_mask",
    "dropout",
)
"""The features of attention, next to q, k and v. `offset` is one number, `offsets` is one number
for each element of the batch.
"""

QUANTISED = ("q_scale", "k_scale", "v_scale")
"""The features of quantised queries, keys and values: their scales. They are passed in every call of
attention where the arithmetic has a grid, and never elsewhere.
"""

LAYER = ("bq", "bk", "bv", "bo")
"""The features of a layer: the biases of its projections, next to mask, causal and scale."""

PACKED = ("seqused_q", "seqused_k", "max_seqlen_q", "max_seqlen_k")
"""The features of packed sequences, next to those of attention. The longest lengths, if declared, are
passed in every call.
"""

PAGED = ("cu_q",)
"""The feature of keys in pages, next to those of attention: sequences have unequal numbers of queries.
Packed sequences always have cu_q.
"""

ROTATION = ("positions", "inv_freq", "attention_factor", "rotary_dim", "sections")
"""The features of rope, next to x and a first position."""

AXIAL = ("axial",)
"""The feature of sections: two of them, of height and width, are taken too."""

DIVISORS = ("freq_factors",)
"""The feature of a rotation by a kind of frequencies: a divisor of each frequency."""

_ORIGINAL = "original_max_position_embeddings"
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor", "max_position_embeddings"), ()),
    "yarn": (
        ("factor", _ORIGINAL),
        ("beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim", "attention_factor"),
    ),
    "llama3": (("factor", _ORIGINAL, "low_freq_factor", "high_freq_factor"), ()),
    "longrope": (("factor", _ORIGINAL, "short_factor", "long_factor"), ("attention_factor",)),
    "proportional": (("factor", "partial_rotary_factor"), ()),
}
"""The kinds of rotary frequencies: the parameters that each kind needs, and its optional
parameters, each of which is a feature. Every kind except the default is a feature too.
"""

_OF_YARN = KINDS["yarn"][1][:-1]
_FREQUENCIES = ("base", "seq_len", *(kind for kind in KINDS if kind != "default"), *_OF_YARN)

FEATURES = (*ATTENTION, *QUANTISED, *LAYER, *PACKED, *PAGED, *ROTATION, *AXIAL, *DIVISORS, *_FREQUENCIES)
"""All features."""

NEEDS = {
    "offsets": "offset",
    "dropout": "dropout_mask",
    "sections": "positions",
    "axial": "sections",
    **dict.fromkeys(_OF_YARN, "yarn"),
}
"""Features that no call can show without another one. With equal positions in time, height and
width, sections change nothing. Only YaRN has ramps.
"""
