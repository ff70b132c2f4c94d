"""What a case of attention with features says: which keys a query may read, by the definition, and
in which base sums are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oracles.ball import Ball
from properties.contract.caches import left_bound
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.contract.support import WORDS

__all__ = [
    "LN2",
    "band",
    "blocked_are_gone",
    "by_name",
    "logits_are_sums",
    "natural",
    "reads",
    "rules_compose",
    "scores_shape",
    "start",
    "unmergeable",
    "without_sums",
]

LN2 = Ball(np.array(np.log(2.0)), np.array(2.0**-53))


def by_name(subject: Subject, case: Sequence[Any]) -> dict[str, Any]:
    """A case's arguments by name."""
    return OPERATIONS[subject.operation].named(case)


def natural(x: Ball, subject: Subject) -> Ball:
    """A log-sum-exp, natural."""
    return x if subject.conventions.lse_base == "e" else x * LN2


def scores_shape(x: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of the scores."""
    return (*x["q"].shape[:-1], x["k"].shape[-2])


def start(x: Mapping[str, Any], i: Implementation) -> Any:
    """The position of the first query among the keys."""
    given, (n_q, n_k) = x["offset"], scores_shape(x)[-2:]
    return given if given is not None else n_k - n_q if i.resolved_conventions.causal == "bottom_right" else 0


def band(x: Mapping[str, Any], i: Implementation) -> Any:
    """True where causality and the window allow, by the definition."""
    n_q, n_k = scores_shape(x)[-2:]
    p, j = np.asarray(start(x, i))[..., None, None, None] + np.arange(n_q)[:, None], np.arange(n_k)
    left, right = x["window"] or (None, None)
    left = left_bound(left, i.resolved_conventions)
    may = (j <= p) if x["causal"] else np.ones(np.broadcast_shapes(p.shape, j.shape), bool)
    may = may if left is None else may & (j >= p - left)
    return may if right is None else may & (j <= p + right)


def reads(x: Mapping[str, Any], i: Implementation) -> Any:
    """True for each key that a query may read."""
    may, c = band(x, i), i.resolved_conventions
    if x["mask"] is not None:
        may = band({**x, "causal": None}, i) if x["causal"] and c.causal_with_mask == "mask_wins" else may
        may = may if x["causal"] and c.causal_with_mask == "causal_wins" else may & x["mask"]
    return np.broadcast_to(may if x["bias"] is None else may & (x["bias"] > -np.inf), scores_shape(x))


def logits_are_sums(x: Mapping[str, Any], i: Implementation) -> bool:
    """Whether biases are added to what the softmax is of: a cap, if there is one, acts on scores alone."""
    return x["softcap"] is None or i.resolved_conventions.softcap_order == "before_bias"


def rules_compose(x: Mapping[str, Any], i: Implementation) -> bool:
    """Whether causality and a mask act together, or only one of them is given."""
    return not x.get("causal") or x["mask"] is None or i.resolved_conventions.causal_with_mask == "compose"


def blocked_are_gone(i: Implementation) -> bool:
    """Whether masked keys have no weight: a cap after the mask gives them one."""
    return i.resolved_conventions.softcap_order != "after_mask"


def without_sums(i: Implementation) -> str:
    """Why nothing can be said of its log-sum-exps, as a sentence; "" where something can."""
    return "" if i.support.sums else WORDS["no log-sum-exp"]


def unmergeable(i: Implementation) -> str:
    """Why parts of the keys could not be merged by their log-sum-exps, as a sentence; "" where they can."""
    return (
        ""
        if i.resolved_conventions.lse_sink == "included"
        else "Its log-sum-exps are without the sink: parts cannot be merged by them."
    )
