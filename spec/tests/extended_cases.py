"""The extended definitions, with a strategy for the inputs of each: rows of the table in `cases`,
for the tests that compare scalars.
"""

from math import prod

import numpy as np
from hypothesis import strategies as st

from spec.extended.alibi import alibi_bias
from spec.extended.attention import attention, merge_attention
from spec.extended.attention_derivatives import attention_jvp, attention_vjp
from spec.extended.attention_layer import attention_layer
from spec.extended.latent import latent_attention, latent_layer
from spec.extended.packed import packed_attention, packed_attention_vjp
from spec.extended.paged import paged_attention
from spec.extended.rotary import rope
from spec.extended.rotary_frequencies import rotary_frequencies
from spec.tests.cases import Operation, arrays, sizes

BIASES = ("whole", "per head", "per key", "one row", "one number")


def _broadcast_shape(draw, *shape):
    """Some shape that broadcasts to this one: axes left out in front, or of size 1."""
    return {
        "whole": shape,
        "per head": (shape[-3], 1, 1),
        "per key": (shape[-1],),
        "one row": (1, *shape[-2:]),
        "one number": (),
    }[draw(st.sampled_from(BIASES))]


@st.composite
def masks(draw, *shape):
    """Masks of any shape: drawn, all true, or all false."""
    kept = draw(st.sampled_from([None, True, False]))
    return np.asarray(draw(arrays(*shape)) >= 0) if kept is None else np.full(shape, kept)


@st.composite
def features(draw, batch, heads, n_q, n_k):
    """Arguments of attention beside q, k and v, each of them there or not; biases and sinks of −∞ among them."""
    shape = (*batch, heads, n_q, n_k)
    side = st.none() | st.integers(0, 2)
    found = {}
    if draw(st.booleans()):
        found["mask"] = draw(masks(*_broadcast_shape(draw, *shape)))
    if draw(st.booleans()):
        found["bias"] = draw(arrays(*_broadcast_shape(draw, *shape)))
        if draw(st.booleans()):
            found["bias"] = np.where(draw(masks(*found["bias"].shape)), found["bias"], -np.inf)
    if draw(st.booleans()):
        found["sink"] = draw(arrays(heads)) if draw(st.booleans()) else np.where(np.arange(heads) % 2, 0.5, -np.inf)
    if draw(st.booleans()):
        found["alibi"] = draw(arrays(heads))
    if draw(st.booleans()):
        found["offset"] = (
            np.array([draw(st.integers(-1, 2)) for _ in range(*batch)]) if batch else draw(st.integers(-2, 3))
        )
    found["scale"] = draw(st.sampled_from([None, 0.25, -1.0]))
    found["softcap"] = draw(st.sampled_from([None, 0.5, 8.0]))
    return found | {"causal": draw(st.booleans()), "window": (draw(side), draw(side))}


@st.composite
def inputs_of_attention(draw, domain, derivatives=()):
    """q, k, v and features; `derivatives` names what to add of "tangents" and "cotangents"."""
    batch, key_heads, group = draw(st.sampled_from([(), (2,)])), draw(sizes(1, 2)), draw(sizes(1, 2))
    n_q, n_k, d, d_v = draw(sizes(1, 2)), draw(sizes(0, 3)), draw(sizes(1, 2)), draw(sizes(1, 2))
    heads = key_heads * group
    found = {
        "q": draw(arrays(*batch, heads, n_q, d, magnitudes=domain.magnitudes)),
        "k": draw(arrays(*batch, key_heads, n_k, d)),
        "v": draw(arrays(*batch, key_heads, n_k, d_v)),
        **draw(features(batch, heads, n_q, n_k)),
    }
    if "tangents" not in derivatives and draw(st.booleans()):
        found["dropout_mask"] = draw(masks(*_broadcast_shape(draw, *batch, heads, n_q, n_k)))
        found["dropout"] = draw(st.sampled_from([0.0, 0.5, 0.25]))
    if "tangents" in derivatives:
        found |= {
            "d" + name: draw(arrays(*found[name].shape)) for name in ("q", "k", "v", "bias", "sink") if name in found
        }
    if "cotangents" in derivatives:
        found |= {"grad_out": draw(arrays(*batch, heads, n_q, d_v)), "grad_lse": draw(arrays(*batch, heads, n_q))}
    return found


@st.composite
def latent_rows(draw, domain):
    """Latent rows of one or two channels, of which some are values."""
    batch, heads = draw(st.sampled_from([(), (2,)])), draw(sizes(1, 2))
    n_q, n_k, d = draw(sizes(1, 2)), draw(sizes(0, 3)), draw(sizes(1, 2))
    found = draw(features(batch, heads, n_q, n_k))
    return {name: value for name, value in found.items() if name not in ("bias", "scale", "alibi")} | {
        "q": draw(arrays(*batch, heads, n_q, d, magnitudes=domain.magnitudes)),
        "latent": draw(arrays(*batch, n_k, d)),
        "value_dim": draw(sizes(0, d)),
        "scale": draw(st.sampled_from([0.5, 0.0, -1.0])),
    }


