"""Adversarial families of attention as it is used today: those of plain attention with features at random, and those aimed at a feature.

A family makes q, k and v of one head, which is copied to several with signs and sizes of their own; then bias, sink and options are drawn,
and a family that is aimed at one of them sets it last. Cotangents and tangents are `plain` values.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from oracles import Conventions
from properties.strategies.climb import Array
from research.benchmarks.attack.calls import Arrays, Call, Options, fitting
from research.benchmarks.attack.inputs import ATTENTION, Operands, plain

__all__ = ["FEATURED", "LONG", "conventions", "featured"]

LONG = ("rising", "edges")
"""Families of several tiles."""
SMALL = 32
"""Scores up to which caps may act on more than them: there each entry of a gradient is a series of its own."""
LEAST_CAP, LARGEST_CAP = 2.0**-1074, 1e308
POISON = (None, None, np.nan, np.inf, -np.inf, 1e300)

CHOICES: dict[str, tuple[str, ...]] = {
    "dead_rows": ("zero", "nan", "uniform"),
    "dead_gradients": ("stop", "flow"),
    "kv_heads": ("repeat", "tile"),
    "causal": ("top_left", "bottom_right"),
    "mask_polarity": ("true_allows", "true_blocks"),
    "window": ("bound", "count"),
    "softcap_order": ("before_bias", "after_bias", "after_mask"),
    "lse_base": ("e", "2"),
    "lse_sink": ("included", "excluded"),
    "scale_default": ("rsqrt", "one"),
    "causal_with_mask": ("compose", "mask_wins", "causal_wins"),
    "alibi_slopes": ("press", "geometric"),
    "alibi_reference": ("distance", "key"),
}


def conventions(rng: Generator, *names: str) -> Conventions:
    """Conventions that differ from the default in a few of these."""
    chosen: dict[str, Any] = {name: str(rng.choice(CHOICES[name])) for name in names if rng.random() < 0.25}
    return Conventions(**chosen)


# -- What is drawn for q, k and v ----------------------------------------------------------------------------------------------


def normal(rng: Generator) -> Operands:
    """Nothing special, sizes of 0 included."""
    n_q, n_k, d, d_v = (int(rng.choice(sizes)) for sizes in ([1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3], [1, 2]))
    q, k = (rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1.5) for n in (n_q, n_k))
    return Operands(q, k, plain(rng, (n_k, d_v)) if n_k else np.zeros((0, d_v)), scale=None)


def heads(rng: Generator, x: Operands) -> Arrays:
    """Heads that share key heads, and at times a batch, each a variant of the one given."""
    long = x.k.size > SMALL
    kv_heads, group = (1, 1) if long else ((1, 1), (1, 1), (1, 2), (2, 1), (2, 2), (1, 3))[int(rng.integers(6))]
    batch = (2,) if not long and rng.random() < 0.15 else ()

    def variants(y: Array, n: int) -> Array:
        shape = (*batch, n)
        signs = np.where(np.arange(np.prod(shape)).reshape(*shape, 1, 1) == 0, 1.0, rng.choice([-1.0, 0.5, 1.0, 1.0], (*shape, 1, 1)))
        return np.asarray(signs * y)

    return {"q": variants(x.q, kv_heads * group), "k": variants(x.k, kv_heads), "v": variants(x.v, kv_heads)}


def scores(arrays: Arrays, scale: float | None) -> Array:
    """(…, H, n_q, n_k) scores, as float64 has them."""
    q, k = arrays["q"], arrays["k"]
    with np.errstate(all="ignore"):
        s = q @ np.repeat(k, q.shape[-3] // k.shape[-3], axis=-3).swapaxes(-1, -2)
        s = s * (1 / np.sqrt(max(q.shape[-1], 1)) if scale is None else scale)
    return np.asarray(np.nan_to_num(s, nan=0.0, posinf=1e300, neginf=-1e300))


def highest(arrays: Arrays, scale: float | None) -> float:
    """The size of the largest score, or 1."""
    return float(np.abs(scores(arrays, scale)).max(initial=0.0)) or 1.0


def cap(size: float, times: float) -> float:
    """So many times a size, in the range of caps."""
    return float(np.clip(min(size, 1e299) * times, LEAST_CAP, LARGEST_CAP))


def options(scale: float | None, has_rows: bool, rng: Generator, arrays: Arrays) -> Options:
    """Everything but arrays, each with some probability."""
    *batch, n_heads, n_q, _ = arrays["q"].shape
    n_k = arrays["k"].shape[-2]
    names = [name for name in CHOICES if not name.startswith("alibi") and (name != "softcap_order" or n_heads * n_q * n_k <= SMALL)]
    found: Options = {"scale": scale, "conventions": conventions(rng, *names)}
    if scale is None and rng.random() < 0.3:
        found["scale"] = float(rng.choice([1.0, -0.3, 0.0, 10.0 ** rng.uniform(-3, 3)]))
    if rng.random() < 0.4:
        full = (*batch, n_heads, n_q, n_k)
        shape = (full, full[-3:], full[-2:], (n_heads, 1, n_k), (1, n_k), (n_q, 1))[int(rng.integers(6))]
        found["mask"] = rng.random(shape) < rng.choice([0.3, 0.6, 0.9])
    if rng.random() < 0.35:
        found["softcap"] = cap(highest(arrays, found["scale"]), 10.0 ** rng.choice([rng.uniform(-2, 2), rng.uniform(-8, 8)]))
    if rng.random() < 0.3:
        found["causal"] = True
    if rng.random() < 0.4:
        found["offset"] = int(rng.integers(-n_q - 1, n_k + 2))
        if batch and rng.random() < 0.5:
            found["offset"] = rng.integers(-n_q - 1, n_k + 2, tuple(batch))
    if rng.random() < 0.3:
        found["window"] = tuple(None if rng.random() < 0.3 else int(rng.integers(0, n_k + 2)) for _ in range(2))
    if has_rows and rng.random() < 0.2:
        found["rows"] = rng.permutation(n_q)[: int(rng.integers(1, n_q + 1))].tolist()
    return fitting(found)


def bias(rng: Generator, arrays: Arrays, scale: float | None) -> Array:
    """A bias in any shape that broadcasts: of ordinary size, by distance, or as large as scores, with some −∞."""
    *batch, n_heads, n_q, _ = arrays["q"].shape
    n_k = arrays["k"].shape[-2]
    full = (*batch, n_heads, n_q, n_k)
    shape = (full, full[-3:], full[-2:], (n_heads, 1, n_k), (n_heads, n_q, 1), (1, n_k), (n_q, 1), (1, 1))[int(rng.integers(8))]
    x: Array = rng.standard_normal(shape) * rng.choice([1.0, 30.0, min(highest(arrays, scale), 1e290)])
    if rng.random() < 0.2:
        x = -np.abs(np.arange(n_q)[:, None] - np.arange(n_k)) * 2.0 ** -rng.uniform(1, 8)
    return np.where(rng.random(x.shape) < rng.choice([0.0, 0.2]), -np.inf, x)


def sinks(rng: Generator, arrays: Arrays) -> Array:
    """A sink for each head, some of them −∞."""
    n_heads = arrays["q"].shape[-3]
    return np.where(rng.random(n_heads) < 0.2, -np.inf, rng.standard_normal(n_heads) * rng.choice([1.0, 30.0]))


# -- Families that are aimed at a feature: each changes what was drawn -------------------------------------------------------------

Aim = Callable[[Generator, Arrays, Options], None]


def near_the_cap(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Scores about as large as the cap."""
    said["softcap"] = cap(highest(arrays, said["scale"]), rng.uniform(0.2, 3))


