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

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.places import place, placed, sentence
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.read_sentences import index_map
from properties.inspection.shapes import Shape

__all__ = ["Term", "sentences_of_terms", "terms"]

_NEAR = 0.02  # how near two logarithms of weights are the same, in all formats
_LARGEST_CODE = 4.0
_LEVEL = 2.0  # of the scores beside a sink

_GETS = ("gets", "get")


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
    plain = shape.only("scale", "softcap")
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
    return (*["batch"] * len(shape.batch), *heads, "query")


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


def _weights(probe: Probe, shape: Shape, name: str, value: Array, **arrays: Array) -> Reading:
    """The weights of all keys, with a term. Raises OutsideError where the term is not taken."""
    with_term = replace(shape, arguments={**shape.arguments, name: value})
    if not probe.takes(with_term):
        raise OutsideError(f"The implementation takes no {name}.")
    rows, n_k = shape.rows(probe.operation, "q"), shape.sizes["n_k"]
    keys = np.arange(int(np.prod(shape.rows(probe.operation, "v")))).reshape(-1, n_k).T
    return probe.weights(with_term, list(keys), **arrays).changed(lambda side: side.reshape(*rows, n_k))


def _bias(probe: Probe, shape: Shape) -> list[Term]:
    full = (*shape.rows(probe.operation, "q"), shape.sizes["n_k"])
    is_first = np.arange(full[-1]) == 0
    given = [_along(_codes(size), axis, full) * is_first for axis, size in enumerate(full[:-1])]
    given.append(_along(_codes(full[-1])[::-1], len(full) - 1, full))
    readings = [_weights(probe, shape, "bias", bias) for bias in given]
    return [_term(probe, shape, "bias", given, joined(readings, np.stack))]


def _sink(probe: Probe, shape: Shape) -> list[Term]:
    rows, n_k = shape.rows(probe.operation, "q"), shape.sizes["n_k"]
    codes = _codes(shape.sizes["num_heads"])
    both = codes, codes[::-1]
    scale = probe.scale(shape)
    readings, given = [], [_along(each, len(rows) - 2, rows)[..., None] * (np.arange(n_k) == 0) for each in both]
    for level, each in zip((0.0, _LEVEL), both, strict=True):
        q, k = (shape.zeros(probe.operation, name) for name in "qk")
        q[..., 0], k[..., 0] = level, 2.0 ** -round(np.log2(abs(scale))) if scale else 1.0
        readings.append(_weights(probe, shape, "sink", each, q=q, k=k))
    found = [_term(probe, shape, "sink", given, joined(readings, np.stack))]
    shapes = [replace(shape, arguments={**shape.arguments, **options}) for options in ({"sink": codes}, {})]
    sums = [probe.results(each)["lse"].changed(lambda side: side[..., None]) for each in shapes]
    return [*found, _term(probe, shape, "sink in the log-sum-exp", [given[0], 0.0 * given[0]], joined(sums, np.stack))]


def _mask(probe: Probe, shape: Shape) -> list[Term]:
    full = (*shape.rows(probe.operation, "q"), shape.sizes["n_k"])
    if full[-1] < 2:
        raise OutsideError("The implementation takes only one key.")
    hidden = [_along(np.arange(size) % full[-1], axis, full) for axis, size in enumerate(full[:-1])]
    given = [np.arange(full[-1]) != key for key in hidden]
    readings = [_weights(probe, shape, "mask", mask) for mask in given]
    return [_term(probe, shape, "mask", given, joined(readings, np.stack))]


def sentences_of_terms(found: Sequence[Term]) -> tuple[str, ...]:
    """What the weights say of each term, in sentences; () if they are right, or nearly. Log-sum-exps
    are told only if the weights with a sink are right.
    """
    said = {term.name: _SENTENCES[term.name](term) for term in found if term.reading.wrong.any()}
    if said.get("sink"):
        said.pop("sink in the log-sum-exp", None)
    return tuple(filter(None, said.values()))


_Rule = tuple[str, Callable[[Array], Array]]


