"""The table of the domains (input families) of each operation."""

from typing import Any

from properties.contract.features import KINDS
from properties.contract.operations import OPERATIONS
from properties.strategies import (
    adjustments,
    drawn_masks,
    model_points,
    operating_points,
    packed_points,
    paged_points,
    point_numbers,
    special_values,
)
from properties.strategies.domain import EVEN, LONG, ODD, OF_MODELS, SHORT, TILES, WIDTHS, Domain
from properties.strategies.dominating import LONG as FARTHEST
from properties.strategies.dominating import MANY
from properties.strategies.memory import MEMORY

__all__ = ["DOMAINS", "ODDITIES", "QUIRKS", "ROTATIONS", "usual"]

_ATTENTION = ("scaled_dot_product_attention", "scaled_dot_product_attention_vjp", "scaled_dot_product_attention_jvp")
_SOFTMAX = ("hard_masked_softmax", "hard_masked_softmax_vjp")
_HEADS = ("multi_head_attention", "multi_head_attention_vjp", "multi_head_attention_jvp")
_GROUPED = ("grouped_query_attention",)
_CAUSAL = ("causal_attention",)
_FEATURED = ("attention", "attention_vjp", "attention_jvp")
_PACKED = ("packed_attention", "packed_attention_vjp")
_PAGED = ("paged_attention",)
_ROTARY = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp", "rope_angles", "rope_tables", "inv_freq")

_WIDTHS = {"head_dim": WIDTHS, "value_dim": WIDTHS}
_SHORT = {"n_q": SHORT, "n_k": SHORT}

QUIRKS = (
    *("dead rows", "odd widths", "no rows", "no columns", "width zero"),
    *("no queries", "without keys", "more queries than keys", "below finite fills"),
    *("operating points", "operating widths", "operating options", "operating terms", "operating heads"),
    *("special masks", "shared memory", "many rows", "many pages"),
)
"""The domains (input families) in which a convention decides the result, in which budgets (error
limits) accept any value, or whose arrays are zeros. Separate laws test them. The law of agreement
with the oracle does not.
"""

ROTATIONS = "as models rotate"
"""The name of the domain (input family) in which rope has some of its options."""

DOMAINS: dict[str, dict[str, Domain]] = {name: {} for name in OPERATIONS}
"""The domains (input families) of each operation, by name."""


def _domain(name: str, statement: str, *operations: str, **entry: Any) -> None:
    for operation in operations:
        DOMAINS[operation][name] = Domain(name, statement, **entry)


