"""Known bugs of batched key-value caches: which row they write and read, what they copy, free and
count for each row, and what they forget about an option. Each mutant is a correct cache with one
wrong step.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.caches import cache_bugs
from properties.bugs.reference_attention import attention
from properties.bugs.reference_batched_caches import BatchedCached, Rows, Slotted

bug = Register()
DECODE = "batched_decode"
PREFILL, SHARED = "decoding equals prefill", "the order of positions that all queries see does not matter"
REORDER, FORK, FREE = (
    "a reorder and its inverse change nothing",
    "a fork shares no state with its source",
    "a freed row is like a new row",
)
REFUSED, ROLLBACK = "a step that one row refuses changes no row", "a rolled-back append changes nothing"


cache_bug = partial(cache_bugs(bug, DECODE, BatchedCached), Slotted)


# -- Rows ------------------------------------------------------------------------------------------


@cache_bug(
    "append",
    law=PREFILL,
    effect="Sequences read keys of other sequences.",
    repair="Look up the slots of each sequence by its own row.",
    citations="gittensor-ai-lab/sparkinfer#289",
)
def batched_cache_rows_by_their_place(self: Slotted, k: Array, v: Array, rows: Rows = None) -> None:
    """The code writes the keys of the first given row to row 0, of the second to row 1, and so on."""
    chosen, n = self.chosen(rows), k.shape[-2]
    for row in chosen:
        self.admit(row, n)
    for place, row in enumerate(chosen):
        self.overwrite(row, n)
        self.make_room(row, n)
        slots = self.free_slots(row)[:n]
        self.k[place][:, slots], self.v[place][:, slots] = k[place], v[place]
        self.held[row][slots] = np.arange(self.end[row], self.end[row] + n)
        self.advance(row, n)


@cache_bug(
    "positions",
    law=PREFILL,
    effect="Short sequences in a batch see later keys, or keys of the window are missing.",
    repair="Keep a position for each sequence.",
    citations="rasbt/reasoning-from-scratch#33; Comfy-Org/ComfyUI#15698",
)
def batched_cache_positions_of_the_longest_row(self: Slotted, row: int, n: int) -> Any:
    """The code counts positions once for the batch, by its longest sequence."""
    return Slotted.positions(self, int(self.end.argmax()), n)


@cache_bug(
    "read",
    law=PREFILL,
    effect="A sequence attends to zeros behind its end.",
    repair="Mask each row by its own length.",
    citations="flashinfer-ai/flashinfer#3716",
)
def batched_cache_rows_as_long_as_the_longest(self: Slotted, row: int) -> Any:
    """Without a causal mask, all rows read as many slots as the longest row has."""
    slots = Slotted.read(self, row)
    if self.causal:
        return slots
    unused = self.free_slots(row)[: int(self.end.max() - self.end[row])]
    return np.concatenate([slots, unused])


@cache_bug(
    "append",
    law=REFUSED,
    effect="After a refusal, some rows hold keys that were never added.",
    repair="Check all rows before any of them changes.",
    origin="the check stands inside the loop over the rows",
)
def batched_cache_refuses_after_some_rows(self: Slotted, k: Array, v: Array, rows: Rows = None) -> None:
    """The cache checks the capacity of each row right before it writes the row."""
    for place, row in enumerate(self.chosen(rows)):
        self.admit(row, k.shape[-2])
        Slotted.append(self, k[place : place + 1], v[place : place + 1], [row])


# -- Copies ----------------------------------------------------------------------------------------


@cache_bug(
    "reorder",
    law=PREFILL,
    effect="Beams continue with the keys of other beams.",
    repair="Reorder every cache by the index of the beams.",
    citations="huggingface/transformers#46612; bigscience-workshop/petals#571",
)
def batched_cache_reorder_skipped(self: Slotted, index: Sequence[int]) -> None:
    """The cache does not reorder its rows; it only checks the index."""
    kept = [array.copy() for array in self.state]
    Slotted.reorder(self, index)
    for array, before in zip(self.state, kept, strict=True):
        array[:] = before


@cache_bug(
    "reorder",
    law=PREFILL,
    effect="Beams have the lengths of their sources, and keys of others.",
    repair="Reorder the buffers with the histories.",
    citations="mobilint/mblt-model-zoo#78",
)
def batched_cache_reorder_of_the_lengths_alone(self: Slotted, index: Sequence[int]) -> None:
    """A reorder moves positions and lengths, and leaves keys and values where they are."""
    k, v = self.k.copy(), self.v.copy()
    Slotted.reorder(self, index)
    self.k[:], self.v[:] = k, v


@cache_bug(
    "reorder",
    law=REORDER,
    effect="One of two exchanged beams is lost.",
    repair="Gather all rows before any is overwritten.",
    origin="rows are copied one after the other, in place",
)
def batched_cache_reorder_in_place(self: Slotted, index: Sequence[int]) -> None:
    """A reorder copies rows one by one, so a later row may copy a row that was overwritten."""
    Slotted.reorder(self, [*range(len(self.end))] if len(index) == len(self.end) else index)
    for row in index:
        self.chosen([row])
    for target, source in enumerate(index):
        Slotted.fork(self, source, target)


@cache_bug(
    "fork",
    "write",
    law=FORK,
    effect="Two continuations of one prompt overwrite each other.",
    repair="Copy the page that both would write.",
    citations="ggml-org/llama.cpp#3802",
)
def batched_cache_fork_without_a_copy(self: Slotted, *arguments: Any) -> None:
    """A fork shares memory with its source, and the next write to one of them changes both."""
    if len(arguments) == 2:
        Slotted.fork(self, *arguments)
        self.memory[self, arguments[1]] = arguments[0]
        return
    row, k, v = arguments
    slots = self.free_slots(row)[: k.shape[-2]]
    Slotted.write(self, row, k, v)
    source = self.memory.pop((self, row), row)
    self.k[source][:, slots], self.v[source][:, slots] = k, v


# -- What goes -------------------------------------------------------------------------------------


@cache_bug(
    "free",
    law=FREE,
    effect="A new sequence continues the one before it.",
    repair="Clear the slot when it is given to another request.",
    citations="ggml-org/llama.cpp#27624",
)
def batched_cache_freed_row_keeps_its_keys(self: Slotted, row: int) -> None:
    """A freed row counts from 0 again, but its old keys stay visible."""
    kept = self.held[row].copy()
    Slotted.free(self, row)
    self.held[row] = np.where(kept >= 0, 0, -1)


@cache_bug(
    "free",
    law=PREFILL,
    effect="Other sequences lose their history.",
    repair="Clear the cells of one sequence.",
    citations="ggml-org/llama.cpp#25521",
)
def batched_cache_free_clears_all_rows(self: Slotted, row: int) -> None:
    """A free of one row clears the keys and values of all rows."""
    Slotted.free(self, row)
    self.k[:], self.v[:] = 0.0, 0.0


@cache_bug(
    "rollback",
    law=ROLLBACK,
    effect="Rejected drafts of a row keep weight.",
    repair="Remove the rejected positions of each row.",
    citations="Blaizzy/mlx-vlm#1962; Blaizzy/mlx-vlm#2113",
)
def batched_cache_rollback_zeroes_the_tail(self: Slotted, n: int, rows: Rows = None) -> None:
    """A rollback overwrites rejected keys and values with zeros, and they stay visible."""
    chosen, before = self.chosen(rows), self.held.copy()
    Slotted.rollback(self, n, rows)
    for row in chosen:
        gone = (before[row] >= 0) & (self.held[row] < 0)
        self.k[row][:, gone], self.v[row][:, gone] = 0.0, 0.0
        self.held[row][gone] = max(self.end[row] - 1, 0)


@cache_bug(
    "rollback",
    law=PREFILL,
    effect="Rows that rejected fewer drafts lose keys.",
    repair="Keep a length for each row.",
    citations="Blaizzy/mlx-vlm#1155",
)
def batched_cache_rollback_of_all_rows(self: Slotted, n: int, rows: Rows = None) -> None:
    """A rollback of some rows removes the newest keys of all rows."""
    Slotted.rollback(self, n, rows)
    for row in {*range(len(self.end))}.difference(self.chosen(rows)):
        self.held[row][self.held[row] >= self.end[row] - n] = -1


@cache_bug(
    "evict",
    law="each query of a cache reads what it should",
    effect="The newest context is lost.",
    repair="Evict the positions right behind the prefix.",
    citations="JaydenLyh/Reward-Forcing#5",
)
def batched_cache_evicts_the_newest(self: Slotted, n: int, rows: Rows = None) -> None:
    """With a prefix, the code drops the newest keys instead of the oldest ones behind the prefix."""
    before = self.held.copy()
    Slotted.evict(self, n, rows)
    for row in self.chosen(rows) if self.prefix else ():
        self.held[row] = np.where(before[row] >= self.end[row] - n, -1, before[row])


@cache_bug(
    "make_room",
    law=PREFILL,
    effect="After a compaction, sequences read keys of other positions.",
    repair="Move the positions with the keys.",
    citations="ggml-org/llama.cpp#12253; ggml-org/llama.cpp#5735",
)
def batched_cache_moved_without_its_positions(self: Slotted, row: int, n: int) -> None:
    """When a buffer grows, keys and values move by one slot, and their positions stay."""
    size = self.held.shape[1]
    Slotted.make_room(self, row, n)
    if self.held.shape[1] > size:
        self.k, self.v = (np.roll(x, 1, -2) for x in (self.k, self.v))


@cache_bug(
    "overwrite",
    law=PREFILL,
    effect="The first queries of a chunk miss keys of their window.",
    repair="Keep the window of the oldest query of the chunk.",
    citations="sgl-project/sglang#8649",
)
def batched_cache_evicts_within_the_window(self: Slotted, row: int, n: int) -> None:
    """Before a chunk of several keys, a ring drops all older keys behind the prefix."""
    Slotted.overwrite(self, row, n)
    if self.wraps and n > 1:
        self.held[row][self.held[row] >= self.prefix] = -1


# -- Options ---------------------------------------------------------------------------------------


@cache_bug(
    "visible",
    law=PREFILL,
    effect="The first tokens leave the window, and outputs degrade.",
    repair="Keep the prefix visible.",
    origin="the mask of the window is written before the cache has a prefix",
)
def batched_cache_prefix_leaves_the_window(self: Slotted, row: int, p: Any, j: Any) -> Any:
    """The window also masks the prefix."""
    return Slotted.visible(self, row, p, j) & (True if self.left is None else (j >= p - self.left))


@cache_bug(
    "visible",
    law=SHARED,
    effect="Positions of the prefix do not see each other.",
    repair="Let all positions see the whole prefix.",
    origin="the causal mask is built for all positions",
)
def batched_cache_prefix_is_causal(self: Slotted, row: int, p: Any, j: Any) -> Any:
    """Positions of the prefix see earlier positions only."""
    return Slotted.visible(self, row, p, j) & ((j <= p) | (not self.causal))


@cache_bug(
    "visible",
    law=SHARED,
    effect="Cross-attention misses the last keys if several queries come at once.",
    repair="Use no causal mask for cross-attention.",
    citations="vllm-project/vllm#38321",
)
def batched_cache_cross_attention_is_causal(self: Slotted, row: int, p: Any, j: Any) -> Any:
    """With several queries, cross-attention gets the causal mask of a prompt."""
    return Slotted.visible(self, row, p, j) & (True if self.causal or len(p) == 1 else (j <= p))


@cache_bug(
    "distances",
    law=PREFILL,
    effect="Decoding has no ALiBi, and differs from the prompt.",
    repair="Build the bias for all cached keys.",
    citations="keras-team/keras-hub#2861; keras-team/keras-hub#2977",
)
def batched_cache_alibi_of_the_queries(self: Slotted, p: Any, j: Any) -> Any:
    """The code builds ALiBi for the new positions only: one query gets no bias at all."""
    return np.abs(p - j) if len(p) > 1 else np.zeros((1, len(j)))


@cache_bug(
    "attention",
    law=PREFILL,
    effect="Decoding has no sink, and its weights are too large.",
    repair="Pass the sink in every step.",
    origin="the kernel for one query is another one, and it has no parameter for a sink",
)
def batched_cache_sink_forgotten_at_decode(self: Slotted, q: Array, k: Array, v: Array, **features: Any) -> Any:
    """A step with one query leaves out the sink."""
    options = {**self.options, "sink": self.options["sink"] if q.shape[-2] > 1 else None}
    return attention(q, k, v, **features, **options)
