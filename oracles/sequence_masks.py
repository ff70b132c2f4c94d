"""Masks of documents in one row, of prefixes, chunks and trees, and of padding before the tokens; and
the positions of tokens in padded sequences. Masks are bool arrays, and
`conventions.mask_polarity` says what a true entry means. Positions are int64 arrays.

Masks and positions are exact, so `arithmetic` and `method` do not matter here. Definitions:
`spec.extended.sequence_masks`.
"""

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.masks import LARGEST_MASK, answered, require_entries, row_of_integers
from oracles.options import AnswerOptions, answer, takes

FARTHEST = 2**53
"""The largest distance of a position or a document number from 0."""


@takes(AnswerOptions)
def document_mask(ids_q: Any, ids_k: Any, **options: Unpack[AnswerOptions]) -> NDArray[np.bool_]:
    """Return the mask under which a query attends to the keys of its own document.

    mask[i, j] = (ids_q[i] = ids_k[j]), also where other documents stand between the two tokens. The
    mask is not causal; `combine_masks` combines it with a causal mask. It is inverted where
    `conventions.mask_polarity` is `true_blocks`.

    Shapes: ids_q is (n_q,) and ids_k (n_k,), arrays or sequences of integers; the mask is (n_q,
    n_k).
    Edge cases: 0 queries or keys are legal. A query whose document has no key is a fully masked row.
    Raises TypeError and ValueError unless the document numbers are integers within ±2⁵³ and the mask
    has at most 2²⁸ entries.
    """
    of_queries, of_keys = (
        row_of_integers(ids, name, -FARTHEST, FARTHEST) for ids, name in ((ids_q, "ids_q"), (ids_k, "ids_k"))
    )
    require_entries(n_q=of_queries.size, n_k=of_keys.size)
    return answered(of_queries[:, None] == of_keys, **options)


@takes(AnswerOptions)
def prefix_mask(prefix: Any, n: Any, **options: Unpack[AnswerOptions]) -> NDArray[np.bool_]:
    """Return the mask under which each position attends to the prefix and to all positions up to its
    own.

    mask[i, j] = (j < prefix or j ≤ i). It is inverted where `conventions.mask_polarity` is
    `true_blocks`.

    Shapes: (n, n).
    Edge cases: prefix = 0 gives the causal mask. A prefix of n or more makes all keys visible.
    Raises TypeError and ValueError unless both are natural numbers and give at most 2²⁸ entries.
    """
    keys, positions = arrays.natural(prefix, "prefix"), _positions(n)
    return answered((positions < keys) | (positions <= positions[:, None]), **options)


@takes(AnswerOptions)
def chunked_mask(n: Any, chunk: Any, start: Any = 0, **options: Unpack[AnswerOptions]) -> NDArray[np.bool_]:
    """Return the mask under which each position attends to the positions of its own chunk up to
    itself.

    mask[i, j] = (j ≤ i and ⌊(start + i) / chunk⌋ = ⌊(start + j) / chunk⌋). Row i and column i stand at
    position start + i. ⌊ ⌋ rounds down, also below 0. The mask is inverted where
    `conventions.mask_polarity` is `true_blocks`.

    Shapes: (n, n). Positions count tokens.
    Edge cases: chunk = 1 leaves each position itself. A negative start is legal: padding before the
    first token has negative positions.
    Raises TypeError and ValueError unless n is a natural number, chunk at least 1, start within ±2⁵³,
    and the mask has at most 2²⁸ entries.
    """
    positions, length = _positions(n), arrays.natural(chunk, "chunk", least=1)
    chunks = (positions + arrays.integer(start, "start", -FARTHEST, FARTHEST)) // length
    return answered((positions <= positions[:, None]) & (chunks == chunks[:, None]), **options)


