import numpy as np


def softmax(scores):
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(max(q.shape[-1], 1))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores) @ v


adapter = {"scaled_dot_product_attention": scaled_dot_product_attention}
