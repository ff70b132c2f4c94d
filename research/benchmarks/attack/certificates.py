"""The first half of the attack: |exact − mid| / rad of an oracle's certificate, climbed towards 1
and beyond.

Every entry whose radius is finite has to contain the exact value, whether the oracle calls its
result judged or not. A judged result whose radius is wider than a whole row of its midpoints is
true, and useless: it is counted apart, as a remark.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from oracles import Conventions, Enclosure
from properties.contract.operations import OPERATIONS as CONTRACT
from properties.strategies.climb import Climbed, Effort, Height, climb
from research.benchmarks.attack import features, frequencies, packed, parts, quantised
from research.benchmarks.attack.calls import POISON, Call, changed, changed_array, conventions, drawn, everyday, mixed
from research.benchmarks.attack.inputs import ATTENTION, ROTARY, SCORES, Operands, plain, position
from research.benchmarks.judge import SPEC, Meaning, compare, enclosed

__all__ = ["METHODS", "OPERATIONS", "attack", "families", "measure"]

METHODS = ("fast", "auto", "arb")
SDPA = "scaled_dot_product_attention"
LARGEST = 1e300
SMALLEST = 2.0**-149
"""Radii below this are never called useless: no format under test resolves them."""


# -- Families: what is drawn, with numbers of other sizes ------------------------------------------


def _square(operation: str, rng: Generator) -> Call:
    """A drawn call of attention with one head and values as wide as keys, as the literal spec
    requires. Some calls are causal.
    """
    width = int(rng.integers(1, 4))
    call = everyday(operation, rng, {"head_dim": (width,), "value_dim": (width,)})
    return _read(call, rng)


def _read(call: Call, rng: Generator) -> Call:
    """The call, causal at times where it has a mask, and with a poison."""
    masked = "mask" in CONTRACT[call.operation].parameters
    options = call.options | ({"is_causal": True} if masked and rng.random() < 0.2 else {})
    return replace(call, options=options, poison=POISON[int(rng.integers(len(POISON)))])


def _attention(operation: str, family: Callable[[Generator], Operands], rng: Generator) -> Call:
    """Attention of one head, or of heads that share a key head, on operands of a family; the rest
    is drawn from `plain` values.
    """
    x = family(rng)
    width = max(y.shape[1] for y in x[:3])
    sizes = {"n_q": len(x.q), "n_k": len(x.k), "head_dim": width, "value_dim": width, "kv_heads": 1, "group": 2}
    call = drawn(operation, rng, {name: (n,) for name, n in sizes.items()})
    arrays = {name: plain(rng, y.shape) for name, y in call.arrays.items()}
    for name, y in zip("qkv", x[:3], strict=True):
        padded = np.pad(y, ((0, 0), (0, width - y.shape[1])))
        arrays[name] = (
            padded if operation != GROUPED else padded * rng.choice([-1.0, 0.5, 1.0], (2 if name == "q" else 1, 1, 1))
        )
    options = {"scale": x.scale} | ({"mask": x.mask} if x.mask is not None else {})
    return _read(Call(operation, arrays, options), rng)


def _multi_head(operation: str, family: Callable[[Generator], Operands], rng: Generator) -> Call:
    """Two heads of one column, whose values come from a family."""
    call = drawn(operation, rng, {"seq_len": (2,), "model_dim": (2,), "num_heads": (2,), "head_dim": (1,)})
    arrays = {name: plain(rng, x.shape) for name, x in call.arrays.items()}
    size = float(10.0 ** rng.uniform(-2, 2))
    arrays |= {name: rng.standard_normal((2, 2)) * size for name in ("x", "wq", "wk")}
    arrays["wv"] = np.tile(np.resize(family(rng).v[:2, :1], (2, 1)), (1, 2)) * 2.0**-8
    arrays["wo"] = np.clip(arrays["wo"], -1e6, 1e6)
    return replace(call, arrays=arrays)


def _softmax(operation: str, family: Callable[[Generator], Any], rng: Generator) -> Call:
    scores, mask = family(rng)
    call = drawn(operation, rng, {"n_q": scores.shape[:1], "n_k": scores.shape[1:]})
    arrays = {name: plain(rng, x.shape) for name, x in call.arrays.items()} | {"scores": scores}
    return Call(operation, arrays, {} if mask is None else {"mask": mask})


def _numbers(operation: str, rng: Generator, widths: Sequence[int] = range(1, 6)) -> Call:
    """A drawn call with `plain` values."""
    call = drawn(operation, rng, {"head_dim": widths})
    return replace(call, arrays={name: plain(rng, x.shape) for name, x in call.arrays.items()})


def _rope(operation: str, family: Callable[[Generator], Conventions], rng: Generator) -> Call:
    meaning_of_call = replace(family(rng), odd_lane=conventions(operation, rng).odd_lane)
    call = _numbers(operation, rng, range(2, 7, 2) if meaning_of_call.odd_lane == "reject" else range(1, 6))
    return replace(call, options={"start_pos": position(rng), "conventions": meaning_of_call})


def _table(operation: str, rng: Generator) -> Call:
    """A table of angles, cosines or sines; of sinusoids in any layout."""
    if operation.startswith("sinusoidal"):
        return drawn(operation, rng, meant=conventions(operation, rng))
    return everyday(operation, rng)


def _far(operation: str, rng: Generator) -> Call:
    call = _table(operation, rng)
    return replace(call, options=call.options | {"start_pos": position(rng)})


def _turned(call: Call, rng: Generator) -> Call:
    """The call with something of an array changed, its position, its base or its scale."""
    options, kind = call.options, rng.random()
    if call.arrays and kind < 0.6:
        return changed_array(call, rng)
    if kind < 0.8 or "conventions" not in options or not call.arrays:
        step = int(rng.choice([-1, 1])) * int(2.0 ** rng.uniform(0, 40))
        return replace(call, options=options | {"start_pos": int(min(max(options["start_pos"] + step, 0), 2**53 - 64))})
    meaning_of_call, factor = (
        options["conventions"],
        float(2.0 ** (rng.standard_normal() * rng.choice([1e-12, 1e-3, 1.0]))),
    )
    if rng.random() < 0.3:
        meaning_of_call = replace(
            meaning_of_call, rope_base=float(np.clip(meaning_of_call.rope_base * factor, 1.0, LARGEST))
        )
    else:
        meaning_of_call = replace(
            meaning_of_call, rope_scale=float(np.clip(meaning_of_call.rope_scale * factor, 1 / LARGEST, LARGEST))
        )
    return replace(call, options=options | {"conventions": meaning_of_call})


def _width(rng: Generator) -> Call:
    return drawn("inv_freq", rng, {"head_dim": range(1, 1025)})


# -- The table of operations -----------------------------------------------------------------------

Draw = Callable[[Generator], Call]
Said = tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any], Meaning]
"""What the oracle is called with, what the spec is, the oracle's keywords, and what is meant."""


