import numpy as np

from attnspec import Implementation


def rope(x, start_pos=0):
    width = x.shape[-1] // 2
    angle = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * 10000.0 ** (-np.arange(width) / max(width - 1, 1))
    cos, sin = np.cos(angle), np.sin(angle)
    out = np.empty_like(x)
    out[..., ::2] = x[..., ::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., ::2] * sin
    return out


adapter = Implementation("kernel", {"rope": rope}, supports={"head_dim": lambda d: d % 2 == 0})
