"""Laws of odd widths: what becomes of the channel that is left over."""

from typing import Any

import numpy as np

from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.pairs import what_rotates
from properties.laws.refusals import refused

law = Laws()
ROTARY = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp")


@law(*ROTARY, domains=("odd widths",))
def the_odd_channel_follows_its_convention(subject: Subject, *arguments: Any) -> bool:
    """For every odd width: whole pairs are rotated as in an even width that has these pairs, and
    the channel that is left over becomes x·(cos + sin) (`literal`) or stays x (`passthrough`); with
    `reject`, and where pairs are halves, an odd width is refused.

    Of twice the width, every second pair has these angles; tables are lengthened. A channel x·(cos
    + sin) is one of the pair (x, x). Within budget.
    """
    i, x = subject.implementation, what_rotates(subject, arguments)
    back, tables, dim = subject.operation.endswith("vjp"), subject.operation.startswith("apply"), x.shape[-1]
    if not dim % 2:  # a smaller input may be even
        return False
    if i.resolved_conventions.odd_lane == "reject" or i.resolved_conventions.rope_pairing == "half":
        refused(subject, arguments, f"a head_dim of {dim}")
        return True
    wide, out, channel = dim + 1 if tables else 2 * dim, subject(*arguments), np.arange(dim)
    if not i.allows(head_dim=wide):
        subject.within(out)
        return True
    place = channel if tables else 2 * (channel - channel % 2) + channel % 2  # pair i is pair 2i of twice the width

    def widened(part: Any) -> Any:
        if not isinstance(part, np.ndarray):
            return part
        y = np.zeros((*part.shape[:-1], wide))
        y[..., place] = part
        y[..., place[-1] + 1] = part[..., -1]
        return y

    found = subject(*map(widened, arguments)).ball
    subject.close(out.ball[..., :-1], found[..., place[:-1]])
    last = (
        x[..., -1] if i.resolved_conventions.odd_lane == "passthrough" else found[..., place[-1] + (0 if back else 1)]
    )
    subject.close(out.ball[..., -1], last, "the last channel")
    return True
