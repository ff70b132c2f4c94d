"""Known bugs of masks of documents, prefixes, chunks and trees, and of padding before the tokens."""

from typing import Any

import numpy as np

from properties.bugs.bug import Register
from properties.bugs.reference import causal_mask, chunked_mask, document_mask, prefix_mask

bug = Register(law="a mask of sequences equals its definition")


# -- Documents -------------------------------------------------------------------------------------


@bug.in_operation(
    "document_mask",
    effect="The tokens of a document that comes back after a gap do not see each other.",
    repair="Compare the numbers of the documents, not the runs of equal numbers.",
    origin="code that finds packed sequences counts the places where the number or the position changes",
)
def document_runs_only(ids_q: Any, ids_k: Any) -> Any:
    """The code numbers the runs of equal document numbers, so a document that comes back is a new
    one.
    """
    runs = [np.cumsum(np.diff(ids, prepend=ids[:1]) != 0) for ids in (ids_q, ids_k)]
    return document_mask(*runs) & document_mask(ids_q, ids_k)


@bug.in_operation(
    "document_mask",
    effect="Queries attend to other documents where queries and keys differ.",
    repair="Compare the documents of the queries with the documents of the keys.",
    origin="in training both are the same array; with a cache they differ",
)
def document_of_the_keys_for_both(ids_q: Any, ids_k: Any) -> Any:
    """The code takes the documents of the first keys for the documents of the queries."""
    return document_mask(np.resize(ids_k, len(ids_q)) if len(ids_k) else ids_q, ids_k)


@bug.in_operation(
    "document_mask",
    effect="The tokens of document 0 see nothing.",
    repair="Number documents from 0, or state that 0 marks padding.",
    origin="packed masks such as 1, 1, 2, 2, 0 mark padding with 0; compare hiyouga/LlamaFactory#7754",
)
def document_zero_is_padding(ids_q: Any, ids_k: Any) -> Any:
    """The code takes the number 0 for padding, as packed attention masks 1, 1, 2, 2, 0 have it."""
    return document_mask(ids_q, ids_k) & (ids_k != 0)


@bug.in_operation(
    "document_mask",
    effect="Documents whose numbers differ by a multiple of 256 see each other.",
    repair="Keep the numbers in at least 32 bits.",
    origin="attention masks of tokenizers have 8 bits; a packed row may have more than 255 documents",
)
def document_numbers_in_8_bits(ids_q: Any, ids_k: Any) -> Any:
    """The code stores the numbers of the documents in 8 bits: −1 and 255 are equal."""
    return document_mask(ids_q.astype(np.uint8), np.maximum(ids_k, 0).astype(np.uint8)) & (ids_k >= 0)


@bug.in_operation(
    "document_mask",
    effect="Queries attend to the documents before their own.",
    repair="Compare with ==.",
    citations="huggingface/transformers#46634",
)
def document_sees_earlier_ones(ids_q: Any, ids_k: Any) -> Any:
    """The mask of documents is lost, and only their order is left: earlier documents are visible."""
    return ids_q[:, None] >= ids_k


# -- Prefixes --------------------------------------------------------------------------------------


@bug.in_operation(
    "prefix_mask",
    effect="All positions see one key after the prefix.",
    repair="Show key j if j < prefix.",
    origin="positions count from 0 and lengths from 1",
)
def prefix_one_too_many(prefix: int, n: int) -> Any:
    """The code shows key j to all positions if j ≤ prefix."""
    return prefix_mask(prefix + 1, n)


@bug.in_operation(
    "prefix_mask",
    effect="The prefix is causal: its positions do not see later ones of the prefix.",
    repair="Show the keys of the prefix to all positions.",
    origin="without the length of the prefix a model falls back to its causal mask",
)
def prefix_is_causal(prefix: int, n: int) -> Any:
    """The code applies the causal mask to the prefix too."""
    return causal_mask(n)


@bug.in_operation(
    "prefix_mask",
    effect="Positions after the prefix see later positions.",
    repair="Apply the causal mask to all positions after the prefix.",
    citations="huggingface/transformers#30918",
)
def prefix_everything_visible(prefix: int, n: int) -> Any:
    """The code makes all keys visible where there is a prefix."""
    return np.ones((n, n), bool) if prefix else causal_mask(n)


# -- Chunks ----------------------------------------------------------------------------------------


@bug.in_operation(
    "chunked_mask",
    effect="With padding before the first token, the chunks begin at wrong positions.",
    repair="Count positions from the first token: subtract the padding from the row number.",
    citations="huggingface/transformers#40214; huggingface/transformers#40324",
)
def chunks_ignore_the_start(n: int, chunk: int, start: int) -> Any:
    """The code counts chunks from the first row, not from position 0."""
    return chunked_mask(n, chunk, 0)


