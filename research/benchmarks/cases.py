"""Drawn cases of every operation, adversarial ones among them, small enough for the literal spec over balls.

A case is determined by a seed, its operation and its number alone, so that any one of them can be drawn again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from research.benchmarks.attack import features, frequencies, parts
from research.benchmarks.attack.calls import Call

__all__ = ["OPERATIONS", "SHARES", "Case", "draw"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

KINDS = ("normal", "grid", "large", "cancelling", "offset", "subnormal", "spread", "huge")
FEW = 24
"""Numbers of an input whose gradient is judged by a series for each."""
LONG_EVERY = 500
"""One case in so many has 4096 keys, or 130 query rows."""

POISON = (np.nan, np.inf, -np.inf, 1e300)


@dataclass(frozen=True)
class Case:
    """Arguments of an oracle, and the arguments of the spec that mean the same: masks in full, and no NaN in what is never read."""

    given: tuple[Any, ...]
    exact: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


def draw(operation: str, seed: int, number: int) -> Case:
    """Case `number` of an operation."""
    rng = np.random.default_rng([seed, list(OPERATIONS).index(operation), number])
    return OPERATIONS[operation](rng, number % LONG_EVERY == LONG_EVERY - 1)


def values(rng: Generator, shape: tuple[int, ...], kind: str) -> Array:
    """An array of a kind, for what enters an operation linearly."""
    x: Array = rng.standard_normal(shape)
    match kind:
        case "grid":
            x = rng.integers(-2, 3, shape).astype(np.float64)
        case "large":
            x *= 10.0 ** rng.uniform(0, 4)
        case "cancelling":  # every other row cancels its neighbour but for a few last bits
            x[1::2] = -x[: 2 * (len(x) // 2) : 2] * (1 + 2.0 ** -rng.integers(20, 53))
            x *= 10.0 ** rng.uniform(0, 8)
        case "offset":
            x += rng.standard_normal(shape[-1:]) * 10.0 ** rng.uniform(1, 6)
        case "subnormal":
            x *= 2.0 ** -rng.uniform(1000, 1074)
        case "spread":
            x *= 2.0 ** rng.uniform(-60, 60, shape)
        case "huge":
            x *= 2.0 ** rng.uniform(500, 1020)
    return x


def factors(rng: Generator, shape: tuple[int, ...], kind: str, decades: float) -> Array:
    """An array of a kind, for what is exponentiated: `large` reaches to 10^decades, and nothing is much larger but what keys share."""
    x: Array = rng.standard_normal(shape)
    match kind:
        case "large":
            x *= 10.0 ** rng.uniform(0, decades)
        case "offset":
            x += 10.0 ** rng.uniform(0, 2 * decades)
        case "cancelling":
            x = values(rng, shape, kind) * 1e-6
        case "spread":
            x *= 2.0 ** rng.uniform(-8, 8, shape)
        case "grid" | "subnormal":
            x = values(rng, shape, kind)
    return x


def _kind(rng: Generator) -> str:
    return str(rng.choice(KINDS))


def _values(rng: Generator, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(values(rng, shape, _kind(rng)) for shape in shapes)


def _factors(rng: Generator, decades: float, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
    kind = _kind(rng)
    return tuple(factors(rng, shape, kind, decades) for shape in shapes)


def _mask(rng: Generator, n_q: int, n_k: int) -> Mask | None:
    """None, or any mask: rows that may read nothing and keys that nobody reads included."""
    return None if rng.random() < 0.3 else rng.random((n_q, n_k)) < rng.choice([0.2, 0.6, 0.9])


def _sizes(rng: Generator, long: bool) -> tuple[int, int, int]:
    if long:
        return (1, 4096, 1) if rng.random() < 0.7 else (130, 2, 1)
    return int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 5])), int(rng.integers(1, 4))


def _attention(rng: Generator, long: bool, rest: Callable[[int, int, int], tuple[list[str], list[tuple[int, int]]]]) -> Case:
    """Attention on (q, k, v, mask, …), further arrays by `rest`: a name for each ("k" for what goes with the keys), and a shape."""
    n_q, n_k, d = _sizes(rng, long)
    q, k = _factors(rng, 2, (n_q, d), (n_k, d))
    (v,) = _values(rng, (n_k, d))
    names, shapes = rest(n_q, n_k, d)
    further = _values(rng, *shapes)
    mask, is_causal = _mask(rng, n_q, n_k), bool(rng.random() < 0.2)
    past: Mask = np.tri(n_q, n_k, dtype=bool)
    allowed = mask if not is_causal else past if mask is None else past & mask
    unread: Mask = np.zeros(n_k, bool)
    if allowed is not None and rng.random() < 0.5:
        unread = np.logical_not(np.logical_or.reduce(allowed, axis=0))
    poison = rng.choice(POISON)
    k_given, v_given = (np.where(unread[:, None], poison, x) for x in (k, v))
    further_given = [np.where(unread[:, None], poison, x) if name == "k" else x for name, x in zip(names, further, strict=True)]
    return Case((q, k_given, v_given, mask, *further_given), (q, k, v, allowed, *further), {"is_causal": is_causal})


def _sdpa(rng: Generator, long: bool) -> Case:
    return _attention(rng, long, lambda n_q, n_k, d: ([], []))


def _sdpa_vjp(rng: Generator, long: bool) -> Case:
    return _attention(rng, long, lambda n_q, n_k, d: (["q"], [(n_q, d)]))


def _sdpa_jvp(rng: Generator, long: bool) -> Case:
    return _attention(rng, long, lambda n_q, n_k, d: (["q", "k", "k"], [(n_q, d), (n_k, d), (n_k, d)]))


def _causal(rng: Generator, long: bool) -> Case:
    n_q, n_k, d = _sizes(rng, long)
    arguments = *_factors(rng, 2, (n_q, d), (n_k, d)), *_values(rng, (n_k, d))
    return Case(arguments, arguments)


def _grouped(rng: Generator, long: bool) -> Case:
    n_q, n_k, d = _sizes(rng, long)
    kv_heads = int(rng.integers(1, 3))
    q, k = _factors(rng, 2, (int(rng.integers(1, 3)) * kv_heads, n_q, d), (kv_heads, n_k, d))
    (v,) = _values(rng, k.shape)
    arguments = q, k, v, _mask(rng, n_q, n_k)
    return Case(arguments, arguments)


def _multi_head(rng: Generator, long: bool, linear: int = 0, tangents: bool = False) -> Case:
    """(x, wq, wk, wv, wo, num_heads, mask) and a cotangent, or the tangents of all five."""
    n, num_heads, head_dim = (24 if long else int(rng.integers(1, 4))), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    width, d_model = num_heads * head_dim, int(rng.integers(1, 4))
    x, wq, wk = _factors(rng, 1, (n, d_model), (d_model, width), (d_model, width))
    wv, wo = _values(rng, (d_model, width), (width, d_model))
    like = [(n, d_model), (d_model, width), (d_model, width), (d_model, width), (width, d_model)][: 5 if tangents else linear]
    arguments = x, wq, wk, wv, wo, num_heads, _mask(rng, n, n), *_values(rng, *like)
    return Case(arguments, arguments)


def _softmax(rng: Generator, long: bool, linear: int = 0) -> Case:
    n, n_k = (1, 4096) if long else (int(rng.integers(1, 4)), int(rng.integers(1, 9)))
    (scores,) = _factors(rng, 4, (n, n_k))
    arguments = scores, _mask(rng, n, n_k), *_values(rng, *[scores.shape] * linear)
    return Case(arguments, arguments)


def _position(rng: Generator) -> int:
    """The first, any to 2¹⁰, any to 2²⁰, the last before 2²⁰, or any to 2⁴⁰."""
    return int(rng.choice(np.array([0, 1, rng.integers(2**10), rng.integers(2**20), 2**20 - rng.integers(1, 9), rng.integers(2**40)])))


def _lengths(rng: Generator) -> tuple[int, int]:
    return int(rng.integers(1, 3)), int(rng.integers(1, 8))


def _sinusoid(rng: Generator, _long: bool) -> Case:
    arguments = *_lengths(rng), _position(rng)
    return Case(arguments, arguments)


def _width(rng: Generator, _long: bool) -> Case:
    arguments = (int(rng.integers(1, 257)),)
    return Case(arguments, arguments)


def _arrays(count: int) -> Callable[[Generator, bool], Case]:
    """A case of so many arrays of one shape."""

    def case(rng: Generator, _long: bool) -> Case:
        arguments = _values(rng, *[_lengths(rng)] * count)
        return Case(arguments, arguments)

    return case


def _learned(rng: Generator, _long: bool) -> Case:
    (table,) = _values(rng, (int(rng.integers(1, 6)), int(rng.integers(1, 5))))
    start = int(rng.integers(0, len(table) + 1))
    arguments = table, int(rng.integers(0, len(table) - start + 1)), start
    return Case(arguments, arguments)


def _rope(count: int) -> Callable[[Generator, bool], Case]:
    def case(rng: Generator, _long: bool) -> Case:
        arguments = *_values(rng, *[_lengths(rng)] * count), _position(rng)
        return Case(arguments, arguments)

    return case


def _called(families: Mapping[str, Callable[[Generator], Call]], *long: str) -> Callable[[Generator, bool], Case]:
    """A case of any family, of those of many keys where a long one is asked for."""
    short = [name for name in families if name not in long]

    def case(rng: Generator, is_long: bool) -> Case:
        names = long if is_long and long else short
        call = families[names[int(rng.integers(len(names)))]](rng)
        return Case((), (call.exact(),), call.given())

    return case


def _featured(further: str) -> Callable[[Generator, bool], Case]:
    return _called({name: partial(features.featured, name, further) for name in features.FEATURED}, *features.LONG)


def _by_series(further: str) -> Callable[[Generator, bool], Case]:
    """A case of a few numbers, for what takes a series for each."""
    drawn = _featured(further)

    def case(rng: Generator, _long: bool) -> Case:
        found = drawn(rng, False)
        while sum(np.size(found.exact[0].get(name, ())) for name in ("q", "k", "v", "bias")) > FEW:
            found = drawn(rng, False)
        return found

    return case


def _named(draw: Callable[..., Call], names: tuple[str, ...], *fixed: Any) -> Callable[[Generator, bool], Case]:
    return _called({name: partial(draw, name, *fixed) for name in names})


OPERATIONS: dict[str, Callable[[Generator, bool], Case]] = {
    "scaled_dot_product_attention": _sdpa,
    "scaled_dot_product_attention_vjp": _sdpa_vjp,
    "scaled_dot_product_attention_jvp": _sdpa_jvp,
    "grouped_query_attention": _grouped,
    "multi_head_attention": _multi_head,
    "multi_head_attention_vjp": lambda rng, long: _multi_head(rng, long, linear=1),
    "multi_head_attention_jvp": lambda rng, long: _multi_head(rng, long, tangents=True),
    "hard_masked_softmax": _softmax,
    "hard_masked_softmax_vjp": lambda rng, long: _softmax(rng, long, linear=1),
    "sinusoidal_positional_encoding": _sinusoid,
    "add_positional_encoding": _arrays(2),
    "learned_positional_encoding": _learned,
    "rope": _rope(1),
    "rope_vjp": _rope(2),
    "apply_rotary": _arrays(3),
    "apply_rotary_vjp": _arrays(4),
    "attention": _featured(""),
    "attention_vjp": _featured("g"),
    "attention_vjp by series": _by_series("g"),
    "attention_jvp": _featured("d"),
    "attention_jvp by series": _by_series("d"),
    "merge_attention": _named(parts.merged, tuple(parts.MERGED)),
    "alibi_slopes": _called({"plain": parts.alibi_slopes}),
    "alibi_bias": _called({"plain": parts.alibi_bias}),
    "rotary_frequencies": _called(frequencies.FREQUENCIES),
    "rope at positions": _named(frequencies.rotated, frequencies.ROTATIONS, ("x",)),
    "rope_vjp at positions": _named(frequencies.rotated, frequencies.ROTATIONS, frequencies.PAIR),
    "rotary_tables": _named(frequencies.tables, frequencies.TABLES),
    "causal_attention": _causal,
    "inv_freq": _width,
    "rope_angles": _sinusoid,
    "rope_tables": _sinusoid,
}
"""How a case of each operation is drawn; what follows a space in a name tells two uses of an oracle, or two judges of it, apart."""
SHARES = {"attention_vjp by series": 10}
"""Judges who take long are asked about one case in so many."""
