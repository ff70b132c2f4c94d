import numpy as np


def softmax(scores):
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def grouped_query_attention(q, k, v, mask=None):
    group = q.shape[-3] // k.shape[-3]
    k, v = (np.concatenate([x] * group, -3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(max(q.shape[-1], 1))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores) @ v


adapter = {"grouped_query_attention": grouped_query_attention}