@dataclass(frozen=True)
class Target:
    """A row of the table of operations: families, as functions that draw a call, what a mutation
    does, and what a call says.
    """

    families: Mapping[str, Draw]
    changed: Callable[[Call, Generator], Call]
    said: Callable[[Call], Said]


def _in_order(call: Call) -> Said:
    """Arguments by position, in the literal spec's words: its masks are full."""
    definition, x, given = CONTRACT[call.operation], call.exact, call.given
    mask = x.get("mask")
    if x.get("is_causal"):
        mask = np.tri(x["q"].shape[-2], x["k"].shape[-2], dtype=bool) & (True if mask is None else mask)
    if mask is not None:
        rows = (
            x["scores"].shape
            if "scores" in x
            else (*x["q"].shape[:-1], x["k"].shape[-2])
            if "q" in x
            else (len(x["x"]),) * 2
        )
        mask = np.broadcast_to(mask, rows)
    names = [parameter for parameter in definition.parameters if parameter not in definition.options]
    exact = x | {"mask": mask}
    meaning_of_call = x.get("conventions") or Conventions()
    keywords: dict[str, Any] = {name: x[name] for name in ("scale", "is_causal", "conventions") if name in x}
    meaning = Meaning(
        x.get("scale"),
        meaning_of_call.rope_base,
        meaning_of_call.rope_scale,
        meaning_of_call.odd_lane,
        meaning_of_call.sinusoid_layout,
    )
    return (
        tuple(given.get(parameter) for parameter in names),
        tuple(exact.get(parameter) for parameter in names),
        keywords,
        meaning,
    )


