"""A right and a wrong softmax and attention, judged: `python example.py FOLDER FORMAT` prints how
many tests each fails.
"""

import sys
from pathlib import Path

import numpy as np

from vectors import judged


def softmax(scores, mask=None):
    """Each row's softmax over its allowed entries; 0 elsewhere, and in rows without one."""
    mask = np.broadcast_to(True if mask is None else mask, scores.shape)
    largest = scores.max(-1, keepdims=True, where=mask, initial=-np.inf)
    weights = np.exp(np.where(mask, scores - np.where(np.isinf(largest), 0, largest), -np.inf).astype(scores.dtype))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total).astype(scores.dtype)


def attention(q, k, v, mask=None):
    """The softmax of q·kᵀ/√d, times v."""
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError("Shapes do not fit.")
    scale = q.dtype.type(np.sqrt(max(q.shape[-1], 1)))
    return softmax(q @ k.swapaxes(-1, -2) / scale, mask) @ v


def softmax_masked_late(scores, mask=None):
    """Wrong: blocked entries are in the sum."""
    return softmax(scores) * (1 if mask is None else mask)


def attention_scaled_by_width(q, k, v, mask=None):
    """Wrong: scores are divided by d."""
    return attention(q / q.dtype.type(np.sqrt(max(q.shape[-1], 1))), k, v, mask)


JUDGED = {
    "hard_masked_softmax": {"right": softmax, "wrong": softmax_masked_late},
    "scaled_dot_product_attention": {"right": attention, "wrong": attention_scaled_by_width},
}

if __name__ == "__main__":
    np.seterr(all="ignore")
    for operation, functions in JUDGED.items():
        for name, function in functions.items():
            found = list(judged(Path(sys.argv[1], f"{operation}.json"), function, sys.argv[2]))
            print(operation, name, f"fails {sum(not passed for _, passed in found)} of {len(found)}")
