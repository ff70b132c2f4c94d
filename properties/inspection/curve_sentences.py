"""What a curve of weights over scores says, in a sentence.

A sentence is about all wrong rows: from which score on they are wrong, which softcap explains them,
or which score masked keys get.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from properties.inspection.array import Array
from properties.inspection.curve import Curve, Points

__all__ = ["sentences_of_curve"]

_NEAR = 0.01  # relative: how near two differences of scores are the same


def sentences_of_curve(found: Curve) -> tuple[str, ...]:
    """A sentence about the weights of visible keys, or else about the weights of masked keys; () if
    all weights are nearly right, or if the scale is 0.
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
    received, intended, strange = points.logs(measured), points.logs(expected), np.asarray(wrong.any(-1))
    effect = _effect(measured, received, intended, strange)
    if effect and (limits := _limits(points, softcap)):
        return _sentence(
            f"{condition}beside scores of 0, scores {limits[0]} {effect}; {limits[1]} they are right{where}"
        )
    known = np.isfinite(received) & np.isfinite(intended)
    if not known.any():
        return ""
    with np.errstate(invalid="ignore"):
        error = np.where(known, np.abs(received - intended) / np.maximum(1.0, np.abs(intended)), 0.0)
    if (error <= _NEAR).all():
        return ""
    if rule := _rule(points.scores, received, known, softcap):
        return _sentence(f"{condition}{rule}{where}")
    # The smallest score whose error is nearly the largest.
    sizes = np.where(error > 0.9 * error.max(), np.abs(points.scores), np.inf)
    head, row = np.unravel_index(int(sizes.argmin()), sizes.shape)
    factors = f"gets e^{received[head, row]:.4g} times their weight, should get e^{intended[head, row]:.4g} times"
    return _sentence(
        f"{condition}a key with the score {_number(points.scores[row])} beside scores of 0 {factors}{where}"
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _number(value: float) -> str:
    return f"{value:.6g}" if abs(value) >= 9999 else f"{value:.4g}"


def _effect(measured: Array, received: Array, intended: Array, strange: Array) -> str:
    """Return what all wrong rows have in common, as a verb with its object; "" if they differ."""
    sizes, signs = np.abs(received[strange]), set(np.sign(received[strange]))
    if not np.isfinite(measured[strange]).all(-1).any():
        return "give NaN or infinite weights" if np.isinf(measured[strange]).any() else "give NaN"
    if np.isposinf(sizes).all():
        return "give the lower key the weight 0"
    is_one = np.isfinite(sizes).all() and np.ptp(sizes) <= _NEAR * sizes.max()
    if is_one and (np.abs(intended[strange]) > sizes).all():
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
    "capped scores are tanh(s), should be c·tanh(s / c)": lambda s, c: np.tanh(s),
    "capped scores are c·tanh(s), should be c·tanh(s / c)": lambda s, c: c * np.tanh(s),
    "capped scores are tanh(s / c), should be c·tanh(s / c)": lambda s, c: np.tanh(s / c),
    "capped scores are s / (1 + |s| / c), should be c·tanh(s / c)": lambda s, c: s / (1 + np.abs(s) / c),
    "capped scores are s / √(1 + (s / c)²), should be c·tanh(s / c)": lambda s, c: s / np.hypot(1, s / c),
    "capped scores are 2c/π·arctan(πs / 2c), should be c·tanh(s / c)": lambda s, c: (
        2 * c / np.pi * np.arctan(np.pi * s / (2 * c))
    ),
}
"""What (1) of `properties.inspection.curve` may be equal to instead of c·tanh(s / c)."""


def _rule(scores: Array, received: Array, known: Array, softcap: float | None) -> str:
    """The first rule that is true of all rows with weights that are not 0; "" if no rule is."""
    for rule, logs in _rules(scores, received, known, softcap):
        size = np.maximum(1.0, np.abs(logs))
        if (np.abs(np.where(known, received - logs, 0.0)) <= _NEAR * size).all():
            return rule
    return ""


def _rules(scores: Array, received: Array, known: Array, softcap: float | None) -> Iterator[tuple[str, Array]]:
    """Rules, each with the logarithm of the quotient of weights for each row."""
    if softcap:
        yield from ((rule, capped(scores, softcap)) for rule, capped in _CAPS.items())
        other = float(np.abs(received[known]).max())
        yield f"scores are capped as by softcap={other:.4g}", _capped(scores, other)
    else:
        every = np.broadcast_to(scores, received.shape)[known]
        factor = float(received[known] @ every / max(every @ every, np.finfo(float).tiny))
        yield f"scores are {factor:.4g} times what they should be", factor * scores


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
    scores = np.broadcast_to(points.scores, strange.shape)[strange]
    example = _number(float(scores[np.abs(scores).argmin()]))
    return f"{strange.sum()} of {strange.size} scores of the only visible key {effect}, such as {example}."


def _fill(points: Points, strange: Array, softcap: float | None) -> str:
    """Which score or weight masked keys get, by the last measured key, whose own score is 0; "" if it
    is not the same in all rows.
    """
    received = points.logs(points.reading.measured, -1)
    both = strange & np.isfinite(received)
    scores = np.broadcast_to(_capped(points.scores, softcap), received.shape)[both]
    for said, each in (("score", scores - received[both]), ("weight", -received[both])):
        if len(each) < 2 or np.ptp(each) > _NEAR * np.maximum(1.0, np.abs(each).max()):
            continue
        number = float(np.median(each))
        if said == "weight":
            return f"Masked keys get the weight e^{_number(number)}"
        with np.errstate(all="ignore"):
            own = (received - points.logs(points.reading.measured, 1))[both]
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
