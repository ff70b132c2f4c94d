"""Laws of a layer of attention: its biases and its key heads."""

from typing import Any

import numpy as np

from oracles.ball import exact
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.commuting_squares import Case, Sum, Term
from properties.laws.expected_values import key_heads
from properties.laws.law import Laws
from properties.laws.symmetry_rows import Rows

law = Laws()
row = Rows(law)
LAYER = "attention_layer"


@row(LAYER, features=("bk",))
def a_bias_of_the_keys_changes_nothing(case: Case) -> Sum:
    """For every bias of the keys: without it the result is the same. It adds one number to all scores
    of a query.
    """
    return None if case.bk is None else [Term(instead={"bk": None})]


@law(LAYER)
def a_layer_without_weights_of_the_output_returns_its_bias(subject: Subject, *arguments: Any) -> bool:
    """For every test input with a bias of the output, and wo = 0: each output is this bias.

    Under `dead_rows` = nan the law does not apply, because a token that sees no token gives NaN.
    """
    given = OPERATIONS[LAYER].named(arguments)
    if given["bo"] is None or subject.conventions.dead_rows == "nan":
        return False
    result = subject(*{**given, "wo": np.zeros_like(given["wo"])}.values())
    subject.close(result, exact(np.broadcast_to(given["bo"], result.value.shape)))
    return True


def _columns(heads: Any, width: int) -> Any:
    """Return the columns that belong to some heads."""
    return (np.asarray(heads)[:, None] * width + np.arange(width)).reshape(-1)


@row(LAYER)
def repeating_key_heads_for_each_query_head_changes_nothing(case: Case) -> Sum:
    """For every test input: a separate copy of its key head for each query head gives the same result."""
    heads, groups = case.num_heads, case.size("kv_heads")
    if heads == groups:
        return None
    own = key_heads(case.implementation, heads, groups)
    copied = (case.along(f"{name}_width", _columns(own, case.size(width))).inputs for name, width in _WIDTHS)
    return [Term({name: maps for inputs in copied for name, maps in inputs.items()})]


_WIDTHS = (("key", "head_dim"), ("values", "value_dim"))
"""The widths of the projections of key heads, each with the width of a head."""
