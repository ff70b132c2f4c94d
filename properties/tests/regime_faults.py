"""Kernels that are wrong in one regime only: for some shapes, lengths, memory layouts, values, or
products of two options.

Each row of the table is a right kernel, a condition on the call, and what goes wrong under the
condition. The rows were written without a look at the test inputs of the verifier.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracles import Conventions
from properties import Implementation
from properties.bugs.declared import under
from properties.bugs.reference import REFERENCE
from properties.contract.operations import OPERATIONS

__all__ = ["FAULTS", "Fault"]

SDPA, VJP = "scaled_dot_product_attention", "scaled_dot_product_attention_vjp"
CAUSAL, GROUPED, SOFTMAX = "causal_attention", "grouped_query_attention", "hard_masked_softmax"
BOTTOM_RIGHT = Conventions(causal="bottom_right")


class Seen:
    """A call as the kernel receives it: `seen.k` is an argument, or None if it is absent."""

    def __init__(self, operation: str, positional: Any, options: Mapping[str, Any]) -> None:
        self.operation = OPERATIONS[operation]
        self.arguments = self.operation.named(self.operation.arguments(positional, options))

    def __getattr__(self, name: str) -> Any:
        return self.arguments.get(name)

    def right(self, **changes: Any) -> Any:
        """The right results, or those of the call with other arguments."""
        arguments = [*(self.arguments | changes).values()]
        return self.operation.call(REFERENCE[self.operation.name], arguments)

    @property
    def problems(self) -> int:
        """Batch x heads."""
        first = self.arguments[self.operation.parameters[0]]
        return int(np.prod(first.shape[:-2]))

    @property
    def n_q(self) -> int:
        return int(self.q.shape[-2])

    @property
    def n_k(self) -> int:
        return int(self.k.shape[-2])

    @property
    def width(self) -> int:
        return int(self.q.shape[-1])

    @property
    def several_heads(self) -> bool:
        return self.q.ndim > 2 and self.q.shape[-3] > 1

    @property
    def largest_score(self) -> float:
        """The largest magnitude of a scaled score; 0 without scores."""
        if not (self.q.size and self.k.size):
            return 0.0
        has_heads = not self.operation.name.startswith(SDPA)
        k = np.repeat(self.k, self.q.shape[-3] // self.k.shape[-3], -3) if has_heads else self.k
        with np.errstate(all="ignore"):
            scores = self.q @ k.swapaxes(-1, -2) * (max(self.width, 1) ** -0.5 if self.scale is None else self.scale)
        return float(np.abs(scores).max(initial=0.0))

    @property
    def has_masked_row(self) -> bool:
        return self.mask is not None and self.n_k > 0 and not bool(np.asarray(self.mask).any(-1).all())

    @property
    def first_offset(self) -> float:
        return 0 if self.offset is None else int(np.max(self.offset, initial=0))


def expanded(x: Any, axis: int) -> bool:
    """Whether an axis of an array repeats the same memory."""
    return bool(x.size and x.ndim >= -axis and x.shape[axis] > 1 and x.strides[axis] == 0)


def transposed(x: Any) -> bool:
    """Whether the last two axes of an array are exchanged in memory."""
    return bool(min(x.shape[-2:]) > 1 and abs(x.strides[-2]) < abs(x.strides[-1]))


def on_output(wrong: Callable[[Any], Any]) -> Callable[[Seen], Any]:
    """The right results, the first of them changed."""

    def results(seen: Seen) -> Any:
        found = seen.right()
        return (wrong(found[0]), *found[1:]) if isinstance(found, tuple) else wrong(found)

    return results


def mean_of_values(seen: Seen) -> Any:
    """The mean of all values, whatever the scores."""
    return seen.right(q=np.zeros_like(seen.q))


def of_first_entry(x: Any) -> Any:
    """The result of the first batch entry, for all."""
    return np.broadcast_to(x[:1], x.shape).copy()


def modulo(number: int) -> Callable[[Any], Any]:
    """Problem i gets the result of problem i mod a number."""

    def wrong(x: Any) -> Any:
        flat = x.reshape(-1, *x.shape[-2:])
        return flat[np.arange(len(flat)) % number].reshape(x.shape)

    return wrong


def unwritten_problems(first: int) -> Callable[[Any], Any]:
    """The problems from a number on are not written."""

    def wrong(x: Any) -> Any:
        flat = x.reshape(-1, *x.shape[-2:]).copy()
        flat[first:] = 0.0
        return flat.reshape(x.shape)

    return wrong


def zeroed(*index: Any) -> Callable[[Any], Any]:
    """The entries at an index are not written."""

    def wrong(x: Any) -> Any:
        x = np.array(x)
        x[(..., *index)] = 0.0
        return x

    return wrong


def keys_lost(lost: Callable[[int], slice]) -> Callable[[Seen], Any]:
    """Some keys are not read: their scores count as far below."""

    def results(seen: Seen) -> Any:
        visible = np.ones(seen.n_k, bool)
        visible[lost(seen.n_k)] = False
        mask = np.broadcast_to(visible, (seen.n_q, seen.n_k))
        return seen.right(mask=mask if seen.mask is None else seen.mask & mask)

    return results


def misread(*names: str) -> Callable[[Seen], Any]:
    """The arguments are read as if their memory were contiguous, with the rows in another order."""
    return lambda seen: seen.right(**{name: np.ascontiguousarray(seen.arguments[name][..., ::-1, :]) for name in names})


def changed(**changes: Callable[[Seen], Any]) -> Callable[[Seen], Any]:
    """The right results of a call with other arguments."""
    return lambda seen: seen.right(**{name: change(seen) for name, change in changes.items()})


def other_group(seen: Seen) -> Any:
    """Each query head reads the next key head."""
    return seen.right(k=np.roll(seen.k, 1, -3), v=np.roll(seen.v, 1, -3))


def early_rows_are_means(seen: Seen) -> Any:
    """A fully masked row is the mean of all values."""
    out, lse = seen.right()
    return np.where(np.isneginf(lse)[..., None], seen.v.mean((-2, -3))[..., None, None, :], out), lse


def late_rows_are_halved(seen: Seen) -> Any:
    """The rows from n_k on are half as large."""
    out, lse = seen.right()
    return out * np.where(np.arange(seen.n_q) < seen.n_k, 1.0, 0.5)[:, None], lse


def keys_get_values_gradient(seen: Seen) -> Any:
    """The gradient of v is added to that of k, as autograd does for one leaf."""
    dq, dk, dv = seen.right()
    return dq, dk + dv, dv


def has_row_of_sink(seen: Seen) -> bool:
    """Whether a row sees its sink only."""
    sink = None if seen.sink is None else seen.sink[:, None]
    return sink is not None and seen.window is not None and bool((seen.right()[1] == sink).any())


def later_positions_wrap(seen: Seen) -> Any:
    """Positions are counted modulo 2048."""
    late = (np.arange(seen.x.shape[-2]) + seen.start_pos) >= 2048
    return np.where(late[:, None], seen.right(start_pos=seen.start_pos - 2048), seen.right())


NOT_A_NUMBER = on_output(lambda x: np.full_like(x, np.nan))
FIRST_ENTRY = on_output(of_first_entry)


@dataclass(frozen=True)
class Fault:
    """A kernel that is wrong under a condition.

    regime      what the condition is about: shape, length, layout, value or product
    features    the optional features that the kernel declares: none where none is needed
    promises    other declarations
    """

    regime: str
    mechanism: str
    operation: str
    where: Callable[[Seen], bool]
    wrong: Callable[[Seen], Any]
    features: tuple[str, ...] = ()
    promises: Mapping[str, Any] = field(default_factory=dict)

    def implementation(self) -> Implementation:
        """The kernel."""

        def kernel(*arguments: Any, **options: Any) -> Any:
            seen = Seen(self.operation, arguments, options)
            with np.errstate(all="ignore"):
                return self.wrong(seen) if self.where(seen) else seen.right()

        kernel = under(self.promises.get("conventions", Conventions()), self.operation, kernel)
        return Implementation(self.mechanism, {self.operation: kernel}, features=self.features, **self.promises)


FAULTS = (
    # -- Shapes ------------------------------------------------------------------------------------
    Fault("shape", "mean of v for several heads, n >= 64, head_dim 64 or 128", "attention",
          lambda s: s.several_heads and s.n_k >= 64 and s.width in (64, 128), mean_of_values),
    Fault("shape", "mean of v for several entries, n >= 64, head_dim 64 or 128", SDPA,
          lambda s: s.several_heads and s.n_k >= 64 and s.width in (64, 128), mean_of_values),
    Fault("shape", "batch x heads beyond 16 wrap around", "attention", lambda s: s.problems > 16,
          on_output(modulo(16))),
    Fault("shape", "batch beyond 16 wraps around", SDPA, lambda s: s.problems > 16, on_output(modulo(16))),
    Fault("shape", "gradients of a batch beyond 16 are not written", VJP, lambda s: s.problems > 16,
          on_output(unwritten_problems(16))),
    Fault("shape", "three batch axes: the first is ignored", SDPA, lambda s: s.q.ndim == 5, FIRST_ENTRY,
          promises={"batch_ranks": (0, 1, 2, 3)}),
    Fault("shape", "batch >= 4: all get the first entry's output", SDPA,
          lambda s: s.q.ndim > 2 and s.q.shape[0] >= 4, FIRST_ENTRY),
    Fault("shape", "batch >= 4 before the heads: all get the first entry's output", "attention",
          lambda s: s.q.ndim > 3 and s.q.shape[0] >= 4, FIRST_ENTRY),
    Fault("shape", "values wider than keys: the other channels are 0", "attention",
          lambda s: s.v.shape[-1] > s.width, lambda s: on_output(zeroed(slice(s.width, None)))(s)),
    Fault("shape", "values of half the keys' width: two heads' values in one", SDPA,
          lambda s: s.width >= 16 and 2 * s.v.shape[-1] == s.width, on_output(lambda x: np.roll(x, 1, -1))),
    Fault("shape", "head_dim 96 is padded to 128, the scale too", "attention", lambda s: s.width == 96,
          lambda s: s.right(q=s.q * (96 / 128) ** 0.5)),
    Fault("shape", "head_dim 256: the last eighth of the output is lost", "attention",
          lambda s: s.width == 256 and s.v.shape[-1] == 256, on_output(zeroed(slice(224, None)))),
    Fault("shape", "8 query heads to a key head: next key head", GROUPED,
          lambda s: s.q.shape[-3] == 8 * s.k.shape[-3] and s.k.shape[-3] > 1, other_group),
    Fault("shape", "n_q > 64 that is no multiple of 64: the last tile is lost", "attention",
          lambda s: s.n_q > 64 and s.n_q % 64 != 0,
          lambda s: on_output(zeroed(slice(s.n_q // 64 * 64, None), slice(None)))(s)),
    # -- Lengths -----------------------------------------------------------------------------------
    Fault("length", "n_k >= 1024 and a batch: the second entry reads the first one's keys", SDPA,
          lambda s: s.q.ndim > 2 and s.q.shape[0] > 1 and s.n_k >= 1024,
          changed(k=lambda s: of_first_entry(s.k), v=lambda s: of_first_entry(s.v))),
    Fault("length", "n_k >= 1024 and a batch, with heads", "attention",
          lambda s: s.q.ndim > 3 and s.q.shape[0] > 1 and s.n_k >= 1024,
          changed(k=lambda s: of_first_entry(s.k), v=lambda s: of_first_entry(s.v))),
    Fault("length", "one query over >= 512 keys: the second half is lost", SDPA,
          lambda s: s.n_q == 1 and s.n_k >= 512, keys_lost(lambda n: slice(n // 2, None))),
    Fault("length", "one query over >= 512 keys with grouped heads: next key head", "attention",
          lambda s: s.n_q == 1 and s.n_k >= 512 and s.k.shape[-3] > 1 and s.q.shape[-3] > s.k.shape[-3], other_group),
    Fault("length", "up to 8 queries over > 1024 keys: key 1024 is lost", SDPA,
          lambda s: s.n_q <= 8 and s.n_k > 1024, keys_lost(lambda n: slice(1024, 1025))),
    Fault("length", "a length T - 1 of 2048: the last key is lost", "attention",
          lambda s: s.n_k == 2047, keys_lost(lambda n: slice(-1, None)), features=("mask",)),
    Fault("length", "softmax rows beyond 512: the rest is not summed", SOFTMAX,
          lambda s: s.scores.shape[-1] > 512,
          lambda s: s.right() / np.maximum(s.right()[..., :512].sum(-1, keepdims=True), 1e-300)),
    Fault("length", "softmax rows beyond 512 in a batch: first entry", SOFTMAX,
          lambda s: s.scores.shape[-1] > 512 and s.scores.ndim > 2, FIRST_ENTRY),
    Fault("length", "rope over more than 4096 rows x heads: the rest is not rotated", "rope",
          lambda s: s.x.size > 4096 * s.x.shape[-1] and s.x.shape[-1] > 0,
          on_output(lambda x: zeroed()(x) if x.ndim < 3 else modulo(4)(x))),
    Fault("length", "rotary_dim over more than 1024 rows x heads is ignored", "rope",
          lambda s: s.rotary_dim is not None and s.x.size > 1024 * s.x.shape[-1],
          changed(rotary_dim=lambda s: None), features=("rotary_dim",)),
    Fault("length", "rope positions wrap at 2048", "rope",
          lambda s: s.start_pos < 2048 < s.start_pos + s.x.shape[-2], later_positions_wrap),
    Fault("length", "causal rows from 128 on are not written", CAUSAL,
          lambda s: s.n_q >= 128 and s.n_k >= 128,
          on_output(zeroed(slice(128, None), slice(None)))),
    # -- Layouts -----------------------------------------------------------------------------------
    Fault("layout", "attention(x, x, x): x is changed in place between reads", SDPA,
          lambda s: s.q is s.k and s.k is s.v, lambda s: s.right(v=s.v * 0.5)),
    Fault("layout", "attention(x, x, x) with heads", "attention",
          lambda s: s.q is s.k and s.k is s.v, lambda s: s.right(v=s.v * 0.5)),
    Fault("layout", "k is v: the cache is read once, at the keys' scale", "attention",
          lambda s: s.k is s.v, lambda s: s.right(v=s.v * max(s.width, 1) ** -0.5)),
    Fault("layout", "gradients where k is v: dv is added to dk", VJP, lambda s: s.k is s.v,
          keys_get_values_gradient),
    Fault("layout", "keys and values expanded along the batch", SDPA,
          lambda s: expanded(s.k, -3), misread("k")),
    Fault("layout", "keys and values expanded along the heads", "attention",
          lambda s: expanded(s.k, -3), misread("k")),
    Fault("layout", "keys expanded along the batch, before the heads", "attention",
          lambda s: expanded(s.k, -4), misread("k")),
    Fault("layout", "queries expanded along their rows", SDPA, lambda s: expanded(s.q, -2),
          on_output(zeroed(slice(1, None), slice(None)))),
    Fault("layout", "an expanded mask is read as contiguous", SDPA,
          lambda s: s.mask is not None and s.mask.ndim > 1 and expanded(s.mask, -2), changed(mask=lambda s: None)),
    Fault("layout", "k and v in one buffer: v begins at k", "attention",
          lambda s: s.k is not s.v and s.k.shape == s.v.shape and s.k.base is not None and s.k.base is s.v.base,
          changed(v=lambda s: s.k)),
    Fault("layout", "transposed keys", SDPA, lambda s: transposed(s.k), misread("k")),
    Fault("layout", "negative strides", SDPA, lambda s: s.v.strides[-2] < 0, misread("v")),
    Fault("layout", "read-only queries are not scaled", SDPA, lambda s: not s.q.flags.writeable,
          changed(q=lambda s: s.q * max(s.width, 1) ** 0.5)),
    Fault("layout", "rows of a wider buffer", "attention",
          lambda s: s.v.size > 1 and not s.v.flags.c_contiguous and abs(s.v.strides[-2]) > s.v.shape[-1] * s.v.itemsize,
          misread("v")),
    # -- Values ------------------------------------------------------------------------------------
    Fault("value", "all scores below 0.1: all weights equal", SDPA,
          lambda s: s.n_k > 1 and 0 < s.largest_score < 0.1, mean_of_values),
    Fault("value", "all scores below 0.5: all weights equal", "attention",
          lambda s: s.n_k > 1 and 0 < s.largest_score < 0.5, mean_of_values),
    Fault("value", "all scores below 0.1 for 8 keys or more: gradients of q are 0", VJP,
          lambda s: s.n_k >= 8 and 0 < s.largest_score < 0.1, on_output(np.zeros_like)),
    Fault("value", "scores beyond 30: the maximum is not subtracted, sums are clipped", SDPA,
          lambda s: s.largest_score > 30, changed(q=lambda s: s.q * (30 / s.largest_score))),
    Fault("value", "scores beyond 100 with heads: clipped", "attention",
          lambda s: s.largest_score > 100, changed(q=lambda s: s.q * (100 / s.largest_score))),
    Fault("value", "all values below 0.001 are flushed to 0", "attention",
          lambda s: s.v.size > 0 and 0 < np.abs(s.v).max() < 1e-3, on_output(np.zeros_like)),
    # -- Products of two options -------------------------------------------------------------------
    Fault("product", "a sink of -inf and a fully masked row: NaN", "attention",
          lambda s: s.sink is not None and bool(np.isneginf(s.sink).any()) and s.has_masked_row, NOT_A_NUMBER,
          features=("mask", "sink")),
    Fault("product", "a window of 0 forgets the offset", "attention",
          lambda s: s.window is not None and 0 in s.window and s.first_offset > 0,
          changed(offset=lambda s: None), features=("causal", "offset", "window")),
    Fault("product", "scale 0 with a softcap is the default scale", "attention",
          lambda s: s.scale == 0 and s.softcap is not None, changed(scale=lambda s: None),
          features=("scale", "softcap")),
    Fault("product", "more queries than keys, aligned at the end: early rows are not 0", "attention",
          lambda s: bool(s.causal) and s.n_q > s.n_k > 0, early_rows_are_means,
          features=("causal",), promises={"conventions": BOTTOM_RIGHT}),
    Fault("product", "more queries than keys, aligned at the start: late rows are halved", "attention",
          lambda s: bool(s.causal) and s.n_q > s.n_k > 1, late_rows_are_halved,
          features=("causal",)),
    Fault("product", "causal and more queries than keys", CAUSAL, lambda s: s.n_q > s.n_k > 0,
          on_output(lambda x: np.roll(x, 1, -2)), promises={"conventions": BOTTOM_RIGHT}),
    Fault("product", "a negative scale and a softcap: the cap of the magnitude", "attention",
          lambda s: s.scale is not None and s.scale < 0 and s.softcap is not None, changed(scale=lambda s: -s.scale),
          features=("scale", "softcap")),
    Fault("product", "a bias of -inf under a softcap: visible", "attention",
          lambda s: s.softcap is not None and s.bias is not None and bool(np.isneginf(s.bias).any()),
          changed(bias=lambda s: np.where(np.isneginf(s.bias), -s.softcap, s.bias)), features=("bias", "softcap")),
    Fault("product", "a sink in a row that the window empties: the weights are NaN", "attention",
          has_row_of_sink, NOT_A_NUMBER, features=("window", "sink", "offset")),
    Fault("product", "a window of 0 on both sides with grouped heads: next key head", "attention",
          lambda s: s.window is not None and tuple(s.window) == (0, 0) and s.q.shape[-3] > s.k.shape[-3] > 1,
          other_group, features=("window",)),
    Fault("product", "a batch of offsets under a window: the first offset for all", "attention",
          lambda s: s.window is not None and s.window != (None, None) and isinstance(s.offset, np.ndarray),
          changed(offset=lambda s: np.broadcast_to(s.offset.reshape(-1)[:1], s.offset.shape)
                  if s.offset.size else s.offset),
          features=("causal", "offset", "offsets", "window")),
)  # fmt: skip
"""The table."""