def _by_keyword(call: Call) -> Said:
    return (), (call.exact,), call.given, SPEC


def _families(
    names: Mapping[str, Any], make: Callable[..., Call], operation: str, drawn: Callable[[str, Generator], Call]
) -> Target:
    """What the strategies draw, and families of adversarial numbers."""
    families = {name: partial(make, operation, family) for name, family in names.items()}
    return Target({"everyday": partial(drawn, operation), **families}, changed, _in_order)


def _moved(operation: str) -> Target:
    """An operation on arrays that has no special families."""
    return Target({"everyday": partial(everyday, operation), "plain": partial(_numbers, operation)}, changed, _in_order)


def _at(operation: str) -> Target:
    """An operation of positions."""
    return Target(
        {"everyday": partial(_table, operation), "huge positions": partial(_far, operation)}, _turned, _in_order
    )


def _rotating(operation: str) -> Target:
    return replace(_families(ROTARY, _rope, operation, _plainly), changed=_turned)


def _plainly(operation: str, rng: Generator) -> Call:
    """A rotation by the first position alone."""
    call = everyday(operation, rng)
    return replace(call, options={"start_pos": call.options["start_pos"]})


def _featured(operation: str) -> Target:
    return _named(tuple(features.FEATURED), partial(features.featured, operation), changed)


def _named(names: tuple[str, ...], draw: Callable[..., Call], change: Callable[[Call, Generator], Call]) -> Target:
    return Target({name: partial(draw, name) for name in names}, change, _by_keyword)


def _drawn(operation: str, rng: Generator) -> Call:
    """A call of the everyday family under any conventions of the operation."""
    return drawn(operation, rng, meant=conventions(operation, rng))


def _of_numbers(draw: Draw) -> Target:
    """An operation that takes no arrays."""
    return Target(
        {"plain": draw},
        lambda call, rng: replace(call, options=mixed(call.options, draw(rng).options, rng)),
        _by_keyword,
    )


def _few(names: Mapping[str, Any], *some: str) -> dict[str, Any]:
    return {name: names[name] for name in some}


GROUPED = "grouped_query_attention"
SHARED = _few(ATTENTION, "cancelling", "magnitudes", "subnormal", "opposite")
TOKENS = _few(ATTENTION, "subnormal", "opposite", "offset")

