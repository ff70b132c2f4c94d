"""Domains of positional encodings, rotations and masks reach their edges, and hold nothing that is not supported."""

import re

import numpy as np
import pytest

from oracles import Conventions
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS as ALL
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS

ANY = Implementation("any", REFERENCE)
FEW = Implementation(
    "few",
    REFERENCE,
    batch_ranks=(1,),
    supports={
        "seq_len": lambda n: 1 < n < 130,
        "head_dim": lambda d: d % 8 == 0,
        "embed_dim": lambda d: d in (4, 8),
        "start_pos": lambda p: p < 4096,
        "batch": lambda n: n < 3,
    },
)
SINUSOID, ADD, LEARNED, LOOKUP = (
    *("sinusoidal_positional_encoding", "add_positional_encoding"),
    *("learned_positional_encoding", "table_lookup"),
)


def drawn(operation, implementation=ANY, domain="everyday", number=2000):
    cases = Cases(ALL[operation], DOMAINS[operation][domain], implementation)
    return (cases.draw(seed) for seed in range(number))


def across(start, n, power):
    return start < 2**power <= start + n - 1


def has_row(pattern):
    return lambda mask: any(re.fullmatch(pattern, "".join(map(str, row))) for row in mask.reshape(-1, mask.shape[-1]))


EDGES = {
    "an encoding across 256": (SINUSOID, lambda n, d, p: across(p, n, 8)),
    "an encoding across 2²⁰": (SINUSOID, lambda n, d, p: across(p, n, 20)),
    "a wide encoding": (SINUSOID, lambda n, d, p: d == 128),
    "a sequence of 1100 rows": (SINUSOID, lambda n, d, p: n == 1100 and d >= 4),
    "angles across 65536": ("rope_angles", lambda n, d, p: across(p, n, 16)),
    "a chunk of one row at a long position": ("rope", lambda x, p, *_: x.shape[-2] == 1 and p > 2**19),
    "a batch of two axes": ("rope", lambda x, p, *_: x.ndim == 4 and x.shape[0] > 1 and x.shape[1] > 1),
    "a long sequence with numbers in its last row": (
        "rope",
        lambda x, p, *_: x.ndim == 2 and len(x) > 1000 and x[-1].any(),
    ),
    "a width that is no power of two": ("rope", lambda x, p, *_: x.shape[-1] == 96),
    "a cotangent that is not x": ("rope_vjp", lambda x, g, p, *_: (x != g).all()),
    "tables that are rotations": (
        "apply_rotary",
        lambda x, c, s: c.size > 4 and np.allclose(c**2 + s**2, 1, atol=1e-12),
    ),
    "tables whose entries of a pair differ": (
        "apply_rotary",
        lambda x, c, s: (s[:, 0] != s[:, 1]).all() and (c[:, 0] != c[:, 1]).all(),
    ),
    "tables as long as they are wide": ("apply_rotary", lambda x, c, s: len(c) == c.shape[1] > 2),
    "gradients by such tables": ("apply_rotary_vjp", lambda x, c, s, g: g.any() and (s[:, 0] != s[:, 1]).any()),
    "an encoding for each problem": (ADD, lambda x, pos: pos.ndim > 2 and (pos[0] != pos[-1]).any()),
    "one encoding for a batch": (ADD, lambda x, pos: pos.ndim == 2 and x.ndim == 4),
    "the end of a large table": (LEARNED, lambda table, n, p: len(table) == n + p > 256 and p > 100),
    "the middle of a table": (LEARNED, lambda table, n, p: 0 < p < len(table) - n),
    "indices beyond a byte": (LOOKUP, lambda table, indices: indices.max() > 255),
    "a first and a last index": (LOOKUP, lambda table, indices: {0, len(table) - 1} <= set(indices.ravel().tolist())),
    "as many sequences as positions": (
        LOOKUP,
        lambda table, i: i.ndim == 2 and i.shape[0] == i.shape[1] and (i != i.T).any(),
    ),
    "an index twice": (LOOKUP, lambda table, indices: 1 < len(set(indices.ravel().tolist())) < indices.size),
    "padding before, after and between tokens": ("position_ids", has_row("0+1+0+[01]*1+0+")),
    "padding before the tokens alone": ("position_ids", has_row("0+1+")),
    "padding after the tokens alone": ("position_ids", has_row("1+0+")),
    "a sequence of padding alone": ("position_ids", has_row("00+")),
    "as many keys as queries, untold": ("causal_mask", lambda n_q, n_k: n_k is None and n_q > 1),
    "an empty sequence and a full one": ("padding_mask", lambda k, n: n > 255 and {0, n} <= set(k.tolist())),
    "padding for as many problems as queries": (
        "combine_masks",
        lambda a, b: b.ndim == 3 and b.shape[1] == 1 < len(a) == len(b) and not b.all(),
    ),
    "masks of which each has an axis of its own": (
        "combine_masks",
        lambda a, b: min(a.ndim, b.ndim) > 1 and a.shape[-2] == 1 == b.shape[-1] and min(a.shape[-1], b.shape[-2]) > 1,
    ),
    "masks without an entry in common": ("combine_masks", lambda a, b: a.any() and b.any() and not (a & b).any()),
}


