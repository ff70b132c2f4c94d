"""How a rotary embedding rotates each row, measured from outside.

A row that is f in channel c and 0 elsewhere becomes f times row c of the matrix of its position:

    rope(f·e_c, position)[c'] = f·R[position, c, c']                                        (1)

In a right kernel a channel meets itself and its partner, by the cosine and the sine of one angle,
position × frequency. Each row has another whole number f, so a channel of another row shows. A VJP
is measured in the same way, and returns the transposed matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from properties.inspection.array import Array
from properties.inspection.places import place, placed
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.shapes import Shape

__all__ = ["Rotation", "rotation", "sentences_of_rotation"]

_LEAST = 1e-6  # the size of an entry that shows a partner
_NEAR = 0.01  # how near two entries of a rotated unit vector are the same
_MOST_CHANNELS = 16  # where each needs a call
_MOST_NUMBERS = 2**19  # of a call with all channels
_MOST_FACTORS = 128  # whole numbers that all formats store
_MOST_PARTNERS = 2  # each in a sentence


@dataclass(frozen=True)
class Rotation:
    """The matrices of all rows, by (1).

    channels   the channels that were measured
    axes       the names of the axes of x but the last
    reading    `[..., row, c, c']`, where c counts `channels`
    factors    f of each row
    """

    channels: Array
    axes: tuple[str, ...]
    reading: Reading
    factors: Array
    sign: float


def rotation(probe: Probe, shape: Shape) -> Rotation:
    """Measure how rows are rotated, in one call if the implementation takes one more leading axis,
    else in one call for each channel. Raises as `Probe.results`.
    """
    operation, width = probe.operation, shape.sizes["head_dim"]
    coded = "grad_out" if "grad_out" in operation.parameters else "x"
    rows = shape.rows(operation, coded)
    factors = (np.arange(np.prod(rows)) % _MOST_FACTORS + 1.0).reshape(*rows, 1)
    most = max(_MOST_CHANNELS, _MOST_NUMBERS // max(factors.size * width, 1))
    channels = _spread(width, most)
    stacked = shape.changed(operation, batch=(len(channels), *shape.batch))
    if width and probe.takes(stacked):
        x, every = stacked.zeros(operation, coded), np.arange(len(channels))
        x[every, ..., channels] = factors[..., 0]
        (out,) = probe.results(stacked, **{coded: x}).values()
        reading = out.changed(lambda array: np.moveaxis(array, 0, -2))
    else:
        channels = _spread(width, _MOST_CHANNELS)
        one_hot = [factors * (np.arange(width) == channel) for channel in channels] or [np.zeros((*rows, width))]
        readings = [out for x in one_hot for out in probe.results(shape, **{coded: x}).values()]
        reading = joined(readings, lambda parts: np.stack(parts, -2))
    measured, expected = (side / factors[..., None] for side in reading[:2])
    axes = (*shape.lead, "row")
    sign = -1.0 if coded == "grad_out" else 1.0
    return Rotation(channels, axes, Reading(measured, expected, reading.wrong), factors[..., 0], sign)


def _spread(width: int, most: int) -> Array:
    """The channels, or as many as are allowed, evenly spaced."""
    return np.unique(np.linspace(0, width - 1, min(width, most)).astype(int))


def sentences_of_rotation(found: Rotation) -> tuple[str, ...]:
    """What the matrices say, in sentences; () if all are right."""
    measured, _, wrong = found.reading
    if not wrong.any():
        return ()
    if not np.isfinite(measured).all():
        strange = np.asarray(~np.isfinite(measured).all((-2, -1)))
        return (placed("One-hot rows give NaN or infinite numbers", strange, found.axes),)
    return _partners(found) or _rule(found) or _example(found)


def _partners(found: Rotation) -> tuple[str, ...]:
    """The channels that meet others than they should in every row; () where no row has an angle other
    than 0, so that no channel should meet another.
    """
    measured, expected, wrong = (side.reshape(-1, *side.shape[-2:]) for side in found.reading)
    intended = (expected != 0).any(0)
    strange = (wrong & (np.abs(measured) > _LEAST)).any(0) & ~intended
    if (intended.sum(1) <= 1).all():
        return ()
    met = strange | (intended & (measured != 0).any(0))
    every = np.arange(len(found.channels))
    met[every, found.channels] = intended[every, found.channels] = False
    others = np.flatnonzero(strange.any(1))
    sentences = [
        f"Channel {found.channels[row]} is paired with {_listed(met[row])}, should be with {_listed(intended[row])}."
        for row in others[:_MOST_PARTNERS]
    ]
    if len(others) > _MOST_PARTNERS:
        sentences.append(f"{len(others)} of {len(every)} measured channels have another partner.")
    return tuple(sentences)


def _listed(channels: Array) -> str:
    return ", ".join(map(str, np.flatnonzero(channels))) or "no channel"


def _rule(found: Rotation) -> tuple[str, ...]:
    """The first rule that is true of all wrong rows, as a sentence; () if no rule is. The last row has
    no next one, so a rule about the next row is not about it.
    """
    measured, expected, wrong = found.reading
    rows = np.asarray(wrong.any((-2, -1)))
    number = np.arange(rows.shape[-1])

    def is_near(other: Array, some: Array = rows) -> bool:
        return bool(some.any() and (np.abs(measured - other)[some] < _NEAR).all())

    if is_near(expected):
        return ()
    itself = np.eye(wrong.shape[-1], dtype=bool)[found.channels]
    signs = np.where(itself, 1.0, -1.0)
    is_second, exchanged = _of_pairs(found, itself)
    factor = float((measured * expected)[rows].sum() / (expected**2)[rows].sum())
    rules = (
        ("Rows are 0 where they should not be", 0.0 * expected, rows),
        ("Rows are returned as they are", np.broadcast_to(itself, expected.shape), rows),
        ("The second channel of each pair is returned as it is", np.where(is_second, itself, expected), rows),
        ("Rows are rotated by minus their angle", expected * signs, rows),
        ("Rows are rotated by the angle of the next row", np.roll(expected, -1, -3), rows & (number < number[-1])),
        ("Rows are rotated by the angle of the previous row", np.roll(expected, 1, -3), rows & (number > 0)),
        ("Rows are rotated by the angle of row 0", np.broadcast_to(expected[..., :1, :, :], expected.shape), rows),
        (f"Rows are {factor:.4g} times what they should be", factor * expected, rows),
        *((rule, np.where(itself, expected, expected * ratio), rows) for rule, ratio in _other_partners(found)),
        *[("Cosines and sines are exchanged", exchanged, rows)][: int(is_second.any())],
    )
    true = next(((rule, some) for rule, other, some in rules if is_near(other, some)), None)
    return () if true is None else (placed(*true, found.axes),)


def _of_pairs(found: Rotation, itself: Array) -> tuple[Array, Array]:
    """Return which channels are the second ones of their pairs, and what each channel adds if cosines and
    sines are exchanged. A channel without a pair adds what it should.
    """
    expected, every = found.reading.expected, np.arange(len(found.channels))
    others = np.where(itself, 0.0, np.abs(expected)).max(tuple(range(expected.ndim - 2)), initial=0.0)
    partners, is_pair = others.argmax(-1), others.max(-1, initial=0.0) > 0
    is_second = np.zeros(expected.shape[-1], bool)
    is_second[np.maximum(partners, found.channels)[is_pair]] = True
    sign, exchanged = np.where(is_second[found.channels], -found.sign, found.sign)[is_pair], expected.copy()
    paired, own, others = every[is_pair], found.channels[is_pair], partners[is_pair]
    exchanged[..., paired, own] = sign * expected[..., paired, others]
    exchanged[..., paired, others] = sign * expected[..., paired, own]
    return is_second, exchanged


def _other_partners(found: Rotation) -> Iterator[tuple[str, Array]]:
    """Rules that say from which row partners come, each with f of this row divided by the own f."""
    for axis, name in enumerate(found.axes):
        for step, word in ((1, "previous"), (-1, "next")):
            ratio = np.roll(found.factors, step, axis) / found.factors
            yield f"Partner channels come from the {word} {name}", ratio[..., None, None]


def _example(found: Rotation) -> tuple[str, ...]:
    """The number of wrong rows, and the channel that is furthest from what it should be: by its
    angle, if its length is right, else by its numbers. () for errors that look like roundings.
    """
    measured, expected, wrong = found.reading
    rows = wrong.any((-2, -1))
    number = f"{int(rows.sum())} of {rows.size} rows {'is' if rows.sum() == 1 else 'are'} wrong"
    error = np.where(wrong, np.abs(measured - expected), 0.0)
    index = np.unravel_index(int(error.max(-1).argmax()), wrong.shape[:-1])
    channel = int(found.channels[index[-1]])
    sizes = np.abs(measured[index]) + np.abs(expected[index])
    partner = int(np.where(np.arange(len(sizes)) == channel, -1.0, sizes).argmax())
    where = f"in {place(index[:-1], found.axes)}, channel {channel}"
    received, intended = ((float(side[index][channel]), float(side[index][partner])) for side in (measured, expected))
    if abs(np.hypot(*received) - np.hypot(*intended)) < _NEAR:
        angle, right = (f"{np.arctan2(sine, cosine):.4g}" for cosine, sine in (received, intended))
        turn = f"{where} is rotated towards channel {partner} by {angle}, should be by {right} (modulo 2π)"
        return (f"{number}: {turn}.",) if angle != right else ()
    if not received[1] and not intended[1]:
        return (f"{number}: {where} adds {received[0] + 0.0:.4g} to itself, should add {intended[0] + 0.0:.4g}.",)
    own, other = (
        f"{own + 0.0:.4g} to itself and {sine + 0.0:.4g} to channel {partner}" for own, sine in (received, intended)
    )
    return (f"{number}: {where} adds {own}, should add {other}.",)
