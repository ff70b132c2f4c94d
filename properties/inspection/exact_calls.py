"""The calls of exact probes: inputs for which a correct kernel can store one result only, or one of
few. `PROBES` has a row for each operation.

**Attention** and its gradients have the inputs of `properties.inspection.exact_probes`. Query heads
that share a key head are rows of the same keys. Each batch entry and key head has other pairs. Up to
`_MOST_CALLS` calls put all keys into pairs, or in long rows a key of each tile.

**Softmax.** Two scores count in each row, 0 and a number of the format whose weight is next to a
boundary.

**Rotations.** Rows are ±1 in one channel of each pair and 0 in the other, so the result is a cosine
and a sine, which a kernel may store in a table first, or not.

**Random numbers** are enough for a rotation by given tables and for a merge: their results are
rounded once.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import log, prod
from typing import NamedTuple

import numpy as np

import oracles
from oracles.formats import BINARY64, Arithmetic
from oracles.packed import sequence_rows
from oracles.possible_attention import possible_log_sum_exps, possible_weights
from oracles.possible_results import Possible, nearest, stored
from properties.inspection.array import Array
from properties.inspection.exact_probes import (
    FAR,
    TILE,
    PairProbe,
    Sizes,
    gradient_probe,
    order_of_keys,
    pair_probe,
    turns,
)
from properties.inspection.probe import Probe
from properties.inspection.shapes import CHOSEN, Shape

__all__ = ["PROBES", "ExactCall"]

_MOST_CALLS = 8
_SMALL_ERROR = 1e-4  # how near a boundary the weight of a score is
_MANY = 512  # scores to choose from
_PROGRAMS = ((5, 9, 8), (33, 300, 64), (1, 1040, 64))
"""The numbers of queries and keys of the programs of a cache, and their widths."""


class ExactCall(NamedTuple):
    """One call of an operation: its arrays, the sets of some of its results by name, and the probes
    of the scale, one for each batch entry and key head.
    """

    shape: Shape
    arrays: dict[str, Array]
    possible: dict[str, Possible]
    pairs: tuple[PairProbe, ...] = ()


Calls = Iterator[ExactCall]


def _outputs(probe: Probe, shape: Shape) -> Calls:
    """Calls of attention, until all keys or all tiles have been in a pair."""
    sizes, entries = _sizes(probe, shape), _entries(shape)
    a, unit = probe.caller.arithmetic, log(2) if probe.caller.conventions.lse_base == "2" else 1.0
    for call in range(_calls_of(sizes, entries)):
        pairs = [pair_probe(sizes, a, call * entries + entry) for entry in range(entries)]
        if pairs[0] is None:
            return
        found = [each for each in pairs if each is not None]
        arrays = {name: _stacked(probe, shape, name, [getattr(x.problem, name) for x in found]) for name in "qkv"}
        possible = {"out": _joined(probe, shape, "out", [x.possible for x in found])}
        if "lse" in probe.operation.outputs:
            sets = [possible_log_sum_exps(x.problem, a, unit) for x in found]
            possible["lse"] = _joined(probe, shape, "lse", sets)
        yield ExactCall(shape, arrays, possible, () if _is_tiled(probe, shape) or _is_packed(shape) else tuple(found))


def _calls_of(sizes: Sizes, entries: int) -> int:
    """The number of calls until each key is in a pair; if these are too many, until each tile has a
    key that is.
    """
    of_keys, of_tiles = (-(-turns(sizes, tile) // entries) for tile in (1, TILE))
    return of_keys if of_keys <= _MOST_CALLS else min(of_tiles, _MOST_CALLS)


def _of_cache(probe: Probe, shape: Shape) -> Calls:
    """Calls of a cache without rotations: keys are appended in two steps, then queries attend."""
    if shape.arguments.get("rotates"):
        return
    for n_q, n_k, width in _PROGRAMS:
        sizes = {"n_q": n_q, "n_k": n_k, "head_dim": width, "value_dim": width}
        steps = f"append {n_k - 1}; append 1; attend {n_q}"
        program = replace(shape.changed(probe.operation, None, **sizes), arguments={"steps": steps})
        if probe.takes(program):
            yield from _outputs(probe, program)


def _gradients(probe: Probe, shape: Shape) -> Calls:
    """One call of the VJP of attention."""
    sizes, a = _sizes(probe, shape), probe.caller.arithmetic
    drawn = [gradient_probe(sizes, a, entry) for entry in range(_entries(shape))]
    found = [each for each in drawn if each is not None]
    if found:
        arrays = {name: _stacked(probe, shape, name, [getattr(x.problem, name) for x in found]) for name in "qkv"}
        arrays["grad_out"] = _stacked(probe, shape, "grad_out", [x.grad_out for x in found])
        names = found[0].possible
        yield ExactCall(
            shape, arrays, {name: _joined(probe, shape, name, [x.possible[name] for x in found]) for name in names}
        )


def _softmax(probe: Probe, shape: Shape) -> Calls:
    """One call of softmax without a mask, whose rows count two keys of all tiles in turn."""
    a, zeros = probe.caller.arithmetic, shape.zeros(probe.operation, "scores")
    n_k = zeros.shape[-1]
    if n_k < 2 or "mask" in shape.arguments:
        return
    rows = zeros.reshape(-1, n_k)
    rows[:] = -FAR
    keys = np.take(order_of_keys(n_k), np.arange(2 * len(rows)), mode="wrap").reshape(-1, 2)
    second = np.resize(_near_boundaries(a, n_k), len(rows))
    np.put_along_axis(rows, keys, np.stack([np.zeros(len(rows)), second], 1), 1)
    possible = possible_weights(rows, a)
    yield ExactCall(shape, {"scores": zeros}, {"weights": Possible(*(x.reshape(zeros.shape) for x in possible))})


def _near_boundaries(a: Arithmetic, n_k: int) -> Array:
    """Scores whose weights have one possible result, but more with a slightly larger error; 0 if there
    are none.
    """
    deepest = min(-log((a.weights or a.output).smallest_normal), 60.0)
    scores = np.unique(nearest(np.random.default_rng(n_k).uniform(-deepest, -1.0, _MANY), a.operands))
    rows = np.full((len(scores), n_k), -FAR)
    rows[:, 0], rows[:, 1] = 0.0, scores
    coarse = replace(a, exp=replace(a.exp, relative=a.exp.relative + _SMALL_ERROR))
    near = possible_weights(rows, a).single[:, 1] & ~possible_weights(rows, coarse).single[:, 1]
    return np.random.default_rng(n_k).permutation(scores[near]) if near.any() else np.zeros(1)


def _rotations(probe: Probe, shape: Shape) -> Calls:
    """One call of a rotation by angles: one channel of each pair is 1 or −1, and its partner is 0."""
    coded = "grad_out" if "grad_out" in probe.operation.parameters else "x"
    x, width = shape.zeros(probe.operation, coded), shape.arguments.get("rotary_dim", shape.sizes["head_dim"])
    half = width // 2
    if not x.size:
        return
    is_adjacent = probe.caller.conventions.rope_pairing != "half"
    firsts = np.arange(half) * 2 if is_adjacent else np.arange(half)
    generator = np.random.default_rng(x.size)
    rows = x.reshape(-1, x.shape[-1])
    places = firsts + (np.arange(len(rows))[:, None] % 2) * (1 if is_adjacent else half)
    np.put_along_axis(rows, places, generator.choice([-1.0, 1.0], places.shape), 1)
    yield from _of_oracle(probe, shape, {coded: x})


def _numbers(probe: Probe, shape: Shape) -> Calls:
    """One call of an operation that rounds its results once, with random numbers if it takes arrays."""
    operation, a, generator = probe.operation, probe.caller.arithmetic, np.random.default_rng(0)
    drawn = {name: shape.zeros(operation, name) for name in CHOSEN if name in operation.parameters}
    for name, array in drawn.items():
        array[...] = nearest(generator.standard_normal(array.shape), operation.stored(name, a))
    yield from _of_oracle(probe, shape, drawn)


def _of_oracle(probe: Probe, shape: Shape, arrays: dict[str, Array]) -> Calls:
    """A call whose results are rounded once, as they are stored. A table of the same format is rounded
    to the same numbers, unless a factor multiplies it later.
    """
    a, operation = probe.caller.arithmetic, probe.operation
    once = a.angle.table == a.output and "attention_factor" not in shape.arguments
    angle = replace(a.angle, table=BINARY64) if once else a.angle
    arguments = shape.call(operation, **arrays)
    before = operation.expected(arguments, replace(a, output=BINARY64, angle=angle), probe.caller.conventions)
    targets = {name: operation.stored(name, a, result=True) for name in operation.returned(arguments)}
    sets = (stored(x.mid, x.rad, target, a) for x, target in zip(before, targets.values(), strict=True))
    yield ExactCall(shape, arrays, dict(zip(targets, sets, strict=True)))


def _sizes(probe: Probe, shape: Shape) -> Sizes:
    """The sizes of one key head, with the keys that causality shows to each row."""
    sizes, conventions, given = shape.sizes, probe.caller.conventions, shape.arguments
    heads, is_played = _heads_of_key(shape), probe.operation.is_played
    n_q, n_k = (sizes["total_" + side if _is_packed(shape) else "n_" + side] for side in "qk")
    is_causal = is_played or probe.operation.name == "causal_attention" or given.get("causal")
    aligned = replace(conventions, causal="bottom_right") if is_played else conventions
    visible = np.zeros((n_q, n_k), dtype=bool)
    for queries, keys in _sequences(shape, n_q, n_k):
        block = oracles.causal_mask(len(queries), len(keys), conventions=aligned) if is_causal else True
        visible[queries.start : queries.stop, keys.start : keys.stop] = block
    seen = None if visible.all() else np.tile(visible, (heads, 1))
    return Sizes(heads * n_q, n_k, sizes["head_dim"], sizes["value_dim"], probe.scale(shape), seen)


def _is_packed(shape: Shape) -> bool:
    """Whether the rows of all sequences follow each other."""
    return "cu_q" in shape.arguments


def _sequences(shape: Shape, n_q: int, n_k: int) -> list[tuple[range, range]]:
    """The rows of the queries and of the keys of each sequence."""
    if not _is_packed(shape):
        return [(range(n_q), range(n_k))]
    given = shape.arguments
    queries, keys = (
        sequence_rows(given[f"cu_{side}"], given.get(f"seqused_{side}"), total, side)
        for side, total in (("q", n_q), ("k", n_k))
    )
    return list(zip(queries, keys, strict=True))


def _heads_of_key(shape: Shape) -> int:
    """How many query heads share a key head."""
    return shape.sizes.get("num_heads", 1) // shape.sizes.get("kv_heads", shape.sizes.get("num_heads", 1))


def _entries(shape: Shape) -> int:
    """The number of batch entries and key heads."""
    return prod(shape.batch) * shape.sizes.get("kv_heads", shape.sizes.get("num_heads", 1))


def _stacked(probe: Probe, shape: Shape, name: str, arrays: list[Array]) -> Array:
    """The array of a call, from the arrays of each batch entry and key head."""
    wanted, axes = shape.zeros(probe.operation, name).shape, probe.operation.axes[name]
    if axes[0].startswith("total"):  # rows come before heads
        return np.reshape(arrays, (wanted[1], wanted[0], wanted[2])).swapaxes(0, 1)
    if not _is_tiled(probe, shape) or "num_heads" not in axes:
        return np.reshape(arrays, wanted)
    apart = np.reshape(arrays, (prod(shape.batch), -1, _heads_of_key(shape), *wanted[len(shape.batch) + 1 :]))
    return apart.swapaxes(1, 2).reshape(wanted)


def _is_tiled(probe: Probe, shape: Shape) -> bool:
    """Whether the heads that share a key head are not next to each other."""
    return probe.caller.conventions.kv_heads == "tile" and "kv_heads" in shape.sizes


def _joined(probe: Probe, shape: Shape, name: str, sets: list[Possible]) -> Possible:
    """The set of a result of a call, from the sets of each batch entry and key head."""
    return Possible(*(_stacked(probe, shape, name, list(ends)) for ends in zip(*sets, strict=True)))


PROBES: dict[str, Callable[[Probe, Shape], Calls]] = {
    "scaled_dot_product_attention": _outputs,
    "causal_attention": _outputs,
    "grouped_query_attention": _outputs,
    "attention": _outputs,
    "packed_attention": _outputs,
    "decode": _of_cache,
    "scaled_dot_product_attention_vjp": _gradients,
    "attention_vjp": _gradients,
    "packed_attention_vjp": _gradients,
    "hard_masked_softmax": _softmax,
    "rope": _rotations,
    "rope_vjp": _rotations,
    "apply_rotary": _numbers,
    "apply_rotary_vjp": _numbers,
    "merge_attention": _numbers,
    "rope_tables": _numbers,
    "sinusoidal_positional_encoding": _numbers,
}
"""The operations that have exact probes, each with the function that makes its calls."""
