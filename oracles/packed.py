"""Attention over packed sequences: the rows of all sequences lie one behind the other. Each sequence
is gathered, `oracles.attention` gives its results, and these are put back to its rows.

Shapes: q (total_q, H, d), k (total_k, H_kv, d), v (total_k, H_kv, d_v), out (total_q, H, d_v). lse
and grad_lse are (H, total_q), or (total_q, H) under `conventions.packed_lse` = rows_first. cu_q and
cu_k are (sequences + 1,): sequence b owns the rows cu[b] … cu[b + 1] − 1, and uses the first
seqused[b] of them. `conventions.causal` places the queries of a sequence among its used keys.

q_scale, k_scale and v_scale have the shape (), (sequences, H_kv) per head, (total, H) per row, or
(total, H, blocks). A shape that is both (sequences, H_kv) and (total, H) is per head.

The results of a sequence do not depend on other sequences, so budgets are those of
`oracles.attention`. Rows that no sequence uses are never read, and neither are their
scales. Their results have an infinite radius, or are exactly 0 under `conventions.padding_rows` =
zero.

Raises ValueError or TypeError for shapes, types and values that do not fit, before any work.
Source: flash-attention, `flash_attn_varlen_func`; PyTorch, `torch.nn.attention.varlen`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.attention_arguments import checked
from oracles.ball import Array, Ball
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.error_analysis.grouped_heads import Gathered
from oracles.formats import Arithmetic
from oracles.generalised_attention import attention, gradients
from oracles.judging import Balls, zero_is_accepted
from oracles.options import FeatureOptions, PackedGradientOptions, PackedOptions, answer, defaults, takes
from oracles.quantised import codes_of, of_each_row

Rows = NDArray[np.int64]


@takes(PackedOptions)
def packed_attention(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, **options: Unpack[PackedOptions]
) -> tuple[Enclosure, Enclosure]:
    """Return the output and the log-sum-exp (lse) of attention over packed sequences. The results
    are `Enclosure`s (value ± radius).

    Edge cases: a sequence may have no queries, no keys, or neither. Queries without keys are fully
    masked rows.
    """
    call = _checked(q, k, v, cu_q, cu_k, options)
    out, lse = (call.results(call.q, *columns) for columns in ((call.v.shape[-1],), ()))
    for rows, keys in call.problems():
        of_sequences = _gathered(call.q, rows), _gathered(call.k, keys), _gathered(call.v, keys)
        places = zip(call.scales.items(), (rows, keys, keys), strict=True)
        scales: Any = {name: None if x is None else _gathered(x, where) for (name, x), where in places}
        for result, part in zip((out, lse), attention(*of_sequences, **scales, **call.options), strict=True):
            result.put(rows, part)
    return out.enclosure(), call.of_heads(lse.enclosure())


@takes(PackedGradientOptions)
def packed_attention_vjp(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, grad_out: Any, **options: Unpack[PackedGradientOptions]
) -> tuple[Enclosure, Enclosure, Enclosure, Enclosure | None]:
    """Return the gradients (dq, dk, dv, dsink) of Σ grad_out ⊙ out + Σ grad_lse ⊙ lse over the rows
    that sequences use. The results are `Enclosure`s (value ± radius). dsink is None without a sink.

    Each row has the gradient of `oracles.attention_vjp` for its sequence alone. dsink is summed
    over the rows of all sequences, in any order.

    Edge cases: the keys and values of a sequence without queries have the gradient 0.
    """
    call = _checked(q, k, v, cu_q, cu_k, options)
    g, of_lse = call.cotangents(grad_out, options["grad_lse"])
    dq, dk, dv = (call.results(x, x.shape[-1]) for x in (call.q, call.k, call.v))
    sinks = list[Gathered]()
    for rows, keys in call.problems():
        of_sequences = _gathered(call.q, rows), _gathered(call.k, keys), _gathered(call.v, keys)
        problem, lse_rows = checked(*of_sequences, call.options), None if of_lse is None else _gathered(of_lse, rows)
        found = gradients(problem, _gathered(g, rows), lse_rows, _unfinished)
        for result, where, part in zip((dq, dk, dv), (rows, keys, keys), found, strict=False):
            result.put(where, part)
        if found[3:]:
            sums, sizes = found[3:]
            sinks.append(Gathered((sums.mid, sums.rad, sizes.mid), (), rows.size, 0))
    return dq.enclosure(), dk.enclosure(), dv.enclosure(), call.of_sinks(sinks, dq) if sinks else None


def _gathered(x: Array, rows: Rows) -> Array:
    """Return some rows of each sequence (sequences, n) with the axis of heads before the rows."""
    return np.swapaxes(x[rows], 1, 2)


def _unfinished(gradients_of_sinks: list[Gathered]) -> Balls:
    """Return the sum of the gradients of the sinks over rows, and the sum of their sizes, as balls:
    the sum over all sequences is rounded later.
    """
    if not gradients_of_sinks:
        return ()
    sums, errors, sizes = Gathered.joined(gradients_of_sinks).sums
    return Ball(sums, errors), Ball(sizes, np.zeros(sizes.shape))


# -- Which rows belong to a sequence ---------------------------------------------------------------


def sequence_rows(boundaries: Any, used: Any, total: int, side: str) -> list[range]:
    """Return the rows that each sequence uses, given the boundaries cu_q or cu_k (`side` is q or k),
    and how many rows each sequence uses. Raises ValueError and TypeError for others than such
    integers.
    """
    cu = arrays.integers(boundaries, f"cu_{side}", 0, total)
    if cu.ndim != 1 or not cu.size:
        raise ValueError(f"cu_{side} has shape {cu.shape}, but should be (sequences + 1,).")
    if cu[0] != 0:
        raise ValueError(f"cu_{side}[0]={cu[0]}, but should be 0.")
    owned = np.diff(cu)
    if (owned < 0).any():
        b = int((owned < 0).argmax())
        raise ValueError(f"cu_{side}[{b + 1}]={cu[b + 1]}, but should be at least cu_{side}[{b}]={cu[b]}.")
    lengths = owned if used is None else arrays.integers(used, f"seqused_{side}", 0, total)
    if lengths.shape != owned.shape:
        raise ValueError(f"seqused_{side} has shape {lengths.shape}, but should be {owned.shape}, as cu_{side} says.")
    if (lengths > owned).any():
        b = int((lengths > owned).argmax())
        raise ValueError(
            f"seqused_{side}[{b}]={lengths[b]}, but should be at most {owned[b]}, the rows of sequence {b}."
        )
    return [range(start, start + length) for start, length in zip(cu.tolist(), lengths.tolist(), strict=False)]


def unused_rows(rows: Sequence[range], total: int) -> NDArray[np.bool_]:
    """Return True for each row that no sequence uses."""
    unused = np.ones(total, bool)
    for each in rows:
        unused[each.start : each.stop] = False
    return unused


# -- The call --------------------------------------------------------------------------------------


class _Results(NamedTuple):
    """A result of all rows, filled sequence by sequence: midpoints and radii, the format, and for
    each part with rows whether its budget is vacuous and whether it is judged.
    """

    mid: Array
    rad: Array
    formats: list[Any]
    vacuous: list[bool]
    judged: list[bool]

    def put(self, rows: Rows, part: Enclosure) -> None:
        """Store the results of some sequences, (sequences, H, n, …), at their rows."""
        self.mid[rows], self.rad[rows] = (np.swapaxes(x, 1, 2) for x in (part.mid, part.rad))
        self.formats.append(part.format)
        if part.mid.size:
            self.vacuous.append(part.vacuous)
            self.judged.append(part.judged)

    def enclosure(self) -> Enclosure:
        """Return the result. Its budget is vacuous (too wide to show a mistake) if each part has such a budget."""
        vacuous = bool(self.vacuous) and all(self.vacuous)
        return Enclosure(self.mid, self.rad, format=self.formats[0], vacuous=vacuous, judged=all(self.judged))


class _PackedCall(NamedTuple):
    """Validated arguments of attention over packed sequences, the options of `attention`, and the scales
    of each row by name.
    """

    q: Array
    k: Array
    v: Array
    rows: list[range]
    keys: list[range]
    options: FeatureOptions
    scales: Mapping[str, Array | None]
    arithmetic: Arithmetic | None
    conventions: Conventions

    def problems(self) -> Iterator[tuple[Rows, Rows]]:
        """Yield the rows of the queries and of the keys, (sequences, n), of all sequences of equal
        lengths together. The first problem has no sequence: its call validates the options.
        """
        lengths: dict[tuple[int, int], list[int]] = {(0, 0): []}
        for b, (rows, keys) in enumerate(zip(self.rows, self.keys, strict=True)):
            lengths.setdefault((len(rows), len(keys)), []).append(b)
        for (n_q, n_k), members in lengths.items():
            starts = ([side[b].start for b in members] for side in (self.rows, self.keys))
            first_row, first_key = (np.array(each, np.int64)[:, None] for each in starts)
            yield first_row + np.arange(n_q), first_key + np.arange(n_k)

    def results(self, like: Array, *columns: int) -> _Results:
        """Return a result with the rows and the heads of an array, in which nothing is stored yet."""
        shape = (*like.shape[:2], *columns)
        filled = (0.0, 0.0) if self.conventions.padding_rows == "zero" else (np.nan, np.inf)
        mid, rad = (np.full(shape, number) for number in filled)
        return _Results(mid, rad, [], [], [])

    def cotangents(self, grad_out: Any, grad_lse: Any) -> tuple[Array, Array | None]:
        """Return the cotangents of the output and of the log-sum-exp, rows first."""
        g = self._like(grad_out, "grad_out", (*self.q.shape[:2], self.v.shape[-1]))
        if grad_lse is None:
            return g, None
        if self.conventions.packed_lse == "rows_first":
            return g, self._like(grad_lse, "grad_lse", self.q.shape[:2])
        return g, self._like(grad_lse, "grad_lse", self.q.shape[1::-1]).T

    def _like(self, x: Any, name: str, shape: tuple[int, ...]) -> Array:
        array = arrays.float_array(x, name, arithmetic=self.arithmetic)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, but should be {shape}.")
        return array

    def of_heads(self, lse: Enclosure) -> Enclosure:
        """Return a log-sum-exp (total_q, H) in the layout of the convention."""
        if self.conventions.packed_lse == "rows_first":
            return lse
        mid, rad = (np.ascontiguousarray(x.T) for x in (lse.mid, lse.rad))
        return Enclosure(mid, rad, format=lse.format, vacuous=lse.vacuous, judged=lse.judged)

    def of_sinks(self, parts: Sequence[Gathered], beside: _Results) -> Enclosure:
        """Return the gradient of the sinks: the sum over all rows, in every order that the
        arithmetic permits.
        """
        total = Gathered.joined(parts).finished(self.arithmetic)
        ball = Ball(total.mid.reshape(-1), total.rad.reshape(-1))
        target = None if self.arithmetic is None else self.arithmetic.output
        vacuous = self.arithmetic is not None and zero_is_accepted((ball,))[0]
        return Enclosure(ball.mid, ball.rad, format=target, vacuous=vacuous, judged=all(beside.judged))


_OF_ATTENTION = defaults(FeatureOptions)
"""The options of attention. Those that packed sequences do not have keep their defaults."""


def _checked(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, options: PackedOptions | PackedGradientOptions
) -> _PackedCall:
    """Validate the arguments of attention over packed sequences, and return them."""
    arithmetic, conventions, _ = answer(options)
    q, k, v = (codes_of(x, name, arithmetic) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    for x, name, axes in ((q, "q", "total_q, H, d"), (k, "k", "total_k, H_kv, d"), (v, "v", "total_k, H_kv, d_v")):
        if x.ndim != 3:
            raise ValueError(f"{name} has shape {x.shape}, but should be ({axes}).")
    if len(v) != len(k):
        raise ValueError(f"v has {len(v)} rows, but should have {len(k)} like k.")
    rows = sequence_rows(cu_q, options["seqused_q"], len(q), "q")
    keys = sequence_rows(cu_k, options["seqused_k"], len(k), "k")
    if len(rows) != len(keys):
        raise ValueError(f"cu_k has {len(keys)} sequences, but should have {len(rows)} like cu_q.")
    for name, given, each in (("q", options["max_seqlen_q"], rows), ("k", options["max_seqlen_k"], keys)):
        if given is not None and arrays.natural(given, f"max_seqlen_{name}") < (
            longest := max(map(len, each), default=0)
        ):
            raise ValueError(
                f"max_seqlen_{name}={given}, but should be at least {longest}, the longest sequence's rows."
            )
    of_attention: Any = {name: options.get(name, default) for name, default in _OF_ATTENTION.items()}
    scales = {
        name: of_each_row(options.get(name), name, x.shape, k.shape[1], each, is_tiled=conventions.kv_heads == "tile")
        for name, x, each in (("q_scale", q, rows), ("k_scale", k, keys), ("v_scale", v, keys))
    }
    return _PackedCall(q, k, v, rows, keys, of_attention, scales, arithmetic, conventions)
