"""The calls of the other checkers of attention, with the shapes and draws that their sources state.

These calls are not drawn by the strategies of `properties`: the measurement is about these draws.
"""

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

import numpy as np
import torch

from oracles.ball import Array
from oracles.formats import BINARY16, BINARY32, BRAIN16, Format
from properties.bugs.reference_attention import alibi_distances, key_heads, visible_keys
from properties.strategies.choices import rounded
from research.checkers.trial import Trial, posed, tensor

__all__ = ["documentation", "flash_attention", "flashinfer", "kernelbench", "opinfo", "tests_of_jax"]


def kernelbench(target: Format, trials: int = 2, heads: int = 2) -> Iterator[Trial]:
    """Level 1, problem 97: uniform on [0, 1), 512 queries and keys of width 1024; of 32 batches of
    32 heads one batch of a few.
    """
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        q, k, v = (rng.random((1, heads, 512, 1024)) for _ in range(3))
        yield from posed((q, k, v), target)


def flashinfer(trials: int = 3) -> Iterator[Trial]:
    """Prefill and decoding over cached keys, causal from their end: standard normal in bfloat16, 32
    heads of width 128.
    """
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        for n_q, n_k, heads in ((3, 4, 4), (2, 3, 4), (1, 2, 4), (1, 3, 4), (100, 128, 8)):
            q, k, v = (
                rng.standard_normal((heads_of, n, 128)) for heads_of, n in ((32, n_q), (heads, n_k), (heads, n_k))
            )
            options = {"causal": True, "offset": n_k - n_q, "scale": 128**-0.5}
            yield from posed((q, k, v), BRAIN16, options=options, results=("out", "lse"))


def documentation(target: Format) -> Iterator[Trial]:
    """The two examples in the documentation of PyTorch's attention: uniform, 128 queries and keys
    of width 64; of 32 batches two.
    """
    rng = np.random.default_rng(0)
    for heads in ((8, 8), (32, 8)):
        q, k, v = (rng.random((2, heads_of, 128, 64)) for heads_of in (heads[0], heads[1], heads[1]))
        yield from posed((q, k, v), target, grad=rng.random(q.shape))


def opinfo() -> Iterator[Trial]:
    """PyTorch's samples: uniform on [-9, 9), 4 problems of 3 queries and 6 keys of width 8, with
    one head or four, causal or not; the last has a bias. Those with dropout are left out."""
    rng = np.random.default_rng(0)

    def uniform(*shape: int) -> Array:
        return rng.uniform(-9, 9, shape)

    for heads in (1, 4):
        for causal in (True, None):
            q, k, v = uniform(4, heads, 3, 8), uniform(4, heads, 6, 8), uniform(4, heads, 6, 8)
            yield from posed((q, k, v), BINARY32, options={"causal": causal})
    q, k, v = uniform(4, 4, 3, 8), uniform(4, 4, 6, 8), uniform(4, 4, 6, 8)
    yield from posed((q, k, v), BINARY32, options={"bias": rounded(uniform(3, 6), BINARY32)})


def tests_of_jax(target: Format) -> Iterator[Trial]:
    """JAX's tests of its attention: standard normal, 128 queries and keys of width 32, two batches
    of four heads, with what it takes.
    """
    rng = np.random.default_rng(0)
    bias = rounded(rng.standard_normal((1, 4, 128, 128)), target)
    cases: tuple[dict[str, Any], ...] = (
        {},
        {"causal": True},
        {"mask": np.tri(128, dtype=bool)},
        {"bias": bias},
        {"window": (3, 2)},
    )
    for options in cases:
        q, k, v = (rng.standard_normal((2, 4, 128, 32)) for _ in range(3))
        yield from posed((q, k, v), target, options=options)


_LENGTHS = ((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256))
_WIDTHS = (32, 40, 59, 64, 96, 111, 128)
_HEADS = ((6, 6), (6, 1), (6, 2))


def flash_attention() -> Iterator[Trial]:
    """Standard normal in 16 bits, four heads of each kind. Lengths, widths, kinds of heads and
    features alternate, without all combinations, and one of four batches is drawn. Windows are
    drawn, masks are aligned with the last key.
    """
    rng = np.random.default_rng(0)
    widths, heads, formats = cycle(_WIDTHS), cycle(_HEADS), cycle((BINARY16, BRAIN16))
    for place, feature in enumerate(("plain", "causal", "local", "alibi", "softcap")):
        for n_q, n_k in _LENGTHS[place % 2 :: 2]:
            (heads_of, groups), width, target = next(heads), next(widths), next(formats)
            q, k, v = (
                rng.standard_normal((1, *shape))
                for shape in ((heads_of, n_q, width), (groups, n_k, width), (groups, n_k, width))
            )
            g, offset = rng.standard_normal(q.shape), n_k - n_q
            options: dict[str, Any] = {"offset": offset} if feature in ("causal", "local") else {}
            if feature == "causal":
                options |= {"causal": True}
            if feature == "local":
                options |= {"window": tuple(int(x) for x in rng.integers(0, n_k, 2))}
            if feature == "alibi":
                slopes = 0.3 * rng.random(heads_of)[:, None, None]
                options |= {"bias": rounded(slopes * alibi_distances(n_q, n_k, offset), target)}
            if feature == "softcap":
                options |= {"softcap": 50.0}
                q = q * 50.0
            q, k, v, g = (rounded(x, target) for x in (q, k, v, g))
            yield from posed((q, k, v), target, options=options, grad=g, plain=_plain(q, k, v, g, target, options))


def _plain(q: Array, k: Array, v: Array, g: Array, target: Format, options: Mapping[str, Any]) -> dict[str, Array]:
    """Attention as PyTorch runs it operator by operator in a format, with the keys scaled, and its gradients."""
    arrays = [tensor(x, target).requires_grad_() for x in (q, k, v)]
    key_head = torch.from_numpy(key_heads(q.shape[-3], k.shape[-3]))
    scores = arrays[0] @ (arrays[1] / q.shape[-1] ** 0.5)[:, key_head].mT
    if softcap := options.get("softcap"):
        scores = (scores / softcap).tanh() * softcap
    causal, offset = options.get("causal", False), options.get("offset")
    window = options.get("window", (None, None))
    visible = torch.from_numpy(visible_keys((*q.shape[:-1], k.shape[-2]), None, None, causal, offset, window).copy())
    scores = scores.masked_fill(~visible, -torch.inf)
    if "bias" in options:
        scores = scores + tensor(options["bias"], target)
    weights = torch.softmax(scores, -1).masked_fill(~visible.any(-1, keepdim=True), 0.0)
    out = weights @ arrays[2][:, key_head]
    gradients = torch.autograd.grad(out, arrays, tensor(g, target))
    return {
        name: x.detach().double().numpy() for name, x in zip(("out", "dq", "dk", "dv"), (out, *gradients), strict=True)
    }
