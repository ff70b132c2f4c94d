"""Strategies of positional encodings reach their edges, draw nothing that is not supported, and shrink to what can be read."""

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings

from oracles import Conventions
from properties.implementation import Implementation
from properties.operations import OPERATIONS as ALL
from properties.reference import OPERATIONS
from properties.strategies.masks import lengths_of_sequences, two_masks
from properties.strategies.positional import (
    ANY_LENGTH,
    ODD,
    added,
    chunks,
    exact_rows,
    frequencies,
    halves,
    learned,
    lookups,
    rotary,
    rotary_tables,
    rotary_tables_vjp,
    rotary_vjp,
    sinusoid,
    small_tables,
    turning,
)
from properties.strategies.twins import twin
from properties.strategies.unsupported import sizes_named, unsupported

ANY = Implementation("any", OPERATIONS)
FEW = Implementation(
    "few",
    OPERATIONS,
    batch_ranks=(1,),
    supports={
        "seq_len": lambda n: 1 < n < 130,
        "head_dim": lambda d: d % 8 == 0,
        "embed_dim": lambda d: d in (4, 8),
        "start_pos": lambda p: p < 4096,
    },
)
LONG = settings(max_examples=3000, derandomize=True, database=None)


def minimal(strategy):
    return find(strategy, lambda case: True, settings=LONG)


def across(start, n, power):
    return start < 2**power <= start + n - 1


EDGES = {
    "an encoding across 256": (sinusoid(ANY), lambda n, d, p: across(p, n, 8)),
    "an encoding across 2048": (sinusoid(ANY), lambda n, d, p: across(p, n, 11)),
    "an encoding across 65536": (sinusoid(ANY), lambda n, d, p: across(p, n, 16)),
    "an encoding across 2²⁰": (sinusoid(ANY), lambda n, d, p: across(p, n, 20)),
    "a wide encoding": (sinusoid(ANY), lambda n, d, p: d == 128),
    "an odd width": (sinusoid(ANY, widths=ODD), lambda n, d, p: d % 2 and d > 60),
    "a sequence of 1100 rows": (sinusoid(ANY, lengths=ANY_LENGTH), lambda n, d, p: n == 1100 and d >= 4),
    "a chunk of one row at a long position": (rotary(ANY), lambda x, p: x.shape[-2] == 1 and p > 2**19),
    "a batch of two axes": (rotary(ANY), lambda x, p: x.ndim == 4 and x.shape[0] > 1 and x.shape[1] > 1),
    "a long sequence with numbers in its last row": (rotary(ANY, lengths=ANY_LENGTH), lambda x, p: len(x) > 1000 and x[-1].any()),
    "a width that is no power of two": (rotary(ANY), lambda x, p: x.shape[-1] == 96),
    "a cotangent that is not x": (rotary_vjp(ANY), lambda x, g, p: (x != g).all()),
    "tables that are rotations": (rotary_tables(ANY), lambda x, c, s: c.size > 4 and np.allclose(c**2 + s**2, 1, atol=1e-12)),
    "tables whose entries of a pair differ": (
        rotary_tables(ANY),
        lambda x, c, s: (s[:, 0] != s[:, 1]).all() and (c[:, 0] != c[:, 1]).all(),
    ),
    "tables as long as they are wide": (rotary_tables(ANY), lambda x, c, s: len(c) == c.shape[1] > 2),
    "gradients by such tables": (rotary_tables_vjp(ANY), lambda x, c, s, g: g.any() and (s[:, 0] != s[:, 1]).any()),
    "halves of a long sequence": (chunks(ANY, "head_dim"), lambda n, d, p, cut: n > 500 and 2 * cut == n),
    "a last row by itself": (chunks(ANY, "head_dim"), lambda n, d, p, cut: n > 128 and cut == n - 1),
    "a cut at a tile": (chunks(ANY, "embed_dim"), lambda n, d, p, cut: n > 300 and cut == 256),
    "a cut at a power of two": (chunks(ANY, "embed_dim"), lambda n, d, p, cut: p and (p + cut) & (p + cut - 1) == 0),
    "an encoding for each element": (added(ANY), lambda x, pos: pos.ndim > 2 and (pos[0] != pos[-1]).any()),
    "one encoding for a batch": (added(ANY), lambda x, pos: pos.ndim == 2 and x.ndim == 4),
    "the end of a large table": (learned(ANY), lambda table, n, p: len(table) == n + p > 256 and p > 100),
    "angles across 2²⁰": (turning(ANY), lambda n, d, p: across(p, n, 20)),
    "frequencies of an odd width": (frequencies(ANY, widths=ODD), lambda d: d > 60),
    "halves of a long sequence's lanes": (halves(ANY, lengths=ANY_LENGTH), lambda x: x.shape[-2] > 1000 and x.any()),
    "indices beyond a byte": (lookups(ANY), lambda table, indices: indices.max() > 255),
    "a first and a last index": (lookups(ANY), lambda table, indices: {0, len(table) - 1} <= set(indices.ravel().tolist())),
    "as many sequences as positions": (lookups(ANY), lambda table, i: i.ndim == 2 and i.shape[0] == i.shape[1] and (i != i.T).any()),
    "an index twice": (lookups(ANY), lambda table, indices: 1 < len(set(indices.ravel().tolist())) < indices.size),
    "an empty sequence and a full one": (lengths_of_sequences(ANY), lambda k, n: n > 255 and {0, n} <= set(k.tolist())),
    "padding for as many problems as queries": (
        two_masks(ANY),
        lambda a, b: b.ndim == 3 and b.shape[1] == 1 < len(a) == len(b) and not b.all(),
    ),
    "masks of which each has an axis of its own": (two_masks(ANY), lambda a, b: a.shape[-2:] == (1, 4) and b.shape[-2:] == (4, 1)),
    "masks without an entry in common": (two_masks(ANY), lambda a, b: a.any() and b.any() and not (a & b).any()),
    "the middle of a table": (learned(ANY), lambda table, n, p: 0 < p < len(table) - n),
}


