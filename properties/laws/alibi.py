"""Laws of ALiBi's slopes and biases."""

from typing import Any

import numpy as np

from oracles.ball import Ball, exact
from properties.contract.subject import Subject
from properties.laws.feature_rules import first_query_position
from properties.laws.law import Laws

law = Laws()


@law("alibi_slopes")
def the_slopes_of_n_heads_are_every_second_slope_of_2n_heads(subject: Subject, num_heads: int) -> bool:
    """For every number of heads that is a power of two, or any number if the slopes are one
    geometric series: the slopes are every second slope of twice as many heads.
    """
    regular = subject.conventions.alibi_slopes == "geometric" or num_heads & (num_heads - 1) == 0
    if not regular or not subject.takes(2 * num_heads):
        return False
    subject.close(subject(num_heads), subject(2 * num_heads).ball[1::2])
    return True


@law("alibi_bias", needs=("alibi_slopes",))
def biases_are_slopes_times_distances(subject: Subject, num_heads: int, n_q: int, n_k: int, offset: Any) -> bool:
    """For every test input: each head's bias is its slope times −|p − j| if biases count distances,
    or times j if they count keys.
    """
    shapes = {"q": np.zeros((1, n_q, 0)), "k": np.zeros((1, n_k, 0)), "offset": offset}
    query = first_query_position(shapes, subject.implementation) + np.arange(n_q)[:, None]
    by_key = subject.conventions.alibi_reference == "key"
    steps = np.broadcast_to(np.arange(n_k), (n_q, n_k)) if by_key else -np.abs(query - np.arange(n_k))
    slopes = subject.alibi_slopes(num_heads).ball
    column = Ball(slopes.mid[:, None, None], slopes.rad[:, None, None])
    subject.close(subject(num_heads, n_q, n_k, offset), column * exact(steps))
    return bool(steps.any())
