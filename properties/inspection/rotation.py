"""How a rotary embedding rotates each row, measured from outside.

A row that is f in channel c and 0 elsewhere becomes f times row c of the matrix of its position:

    rope(f·e_c, position)[c'] = f·R[position, c, c']                                        (1)

In a right kernel a channel meets itself and its partner, by the cosine and the sine of one angle,
position × frequency. Each row has another whole number f, so a channel of another row shows. A VJP
is measured in the same way, and returns the transposed matrix.
"""

from dataclasses import dataclass

import numpy as np

from properties.inspection.array import Array
from properties.inspection.places import place, placed
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.shapes import Shape

__all__ = ["Rotation", "rotation", "sentences_of_rotation"]

_NEAR = 0.01  # the size of an entry of a rotated unit vector that is described as 0
_MOST_CHANNELS = 16  # where each needs a call, evenly spaced
_MOST_FACTORS = 128  # whole numbers that all formats store
_MOST_PARTNERS = 2  # each in a sentence


@dataclass(frozen=True)
class Rotation:
    """The matrices of all rows, by (1).

    channels   the channels that were measured
    axes       the names of the axes of x but the last
    reading    `[..., row, c, c']`, where c counts `channels`
    """

    channels: Array
    axes: tuple[str, ...]
    reading: Reading


def rotation(probe: Probe, shape: Shape) -> Rotation:
    """Measure how rows are rotated, in one call if the implementation takes one more leading axis,
    else in one call for each channel. Raises as `Probe.results`.
    """
    operation, width = probe.operation, shape.sizes["head_dim"]
    coded = "grad_out" if "grad_out" in operation.parameters else "x"
    rows = shape.rows(operation, coded)
    factors = (np.arange(np.prod(rows)) % _MOST_FACTORS + 1.0).reshape(*rows, 1)
    stacked = shape.changed(operation, batch=(width, *shape.batch))
    if probe.takes(stacked):
        channels = np.arange(width)
        x = stacked.zeros(operation, coded)
        x[channels, ..., channels] = factors[..., 0]
        (out,) = probe.results(stacked, **{coded: x}).values()
        reading = out.changed(lambda array: np.moveaxis(array, 0, -2))
    else:
        channels = np.unique(np.linspace(0, width - 1, min(width, _MOST_CHANNELS)).astype(int))
        one_hot = [factors * (np.arange(width) == channel) for channel in channels]
        readings = [out for x in one_hot for out in probe.results(shape, **{coded: x}).values()]
        reading = joined(readings, lambda parts: np.stack(parts, -2))
    measured, expected = (side / factors[..., None] for side in reading[:2])
    axes = (*["batch"] * len(shape.batch), "row")
    return Rotation(channels, axes, Reading(measured, expected, reading.wrong))


def sentences_of_rotation(found: Rotation) -> tuple[str, ...]:
    """What the matrices say, in sentences; () if all are right."""
    measured, _, wrong = found.reading
    if not wrong.any():
        return ()
    if not np.isfinite(measured).all():
        strange = np.asarray(~np.isfinite(measured).all((-2, -1)))
        return (placed("One-hot rows give NaN or infinite numbers", strange, found.axes),)
    rule = _rule(found)
    return _partners(found) or (
        (placed(rule, np.asarray(wrong.any((-2, -1))), found.axes),) if rule else _example(found)
    )


def _partners(found: Rotation) -> tuple[str, ...]:
    """The channels that meet others than they should, in some row."""
    measured, expected, wrong = (side.reshape(-1, *side.shape[-2:]) for side in found.reading)
    strange = (wrong & (expected == 0)).any(0)
    due = (expected != 0).any(0)
    met = strange | (due & (measured != 0).any(0))
    every = np.arange(len(found.channels))
    met[every, found.channels] = due[every, found.channels] = False
    others = np.flatnonzero(strange.any(1))
    said = [
        f"Channel {found.channels[row]} is paired with {_listed(met[row])}, should be with {_listed(due[row])}."
        for row in others[:_MOST_PARTNERS]
    ]
    if len(others) > _MOST_PARTNERS:
        said.append(f"{len(others)} of {len(every)} channels have another partner.")
    return tuple(said)


def _listed(channels: Array) -> str:
    return ", ".join(map(str, np.flatnonzero(channels))) or "no channel"


def _rule(found: Rotation) -> str:
    """The first rule that is true of all wrong rows; "" if no rule is."""
    measured, expected, wrong = found.reading
    rows = wrong.any((-2, -1))
    got, due = measured[rows], expected[rows]

    def is_near(other: Array) -> bool:
        return bool((np.abs(got - other) < _NEAR).all())

    signs = np.where(np.eye(got.shape[-1], dtype=bool)[found.channels], 1.0, -1.0)
    if not got.any():
        return "Rows are 0 where they should not be"
    if is_near(due):
        return ""
    if is_near(due * signs):
        return "Rows are rotated by minus their angle"
    inner = np.broadcast_to(np.arange(expected.shape[-3]), expected.shape[:-2])[rows]
    for step, word in ((1, "next"), (-1, "previous")):
        moved = np.roll(expected, -step, -3)[rows]
        is_there = (inner + step >= 0) & (inner + step < expected.shape[-3])
        if is_there.any() and (np.abs(got - moved)[is_there] < _NEAR).all():
            return f"Rows are rotated by the angle of the {word} row"
    if is_near(np.broadcast_to(expected[..., :1, :, :], expected.shape)[rows]):
        return "Rows are rotated by the angle of row 0"
    factor = float((got * due).sum() / (due * due).sum())
    if is_near(due * factor):
        return f"Rows are {factor:.4g} times what they should be"
    return ""


def _example(found: Rotation) -> tuple[str, ...]:
    """The number of wrong rows, and the channel that is furthest from what it should be: by its
    angle, if its length is right, else by its numbers. () for errors that look like roundings.
    """
    measured, expected, wrong = found.reading
    index = np.unravel_index(int(np.abs(measured - expected).max(-1).argmax()), wrong.shape[:-1])
    channel = int(found.channels[index[-1]])
    partner = int(np.abs(np.where(np.arange(expected.shape[-1]) == channel, 0.0, expected[index])).argmax())
    got, due = ((float(side[index][channel]), float(side[index][partner])) for side in (measured, expected))
    if abs(np.hypot(*got) - np.hypot(*due)) < _NEAR:
        angles = [f"{np.arctan2(sine, cosine):.4g}" for cosine, sine in (got, due)]
        text = "is rotated towards channel {} by {}, should be by {} (modulo 2π)".format(partner, *angles)
    else:
        angles = []
        text = "adds {:.4g} to itself and {:.4g} to channel {}, should add {:.4g} and {:.4g}".format(
            *got, partner, *due
        )
    if len(set(angles)) == 1:
        return ()
    rows = wrong.any((-2, -1))
    number = f"{int(rows.sum())} of {rows.size} rows {'is' if rows.sum() == 1 else 'are'} wrong"
    return (f"{number}: in {place(index[:-1], found.axes)}, channel {channel} {text}.",)
