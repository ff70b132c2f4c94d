"""Each law of positional encodings and of rotations fails on a slip made for it, and holds under every convention."""

from dataclasses import replace

import numpy as np
import pytest

from oracles import Conventions
from properties import reference
from properties.bugs.positional import angles_at, rows, sinusoid
from properties.bugs.turning import exponents, turned
from properties.implementation import Implementation
from properties.laws import find
from properties.reference import apply_rotary, apply_rotary_vjp, rope, rope_vjp, rotary_tables, rotated
from properties.verifier import check

SINUSOID, ADD, LEARNED = "sinusoidal_positional_encoding", "add_positional_encoding", "learned_positional_encoding"
encode = reference.sinusoidal_positional_encoding
lookup = reference.learned_positional_encoding


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
    from properties.laws import frequencies, lanes, positional

    return [law for module in (positional, frequencies, lanes) for law in module.law.laws if law.operation == operation]


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
