"""Fast, batched versions of the functions of `spec`. Each returned value comes with a radius: the
exact value is proved to lie in the interval value ± radius.

    ref = oracles.scaled_dot_product_attention(q, k, v, mask)  # |exact − ref.mid| ≤ ref.rad
    budget = oracles.scaled_dot_product_attention(q, k, v, mask, arithmetic=oracles.FLOAT32)
    oracles.assert_within(out, budget)  # out may come from any correct float32 kernel

The modules:

    formats                           number formats, and where an implementation rounds
    conventions                       the choices on which implementations differ
    options                           the options that oracles take by keyword
    enclosure                         the result of an oracle, and how it judges an output
    arrays                            converts any array to float64
    dot_product, softmax, multi_head  attention, softmax and multi-head attention, with derivatives
    generalised_attention             attention with windows, biases, softcaps and sinks
    quantised                         queries, keys and values that are codes on a grid, with scales
    packed, paged                     attention over packed sequences; over keys in pages
    merge, alibi                      merges attention over parts of the keys; biases by distance
    masks, positional, lookups        masks, sinusoidal encodings, and operations that copy numbers
    rotary                            rotary embeddings, their tables and their frequencies
    ball, error_analysis              arithmetic with value ± radius, and the derivation of budgets
    exact                             the same values in ball arithmetic of any precision
"""

from oracles.alibi import alibi_bias, alibi_slopes
from oracles.attention_layer import attention_layer
from oracles.conventions import Conventions
from oracles.dot_product import (
    causal_attention,
    grouped_query_attention,
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.enclosure import Enclosure, assert_within
from oracles.formats import (
    BFLOAT16,
    BFLOAT16_STORED_GRADIENTS,
    BFLOAT16_TENSOR_CORE,
    BINARY16,
    BINARY32,
    BINARY64,
    BRAIN16,
    FLOAT16,
    FLOAT16_STORED_GRADIENTS,
    FLOAT16_TENSOR_CORE,
    FLOAT32,
    FLOAT64,
    TF32,
    Angle,
    Arithmetic,
    Elementary,
    Format,
    preset,
)
from oracles.generalised_attention import attention, attention_jvp, attention_vjp
from oracles.latent import latent_attention
from oracles.lookups import (
    learned_positional_encoding,
    relative_bias,
    relative_position_index,
    rotate_half,
    table_lookup,
)
from oracles.masks import causal_mask, combine_masks, padding_mask
from oracles.merge import merge_attention
from oracles.multi_head import multi_head_attention, multi_head_attention_jvp, multi_head_attention_vjp
from oracles.packed import packed_attention, packed_attention_vjp
from oracles.paged import paged_attention
from oracles.positional import (
    add_positional_encoding,
    sinusoidal_positional_encoding,
    tensor2tensor_sinusoidal,
)
from oracles.rotary.by_kind import rotary_embedding
from oracles.rotary.embeddings import apply_rotary, apply_rotary_vjp, rope, rope_vjp
from oracles.rotary.frequencies import rotary_frequencies
from oracles.rotary.tables import inv_freq, rope_angles, rope_tables, rotary_tables
from oracles.sequence_masks import (
    chunked_mask,
    document_mask,
    left_padding_mask,
    position_ids,
    prefix_mask,
    tree_mask,
)
from oracles.softmax import hard_masked_softmax, hard_masked_softmax_vjp

__all__ = [
    "BFLOAT16",
    "BFLOAT16_STORED_GRADIENTS",
    "BFLOAT16_TENSOR_CORE",
    "BINARY16",
    "BINARY32",
    "BINARY64",
    "BRAIN16",
    "FLOAT16",
    "FLOAT16_STORED_GRADIENTS",
    "FLOAT16_TENSOR_CORE",
    "FLOAT32",
    "FLOAT64",
    "TF32",
    "Angle",
    "Arithmetic",
    "Conventions",
    "Elementary",
    "Enclosure",
    "Format",
    "add_positional_encoding",
    "alibi_bias",
    "alibi_slopes",
    "apply_rotary",
    "apply_rotary_vjp",
    "assert_within",
    "attention",
    "attention_jvp",
    "attention_layer",
    "attention_vjp",
    "causal_attention",
    "causal_mask",
    "chunked_mask",
    "combine_masks",
    "document_mask",
    "grouped_query_attention",
    "hard_masked_softmax",
    "hard_masked_softmax_vjp",
    "inv_freq",
    "latent_attention",
    "learned_positional_encoding",
    "left_padding_mask",
    "merge_attention",
    "multi_head_attention",
    "multi_head_attention_jvp",
    "multi_head_attention_vjp",
    "packed_attention",
    "packed_attention_vjp",
    "padding_mask",
    "paged_attention",
    "position_ids",
    "prefix_mask",
    "preset",
    "relative_bias",
    "relative_position_index",
    "rope",
    "rope_angles",
    "rope_tables",
    "rope_vjp",
    "rotary_embedding",
    "rotary_frequencies",
    "rotary_tables",
    "rotate_half",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_jvp",
    "scaled_dot_product_attention_vjp",
    "sinusoidal_positional_encoding",
    "table_lookup",
    "tensor2tensor_sinusoidal",
    "tree_mask",
]