_domain("everyday", "Sizes, masks and numbers of every kind.", *OPERATIONS)
_domain(
    "everyday", "Sizes, numbers, and every combination of the declared features.", *_FEATURED,
    sizes={"n_q": (2, 1, 3, *SHORT * 2, 40, 64, 65), "n_k": (2, 1, 3, *SHORT * 2, 40, 64, 65),
           **_WIDTHS},
)  # fmt: skip
_domain(
    "everyday", "Programs of up to twelve steps on two caches.", "decode",
    sizes={"n_q": (40, 12, 80), "n_k": (40, 12, 80), **_WIDTHS},
)  # fmt: skip
_domain(
    "everyday", "Rows of compressed and rotated channels, and every combination of the declared features.",
    "latent_attention", sizes={"n_q": (2, 1, 3, *SHORT * 2), "n_k": (2, 1, 3, *SHORT * 2, 40, 64, 65),
                               "head_dim": (3, 2, 4, 5, 8, 12, 24, 48), "value_dim": (2, 1, 3, 4, 8, 16, 32)},
)  # fmt: skip
_domain(
    "widths of models", "512 compressed and 64 rotated channels, and their neighbours.", "latent_attention",
    sizes={"n_q": (1, 2, 5), "n_k": (1, 17, 64), "num_heads": (1, 2, 16), "head_dim": (576, 320, 575),
           "value_dim": (512, 256, 511)}, share=0.2,
)  # fmt: skip
_domain(
    "everyday", "Layers with and without a context, biases, masks and causality.", "attention_layer",
    sizes={"n_q": (2, 1, 3, *SHORT), "n_k": (2, 1, 3, *SHORT, 40, 65), "head_dim": (1, 2, 3, 4, 8, 16),
           "value_dim": (1, 2, 3, 4, 8, 16)},
)  # fmt: skip
_NARROW = {**_WIDTHS, "kv_heads": (1, 2)}
_domain(
    "everyday", "Sequences of unequal lengths, some of them empty, with rows that no sequence uses.", *_PACKED,
    sizes=_NARROW,
)  # fmt: skip
for _name, _statement, _needed, _sizes in (
    ("used rows", "Sequences that use a part of their keys.", ("seqused_k",), {"n_k": (3, 2, 0, 1, 5, 17)}),
    ("used queries", "Sequences that use a part of their queries.", ("seqused_q",), {"n_q": (3, 2, 0, 1, 5, 17)}),
    ("many sequences", "Up to nine sequences of 0 to 3 rows.", (), {"sequences": (5, 6, 8, 9), "n_q": (1, 0, 2, 3)}),
    ("decoding", "One query for each sequence, or none.", (), {"n_q": (1, 0), "n_k": (5, 1, 17, 33, 65, 0)}),
    ("one sequence", "A single sequence.", (), {"sequences": (1,)}),
    ("more queries than keys", "Sequences of more queries than keys.", (), {"n_q": (5, 2, 9, 17), "n_k": (1, 2, 4, 0)}),
    ("lengths far apart", "Sequences of up to 300 rows beside short ones.", (), {"n_k": (2, 1, 130, 300)}),
    ("sinks", "Sinks, with all other features.", ("sink",), {}),
):
    _domain(_name, _statement, *_PACKED, features=_needed, sizes=_NARROW | _sizes, share=0.25)
_domain("operating points", "Packings of fixed lengths, with zeros.", _PACKED[0], points=packed_points.READS)
_domain(
    "many rows",
    "More than 65536 rows of queries and of keys.",
    *_PACKED,
    points=packed_points.MANY_ROWS,
    adjust=point_numbers.ordinary,
)
_FEW_QUERIES: dict[str, tuple[int, ...]] = _NARROW | {"n_q": (1, 2, 3, 1, 8)}
_domain(
    "everyday", "Lengths at borders of pages, shared pages, and any numbers in unused slots and entries.", *_PAGED,
    sizes=_FEW_QUERIES,
)  # fmt: skip
for _name, _statement, _needed, _family in (
    ("one token each", "Sequences with one query each.", (), {"n_q": (1,)}),
    ("ragged queries", "Sequences with unequal numbers of queries.", ("cu_q",), {"n_q": (1, 0, 2, 8)}),
    ("queries before the keys", "More queries than keys.", (), {"n_q": (3, 8, 17), "n_k": (1, 2, 0, 5)}),
    ("small pages", "Pages of one to three slots.", (), {"page_size": (1, 2, 3)}),
    (
        "large pages",
        "Lengths far apart, in pages of 16 to 128 slots.",
        (),
        {"page_size": (16, 24, 128), "n_k": (1, 300)},
    ),
    ("windows", "Windows, with all other features.", ("window",), {"page_size": (1, 2, 3)}),
    ("sinks", "Sinks, with all other features.", ("sink",), {}),
):
    _domain(_name, _statement, *_PAGED, features=_needed, sizes=_FEW_QUERIES | _family, share=0.25)
_domain("operating points", "Tables of fixed lengths, with zeros.", *_PAGED, points=paged_points.READS)
_domain(
    "many pages",
    "More than 256 and more than 65536 pages.",
    *_PAGED,
    points=paged_points.MANY_PAGES,
    adjust=point_numbers.ordinary,
)
_domain(
    "rings", "Programs on rings that are slightly longer than the window.", "decode",
    features=("window", "capacity", "ring"),
    sizes={"n_q": (20,), "n_k": (30,), **_WIDTHS}, share=0.5,
)  # fmt: skip
_domain(
    "tiles", "Chunks of up to 257 positions, of 300 or 1100, and widths that models have.", "decode",
    sizes={"n_q": (60,), "n_k": (300, 1100), "head_dim": (1, 2, 8, 16, 64, 128), "value_dim": (1, 2, 8, 64, 128)},
    share=0.15,
)  # fmt: skip
_BATCHED = {"n_q": (40, 60), "n_k": (60, 90), "head_dim": (1, 2, 8, 3, 16), "value_dim": (1, 2, 8, 5, 16),
            "kv_heads": (1, 2, 3), "group": (1, 2, 3), "batch": (3, 2, 4, 1)}  # fmt: skip
