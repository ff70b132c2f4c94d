"""The measurement of exponentials tells kernels whose preset does not fit them."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from properties.contract.implementation import Implementation
from research.presets import measured

BFLOAT16: Any = ml_dtypes.bfloat16


def kernel(error: float, arithmetic: str) -> Implementation:
    """Attention in one pass with exponentials that are off by `error` below 0, and stored weights."""

    def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        q, k, v = (np.asarray(x, np.float32) for x in (q, k, v))
        s = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
        s = s if mask is None else np.where(mask, s, -np.inf)
        x = s - s.max(-1, keepdims=True)
        e = np.float32(np.exp(x) * np.where(x < 0, 1 + error, 1))
        return (np.float32(e.astype(BFLOAT16)) @ v / e.sum(-1, keepdims=True)).astype(BFLOAT16)

    return Implementation("mine", {"scaled_dot_product_attention": attend}, arithmetic=arithmetic)


@pytest.mark.parametrize(
    ("error", "arithmetic", "said"),
    [
        (1e-6, "bfloat16", ""),
        (1e-4, "bfloat16-fast-exponential", ""),
        (1e-4, "bfloat16", "An exponential is less accurate than stated."),
        (1e-6, "bfloat16-fast-exponential", "No exponential is 1.2e-05 off, so what is stated is too generous."),
    ],
)
def test_an_exponential_is_as_accurate_as_stated_and_not_ten_times_more(error: float, arithmetic: str, said: str):
    assert measured(kernel(error, arithmetic)).wrong == said
