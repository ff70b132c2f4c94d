"""Masks of several sequences in one row of tokens, of prefixes, chunks and trees, and of padding
before the tokens; and the positions of tokens in padded sequences. In a mask, True marks a visible
key.

This module is not TorchLean's: see `spec.extended`.

Source: the masks of models and libraries in use. `document_mask`: packed training, as in
`flex_attention`'s document masks. `prefix_mask`: Raffel et al., Exploring the Limits of Transfer
Learning with a Unified Text-to-Text Transformer, 2020, section 3.2.1. `chunked_mask`: Llama 4's
chunked attention in transformers. `tree_mask`: Cai et al., Medusa, 2024, section 2.1.2.
`left_padding_mask`: batches for generation in transformers. `position_ids`: their positions there, in
`GenerationMixin._prepare_position_ids_for_generation`.
"""

from typing import Any

from jaxtyping import Bool

from spec.extended.arguments import integer, integers
from spec.lean import definition
from spec.tensor_core import Array, tabulate

__all__ = ["chunked_mask", "document_mask", "left_padding_mask", "position_ids", "prefix_mask", "tree_mask"]


@definition()
def document_mask(ids_q: Any, ids_k: Any) -> Bool[Array, "nQ nK"]:
    """Return the mask under which key j is visible to query i where both have the same document
    number: ids_q[i] = ids_k[j].

    `ids_q` and `ids_k` are integers, one for each query and each key. The tokens of a document may
    stand apart: equal numbers see each other across a gap.

    Edge cases: no queries or no keys give the empty mask. A query whose document has no key sees no
    key.

    >>> document_mask([0, 1], [1, 0, 1])
    array([[False,  True, False],
           [ True, False,  True]])
    """
    of_queries, of_keys = integers(ids_q, "ids_q"), integers(ids_k, "ids_k")
    return tabulate((len(of_queries), len(of_keys)), lambda i, j: of_queries[i] == of_keys[j], bool)


@definition()
def prefix_mask(prefix: int, n: int) -> Bool[Array, "n n"]:
    """Return the mask under which key j is visible to query i where j ≤ i or j < prefix: each
    position sees the prefix and all positions up to its own.

    Edge cases: prefix = 0 gives the causal mask. A prefix of n or more makes all keys visible.

    >>> prefix_mask(2, 3)
    array([[ True,  True, False],
           [ True,  True, False],
           [ True,  True,  True]])
    """
    return tabulate((n, n), lambda i, j: j <= i or j < prefix, bool)


@definition()
def chunked_mask(n: int, chunk: int, start: Any = 0) -> Bool[Array, "n n"]:
    """Return the mask under which key j is visible to query i where j ≤ i and both positions are in
    the same chunk: ⌊(start + i) / chunk⌋ = ⌊(start + j) / chunk⌋.

    Row i stands at position start + i, and so does column i. The start may be negative, as it is for
    padding before the first token; ⌊ ⌋ rounds down below 0 too.

    Edge cases: chunk = 1 leaves each position itself. A chunk of n or more, from start = 0, gives the
    causal mask.
    Raises ValueError if chunk is 0.

    >>> chunked_mask(3, 2, start=-1)
    array([[ True, False, False],
           [False,  True, False],
           [False,  True,  True]])
    """
    first = integer(start, "start")
    if chunk == 0:
        raise ValueError("chunk=0, but should be at least 1.")
    return tabulate((n, n), lambda i, j: j <= i and (first + i) // chunk == (first + j) // chunk, bool)


@definition()
def tree_mask(parents: Any) -> Bool[Array, "n n"]:
    """Return the mask under which key j is visible to query i where j is i, or an ancestor of i.

    parents[i] is the parent of node i, an earlier node; −1 marks a root. A tree may have several
    roots, which do not see each other.

    Edge cases: no nodes give the empty mask. parents[i] = i − 1 gives the causal mask.
    Raises ValueError unless −1 ≤ parents[i] < i for each i.

    >>> tree_mask([-1, 0, 0])
    array([[ True, False, False],
           [ True,  True, False],
           [ True, False,  True]])
    """
    parent = integers(parents, "parents")
    for node, p in enumerate(parent):
        if not -1 <= p < node:
            raise ValueError(f"parents[{node}]={p}, but should be at least -1 and less than {node}.")

    def reaches(node: int, j: int) -> bool:
        return node == j or (parent[node] >= 0 and reaches(parent[node], j))

    return tabulate((len(parent), len(parent)), reaches, bool)


@definition()
def left_padding_mask(lengths: Any, n: int) -> Bool[Array, "batch n"]:
    """Return the mask of sequences that are padded before their first token: position j of sequence b
    is visible where j ≥ n − lengths[b].

    Edge cases: a sequence of length 0 is all padding. No sequences give the empty mask.
    Raises ValueError unless 0 ≤ lengths[b] ≤ n for each b.

    >>> left_padding_mask([2, 0], 3)
    array([[False,  True,  True],
           [False, False, False]])
    """
    length = integers(lengths, "lengths")
    for b, tokens in enumerate(length):
        if not 0 <= tokens <= n:
            raise ValueError(f"lengths[{b}]={tokens}, but should be at least 0 and at most {n}.")
    return tabulate((len(length), n), lambda b, j: j >= n - length[b], bool)


def position_ids(attention_mask: Any, padding: int = 0) -> list[int]:
    """Return the position of each entry of a sequence: the number of tokens before a token, and
    `padding` at padding. 1 marks a token, and 0 marks padding.

    Edge cases: padding between tokens moves no token. A sequence may be all padding, or empty.
    Raises ValueError for an entry that is neither 0 nor 1.

    >>> position_ids([0, 0, 1, 1, 0, 1])
    [0, 0, 0, 1, 0, 2]
    >>> position_ids([0, 0, 1, 1, 0, 1], padding=1)
    [1, 1, 0, 1, 1, 2]
    """
    mask = integers(attention_mask, "attention_mask")
    for j, entry in enumerate(mask):
        if entry not in (0, 1):
            raise ValueError(f"attention_mask[{j}]={entry}, but should be 0 or 1.")
    return [sum(mask[:j]) if entry else padding for j, entry in enumerate(mask)]
