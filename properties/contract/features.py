"""What implementations declare that they take besides: by keyword, never passed where it is not declared."""

__all__ = ["ATTENTION", "FEATURES", "KINDS", "NEEDS", "ROTATION"]

ATTENTION = ("mask", "bias", "scale", "causal", "offset", "offsets", "window", "softcap", "sink", "grad_lse")
"""What attention may take besides q, k and v: `offset` is one number, `offsets` is one for each
element of the batch too.
"""

ROTATION = ("positions", "inv_freq", "attention_factor", "rotary_dim", "sections")
"""What rope may take besides x and a first position."""

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
"""The kinds of rotary frequencies: the parameters that each is given, and those that are features
of their own. All kinds but the default are features too."""

_OF_YARN = KINDS["yarn"][1][:-1]
_FREQUENCIES = ("base", "seq_len", *(kind for kind in KINDS if kind != "default"), *_OF_YARN)

FEATURES = (*ATTENTION, *ROTATION, *_FREQUENCIES)
"""All of them."""

NEEDS = {"offsets": "offset", "sections": "positions", **dict.fromkeys(_OF_YARN, "yarn")}
"""Features that no call shows without another one: equal positions in time, height and width are
one, and ramps are those of YaRN.
"""
