"""What the laws reach: kernels that are right but for one edge, each with the law that sees it."""

import ml_dtypes
import numpy as np
import pytest

from oracles import Conventions
from properties import Implementation
from properties.bugs import reference, reference_positions
from properties.bugs.edges import bug as edges
from properties.bugs.mutants import MUTANTS
from properties.bugs.reference import REFERENCE
from properties.contract.operations import FEATURES
from properties.laws import find
from properties.verifier.examination import Supervision
from properties.verifier.verify import examine

SDPA, VJP, GROUPED, CAUSAL = (
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_vjp",
    "grouped_query_attention",
    "causal_attention",
)
SINUSOID = "sinusoidal_positional_encoding"
NO_QUERIES, NO_KEYS = (
    "without queries the output is empty and gradients are 0",
    "without keys every row is fully masked",
)
LOW, NAN = (
    "a single visible key has weight 1, however low its score",
    "NaN and infinity in masked keys and values do not matter",
)
WITHIN = {
    SDPA: "attention is within its error limit",
    VJP: "the VJP is within its error limit",
    "rope": "rope is within its error limit",
    "attention": "attention with options is within its error limit",
    "inv_freq": "frequencies are within their error limit",
    SINUSOID: "the sinusoidal encoding is within its error limit",
}


def where(operation, condition, wrong=lambda out: -1.5 * out):
    """The reference, but where a condition holds of the arguments."""

    def call(*arguments, **options):
        out = REFERENCE[operation](*arguments, **options)
        if not condition(*arguments, **options):
            return out
        return tuple(map(wrong, out)) if isinstance(out, tuple) else wrong(out)

    return call


def fails(out):
    raise IndexError("index 0 is out of bounds for an axis of size 0")


def queries(q, *rest, **options):
    return q.shape[-2] == 0


def keys(q, k, *rest, **options):
    return k.shape[-2] == 0


def filled(value):
    """Attention whose masked scores are a number."""

    def call(q, k, v, mask=None):
        scores = reference.scores_of(q, k)
        may = reference.visible_entries(mask, scores.shape)
        scores = np.where(may, scores, value)
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        return np.where(may.any(-1, keepdims=True), weights / weights.sum(-1, keepdims=True) @ v, 0.0)

    return call


def rotated(dtype, positions):
    """RoPE in a type of 16 bits, its positions in another type."""

    def call(x, start_pos=0):
        wide, (n, d) = x.astype(np.float64), x.shape[-2:]
        at = np.arange(start_pos, start_pos + n).astype(positions).astype(np.float64)
        angle = at[:, None] * 10000.0 ** (-(np.arange(d) // 2 * 2) / max(d, 1))
        return (wide * np.cos(angle) + reference_positions.rotated(wide) * np.sin(angle)).astype(dtype)

    return call


PLANTED = {
    "no queries: attention": (SDPA, where(SDPA, queries, fails), {}, NO_QUERIES),
    "no queries: gradients": (VJP, where(VJP, queries, fails), {}, NO_QUERIES),
    "no queries: grouped heads": (GROUPED, where(GROUPED, queries, fails), {}, NO_QUERIES),
    "no queries: causal": (CAUSAL, where(CAUSAL, queries, fails), {}, NO_QUERIES),
    "no queries: features": ("attention", where("attention", queries, fails), {"features": FEATURES}, NO_QUERIES),
    "no keys: attention": (SDPA, where(SDPA, keys, lambda out: out + np.nan), {}, NO_KEYS),
    "no keys: gradients": (VJP, where(VJP, keys, fails), {}, NO_KEYS),
    "no keys: causal": (CAUSAL, where(CAUSAL, keys, fails), {}, NO_KEYS),
    "no keys: features": ("attention", where("attention", keys, fails), {"features": FEATURES}, WITHIN["attention"]),
    "masked scores are −10⁹": (SDPA, filled(-1e9), {}, LOW),
    "masked scores are the least of float32": (SDPA, filled(float(np.finfo(np.float32).min)), {}, LOW),
    "masked scores are −10¹⁰⁰": (SDPA, filled(-1e100), {}, LOW),
    "one column": (SINUSOID, where(SINUSOID, lambda n, d, start=0: d == 1), {}, WITHIN[SINUSOID]),
    "two columns": (SINUSOID, where(SINUSOID, lambda n, d, start=0: d == 2), {}, WITHIN[SINUSOID]),
    "a pair": ("rope", where("rope", lambda x, *rest, **options: x.shape[-1] == 2), {}, WITHIN["rope"]),
    "a pair's frequency": ("inv_freq", where("inv_freq", lambda d: d == 2), {}, WITHIN["inv_freq"]),
    "a pair rotates": (
        "rope",
        where("rope", lambda *x, **options: options.get("rotary_dim") == 2),
        {"features": FEATURES},
        WITHIN["rope"],
    ),
    "positions in bfloat16": (
        "rope",
        rotated(ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        {"arithmetic": "bfloat16"},
        WITHIN["rope"],
    ),
    "positions in float16": ("rope", rotated(np.float16, np.float16), {"arithmetic": "float16"}, WITHIN["rope"]),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_kernel_is_seen_by_its_law(planted):
    operation, function, promises, law = PLANTED[planted]
    with np.errstate(all="ignore"):
        (found,) = examine(
            find(f"{law}[{operation}]"),
            Implementation(planted, {operation: function}, **{"supports": (), "refuses": (ValueError,), **promises}),
            60,
            1,
            supervision=Supervision(ends=lambda law: True),
        )
    assert found.status == "violated"


@pytest.mark.parametrize("bug", [bug.id for bug in edges.bugs])
def test_a_slip_at_an_edge_is_seen_by_its_law_with_every_seed(bug):
    mutant = MUTANTS[bug]
    law = f"{mutant.bug.law}[{mutant.operation}]"
    for seed in range(2):
        (found,) = examine(
            find(law), mutant.implementation(), 100, seed, supervision=Supervision(ends=lambda law: True)
        )
        assert found.status == "violated", seed
    if bug == "sdpa-nan-in-masked-keys-reaches-the-weights":
        assert " in masked keys " in found.violation.summary


@pytest.mark.parametrize(
    ("operation", "law"), [*dict.fromkeys((o, law) for o, _, _, law in PLANTED.values()), (SDPA, NAN)]
)
def test_the_reference_holds_where_kernels_are_planted(operation, law):
    promises = {"conventions": Conventions(blocked_values="unread")} if law == NAN else {}

    def unread(q, k, v, mask=None):
        read = reference.visible_entries(mask, (*q.shape[:-1], k.shape[-2])).any(-2)[..., None]
        return REFERENCE[SDPA](q, np.where(read, k, 0.0), np.where(read, v, 0.0), mask)

    function = unread if law == NAN else REFERENCE[operation]
    i = Implementation("NumPy", {operation: function}, features=FEATURES, **promises)
    (found,) = examine(find(f"{law}[{operation}]"), i, 40, 2)
    assert found.status == "held", found.reason