@st.composite
def latent_layers(draw, domain):
    """Up to two heads, with compressed and rotated channels."""
    heads, n_q, n_k, c, nope, r, d_v = (draw(sizes(1, 2)) for _ in range(7))
    shapes = {"q": (heads, n_q, nope + r), "latent": (n_k, c + r), "w_uk": (heads, c, nope), "w_uv": (heads, c, d_v)}
    return {name: draw(arrays(*shape)) for name, shape in shapes.items()} | {
        "scale": draw(st.sampled_from([0.5, 0.0])),
        "causal": draw(st.booleans()),
    }


@st.composite
def attention_layers(draw, domain):
    """Up to two key heads, each with up to two query heads, with and without each bias."""
    groups, group, n_q, n_k, d, d_v, d_model, d_context, d_out = (draw(sizes(1, 2)) for _ in range(9))
    heads = groups * group
    widths = {"wq": (d_model, heads * d), "wk": (d_context, groups * d), "wv": (d_context, groups * d_v)}
    shapes = {"x": (n_q, d_model), "context": (n_k, d_context), **widths, "wo": (heads * d_v, d_out)}
    biases = {name: (shapes[f"w{name[1]}"][1],) for name in ("bq", "bk", "bv", "bo") if draw(st.booleans())}
    return {name: draw(arrays(*shape)) for name, shape in (shapes | biases).items()} | {
        "num_heads": heads,
        "causal": draw(st.booleans()),
        "scale": draw(st.sampled_from([None, 0.5, 0.0])),
        **({"mask": draw(masks(n_q, n_k))} if draw(st.booleans()) else {}),
    }


@st.composite
def packed(draw, domain, cotangents=False):
    """Up to three sequences, some of them without queries or keys, with rows that no sequence uses."""
    d, d_v, key_heads, group = draw(sizes(1, 2)), draw(sizes(1, 2)), draw(sizes(1, 2)), draw(sizes(1, 2))
    sequences, heads = draw(sizes(1, 3)), key_heads * group
    found = {"alignment": draw(st.sampled_from(["bottom_right", "top_left"])), "causal": draw(st.booleans())}
    total = {}
    for side in "qk":
        owned = [draw(sizes(0, 2)) for _ in range(sequences)]
        found[f"cu_{side}"], total[side] = np.cumsum([0, *owned]), sum(owned) + draw(sizes(0, 1))
        if draw(st.booleans()):
            found[f"seqused_{side}"] = np.array([draw(sizes(0, n)) for n in owned])
    for name, shape in {
        "q": (total["q"], heads, d),
        "k": (total["k"], key_heads, d),
        "v": (total["k"], key_heads, d_v),
        **({"grad_out": (total["q"], heads, d_v), "grad_lse": (heads, total["q"])} if cotangents else {}),
    }.items():
        found[name] = draw(arrays(*shape, magnitudes=domain.magnitudes if name == "q" else (1,)))
    found |= {name: draw(arrays(heads)) for name in ("sink", "alibi") if draw(st.booleans())}
    side = st.none() | st.integers(0, 2)
    return found | {"window": (draw(side), draw(side)), "softcap": draw(st.sampled_from([None, 0.5]))}


@st.composite
def paged(draw, domain):
    """Up to three sequences of up to three pages, some of them shared, with garbage in the table."""
    sequences, size, pages, widest = draw(sizes(1, 3)), draw(sizes(1, 3)), draw(sizes(1, 4)), draw(sizes(1, 3))
    d, d_v, key_heads, heads = draw(sizes(1, 2)), draw(sizes(1, 2)), 1, draw(sizes(1, 2))
    lengths = np.array([draw(sizes(0, widest * size)) for _ in range(sequences)])
    table = np.array([[draw(st.integers(0, pages - 1)) for _ in range(widest)] for _ in lengths])
    for row, length in zip(table, lengths, strict=True):
        row[-(-length // size) :] = draw(st.sampled_from([-1, 0, pages, 2**31 - 1]))
    found = {"block_table": table, "lengths": lengths, "causal": draw(st.booleans())}
    if draw(st.booleans()):
        found["cu_q"] = np.cumsum([0, *(draw(sizes(0, 2)) for _ in lengths)])
    of_queries = (int(found["cu_q"][-1]),) if "cu_q" in found else (sequences, draw(sizes(1, 2)))
    found["q"] = draw(arrays(*of_queries, heads, d, magnitudes=domain.magnitudes))
    found["k_pages"], found["v_pages"] = (draw(arrays(pages, size, key_heads, width)) for width in (d, d_v))
    found |= {name: draw(arrays(heads)) for name in ("sink", "alibi") if draw(st.booleans())}
    side = st.none() | st.integers(0, 2)
    return found | {"window": (draw(side), draw(side)), "softcap": draw(st.sampled_from([None, 0.5]))}


@st.composite
def parts(draw, domain):
    """The results of two parts of the keys, some of them empty."""
    n, d_v = draw(sizes(0, 3)), draw(sizes(0, 2))
    found = {}
    for part in "ab":
        found[f"out_{part}"] = draw(arrays(n, d_v))
        lse = draw(arrays(n, magnitudes=domain.magnitudes))
        found[f"lse_{part}"] = np.where(draw(masks(n)), lse, -np.inf)
    return found


KINDS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0, "max_position_embeddings": 64, "seq_len": 200},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 64, "mscale": 0.75, "mscale_all_dim": 0.5},
    "yarn without truncation": {"factor": 8.0, "original_max_position_embeddings": 1024, "truncate": False},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128},
    "longrope": {"factor": 2.0, "original_max_position_embeddings": 64, "seq_len": 65},
    "proportional": {"factor": 2.0, "partial_rotary_factor": 0.5},
}
"""Parameters of each kind, all of them numbers of binary32."""