def _changes(term: Term) -> Iterator[_Rule]:
    """What a kernel may do with a number before it adds it, in words, and as a function."""
    scale, softcap = term.scale, term.softcap
    yield f"The {term.name} is ignored", lambda x: 0.0 * x
    yield f"The {term.name} is subtracted", lambda x: -x
    yield f"The {term.name} is multiplied by the scale, {scale:.4g}", lambda x: scale * x
    yield f"The {term.name} is divided by the scale, {scale:.4g}", lambda x: x / scale if scale else x
    yield f"The {term.name} is multiplied by ln 2", lambda x: np.log(2.0) * x
    yield f"The {term.name} is divided by ln 2", lambda x: x / np.log(2.0)
    if softcap:
        yield f"The softcap, {softcap:g}, is applied to the {term.name} too", lambda x: softcap * np.tanh(x / softcap)
        yield f"The softcap, {softcap:g}, is not applied to the {term.name}", lambda x: x


def _wrong_rows(term: Term) -> Array:
    """The rows that are wrong in some call, for every call."""
    wrong = term.reading.wrong.any(-1)
    return np.broadcast_to(wrong.any(0), wrong.shape)


def _of_bias(term: Term) -> str:
    """The sentence about a bias."""
    got, due = (_relative_logs(side) for side in term.reading[:2])
    rows = _wrong_rows(term)

    def effect(bias: Array) -> Array:
        return np.asarray(bias - bias[..., -1:])

    return _compared(term, got, due, rows, effect, _swapped(term.given))


def _relative_logs(side: Array) -> Array:
    """The left side of (1)."""
    with np.errstate(all="ignore"):
        heights = np.log(side)
        return np.asarray(heights - heights[..., -1:])


def _swapped(given: Array) -> list[_Rule]:
    """The rule that queries and keys are exchanged, if there are equally many."""
    is_square = given.shape[-1] == given.shape[-2]
    return [("The bias of query i and key j goes to query j and key i", lambda x: x.swapaxes(-1, -2))][:is_square]


def _of_sink(term: Term) -> str:
    """The sentence about a sink; "" if there is only one key, or if not all keys have equal weights."""
    measured, expected, _ = term.reading
    number, rows = measured.shape[-1], _wrong_rows(term)
    sinks = term.given[..., :1]
    logs = _relative_logs(measured)
    if number < 2:  # its weight is 1 too where its score has the sink
        return ""
    is_whole = bool((np.abs(measured[rows].sum(-1) - 1) < _NEAR).all())
    for key in range(number) if is_whole else ():
        at_key = sinks * (np.arange(number) == key)
        if _is_near(logs, at_key - at_key[..., -1:], rows):
            return _placed(f"The sink is added to the score of key {key}, should be a key of its own", rows, term)
    if not _is_near(logs, 0.0 * sinks, rows):
        return ""
    with np.errstate(all="ignore"):
        got, due = (np.log(1 / side[..., -1:] - number) for side in (measured, expected))
    if is_whole:
        return _placed("The sink is ignored", rows, term)
    lower = sinks - due
    shifted = "The maximum is not subtracted from the sink"
    plain = "The sink is added to the sum of exponentials without an exponential"
    rules: list[_Rule] = [
        (shifted, lambda x: x + lower),
        (shifted, lambda x: x + np.maximum(x, lower)),
        (plain, lambda x: np.log(x) + lower),
        (plain, np.log),
    ]
    return _compared(term, got, due, rows, lambda x: x - lower, rules)


def _compared(
    term: Term, got: Array, due: Array, rows: Array, effect: Callable[[Array], Array], more: Sequence[_Rule]
) -> str:
    """The first rule that is true of all wrong rows, as a sentence: a change of the numbers, or another
    index on an axis. Else the entry that is furthest from what it should be; "" for errors like
    roundings, and for weights that are 0, NaN or infinite.
    """
    if _is_near(got, due, rows) or not np.isfinite(got[rows]).all():
        return ""
    given = term.given[..., : got.shape[-1]]
    whole = effect(given)
    size = float((whole[rows] ** 2).sum())
    factor = float((got[rows] * whole[rows]).sum()) / size if size else 0.0
    times: _Rule = (f"The {term.name} is multiplied by {factor:.4g}", lambda x: factor * x)
    for said, change in (*_changes(term), *more, times):
        with np.errstate(all="ignore"):
            if _is_near(got, effect(change(given)), rows):
                return _placed(said, rows, term)
    for axis, name in enumerate(term.axes):
        if said := _other_index(term, axis, name, got, rows, effect):
            return said
    error = np.where(rows[..., None], np.abs(got - due), 0.0)
    index = np.unravel_index(int(error.argmax()), error.shape)
    where = place(index[1:-1], term.axes)
    number = f"{int(rows[0].sum())} of {rows[0].size} rows"
    return f"The {term.name} is wrong in {number}: in {where} a value of {due[index]:.4g} counts as {got[index]:.4g}."