_domain(
    "everyday",
    "Programs on two caches with rows of different lengths, and every combination of the offered options.",
    "batched_decode",
    sizes=_BATCHED,
)
_domain(
    "rings", "Programs on rings that are slightly longer than the window.", "batched_decode",
    features=("window", "capacity", "ring"), sizes=_BATCHED, share=0.5,
)  # fmt: skip
_domain("everyday", "Parts of the keys, some of them empty.", "merge_attention", adjust=adjustments.parts)
_domain(
    "everyday", "Numbers of heads, of queries and of keys.", "alibi_slopes", "alibi_bias",
    sizes={"num_heads": (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 33, 64), **_SHORT},
)  # fmt: skip
_domain(
    "everyday", "Distances below and beyond the largest one that matters.", "relative_bias",
    sizes={"n_q": (2, 1, 3, 7, 40, 65, 130), "n_k": (2, 1, 3, 40, 65, 130, 150, 300)},
)  # fmt: skip
_domain(
    "everyday",
    "Masks that broadcast to one shape.",
    "combine_masks",
    sizes=_SHORT,
    mask=drawn_masks.loose,
)
_domain(
    "square batches", "Masks of queries and of padding. Often the batch is as large as the number of queries.",
    "combine_masks",
    sizes={"n_q": (3, 2), "n_k": (3, 5), "batch": (3, 3, 2)},
    mask=drawn_masks.loose, masks_are="loose", rank=1, share=0.3, adjust=adjustments.decoders,
)  # fmt: skip
_domain(
    "everyday",
    "Numbers of queries and of keys. The number of keys may be omitted if it equals the number of queries.",
    "causal_mask",
    adjust=adjustments.untold,
)
_domain("everyday", "Sizes and numbers of every kind.", "causal_attention", adjust=adjustments.alive)
_domain("everyday", "Documents in runs, in any order, and with gaps.", "document_mask", adjust=adjustments.one_row)
_domain("everyday", "Padding before, after and between the tokens, and sequences of padding alone.", "position_ids")
_domain(
    "long sequences", "Sequences of 4097 to 8193 entries.", "position_ids",
    sizes={"seq_len": (4097, 5000, 8193)}, share=0.2,
)  # fmt: skip
_domain("everyday", "Sizes and numbers of every kind.", "add_positional_encoding", adjust=adjustments.shared)
_domain(
    "everyday", "Sizes and numbers of every kind; some tables are rotations.", "apply_rotary", "apply_rotary_vjp",
    adjust=adjustments.rotations,
)  # fmt: skip
_TILED = {
    **dict.fromkeys(("n_q", "n_k"), (*TILES, 511, 513, 1025)),
    **dict.fromkeys(("head_dim", "value_dim"), (1, 2, 8, 16, 64)),
}
_domain(
    "tiles",
    "Lengths around the tiles of kernels, to 1025.",
    *_CAUSAL,
    sizes=_TILED,
    share=0.2,
    adjust=adjustments.alive,
)
_domain(
    "tiles", "Lengths around the tiles of kernels, to 1025.", *_ATTENTION, *_SOFTMAX, *_GROUPED, sizes=_TILED, share=0.2
)
_domain(
    "tiles",
    "Lengths around the tiles of kernels, to 1025.",
    *_FEATURED,
    sizes=_TILED | {"kv_heads": (1, 2)},
    share=0.15,
)
_FEW_HEADS = {**_SHORT, **_WIDTHS, "kv_heads": (1, 2)}
for _name, _statement, _needed, _others in (
    ("windows at edges", "Windows around the lengths of tiles.", ("window",), {"sizes": _TILED | {"kv_heads": (1,)}}),
    ("broadcast biases", "Biases with axes of size 1, or with fewer axes.", ("bias",), {"sizes": _FEW_HEADS}),
    (
        "near the cap",
        "Scores from a quarter of the softcap to a multiple of it.",
        ("softcap",),
        {"sizes": _FEW_HEADS, "adjust": adjustments.capped},
    ),
    (
        "rows without keys",
        "Masks with fully masked rows.",
        ("mask",),
        {"sizes": _FEW_HEADS, "mask": drawn_masks.dead},
    ),
    ("sinks", "Sinks, with all other features.", ("sink",), {"sizes": _FEW_HEADS, "mask": drawn_masks.dead}),
    ("no keys", "No keys at all.", (), {"sizes": _FEW_HEADS | {"n_k": (0,)}, "mask": drawn_masks.none}),
    (
        "extreme scores",
        "Scores of every size that the formats have.",
        (),
        {"sizes": _FEW_HEADS, "adjust": adjustments.far},
    ),
):
    _domain(_name, _statement, *_FEATURED, features=_needed, share=0.15, **_others)
