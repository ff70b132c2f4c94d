"""The law of odd widths: it says what happens to the last channel, which has no partner."""

from typing import Any

import numpy as np

from properties.contract.subject import Subject
from properties.laws.channel_pairs import rotated_input
from properties.laws.law import Laws
from properties.laws.refusals import check_refusal

law = Laws()
ROTARY = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp")


@law(*ROTARY, domains=("odd widths",))
def the_last_channel_of_an_odd_width_follows_its_convention(subject: Subject, *arguments: Any) -> bool:
    """For every odd width: whole pairs rotate as in an even width that has these pairs. The last
    channel becomes x·(cos + sin) (`literal`) or stays x (`passthrough`). With `reject`, and where
    pairs are halves, an odd width is refused.

    Every second pair of twice the width has the same angles; tables are made one channel longer. A
    channel x·(cos + sin) is one channel of the rotated pair (x, x).
    """
    implementation, x = subject.implementation, rotated_input(subject, arguments)
    back, tables, width = subject.operation.endswith("vjp"), subject.operation.startswith("apply"), x.shape[-1]
    if not width % 2:  # a smaller input may be even
        return False
    conventions = implementation.resolved_conventions
    if conventions.odd_lane == "reject" or conventions.rope_pairing == "half":
        return check_refusal(subject, arguments, f"head_dim={width}")
    wide, result, channel = width + 1 if tables else 2 * width, subject(*arguments), np.arange(width)
    if not implementation.allows(head_dim=wide):
        subject.within(result)
        return True
    place = channel if tables else 2 * (channel - channel % 2) + channel % 2  # pair i is pair 2i of twice the width

    def widened(part: Any) -> Any:
        if not isinstance(part, np.ndarray):
            return part
        wider = np.zeros((*part.shape[:-1], wide))
        wider[..., place] = part
        wider[..., place[-1] + 1] = part[..., -1]
        return wider

    found = subject(*map(widened, arguments)).ball
    subject.close(result.ball[..., :-1], found[..., place[:-1]])
    rotated = found[..., place[-1] + (0 if back else 1)]
    last = x[..., -1] if conventions.odd_lane == "passthrough" else rotated
    subject.close(result.ball[..., -1], last, f"{result.name}[..., -1]")
    return True