@pytest.mark.parametrize("edge", EDGES)
def test_a_strategy_reaches(edge):
    strategy, condition = EDGES[edge]
    find(strategy, lambda case: bool(condition(*case)), settings=settings(LONG, phases=[Phase.generate]))


def test_the_simplest_cases_are_one_row_of_one_pair_at_position_zero():
    assert minimal(sinusoid(ANY)) == (1, 2, 0)
    x, start = minimal(rotary(ANY))
    assert (x.tolist(), start) == ([[0.0, 0.0]], 0)
    table, seq_len, start = minimal(learned(ANY))
    assert (table.tolist(), seq_len, start) == ([[0.0]], 1, 0)
    assert minimal(chunks(ANY, "head_dim")) == (2, 2, 0, 1)


@given(rotary(FEW), chunks(FEW, "head_dim"), sinusoid(FEW), learned(FEW))
@settings(max_examples=200)
def test_only_supported_sizes_and_positions_are_drawn(turned, cut, encoding, row):
    x, start = turned
    assert x.ndim == 3
    assert 1 < x.shape[-2] < 130
    assert x.shape[-1] % 8 == 0
    n, d, first, length = cut
    assert all(FEW.allows(seq_len=k, head_dim=d, start_pos=p) for k, p in ((n, first), (length, first), (n - length, first + length)))
    assert FEW.allows(seq_len=encoding[0], embed_dim=encoding[1], start_pos=encoding[2])
    assert start < 4096
    assert FEW.allows(seq_len=row[1], embed_dim=row[0].shape[1], start_pos=row[2])


@pytest.mark.parametrize("arithmetic", ["float64", "float32", "float16", "bfloat16"])
def test_sums_of_exact_rows_and_of_small_tables_are_numbers_of_the_format(arithmetic):
    i = Implementation("i", OPERATIONS, arithmetic)

    @given(exact_rows(i, 2, lengths=(1, 2, 33)), small_tables(i, (3, 4)), small_tables(i, (3, 4)))
    @settings(max_examples=60)
    def holds(rows, a, b):
        x, y, start = rows
        ALL["rope"].oracle(x - y, start, arithmetic=arithmetic)  # which refuses what the format cannot hold
        ALL["apply_rotary"].oracle(np.zeros((3, 4)), a - b, b - a, arithmetic=arithmetic)

    holds()


def test_a_length_or_width_of_which_none_is_supported_is_refused():
    with pytest.raises(ValueError, match=r"^few supports no seq_len among \[1\] with a head_dim among \[8\]\.$"):
        rotary(FEW, lengths=(1,), widths=(8,))
    alone = Implementation("alone", OPERATIONS, supports={"start_pos": lambda p: p == 0})
    with pytest.raises(ValueError, match=r"^alone supports no sequence that can be cut in two\.$"):
        chunks(alone, "head_dim")
    with pytest.raises(ValueError, match=r"^alone supports no start position from 1 on, among those tried\.$"):
        learned(alone, least=1)


def test_tensor2tensor_is_given_no_width_that_it_does_not_define():
    other = Implementation("other", OPERATIONS, conventions=Conventions(sinusoid_layout="tensor2tensor"))
    assert minimal(sinusoid(other)) == (1, 4, 0)


