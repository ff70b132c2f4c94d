"""Known bugs of key-value caches: how they count, keep, find and read positions, and what they
share. Each mutant is a correct cache with one wrong step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Mutant, Register
from properties.bugs.reference_caches import PAGE, Buffered, Cached, Paged, attended
from properties.contract.caches import Runner

bug = Register()
DECODE = "decode"
PREFILL, ROLLBACK = "decoding equals prefill", "a rolled-back append changes nothing"
EVICTED, UNUSED = "evicted positions do not change later results", "the content of unused slots does not matter"
SIDE, RESTART = "two caches share no state", "a restart empties the cache"
REFUSED, GONE = "a refused step changes nothing", "a ring buffer refuses to attend to overwritten positions"


def cache_bugs(
    register: Register, operation: str, cached: Callable[..., Runner]
) -> Callable[..., Callable[[Mutant], Mutant]]:
    """Return the maker of decorators for functions that replace a step, or several steps, of a correct
    cache: `cache_bug(cache, *steps, law="…", …)`. `cached` makes the operation from the cache.
    """

    def cache_bug(cache: type, *steps: str, **entry: Any) -> Callable[[Mutant], Mutant]:
        def add(function: Mutant) -> Mutant:
            def make() -> Runner:
                return cached(cache, function.__name__, dict.fromkeys(steps, function))

            make.__name__, make.__doc__ = function.__name__, function.__doc__
            register.in_operation(operation, making=True, **entry)(make)
            return function

        return add

    return cache_bug


cache_bug = cache_bugs(bug, DECODE, Cached)


# -- Windows ---------------------------------------------------------------------------------------


@cache_bug(
    Buffered,
    "visible",
    law=PREFILL,
    effect="Decoding and prefill differ by the oldest key.",
    repair="Keep L + 1 keys, or include the key of the query in L.",
    citations="lightseekorg/tokenspeed#578",
)
def cache_window_one_key_short_at_decode(self: Buffered, p: Any, j: Any) -> Any:
    """While decoding, the cache keeps the last L keys, but a left bound of L shows L + 1."""
    is_own = j == p
    return Buffered.visible(self, p, j) & (True if len(p) > 1 or self.left is None else is_own | (j > p - self.left))


@cache_bug(
    Buffered,
    "visible",
    law=PREFILL,
    effect="The same token has other logits when it is decoded.",
    repair="Use one definition of the window for both.",
    citations="ml-explore/mlx-lm#390",
)
def cache_window_one_key_too_many_at_prefill(self: Buffered, p: Any, j: Any) -> Any:
    """The mask of a prompt shows one key more than the cache keeps."""
    wider = self.left is not None and len(p) > 1
    return (j <= p) & (j >= p - (self.left or 0) - 1) if wider else Buffered.visible(self, p, j)


@cache_bug(
    Buffered,
    "visible",
    law=PREFILL,
    effect="With a cache, decoding attends to the wrong keys.",
    repair="Add the length of the cache to the rows.",
    citations="keras-team/keras-hub#1738",
)
def cache_window_of_the_queries(self: Buffered, p: Any, j: Any) -> Any:
    """The window numbers the query rows from 0, as if no keys were cached, and its width is cut to
    the number of queries.
    """
    if self.left is None:
        return Buffered.visible(self, p, j)
    count = len(p)
    return (
        (j <= p)
        & (j >= np.arange(count)[:, None] - min(count, self.left))
        & (j <= np.arange(count)[:, None] + max(p[-1, 0] - count, 0) + 1 - (count == 1))
    )


# -- Rings -----------------------------------------------------------------------------------------


@cache_bug(
    Buffered,
    "require",
    law=REFUSED,
    effect="The first rows lose keys of their window.",
    repair="Keep enough slots for the window and the chunk, or refuse the prompt.",
    citations="Lightning-AI/litgpt#2182",
)
def cache_ring_shorter_than_the_prompt(self: Buffered, n: int) -> None:
    """A prompt that is longer than the ring overwrites slots before its first rows are computed."""
    if n > self.end - self.first:
        raise ValueError(f"{n} queries are more than the positions.")


@cache_bug(
    Buffered,
    "slots",
    law=PREFILL,
    effect="After the first wrap, queries see old keys and miss new ones.",
    repair="Compute the slot of each position around the ring.",
    citations="Blaizzy/mlx-vlm#1715",
)
def cache_ring_read_by_its_length(self: Buffered, positions: Any) -> Any:
    """After a ring wraps, the code reads its slots as if they were in order of time."""
    reads = len(positions) and positions[-1] < self.end and self.wraps
    return positions - positions[0] if reads else Buffered.slots(self, positions)


@cache_bug(
    Buffered,
    "attend",
    law=UNUSED,
    effect="Unused slots get weight until the buffer is full.",
    repair="Mask unused slots.",
    citations="lablup/mlxcel#1776",
)
def cache_mask_as_wide_as_the_buffer(self: Buffered, q: Array) -> tuple[Array, Array]:
    """The mask is as wide as the buffer, so unused slots are visible."""
    self.require(len(q))
    slots, j = self.read()
    unused_slots = np.setdiff1d(self.own(), slots)
    q = self.rotated(q, self.offset - len(q))
    visible = np.concatenate([self.visible(self.positions(len(q)), j), np.ones((len(q), len(unused_slots)), bool)], 1)
    slots = np.concatenate([slots, unused_slots])
    return attended(q, self.k[slots], self.v[slots], visible)


@cache_bug(
    Buffered,
    "rollback",
    law=GONE,
    effect="After a rejected draft, the window contains keys of the draft.",
    repair="Record which positions were overwritten.",
    origin="a ring that stores only its end treats all earlier positions as present",
)
def cache_ring_rolls_back_to_what_is_overwritten(self: Buffered, n: int) -> None:
    """A rollback restores positions whose slots hold newer keys."""
    Buffered.rollback(self, n)
    self.dropped = max(0, self.end - (self.capacity or 0)) if self.wraps else 0


# -- Positions -------------------------------------------------------------------------------------


@cache_bug(
    Buffered,
    "evict",
    law=EVICTED,
    effect="Positions decrease, and queries miss the newest keys.",
    repair="Count positions separately from rows.",
    citations="rajveer43/VeloxQuant-MLX#389",
)
def cache_offset_of_the_rows_kept(self: Buffered, n: int) -> None:
    """After an eviction, the offset is the number of kept rows."""
    Buffered.evict(self, n)
    self.offset = self.end - self.first


@cache_bug(
    Buffered,
    "advance",
    law=PREFILL,
    effect="Positions jump after the prompt.",
    repair="Advance the offset in one place.",
    citations="skyzh/tiny-llm#46",
)
def cache_prompt_counted_twice(self: Buffered, n: int) -> None:
    """The code adds the length of the prompt to the offset twice."""
    self.offset += n if self.end == 0 else 0
    Buffered.advance(self, n)


@cache_bug(
    Buffered,
    "positions",
    law=PREFILL,
    effect="Chunks after the first see only the oldest keys.",
    repair="Add the length of the cache to the rows.",
    origin="the code passes a causal flag without the length of the cache",
)
def cache_chunk_aligned_top_left(self: Buffered, n: int) -> Any:
    """The code counts the rows of a chunk from the first key, like a default causal mask; a single
    query sees all keys."""
    return Buffered.positions(self, n) if n == 1 else np.arange(self.first, self.first + n)[:, None]


@cache_bug(
    Buffered,
    "visible",
    law=PREFILL,
    effect="Rows of a chunk see later rows.",
    repair="Apply a causal mask to the rows of a chunk.",
    origin="chunks with a cache were added after decoding of single tokens",
)
def cache_chunk_sees_its_future(self: Buffered, p: Any, j: Any) -> Any:
    """With a cache, the code builds no mask, because a single query needs none."""
    past = len(j) > len(p)
    return Buffered.visible(self, np.full_like(p, p[-1, 0]) if past and len(p) else p, j) & (
        Buffered.visible(self, p, j) | (j > p)
    )


# -- What goes, and what is refused ----------------------------------------------------------------


@cache_bug(
    Buffered,
    "rollback",
    law=ROLLBACK,
    effect="Rejected drafts stay, and the start of the prompt is lost.",
    repair="Drop rows from the end.",
    origin="a function that trims from the front already exists",
)
def cache_rollback_of_the_oldest(self: Buffered, n: int) -> None:
    """A rollback moves the slots as if it dropped the oldest positions."""
    Buffered.rollback(self, n)
    self.k, self.v = (np.concatenate([x[n:], x[:n]]) for x in (self.k, self.v))


@cache_bug(
    Buffered,
    "rollback",
    law=ROLLBACK,
    effect="All later queries see the rejected drafts.",
    repair="Update both counts together.",
    origin="the code has two counters and forgets one",
)
def cache_rollback_of_the_count_alone(self: Buffered, n: int) -> None:
    """A rollback reduces the count of positions but not the count of keys."""
    self.require_held(n)
    self.offset -= n


@cache_bug(
    Buffered,
    "append",
    law=REFUSED,
    effect="After a refusal, the count includes keys that were never added.",
    repair="Check the capacity first.",
    origin="no test continues after an exception",
)
def cache_refuses_after_it_has_counted(self: Buffered, k: Array, v: Array) -> None:
    """The cache counts positions before it checks the capacity."""
    try:
        self.admit(len(k))
    except ValueError:
        self.offset += len(k)
        raise
    self.make_room(len(k))
    self.write(self.rotated(k, self.offset), v)
    self.advance(len(k))


@cache_bug(
    Buffered,
    "admit",
    law=REFUSED,
    effect="The cache uses memory that was not reserved.",
    repair="Compare with the capacity.",
    origin="tests stay below the capacity",
)
def cache_without_a_limit(self: Buffered, n: int) -> None:
    """The cache stores the capacity and accepts more positions."""


# -- Pages -----------------------------------------------------------------------------------------


@cache_bug(
    Paged,
    "read",
    law=PREFILL,
    effect="A key that was never added gets weight; keys near zero do not show it.",
    repair="Round the number of pages up instead of rounding down and adding one.",
    citations="pegainfer-project/pegainfer#291",
)
def cache_one_page_too_many(self: Paged) -> tuple[Any, Any]:
    """If the length is a multiple of the page size, the code reads one page too many."""
    slots, j = Buffered.read(self)
    if not len(j) or self.end % PAGE:
        return slots, j
    beyond = (
        self.pool.free[-1] * PAGE
        if self.pool.free
        else (self.table[self.end // PAGE - 1] * PAGE + PAGE) % len(self.pool.k)
    )
    return np.append(slots, beyond), np.append(j, j[-1])


@cache_bug(
    Paged,
    "write",
    law=PREFILL,
    effect="The keys of another sequence change.",
    repair="Write only the rows of the chunk.",
    citations="tenstorrent/tt-metal#56324",
)
def cache_padded_tail_in_other_pages(self: Paged, k: Array, v: Array) -> None:
    """The code pads a chunk to a tile of two pages and writes the padding into pages of other
    sequences."""
    last_slot = int(self.slots(np.array([self.end + len(k) - 1]))[0])
    tail = np.arange(last_slot + 1, min(last_slot + 1 + -len(k) % (2 * PAGE), len(self.k)))
    self.k[tail], self.v[tail] = 0.0, 0.0
    Buffered.write(self, k, v)


@cache_bug(
    Paged,
    "give_back",
    law=PREFILL,
    effect="Other sequences overwrite keys that are still visible.",
    repair="Return a page when its last position is evicted.",
    origin="tests evict whole pages",
)
def cache_pages_given_back_by_the_oldest(self: Paged) -> None:
    """The cache returns a page to the pool when its first position is evicted."""
    for page in [page for page in self.table if page * PAGE < self.first or page * PAGE >= self.end]:
        self.pool.free.append(self.table[page])
        if page * PAGE >= self.end or (page + 1) * PAGE <= self.first:
            del self.table[page]


# -- What is shared --------------------------------------------------------------------------------


def _shared(cache: Buffered) -> dict[Any, Any]:
    """Return the memory that all caches of a class share."""
    result: dict[Any, Any] = type(cache).memory  # type: ignore[attr-defined]
    return result


@cache_bug(
    Buffered,
    "prepare",
    law=SIDE,
    effect="A sequence overwrites the keys of another.",
    repair="Allocate buffers for each cache.",
    origin="the buffer is a default argument or an attribute of the class",
)
def cache_buffers_shared(self: Buffered, d: int, d_v: int) -> None:
    """All caches of one size share their buffers."""
    size = self.capacity or PAGE
    self.k, self.v = _shared(self).setdefault((size, d, d_v), (np.zeros((size, d)), np.zeros((size, d_v))))


def _behind(self: Buffered, q: Array, before: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the output and the log-sum-exp. All queries also see the keys and values in `before`,
    which stand before the cached ones.
    """
    self.require(len(q))
    slots, j = self.read()
    keys, values = (np.concatenate([x, y[slots]]) for x, y in zip(before, (self.k, self.v), strict=True))
    q = self.rotated(q, self.offset - len(q))
    visible = self.visible(self.positions(len(q)), j)
    return attended(q, keys, values, np.concatenate([np.ones((len(q), len(before[0])), bool), visible], 1))