_domain(
    "decoding", "One to four queries, the last ones of up to 1100 keys.", *_FEATURED, features=("offset",),
    sizes={"n_q": (1, 2, 3, 4), "n_k": (100, 1, 31, 64, 65, 128, 129, 257, 513, 1100), "head_dim": (1, 8, 16, 64),
           "value_dim": (1, 8, 16), "kv_heads": (1, 2), "group": (1, 2, 3, 4, 8)},
    share=0.15, adjust=adjustments.last,
)  # fmt: skip
_domain(
    "long rows", "Rows of lengths to 1100.", *_SOFTMAX,
    sizes={"n_q": (1, 2, 3, 16), "n_k": (*TILES, *LONG)}, share=0.2,
)  # fmt: skip
_domain(
    "tiles", "Numbers of tokens around the tiles of kernels, to 130.", *_HEADS,
    sizes={"seq_len": TILES[:18], "head_dim": (1, 8, 2, 16), "num_heads": (1, 2, 4)}, share=0.2,
)  # fmt: skip
_domain(
    "extreme scores", "Scores of every size that the formats have.", *_ATTENTION, *_SOFTMAX, *_CAUSAL,
    sizes={"n_q": (*SHORT, 40, 64), "n_k": (*SHORT, 40, 64, 65, 100), **_WIDTHS},
    mask=drawn_masks.starting, share=0.4, adjust=adjustments.far,
)  # fmt: skip
_domain(
    "extreme scores", "Scores of every size that the formats have.", *_GROUPED, *_HEADS,
    sizes={**_SHORT, **_WIDTHS, "seq_len": (*SHORT, 40, 64, 65)},
    share=0.2, adjust=adjustments.far,
)  # fmt: skip
_domain(
    "one key each", "One visible key for each query, and scores of every size that the formats have.",
    *_ATTENTION, *_SOFTMAX, *_GROUPED, *_HEADS,
    sizes={**dict.fromkeys(("n_q", "n_k", "seq_len"), (1, 2, 3, 8, 17, 40, 64, 65, 64, 65)),
           **_WIDTHS},
    mask=drawn_masks.one, share=0.2, adjust=adjustments.far,
)  # fmt: skip
_NEAR = {
    **dict.fromkeys(("n_q", "n_k"), (2, 1, 3, 8, 17, 40, 65)),
    "head_dim": (2, 3, 4, 5, 8, 16),
    "value_dim": WIDTHS,
    "kv_heads": (1, 2),
}
_domain(
    "ties", "Large scores that are equal, or nearly so.", *_ATTENTION, *_CAUSAL, *_GROUPED, *_FEATURED,
    sizes=_NEAR, share=0.2, adjust=adjustments.ties,
)  # fmt: skip
_domain(
    "below finite fills", "One visible key for each query, with scores below every finite fill of masked keys.",
    _ATTENTION[0], _SOFTMAX[0], sizes=_NEAR, mask=drawn_masks.one, share=0.1, adjust=adjustments.below_fills,
)  # fmt: skip
_FEW = {"n_q": (1, 2, 5, 17), "n_k": (1, 2, 5, 17), **_WIDTHS, "kv_heads": (1, 2)}
_EVERY = (*_ATTENTION, *_CAUSAL, *_GROUPED)
_domain("no queries", "No queries.", *_EVERY, *_FEATURED, sizes=_FEW | {"n_q": (0,)}, mask=drawn_masks.none, share=0.05)
_domain("without keys", "No keys.", *_EVERY, sizes=_FEW | {"n_k": (0,)}, mask=drawn_masks.none, share=0.05)
_domain(
    "more queries than keys", "Causal attention with more queries than keys.", *_CAUSAL,
    sizes=_FEW | {"n_q": (2, 5, 9, 33, 65), "n_k": (1, 2, 4, 8, 16, 32)}, share=0.2, adjust=adjustments.fewer_keys,
)  # fmt: skip
_domain(
    "masks of sequences", "A mask for each sequence, shared by its heads.", *_ATTENTION, *_SOFTMAX,
    sizes={**_SHORT, "batch": (2, 3)},
    mask=drawn_masks.sequences, masks_are="loose", rank=2, share=0.1,
)  # fmt: skip
_domain(
    "masks of sequences", "A mask for each sequence, shared by its heads.", *_GROUPED,
    sizes={**_SHORT, "batch": (2, 3)},
    mask=drawn_masks.sequences, masks_are="loose", rank=1, share=0.1,
)  # fmt: skip
_domain(
    "widths of models", "Heads with the widths and numbers that models have.", *_HEADS,
    sizes={"head_dim": (16, 24, 20, 9, 32, 64, 128), "num_heads": (1, 2, 4, 5, 8, 12)}, share=0.1,
)  # fmt: skip
_domain(
    "decoding", "One to four queries and up to 4097 keys: kernels split long rows of keys, and merge the parts.",
    *_ATTENTION, *_GROUPED,
    sizes={
        "n_q": (1, 2, 3, 4),
        "n_k": (100, 1, 31, 64, 65, 255, 256, 257, 511, 512, 513, 640, 767, 1000, 1023, 1024, 1025, 1100, 2049, 4097),
        "head_dim": (1, 8, 16, 64, 128),
        "value_dim": (1, 8, 16, 64, 128),
    },
    share=0.2,
)  # fmt: skip
_MODELS = {
    **dict.fromkeys(("n_q", "n_k"), (1, 2, 3, 5, 16, 17, 64, 65, 130)),
    **dict.fromkeys(("head_dim", "value_dim"), OF_MODELS),
}
_domain(
    "widths of models", "Widths that models have, their neighbours, and multiples of 8, to 576.", *_ATTENTION,
    sizes=_MODELS, share=0.2,
)  # fmt: skip
_domain(
    "widths of models", "Widths that models have, and up to 16 query heads for each head of keys.",
    *_GROUPED, *_FEATURED,
    sizes={**_MODELS, **dict.fromkeys(("n_q", "n_k"), (1, 2, 3, 5, 17, 65)), "kv_heads": (1, 2),
           "group": (4, 1, 2, 5, 7, 8, 16)},
    share=0.1,
)  # fmt: skip
_domain(
    "broadcast masks",
    "Masks with axes of size 1, or with fewer axes.",
    *_ATTENTION,
    *_SOFTMAX,
    *_GROUPED,
    mask=drawn_masks.narrow,
    masks_are="loose",
    share=0.2,
)
_domain("masks of rows", "Masks that all queries share.", *_HEADS, mask=drawn_masks.row, masks_are="keys", share=0.2)
_domain(
    "masks of rows",
    "Masks that all queries share.",
    *_ATTENTION,
    *_SOFTMAX,
    *_GROUPED,
    mask=drawn_masks.row,
    masks_are="keys",
    share=0.5,
)
_domain(
    "masks of rows",
    "Masks that all queries share.",
    *_FEATURED,
    features=("mask",),
    mask=drawn_masks.row,
    masks_are="keys",
    share=0.2,
)
_domain(
    "width zero", "Queries and keys without columns.", *_ATTENTION[1:], *_GROUPED, *_CAUSAL,
    sizes={"head_dim": (0,), "value_dim": WIDTHS, **_SHORT}, share=0.1, adjust=adjustments.unmasked,
)  # fmt: skip
_domain(
    "padded masks",
    "Keys that are masked for all queries.",
    *_ATTENTION,
    *_SOFTMAX,
    *_GROUPED,
    *_HEADS,
    mask=drawn_masks.padded,
    share=0.3,
)
_domain(
    "dead rows", "Masks with fully masked rows.", *_ATTENTION, *_SOFTMAX, *_GROUPED, *_HEADS,
    sizes=dict.fromkeys(("n_q", "n_k", "seq_len"), (2, 1, 3, 1, 5, 8, 17, 33)), mask=drawn_masks.dead, share=0.2,
)  # fmt: skip
_domain(
    "small", "Sizes of 1 to 3.", *_ATTENTION, *_SOFTMAX, *_HEADS,
    sizes={**dict.fromkeys(("n_q", "n_k", "seq_len", "head_dim", "value_dim"), (2, 1, 3)), "num_heads": (1, 2),
           "batch": (1,)},
    share=0.1,
)  # fmt: skip
_domain(
    "dominating keys", "A few keys share all the weight, among up to 8192.", *_ATTENTION,
    sizes={"n_q": (1, 2, 3, 4, 8), "n_k": MANY, "head_dim": (8, 4, 1, 2, 16, 64), "value_dim": (8, 1, 4, 64),
           "batch": (1,)},
    mask=drawn_masks.none, share=0.1, adjust=adjustments.few_keys,
)  # fmt: skip
_domain(
    "131072 keys", "A few keys share all the weight, among 131072; in the long plan only.", *_ATTENTION,
    sizes={"n_q": (1, 2), "n_k": FARTHEST, "head_dim": (8, 4, 16), "value_dim": (8, 1, 4), "batch": (1,)},
    mask=drawn_masks.none, share=0.04, adjust=adjustments.few_keys,
)  # fmt: skip
_domain("one position", "Sequences of one row.", "rope", "rope_vjp", sizes={"seq_len": (1,)}, share=0.4)
_domain("odd widths", "Odd widths: the last channel has no partner.", *_ROTARY, sizes={"head_dim": ODD}, share=0.2)
_domain(
    "odd widths", "Widths that end with a sine.", "sinusoidal_positional_encoding", sizes={"embed_dim": ODD}, share=0.2
)
_domain(
    "a sine at the end",
    "Widths whose last column is a sine.",
    "sinusoidal_positional_encoding",
    sizes={"embed_dim": (1, 3, 5)},
    share=0.1,
)
_domain("near positions", "Positions to 64.", *_ROTARY[:2], *_ROTARY[4:6], "sinusoidal_positional_encoding",
    sizes={"start_pos": tuple(range(65))}, share=0.3)  # fmt: skip
