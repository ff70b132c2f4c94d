"""Each law of positional encodings and of rotations fails on a slip made for it, and holds under every convention."""

from dataclasses import replace

import numpy as np
import pytest

from oracles import BINARY32, Conventions, formats
from properties import reference
from properties.implementation import Implementation
from properties.laws import LAWS, find, frequencies, halves, lanes, lookups, padding, positional, tables
from properties.operations import OPERATIONS as ALL
from properties.reference import (
    apply_rotary,
    apply_rotary_vjp,
    combine_masks,
    inv_freq,
    padding_mask,
    rope,
    rope_angles,
    rope_tables,
    rope_vjp,
    rotary_tables,
    rotate_half,
    rotated,
    table_lookup,
)
from properties.verifier import check

SINUSOID, ADD, LEARNED = "sinusoidal_positional_encoding", "add_positional_encoding", "learned_positional_encoding"
encode, rows, exponents = reference.sinusoidal_positional_encoding, reference.positions, reference.exponents
lookup = reference.learned_positional_encoding


def angles_at(positions, d):
    return positions[..., None] * reference.inv_freq(d)


def sinusoid(theta, d):
    """The sines of the angles in the even columns, their cosines in the odd ones."""
    theta = reference.channels(theta, d)
    return np.where(np.arange(d) % 2, np.cos(theta), np.sin(theta))


def turned(x, positions, powers=None):
    """Each pair rotated by position · 10000^(−power)."""
    powers = exponents(x.shape[-1]) if powers is None else powers
    theta = reference.channels(positions[..., None] * 10000.0**-powers, x.shape[-1])
    return apply_rotary(x, np.cos(theta), np.sin(theta))


def clipped(n, d, start, most):
    return sinusoid(angles_at(np.minimum(rows(start, n), most), d), d)


def swapped(x):
    """The lanes of each pair exchanged."""
    return x.reshape(*x.shape[:-1], -1, 2)[..., ::-1].reshape(x.shape)


def next_pair(x, start):
    """Each pair with a little of the next one."""
    return rope(x, start) + 1e-6 * np.roll(x, 2, axis=-1) if x.shape[-1] > 2 else rope(x, start)


