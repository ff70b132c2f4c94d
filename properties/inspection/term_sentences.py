"""What the weights with a bias, a sink or a mask say, in sentences.

A sentence says what a kernel does with the term, if this explains the weights of all wrong rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from properties.inspection.array import Array
from properties.inspection.places import place, placed, sentence
from properties.inspection.read_sentences import index_map
from properties.inspection.terms import Term

__all__ = ["sentences_of_terms"]

_NEAR = 0.02  # how near two logarithms of weights are the same, in all formats

_GETS = ("gets", "get")


def sentences_of_terms(found: Sequence[Term]) -> tuple[str, ...]:
    """What the weights say of each term, in sentences; () if they are right, or nearly. A
    sentence about log-sum-exps follows only if the weights with a sink are right.
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
    received, intended = (_relative_logs(side) for side in term.reading[:2])
    rows = _wrong_rows(term)

    def effect(bias: Array) -> Array:
        return bias - bias[..., -1:]

    return _compared(term, received, intended, rows, effect, _swapped(term.given))


def _relative_logs(side: Array) -> Array:
    """The logarithm of each weight relative to the weight of the last key."""
    with np.errstate(all="ignore"):
        heights = np.log(side)
        return heights - heights[..., -1:]


def _swapped(given: Array) -> list[_Rule]:
    """The rule that queries and keys are exchanged, if there are equally many."""
    is_square = given.shape[-1] == given.shape[-2]
    return [("The bias of query i and key j goes to query j and key i", lambda x: x.mT)][:is_square]


def _of_sink(term: Term) -> str:
    """The sentence about a sink; "" with one key, if the weights of keys differ, or if the scores beside the
    sink are wrong.
    """
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
            return _placed(f"The sink is added to the score of key {key}, should be a separate key", rows, term)
    if not _is_near(logs, 0.0 * sinks, rows):
        return ""
    with np.errstate(all="ignore"):
        received, intended = (np.log(1 / side[..., -1:] - number) for side in (measured, expected))
    if is_whole:
        return _placed("The sink is ignored", rows, term)
    lower = sinks - intended
    of_scores = received - intended
    of_scores[0] = 0.0  # beside scores of 0 the sink is right: then the other scores are wrong
    shifted = "The maximum is not subtracted from the sink"
    plain = "The sink is added to the sum of exponentials without an exponential"
    rules: list[_Rule] = [
        (shifted, lambda x: x + lower),
        (shifted, lambda x: x + np.maximum(x, lower)),
        (plain, lambda x: np.log(x) + lower),
        (plain, np.log),
        ("", lambda x: x + of_scores),
    ]
    return _compared(term, received, intended, rows, lambda x: x - lower, rules)


def _compared(
    term: Term, received: Array, intended: Array, rows: Array, effect: Callable[[Array], Array], more: Sequence[_Rule]
) -> str:
    """The first rule that is true of all wrong rows, as a sentence, or "" for a rule without one: a change
    of the numbers, or another index on an axis. Else the entry that is furthest from what it should be;
    "" for errors like roundings, and for weights that are 0, NaN or infinite.
    """
    if _is_near(received, intended, rows) or not np.isfinite(received[rows]).all():
        return ""
    given = term.given[..., : received.shape[-1]]
    whole = effect(given)
    size = float((whole[rows] ** 2).sum())
    factor = float((received[rows] * whole[rows]).sum()) / size if size else 0.0
    times: _Rule = (f"The {term.name} is multiplied by {factor:.4g}", lambda x: factor * x)
    for said, change in (*_changes(term), *more, times):
        with np.errstate(all="ignore"):
            if _is_near(received, effect(change(given)), rows):
                return said and _placed(said, rows, term)
    for axis, name in enumerate(term.axes):
        if said := _other_index(term, axis, name, received, rows, effect):
            return said
    error = np.where(rows[..., None], np.abs(received - intended), 0.0)
    index = np.unravel_index(int(error.argmax()), error.shape)
    where = place(index[1:-1], term.axes)
    number = f"{int(rows[0].sum())} of {rows[0].size} rows"
    numbers = f"a value of {intended[index]:.4g} counts as {received[index]:.4g}"
    return f"The {term.name} is wrong in {number}: in {where} {numbers}."


def _other_index(
    term: Term, axis: int, name: str, received: Array, rows: Array, effect: Callable[[Array], Array]
) -> str:
    """The sentence that some rows get the term of another index on an axis; "" if they do not."""
    given = term.given[..., : received.shape[-1]]
    size = given.shape[axis + 1]
    read = np.arange(size)
    for own in range(size):
        mine = np.take(rows, [own], axis + 1)
        others = (
            other
            for other in range(size)
            if _is_near(np.take(received, [own], axis + 1), np.take(effect(given), [other], axis + 1), mine)
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


def _is_near(received: Array, other: Array, rows: Array) -> bool:
    """Whether two arrays are nearly equal in some rows, infinite entries included."""
    received, other = (side[rows] for side in (received, np.broadcast_to(other, received.shape)))
    with np.errstate(invalid="ignore"):
        return bool(((received == other) | (np.abs(received - other) <= _NEAR)).all())


def _of_log_sum_exp(term: Term) -> str:
    """The sentence about log-sum-exps with a sink."""
    (received, _), (intended, plain), (wrong, _) = (side[..., 0] for side in term.reading)
    number, sinks = term.given.shape[-1], term.given[0, ..., 0]
    unit = plain / np.log(number) if number > 1 else 1.0
    rules = (
        ("leaves out the sink, should include it", plain),
        ("includes the sink, should leave it out", unit * np.log(number + np.exp(sinks))),
    )
    true = (
        rule for rule, other in rules if not _is_near(received, intended, wrong) and _is_near(received, other, wrong)
    )
    rule = next(true, "")
    return placed(f"The log-sum-exp {rule}", wrong, term.axes) if rule else ""


def _of_mask(term: Term) -> str:
    """The sentence about a mask."""
    measured, expected, _ = term.reading
    rows = _wrong_rows(term)
    received, intended = ((side > _NEAR * side.max(-1, keepdims=True)) for side in (measured, expected))
    received, intended = received.astype(float), intended.astype(float)
    if not np.isfinite(measured[rows]).all() or _is_near(received, intended, rows):
        return ""
    rules: list[_Rule] = [("The mask is ignored", np.ones_like)]
    if term.given.shape[-1] > 2:  # else the mask of another key is the same
        rules.append(("The masked keys are read, and the visible keys are not", lambda x: 1.0 - x))
    given = term.given.astype(float)
    for said, change in rules:
        if _is_near(received, change(given), rows):
            return _placed(said, rows, term)
    masks = replace(term, given=given)
    others = (
        _other_index(masks, axis, name, received, rows, lambda x: x)
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
