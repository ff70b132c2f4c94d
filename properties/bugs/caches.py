"""Slips in caches: in how they count, keep, find and read positions, and in what they share. Each
is a right cache with a wrong step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Mutant, Register
from properties.bugs.reference_caches import PAGE, Buffered, Cached, Paged, attended
from properties.contract.caches import Decoder

bug = Register()
DECODE = "decode"
PREFILL, ROLLBACK = "decoding equals prefill", "a rollback is as if nothing had been appended"
EVICTED, UNUSED = "evicted positions leave no trace", "unused slots do not matter"
SIDE, RESTART = "caches side by side share nothing", "a restart forgets everything"
REFUSED, GONE = "what is refused changes nothing", "a ring refuses what is gone"


def cache_bug(cache: type[Buffered], *steps: str, **entry: Any) -> Callable[[Mutant], Mutant]:
    """The decorator for a function that replaces a step of a correct cache, or several steps."""

    def register(function: Mutant) -> Mutant:
        def make() -> Decoder:
            return Cached(cache, function.__name__, dict.fromkeys(steps, function))

        make.__name__, make.__doc__ = function.__name__, function.__doc__
        bug.in_operation(DECODE, making=True, **entry)(make)
        return function

    return register


# -- Windows ---------------------------------------------------------------------------------------


@cache_bug(
    Buffered,
    "visible",
    law=PREFILL,
    effect="Decoding and prefilling disagree by the oldest key.",
    repair="Keep L + 1 keys, or count the query's own.",
    citations=("lightseekorg/tokenspeed#578",),
)
def cache_window_one_key_short_at_decode(self: Buffered, p: Any, j: Any) -> Any:
    """Decoding keeps the last L keys, where a left bound of L allows L + 1."""
    own = j == p
    return Buffered.visible(self, p, j) & (True if len(p) > 1 or self.left is None else own | (j > p - self.left))


@cache_bug(
    Buffered,
    "visible",
    law=PREFILL,
    effect="The same token has other logits when it is decoded.",
    repair="Take one definition of the window for both.",
    citations=("ml-explore/mlx-lm#390",),
)
def cache_window_one_key_too_many_at_prefill(self: Buffered, p: Any, j: Any) -> Any:
    """The mask of a prompt lets one key more through than the cache keeps."""
    wider = self.left is not None and len(p) > 1
    return (j <= p) & (j >= p - (self.left or 0) - 1) if wider else Buffered.visible(self, p, j)


@cache_bug(
    Buffered,
    "visible",
    law=PREFILL,
    effect="Decoding looks at the wrong keys as soon as there is a cache.",
    repair="Add the cache's length to the rows.",
    citations=("keras-team/keras-hub#1738",),
)
def cache_window_of_the_queries(self: Buffered, p: Any, j: Any) -> Any:
    """The window is at most as wide as there are queries, and its rows are counted from 0, without
    what is cached."""
    if self.left is None:
        return Buffered.visible(self, p, j)
    n = len(p)
    return (
        (j <= p)
        & (j >= np.arange(n)[:, None] - min(n, self.left))
        & (j <= np.arange(n)[:, None] + max(p[-1, 0] - n, 0) + 1 - (n == 1))
    )


# -- Rings -----------------------------------------------------------------------------------------


@cache_bug(
    Buffered,
    "require",
    law=REFUSED,
    effect="Early rows lose keys of their window.",
    repair="Keep as many slots as the window and the chunk need, or refuse.",
    citations=("Lightning-AI/litgpt#2182",),
)
def cache_ring_shorter_than_the_prompt(self: Buffered, n: int) -> None:
    """A prompt that does not fit overwrites slots before its early rows have been computed."""
    if n > self.end - self.first:
        raise ValueError(f"{n} queries are more than the positions.")


@cache_bug(
    Buffered,
    "slots",
    law=PREFILL,
    effect="Stale or missing keys after the first wrap.",
    repair="Find each position's slot around the ring.",
    citations=("Blaizzy/mlx-vlm#1715",),
)
def cache_ring_read_by_its_length(self: Buffered, positions: Any) -> Any:
    """A ring that has wrapped is read as if the order of slots were that of time."""
    reads = len(positions) and positions[-1] < self.end and self.wraps
    return positions - positions[0] if reads else Buffered.slots(self, positions)


@cache_bug(
    Buffered,
    "attend",
    law=UNUSED,
    effect="Unused slots get weight, until the buffer is full.",
    repair="Mask what is not in use.",
    citations=("lablup/mlxcel#1776",),
)
def cache_mask_as_wide_as_the_buffer(self: Buffered, q: Array) -> tuple[Array, Array]:
    """The mask is as wide as the buffer: slots that are not in use are visible."""
    self.require(len(q))
    at, j = self.read()
    unused = np.setdiff1d(self.own(), at)
    q = self.rotated(q, self.offset - len(q))
    may = np.concatenate([self.visible(self.positions(len(q)), j), np.ones((len(q), len(unused)), bool)], 1)
    at = np.concatenate([at, unused])
    return attended(q, self.k[at], self.v[at], may)


@cache_bug(
    Buffered,
    "rollback",
    law=GONE,
    effect="After a rejected draft the window has keys of the draft.",
    repair="Remember which positions are gone.",
    origin="a ring that is counted by its end alone has all positions below it",
)
def cache_ring_rolls_back_to_what_is_overwritten(self: Buffered, n: int) -> None:
    """Rolling back gives positions back that had given way: their slots hold newer keys."""
    Buffered.rollback(self, n)
    self.dropped = max(0, self.end - (self.capacity or 0)) if self.wraps else 0


# -- Positions -------------------------------------------------------------------------------------


@cache_bug(
    Buffered,
    "evict",
    law=EVICTED,
    effect="Positions run backwards, and queries miss the newest keys.",
    repair="Count positions apart from rows.",
    citations=("rajveer43/VeloxQuant-MLX#389",),
)
def cache_offset_of_the_rows_kept(self: Buffered, n: int) -> None:
    """After an eviction the offset is the number of rows that are kept."""
    Buffered.evict(self, n)
    self.offset = self.end - self.first


@cache_bug(
    Buffered,
    "advance",
    law=PREFILL,
    effect="Positions jump after the prompt.",
    repair="Advance in one place.",
    citations=("skyzh/tiny-llm#46",),
)
def cache_prompt_counted_twice(self: Buffered, n: int) -> None:
    """The prompt's length is added to the offset a second time."""
    self.offset += n if self.end == 0 else 0
    Buffered.advance(self, n)


