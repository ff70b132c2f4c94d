"""Laws of the tables of cosines and sines that models store, for given positions and frequencies."""

from typing import Any

import numpy as np

from oracles.ball import Ball, cos, exact, sin
from properties.contract.subject import Subject
from properties.laws.channel_pairs import channels_of_pairs, check_pairs
from properties.laws.law import Laws
from properties.laws.rope_options import axes_of

law = Laws()
TABLES = "rotary_tables"
_NAMES = ("cosines", "sines")


def _of_pairs(subject: Subject, *arguments: Any) -> tuple[Ball, ...]:
    """Return the cosine and the sine of each pair. Check that both channels of a pair have the same
    numbers.
    """
    both = tuple(table.ball for table in subject(*arguments))
    first, second = channels_of_pairs(subject.implementation, both[0].mid.shape[-1])
    for table, name in zip(both, _NAMES, strict=True):
        subject.close(table[..., first], table[..., second], name)
    return tuple(table[..., first] for table in both)


@law(TABLES)
def frequencies_are_radians_per_position(
    subject: Subject, positions: Any, inv_freq: Any, attention_factor: Any, sections: Any
) -> bool:
    """For all positions and frequencies: the entries of a pair are the cosine and the sine of
    position times frequency, times the attention factor.
    """
    if sections is not None:
        return False
    angle = exact(positions.astype(np.float64)[..., None]) * exact(inv_freq)
    factor = exact(np.array(attention_factor or 1.0))
    found = _of_pairs(subject, positions, inv_freq, attention_factor, sections)
    check_pairs(subject, found, (cos(angle) * factor, sin(angle) * factor), *_NAMES)
    return True


@law(TABLES)
def each_pair_rotates_by_the_position_of_the_axis_that_it_belongs_to(
    subject: Subject, positions: Any, inv_freq: Any, attention_factor: Any, sections: Any
) -> bool:
    """For every position in time, height and width: the entries of each pair are the entries for
    the position along its own axis alone.
    """
    if sections is None:
        return False
    axes = axes_of(len(inv_freq), sections, subject.conventions.mrope)
    found = _of_pairs(subject, positions, inv_freq, attention_factor, sections)
    for axis in np.unique(axes):
        alone = _of_pairs(subject, positions[axis].copy(), inv_freq, attention_factor, None)
        own, expected = (tuple(table[..., axes == axis] for table in tables) for tables in (found, alone))
        check_pairs(subject, own, expected, *_NAMES)
    return True
