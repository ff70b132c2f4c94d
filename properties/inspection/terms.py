"""Where the bias, the sink and the mask go, measured from outside.

All scores are equal, and the numbers that are given tell their own place. For each axis of the
bias, in one call the bias of key 0 is the code of the index on this axis. For the axis of keys it
is the code of the key. With a bias b, right kernels give

    log W[row, j] − log W[row, last] = b[row, j] − b[row, last]                              (1)

The sink of a head is the code of the head, or of the head that comes as late from the other end, at
scores 0 and 2. With n keys of score u, and a sink s,

    log(1 / W[row, j] − n) = s − u                                                           (2)

A mask hides in each row the key whose number is the index on an axis. The error limit of each
weight says what is wrong.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.shapes import Shape

__all__ = ["Term", "terms"]

_LARGEST_CODE = 4.0
_LEVEL = 2.0  # of the scores beside a sink


@dataclass(frozen=True)
class Term:
    """The weights that a term gives to keys.

    name      "bias", "sink", "sink in the log-sum-exp" or "mask"
    axes      the names of the axes of the output but the last
    given     the term for each row and each key, `[call, ..., query, key]`. A sink is given for key 0
    reading   the weights, of the same shape; or the log-sum-exps, `[call, ..., query, 1]`, with the
              sink and without
    scale     the factor of q·k
    softcap   the softcap; None without one
    """

    name: str
    axes: tuple[str, ...]
    given: Array
    reading: Reading
    scale: float
    softcap: float | None


def terms(probe: Probe, shape: Shape, names: Collection[str] = ("bias", "sink", "mask")) -> tuple[Term, ...]:
    """Measure where some terms go, as far as the implementation takes them. Raises as
    `Probe.results`.
    """
    plain = probe.plain(shape, "scale", "softcap")
    wider = plain.changed(probe.operation, value_dim=plain.sizes["n_k"])
    plain = wider if probe.takes(wider) else plain
    found = []
    for name, measure in (("bias", _bias), ("sink", _sink), ("mask", _mask)):
        if name in names and name in probe.operation.parameters:
            with suppress(OutsideError):
                found += measure(probe, plain)
    return tuple(found)


def _axes(probe: Probe, shape: Shape) -> tuple[str, ...]:
    heads = ("head",) if "num_heads" in shape.sizes else ()
    return (*shape.lead, *heads, "query")


def _codes(size: int) -> Array:
    """A number of at most 4 for each index, which all formats hold."""
    return np.asarray((np.arange(size) + 1) * 2.0 ** np.floor(np.log2(_LARGEST_CODE / max(size, 1))))


def _along(values: Array, axis: int, shape: Sequence[int]) -> Array:
    """An array whose entries depend on the index on one axis alone."""
    aligned = values.reshape([-1 if place == axis else 1 for place in range(len(shape))])
    return np.broadcast_to(aligned, shape)


def _term(probe: Probe, shape: Shape, name: str, given: Sequence[Array], reading: Reading) -> Term:
    softcap = shape.arguments.get("softcap")
    return Term(name, _axes(probe, shape), np.stack(given), reading, probe.scale(shape), softcap)


def _weighed(
    probe: Probe, shape: Shape, name: str, calls: Sequence[Mapping[str, Array]]
) -> tuple[Reading, dict[str, Reading]]:
    """The weights of all keys in some calls, each with a term, and all results of the first call. Raises
    OutsideError where a term is not taken.
    """
    if not all(probe.takes(replace(shape, arguments={**shape.arguments, name: each[name]})) for each in calls):
        raise OutsideError(f"The implementation takes no {name}.")
    rows, n_k = shape.rows(probe.operation, "q"), shape.sizes["n_k"]
    keys = np.arange(int(np.prod(shape.rows(probe.operation, "v")))).reshape(-1, n_k).T
    found = probe.weighed(shape, list(keys), *calls)
    weights = joined([results["out"] for results in found], np.stack)
    return weights.changed(lambda side: side.reshape(-1, *rows, n_k)), found[0]


def _bias(probe: Probe, shape: Shape) -> list[Term]:
    full = (*shape.rows(probe.operation, "q"), shape.sizes["n_k"])
    is_first = np.arange(full[-1]) == 0
    given = [_along(_codes(size), axis, full) * is_first for axis, size in enumerate(full[:-1])]
    given.append(_along(_codes(full[-1])[::-1], len(full) - 1, full))
    weights, _ = _weighed(probe, shape, "bias", [{"bias": bias} for bias in given])
    return [_term(probe, shape, "bias", given, weights)]


def _sink(probe: Probe, shape: Shape) -> list[Term]:
    rows, n_k = shape.rows(probe.operation, "q"), shape.sizes["n_k"]
    scale, codes = probe.scale(shape), _codes(shape.sizes["num_heads"])
    both = codes, codes[::-1]
    calls, given = [], [_along(each, len(rows) - 2, rows)[..., None] * (np.arange(n_k) == 0) for each in both]
    for level, each in zip((0.0, _LEVEL), both, strict=True):
        q, k = (shape.zeros(probe.operation, name) for name in "qk")
        q[..., 0], k[..., 0] = level, 2.0 ** -round(np.log2(abs(scale))) if scale else 1.0
        calls.append({"sink": each, "q": q, "k": k})
    weights, first = _weighed(probe, shape, "sink", calls)
    sums = [each["lse"].changed(lambda side: side[..., None]) for each in (first, probe.results(shape))]
    return [
        _term(probe, shape, "sink", given, weights),
        _term(probe, shape, "sink in the log-sum-exp", [given[0], 0.0 * given[0]], joined(sums, np.stack)),
    ]


def _mask(probe: Probe, shape: Shape) -> list[Term]:
    full = (*shape.rows(probe.operation, "q"), shape.sizes["n_k"])
    if full[-1] < 2:
        raise OutsideError("The implementation takes only one key.")
    hidden = [_along(np.arange(size) % full[-1], axis, full) for axis, size in enumerate(full[:-1])]
    given = [np.arange(full[-1]) != key for key in hidden]
    weights, _ = _weighed(probe, shape, "mask", [{"mask": mask} for mask in given])
    return [_term(probe, shape, "mask", given, weights)]
