"""The first half of the attack: |exact − mid| / rad of an oracle's certificate, climbed towards 1 and beyond.

Every entry whose radius is finite has to contain the exact value, whether the oracle calls its result judged or not. A judged result whose
radius is wider than a whole row of its midpoints is true, and useless: it is counted apart, as a remark.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

import oracles
from oracles import Conventions, Enclosure
from properties.measurements.benchmarks.attack.climb import Array, Climbed, Height, climb
from properties.measurements.benchmarks.attack.inputs import ATTENTION, ROTARY, SCORES, Operands, Point, changed, plain, position
from properties.measurements.benchmarks.judge import Meaning, compare

__all__ = ["METHODS", "OPERATIONS", "attack", "families", "measure"]

METHODS = ("fast", "auto", "arb")
SDPA = "scaled_dot_product_attention"
HEADS = 2
SMALLEST = 2.0**-149
"""Radii below this are never called useless: no format under test resolves them."""


def _attention(family: Callable[[Generator], Operands], extra: str, rng: Generator) -> Point:
    """A point of attention; `extra` says of which shape its cotangent or tangents are: "g" like the output, or like q, k and v."""
    x = family(rng)
    shapes = {"q": x.q.shape, "k": x.k.shape, "v": x.v.shape, "g": (len(x.q), x.v.shape[1])}
    q, k, v = (_widened(y, max(y.shape[1] for y in x[:3])) for y in x[:3])
    further = [_widened(plain(rng, shapes[name]), q.shape[1]) for name in extra]
    return Point((q, k, v, *further), x.mask, meaning=Meaning(scale=x.scale))


def _widened(x: Array, width: int) -> Array:
    """x with columns of zeros: the literal spec has values as wide as keys."""
    return np.pad(x, ((0, 0), (0, width - x.shape[1])))


def _grouped(family: Callable[[Generator], Operands], rng: Generator) -> Point:
    x = _attention(family, "", rng)
    q, k, v = x.arrays
    q = np.stack([q, q * rng.choice([-1.0, 0.5, 1.0])])
    return Point((q, k[None], v[None]), None, meaning=x.meaning)


def _multi_head(family: Callable[[Generator], Operands], rng: Generator) -> Point:
    """Tokens and projections as the values of a family are: (x, wq, wk, wv, wo), two heads of one column."""
    size = float(10.0 ** rng.uniform(-2, 2))
    x, wq, wk = (rng.standard_normal((2, 2)) * size for _ in range(3))
    v = family(rng).v[:2, :1]
    wv = np.tile(np.resize(v, (2, 1)), (1, 2)) * 2.0**-8
    return Point((x, wq, wk, wv, np.clip(plain(rng, (2, 2)), -1e6, 1e6)))


def _softmax(family: Callable[[Generator], Any], linear: int, rng: Generator) -> Point:
    scores, mask = family(rng)
    return Point((scores, *(plain(rng, scores.shape) for _ in range(linear))), mask)


def _rope(family: Callable[[Generator], Any], linear: int, rng: Generator) -> Point:
    shape, meaning, start = family(rng)
    return Point(tuple(plain(rng, shape) for _ in range(linear)), None, (start,), meaning)


def _apply(linear: int, rng: Generator) -> Point:
    shape = int(rng.integers(1, 3)), int(rng.integers(1, 6))
    return Point(tuple(plain(rng, shape) for _ in range(linear)))


def _sinusoid(rng: Generator) -> Point:
    return Point((), None, (position(rng), int(rng.integers(1, 3)), int(rng.integers(1, 8))))


Draw = Callable[[Generator], Point]


def _each(table: dict[str, Any], make: Callable[..., Point], *fixed: Any) -> dict[str, Draw]:
    return {name: partial(make, family, *fixed) for name, family in table.items()}


OPERATIONS: dict[str, dict[str, Draw]] = {
    SDPA: _each(ATTENTION, _attention, ""),
    f"{SDPA}_vjp": _each(ATTENTION, _attention, "g"),
    f"{SDPA}_jvp": _each(ATTENTION, _attention, "qkv"),
    "grouped_query_attention": _each({k: ATTENTION[k] for k in ("cancelling", "magnitudes", "subnormal", "opposite")}, _grouped),
    "multi_head_attention": _each({k: ATTENTION[k] for k in ("subnormal", "opposite", "offset")}, _multi_head),
    "hard_masked_softmax": _each(SCORES, _softmax, 0),
    "hard_masked_softmax_vjp": _each(SCORES, _softmax, 1),
    "rope": _each(ROTARY, _rope, 1),
    "rope_vjp": _each(ROTARY, _rope, 2),
    "apply_rotary": {"plain": lambda rng: _apply(3, rng)},
    "apply_rotary_vjp": {"plain": lambda rng: _apply(4, rng)},
    "sinusoidal_positional_encoding": {"huge positions": _sinusoid},
}
"""The families of each operation, as functions that draw a point."""


def families() -> list[tuple[str, str, str]]:
    """Every (operation, family, method) to be attacked."""
    return [(operation, family, method) for operation, table in OPERATIONS.items() for family in table for method in METHODS]


def arguments(operation: str, point: Point) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
    """What the oracle is called with, what the spec is, and the oracle's keywords."""
    meaning, a = point.meaning, point.arrays
    both: tuple[Any, ...] = a
    if operation.startswith(("scaled", "grouped")):
        both = *a[:3], point.mask, *a[3:]
        return both, both, {"scale": meaning.scale}
    if operation.startswith("multi"):
        both = *a, HEADS, point.mask
        return both, both, {}
    if operation.startswith("hard"):
        both = a[0], point.mask, *a[1:]
        return both, both, {}
    if operation.startswith("sinusoidal"):
        start, length, width = point.numbers
        return (length, width, start), (length, width, start), {}
    if operation.startswith("rope"):
        both = *a, *point.numbers
        return both, both, {"conventions": Conventions(rope_base=meaning.base, rope_scale=meaning.stretch)}
    return both, both, {}


def measure(operation: str, method: str, point: Point) -> Height:
    """The largest |exact − mid| / rad of an oracle's answer.

    An answer whose every entry is the correctly rounded one has no height: its ratio is near 1 by design, and leaves nothing to climb.
    """
    given, exact, keywords = arguments(operation, point)
    with np.errstate(all="ignore"):
        answer = getattr(oracles, operation)(*given, **keywords, method=method)
        enclosures: tuple[Enclosure, ...] = answer if isinstance(answer, tuple) else (answer,)
        found = compare(operation, exact, [(e.mid, e.rad) for e in enclosures], meaning=point.meaning)
        useless = any(e.judged and _useless(e) for e in enclosures)
    remarks = ("undecided",) * bool(found.undecided) + ("useless",) * useless
    rounded = not found.outside and all((e.rad <= 0.51 * np.spacing(np.abs(e.mid))).all() for e in enclosures)
    return Height(0.0 if rounded else found.largest, found.outside > 0, remarks)


def _useless(e: Enclosure) -> bool:
    """Whether a row with finite radii has one above all its midpoints: nothing is known of that row."""
    mid, rad = e.mid.reshape(-1, e.mid.shape[-1]), e.rad.reshape(-1, e.mid.shape[-1])
    return bool(((rad.max(axis=1) > np.abs(mid).max(axis=1)) & (rad.max(axis=1) > SMALLEST) & np.isfinite(rad).all(axis=1)).any())


def attack(operation: str, family: str, method: str, rng: Generator, evaluations: int) -> Climbed[Point]:
    """Climb in one family of one operation."""
    return climb(OPERATIONS[operation][family], changed, lambda point: measure(operation, method, point), rng, evaluations)
