import numpy as np

np.seterr(divide="ignore")


def paged_attention(q, k_pages, v_pages, block_table, lengths):
    size, group = k_pages.shape[1], q.shape[2] // k_pages.shape[2]
    out, lse = np.zeros((*q.shape[:3], v_pages.shape[-1])), np.full((q.shape[0], q.shape[2], q.shape[1]), -np.inf)
    for b, length in enumerate(lengths):
        pages = block_table[b, : length // size]
        keys, values = (x[pages].reshape(-1, *x.shape[2:])[:length] for x in (k_pages, v_pages))
        keys, values = (np.repeat(x, group, 1).swapaxes(0, 1) for x in (keys, values))
        scores = q[b].swapaxes(0, 1) @ keys.swapaxes(-1, -2) / np.sqrt(max(q.shape[-1], 1))
        visible = np.tri(q.shape[1], scores.shape[-1], length - q.shape[1], dtype=bool)
        scores = np.where(visible, scores, -np.inf)
        largest = scores.max(-1, keepdims=True, initial=-np.inf)
        base = np.where(np.isinf(largest), 0, largest)
        weights = np.exp(scores - base)
        total = weights.sum(-1, keepdims=True)
        out[b] = (weights @ values / np.where(total == 0, 1, total)).swapaxes(0, 1)
        lse[b] = (np.log(total) + base)[..., 0]
    return out, lse


adapter = {"paged_attention": paged_attention}
