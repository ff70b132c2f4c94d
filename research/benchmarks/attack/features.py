"""Adversarial families of attention with features: a drawn call, or q, k and v of a family of
`inputs`, and an aim.

A family of `inputs` makes q, k and v of one head. Copies with other signs and sizes make several
heads. A drawn call gives bias, sink and options, and a family that aims at one of them sets it
last. Cotangents and tangents are `plain` values.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from properties.contract.operations import OPERATIONS
from properties.strategies.climb import Array
from research.benchmarks.attack.calls import (
    DRAWN,
    POISON,
    Arrays,
    Call,
    Options,
    Sizes,
    conventions,
    drawn,
    everyday,
    fitting,
)
from research.benchmarks.attack.inputs import ATTENTION, Operands, plain

__all__ = ["FEATURED", "INPUTS", "LONG", "around", "featured", "scores", "variants"]

LONG = ("rising", "edges")
"""Families of several tiles."""
SMALL = 32
"""Scores up to which caps may act on more than them: there each entry of a gradient is a series of its own."""
LEAST_CAP, LARGEST_CAP = 2.0**-1074, 1e308
INPUTS = ("q", "k", "v", "bias", "sink", "alibi")
SIZES: Sizes = {"n_q": range(1, 4), "n_k": range(5), "head_dim": range(4), "value_dim": (1, 2)}
"""Sizes of 0 among them."""


def around(operation: str, x: Operands, rng: Generator, rank: int = 0, sizes: Sizes = DRAWN) -> Call:
    """A call with the features of a drawn one, and q, k and v of operands."""
    sizes = {**sizes, "n_q": (len(x.q),), "n_k": (len(x.k),), "head_dim": x.q.shape[1:], "value_dim": x.v.shape[1:]}
    call = drawn(operation, rng, sizes, meant=conventions(operation, rng), rank=rank)
    for name, single in zip("qkv", x[:3], strict=True):
        call.arrays[name] = variants(single, call.arrays[name].shape[:-2], rng)
    call.options.update({} if x.scale is None else {"scale": x.scale}, **({} if x.mask is None else {"mask": x.mask}))
    return replace(call, options=fitting(call.options))


def variants(x: Array, lead: tuple[int, ...], rng: Generator) -> Array:
    """One copy for each head. All copies except the first have another sign or size."""
    factors = rng.choice([-1.0, 0.5, 1.0, 1.0], (*lead, 1, 1))
    factors.flat[0] = 1.0
    return np.asarray(factors * x)


def scores(arrays: Arrays, scale: float | None) -> Array:
    """(…, H, n_q, n_k) scores, as float64 has them."""
    q, k = arrays["q"], arrays["k"]
    with np.errstate(all="ignore"):
        s = q @ np.repeat(k, q.shape[-3] // k.shape[-3], axis=-3).swapaxes(-1, -2)
        s = s * (1 / np.sqrt(max(q.shape[-1], 1)) if scale is None else scale)
    return np.asarray(np.nan_to_num(s, nan=0.0, posinf=1e300, neginf=-1e300))


def highest(arrays: Arrays, options: Options) -> float:
    """The size of the largest score, or 1."""
    return float(np.abs(scores(arrays, options.get("scale"))).max(initial=0.0)) or 1.0


def cap(size: float, times: float) -> float:
    """A size times a factor, in the range of caps."""
    return float(np.clip(min(size, 1e299) * times, LEAST_CAP, LARGEST_CAP))


# -- Families that are aimed at a feature: each changes what was drawn -----------------------------

Aim = Callable[[Generator, Arrays, Options], None]


def near_the_cap(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Scores about as large as the cap."""
    options["softcap"] = cap(highest(arrays, options), rng.uniform(0.2, 3))


