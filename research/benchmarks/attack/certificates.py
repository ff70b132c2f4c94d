"""The first half of the attack: |exact − mid| / rad of an oracle's certificate, climbed towards 1 and beyond.

Every entry whose radius is finite has to contain the exact value, whether the oracle calls its result judged or not. A judged result whose
radius is wider than a whole row of its midpoints is true, and useless: it is counted apart, as a remark.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from oracles import Conventions, Enclosure
from properties.strategies.climb import Array, Climbed, Height, climb
from research.benchmarks.attack import calls, features, frequencies, parts
from research.benchmarks.attack.inputs import ATTENTION, ROTARY, SCORES, Operands, Point, changed, plain, position
from research.benchmarks.judge import SPEC, Meaning, compare, enclosed

__all__ = ["METHODS", "OPERATIONS", "attack", "families", "measure"]

METHODS = ("fast", "auto", "arb")
SDPA = "scaled_dot_product_attention"
HEADS = 2
SHARED = ("cancelling", "magnitudes", "subnormal", "opposite")
TOKENS = ("subnormal", "opposite", "offset")
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


def _multi_head(family: Callable[[Generator], Operands], further: int, rng: Generator) -> Point:
    """Tokens and projections as the values of a family are: (x, wq, wk, wv, wo), two heads of one column; and a cotangent, or five
    tangents."""
    size = float(10.0 ** rng.uniform(-2, 2))
    x, wq, wk = (rng.standard_normal((2, 2)) * size for _ in range(3))
    v = family(rng).v[:2, :1]
    wv = np.tile(np.resize(v, (2, 1)), (1, 2)) * 2.0**-8
    return Point((x, wq, wk, wv, np.clip(plain(rng, (2, 2)), -1e6, 1e6), *(plain(rng, (2, 2)) for _ in range(further))))


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


def _width(rng: Generator) -> Point:
    return Point((), None, (int(rng.integers(1, 1025)),))


Draw = Callable[[Generator], Any]
Said = tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any], Meaning]
"""What the oracle is called with, what the spec is, the oracle's keywords, and what is meant."""


@dataclass(frozen=True)
class Target:
    """A row of the table of operations: families, as functions that draw a point, what a mutation does, and what a point says."""

    families: Mapping[str, Draw]
    changed: Callable[[Any, Generator], Any]
    said: Callable[[Any], Said]


def _each(table: dict[str, Any], make: Callable[..., Point], *fixed: Any) -> dict[str, Draw]:
    return {name: partial(make, family, *fixed) for name, family in table.items()}


def _of_heads(point: Point) -> Said:
    given = *point.arrays[:3], point.mask, *point.arrays[3:]
    return given, given, {"scale": point.meaning.scale}, point.meaning


def _of_tokens(point: Point) -> Said:
    given = *point.arrays[:5], HEADS, point.mask, *point.arrays[5:]
    return given, given, {}, point.meaning


def _of_flagged(point: Point) -> Said:
    return point.arrays, point.arrays, {"scale": point.meaning.scale}, point.meaning


def _of_scores(point: Point) -> Said:
    given = point.arrays[0], point.mask, *point.arrays[1:]
    return given, given, {}, point.meaning


def _of_pairs(point: Point) -> Said:
    meaning, given = point.meaning, (*point.arrays, *point.numbers)
    return given, given, {"conventions": Conventions(rope_base=meaning.base, rope_scale=meaning.stretch)}, meaning


def _of_sizes(point: Point) -> Said:
    start, length, width = point.numbers
    return (length, width, start), (length, width, start), {}, point.meaning


def _of_arrays(point: Point) -> Said:
    return point.arrays, point.arrays, {}, point.meaning


def _by_keyword(call: calls.Call) -> Said:
    return (), (call.exact(),), call.given(), SPEC


def _featured(further: str) -> Target:
    return Target(_named(tuple(features.FEATURED), features.featured, further), calls.changed, _by_keyword)


def _named(names: tuple[str, ...], draw: Callable[..., calls.Call], *fixed: Any) -> dict[str, Draw]:
    return {name: partial(draw, name, *fixed) for name in names}


