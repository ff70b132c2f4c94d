"""The table of operations. A row says what an operation takes, what it returns, which conventions
it follows, and which oracle computes its certified values.
"""

from collections.abc import Callable
from typing import Any

import oracles
from properties.contract.cache_values import batched_decode, decode
from properties.contract.features import FEATURES, KINDS
from properties.contract.operation import Arguments, Operation
from properties.contract.parameters import (
    BATCH,
    Kind,
    Parameter,
    array,
    gradient,
    mask,
    optional,
    setting,
    size,
    tangents,
)

__all__ = ["BATCH", "FEATURES", "OPERATIONS", "Arguments", "Operation"]


def _operation(
    name: str,
    takes: tuple[Parameter, ...],
    returns: tuple[Parameter, ...],
    *conventions: str,
    oracle: Callable[..., Any] | None = None,
    **others: Any,
) -> Operation:
    """Return the record of an operation. Without `oracle`, its oracle is the function with its name
    in `oracles`.
    """
    return Operation(name, takes, returns, oracle or getattr(oracles, name), conventions, **others)


_Q, _K, _V = array("q", "* n_q head_dim"), array("k", "* n_k head_dim"), array("v", "* n_k value_dim")
_QKV = (_Q, _K, _V)
_MASK = mask("mask", "* n_q n_k")
_OUT = array("out", "* n_q value_dim")

_HEADED = (
    array("q", "* num_heads n_q head_dim"),
    array("k", "* kv_heads n_k head_dim"),
    array("v", "* kv_heads n_k value_dim"),
)
_HEADED_MASK = mask("mask", "* num_heads n_q n_k")