@takes(AnswerOptions)
def tree_mask(parents: Any, **options: Unpack[AnswerOptions]) -> NDArray[np.bool_]:
    """Return the mask under which each node of a tree attends to itself and to its ancestors.

    mask[i, j] = (j = i, or j is an ancestor of i). parents[i] is the parent of node i, an earlier
    node; −1 marks a root. The mask is inverted where `conventions.mask_polarity` is `true_blocks`.

    Shapes: parents is (n,), an array or a sequence of integers; the mask is (n, n).
    Edge cases: several roots are legal: their trees do not see each other. 0 nodes are legal.
    Raises TypeError and ValueError unless −1 ≤ parents[i] < i for each i and the mask has at most 2²⁸
    entries.
    """
    parent = row_of_integers(parents, "parents", -1, LARGEST_MASK)
    later = parent >= np.arange(parent.size)
    if later.any():
        node = int(later.argmax())
        raise ValueError(f"parents[{node}]={parent[node]}, but should be less than {node}, or -1 for a root.")
    require_entries(rows=parent.size, columns=parent.size)
    allowed = np.eye(parent.size, dtype=bool)
    for child in np.flatnonzero(parent >= 0):  # the row of the parent is already complete
        allowed[child] |= allowed[parent[child]]
    return answered(allowed, **options)


@takes(AnswerOptions)
def left_padding_mask(lengths: Any, n: Any, **options: Unpack[AnswerOptions]) -> NDArray[np.bool_]:
    """Return the mask of sequences that are padded before their first token: true at the tokens.

    mask[b, j] = (j ≥ n − lengths[b]). Where `conventions.mask_polarity` is `true_blocks`, the mask is
    inverted: true at padding.

    Shapes: lengths is (batch,), an array or a sequence of integers; the mask is (batch, n).
    Edge cases: a sequence of length 0 is all padding. Sizes may be 0.
    Raises TypeError and ValueError unless lengths are natural numbers up to n and the mask has at
    most 2²⁸ entries.
    """
    columns = arrays.natural(n, "n", most=LARGEST_MASK)
    tokens = row_of_integers(lengths, "lengths", 0, columns)
    require_entries(batch=tokens.size, n=columns)
    return answered(np.arange(columns) >= columns - tokens[:, None], **options)


@takes(AnswerOptions)
def position_ids(attention_mask: Any, **options: Unpack[AnswerOptions]) -> NDArray[np.int64]:
    """Return the position of each token in its sequence: the number of tokens up to it, minus 1.

    position[…, j] = Σ_{i ≤ j} attention_mask[…, i] − 1 where attention_mask[…, j] = 1. Padding, where it
    is 0, has the position 0, or 1 where `conventions.padding_position` is `one`.

    Shapes: attention_mask is (…, n), of integers 0 and 1 or of booleans; the result has its shape. 1
    and True mark tokens, whatever `conventions.mask_polarity` is.
    Edge cases: n may be 0. Padding stands anywhere, and a sequence may be all padding.
    Raises TypeError for other element types. Raises ValueError for entries other than 0 and 1, for an
    array without axes, and for more than 2²⁸ entries.
    """
    _, conventions, _ = answer(options)
    mask = arrays.as_numpy(attention_mask, "attention_mask")
    if mask.ndim == 0 or mask.size > LARGEST_MASK:
        raise ValueError(
            f"attention_mask has shape {mask.shape}, but should have an axis, and at most {LARGEST_MASK} entries."
        )
    tokens = arrays.integers(mask.astype(np.int64) if mask.dtype == np.bool_ else mask, "attention_mask", 0, 1)
    return np.where(tokens == 1, np.cumsum(tokens, axis=-1) - 1, int(conventions.padding_position == "one"))


def _positions(n: Any) -> NDArray[np.int64]:
    """Return 0 … n − 1. Raises TypeError or ValueError where n is not the size of a square mask."""
    length = arrays.natural(n, "n", most=LARGEST_MASK)
    require_entries(rows=length, columns=length)
    return np.arange(length)
