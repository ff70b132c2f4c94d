"""Laws of odd widths: what becomes of the channel that is left over, and what a refusal is."""

from typing import Any

import numpy as np

from oracles import Enclosure
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, RaisedError
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.pairs import what_rotates

law = Laws()
ROTARY = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp")


def refused(subject: Subject, arguments: tuple[Any, ...], what: str) -> None:
    """A call raises one of the exceptions that the implementation declares to refuse with, or returns what is right, where there is such.

    Where no oracle answers, as for a sequence of length 0, a result without entries is right, and no other. The call is not kept: no known
    bug explains what may be refused.
    """
    o, refuses = OPERATIONS[subject.operation], subject.implementation.refuses
    wanted = " or ".join(kind.__name__ for kind in refuses)
    try:
        values, *_ = subject.run(o, arguments)
    except RaisedError as raised:
        subject.require(isinstance(raised.__cause__, refuses), f"{raised} But {what} should be refused by {wanted}.")
        return
    except BrokenError as broken:
        raise BrokenError(f"{broken} But {what} should be refused by {wanted}.") from None
    try:
        right = subject.expected(o, arguments)
    except ValueError:  # in its conventions there is no right answer
        right = ()
    subject.require(right or not any(np.size(x) for x in values), f"returned something for {what}, but should refuse it by {wanted}.")
    wrong = f"returned something wrong for {what}, but should refuse it by {wanted}"
    for name, value, answer in zip(o.outputs, values, right, strict=False):
        if isinstance(answer, Enclosure):
            excess = answer.excess(value).max(initial=0.0)
            subject.require(excess <= 1, f"{wrong}: {name} is {excess:.4g} budgets off.")
        else:
            subject.require(np.array_equal(value, answer), f"{wrong}: {name} is another mask.")


@law(*ROTARY, domains=("odd widths",))
def the_odd_channel_follows_its_convention(subject: Subject, *arguments: Any) -> None:
    """For every odd width: whole pairs are rotated as in an even width that has these pairs, and the channel that is left over becomes
    x·(cos + sin) (`literal`) or stays x (`passthrough`); with `reject`, and where pairs are halves, an odd width is refused.

    Of twice the width, every second pair has these angles; tables are lengthened. A channel x·(cos + sin) is one of the pair (x, x).
    Within budget.
    """
    i, x = subject.implementation, what_rotates(subject, arguments)
    back, tables, dim = subject.operation.endswith("vjp"), subject.operation.startswith("apply"), x.shape[-1]
    if i.resolved_conventions.odd_lane == "reject" or i.resolved_conventions.rope_pairing == "half":
        refused(subject, arguments, f"a head_dim of {dim}")
        return
    wide, out, channel = dim + 1 if tables else 2 * dim, subject(*arguments), np.arange(dim)
    if not i.allows(head_dim=wide):
        subject.within(out)
        return
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
    last = x[..., -1] if i.resolved_conventions.odd_lane == "passthrough" else found[..., place[-1] + (0 if back else 1)]
    subject.close(out.ball[..., -1], last, "the last channel")
