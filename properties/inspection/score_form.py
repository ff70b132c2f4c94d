"""How scores are formed from q and k, measured from outside.

The first row of q is 0. For each channel c three rows follow: 0, a·e_c, 0. The keys are the same
rows, in some order of channels, and v tells the keys apart. Let key z be the first visible key that
is 0. Its score is 0 in a right kernel, and also in one that reads a neighbour of z, so

    form[row, j] = (log W[row, j] − log W[row, z]) / a² = scale·[channel(row) = channel(j)]   (1)

where a row of zeros has no channel. Two orders of the keys' channels distinguish another channel
from another key. The error limit of each weight says what is wrong.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from properties.inspection.array import Array
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.shapes import Shape

__all__ = ["ScoreForm", "score_form", "sentences_of_scores"]

_NEAR = 0.01  # of the scale: how near two coefficients are the same
_MOST_CHANNELS = 24  # of wide heads, evenly spaced
_WIDE = 64  # columns of v
_FRACTION = 2.0**-12  # of one-hot rows in formats that have it: TF32 and 16-bit formats do not
_MOST_PAIRS = 2  # of channels, each in a sentence

_STEPS = ((0, 0), (1, 1), (-1, -1), (0, 1), (1, 0), (0, -1), (-1, 0), (1, -1), (-1, 1))
"""How many rows and keys farther a product of channels is read, the simplest first."""


@dataclass(frozen=True)
class ScoreForm:
    """The scores of one-hot rows, by (1).

    queries   the channel of each row of q; −1 is a row of zeros
    keys      `keys[n, j]` is the channel of key j in call n
    reading   the sides of (1), `[n, head, row, j]`, with all leading axes and heads as one; 0 on
              both sides where key j is masked. It is wrong where the weight is
    width     head_dim
    """

    queries: Array
    keys: Array
    reading: Reading
    width: int

    @property
    def scale(self) -> float:
        """The factor of q·k that should be there."""
        expected = self.reading.expected
        return float(expected.flat[np.abs(expected).argmax()])


def score_form(probe: Probe, shape: Shape) -> ScoreForm:
    """Measure how scores are formed, without options other than the scale, and without a mask
    unless all keys are visible. Raises as `Probe.results`.
    """
    width = shape.sizes["head_dim"]
    channels = np.unique(np.linspace(0, width - 1, min(width, _MOST_CHANNELS)).astype(int))
    zeros = np.full(len(channels), -1)
    orders = [np.append(-1, np.stack([zeros, each, zeros], 1)) for each in (channels, np.roll(channels, 1))]
    queries = orders[0]
    number = len(queries)
    mask = shape.arguments.get("mask")
    kept = ("scale", "mask") if mask is not None and mask.all() else ("scale",)
    square = probe.plain(shape, *kept).changed(probe.operation, n_q=number, n_k=number)
    wider = square.changed(probe.operation, value_dim=min(number, _WIDE))
    square = wider if probe.takes(wider) else square
    rows = np.arange(int(np.prod(square.rows(probe.operation, "v")))).reshape(-1, number)
    is_long = probe.caller.arithmetic.inputs.unit_roundoff < _FRACTION
    amplitude = 2.0 ** round(np.log2(width) / 4) * (1 + _FRACTION * is_long)
    q, *keys = (
        _one_hot(probe, square, name, chosen, amplitude)
        for name, chosen in (("q", queries), *(("k", order) for order in orders))
    )
    weights = probe.weights(square, list(rows.T), *({"q": q, "k": k} for k in keys))
    readings = [
        _logs(each.changed(lambda x: x.reshape(-1, number, number)), order, amplitude)
        for each, order in zip(weights, orders, strict=True)
    ]
    return ScoreForm(queries, np.stack(orders), joined(readings, np.stack), width)


def _one_hot(probe: Probe, shape: Shape, parameter: str, channels: Array, amplitude: float) -> Array:
    array, rows = shape.zeros(probe.operation, parameter), np.flatnonzero(channels >= 0)
    array[..., rows, channels[rows]] = amplitude
    return array


def _logs(weights: Reading, order: Array, amplitude: float) -> Reading:
    """Both sides of (1) from the weights of one call."""
    is_visible = weights.expected > 0
    is_zero = is_visible & (order < 0)
    first = is_zero.argmax(-1)[..., None]
    is_known = is_visible & is_zero.any(-1, keepdims=True)

    def logs(side: Array) -> Array:
        with np.errstate(all="ignore"):
            heights = np.log(np.abs(side))
            return np.where(is_known, heights - np.take_along_axis(heights, first, -1), 0.0) / amplitude**2

    return Reading(logs(weights.measured), logs(weights.expected), weights.wrong & is_known)


def sentences_of_scores(found: ScoreForm) -> tuple[str, ...]:
    """What a score form says, in sentences; () if it is right, or nearly."""
    wrong = found.reading.wrong
    heads = wrong.any((0, 2, 3))
    if not heads.any():
        return ()
    where = "" if heads.all() else f" (in {int(heads.sum())} of {heads.size} batch entries and heads)"
    return tuple(f"{sentence}{where}." for sentence in _sentences(found, np.asarray(heads)))


def _sentences(found: ScoreForm, heads: Array) -> list[str]:
    """The sentences about some heads, without their full stop."""
    measured, expected, wrong = (side[:, heads] for side in found.reading)
    if not found.scale:
        return _sentences_of_scale_0(found, measured, wrong)
    if not np.isfinite(measured[wrong]).all():
        return ["Weights of one-hot queries and keys are 0, NaN or infinite where they should not be"]
    difference = np.where(np.isfinite(measured), measured - expected, 0.0)
    near = _NEAR * abs(found.scale)
    if (np.abs(difference) < near).all():
        return []  # errors of rounding, in which nothing of the form shows
    factor = float(np.median(measured[np.abs(expected) > near]))
    if (np.abs(difference - expected * (factor / found.scale - 1)) < near).all():
        return [f"{_scale(found)} is {factor:.4g}, should be {found.scale:.4g}"]
    for step in _STEPS:
        if added := _added(found, difference, step, near):
            return _products(found, step, added)
    return [
        f"{int(wrong.sum())} of {wrong.size} weights of one-hot queries and keys are wrong: {_example(found, heads)}"
    ]


def _sentences_of_scale_0(found: ScoreForm, measured: Array, wrong: Array) -> list[str]:
    """The sentence about scores that should be 0, if one scale explains all of them."""
    is_product = (found.queries[:, None] >= 0) & (found.queries[:, None] == found.keys[:, None, None])
    products = np.broadcast_to(is_product, measured.shape)
    if not np.isfinite(measured).all():
        return ["With a scale of 0, weights of one-hot queries and keys are NaN or infinite"]
    factor = float(np.median(measured[products & wrong])) if (products & wrong).any() else 0.0
    is_scale = factor and (np.abs(measured - factor * products)[wrong] < _NEAR * abs(factor)).all()
    return [f"{_scale(found)} is {factor:.4g}, should be 0"] if is_scale else []


def _scale(found: ScoreForm) -> str:
    """The scale in words, with the sizes on which a wrong one may depend."""
    return f"The scale of scores of {found.keys.shape[1]} keys with head_dim {found.width}"


def _example(found: ScoreForm, heads: Array) -> str:
    """The score that is furthest from what it should be, in words."""
    measured, expected, _ = (side[:, heads] for side in found.reading)
    index = np.unravel_index(int(np.nan_to_num(np.abs(measured - expected), posinf=0.0).argmax()), measured.shape)
    q, k = (
        "a row of zeros" if channel < 0 else f"channel {channel}"
        for channel in (found.queries[index[2]], found.keys[index[0], index[3]])
    )
    return f"{q} of q × {k} of k adds {measured[index]:.3g} to the score, should add {expected[index]:.3g}"


def _added(found: ScoreForm, difference: Array, step: tuple[int, int], near: float) -> dict[tuple[int, int], float]:
    """What the products of channels add to scores, if these products explain every difference: each
    pair adds the same amount wherever both channels are read. Otherwise nothing.
    """
    query_channels = _moved(found.queries, step[0])
    added: dict[tuple[int, int], float] = {}
    explained = np.zeros(difference.shape, bool)
    for c, other in product(np.unique(query_channels[query_channels >= 0]), repeat=2):
        there = np.zeros(difference.shape, bool)
        for call, channels in enumerate(found.keys):
            there[call] = (query_channels == c)[:, None] & (_moved(channels, step[1]) == other)
        amounts = difference[there]
        if amounts.size and np.ptp(amounts) < near and abs(amounts.mean()) > near:
            added[int(c), int(other)] = float(amounts.mean())
            explained |= there
    return added if (np.abs(difference[~explained]) < near).all() else {}


def _moved(channels: Array, step: int) -> Array:
    """The channels of the rows that are `step` rows farther; −1 beyond the ends."""
    rows = np.arange(len(channels)) + step
    return np.where((rows >= 0) & (rows < len(channels)), channels[np.clip(rows, 0, len(channels) - 1)], -1)


def _products(found: ScoreForm, step: tuple[int, int], added: dict[tuple[int, int], float]) -> list[str]:
    """A sentence for each pair of channels, up to a few, and one on the number of all pairs."""
    query, key = (("", "the next row of ", "the previous row of ")[direction] for direction in step)
    said = []
    for (c, other), amount in list(added.items())[:_MOST_PAIRS]:
        due = found.scale if c == other and step == (0, 0) else 0.0
        total = amount + due if abs(amount + due) > _NEAR * abs(found.scale) else 0.0
        said.append(
            f"Channel {c} of {query}q × channel {other} of {key}k adds {total:.3g} to the score, should add {due:.3g}"
        )
    if len(added) > _MOST_PAIRS:
        said.append(f"{len(added)} pairs of channels add another amount to the score")
    return said
