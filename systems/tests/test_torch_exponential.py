"""PyTorch's flash kernel on CPUs in 16 bits: its exponential is a polynomial of degree 3, which is
off at 0 too. `ATEN_CPU_CAPABILITY=default` selects code without it.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

import oracles
from systems.torch_attention import FLASH

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def log_sum_exps(dtype: str, scores: np.ndarray) -> np.ndarray:
    """The log-sum-exp of each row of scores, from the operator behind the kernel."""
    k = torch.from_numpy(scores[:, :, None].repeat(8, 2) / 8).to(TYPES[dtype])[:, None]
    q = torch.ones(len(scores), 1, 1, 8, dtype=TYPES[dtype])
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k, scale=1.0)[1][..., 0].numpy()


def largest_excess(dtype: str, preset: str, scores: np.ndarray) -> float:
    """The largest error ÷ budget of these log-sum-exps."""
    k = (scores[:, :, None].repeat(8, 2) / 8)[:, None]
    _, lse = oracles.attention(np.ones((len(k), 1, 1, 8)), k, k, scale=1.0, arithmetic=preset)
    return float(lse.excess(log_sum_exps(dtype, scores)[..., None]).max())


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="Only vector code has the polynomial.")
@pytest.mark.parametrize("dtype", TYPES)
def test_the_exponential_of_16_bits_needs_its_preset(dtype: str) -> None:
    """64 keys with one score, 0 for the first row: the polynomial is 5.3e-5 off at 0."""
    far = np.zeros((200, 64))
    far[1:, 1:] = -np.linspace(0.01, 2, 199)[:, None]
    scores = torch.from_numpy(far).to(TYPES[dtype]).double().numpy()
    assert largest_excess(dtype, FLASH[dtype], scores) <= 1 < largest_excess(dtype, dtype, scores[:1])


def test_the_declared_arithmetic_states_no_more_than_twice_what_was_measured() -> None:
    """1.125e-4 over all arguments, and 5.34e-5 at 0."""
    exp = oracles.preset(FLASH["bfloat16"]).exp
    assert 1.125e-4 <= exp.relative <= 2 * 1.125e-4
    assert 5.341e-5 <= exp.at_zero <= 2 * 5.341e-5
    assert replace(exp, relative=0.0, at_zero=0.0) == replace(oracles.BFLOAT16.exp, relative=0.0)