def tail_left(x, *more, turn, block):
    """Rows beyond the last whole block are left as they are, if there is one."""
    out, n = turn(x, *more), x.shape[-2]
    out[..., n // block * block if n > block else n :, :] = x[..., n // block * block if n > block else n :, :]
    return out


def summed(x, start):
    """All of the batch moves with its sum."""
    return rope(x, start) + (1e-9 * x.sum(axis=0) if x.ndim > 2 else 0.0)


def powers(n, d, start, exponents):
    return sinusoid(rows(start, n)[:, None] * 10000.0**-exponents, d)


def by_powers(x, start, exponents):
    return turned(x, rows(start, x.shape[-2]), exponents(x.shape[-1]))


def backwards(x, cos, sin):
    """With the sines negated, which is no transpose."""
    return apply_rotary(x, cos, -sin)


def whole(x):
    """The lanes of whole pairs."""
    return np.arange(x.shape[-1]) < x.shape[-1] // 2 * 2


def by_pair(x, cos, sin):
    """Both lanes of a pair read the sine of the first."""
    return apply_rotary(x, cos, np.repeat(sin[:, ::2], 2, axis=-1)[:, : x.shape[-1]])


def bent(n, d, s, most):
    """Angles that are too small by little beyond a position, or a width."""
    return np.minimum(rows(s, n), most)[:, None] * inv_freq(d)


def of_angles(theta, d):
    lanes = np.repeat(theta, 2, axis=-1)[:, :d]
    return np.cos(lanes), np.sin(lanes)


def first_kept(indices):
    """Each index but the first one of its kind is read as 0."""
    flat = indices.ravel()
    again = [k for k, index in enumerate(flat) if index in flat[:k]]
    return np.where(np.isin(np.arange(flat.size), again), 0, flat).reshape(indices.shape)


def for_all(first, second):
    """A batch of masks is taken for its first."""
    return combine_masks(first, second[:1] + np.zeros_like(second) if second.ndim > 2 and second.shape[-2] == 1 else second)


ODD, NOTHING = "the odd lane follows its convention", "without rows or lanes there is nothing to turn by"
SLIPS = {
    (SINUSOID, "the sinusoidal encoding is within its budget"): lambda n, d, s=0: encode(n, d, s) * (1 + 1e-12),
    (SINUSOID, "the sinusoidal encoding is within its budget at long positions"): lambda n, d, s=0: clipped(n, d, s, 2**19),
    (SINUSOID, "the sinusoidal encoding is within its budget over long sequences"): lambda n, d, s=0: clipped(n, d, s, s + 1023),
    (SINUSOID, "pairs of sine and cosine have norm one"): lambda n, d, s=0: encode(n, d, s) * (1 + 1e-12),
    (SINUSOID, "a chunk is the slice of the whole"): lambda n, d, s=0: clipped(n, d, s, s + 511),
    (SINUSOID, "shifting is a rotation"): lambda n, d, s=0: clipped(n, d, s, 2**19),
    (SINUSOID, "position zero is zero and one"): lambda n, d, s=0: encode(n, d, s + 1),
    (SINUSOID, "an encoding without rows or columns is empty"): lambda n, d, s=0: encode(n, d, s) if n * d else np.zeros(0),
    (SINUSOID, "the first pair turns by its position"): lambda n, d, s=0: sinusoid(-angles_at(rows(s, n), d), d),
    (SINUSOID, "every second pair of twice the width is alike"): lambda n, d, s=0: powers(n, d, s, np.arange(d // 2) / 13),
    (SINUSOID, "a tenth of the frequency takes ten times the position"): lambda n, d, s=0: powers(n, d, s, exponents(d) ** 1.01),
    (SINUSOID, "an odd width ends with a sine"): lambda n, d, s=0: encode(n, d + d % 2, s)[:, :d],
    (ADD, "adding an encoding is addition"): lambda x, pos: x + pos + 1e-12,
    (ADD, "adding zero changes nothing"): lambda x, pos: 1.0001 * x + pos,
    (ADD, "what is added can be taken away"): lambda x, pos: x + np.abs(pos),
    (LEARNED, "a learned encoding is rows of its table"): lambda t, n, s=0: lookup(t, n, s) * (1 + 1e-15),
    (LEARNED, "one hot tables read out positions"): lambda t, n, s=0: t[(rows(s, n) + 1) % len(t)],
    (LEARNED, "start positions shift rows"): lambda t, n, s=0: t[np.minimum(rows(s, n), 255 if s else len(t))],
    (LEARNED, "other rows of the table do not matter"): lambda t, n, s=0: lookup(t, n, s) + 1e-9 * t[-1],
    (LEARNED, "an encoding without rows or columns is empty"): lambda t, n, s=0: t[s : s + n].copy() if n else t.copy(),
    ("rope", "rope is within its budget"): lambda x, s=0: turned(x, 1.000001 * rows(s, x.shape[-2])),
    ("rope", "rope is within its budget at long positions"): lambda x, s=0: turned(x, np.minimum(rows(s, x.shape[-2]), 2**19)),
    ("rope", "rope is within its budget over long sequences"): lambda x, s=0: tail_left(x, s, turn=rope, block=1000),
    ("rope", "pairs keep their norm"): lambda x, s=0: rope(x, s) * (1 + 1e-12),
    ("rope", "scores depend on relative positions only"): lambda x, s=0: turned(x, np.minimum(rows(s, x.shape[-2]), 2**19)),
    ("rope", "consecutive positions differ by one fixed rotation"): lambda x, s=0: turned(x, rows(s, x.shape[-2]) // 2 * 2),
    ("rope", "rotations compose"): lambda x, s=0: turned(x, np.sqrt(rows(s, x.shape[-2]))),
    ("rope", "position zero is the identity"): lambda x, s=0: rope(x, s + 1),
    ("rope", "rope is linear"): lambda x, s=0: np.clip(rope(x, s), -8, 8),
    ("rope", "rope turns each pair by itself"): next_pair,
    ("rope", "a chunk is the slice of the whole"): lambda x, s=0: tail_left(x, s, turn=rope, block=256),
    ("rope", "heads do not depend on each other"): summed,
    ("rope", "without rows or lanes nothing is turned"): lambda x, s=0: rope(x, s) if x.size else np.zeros(0),
    ("rope", "the first pair turns by its position"): lambda x, s=0: swapped(rope(swapped(x), s)) if x.shape[-1] % 2 == 0 else rope(x, s),
    ("rope", "every second pair of twice the width is alike"): lambda x, s=0: by_powers(x, s, lambda d: exponents(d + 2)[: (d + 1) // 2]),
    ("rope", "a tenth of the frequency takes ten times the position"): lambda x, s=0: by_powers(x, s, lambda d: exponents(d) ** 1.01),
    ("rope", "rope turns by the angles of the sinusoidal encoding"): lambda x, s=0: turned(x, 1.0001 * rows(s, x.shape[-2])),
    ("rope", "the odd lane follows its convention"): lambda x, s=0: np.where(whole(x), rope(x, s), x),
    ("rope_vjp", "rope is within its budget"): lambda x, g, s=0: rope_vjp(x, g, s) * (1 + 1e-12),
    ("rope_vjp", "the rope vjp turns back"): lambda x, g, s=0: rope(g, s),
    ("rope_vjp", "the gradient does not depend on x"): lambda x, g, s=0: rope_vjp(x, g, s) + 1e-9 * x,
    ("rope_vjp", "a chunk is the slice of the whole"): lambda x, g, s=0: rope_vjp(x, g, s if x.shape[-2] > 1 else 0),
    ("rope_vjp", "the odd lane follows its convention"): lambda x, g, s=0: backwards(g, *rotary_tables(s, *x.shape[-2:])),
    ("apply_rotary", "apply rotary is within its budget"): by_pair,
    ("apply_rotary", "apply rotary is within its budget over long sequences"): lambda *a: tail_left(*a, turn=apply_rotary, block=500),
    ("apply_rotary", "turning is linear"): lambda x, c, s: apply_rotary(np.abs(x), c, s),
    ("apply_rotary", "turning is linear in the tables"): lambda x, c, s: apply_rotary(x, np.clip(c, -4, 4), s),
    ("apply_rotary", "without sines lanes are multiplied by cosines"): lambda x, c, s: apply_rotary(x, c[:, ::-1], s),
    ("apply_rotary", "without cosines lanes are exchanged"): by_pair,
    ("apply_rotary", "pairs are turned by themselves"): lambda x, c, s: apply_rotary(x, c, np.roll(s, 2, axis=-1)),
    ("apply_rotary", "rows are turned by their own row of the tables"): lambda *case: tail_left(*case, turn=apply_rotary, block=256),
    ("apply_rotary", "rope is turning by its own tables"): lambda x, c, s: apply_rotary(x, c, -s),
    ("apply_rotary", "the odd lane follows its convention"): lambda x, c, s: x * c + rotated(x) * s * whole(x),
    ("apply_rotary_vjp", "apply rotary and its vjp are adjoint"): lambda x, c, s, g: backwards(g, c, s),
    ("apply_rotary_vjp", "without cosines lanes are exchanged"): lambda x, c, s, g: backwards(g, c, s),
    ("apply_rotary_vjp", "the odd lane follows its convention"): lambda x, c, s, g: backwards(g, c, s),
    ("inv_freq", "frequencies are within their budget"): lambda d: inv_freq(d) * (1 + 1e-12),
    ("inv_freq", "the first frequency is the scale"): lambda d: inv_freq(d) * (1 + 1e-12),
    ("inv_freq", "neighbouring frequencies have one quotient"): lambda d: inv_freq(d) + 1e-9,
    ("inv_freq", "half of the pairs divide by the root of the base"): lambda d: 10001.0 ** -exponents(d),
    ("inv_freq", "every second pair of twice the width is alike"): lambda d: 10000.0 ** -(exponents(d) * d / (d + 2)),
    ("inv_freq", ODD): lambda d: inv_freq(d + d % 2),
    ("inv_freq", NOTHING): lambda d: inv_freq(max(d, 1)),
    ("rope_angles", "angles and their tables are within budget"): lambda n, d, s=0: rope_angles(n, d, s) * (1 + 1e-12),
    ("rope_angles", "angles and their tables are within budget over long sequences"): lambda n, d, s=0: bent(n, d, s, s + 1023),
    ("rope_angles", "a chunk is the slice of the whole"): lambda n, d, s=0: bent(n, d, s, s + 511),
    ("rope_angles", "angles of position zero are zero"): lambda n, d, s=0: rope_angles(n, d, s) + 1e-300,
    ("rope_angles", "the first angle is the position"): lambda n, d, s=0: rope_angles(n, d, s) % (2 * np.pi),
    ("rope_angles", "angles are positions times frequencies"): lambda n, d, s=0: rope_angles(n, d + 2, s)[:, : (d + 1) // 2],
    ("rope_angles", "angles add as positions do"): lambda n, d, s=0: bent(n, d, s, 2**19),
    ("rope_angles", ODD): lambda n, d, s=0: rope_angles(n, d + d % 2, s),
    ("rope_angles", NOTHING): lambda n, d, s=0: rope_angles(max(n, 1), d, s),
    ("rope_tables", "angles and their tables are within budget"): lambda n, d, s=0: of_angles(rope_angles(n, d, s) * (1 + 1e-9), d),
    ("rope_tables", "angles and their tables are within budget over long sequences"): lambda n, d, s=0: of_angles(
        bent(n, d, s, s + 1023), d
    ),
    ("rope_tables", "a chunk is the slice of the whole"): lambda n, d, s=0: of_angles(bent(n, d, s, s + 511), d),
    ("rope_tables", "tables of a shift turn tables"): lambda n, d, s=0: of_angles(bent(n, d, s, 2**19), d),
    ("rope_tables", "cosines and sines lie on the circle"): lambda n, d, s=0: tuple(x * (1 + 1e-12) for x in rope_tables(n, d, s)),
    ("rope_tables", "tables of position zero are one and zero"): lambda n, d, s=0: rope_tables(n, d, s + 1),
    ("rope_tables", "both lanes of a pair share their angle"): lambda n, d, s=0: tuple(
        np.roll(x, 1, axis=-1) for x in rope_tables(n, d, s)
    ),
    ("rope_tables", "the first pair turns by its position"): lambda n, d, s=0: rope_tables(n, d, 2 * s),
    ("rope_tables", "tables are cosines and sines of the angles"): lambda n, d, s=0: of_angles(1.0001 * rope_angles(n, d, s), d),
    ("rope_tables", "turning by the tables is rope"): lambda n, d, s=0: of_angles(-rope_angles(n, d, s), d),
    ("rope_tables", ODD): lambda n, d, s=0: tuple(x * (whole(x) | (x == 1)) for x in rope_tables(n, d, s)),
    ("rope_tables", NOTHING): lambda n, d, s=0: rope_tables(n, max(d, 1), s),
    ("rotate_half", "rotate half is the negated second half and the first"): lambda x: rotate_half(x) * (1 + 1e-15),
    ("rotate_half", "two quarter turns negate"): lambda x: np.abs(rotate_half(x)),
    ("rotate_half", "one hot rows read out the quarter turn"): lambda x: -rotate_half(x),
    ("rotate_half", "pairs keep their norm"): lambda x: rotate_half(x) * (1 + 1e-12),
    ("rotate_half", "pairs are turned by themselves"): lambda x: rotate_half(x) + 1e-9 * x.sum(axis=-1, keepdims=True),
    ("rotate_half", "apply rotary is written with rotate half"): lambda x: -rotate_half(x),
    ("rotate_half", "without rows or lanes nothing is turned"): lambda x: rotate_half(x) if x.size else np.zeros(0),
    ("table_lookup", "a lookup is rows of its table"): lambda t, i: table_lookup(t, i) * (1 + 1e-15),
    ("table_lookup", "one hot tables read out indices"): lambda t, i: t[i - 1],
    ("table_lookup", "rows move with their indices"): lambda t, i: t[i] * (np.arange(i.size).reshape(i.shape) > 0)[..., None],
    ("table_lookup", "repeated indices read the same rows"): lambda t, i: t[first_kept(i)],
    ("table_lookup", "each index is looked up by itself"): lambda t, i: t[np.maximum.accumulate(i, axis=-1)],
    ("table_lookup", "other rows of the table do not matter"): lambda t, i: t[i] + 1e-9 * t[-1],
    ("table_lookup", "a lookup without indices or columns is empty"): lambda t, i: t[i] if i.size else t[:1],
    ("padding_mask", "a padding mask is its definition"): lambda k, n: padding_mask(np.minimum(k, 31), n),
    ("padding_mask", "a padding mask allows as many as the length"): lambda k, n: padding_mask(k + 1, n),
    ("padding_mask", "after padding comes only padding"): lambda k, n: padding_mask(k, n)[:, ::-1],
    ("padding_mask", "empty sequences are all padding and full ones have none"): lambda k, n: padding_mask(np.maximum(k, 1), n),
    ("padding_mask", "more padding is only blocked positions"): lambda k, n: padding_mask(k, n) | (np.arange(n) == n - 1),
    ("padding_mask", "rows of a padding mask move with their sequences"): lambda k, n: padding_mask(np.maximum.accumulate(k), n),
    ("padding_mask", "a padding mask of nothing is empty"): lambda k, n: padding_mask(k, max(n, 1)),
    ("combine_masks", "a combined mask is its definition"): lambda a, b: a | b,
    ("combine_masks", "a mask that allows all changes nothing"): lambda a, b: a & b & ~(a & b).all(),
    ("combine_masks", "a mask that blocks all blocks all"): lambda a, b: a & b | ~(a & b).any(),
    ("combine_masks", "the order of masks does not matter"): lambda a, b: a & (b | ~b),
    ("combine_masks", "a mask combined with itself is itself"): lambda a, b: a ^ b,
    ("combine_masks", "masks are combined as if they were written out"): for_all,
    ("combine_masks", "causal and padding masks allow the first keys"): lambda a, b: a | b,
    ("combine_masks", "masks without entries combine to none"): lambda a, b: a & b if (a & b).size else np.zeros(0, bool),
}  # fmt: skip


@pytest.mark.parametrize(("operation", "name"), SLIPS)
def test_a_law_fails_on_a_slip(operation, name):
    slip = Implementation("slip", reference.OPERATIONS | {operation: SLIPS[operation, name]})
    (law,) = find(f"{name}[{operation}]")
    assert check(law, slip, shrink=False).status == "violated"


def half(turn, *arguments):
    """Turning by pairs (i, i + d/2), by way of adjacent pairs."""
    d = arguments[0].shape[-1]
    if d % 2:
        raise ValueError("odd")
    order = np.arange(d).reshape(2, -1).T.ravel()
    out = turn(*(x[..., order] if isinstance(x, np.ndarray) else x for x in arguments))
    return out[..., np.argsort(order)]


def in_halves():
    functions = {f.__name__: f for f in (rope, rope_vjp, apply_rotary, apply_rotary_vjp)}
    return {name: lambda *case, turn=f: half(turn, *case) for name, f in functions.items()}


@pytest.mark.parametrize("operation", ["rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp"])
def test_pairs_in_halves_are_adjacent_pairs_of_shuffled_lanes(operation):
    (law,) = find(f"half pairing is adjacent pairing of shuffled lanes[{operation}]")
    halves = Implementation("halves", in_halves(), conventions=Conventions(rope_pairing="half"))
    assert check(law, halves, 40).status == "held"
    assert check(law, replace(halves, operations=reference.OPERATIONS), 40, shrink=False).status == "violated"
    assert check(law, replace(halves, conventions=None)).reason == "Its pairs are adjacent lanes."


NEW = ("rotate_half", "inv_freq", "rope_angles", "rope_tables", "table_lookup", "padding_mask", "combine_masks")


@pytest.mark.parametrize(
    "conventions",
    [
        Conventions(rope_base=100.0, rope_scale=0.25),
        Conventions(rope_pairing="half", rope_base=1.0, rope_scale=2.0),
        Conventions(odd_lane="passthrough", mask_polarity="true_blocks"),
        Conventions(odd_lane="reject", rope_scale=0.3),
    ],
)
def test_frequencies_tables_and_masks_follow_the_conventions(conventions):
    """The oracle's values in float64 are a correct implementation; in other conventions they are not."""

    def values(o):
        def call(*arguments):
            found = o.oracle(*arguments, conventions=conventions)
            values = [x.mid.copy() for x in (found if isinstance(found, tuple) else (found,))] if not o.returns_booleans else [found]
            return values[0] if len(values) == 1 else tuple(values)

        return call

    names = (*NEW, "causal_mask", "rope", "apply_rotary")
    declared = Implementation("declared", {name: values(ALL[name]) for name in names}, conventions=conventions)
    laws = [law for name in (*NEW, "rope") for law in find_all(name) if not law.not_applicable(declared)]
    assert {check(law, declared, 5, shrink=False).status for law in laws} <= {"held", "not applicable"}
    other = replace(declared, conventions=None)
    assert "violated" in {check(law, other, 5, shrink=False).status for law in laws}


@pytest.mark.parametrize("arithmetic", ["float32", "float16", "bfloat16"])
def test_indices_are_integers_and_tables_have_their_own_format_in_every_arithmetic(arithmetic):
    torch = pytest.importorskip("torch")
    seen = set()

    def look(table, indices):
        seen.add((table.dtype, indices.dtype))
        return table[indices]

    def pad(lengths, n):
        seen.add((lengths.dtype,))
        return torch.arange(n) < lengths[:, None]

    model = replace(formats.resolve(arithmetic), angle=replace(formats.resolve(arithmetic).angle, table=BINARY32))

    def tables(n, d, start):
        return tuple(torch.from_numpy(x).to(torch.float32) for x in rope_tables(n, d, start))

    i = Implementation("i", {"table_lookup": look, "padding_mask": pad, "rope_tables": tables}, model, arrays="torch")
    for name in i.operations:
        laws = [law for law in LAWS if law.operation == name and not law.not_applicable(i)]
        assert {check(law, i, 6, shrink=False).status for law in laws} <= {"held", "not applicable"}
    assert seen == {(getattr(torch, arithmetic), torch.int64), (torch.int64,)}


def refusing(x, start_pos=0):
    if x.shape[-1] % 2:
        raise ValueError("odd")
    return rope(x, start_pos)


@pytest.mark.parametrize(
    ("turn", "conventions", "summary"),
    [
        (refusing, Conventions(odd_lane="reject"), ""),
        (in_halves()["rope"], Conventions(rope_pairing="half"), ""),
        (rope, Conventions(odd_lane="reject"), "returned something for a head_dim of 1, but should refuse it by ValueError or TypeError"),
        (refusing, Conventions(odd_lane="passthrough"), "raised ValueError: odd"),
        (lambda x, s=0: np.concatenate([rope(x[..., :-1], s), x[..., -1:]], -1), Conventions(odd_lane="passthrough"), "rope_out"),
    ],
)
def test_an_odd_width_is_turned_or_refused_as_declared(turn, conventions, summary):
    (law,) = find("the odd lane follows its convention[rope]")
    outcome = check(law, Implementation("i", {"rope": turn}, conventions=conventions), 30)
    if summary == "rope_out":  # the angles of an even width
        assert outcome.status == "violated"
        assert outcome.violation.counterexample["x"].shape[-1] >= 5
        return
    assert outcome.status == ("violated" if summary else "held")
    assert not summary or summary in outcome.violation.summary


@pytest.mark.parametrize("layout", ["concatenated", "tensor2tensor"])
def test_an_encoding_in_another_layout_is_told_from_the_interleaved_one(layout):
    def laid_out(n, d, start_pos=0):
        exponents = np.arange(d // 2) / (d / 2 - 1) if layout == "tensor2tensor" and d else 2 * np.arange((d + 1) // 2) / max(d, 1)
        theta = rows(start_pos, n)[:, None] * 10000.0**-exponents
        return np.concatenate([np.sin(theta), np.cos(theta[:, : d // 2])], axis=1)

    declared = Implementation("declared", {SINUSOID: laid_out}, conventions=Conventions(sinusoid_layout=layout))
    laws = {law.name: law for law in find_all(SINUSOID) if not law.not_applicable(declared)}
    assert {check(law, declared, 30, shrink=False).status for law in laws.values()} <= {"held", "not applicable"}
    zero = laws["position zero is zero and one"]
    assert check(zero, replace(declared, conventions=None), 30, shrink=False).status == "violated"


def find_all(operation):
    modules = (positional, lookups, frequencies, tables, halves, lanes, padding)
    return [law for module in modules for law in module.law.laws if law.operation == operation]


@pytest.mark.parametrize(
    ("name", "operation", "slip", "case"),
    [
        (f"position zero is zero and one[{SINUSOID}]", SINUSOID, lambda n, d, s=0: encode(n, d, s + 1), {"seq_len": 1, "embed_dim": 2}),
        ("a chunk is the slice of the whole[rope]", "rope", lambda x, s=0: rope(x, s if x.shape[-2] > 1 else 0), {"cut": 1}),
        ("position zero is the identity[rope]", "rope", lambda x, s=0: rope(x, s + 1), {"start_pos": 0}),
    ],
)
def test_a_counterexample_is_the_smallest(name, operation, slip, case):
    (law,) = find(name)
    violation = check(law, Implementation("slip", reference.OPERATIONS | {operation: slip})).violation
    shown = violation.counterexample
    assert {key: shown[key] for key in case} == case
