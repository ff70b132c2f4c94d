"""Laws of ALiBi's slopes and biases."""

from typing import Any

import numpy as np

from oracles.ball import Ball, exact
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.reading import start

law = Laws()


@law("alibi_slopes")
def slopes_are_every_second_of_twice_as_many(subject: Subject, num_heads: int) -> bool:
    """For every power of two, or any number of heads of a geometric series: its slopes are every
    second one of twice as many heads.
    """
    regular = subject.conventions.alibi_slopes == "geometric" or num_heads & (num_heads - 1) == 0
    if not regular or not subject.takes(2 * num_heads):
        return False
    subject.close(subject(num_heads), subject(2 * num_heads).ball[1::2])
    return True


@law("alibi_bias", needs=("alibi_slopes",))
def biases_are_slopes_times_distances(subject: Subject, num_heads: int, n_q: int, n_k: int, offset: Any) -> bool:
    """For every case: each head's bias is its slope times −|p − j|, by distance, or times j, by key."""
    x = {"q": np.zeros((1, n_q, 0)), "k": np.zeros((1, n_k, 0)), "offset": offset}
    p = start(x, subject.implementation) + np.arange(n_q)[:, None]
    by_key = subject.conventions.alibi_reference == "key"
    steps = np.broadcast_to(np.arange(n_k), (n_q, n_k)) if by_key else -np.abs(p - np.arange(n_k))
    slopes = subject.alibi_slopes(num_heads).ball
    subject.close(
        subject(num_heads, n_q, n_k, offset), Ball(slopes.mid[:, None, None], slopes.rad[:, None, None]) * exact(steps)
    )
    return bool(steps.any())