def _other_index(term: Term, axis: int, name: str, got: Array, rows: Array, effect: Callable[[Array], Array]) -> str:
    """The sentence that some rows get the term of another index on an axis; "" if they do not."""
    given = term.given[..., : got.shape[-1]]
    size = given.shape[axis + 1]
    read = np.arange(size)
    for own in range(size):
        mine = np.take(rows, [own], axis + 1)
        others = (
            other
            for other in range(size)
            if _is_near(np.take(got, [own], axis + 1), np.take(effect(given), [other], axis + 1), mine)
        )
        if (read_index := next(others, None)) is None:
            return ""
        read[own] = read_index if mine.any() else own
    chosen = np.flatnonzero(read != np.arange(size))
    if not len(chosen):
        return ""
    rule = index_map([int(own) for own in chosen], [int(read[own]) for own in chosen], name, size)
    return sentence(np.asarray(rows.any(0)), term.axes, _GETS, f"the {term.name} of {rule}")


def _placed(said: str, rows: Array, term: Term) -> str:
    """A statement as a sentence, with the rows where it is true in some call."""
    return placed(said, np.asarray(rows.any(0)), term.axes)


def _is_near(got: Array, other: Array, rows: Array) -> bool:
    """Whether two arrays are nearly equal in some rows, infinite entries included."""
    got, other = (side[rows] for side in (got, np.broadcast_to(other, got.shape)))
    with np.errstate(invalid="ignore"):
        return bool(((got == other) | (np.abs(got - other) <= _NEAR)).all())


def _of_log_sum_exp(term: Term) -> str:
    """The sentence about log-sum-exps with a sink."""
    (got, _), (due, plain), (wrong, _) = (side[..., 0] for side in term.reading)
    number, sinks = term.given.shape[-1], term.given[0, ..., 0]
    unit = plain / np.log(number) if number > 1 else 1.0
    rules = (
        ("leaves out the sink, should include it", plain),
        ("includes the sink, should leave it out", unit * np.log(number + np.exp(sinks))),
    )
    true = (rule for rule, other in rules if not _is_near(got, due, wrong) and _is_near(got, other, wrong))
    rule = next(true, "")
    return placed(f"The log-sum-exp {rule}", wrong, term.axes) if rule else ""


def _of_mask(term: Term) -> str:
    """The sentence about a mask."""
    measured, expected, _ = term.reading
    rows = _wrong_rows(term)
    got, due = ((side > _NEAR * side.max(-1, keepdims=True)) for side in (measured, expected))
    got, due = got.astype(float), due.astype(float)
    if not np.isfinite(measured[rows]).all() or _is_near(got, due, rows):
        return ""
    rules: list[_Rule] = [
        ("The mask is ignored", np.ones_like),
        ("A true entry of the mask masks, should allow", lambda x: 1.0 - x),
    ]
    given = term.given.astype(float)
    for said, change in rules:
        if _is_near(got, change(given), rows):
            return _placed(said, rows, term)
    masks = replace(term, given=given)
    others = (
        _other_index(masks, axis, name, got, rows, lambda x: x)
        for axis, name in enumerate(term.axes)
        if given.shape[axis + 1] <= given.shape[-1]  # else two indices hide the same key
    )
    return next(filter(None, others), "")


_SENTENCES: dict[str, Callable[[Term], str]] = {
    "bias": _of_bias,
    "sink": _of_sink,
    "sink in the log-sum-exp": _of_log_sum_exp,
    "mask": _of_mask,
}
"""The sentence about each term."""
