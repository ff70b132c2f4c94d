"""A thread that flushes subnormal numbers gets a refusal, not a radius."""

import numpy as np
import pytest
import torch

import oracles


def test_a_thread_that_flushes_subnormal_numbers_is_refused() -> None:
    tiny = np.full((1, 2), 2.0**-1040)
    if not torch.set_flush_denormal(True):
        pytest.skip("This processor cannot flush subnormal numbers.")
    try:
        for ask in (
            lambda: oracles.add_positional_encoding(tiny, tiny),
            lambda: oracles.scaled_dot_product_attention(tiny, tiny, tiny),
            lambda: oracles.rope(tiny),
            lambda: oracles.causal_mask(2),
        ):
            with pytest.raises(
                RuntimeError, match=r"^This thread flushes subnormal numbers to zero, but should keep them: "
            ):
                ask()
    finally:
        torch.set_flush_denormal(False)
    assert (oracles.add_positional_encoding(tiny, tiny).mid == 2 * tiny).all()
