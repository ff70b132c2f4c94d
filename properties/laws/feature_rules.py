"""Computes the effect of attention's options in a call: which keys are visible, how mask, bias and
softcap combine, and the base of the log-sum-exp.
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
    "arguments_by_name",
    "band",
    "bias_adds_to_scores",
    "bias_has_effect",
    "first_query_position",
    "masked_keys_weigh_nothing",
    "natural_log_sum_exp",
    "rules_compose",
    "scores_shape",
    "visible_keys",
    "why_few_shapes",
    "why_no_log_sum_exps",
    "why_not_mergeable",
]

LN2 = Ball(np.array(np.log(2.0)), np.array(2.0**-53))


def arguments_by_name(subject: Subject, case: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of a call as a dictionary by parameter."""
    return OPERATIONS[subject.operation].named(case)


def natural_log_sum_exp(lse: Ball, subject: Subject) -> Ball:
    """Return the log-sum-exp converted to base e."""
    return lse if subject.conventions.lse_base == "e" else lse * LN2


def scores_shape(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of the scores (…, n_q, n_k). Those of a layer are without the heads. The first two
    arguments hold the rows of queries and of keys.
    """
    queries, keys, *_ = arguments.values()
    return (*queries.shape[:-1], keys.shape[-2])


def first_query_position(arguments: Mapping[str, Any], implementation: Implementation) -> Any:
    """Return the position of the first query among the keys."""
    offset, (n_q, n_k) = arguments.get("offset"), scores_shape(arguments)[-2:]
    if offset is not None:
        return offset
    return n_k - n_q if implementation.resolved_conventions.causal == "bottom_right" else 0


def band(arguments: Mapping[str, Any], implementation: Implementation) -> Any:
    """Return a Boolean array: True where causality and the window let a query see a key, by the
    definition.
    """
    n_q, n_k = scores_shape(arguments)[-2:]
    first = np.asarray(first_query_position(arguments, implementation))[..., None, None, None]
    query, key = first + np.arange(n_q)[:, None], np.arange(n_k)
    left, right = arguments.get("window") or (None, None)
    left = left_bound(left, implementation.resolved_conventions)
    visible = (key <= query) if arguments["causal"] else np.ones(np.broadcast_shapes(query.shape, key.shape), bool)
    visible = visible if left is None else visible & (key >= query - left)
    return visible if right is None else visible & (key <= query + right)


def visible_keys(arguments: Mapping[str, Any], implementation: Implementation) -> Any:
    """Return a Boolean array of the shape of the scores: True where a query sees a key."""
    visible, rule = band(arguments, implementation), implementation.resolved_conventions.causal_with_mask
    if arguments["mask"] is not None:
        if arguments["causal"] and rule == "mask_wins":
            visible = band({**arguments, "causal": None}, implementation)
        if not (arguments["causal"] and rule in ("causal_wins", "causal_alone")):
            visible = visible & arguments["mask"]
    if arguments.get("bias") is not None and bias_has_effect(arguments, implementation):
        visible = visible & (arguments["bias"] > -np.inf)
    return np.broadcast_to(visible, scores_shape(arguments))


def bias_adds_to_scores(arguments: Mapping[str, Any], implementation: Implementation) -> bool:
    """Return whether the bias is added to the arguments of the softmax. This is so if no softcap is
    given, or if the softcap acts before the bias, unless the bias has no effect.
    """
    comes_after = arguments["softcap"] is None or implementation.resolved_conventions.softcap_order == "before_bias"
    return comes_after and bias_has_effect(arguments, implementation)


def bias_has_effect(arguments: Mapping[str, Any], implementation: Implementation) -> bool:
    """Return whether a bias has an effect. It has none if causality counts alone."""
    is_alone = implementation.resolved_conventions.causal_with_mask == "causal_alone"
    return not (arguments.get("causal") and is_alone)


def rules_compose(arguments: Mapping[str, Any], implementation: Implementation) -> bool:
    """Return whether the rules combine plainly: causality acts together with the mask and the bias, or
    without them.
    """
    if not arguments.get("causal") or implementation.resolved_conventions.causal_with_mask == "compose":
        return True
    has_bias = arguments.get("bias") is not None
    return arguments["mask"] is None and not (has_bias and not bias_has_effect(arguments, implementation))


def masked_keys_weigh_nothing(implementation: Implementation) -> bool:
    """Return whether masked keys have weight 0. They have another weight if a softcap acts after
    the mask.
    """
    return implementation.resolved_conventions.softcap_order != "after_mask"


def why_no_log_sum_exps(implementation: Implementation) -> str:
    """Return a sentence that says why the log-sum-exps cannot be checked; "" if they can."""
    return "" if implementation.support.sums else WORDS["no log-sum-exp"]


def why_few_shapes(implementation: Implementation) -> str:
    """Return a sentence that says why laws that choose shapes themselves do not apply; "" if they do."""
    shapes = implementation.support.shapes
    return f"It takes at most {shapes.most} shapes, which other laws need." if shapes else ""


def why_not_mergeable(implementation: Implementation) -> str:
    """Return a sentence that says why parts of the keys cannot be merged by their log-sum-exps; ""
    if they can.
    """
    if implementation.resolved_conventions.lse_sink == "included":
        return ""
    return "Its log-sum-exps are without the sink: parts cannot be merged by them."