@bug.in_operation(
    "chunked_mask",
    effect="Two chunks around position 0 are one.",
    repair="Round down: divide with floor division.",
    origin="in C and CUDA −1 / 4 is 0, in Python −1 // 4 is −1",
)
def chunks_round_toward_zero(n: int, chunk: int, start: int) -> Any:
    """The code divides negative positions as C does: toward zero."""
    positions = start + np.arange(n)
    chunks = np.sign(positions) * (abs(positions) // chunk)
    return (chunks[:, None] == chunks) & causal_mask(n)


@bug.in_operation(
    "chunked_mask",
    effect="Positions see keys of the chunk before their own.",
    repair="Compare the numbers of the chunks, not the distance.",
    origin="a sliding window is the other kind of local attention",
)
def chunks_as_a_sliding_window(n: int, chunk: int, start: int) -> Any:
    """The code shows the last `chunk` keys, as a sliding window does."""
    return causal_mask(n) & ~np.tri(n, k=-chunk, dtype=bool)


@bug.in_operation(
    "chunked_mask",
    effect="Positions see later positions of their chunk.",
    repair="Combine the chunks with the causal mask.",
    origin="a mask of blocks alone is not causal",
)
def chunks_without_causality(n: int, chunk: int, start: int) -> Any:
    """The code compares the numbers of the chunks only."""
    chunks = (start + np.arange(n)) // chunk
    return chunks[:, None] == chunks


# -- Trees -----------------------------------------------------------------------------------------


@bug.in_operation(
    "tree_mask",
    effect="A node sees its parent and no earlier ancestor.",
    repair="Copy the row of the parent.",
    origin="one step of the recursion",
)
def tree_parent_only(parents: Any) -> Any:
    """The code marks the node and its parent."""
    nodes = np.arange(len(parents))
    return (nodes[:, None] == nodes) | (parents[:, None] == nodes)


@bug.in_operation(
    "tree_mask",
    effect="A node sees its siblings and other branches.",
    repair="Apply the mask of the tree below the diagonal too.",
    citations="PaddlePaddle/FastDeploy#3514",
)
def tree_as_a_chain(parents: Any) -> Any:
    """The code takes the causal mask: it does not apply the mask of the tree below the diagonal."""
    return causal_mask(len(parents))


@bug.in_operation(
    "tree_mask",
    effect="Roots see the last node and its ancestors.",
    repair="Stop at −1.",
    origin="in Python an index of −1 is the last entry",
)
def tree_root_wraps_around(parents: Any) -> Any:
    """The code copies the row of the parent, and for a root, whose parent is −1, the last row."""
    mask = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        mask[node] |= mask[parent]
    return mask


@bug.in_operation(
    "tree_mask",
    effect="A node does not see itself.",
    repair="Set the diagonal.",
    origin="ancestors are those above a node",
)
def tree_without_the_node(parents: Any) -> Any:
    """The code marks the ancestors only."""
    mask = np.zeros((len(parents), len(parents)), bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] = mask[parent]
            mask[node, parent] = True
    return mask


# -- Padding before the tokens ---------------------------------------------------------------------


@bug.in_operation(
    "left_padding_mask",
    effect="Queries attend to padding, and do not see their last tokens.",
    repair="Compare positions with n − length.",
    origin="batches for training are padded at the end, batches for generation at the beginning",
)
def left_padding_at_the_end(lengths: Any, n: int) -> Any:
    """The first positions are visible instead of the last."""
    return np.arange(n) < lengths[:, None]


@bug.in_operation(
    "left_padding_mask",
    effect="Queries attend to padding.",
    repair="Hand the mask of the padding to attention.",
    citations="ml-explore/mlx-lm#1906",
)
def left_padding_ignored(lengths: Any, n: int) -> Any:
    """The code makes all positions of a sequence visible."""
    return np.ones((len(lengths), n), bool)


@bug.in_operation(
    "left_padding_mask",
    effect="All positions of an empty sequence are visible.",
    repair="Compare each position with n − length.",
    origin="in Python mask[-0:] is the whole row",
)
def left_padding_empty_sequence_is_full(lengths: Any, n: int) -> Any:
    """The code sets mask[-length:], and with a length of 0 this is the whole row."""
    mask = np.zeros((len(lengths), n), bool)
    for row, length in zip(mask, lengths, strict=True):
        row[-length:] = True
    return mask