@cache_bug(
    Buffered,
    "positions",
    law=PREFILL,
    effect="Chunks after the first see the oldest keys only.",
    repair="Add the cache's length to the rows.",
    origin="a causal flag is passed on, whatever is cached",
)
def cache_chunk_aligned_top_left(self: Buffered, n: int) -> Any:
    """A chunk's rows are counted from the first key, as a causal mask of n rows does by default;
    one query sees all."""
    return Buffered.positions(self, n) if n == 1 else np.arange(self.first, self.first + n)[:, None]


@cache_bug(
    Buffered,
    "visible",
    law=PREFILL,
    effect="Rows of a chunk see later ones.",
    repair="Mask the rows of a chunk causally.",
    origin="chunks after the first came later than decoding by one",
)
def cache_chunk_sees_its_future(self: Buffered, p: Any, j: Any) -> Any:
    """No mask is made where there is a cache, as for one query none is needed."""
    past = len(j) > len(p)
    return Buffered.visible(self, np.full_like(p, p[-1, 0]) if past and len(p) else p, j) & (
        Buffered.visible(self, p, j) | (j > p)
    )


# -- What goes, and what is refused ----------------------------------------------------------------


@cache_bug(
    Buffered,
    "rollback",
    law=ROLLBACK,
    effect="Rejected drafts stay, and the prompt's beginning goes.",
    repair="Drop rows from the end.",
    origin="trimming from the front is at hand",
)
def cache_rollback_of_the_oldest(self: Buffered, n: int) -> None:
    """The slots are moved as if the oldest positions went."""
    Buffered.rollback(self, n)
    self.k, self.v = (np.concatenate([x[n:], x[:n]]) for x in (self.k, self.v))


@cache_bug(
    Buffered,
    "rollback",
    law=ROLLBACK,
    effect="Rejected drafts are seen by everything that comes later.",
    repair="Count keys and positions together.",
    origin="two counters, one of which is forgotten",
)
def cache_rollback_of_the_count_alone(self: Buffered, n: int) -> None:
    """Positions are counted back, and the keys that are read are not."""
    self.require_held(n)
    self.offset -= n


@cache_bug(
    Buffered,
    "append",
    law=REFUSED,
    effect="After a refusal there are keys that nobody has added.",
    repair="Look at the capacity first.",
    origin="no test goes on after an exception",
)
def cache_refuses_after_it_has_counted(self: Buffered, k: Array, v: Array) -> None:
    """Positions are counted before the capacity is looked at."""
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
    effect="Memory that was not reserved.",
    repair="Compare with the capacity.",
    origin="tests stay below the capacity",
)
def cache_without_a_limit(self: Buffered, n: int) -> None:
    """The capacity is stored, and more is taken."""


# -- Pages -----------------------------------------------------------------------------------------