RESTRICTED = {
    "scaled_dot_product_attention_vjp": {"value_dim_minus_head_dim": lambda n: n == 0, "n_q": lambda n: n <= 512},
    "grouped_query_attention": {"num_heads": lambda n: n != 4, "head_dim": lambda d: d % 8 == 0},
    "multi_head_attention_jvp": {"model_dim_minus_heads_width": lambda n: n == 0, "num_heads": lambda n: n < 5},
    "hard_masked_softmax": {"n_k": lambda n: n > 1, "batch": lambda n: n < 3},
    "causal_mask": {"n_k_minus_n_q": lambda n: n >= 0},
    "sinusoidal_positional_encoding": {"embed_dim": lambda d: d % 2 == 0, "start_pos": lambda p: p < 4096, "seq_len": lambda n: n > 0},
    "add_positional_encoding": {"batch": lambda n: n == 1},
    "learned_positional_encoding": {"embed_dim": lambda d: d < 256},
    "rope": {"head_dim": lambda d: d % 2 == 0, "seq_len": lambda n: n <= 1024},
    "apply_rotary_vjp": {"head_dim": lambda d: d <= 128},
    "rotate_half": {"head_dim": lambda d: d % 2 == 0, "batch": lambda n: n < 3},
    "inv_freq": {"head_dim": lambda d: d % 2 == 0},
    "rope_tables": {"seq_len": lambda n: n > 0, "head_dim": lambda d: d <= 128, "start_pos": lambda p: p < 4096},
    "table_lookup": {"embed_dim": lambda d: d % 8 == 0},
    "padding_mask": {"batch": lambda n: n < 3},
    "combine_masks": {"n_q": lambda n: n > 1, "n_k_minus_n_q": lambda n: n >= 0},
}


@pytest.mark.parametrize("operation", RESTRICTED)
def test_each_size_that_is_not_supported_is_drawn_by_itself(operation):
    i = Implementation("restricted", OPERATIONS, supports=RESTRICTED[operation])
    drawn = set()

    def sizes(arguments):
        q = dict(zip(ALL[operation].parameters, arguments, strict=True))
        found = {name: q[name] for name in sizes_named(operation) if name in q}
        if "q" in q:
            found |= {"n_q": q["q"].shape[-2], "n_k": q["k"].shape[-2], "head_dim": q["q"].shape[-1], "value_dim": q["v"].shape[-1]}
        if "wq" in q:
            width = q["wq"].shape[1]
            found |= {"seq_len": q["x"].shape[-2], "model_dim": q["x"].shape[-1], "head_dim": width // q["num_heads"]}
            found["model_dim_minus_heads_width"] = q["x"].shape[-1] - width
        elif "x" in q:
            found |= {"seq_len": q["x"].shape[-2], ("embed_dim" if "pos" in q else "head_dim"): q["x"].shape[-1]}
        if "scores" in q:
            found |= {"n_q": q["scores"].shape[-2], "n_k": q["scores"].shape[-1]}
        if "table" in q:
            found["embed_dim"] = q["table"].shape[1]
        if "second" in q:
            found |= dict(zip(("n_q", "n_k"), q["second"].shape[-2:], strict=True))
        if "lengths" in q:
            found["batch"] = len(q["lengths"])
        first = arguments[0]
        if isinstance(first, np.ndarray) and "table" not in q and first.ndim > 2 + operation.startswith("grouped"):
            found["batch"] = len(first)
        if operation.startswith("grouped"):
            found |= {"num_heads": q["q"].shape[-3], "kv_heads": q["k"].shape[-3]}
        if "value_dim" in found:
            found["value_dim_minus_head_dim"] = found["value_dim"] - found["head_dim"]
        if "n_q" in found:
            found["n_k_minus_n_q"] = found["n_k"] - found["n_q"]
        return found

    @given(unsupported(operation, i))
    @settings(max_examples=60)
    def holds(arguments):
        refused = [name for name, n in sizes(arguments).items() if not i.allows(**{name: n})]
        assert len(refused) == 1
        drawn.update(refused)

    holds()
    assert drawn == set(RESTRICTED[operation])


def test_nothing_is_drawn_where_everything_is_supported():
    with pytest.raises(ValueError, match=r"^any declares no size that it does not support, among those tried\.$"):
        unsupported("rope", ANY)


@pytest.mark.parametrize("operation", ["rope", "learned_positional_encoding"])
def test_a_case_is_its_own_twin_where_the_twins_position_is_not_supported(operation):
    alone = Implementation("alone", OPERATIONS, supports={"start_pos": lambda p: p == 0})
    case = (np.ones((2, 2)), 0) if operation == "rope" else (np.ones((3, 2)), 2, 0)
    assert twin(operation, alone, case)[0] is case
    assert twin(operation, ANY, case)[0][-1] == 1
