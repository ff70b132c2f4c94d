"""The weights of two keys as a function of their scores, measured from outside.

The score of key 0 is s, another one in each row of q, and the scores of all other keys are 0. In a
right kernel without a softcap

    log W[row, 0] − log W[row, 1] = s                                                        (1)

and with a softcap c it is c·tanh(s / c). In a second measurement key 0 is the only visible key, so
its weight is 1. If masked keys get a score f instead of no weight, the left side of (1) is s − f.
The error limit of each weight says what is wrong. Where right and wrong scores meet, more scores
are measured between them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.shapes import Shape

__all__ = ["Curve", "Points", "curve", "sentences_of_curve"]

_EXPONENTS = (*range(-2, 11), 12, 16, 24, 32, 48, 64, 128, 256, 511)
"""The first scores are ± 2 to these powers, as far as the format reaches."""

_ROUNDS = 3  # of scores between right and wrong ones
_ROUNDS_OF_FILLS = 6  # until both weights are neither 0 nor 1
_BETWEEN = 15  # scores between a right one and a wrong one
_NEAR = 0.01  # relative: how near two differences of scores are the same


@dataclass(frozen=True)
class Points:
    """The weights of keys 0 and 1 in rows with different scores.

    scores    the score of key 0 in each row, ascending
    own       the score of key 1, if it is masked, else 0
    reading   the weights, `[head, row, key]`, with all leading axes and heads as one; of masked keys
              those of key 2 too, if there is one
    """

    scores: Array
    own: float
    reading: Reading

    def logs(self, side: Array, key: int = 1) -> Array:
        """The left side of (1) for some key, `[head, row]`; not finite where a weight is 0, NaN or
        infinite.
        """
        with np.errstate(all="ignore"):
            heights = np.log(side)
            return np.asarray(heights[..., 0] - heights[..., key])

    @property
    def states(self) -> Array:
        """For each row 1 if it is wrong in some head, −1 if it is right in all, and 0 if it is neither:
        the error limit of very large scores may allow everything.
        """
        measured, expected, wrong = self.reading
        with np.errstate(invalid="ignore"):
            is_right = (np.abs(measured - expected) <= _NEAR * np.abs(expected)).all((0, 2))
        return np.where(wrong.any((0, 2)), 1, -1 * is_right)


@dataclass(frozen=True)
class Curve:
    """The weights of two visible keys, and those of a visible and a masked key.

    softcap   the softcap of the calls; None without one
    visible   the points where all keys are visible
    masked    the points where key 0 is the only visible key; None if no mask can be given
    """

    softcap: float | None
    visible: Points
    masked: Points | None


def curve(probe: Probe, shape: Shape) -> Curve:
    """Measure weights as a function of scores. Raises as `Probe.results`, and OutsideError for less
    than two keys.
    """
    operation = probe.operation
    largest = np.log2(probe.caller.largest_harmless)
    powers = 2.0 ** np.array([exponent for exponent in _EXPONENTS if exponent <= largest])
    numbers = np.concatenate([-powers[::-1], [0.0], powers])
    plain = shape.only("scale", "softcap")
    square = plain.changed(operation, n_q=len(numbers), n_k=len(numbers))
    plain = square if probe.takes(square) else plain
    if plain.sizes["n_k"] < 2:
        raise OutsideError("The implementation takes only one key.")
    masked = None
    if "mask" in operation.parameters:
        visible = np.arange(plain.sizes["n_k"]) == 0
        shown = np.broadcast_to(visible, (*plain.rows(operation, "q"), len(visible)))
        one_key = replace(plain, arguments={**plain.arguments, "mask": shown})
        with suppress(OutsideError):
            masked = _points(probe, one_key, numbers, _ROUNDS_OF_FILLS) if probe.takes(one_key) else None
    return Curve(plain.arguments.get("softcap"), _points(probe, plain, numbers, _ROUNDS), masked)


def _points(probe: Probe, shape: Shape, numbers: Array, rounds: int) -> Points:
    """The weights for some numbers in q, and for more numbers between right and wrong ones."""
    scale = probe.scale(shape)
    power = 2.0 ** -round(np.log2(abs(scale))) if scale else 1.0
    factor, found = scale * power, _weights(probe, shape, numbers, power)
    for _ in range(rounds):
        states = Points(numbers, 0.0, found).states
        more = np.setdiff1d(_between(numbers, states, probe.caller.arithmetic.inputs.unit_roundoff), numbers)
        if not len(more):
            break
        found = joined([found, _weights(probe, shape, more, power)], partial(np.concatenate, axis=1))
        order = np.argsort(numbers := np.concatenate([numbers, more]))
        numbers, found = numbers[order], found.changed(partial(np.take, indices=order, axis=1))
    own = factor if _has_own_score(shape) else 0.0
    if factor < 0:
        numbers, found = numbers[::-1], found.changed(partial(np.flip, axis=1))
    return Points(factor * numbers, own, found)


def _has_own_score(shape: Shape) -> bool:
    """Whether key 1, which is masked, gets a score other than 0."""
    return "mask" in shape.arguments and shape.sizes["head_dim"] > 1 and shape.sizes["n_k"] > 2


def _weights(probe: Probe, shape: Shape, numbers: Array, power: float) -> Reading:
    """The weights of keys 0 and 1, with a number in each row of q and a power of two in key 0; of
    masked keys those of key 2 too.
    """
    operation, n_q, n_k = probe.operation, shape.sizes["n_q"], shape.sizes["n_k"]
    k = shape.zeros(operation, "k")
    k[..., 0, 0] = power
    firsts = np.arange(0, int(np.prod(shape.rows(operation, "v"))), n_k)
    keys = [firsts + key for key in range(3 if _has_own_score(shape) else 2)]
    parts = []
    for start in range(0, len(numbers), n_q):
        some = numbers[start : start + n_q]
        q = shape.zeros(operation, "q")
        q[..., : len(some), 0] = some
        if _has_own_score(shape):
            q[..., 1], k[..., 1, 1] = 1.0, power
        found = probe.weights(shape, keys, q=q, k=k)
        parts.append(found.changed(lambda side: side.reshape(-1, n_q, len(keys))))
    # The rows of the last call that have no number are left out.
    return joined(parts, lambda sides: np.concatenate(sides, 1)[:, : len(numbers)])


def _between(numbers: Array, states: Array, roundoff: float) -> Array:
    """Numbers of a format between right and wrong neighbours, with equal quotients."""
    found = []
    for place in np.flatnonzero(states[1:] * states[:-1] == -1):
        ends = numbers[place : place + 2]
        if not ends.all():
            continue
        exact = ends[0] * (ends[1] / ends[0]) ** (np.arange(1, _BETWEEN + 1) / (_BETWEEN + 1))
        fraction, exponent = np.frexp(exact)
        found.append(np.ldexp(np.round(fraction / (2 * roundoff)) * 2 * roundoff, exponent))
    return np.unique(np.concatenate(found)) if found else np.array([])


def sentences_of_curve(found: Curve) -> tuple[str, ...]:
    """What the weights of visible keys say in a sentence, or else those of masked keys; () if all are
    right, or nearly, or if the scale is 0.
    """
    if not found.visible.scores.any():
        return ()
    said = _of_visible(found.visible, found.softcap) or (
        _of_masked(found.masked, found.softcap) if found.masked else ""
    )
    return (said,) if said else ()


def _of_visible(points: Points, softcap: float | None) -> str:
    """The sentence about visible keys; "" if their weights are right, or nearly."""
    heads = points.reading.wrong.any((1, 2))
    measured, expected, wrong = (side[heads] for side in points.reading)
    if not wrong.any():
        return ""
    condition = f"With softcap={softcap:g}, " if softcap else ""
    where = "" if heads.all() else f" (in {int(heads.sum())} of {heads.size} batch entries and heads)"
    got, due, strange = points.logs(measured), points.logs(expected), np.asarray(wrong.any(-1))
    effect = _effect(measured, got, due, strange)
    if effect and (limits := _limits(points, softcap)):
        return _sentence(f"{condition}scores {limits[0]} {effect}; {limits[1]} they are right{where}")
    known = np.isfinite(got) & np.isfinite(due)
    if not known.any():
        return ""
    with np.errstate(invalid="ignore"):
        error = np.where(known, np.abs(got - due) / np.maximum(1.0, np.abs(due)), 0.0)
    if (error <= _NEAR).all():
        return ""
    if rule := _rule(points.scores, got, known, softcap):
        return _sentence(f"{condition}{rule}{where}")
    # The smallest score whose error is nearly the largest.
    sizes = np.where(error > 0.9 * error.max(), np.abs(points.scores), np.inf)
    head, row = np.unravel_index(int(sizes.argmin()), sizes.shape)
    factors = f"gets e^{got[head, row]:.4g} times their weight, should get e^{due[head, row]:.4g} times"
    return _sentence(
        f"{condition}a key with the score {_number(points.scores[row])} beside scores of 0 {factors}{where}"
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _number(value: float) -> str:
    return f"{value:.6g}" if abs(value) >= 9999 else f"{value:.4g}"


def _effect(measured: Array, got: Array, due: Array, strange: Array) -> str:
    """What is true of all wrong rows, as a verb with its object; "" if nothing is."""
    sizes, signs = np.abs(got[strange]), set(np.sign(got[strange]))
    if not np.isfinite(measured[strange]).all(-1).any():
        return "give NaN or infinite weights" if np.isinf(measured[strange]).any() else "give NaN"
    if np.isposinf(sizes).all():
        return "give the lower key the weight 0"
    is_one = np.isfinite(sizes).all() and np.ptp(sizes) <= _NEAR * sizes.max()
    if is_one and (np.abs(due[strange]) > sizes).all():
        sign = "±" if len(signs) > 1 else "−" if -1 in signs else ""
        return f"count as {sign}{_number(sizes.mean())}"
    return ""


def _limits(points: Points, softcap: float | None = None) -> tuple[str, str] | None:
    """From which scores on rows are wrong, and up to which they are right, in words. None if wrong
    scores are not the largest, the smallest, or both.
    """
    found = {}
    for sign, minus in ((1, ""), (-1, "−")):
        side = sign * points.scores >= 0
        sizes, states = np.abs(points.scores[side]), points.states[side]
        if (states > 0).any():
            first, last = float(sizes[states > 0].min()), float(sizes[states < 0].max(initial=-1.0))
            if not 0 <= last < first:
                return None
            found[minus] = _apart(first / (softcap or 1.0), last / (softcap or 1.0))
    if len(found) == 2 and len(set(found.values())) == 1:
        found = {"±": found[""]}
    unit = " × the softcap" if softcap else ""
    first_wrong, last_right = (
        " and ".join(f"{sign}{numbers[place]}{unit}" for sign, numbers in found.items()) for place in (0, 1)
    )
    return f"from {first_wrong} on", f"up to {last_right}"


def _apart(first: float, last: float) -> tuple[str, str]:
    """Two numbers in words, with as many digits as tell them apart."""
    texts = ((f"{first:.{digits}g}", f"{last:.{digits}g}") for digits in range(4, 18))
    return next((pair for pair in texts if pair[0] != pair[1]), (f"{first:.17g}", f"{last:.17g}"))


_CAPS: Mapping[str, Callable[[Array, float], Array]] = {
    "scores are not capped": lambda s, c: s,
    "scores are cut off at ± the softcap, should be c·tanh(s / c)": lambda s, c: np.clip(s, -c, c),
    "the softcap is tanh(s), should be c·tanh(s / c)": lambda s, c: np.tanh(s),
    "the softcap is c·tanh(s), should be c·tanh(s / c)": lambda s, c: c * np.tanh(s),
    "the softcap is tanh(s / c), should be c·tanh(s / c)": lambda s, c: np.tanh(s / c),
    "the softcap is s / (1 + |s| / c), should be c·tanh(s / c)": lambda s, c: s / (1 + np.abs(s) / c),
    "the softcap is s / √(1 + (s / c)²), should be c·tanh(s / c)": lambda s, c: s / np.hypot(1, s / c),
    "the softcap is 2c/π·arctan(πs / 2c), should be c·tanh(s / c)": lambda s, c: (
        2 * c / np.pi * np.arctan(np.pi * s / (2 * c))
    ),
}
"""What the left side of (1) may be instead of a softcap c."""


def _rule(scores: Array, got: Array, known: Array, softcap: float | None) -> str:
    """The first rule that is true of all rows with weights that are not 0; "" if no rule is."""
    for rule, logs in _rules(scores, got, known, softcap):
        size = np.maximum(1.0, np.abs(logs))
        if (np.abs(np.where(known, got - logs, 0.0)) <= _NEAR * size).all():
            return rule
    return ""


def _rules(scores: Array, got: Array, known: Array, softcap: float | None) -> Iterator[tuple[str, Array]]:
    """Rules, each with the left side of (1) for each row."""
    if softcap:
        yield from ((rule, capped(scores, softcap)) for rule, capped in _CAPS.items())
    else:
        every = np.broadcast_to(scores, got.shape)[known]
        factor = float(got[known] @ every / max(every @ every, np.finfo(float).tiny))
        yield f"scores count {factor:.4g} times what they should", factor * scores


def _of_masked(points: Points, softcap: float | None) -> str:
    """The sentence about masked keys; "" if their weights are 0."""
    measured, _, wrong = points.reading
    strange = np.asarray(wrong.any(-1))
    if not strange.any():
        return ""
    effect = "give NaN or infinite weights"
    if np.isfinite(measured[strange]).all():
        if said := _fill(points, strange, softcap):
            return f"{said}, should get the weight 0."
        is_lost, is_read = (measured[strange][:, 0] == 0).all(), (measured[strange][:, 1:] > 0).all()
        if is_lost and is_read:
            return (
                "Visible keys get the weight 0, and masked keys do not: a true entry of the mask masks, should allow."
            )
        effect = (
            "give masked keys a weight" if is_read
            else "give every key the weight 0" if (measured[strange] == 0).all()
            else "are wrong"
        )  # fmt: skip
    if limits := _limits(points):
        return f"Scores {limits[0]} of the only visible key {effect}; {limits[1]} they are right."
    return f"Some scores of the only visible key {effect}."


def _fill(points: Points, strange: Array, softcap: float | None) -> str:
    """Which score or weight masked keys get, by the last measured key, whose own score is 0; "" if it
    is not the same in all rows.
    """
    got = points.logs(points.reading.measured, -1)
    both = strange & np.isfinite(got)
    scores = np.broadcast_to(_capped(points.scores, softcap), got.shape)[both]
    for said, each in (("score", scores - got[both]), ("weight", -got[both])):
        if len(each) < 2 or np.ptp(each) > _NEAR * np.maximum(1.0, np.abs(each).max()):
            continue
        number = float(np.median(each))
        if said == "weight":
            return f"Masked keys get the weight e^{_number(number)}"
        with np.errstate(all="ignore"):
            own = (got - points.logs(points.reading.measured, 1))[both]
        keeps = bool(points.own) and np.allclose(own, _capped(np.asarray(points.own), softcap), rtol=0, atol=_NEAR)
        if keeps and abs(number) <= _NEAR:
            return "Masked keys keep their scores"
        return (
            f"Masked keys get {_number(number)} added to their scores"
            if keeps
            else (f"Masked keys get the score {_number(number)}")
        )
    return ""


def _capped(scores: Array, softcap: float | None) -> Array:
    return np.asarray(softcap * np.tanh(scores / softcap)) if softcap else scores