_domain(
    "long sequences", "Sequences of up to 4097 rows.", *_ROTARY[:6], "sinusoidal_positional_encoding", "rotate_half",
    sizes={"seq_len": (*LONG, 2047, 2048, 2049, 4097), "head_dim": (2, 4, 8, 32), "embed_dim": (2, 4, 8, 32)},
    share=0.2,
)  # fmt: skip
_domain("long masks", "Numbers of queries and of keys to 513.", "causal_mask",
    sizes={"n_q": (255, 256, 257, 300, 513, 16), "n_k": (257, 256, 255, 300, 513, 16)}, share=0.2)  # fmt: skip
_domain(
    ROTATIONS, "Positions, frequencies, parts of the channels and sections, in every declared combination.",
    *_ROTARY[:2],
    sizes={"seq_len": SHORT, "head_dim": EVEN}, rotates=True,
)  # fmt: skip
_domain(
    "sections", "Pairs that rotate by time, height and width.", *_ROTARY[:2],
    sizes={"seq_len": SHORT, "head_dim": EVEN}, features=("sections", "positions"), rotates=True, share=0.3,
)  # fmt: skip
_domain("everyday", "Every declared kind, with every combination of the declared parameters.", "rotary_frequencies")
_domain(
    "everyday", "Queries and keys, with every declared kind and combination of its parameters.", "rotary_embedding",
    sizes={"n_q": SHORT, "head_dim": tuple(d for d in EVEN if d > 2)},
)  # fmt: skip
for _name in KINDS:
    if _name != "default":
        _widths = (
            (8, 16, 32, 64, 128, 12, 20, 6, 4)
            if _name == "yarn"
            else tuple(d for d in EVEN if d > 2 or _name != "dynamic")
        )
        _domain(
            _name,
            f"Frequencies of the kind {_name}.",
            *("rotary_frequencies", "rotary_embedding"),
            sizes={"head_dim": _widths, "n_q": SHORT},
            features=(_name,),
            share=0.3,
        )