def _scales(codes: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Return the optional scales of queries, keys and values."""
    return optional(*(array(f"{x.name[0]}_scale", " ".join(x.axes), Kind.SCALES, broadcasts=True) for x in codes))


_BIAS = array("bias", "* num_heads n_q n_k", broadcasts=True)
_SINK = array("sink", "num_heads")
_ALIBI = array("alibi", "num_heads", Kind.ALIBI)
_FEATURED = (
    *_HEADED,
    *optional(
        _HEADED_MASK,
        _BIAS,
        setting("scale"),
        setting("causal"),
        array("offset", BATCH, Kind.OFFSET),
        setting("window"),
        setting("softcap"),
        _SINK,
        _ALIBI,
    ),
)
_DROPOUT = optional(
    array("dropout_mask", "* num_heads n_q n_k", Kind.INTEGERS, broadcasts=True),
    setting("dropout"),
)
_HEADED_OUT = array("out", "* num_heads n_q value_dim")
_HEADED_LSE = array("lse", "* num_heads n_q", Kind.LOG_SUM_EXP)

_LATENT = (
    _HEADED[0],
    array("latent", "* n_k head_dim"),
    size("value_dim"),
    setting("scale"),
    *(one for one in _FEATURED[3:] if one.name not in ("bias", "scale", "alibi")),
)

_PACKED_KEYS = (
    array("q", "total_q num_heads head_dim"),
    array("k", "total_k kv_heads head_dim"),
    array("v", "total_k kv_heads value_dim"),
)
_PACKED = (
    *_PACKED_KEYS,
    *(array(name, "boundaries", Kind.LENGTHS) for name in ("cu_q", "cu_k")),
    *optional(
        *(setting(name) for name in ("scale", "causal", "window", "softcap")),
        _SINK,
        _ALIBI,
        *(array(name, "sequences", Kind.LENGTHS) for name in ("seqused_q", "seqused_k")),
        *(setting(name, Kind.LENGTHS) for name in ("max_seqlen_q", "max_seqlen_k")),
    ),
)
_PACKED_OUT = array("out", "total_q num_heads value_dim")
_PACKED_LSE = array("lse", "num_heads total_q", Kind.LOG_SUM_EXP)

_PAGED = (
    array("q", "* n_q num_heads head_dim"),
    array("k_pages", "num_pages page_size kv_heads head_dim"),
    array("v_pages", "num_pages page_size kv_heads value_dim"),
    array("block_table", "sequences max_pages", Kind.LENGTHS),
    array("lengths", "sequences", Kind.LENGTHS),
    *optional(
        *(setting(name) for name in ("scale", "causal", "window", "softcap")),
        _SINK,
        _ALIBI,
        array("cu_q", "boundaries", Kind.LENGTHS),
    ),
)
_PAGED_OUT = array("out", "* n_q num_heads value_dim")

_TOKENS = (
    array("x", "* seq_len model_dim"),
    array("wq", "model_dim heads_width"),
    array("wk", "model_dim heads_width"),
    array("wv", "model_dim heads_width"),
    array("wo", "heads_width model_dim"),
)
_MULTI_HEAD = (*_TOKENS, size("num_heads"), mask("mask", "* seq_len seq_len"))
_TOKENS_OUT = array("out", "* seq_len model_dim")
_HEADS_WIDTH = {"heads_width": ("num_heads", "head_dim")}
_LAYER = (
    array("x", "* n_q model_dim"),
    array("context", "* n_k context_dim"),
    array("wq", "model_dim query_width"),
    array("wk", "context_dim key_width"),
    array("wv", "context_dim values_width"),
    array("wo", "joined_width out_dim"),
    size("num_heads"),
    *optional(
        array("bq", "query_width"),
        array("bk", "key_width"),
        array("bv", "values_width"),
        array("bo", "out_dim"),
        mask("mask", "* n_q n_k"),
        setting("causal"),
        setting("scale"),
    ),
)
_LAYER_WIDTHS = {
    **{"query_width": ("num_heads", "head_dim"), "key_width": ("kv_heads", "head_dim")},
    **{"values_width": ("kv_heads", "value_dim"), "joined_width": ("num_heads", "value_dim")},
}

_SCORES, _WEIGHTS = array("scores", "* n_q n_k"), array("weights", "* n_q n_k")
_PARTS = tuple(
    part
    for name in "ab"
    for part in (array(f"out_{name}", "* n_q value_dim"), array(f"lse_{name}", "* n_q", Kind.LOG_SUM_EXP))
)

_ROWS, _ROWS_OUT = array("x", "* seq_len head_dim"), array("out", "* seq_len head_dim")
_TABLES = tuple(array(name, "seq_len head_dim", Kind.TABLE) for name in ("cos", "sin"))
_FREQUENCIES = array("inv_freq", "pairs", Kind.FREQUENCIES)
_FACTOR = setting("attention_factor", Kind.FACTOR)
_START, _SEQ_LEN, _HEAD_DIM = size("start_pos"), size("seq_len"), size("head_dim")
_ROTATION = optional(
    array("positions", "* seq_len", Kind.INTEGERS, broadcasts=True),
    _FREQUENCIES,
    _FACTOR,
    setting("rotary_dim"),
    setting("sections"),
)
_OF_KINDS = tuple(dict.fromkeys(p for given, others in KINDS.values() for p in (*given, *others)))
_KIND = optional(
    *(_FACTOR if name == _FACTOR.name else setting(name) for name in ("base", "rotary_dim", "seq_len", *_OF_KINDS))
)

_EMBEDDED, _EMBEDDED_OUT = array("x", "* seq_len embed_dim"), array("out", "* seq_len embed_dim")
_ENCODING, _ENTRIES = array("encoding", "seq_len embed_dim"), array("table", "rows embed_dim")

_IDS_Q, _IDS_K = array("ids_q", "n_q", Kind.INTEGERS), array("ids_k", "n_k", Kind.INTEGERS)
_LENGTHS, _N, _SQUARE = array("lengths", "batch", Kind.INTEGERS), size("n"), mask("mask", "n n")

_MASKING = ("dead_rows", "mask_polarity")
_DERIVED = ("dead_rows", "dead_gradients", "mask_polarity")
_ROPE = ("rope_pairing", "odd_lane", "rope_base", "rope_scale")
_FEATURES = (
    *("causal", "kv_heads", "window", "softcap_order"),
    *("lse_base", "lse_sink", "scale_default", "causal_with_mask", "alibi_reference"),
)

_QUANTISING = ("fp8_scale", "scale_shape")
_PACKING = (
    *("dead_rows", "causal", "kv_heads", "window", "softcap_order", "lse_base", "lse_sink", "scale_default"),
    *("alibi_reference", "packed_lse", "padding_rows", "max_seqlen"),
)
_PAGING = (*(name for name in _PACKING if name not in ("causal", "max_seqlen")), "page_layout", *_QUANTISING)

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        _operation("scaled_dot_product_attention", (*_QKV, _MASK), (_OUT,), *_MASKING),
        _operation("scaled_dot_product_attention_vjp", (*_QKV, _MASK, gradient(_OUT)), tangents(*_QKV), *_DERIVED),
        _operation("scaled_dot_product_attention_jvp", (*_QKV, _MASK, *tangents(*_QKV)), tangents(_OUT), *_DERIVED),
        _operation("causal_attention", _QKV, (_OUT,), "causal", "dead_rows"),
        _operation("grouped_query_attention", (*_HEADED, _HEADED_MASK), (_HEADED_OUT,), "kv_heads", *_MASKING),
        _operation(
            "attention",
            (*_FEATURED, *_scales(_HEADED), *_DROPOUT),
            (_HEADED_OUT, _HEADED_LSE),
            *_MASKING,
            *_FEATURES,
            *_QUANTISING,
        ),
        _operation(
            "attention_vjp",
            (*_FEATURED, *_DROPOUT, gradient(_HEADED_OUT), *optional(gradient(_HEADED_LSE))),
            tangents(*_HEADED, _BIAS, _SINK),
            *_DERIVED,
            *_FEATURES,
        ),
        _operation(
            "attention_jvp",
            (*_FEATURED, *tangents(*_HEADED), *optional(*tangents(_BIAS, _SINK))),
            tangents(_HEADED_OUT, _HEADED_LSE),
            *_DERIVED,
            *_FEATURES,
        ),
        _operation(
            "latent_attention",
            _LATENT,
            (_HEADED_OUT, _HEADED_LSE),
            *_MASKING,
            *("causal", "window", "softcap_order", "lse_base", "lse_sink", "causal_with_mask"),
        ),
        _operation(
            "packed_attention",
            (*_PACKED, *_scales(_PACKED_KEYS)),
            (_PACKED_OUT, _PACKED_LSE),
            *_PACKING,
            *_QUANTISING,
        ),
        _operation(
            "packed_attention_vjp",
            (*_PACKED, gradient(_PACKED_OUT), *optional(gradient(_PACKED_LSE))),
            tangents(*_PACKED_KEYS, _SINK),
            *_PACKING,
            "dead_gradients",
        ),
        _operation("paged_attention", (*_PAGED, *_scales(_PAGED[:3])), (_PAGED_OUT, _HEADED_LSE), *_PAGING),
        _operation("merge_attention", _PARTS, (_OUT, array("lse", "* n_q", Kind.LOG_SUM_EXP)), "dead_rows", "lse_base"),
        _operation("alibi_slopes", (size("num_heads"),), (array("slopes", "num_heads", Kind.ALIBI),), "alibi_slopes"),
        _operation(
            "alibi_bias",
            (size("num_heads"), size("n_q"), size("n_k"), *optional(setting("offset", Kind.OFFSET))),
            (array("biases", "num_heads n_q n_k", Kind.ALIBI),),
            *("alibi_slopes", "alibi_reference", "causal"),
        ),
        _operation(
            "decode",
            (
                array("q", "n_q head_dim"),
                array("k", "n_k head_dim"),
                array("v", "n_k value_dim"),
                setting("steps"),
                *optional(setting("window"), setting("capacity"), setting("rotates")),
            ),
            (array("out", "n_q value_dim"), array("lse", "n_q", Kind.LOG_SUM_EXP)),
            *("window", "lse_base", "scale_default", *_ROPE),
            oracle=decode,
        ),
        _operation(
            "batched_decode",
            (
                array("q", "num_heads n_q head_dim"),
                array("k", "kv_heads n_k head_dim"),
                array("v", "kv_heads n_k value_dim"),
                size("batch"),
                setting("steps"),
                *optional(*map(setting, ("window", "capacity", "scale", "softcap", "prefix", "causal"))),
                *optional(_SINK, _ALIBI),
            ),
            (array("out", "num_heads n_q value_dim"), array("lse", "num_heads n_q", Kind.LOG_SUM_EXP)),
            *("kv_heads", "window", "softcap_order", "lse_base", "lse_sink", "scale_default"),
            oracle=batched_decode,
        ),
        _operation("multi_head_attention", _MULTI_HEAD, (_TOKENS_OUT,), *_MASKING, widths=_HEADS_WIDTH),
        _operation(
            "multi_head_attention_vjp",
            (*_MULTI_HEAD, gradient(_TOKENS_OUT)),
            tangents(*_TOKENS),
            *_DERIVED,
            widths=_HEADS_WIDTH,
        ),
        _operation(
            "multi_head_attention_jvp",
            (*_MULTI_HEAD, *tangents(*_TOKENS)),
            tangents(_TOKENS_OUT),
            *_DERIVED,
            widths=_HEADS_WIDTH,
        ),
        _operation(
            "attention_layer",
            _LAYER,
            (array("out", "* n_q out_dim"),),
            *(*_MASKING, "causal", "kv_heads"),
            widths=_LAYER_WIDTHS,
        ),
        _operation("hard_masked_softmax", (_SCORES, _MASK), (_WEIGHTS,), *_MASKING),
        _operation("hard_masked_softmax_vjp", (_SCORES, _MASK, gradient(_WEIGHTS)), tangents(_SCORES), *_DERIVED),
        _operation("causal_mask", (size("n_q"), size("n_k")), (mask("mask", "n_q n_k"),), "causal", "mask_polarity"),
        _operation(
            "padding_mask",
            (_LENGTHS, size("max_len")),
            (mask("mask", "batch max_len"),),
            "mask_polarity",
        ),
        _operation(
            "combine_masks", (mask("first", "* n_q n_k"), mask("second", "* n_q n_k")), (_MASK,), "mask_polarity"
        ),
        _operation("left_padding_mask", (_LENGTHS, _N), (mask("mask", "batch n"),), "mask_polarity"),
        _operation("document_mask", (_IDS_Q, _IDS_K), (mask("mask", "n_q n_k"),), "mask_polarity"),
        _operation("prefix_mask", (size("prefix"), _N), (_SQUARE,), "mask_polarity"),
        _operation("chunked_mask", (_N, size("chunk"), size("start")), (_SQUARE,), "mask_polarity"),
        _operation("tree_mask", (array("parents", "n", Kind.INTEGERS),), (_SQUARE,), "mask_polarity"),
        _operation(
            "position_ids",
            (array("attention_mask", "* seq_len", Kind.TOKENS),),
            (array("position_ids", "* seq_len", Kind.INTEGERS),),
            "padding_position",
        ),
        _operation(
            "sinusoidal_positional_encoding", (_SEQ_LEN, size("embed_dim"), _START), (_ENCODING,), "sinusoid_layout"
        ),
        _operation("add_positional_encoding", (_EMBEDDED, array("pos", "* seq_len embed_dim")), (_EMBEDDED_OUT,)),
        _operation("learned_positional_encoding", (_ENTRIES, _SEQ_LEN, _START), (_ENCODING,)),
        _operation("table_lookup", (_ENTRIES, array("indices", BATCH, Kind.INTEGERS)), (array("rows", "* embed_dim"),)),
        _operation(
            "relative_bias",
            (
                array("table", "buckets num_heads"),
                *(size("n_q"), size("n_k"), setting("bidirectional"), size("max_distance")),
            ),
            (array("biases", "num_heads n_q n_k"),),
            "causal",
        ),
        _operation(
            "relative_position_index",
            (size("height"), size("width")),
            (array("index", "tokens tokens", Kind.INTEGERS),),
            widths={"tokens": ("height", "width")},
        ),
        _operation("rope", (_ROWS, _START, *_ROTATION), (_ROWS_OUT,), *_ROPE, "mrope"),
        _operation("rope_vjp", (_ROWS, gradient(_ROWS_OUT), _START, *_ROTATION), tangents(_ROWS), *_ROPE, "mrope"),
        _operation("apply_rotary", (_ROWS, *_TABLES), (_ROWS_OUT,), "rope_pairing", "odd_lane"),
        _operation(
            "apply_rotary_vjp", (_ROWS, *_TABLES, gradient(_ROWS_OUT)), tangents(_ROWS), "rope_pairing", "odd_lane"
        ),
        _operation("rotate_half", (_ROWS,), (_ROWS_OUT,)),
        _operation("inv_freq", (_HEAD_DIM,), (array("frequencies", "pairs"),), *_ROPE),
        _operation(
            "rotary_frequencies",
            (setting("kind"), _HEAD_DIM, *_KIND),
            (_FREQUENCIES, _FACTOR),
            *("yarn_truncate", "yarn_upper", "longrope_switch", "dynamic_length"),
        ),
        _operation(
            "rotary_embedding",
            (
                array("q", "* num_heads n_q head_dim"),
                array("k", "* kv_heads n_q head_dim"),
                array("positions", "n_q", Kind.INTEGERS),
                setting("kind"),
                *_KIND,
                *optional(array("freq_factors", "pairs", Kind.FREQUENCIES)),
            ),
            (array("q_rotated", "* num_heads n_q head_dim"), array("k_rotated", "* kv_heads n_q head_dim")),
            *("rope_pairing", "yarn_truncate", "yarn_upper", "longrope_switch", "dynamic_length"),
        ),
        _operation("rope_angles", (_SEQ_LEN, _HEAD_DIM, _START), (array("angles", "seq_len pairs"),), *_ROPE),
        _operation("rope_tables", (_SEQ_LEN, _HEAD_DIM, _START), _TABLES, *_ROPE),
        _operation(
            "rotary_tables",
            (
                array("positions", "* seq_len", Kind.INTEGERS),
                _FREQUENCIES,
                *optional(_FACTOR, setting("sections")),
            ),
            tuple(array(name, "* seq_len channels", Kind.TABLE) for name in ("cos", "sin")),
            *("rope_pairing", "mrope"),
        ),
    )
}
"""All operations by name."""
