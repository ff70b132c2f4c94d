"""Right and wrong functions, judged: `python example.py FOLDER ARITHMETIC` prints how many tests each
passes, fails and skips, and why.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from vectors import judged


def softmax(scores, mask=None):
    """Each row's softmax over its visible entries; 0 elsewhere, and in fully masked rows."""
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
    """Wrong: masked entries are in the sum."""
    return softmax(scores) * (1 if mask is None else mask)


def attention_scaled_by_width(q, k, v, mask=None):
    """Wrong: scores are divided by d."""
    return attention(q / q.dtype.type(np.sqrt(max(q.shape[-1], 1))), k, v, mask)


def rotated(first, second, start_pos):
    """The pairs (first, second) of each row, rotated by the row's angles."""
    width = first.shape[-1]
    rows, pairs = np.arange(first.shape[-2])[:, None] + float(start_pos), np.arange(width)
    angle = rows * 10000.0 ** (-pairs / max(width, 1))
    cos, sin = np.cos(angle), np.sin(angle)
    return first * cos - second * sin, second * cos + first * sin


def rope(x, start_pos=0):
    """Rotates the channels 2i and 2i + 1 together."""
    if start_pos < 0:
        raise ValueError("start_pos is negative.")
    if x.shape[-1] % 2:
        raise NotImplementedError("head_dim is odd.")
    return np.stack(rotated(x[..., ::2], x[..., 1::2], start_pos), -1).reshape(x.shape).astype(x.dtype)


def rope_of_halves(x, start_pos=0):
    """Rotates the channels i and i + d/2 together."""
    if start_pos < 0:
        raise ValueError("start_pos is negative.")
    if x.shape[-1] % 2:
        raise NotImplementedError("head_dim is odd.")
    return np.concatenate(rotated(*np.split(x, 2, -1), start_pos), -1).astype(x.dtype)


JUDGED = {
    "hard_masked_softmax": {"right": softmax, "wrong": softmax_masked_late},
    "scaled_dot_product_attention": {"right": attention, "wrong": attention_scaled_by_width},
    "rope": {"right": rope, "wrong": rope_of_halves},
}

if __name__ == "__main__":
    np.seterr(all="ignore")
    folder, arithmetic = Path(sys.argv[1]), sys.argv[2]
    rows = [(operation, name, call, {}) for operation, calls in JUDGED.items() for name, call in calls.items()]
    rows.append(("rope", "half", rope_of_halves, {"rope_pairing": "half"}))
    for operation, name, function, conventions in rows:
        found = list(judged(folder / f"{operation}.json", function, arithmetic, conventions=conventions))
        count = Counter(judgement.outcome for judgement in found)
        print(f"{operation} {name}: {count['pass']} pass, {count['fail']} fail, {count['skip']} skip")
        for judgement in found:
            if judgement.outcome != "pass":
                print(f"  {judgement}")