_EMPTY = {
    "no rows": {"seq_len": (0,), "n_q": (0,), "batch": (0,)},
    "no columns": {"head_dim": (0,), "embed_dim": (0,), "n_k": (0,), "max_len": (0,), "n": (0,)},
}
_ROWS = (
    *(*_ROTARY[:6], "rotate_half", "sinusoidal_positional_encoding", "learned_positional_encoding"),
    *("causal_mask", "document_mask", "relative_bias"),
)
for _name, _sizes in _EMPTY.items():
    _batched = {name: sizes for name, sizes in _sizes.items() if name != "batch"}
    _domain(_name, "Sequences, masks or widths of 0.", *_ROWS, sizes=_batched, share=0.1)
    _domain(_name, "Masks without entries.", "combine_masks", sizes=_batched, mask=drawn_masks.loose, share=0.1)
    _domain(
        _name, "No sequences, or sequences of length 0.", "padding_mask", "left_padding_mask", sizes=_sizes, share=0.1
    )
    _domain(_name, "No indices, or rows of width 0.", "table_lookup", sizes=_sizes, rank=1, share=0.1)
_domain("no rows", "Sequences of length 0.", "position_ids", sizes=_EMPTY["no rows"], share=0.1)
_domain("no columns", "A width of 0.", "inv_freq", sizes=_EMPTY["no columns"], share=0.1)
_domain("no columns", "No tokens.", "prefix_mask", "chunked_mask", "tree_mask", sizes=_EMPTY["no columns"], share=0.1)


