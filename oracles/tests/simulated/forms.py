"""Forms of attention: the choices in which implementations differ, and a table of the choices that
a budget covers.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from numpy.random import Generator

from oracles.error_analysis.computation import slack
from oracles.formats import BINARY32, BINARY64, Arithmetic

__all__ = ["Form", "allowed_forms", "any_form", "other_form"]


@dataclass(frozen=True)
class Form:
    """One way to compute attention that a budget covers.

    order       the order of sums, as in `rounding.Sums`
    chopped     whether accumulators truncate
    scale       the scale multiplies the scores "s", or "q", or "k"; "both": its root multiplies q and k, its sign q
    folded      whether derivatives take the scaled q and k, or take q and k and multiply by the scale
    base        the base of exponentials and log-sum-exps, "e" or "2"
    tile        keys per step of an online softmax, or None for one step with all keys
    lazy        whether the reference of an online softmax only changes by more than the slack in base 2
    split       the number of parts of the keys, computed separately and merged by their log-sum-exps
    normalise   "before" or "after" the product with v, or after "each" tile, so that the output stays normalised
    reciprocal  whether the sum of the weights divides, or its reciprocal multiplies
    passes      1, or 2 if numerator and denominator take separately computed exponentials
    delta       "weights" for rowsum(p·dP), "output" for rowsum(g·o)
    recompute   whether derivatives compute p from the log-sum-exp, or take it from the forward pass
    again       whether derivatives compute the scores again, in another order
    early       whether dS is scaled before it is stored, or dq and dk are scaled
    exact       whether scores are computed exactly and rounded once
    sink        "first" or "last" among the keys; "apart", added to the sum after all keys; or "merged", a separate
                part, as it must be if the output stays normalised, or keys are in parts
    divided     whether the softcap divides scores, or its reciprocal multiplies them
    squared     whether the derivative of the softcap is 1 − y², or (1 − y)(1 + y)
    added       where the cotangent of the log-sum-exp is added: to "dP − delta", to "−delta", or to "dU", times
                weights that are computed a second time
    heads       whether the gradients of query heads that share a key head are stored before they are added
    biased      whether the bias is added before the change to base 2, or both change first
    tanh        "near", or with the largest allowed error, as for `exp`
    exp         "near": correctly rounded; otherwise with the largest allowed error, whose sign is the sign of the
                "values" or "minus values", or "random"
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
    """The choices for each field that the budget of an arithmetic promises to cover."""
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
    """A random form of the allowed forms."""
    chosen: dict[str, Any] = {
        name: choices[int(rng.integers(len(choices)))] for name, choices in allowed_forms(a).items()
    }
    return Form(**chosen)


def other_form(form: Form, a: Arithmetic, rng: Generator) -> Form:
    """The form with a new random choice for one random field."""
    name = fields(Form)[int(rng.integers(len(fields(Form))))].name
    choices = allowed_forms(a)[name]
    return replace(form, **{name: choices[int(rng.integers(len(choices)))]})  # type: ignore[arg-type]
