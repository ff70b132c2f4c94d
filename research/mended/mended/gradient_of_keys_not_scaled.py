import numpy as np


def softmax(scores):
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def scaled_dot_product_attention_vjp(q, k, v, mask, grad_out):
    scale = 1 / np.sqrt(max(q.shape[-1], 1))
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = softmax(scores)
    grad_weights = grad_out @ v.swapaxes(-1, -2)
    grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdims=True))
    return grad_scores @ k * scale, grad_scores.swapaxes(-1, -2) @ q * scale, weights.swapaxes(-1, -2) @ grad_out


adapter = {"scaled_dot_product_attention_vjp": scaled_dot_product_attention_vjp}