_FORWARD = (_ATTENTION[0], *_CAUSAL, *_GROUPED, _FEATURED[0])
_POINTS = "Fixed sizes and options at which models call kernels, with zeros."
_domain("operating points", _POINTS, *_FORWARD, points=operating_points.READS)
_domain("operating widths", "Fixed widths of heads, with zeros.", *_FORWARD, points=operating_points.SCORES)
_domain("operating options", "Fixed sizes with options, with zeros.", "attention", points=operating_points.OPTIONS)
_domain(
    "operating heads", "Numbers of heads that do not divide.", *_GROUPED, _FEATURED[0], points=operating_points.HEADS
)
_domain("operating terms", "Small sizes, with each softcap and scale.", *_FORWARD, points=operating_points.TERMS)
_PROBES = "Fixed sizes: the law chooses numbers for which a correct kernel can store one result only."
_domain(
    "exact probes", _PROBES, *_FORWARD, *_ATTENTION[1:2], *_FEATURED[1:2], *_SOFTMAX[:1],
    points=operating_points.PROBES,
)  # fmt: skip
_domain("exact probes", _PROBES, "decode", points=operating_points.CACHES)
_domain("exact probes", _PROBES, *_PACKED, points=packed_points.PROBES)
_domain("exact probes", _PROBES, "merge_attention", points=operating_points.MERGES)
_domain("exact probes", _PROBES, *_ROTARY[:4], points=operating_points.ROTATIONS)
_domain("exact probes", _PROBES, "rope_tables", "sinusoidal_positional_encoding", points=operating_points.TABLES)
_domain("operating points", "Programs of fixed steps.", "decode", "batched_decode", points=operating_points.CACHES)
_domain("operating points", "Two parts of the keys.", "merge_attention", points=operating_points.MERGES)
_domain("operating points", "Fixed sizes and masks.", *_SOFTMAX, points=operating_points.SOFTMAX)
_domain("operating points", _POINTS, _ATTENTION[2], _FEATURED[2], points=operating_points.GRADIENTS)
_domain("operating points", "Fixed numbers of tokens and heads.", *_HEADS, points=operating_points.TOKENS)
_domain("operating points", _POINTS, _ATTENTION[1], _FEATURED[1], points=operating_points.GRADIENTS)
_domain("operating points", _POINTS, *_ROTARY[:4], "rotate_half", points=operating_points.ROTATIONS)
_domain(
    "operating points", "Fixed sizes and positions.", *_ROTARY[4:], "sinusoidal_positional_encoding", "causal_mask",
    "alibi_slopes", "alibi_bias", points=operating_points.TABLES,
)  # fmt: skip

