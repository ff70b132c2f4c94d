"""Forms of attention: one choice for each thing that implementations do differently, and the table
of those that a budget covers.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from numpy.random import Generator

from oracles.error_analysis.computation import slack
from oracles.formats import BINARY32, BINARY64, Arithmetic

__all__ = ["Form", "allowed_forms", "any_form", "other_form"]


@dataclass(frozen=True)
class Form:
    """One covered way to compute attention.

    order      of sums, as in `rounding.Sums`
    chopped    whether accumulators truncate
    scale      what the scale multiplies: scores "s", "q", "k", or its root "both", its sign with q
    folded     whether derivatives take the scaled q and k, or take the given ones and multiply by the scale
    base       of exponentials and log-sum-exps: "e" or "2"
    tile       keys per step of an online softmax, or None for all at once
    lazy       whether the reference of an online softmax only moves by more than the slack in base 2
    split      parts of the keys computed apart and merged by their log-sum-exps
    normalise  "before" or "after" the product with v, or after "each" tile: the output is kept
    normalised reciprocal whether the sum of the weights divides, or its reciprocal multiplies
    passes     1, or 2 where numerator and denominator take exponentials computed apart
    delta      "weights" for rowsum(p·dP), "output" for rowsum(g·o)
    recompute  whether derivatives have p from the log-sum-exp, or from the forward pass
    again      whether it recomputes the scores in another order
    early      whether dS is scaled before it is stored, or dq and dk are scaled
    exact      whether scores are formed exactly and rounded once
    sink       "first" or "last" among the keys; "apart", added to the sum when all keys are; or "merged", a part of
               its own, as it is where the output is kept normalised, or keys are in parts
    divided    whether scores are divided by a cap, or multiplied by its reciprocal
    squared    whether the slope of a cap is 1 − y², or (1 − y)(1 + y)
    added      what the cotangent of the log-sum-exp is added to: "dP − delta", "−delta", or, times weights
               that are computed a second time, "dU"
    heads      whether the gradients of query heads that share a key head are stored before they are added up
    biased     whether a bias is added before the change to base 2, or both are changed first
    tanh       "near" or as far off as allowed, as `exp`
    exp        "near": correctly rounded; else as far off as allowed, with the sign of the "values" or
               "minus values", or a "random" one
    """

    order: str = "sequential"
    chopped: bool = False
    scale: str = "s"
    folded: bool = True
    base: str = "e"
    tile: int | None = None
    lazy: bool = False
    split: int = 1
    normalise: str = "after"
    reciprocal: bool = False
    passes: int = 1
    delta: str = "weights"
    recompute: bool = True
    again: bool = False
    early: bool = False
    exact: bool = False
    exp: str = "near"
    sink: str = "last"
    divided: bool = True
    squared: bool = True
    added: str = "−delta"
    biased: bool = True
    heads: bool = False
    tanh: str = "near"


def allowed_forms(a: Arithmetic) -> dict[str, tuple[object, ...]]:
    """The choices that the budget of an arithmetic promises to cover, field by field."""
    block, fine = a.rescale_block, a.accumulate == BINARY64.unit_roundoff
    orders = ("sequential", "reversed") if a.sum_block else ("sequential", "reversed", "pairwise", "tree", "library")
    return {
        "order": orders if fine else (*orders, "fused"),
        "chopped": (False, True) if a.accumulate > BINARY32.unit_roundoff else (False,),
        "scale": ("s", "q", "k", "both") if a.scale_on_inputs else ("s",),
        "folded": (True, False),
        "base": ("e", "2"),
        "tile": (None, block, 4 * block) if block else (None,),
        "lazy": (False, True) if slack(a) else (False,),
        "split": (1, 2, 3) if block else (1,),
        "normalise": ("after", "before", "each") if block else ("after", "before"),
        "reciprocal": (False, True),
        "passes": (1,) if a.shared_weights else (1, 2),
        "delta": (a.delta,) if a.delta else ("weights", "output"),
        "recompute": (True, False),
        "again": (False, True),
        "early": (False, True),
        "exact": (False, True),
        "exp": ("near", "values", "minus values", "random"),
        "sink": ("first", "last", "apart", "merged") if block else ("first", "last", "apart"),
        "divided": (True, False),
        "squared": (True, False),
        "added": ("dP − delta", "−delta", "dU"),
        "biased": (True, False),
        "heads": (False, True),
        "tanh": ("near", "values", "minus values", "random"),
    }


def any_form(a: Arithmetic, rng: Generator) -> Form:
    """Any of the allowed forms."""
    chosen: dict[str, Any] = {
        name: choices[int(rng.integers(len(choices)))] for name, choices in allowed_forms(a).items()
    }
    return Form(**chosen)


def other_form(form: Form, a: Arithmetic, rng: Generator) -> Form:
    """The form with one field chosen again."""
    name = fields(Form)[int(rng.integers(len(fields(Form))))].name
    choices = allowed_forms(a)[name]
    return replace(form, **{name: choices[int(rng.integers(len(choices)))]})  # type: ignore[arg-type]
