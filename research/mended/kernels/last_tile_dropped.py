import numpy as np


def scaled_dot_product_attention(q, k, v, mask=None):
    n_k, width = k.shape[-2], q.shape[-1]
    scale = 1 / np.sqrt(max(width, 1))
    tiles = [slice(a, a + 64) for a in range(0, max(n_k // 64 * 64, min(n_k, 1)), 64)]
    running = np.full((*q.shape[:-1], 1), -np.inf)
    total, out = np.zeros_like(running), np.zeros((*q.shape[:-1], v.shape[-1]))
    for tile in tiles:
        scores = q @ k[..., tile, :].swapaxes(-1, -2) * scale
        if mask is not None:
            scores = np.where(np.broadcast_to(mask, (*q.shape[:-1], n_k))[..., tile], scores, -np.inf)
        largest = np.maximum(running, scores.max(-1, keepdims=True, initial=-np.inf))
        base = np.where(np.isinf(largest), 0, largest)
        shrink, weights = np.exp(running - base), np.exp(scores - base)
        total = total * shrink + weights.sum(-1, keepdims=True)
        out = out * shrink + weights @ v[..., tile, :]
        running = largest
    return out / np.where(total == 0, 1, total)


adapter = {"scaled_dot_product_attention": scaled_dot_product_attention}