_ORDINARY = "Fixed sizes and options at which models call kernels, with ordinary numbers."
_BORDERS = "Fixed sizes at which models call kernels, with large scores at the borders of blocks of keys."
for _names, _numbers, _borders in (
    (_FORWARD, model_points.NUMBERS, model_points.BORDERS),
    ((*_ATTENTION[1:], *_FEATURED[1:]), model_points.SHORT_NUMBERS, model_points.SHORT_BORDERS),
    (_SOFTMAX, model_points.SOFTMAX, model_points.SOFTMAX),
    ((*_ROTARY[:4], "rotate_half"), model_points.ROTATIONS, ()),
    (_HEADS, model_points.TOKENS, ()),
    (("attention_layer",), model_points.LAYERS, ()),
):
    _domain("operating numbers", _ORDINARY, *_names, points=_numbers, adjust=point_numbers.ordinary)
    if _borders:
        _domain("operating borders", _BORDERS, *_names, points=_borders, adjust=point_numbers.borders)

_domain(
    "small values after a large one", "One large value, and others that a tile adds up to less than half a unit of it.",
    *_FORWARD, points=model_points.TILES, adjust=point_numbers.after_a_large_value,
)  # fmt: skip

_SPECIAL = "Scores and values from small to large, and pairs of special values of two features."
_domain("special values", _SPECIAL, *_FEATURED, points=(*special_values.MAGNITUDES, *special_values.PAIRS))
_domain("special values", _SPECIAL, *_ATTENTION, *_GROUPED, *_SOFTMAX, points=special_values.WITHOUT_OPTIONS)
_domain("special values", "Scores and values from small to large.", *_CAUSAL, points=special_values.MAGNITUDES)
_domain(
    "special masks", "Fully masked rows with special sizes and scores.", *_ATTENTION[:2], *_GROUPED, *_SOFTMAX,
    points=special_values.MASKED,
)  # fmt: skip
_domain(
    "shared memory", "Fixed sizes at which arrays have one shape.",
    *_EVERY, *_FEATURED, *_SOFTMAX, *_HEADS, *_ROTARY[:4],
    *("merge_attention", "combine_masks", "add_positional_encoding", "rotate_half"), points=MEMORY,
)  # fmt: skip


def usual(operation: str, *more: str) -> tuple[str, ...]:
    """Return the names of the domains (input families) for laws about any call, and the names in
    `more`. Names that the operation does not have are left out.
    """
    return ("everyday", *(name for name in (ROTATIONS, *more) if name in DOMAINS[operation]))


ODDITIES = Domain(
    "oddities",
    "Sizes that an implementation may not support.",
    {
        **dict.fromkeys(("n_q", "n_k", "max_len"), (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 100, 129, 257, 513, 1025)),
        "seq_len": (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 100, 129, 257, 513, 1025, 0),
        **dict.fromkeys(
            ("head_dim", "value_dim", "embed_dim", "model_dim"),
            (1, 2, 3, 4, 5, 7, 8, 16, 32, 33, 64, 65, 128, 129, 256, 257, 512, 0),
        ),
        **dict.fromkeys(("num_heads", "kv_heads", "batch"), (1, 2, 3, 4, 5, 8)),
        "start_pos": (0, 1, 5, 128, 1000, 4096, 2**16 + 1, 2**20),
    },
)
"""Sizes that an implementation may refuse. A law takes one size that is refused, and accepted
values for all others.
"""