OPERATIONS: dict[str, Target] = {
    SDPA: Target(_each(ATTENTION, _attention, ""), changed, _of_heads),
    f"{SDPA}_vjp": Target(_each(ATTENTION, _attention, "g"), changed, _of_heads),
    f"{SDPA}_jvp": Target(_each(ATTENTION, _attention, "qkv"), changed, _of_heads),
    "grouped_query_attention": Target(_each({k: ATTENTION[k] for k in SHARED}, _grouped), changed, _of_heads),
    "causal_attention": Target(_each({k: ATTENTION[k] for k in SHARED}, _attention, ""), changed, _of_flagged),
    "multi_head_attention": Target(_each({k: ATTENTION[k] for k in TOKENS}, _multi_head, 0), changed, _of_tokens),
    "multi_head_attention_vjp": Target(_each({k: ATTENTION[k] for k in TOKENS}, _multi_head, 1), changed, _of_tokens),
    "multi_head_attention_jvp": Target(_each({k: ATTENTION[k] for k in TOKENS}, _multi_head, 5), changed, _of_tokens),
    "hard_masked_softmax": Target(_each(SCORES, _softmax, 0), changed, _of_scores),
    "hard_masked_softmax_vjp": Target(_each(SCORES, _softmax, 1), changed, _of_scores),
    "rope": Target(_each(ROTARY, _rope, 1), changed, _of_pairs),
    "rope_vjp": Target(_each(ROTARY, _rope, 2), changed, _of_pairs),
    "apply_rotary": Target({"plain": lambda rng: _apply(3, rng)}, changed, _of_arrays),
    "apply_rotary_vjp": Target({"plain": lambda rng: _apply(4, rng)}, changed, _of_arrays),
    "sinusoidal_positional_encoding": Target({"huge positions": _sinusoid}, changed, _of_sizes),
    "rope_angles": Target({"huge positions": _sinusoid}, changed, _of_sizes),
    "rope_tables": Target({"huge positions": _sinusoid}, changed, _of_sizes),
    "inv_freq": Target({"plain": _width}, lambda _, rng: _width(rng), lambda point: (point.numbers, point.numbers, {}, SPEC)),
    "attention": _featured(""),
    "attention_vjp": _featured("g"),
    "attention_jvp": _featured("d"),
    "merge_attention": Target(_named(tuple(parts.MERGED), parts.merged), calls.changed, _by_keyword),
    "alibi_slopes": Target({"plain": parts.alibi_slopes}, calls.changed, _by_keyword),
    "alibi_bias": Target({"plain": parts.alibi_bias}, calls.changed, _by_keyword),
    "rotary_frequencies": Target(frequencies.FREQUENCIES, frequencies.changed, _by_keyword),
    "rope at positions": Target(_named(frequencies.ROTATIONS, frequencies.rotated, ("x",)), frequencies.changed, _by_keyword),
    "rope_vjp at positions": Target(_named(frequencies.ROTATIONS, frequencies.rotated, frequencies.PAIR), frequencies.changed, _by_keyword),
    "rotary_tables": Target(_named(frequencies.TABLES, frequencies.tables), frequencies.changed, _by_keyword),
}
"""Every operation that is attacked; what follows a space in a name tells two uses of an oracle apart."""


def families() -> list[tuple[str, str, str]]:
    """Every (operation, family, method) to be attacked."""
    return [(operation, family, method) for operation, target in OPERATIONS.items() for family in target.families for method in METHODS]


def measure(operation: str, method: str, point: Any) -> Height:
    """The largest |exact − mid| / rad of an oracle's answer.

    An answer whose every entry is the correctly rounded one has no height: its ratio is near 1 by design, and leaves nothing to climb.
    """
    given, exact, keywords, meaning = OPERATIONS[operation].said(point)
    with np.errstate(all="ignore"):
        enclosures = enclosed(operation, given, keywords, method)
        found = compare(operation, exact, [(e.mid, e.rad) for e in enclosures], meaning=meaning)
        useless = any(e.judged and _useless(e) for e in enclosures)
    remarks = ("undecided",) * bool(found.undecided) + ("useless",) * useless
    rounded = not found.outside and all((e.rad <= 0.51 * np.spacing(np.abs(e.mid))).all() for e in enclosures)
    return Height(0.0 if rounded else found.largest, found.outside > 0, remarks)


def _useless(e: Enclosure) -> bool:
    """Whether a row with finite radii has one above all its midpoints: nothing is known of that row."""
    if not e.mid.size:
        return False
    columns = e.mid.shape[-1] if e.mid.shape else 1
    mid, rad = np.abs(e.mid.reshape(-1, columns)), e.rad.reshape(-1, columns)
    finite = np.isfinite(rad).all(axis=1) & np.isfinite(mid).all(axis=1)
    return bool(((rad.max(axis=1) > mid.max(axis=1)) & (rad.max(axis=1) > SMALLEST) & finite).any())


def attack(operation: str, family: str, method: str, rng: Generator, evaluations: int) -> Climbed[Any]:
    """Climb in one family of one operation."""
    target = OPERATIONS[operation]
    return climb(target.families[family], target.changed, lambda point: measure(operation, method, point), rng, evaluations)
