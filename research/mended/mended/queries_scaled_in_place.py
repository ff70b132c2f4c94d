import numpy as np


def softmax(scores):
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def causal_attention(q, k, v):
    q = q / np.sqrt(max(q.shape[-1], 1))
    scores = q @ k.swapaxes(-1, -2)
    visible = np.tri(*scores.shape[-2:], dtype=bool)
    return softmax(np.where(visible, scores, -np.inf)) @ v


adapter = {"causal_attention": causal_attention}