@st.composite
def frequencies(draw, domain, least=4):
    r, kind = 2 * draw(sizes(least // 2, 8)), draw(st.sampled_from(sorted(KINDS)))
    given = dict(KINDS[kind])
    if kind == "longrope":
        given |= {
            "short_factor": tuple(1.0 + i / 4 for i in range(r // 2)),
            "long_factor": tuple(2.0 + i / 2 for i in range(r // 2)),
        }
    return {
        "kind": kind.split(" ")[0],
        "head_dim": r,
        "base": draw(st.sampled_from([100.0, 10000.0, 500000.0])),
        **given,
    }


@st.composite
def rotations(draw, domain):
    rows, d = draw(st.lists(sizes(0, 2), max_size=2)), draw(sizes(0, 6))
    r = 2 * draw(sizes(0, d // 2))
    found = {"x": draw(arrays(*rows, d)), "rotary_dim": r, "rope_pairing": draw(st.sampled_from(["adjacent", "half"]))}
    position = st.integers(-domain.largest_position, domain.largest_position)
    three = draw(st.booleans())
    if three:
        t = draw(sizes(0, r // 2))
        h = draw(sizes(0, r // 2 - t))
        found["sections"] = (t, h, r // 2 - t - h)
    shape = (3, *rows) if three else tuple(rows)
    where = draw(st.lists(position, min_size=prod(shape), max_size=prod(shape)))
    return found | {
        "positions": np.array(where, int).reshape(shape),
        "attention_factor": draw(st.sampled_from([1.0, 1.25])),
    }


EXTENDED = (
    Operation("attention", inputs_of_attention, lambda a, **given: attention(**given, scalar=a)),
    Operation(
        "attention_vjp",
        lambda dom: inputs_of_attention(dom, ("cotangents",)),
        lambda a, **given: _present(attention_vjp(**given, scalar=a)),
    ),
    Operation(
        "attention_jvp",
        lambda dom: inputs_of_attention(dom, ("tangents",)),
        lambda a, **given: attention_jvp(**given, scalar=a),
    ),
    Operation("latent_attention", latent_rows, lambda a, **given: latent_attention(**given, scalar=a)),
    Operation("latent_layer", latent_layers, lambda a, **given: latent_layer(**given, scalar=a)),
    Operation("attention_layer", attention_layers, lambda a, **given: attention_layer(**given, scalar=a)),
    Operation("packed_attention", packed, lambda a, **given: packed_attention(**given, scalar=a)),
    Operation(
        "packed_attention_vjp",
        lambda dom: packed(dom, cotangents=True),
        lambda a, **given: _present(packed_attention_vjp(**given, scalar=a)),
    ),
    Operation("paged_attention", paged, lambda a, **given: paged_attention(**given, scalar=a)),
    Operation("merge_attention", parts, lambda a, **given: merge_attention(**given, scalar=a)),
    Operation(
        "alibi_bias",
        lambda dom: st.fixed_dictionaries(
            {"num_heads": sizes(0, 7), "n_q": sizes(0, 2), "n_k": sizes(0, 3), "offset": st.integers(-2, 3)}
        ),
        lambda a, **given: alibi_bias(**given, scalar=a),
    ),
    Operation("rotary_frequencies", frequencies, lambda a, **given: rotary_frequencies(**given, scalar=a)),
    Operation("rope", rotations, lambda a, **given: rope(**given, scalar=a)),
)
"""Each extended definition, with the strategy of its inputs."""


def _present(results):
    return tuple(result for result in results if result is not None)
