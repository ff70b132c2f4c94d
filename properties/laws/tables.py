"""Laws of tables of cosines and sines for positions and frequencies that are given: what models keep."""

from typing import Any

import numpy as np

from oracles.ball import Ball, cos, exact, sin
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.pairs import channels, close
from properties.laws.rotations import axes_of

law = Laws()
TABLES = "rotary_tables"
_NAMES = ("cosines", "sines")


def _of_pairs(subject: Subject, *arguments: Any) -> tuple[Ball, ...]:
    """The cosines and sines of each pair, of which both channels have the same."""
    both = tuple(table.ball for table in subject(*arguments))
    first, second = channels(subject.implementation, both[0].mid.shape[-1])
    for table, name in zip(both, _NAMES, strict=True):
        subject.close(table[..., first], table[..., second], name)
    return tuple(table[..., first] for table in both)


@law(TABLES)
def frequencies_are_radians_per_position(
    subject: Subject, positions: Any, inv_freq: Any, attention_factor: Any, sections: Any
) -> bool:
    """For all positions and frequencies: entries of a pair are the cosine and the sine of position
    times frequency, times the attention factor."""
    if sections is not None:
        return False
    theta, factor = (
        exact(positions.astype(np.float64)[..., None]) * exact(inv_freq),
        exact(np.array(attention_factor or 1.0)),
    )
    found = _of_pairs(subject, positions, inv_freq, attention_factor, sections)
    close(subject, found, (cos(theta) * factor, sin(theta) * factor), *_NAMES)
    return True


@law(TABLES)
def each_pair_rotates_by_its_own_axis(
    subject: Subject, positions: Any, inv_freq: Any, attention_factor: Any, sections: Any
) -> bool:
    """For every position in time, height and width: entries of each pair are those by the position
    along its own axis alone.
    """
    if sections is None:
        return False
    axis = axes_of(len(inv_freq), sections, subject.conventions.mrope)
    found = _of_pairs(subject, positions, inv_freq, attention_factor, sections)
    for k in np.unique(axis):
        alone = _of_pairs(subject, positions[k].copy(), inv_freq, attention_factor, None)
        close(subject, (x[..., axis == k] for x in found), (x[..., axis == k] for x in alone), *_NAMES)
    return True