OPERATIONS: dict[str, Target] = {
    **{o: _families(ATTENTION, _attention, o, _square) for o in (SDPA, f"{SDPA}_vjp", f"{SDPA}_jvp")},
    **{o: _families(SHARED, _attention, o, _square) for o in (GROUPED, "causal_attention")},
    **{
        f"multi_head_attention{d}": _families(TOKENS, _multi_head, f"multi_head_attention{d}", everyday)
        for d in ("", "_vjp", "_jvp")
    },
    **{o: _families(SCORES, _softmax, o, everyday) for o in ("hard_masked_softmax", "hard_masked_softmax_vjp")},
    **{o: _rotating(o) for o in ("rope", "rope_vjp")},
    **{
        o: _moved(o)
        for o in ("apply_rotary", "apply_rotary_vjp", "add_positional_encoding", "learned_positional_encoding")
    },
    **{o: _at(o) for o in ("sinusoidal_positional_encoding", "rope_angles", "rope_tables")},
    "inv_freq": Target({"plain": _width}, lambda _, rng: _width(rng), _in_order),
    **{o: _featured(o) for o in ("attention", "attention_vjp", "attention_jvp")},
    **{
        f"{o} of codes": _named(quantised.QUANTISED_FAMILIES, partial(quantised.quantised, o), quantised.changed)
        for o in ("attention", "packed_attention", "paged_attention")
    },
    **{
        o: _named(packed.PACKED, partial(packed.packed, o), packed.changed)
        for o in ("packed_attention", "packed_attention_vjp", "paged_attention")
    },
    **{
        o: _named(("drawn",), lambda _, rng, o=o: _drawn(o, rng), changed)
        for o in ("latent_attention", "attention_layer")
    },
    "merge_attention": _named(tuple(parts.MERGED), parts.merged, changed),
    "alibi_slopes": _of_numbers(parts.alibi_slopes),
    "alibi_bias": _of_numbers(parts.alibi_bias),
    "rotary_embedding": _named(("drawn",), lambda _, rng: frequencies.embedded(rng), changed_array),
    "rotary_frequencies": Target(frequencies.FREQUENCIES, frequencies.changed, _by_keyword),
    "rope at positions": _named(frequencies.ROTATIONS, partial(frequencies.rotated, "rope"), frequencies.changed),
    "rope_vjp at positions": _named(
        frequencies.ROTATIONS, partial(frequencies.rotated, "rope_vjp"), frequencies.changed
    ),
    "rotary_tables": _named(frequencies.TABLES, partial(frequencies.rotated, "rotary_tables"), frequencies.changed),
}
"""Every operation that is attacked; what follows a space in a name tells two uses of an oracle apart."""


def families() -> list[tuple[str, str, str]]:
    """Every (operation, family, method) to be attacked."""
    return [
        (operation, family, method)
        for operation, target in OPERATIONS.items()
        for family in target.families
        for method in METHODS
    ]


def measure(operation: str, method: str, point: Any) -> Height:
    """The largest |exact − mid| / rad of an oracle's answer.

    An answer whose every entry is the correctly rounded one has no height: its ratio is near 1 by
    design, and leaves nothing to climb.
    """
    given, exact, keywords, meaning = OPERATIONS[operation].said(point)
    with np.errstate(all="ignore"):
        enclosures = enclosed(operation, given, keywords, method)
        deviation = compare(
            operation, exact, [(enclosure.mid, enclosure.rad) for enclosure in enclosures], meaning=meaning
        )
        useless = any(enclosure.judged and _useless(enclosure) for enclosure in enclosures)
    remarks = ("undecided",) * bool(deviation.undecided) + ("useless",) * useless
    rounded = not deviation.outside and all(
        (enclosure.rad <= 0.51 * np.spacing(np.abs(enclosure.mid))).all() for enclosure in enclosures
    )
    return Height(0.0 if rounded else deviation.largest, deviation.outside > 0, remarks)


def _useless(enclosure: Enclosure) -> bool:
    """Whether a row with finite radii has a radius above all its midpoints, so that the certificate
    does not restrict this row.
    """
    if not enclosure.mid.size:
        return False
    columns = enclosure.mid.shape[-1] if enclosure.mid.shape else 1
    mid, rad = np.abs(enclosure.mid.reshape(-1, columns)), enclosure.rad.reshape(-1, columns)
    finite = np.isfinite(rad).all(axis=1) & np.isfinite(mid).all(axis=1)
    return bool(((rad.max(axis=1) > mid.max(axis=1)) & (rad.max(axis=1) > SMALLEST) & finite).any())


def attack(operation: str, family: str, method: str, rng: Generator, evaluations: int) -> Climbed[Any]:
    """Climb in one family of one operation."""
    target = OPERATIONS[operation]
    return climb(
        target.families[family],
        target.changed,
        lambda point: measure(operation, method, point),
        rng,
        Effort(evaluations),
    )
