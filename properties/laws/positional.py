"""Laws of adding positional encodings, of learned ones, and of looking rows up; and of all of them where there is nothing to encode."""

from typing import Any

import numpy as np

from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.law import Laws

law = Laws()
LEARNED, LOOKUP = "learned_positional_encoding", "table_lookup"


@law("add_positional_encoding")
def adding_zero_changes_nothing(subject: Subject, x: Any, pos: Any) -> None:
    """For every x and encoding: x + 0 is x, and 0 + pos is pos for each problem of the batch.

    Within budget.
    """
    subject.close(subject(x, np.zeros(pos.shape)), x)
    subject.close(subject(np.zeros(x.shape), pos), np.broadcast_to(pos, x.shape))


@law(LEARNED, LOOKUP)
def tables_of_row_numbers_read_out_the_rows(subject: Subject, table: Any, *which: Any) -> None:
    """For a table whose entries are its rows' numbers, one octal digit at a time, and 1 more: so are the results those of the rows that are
    asked for, start + t or the index.

    Exact: 1 to 8 are numbers of every format.
    """
    rows = np.arange(which[1], which[1] + which[0]) if subject.operation == LEARNED else which[0]
    for place in range(4):
        numbers, expected = (np.repeat((x >> 3 * place & 7)[..., None] + 1.0, table.shape[1], -1) for x in (np.arange(len(table)), rows))
        subject.same(subject(numbers, *which), expected)


_ROTATIONS = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp", "rotate_half", "rope_angles", "rope_tables")
_MASKS = ("causal_mask", "padding_mask", "combine_masks")


@law("inv_freq", domains=("no columns",))
@law("sinusoidal_positional_encoding", LEARNED, LOOKUP, *_ROTATIONS, *_MASKS, domains=("no rows", "no columns"))
def empty_arrays_give_empty_results(subject: Subject, *arguments: Any) -> bool:
    """For sizes of 0, of sequences, widths, batches or masks: the results have their shapes, and no entries. Exact."""
    if any(0 not in shape for shape in OPERATIONS[subject.operation].shapes(*arguments)):
        return False
    found = subject(*arguments)
    for result in found if isinstance(found, tuple) else (found,):
        subject.finite(result)
    return True
