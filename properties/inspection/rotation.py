"""How a rotary embedding turns each row, measured from outside.

A row that is 1 in channel c and 0 elsewhere becomes row c of the matrix by which its position turns
every row:

    rope(e_c, position)[c'] = R[position, c, c']                                            (1)

In a right kernel a channel meets itself and its partner, by the cosine and the sine of one angle,
position × frequency.
"""

from dataclasses import dataclass

import numpy as np

from oracles.ball import Array
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS

__all__ = ["Rotation", "rotation", "sentences_of_rotation"]

NEAR = 0.01
"""The size of an entry of a turned unit vector up to which it is described as 0."""


@dataclass(frozen=True)
class Rotation:
    """The matrix of each row, by (1): `measured[row, c, c']`, what it should be, where it is outside
    its error limit, and the first position.
    """

    measured: Array
    expected: Array
    wrong: Array
    start: int


def rotation(caller: Caller, rows: int, width: int, start: int = 0) -> Rotation:
    """Measure how rows at positions start, start + 1, … are turned: one call for each channel.

    Raises BrokenError where the implementation raises, and OutsideError where it does not take the
    sizes.
    """
    operation, found = OPERATIONS[caller.operation], []
    for channel in range(width):
        x = np.zeros((rows, width))
        x[:, channel] = 1.0
        given = {"x": x, "start_pos": start}
        (out, *_) = caller.watch(caller.operation, tuple(given.get(p) for p in operation.parameters)).results
        found.append((out.value, out.budget.mid, out.excess > 1))
    return Rotation(*(np.stack(parts, 1) for parts in zip(*found, strict=True)), start)


def sentences_of_rotation(found: Rotation) -> list[str]:
    """What the matrices say, in sentences; none where all are right."""
    if not found.wrong.any():
        return []
    if not np.isfinite(found.measured).all():
        return ["Rows of one-hot channels are NaN or infinite."]
    return _partners(found) or _of_all_rows(found) or _of_some_rows(found)


def _partners(found: Rotation) -> list[str]:
    """The channels that are paired with others than they should be."""
    met, due = np.abs(found.measured).max(0) > NEAR, found.expected.any(0)
    width = len(met)
    apart = ~np.eye(width, dtype=bool)
    wrong = [c for c in range(width) if (met & apart & ~due)[c].any()]
    said = []
    for c in wrong[:2]:
        partners, right = (np.flatnonzero(x[c] & apart[c]) for x in (met, due))
        said.append(f"Channel {c} is paired with {_listed(partners)}, should be {_listed(right) or 'with none'}.")
    if len(wrong) > 2:
        said.append(f"{len(wrong)} of {width} channels have another partner.")
    return said


def _of_all_rows(found: Rotation) -> list[str]:
    """One rule of all rows, as it should be but for a sign, a position or a factor."""
    def is_near(other: Array) -> bool:
        return bool(other.size and (np.abs(found.measured[: len(other)] - other) < NEAR).all())

    if is_near(found.expected.swapaxes(1, 2)):
        return ["Every row is turned backwards: by minus the angle of its position."]
    if len(found.expected) > 1 and (np.abs(found.measured[:-1] - found.expected[1:]) < NEAR).all():
        return ["Every row is turned by the angle of the next position."]
    if len(found.expected) > 1 and (np.abs(found.measured[1:] - found.expected[:-1]) < NEAR).all():
        return ["Every row is turned by the angle of the previous position."]
    if is_near(np.broadcast_to(found.expected[:1], found.expected.shape)):
        return [f"Every row is turned as position {found.start} should be."]
    norms = np.linalg.norm(found.measured, axis=-1)
    if np.ptp(norms) < NEAR and abs(norms.mean() - 1) > NEAR and is_near(found.expected * norms.mean()):
        return [f"Every row is multiplied by {norms.mean():.4g} besides."]
    return []


def _of_some_rows(found: Rotation) -> list[str]:
    """The rows and channels that are turned by another angle, with the first such angle."""
    rows = np.flatnonzero(found.wrong.any((1, 2)))
    channels = np.flatnonzero(found.wrong.any((0, 2)))
    row, c = int(rows[-1]), int(channels[0])
    angle, due = (float(np.arccos(np.clip(x[row, c, c], -1, 1))) for x in (found.measured, found.expected))
    which = "every row" if len(rows) == len(found.wrong) else f"rows {_listed(rows)}"
    return [
        f"Channels {_listed(channels)} of {which} are turned otherwise: channel {c} at position {found.start + row} "
        f"by ±{angle:.4g}, should be ±{due:.4g} (modulo 2π)."
    ]


def _listed(indices: Array) -> str:
    found = [int(i) for i in indices]
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}–{found[-1]}"
    return ", ".join(map(str, found[:4])) + (" …" if len(found) > 4 else "")