@cache_bug(
    Paged,
    "read",
    law=PREFILL,
    effect="A key that nobody has added gets weight, which near-zero keys hide.",
    repair="Round the number of pages up, not down and add one.",
    citations=("pegainfer-project/pegainfer#291",),
)
def cache_one_page_too_many(self: Paged) -> tuple[Any, Any]:
    """One page more is read when the length is a multiple of the page size."""
    at, j = Buffered.read(self)
    if not len(j) or self.end % PAGE:
        return at, j
    beyond = (
        self.pool.free[-1] * PAGE
        if self.pool.free
        else (self.table[self.end // PAGE - 1] * PAGE + PAGE) % len(self.pool.k)
    )
    return np.append(at, beyond), np.append(j, j[-1])


@cache_bug(
    Paged,
    "write",
    law=PREFILL,
    effect="Another sequence's keys change.",
    repair="Write the rows of the chunk alone.",
    citations=("tenstorrent/tt-metal#56324",),
)
def cache_padded_tail_in_other_pages(self: Paged, k: Array, v: Array) -> None:
    """A chunk is padded to a tile of two pages, and its tail written behind it in the pool,
    whosever page that is."""
    last = int(self.slots(np.array([self.end + len(k) - 1]))[0])
    tail = np.arange(last + 1, min(last + 1 + -len(k) % (2 * PAGE), len(self.k)))
    self.k[tail], self.v[tail] = 0.0, 0.0
    Buffered.write(self, k, v)


@cache_bug(
    Paged,
    "give_back",
    law=PREFILL,
    effect="Keys that are still visible are overwritten by other sequences.",
    repair="Give a page back when its last position is gone.",
    origin="evictions of whole pages are tested",
)
def cache_pages_given_back_by_the_oldest(self: Paged) -> None:
    """A page is given back when its first position is evicted."""
    for page in [page for page in self.table if page * PAGE < self.first or page * PAGE >= self.end]:
        self.pool.free.append(self.table[page])
        if page * PAGE >= self.end or (page + 1) * PAGE <= self.first:
            del self.table[page]


# -- What is shared --------------------------------------------------------------------------------


def _shared(cache: Buffered) -> dict[Any, Any]:
    """What all caches of a class have in common."""
    found: dict[Any, Any] = type(cache).memory  # type: ignore[attr-defined]
    return found


@cache_bug(
    Buffered,
    "prepare",
    law=SIDE,
    effect="A sequence overwrites another's keys.",
    repair="Make the buffers for each cache.",
    origin="a default argument, or an attribute of the class",
)
def cache_buffers_shared(self: Buffered, d: int, d_v: int) -> None:
    """All caches of one size have the same buffers."""
    size = self.capacity or PAGE
    self.k, self.v = _shared(self).setdefault((size, d, d_v), (np.zeros((size, d)), np.zeros((size, d_v))))


def _behind(self: Buffered, q: Array, before: tuple[Array, Array]) -> tuple[Array, Array]:
    """The output and the log-sum-exp where other keys and values are visible to all queries besides."""
    self.require(len(q))
    at, j = self.read()
    k, v = (np.concatenate([x, y[at]]) for x, y in zip(before, (self.k, self.v), strict=True))
    q = self.rotated(q, self.offset - len(q))
    may = self.visible(self.positions(len(q)), j)
    return attended(q, k, v, np.concatenate([np.ones((len(q), len(before[0])), bool), may], 1))


@cache_bug(
    Buffered,
    "attend",
    law=SIDE,
    effect="Sequences see each other.",
    repair="Mask by the boundaries.",
    citations=("Tencent-Hunyuan/HunyuanVideo#310",),
)
def cache_boundaries_ignored(self: Buffered, q: Array) -> tuple[Array, Array]:
    """Sequences are packed side by side, and their boundaries ignored: what another one had when it
    was asked is visible to all."""
    at, _ = self.read()
    others = [x for owner, x in _shared(self).items() if owner is not self]
    _shared(self)[self] = self.k[at], self.v[at]
    return _behind(self, q, others[0] if others else (self.k[:0], self.v[:0]))


@cache_bug(
    Buffered,
    "prepare",
    "advance",
    law=RESTART,
    effect="Masks by positions, and angles, are those of later rows.",
    repair="Reset the position with the sequence.",
    citations=("allenai/OLMo-core#591",),
)
def cache_positions_go_on_in_the_next_sequence(self: Buffered, *numbers: int) -> None:
    """Positions are not counted from 0 at the start of a sequence."""
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
    effect="One-token documents merge with the next.",
    repair="Keep the lengths of sequences.",
    citations=("modelscope/ms-swift#9904",),
)
def cache_sequences_of_one_token_merge(self: Buffered, x: Any) -> Any:
    """A sequence begins where the position falls: behind one of one token it does not, and goes on
    with that token."""
    if isinstance(x, int):
        last, _shared(self)["last"] = _shared(self).get("last", self), self
        if self.end == 0 and last is not self and last.end == 1:
            vars(self)["before"] = last.k[:1].copy(), last.v[:1].copy()
        return Buffered.advance(self, x)
    none = self.k[:0], self.v[:0]
    return _behind(self, x, vars(self).get("before", none))