@cache_bug(
    Buffered,
    "attend",
    law=SIDE,
    effect="Sequences see the keys of other sequences.",
    repair="Mask by the boundaries.",
    citations="Tencent-Hunyuan/HunyuanVideo#310",
)
def cache_boundaries_ignored(self: Buffered, q: Array) -> tuple[Array, Array]:
    """The code packs sequences side by side and ignores their boundaries."""
    slots, _ = self.read()
    others = [x for owner, x in _shared(self).items() if owner is not self]
    _shared(self)[self] = self.k[slots], self.v[slots]
    return _behind(self, q, others[0] if others else (self.k[:0], self.v[:0]))


@cache_bug(
    Buffered,
    "prepare",
    "advance",
    law=RESTART,
    effect="Masks by position, and angles, belong to later rows.",
    repair="Reset the position with the sequence.",
    citations="allenai/OLMo-core#591",
)
def cache_positions_go_on_in_the_next_sequence(self: Buffered, *numbers: int) -> None:
    """A new sequence continues the positions of the previous one."""
    if len(numbers) == 2:
        Buffered.prepare(self, *numbers)
        self.offset = _shared(self).get("offset", 0)
    else:
        Buffered.advance(self, *numbers)
        _shared(self)["offset"] = self.offset


@cache_bug(
    Buffered,
    "advance",
    "attend",
    law=RESTART,
    effect="One-token documents merge with the next document.",
    repair="Store the lengths of sequences.",
    citations="modelscope/ms-swift#9904",
)
def cache_sequences_of_one_token_merge(self: Buffered, x: Any) -> Any:
    """The code starts a sequence where the position decreases, so a sequence after a one-token
    sequence does not start."""
    if isinstance(x, int):
        previous, _shared(self)["last"] = _shared(self).get("last", self), self
        if self.end == 0 and previous is not self and previous.end == 1:
            vars(self)["before"] = previous.k[:1].copy(), previous.v[:1].copy()
        return Buffered.advance(self, x)
    no_keys = self.k[:0], self.v[:0]
    return _behind(self, x, vars(self).get("before", no_keys))