def beyond_the_cap(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Scores of 10 to 10⁸ caps, where tanh is 1 but for a few last bits, or exactly; or a cap at the ends of the range."""
    size = highest(arrays, said["scale"])
    said["softcap"] = float(
        rng.choice([cap(size, 10.0 ** -rng.uniform(1, 1.4)), cap(size, 10.0 ** -rng.uniform(1, 8)), LEAST_CAP, LARGEST_CAP])
    )


def dominating_sink(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Sinks above all scores, to where every weight underflows, and far beyond."""
    arrays["sink"] = _near(rng, arrays, said, float(rng.choice([rng.uniform(0, 40), rng.uniform(600, 800), 10.0 ** rng.uniform(3, 299)])))


def vanishing_sink(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Sinks below all scores, to where their weight underflows, and far beyond."""
    arrays["sink"] = _near(rng, arrays, said, -float(rng.choice([rng.uniform(0, 40), rng.uniform(600, 800), 10.0 ** rng.uniform(3, 299)])))


def _near(rng: Generator, arrays: Arrays, said: Options, apart: float) -> Array:
    s = scores(arrays, said["scale"]).max(axis=(-2, -1), initial=-1e300)
    of_heads = s.reshape(-1, s.shape[-1]).max(axis=0)
    with np.errstate(all="ignore"):
        return np.clip(np.where(of_heads > -1e300, of_heads, 0.0) + apart * rng.choice([1.0, 1.0, 0.5], len(of_heads)), -1e305, 1e305)


def cancelling_bias(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Biases that take the scores away, as float64 has them, and leave something ordinary, or near where weights underflow."""
    arrays["q"] = arrays["q"] * min(10.0 ** rng.uniform(0, 15), 1e300 / (np.abs(arrays["q"]).max(initial=0.0) + 1))
    s = scores(arrays, said["scale"])
    left = -rng.uniform(0, 760, s.shape) * (rng.random(s.shape) < 0.5) + rng.standard_normal(s.shape)
    arrays["bias"] = np.clip(left - s, -1e305, 1e305)
    said.pop("softcap", None)


def huge_bias(rng: Generator, arrays: Arrays, said: Options) -> None:
    """A bias that all keys of a row share but for a few last bits."""
    *_, n_heads, n_q, _ = arrays["q"].shape
    x = np.broadcast_to(rng.standard_normal((n_heads, n_q, 1)), (n_heads, n_q, arrays["k"].shape[-2])) * 10.0 ** rng.uniform(2, 300)
    arrays["bias"] = x * (1 + (rng.random(x.shape) < 0.3) * 2.0**-52)


def window_edges(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Windows of one or two keys, at the first and the last key and beyond."""
    n_q, n_k = arrays["q"].shape[-2], arrays["k"].shape[-2]
    said["window"] = ((0, 0), (0, None), (None, 0), (1, 0), (0, 1))[int(rng.integers(5))]
    said["offset"] = int(rng.choice([-n_q, -n_q + 1, -1, 0, 1, n_k - n_q, n_k - 1, n_k]))
    said |= fitting(said)


def far_offsets(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Positions to 2⁵³ on either side of the keys, with windows that just reach them, or not."""
    n_q, n_k = arrays["q"].shape[-2], arrays["k"].shape[-2]
    far = int(2.0 ** rng.uniform(3, 53))
    said["offset"] = int(rng.choice([-far, far]))
    said["window"] = tuple(None if rng.random() < 0.3 else min(far + int(rng.integers(-n_q - 1, n_k + 2)), 2**53) for _ in range(2))
    said |= fitting(said)


def one_bias_for_all(rng: Generator, arrays: Arrays, said: Options) -> None:
    """A bias of one entry, or one for each row: its gradient is 0 but for the cotangent of the log-sum-exp."""
    n_q = arrays["q"].shape[-2]
    arrays["bias"] = rng.standard_normal((1, 1) if rng.random() < 0.5 else (n_q, 1)) * 10.0 ** rng.uniform(-3, 6)


def _cancelled(rng: Generator, arrays: Arrays) -> None:
    """Two channels more, (a, b) and x·(b, −a): what a score has of them is all rounding."""
    a, b = of_queries = rng.uniform(1, 10, 2) * 10.0 ** rng.uniform(3, 13)
    arrays["q"] = np.concatenate([arrays["q"], np.broadcast_to(of_queries, (*arrays["q"].shape[:-1], 2))], axis=-1)
    x = rng.uniform(1, 8, (*arrays["k"].shape[:-1], 1))
    arrays["k"] = np.concatenate([arrays["k"], x * b, -x * a], axis=-1)


def level_rows(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Rows that may read nothing, among others, and have the derivatives of equal logits; the slope of a cap is their scores' own, which
    may cancel."""
    if rng.random() < 0.4:
        _cancelled(rng, arrays)
    *_, n_heads, n_q, _ = arrays["q"].shape
    seen = rng.random((n_heads, n_q, 1)) < 0.3
    said["conventions"] = replace(
        said["conventions"], dead_rows="uniform", dead_gradients="flow", mask_polarity="true_allows", causal_with_mask="compose"
    )
    said["mask"] = seen & (rng.random((n_heads, n_q, arrays["k"].shape[-2])) < rng.choice([0.6, 1.0]))
    if rng.random() < 0.7:
        near_the_cap(rng, arrays, said)
    arrays.pop("sink", None)


def every_feature(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Bias, cap, sink, window and causality together."""
    arrays["bias"], arrays["sink"] = bias(rng, arrays, said["scale"]), sinks(rng, arrays)
    near_the_cap(rng, arrays, said)
    window_edges(rng, arrays, said)
    said["causal"] = True


def unaimed(rng: Generator, arrays: Arrays, said: Options) -> None:
    """Features as they were drawn."""


AIMS: tuple[Aim, ...] = (
    near_the_cap, beyond_the_cap, dominating_sink, vanishing_sink, cancelling_bias, huge_bias, window_edges, far_offsets, one_bias_for_all,
    every_feature,
)  # fmt: skip
ORDINARY = (normal, *(ATTENTION[name] for name in ("one hot", "equal keys", "magnitudes", "offset", "opposite", "large")))


def ordinary(rng: Generator) -> Operands:
    """Of any family whose scores are of ordinary size."""
    return ORDINARY[int(rng.integers(len(ORDINARY)))](rng)


def any_of_plain(rng: Generator) -> Operands:
    """Of any family of plain attention that has a few keys."""
    short = sorted(ATTENTION.keys() - set(LONG))
    return ATTENTION[short[int(rng.integers(len(short)))]](rng)


FEATURED: dict[str, tuple[Callable[[Generator], Operands], Aim]] = {
    "normal": (normal, unaimed),
    **{name: (family, unaimed) for name, family in ATTENTION.items()},
    **{f.__name__.replace("_", " "): (ordinary, f) for f in AIMS},
    "level rows": (any_of_plain, level_rows),
}
"""Each family: what makes q, k and v, and what it is aimed at."""


def featured(family: str, further: str, rng: Generator) -> Call:
    """A call of attention; `further` is "" for itself, "g" with cotangents, "d" with tangents."""
    made, aim = FEATURED[family]
    x = made(rng)
    arrays = heads(rng, x)
    vary = partial(options, x.scale, further != "g")
    said = vary(rng, arrays)
    if x.mask is not None:
        said["mask"] = x.mask
    if rng.random() < 0.4:
        arrays["bias"] = bias(rng, arrays, said["scale"])
    if rng.random() < 0.4:
        arrays["sink"] = sinks(rng, arrays)
    aim(rng, arrays, said)
    if further == "g":
        arrays["grad_out"] = _like(rng, (*arrays["q"].shape[:-1], arrays["v"].shape[-1]))
        if rng.random() < 0.7:
            arrays["grad_lse"] = _like(rng, arrays["q"].shape[:-1])
    for name in [name for name in ("q", "k", "v", "bias", "sink") if name in arrays and further == "d"]:
        if name in ("q", "k", "v") or rng.random() < 0.8:
            arrays["d" + name] = _like(rng, arrays[name].shape)
    return Call(arrays, said, vary, _poison(rng))


def _poison(rng: Generator) -> float | None:
    return POISON[int(rng.integers(len(POISON)))]


def _like(rng: Generator, shape: tuple[int, ...]) -> Array:
    flat = int(np.prod(shape[:-1], dtype=int)), shape[-1]
    return plain(rng, flat).reshape(shape) if all(flat) else np.zeros(shape)