def beyond_the_cap(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Scores of 10 to 10⁸ softcaps, where tanh is 1 exactly or except for a few last bits; or a
    softcap at the ends of the range.
    """
    size = highest(arrays, options)
    options["softcap"] = float(
        rng.choice(
            [cap(size, 10.0 ** -rng.uniform(1, 1.4)), cap(size, 10.0 ** -rng.uniform(1, 8)), LEAST_CAP, LARGEST_CAP]
        )
    )


def dominating_sink(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Sinks above all scores, to where every weight underflows, and far beyond."""
    arrays["sink"] = _near(
        rng,
        arrays,
        options,
        float(rng.choice([rng.uniform(0, 40), rng.uniform(600, 800), 10.0 ** rng.uniform(3, 299)])),
    )


def vanishing_sink(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Sinks below all scores, to where their weight underflows, and far beyond."""
    arrays["sink"] = _near(
        rng,
        arrays,
        options,
        -float(rng.choice([rng.uniform(0, 40), rng.uniform(600, 800), 10.0 ** rng.uniform(3, 299)])),
    )


def _near(rng: Generator, arrays: Arrays, options: Options, apart: float) -> Array:
    s = scores(arrays, options.get("scale")).max(axis=(-2, -1), initial=-1e300)
    of_heads = s.reshape(-1, s.shape[-1]).max(axis=0)
    with np.errstate(all="ignore"):
        return np.clip(
            np.where(of_heads > -1e300, of_heads, 0.0) + apart * rng.choice([1.0, 1.0, 0.5], len(of_heads)),
            -1e305,
            1e305,
        )


def cancelling_bias(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Biases that take the scores away, as float64 has them, and leave something ordinary, or near
    where weights underflow.
    """
    arrays["q"] = arrays["q"] * min(10.0 ** rng.uniform(0, 15), 1e300 / (np.abs(arrays["q"]).max(initial=0.0) + 1))
    s = scores(arrays, options.get("scale"))
    left = -rng.uniform(0, 760, s.shape) * (rng.random(s.shape) < 0.5) + rng.standard_normal(s.shape)
    arrays["bias"] = np.clip(left - s, -1e305, 1e305)
    options.pop("softcap", None)


def huge_bias(rng: Generator, arrays: Arrays, options: Options) -> None:
    """A bias that all keys of a row share, except for a few last bits."""
    *_, n_heads, n_q, _ = arrays["q"].shape
    x = np.broadcast_to(
        rng.standard_normal((n_heads, n_q, 1)), (n_heads, n_q, arrays["k"].shape[-2])
    ) * 10.0 ** rng.uniform(2, 300)
    arrays["bias"] = x * (1 + (rng.random(x.shape) < 0.3) * 2.0**-52)


def window_edges(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Windows of one or two keys, at the first and the last key and beyond."""
    n_q, n_k = arrays["q"].shape[-2], arrays["k"].shape[-2]
    options["window"] = ((0, 0), (0, None), (None, 0), (1, 0), (0, 1))[int(rng.integers(5))]
    options["offset"] = int(rng.choice([-n_q, -n_q + 1, -1, 0, 1, n_k - n_q, n_k - 1, n_k]))
    options |= fitting(options)


def far_offsets(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Positions to 2⁵³ on either side of the keys, with windows that just reach them, or not."""
    n_q, n_k = arrays["q"].shape[-2], arrays["k"].shape[-2]
    far = int(2.0 ** rng.uniform(3, 53))
    options["offset"] = int(rng.choice([-far, far]))
    options["window"] = tuple(
        None if rng.random() < 0.3 else min(far + int(rng.integers(-n_q - 1, n_k + 2)), 2**53) for _ in range(2)
    )
    options |= fitting(options)
    arrays.pop("alibi", None)  # distances are integers of float64


def one_bias_for_all(rng: Generator, arrays: Arrays, options: Options) -> None:
    """A bias of one entry, or one for each row: its gradient is 0 except for the cotangent of the
    log-sum-exp.
    """
    n_q = arrays["q"].shape[-2]
    arrays["bias"] = rng.standard_normal((1, 1) if rng.random() < 0.5 else (n_q, 1)) * 10.0 ** rng.uniform(-3, 6)


def _cancelled(rng: Generator, arrays: Arrays) -> None:
    """Two channels more, (a, b) and x·(b, −a): what a score has of them is all rounding."""
    a, b = of_queries = rng.uniform(1, 10, 2) * 10.0 ** rng.uniform(3, 13)
    arrays["q"] = np.concatenate([arrays["q"], np.broadcast_to(of_queries, (*arrays["q"].shape[:-1], 2))], axis=-1)
    x = rng.uniform(1, 8, (*arrays["k"].shape[:-1], 1))
    arrays["k"] = np.concatenate([arrays["k"], x * b, -x * a], axis=-1)


def level_rows(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Rows that may read nothing, among others, and have the derivatives of equal logits; the slope
    of a cap is their scores' own, which may cancel."""
    if rng.random() < 0.4:
        _cancelled(rng, arrays)
    *_, n_heads, n_q, _ = arrays["q"].shape
    visible = rng.random((n_heads, n_q, 1)) < 0.3
    options["conventions"] = replace(
        options["conventions"],
        dead_rows="uniform",
        dead_gradients="flow",
        mask_polarity="true_allows",
        causal_with_mask="compose",
    )
    options["mask"] = visible & (rng.random((n_heads, n_q, arrays["k"].shape[-2])) < rng.choice([0.6, 1.0]))
    if rng.random() < 0.7:
        near_the_cap(rng, arrays, options)
    arrays.pop("sink", None)


def every_feature(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Bias, cap, sink, window and causality together."""
    full = (*arrays["q"].shape[:-1], arrays["k"].shape[-2])
    arrays.setdefault("bias", rng.standard_normal(full[-2:]) * rng.choice([1.0, 30.0]))
    arrays.setdefault("sink", rng.standard_normal(full[-3]) * rng.choice([1.0, 30.0]))
    near_the_cap(rng, arrays, options)
    window_edges(rng, arrays, options)
    options["causal"] = True


def unaimed(rng: Generator, arrays: Arrays, options: Options) -> None:
    """Features as they were drawn, at times of other sizes: a cap or a bias of the size of scores,
    or a scale of any size.
    """
    if "softcap" in options and rng.random() < 0.7:
        options["softcap"] = cap(highest(arrays, options), 10.0 ** rng.choice([rng.uniform(-2, 2), rng.uniform(-8, 8)]))
    if "bias" in arrays and rng.random() < 0.4:
        arrays["bias"] = arrays["bias"] * rng.choice([30.0, min(highest(arrays, options), 1e290)])
    if "alibi" in arrays and rng.random() < 0.5:
        arrays["alibi"] = arrays["alibi"] * 10.0 ** rng.choice([rng.uniform(-3, 3), rng.uniform(-30, 30)])
    if options.get("scale") in (0.3, -0.5):
        options["scale"] = float(10.0 ** rng.uniform(-3, 3))


AIMS: tuple[Aim, ...] = (
    near_the_cap, beyond_the_cap, dominating_sink, vanishing_sink, cancelling_bias, huge_bias, window_edges,
    far_offsets, one_bias_for_all, every_feature,
)  # fmt: skip
ORDINARY = (None, *(ATTENTION[name] for name in ("one hot", "equal keys", "magnitudes", "offset", "opposite", "large")))


def ordinary(rng: Generator) -> Operands | None:
    """Of any family whose scores are of ordinary size, or as the strategies draw them."""
    family = ORDINARY[int(rng.integers(len(ORDINARY)))]
    return None if family is None else family(rng)


def any_of_plain(rng: Generator) -> Operands:
    """Of any family of plain attention that has a few keys."""
    short_families = sorted(ATTENTION.keys() - set(LONG))
    return ATTENTION[short_families[int(rng.integers(len(short_families)))]](rng)


FEATURED: dict[str, tuple[Callable[[Generator], Operands | None], Aim]] = {
    "normal": (lambda rng: None, unaimed),
    **{name: (family, unaimed) for name, family in ATTENTION.items()},
    **{f.__name__.replace("_", " "): (ordinary, f) for f in AIMS},
    "level rows": (any_of_plain, level_rows),
}
"""Each family: what makes q, k and v, and what it is aimed at."""


def featured(operation: str, family: str, rng: Generator) -> Call:
    """A call of attention, of its gradients, or of its tangents."""
    maker, aim = FEATURED[family]
    x, rank, definition = maker(rng), int(rng.random() < 0.15), OPERATIONS[operation]
    if x is None:
        meaning = conventions(operation, rng)
        call = (
            everyday(operation, rng, meant=meaning)
            if rng.random() < 0.5
            else drawn(operation, rng, SIZES, meant=meaning, rank=rank)
        )
    else:
        call = (
            around(operation, x, rng, rank)
            if x.k.size <= SMALL
            else around(operation, x, rng, sizes={"kv_heads": (1,), "group": (1,)})
        )
    arrays, options = {name: call.arrays[name] for name in INPUTS if name in call.arrays}, call.options
    aim(rng, arrays, options)
    if not operation.endswith("_vjp") and rng.random() < 0.2:
        n_q = arrays["q"].shape[-2]
        options["rows"] = rng.permutation(n_q)[: int(rng.integers(1, n_q + 1))].tolist()
    if np.prod(arrays["q"].shape[-3:-1]) * arrays["k"].shape[-2] > SMALL:
        options["conventions"] = replace(options["conventions"], softcap_order="before_bias")
    shapes = {"grad_out": (*arrays["q"].shape[:-1], arrays["v"].shape[-1]), "grad_lse": arrays["q"].shape[:-1]}
    shapes |= {f"d{name}": x.shape for name, x in arrays.items()}
    for name, shape in shapes.items():
        if name in definition.parameters and (name not in definition.options or rng.random() < 0.75):
            arrays[name] = plain(rng, shape)
    return Call(operation, arrays, fitting(options), POISON[int(rng.integers(len(POISON)))])
