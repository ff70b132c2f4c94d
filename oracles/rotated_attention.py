"""Causal attention of queries and keys that are rotated by their positions first: of a cache that rotates what it is given.

The rotation's enclosure, or its budget, is an operand with a radius: what attention makes of any numbers within it is enclosed.
"""

from typing import Any

from oracles import ball_attention
from oracles.arguments import Given
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.features import Window, checked
from oracles.judging import Balls, Evaluation, mean_is_accepted, settle, zero_is_accepted
from oracles.rotary import rope
from oracles.scores import Operand, operand


def rotated_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    offset: int = 0,
    window: Window = (None, None),
    arithmetic: Given = None,
    conventions: Conventions | None = None,
) -> tuple[Enclosure, Enclosure]:
    """The output and the log-sum-exp of causal attention with key j rotated by position j and query i by position offset + i, enclosed.

    Shapes, edge cases and errors: as `oracles.attention`; the offset is an int from 0, and the rotation as `oracles.rope` has it.
    """
    p = checked(
        q, k, v, mask=mask, bias=None, scale=None, causal=True, offset=offset, window=window, softcap=None, sink=None, rows=None,
        arithmetic=arithmetic, conventions=conventions, method="fast",
    )  # fmt: skip

    def rotated(x: Any, start: int) -> Enclosure:
        return rope(x, start, arithmetic=arithmetic, conventions=conventions)

    def fast() -> Balls:
        query, key = rotated(q, offset), rotated(k, 0)
        queries: Operand = operand(p.heads.fold(query.mid), p.heads.fold(query.rad))
        return ball_attention.forward_and_lse(queries, operand(key.mid, key.rad), operand(p.v), p.setting)

    def vacuous(balls: Balls) -> tuple[bool, ...]:
        return mean_is_accepted(balls[0], p.v, p.allowed_row), *zero_is_accepted(balls[1:])

    return p.rows(settle(Evaluation(p.setting.arithmetic, p.method, fast, fast, p.work, vacuous)))