@pytest.mark.parametrize("edge", EDGES)
def test_everyday_cases_reach(edge):
    operation, condition = EDGES[edge]
    assert any(condition(*case) for case in drawn(operation))


def test_the_simplest_cases_are_one_row_of_one_pair_at_position_zero():
    simplest = {name: next(drawn(name)) for name in ("rope", SINUSOID, LEARNED)}
    assert simplest[SINUSOID] == (1, 2, 0)
    assert (simplest["rope"][0].tolist(), simplest["rope"][1]) == ([[0.0, 0.0]], 0)
    assert (simplest[LEARNED][0].tolist(), *simplest[LEARNED][1:]) == ([[0.0]], 1, 0)


@pytest.mark.parametrize(
    "operation", ["rope", "rope_vjp", "apply_rotary", "rope_tables", SINUSOID, ADD, LEARNED, LOOKUP]
)
def test_only_supported_sizes_and_positions_are_drawn(operation):
    for case in drawn(operation, FEW, number=200):
        sizes = ALL[operation].sizes(case)
        assert FEW.allows(
            **{name: n for name, n in sizes.items() if name in ("seq_len", "head_dim", "embed_dim", "start_pos")}
        )
        assert all(n < 3 for n in ALL[operation].lead(case)[: len(ALL[operation].lead(case)) * (operation != LOOKUP)])


@pytest.mark.parametrize(
    ("operation", "domain"), [(o, d) for o in DOMAINS for d in ("no rows", "no columns") if d in DOMAINS[o]]
)
def test_empty_cases_are_empty(operation, domain):
    found = list(drawn(operation, domain=domain, number=20))
    assert any(0 in shape for case in found for shape in ALL[operation].shapes(*case))


def test_what_is_not_supported_at_all_is_refused():
    with pytest.raises(ValueError, match=r"^few supports no seq_len among \[1\]\.$"):
        Cases(ALL["rope"], DOMAINS["rope"]["one position"], FEW)
    positive = Implementation("few", REFERENCE, supports="positive sizes")
    with pytest.raises(ValueError, match=r"^few supports no head_dim among \[0\]\.$"):
        Cases(ALL["rope"], DOMAINS["rope"]["no columns"], positive)


def test_tensor2tensor_is_given_no_width_that_it_does_not_define():
    other = Implementation("other", REFERENCE, conventions=Conventions(sinusoid_layout="tensor2tensor"))
    assert {d % 2 for _, d, _ in drawn(SINUSOID, other, number=200)} == {0}
    assert next(drawn(SINUSOID, other)) == (1, 4, 0)
