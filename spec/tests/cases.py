"""Every declaration that computes over a scalar, with a strategy for its inputs: one table for all
tests that compare scalars.

Inputs are drawn as float64 arrays of multiples of 2⁻⁷ up to 1, times a power of two: every scalar
can hold them. They are drawn as bytes, which is quick and shrinks to zeros. Cases of `properties`
are of floats and of its operations; these are of every scalar and every declaration, and `spec`
imports nothing of `properties`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from spec import activation as act
from spec import attention as att
from spec import positional_encoding as pos
from spec.context import Context
from spec.tensor_core import tensor


@dataclass(frozen=True)
class Domain:
    """How large queries and inputs may become, whether rows may be dead and widths zero, and how
    far positions reach.
    """

    magnitudes: tuple[int, ...] = (1,)
    total: bool = True
    largest_position: int = 64


EVERYTHING = Domain(magnitudes=(1, 8, 2**12), largest_position=2**20)
MODERATE = Domain()
NO_DIVISION_BY_ZERO = Domain(total=False)


@st.composite
def arrays(draw, *shape, magnitudes=(1,)):
    data = np.frombuffer(draw(st.binary(min_size=prod(shape), max_size=prod(shape))), np.int8)
    return (data.astype(np.float64) / 128 * draw(st.sampled_from(magnitudes))).reshape(shape)


@st.composite
def masks(draw, *shape, dead_rows=True):
    """Masks of every kind, dead rows among them; without dead rows each row allows its first key at least."""
    always = ["drawn", "all true", "causal"]
    kind = draw(st.sampled_from([*always, "a dead row", "all false"] if dead_rows else always))
    if kind == "all true":
        return np.ones(shape, bool)
    if kind == "all false":
        return np.zeros(shape, bool)
    if kind == "causal":
        return np.tril(np.ones(shape, bool)) if len(shape) == 2 else np.arange(*shape) < 1
    mask = np.frombuffer(draw(st.binary(min_size=prod(shape), max_size=prod(shape))), np.uint8).reshape(shape) % 2 == 1
    if kind == "a dead row":
        mask[-1:] = False
    if not dead_rows:
        mask[..., :1] = True
    return mask


def sizes(least, most):
    return st.integers(least, most)


@st.composite
def attention_inputs(draw, domain, masked=None):
    """q, k, v and a mask or None; widths from 0, odd ones included."""
    nQ, nK, d = draw(sizes(1, 3)), draw(sizes(1, 4)), draw(sizes(0 if domain.total else 1, 3))
    masked = draw(st.booleans()) if masked is None else masked
    return {
        "Q": draw(arrays(nQ, d, magnitudes=domain.magnitudes)),
        "K": draw(arrays(nK, d, magnitudes=(8,) if len(domain.magnitudes) > 1 else (1,))),
        "V": draw(arrays(nK, d)),
        "mask": draw(masks(nQ, nK, dead_rows=domain.total)) if masked else None,
    }


@st.composite
def attention_jvp_inputs(draw, domain, masked=None):
    inputs = draw(attention_inputs(domain, masked))
    return inputs | {"d" + name: draw(arrays(*inputs[name].shape)) for name in ("Q", "K", "V")}


@st.composite
def attention_backward_inputs(draw, domain, masked=None):
    inputs = draw(attention_inputs(domain, masked))
    return inputs | {"dOut": draw(arrays(*inputs["Q"].shape))}


PARAMETERS = ("Wq", "Wk", "Wv", "Wo")


@st.composite
def multi_head_inputs(draw, domain, tangents=(), most_heads=2):
    """x, the parameters and a mask or None; `tangents` names what to add of "dmha" (with dx) and "g"."""
    least = 0 if domain.total else 1
    n, d_model, num_heads, head_dim = (
        draw(sizes(1, 3)),
        draw(sizes(least, 3)),
        draw(sizes(least, most_heads)),
        draw(sizes(least, 2)),
    )
    width = num_heads * head_dim
    shapes = dict.fromkeys(PARAMETERS, (d_model, width)) | {"Wo": (width, d_model)}
    inputs = {"x": draw(arrays(n, d_model, magnitudes=domain.magnitudes)), "num_heads": num_heads, "head_dim": head_dim}
    inputs |= {name: draw(arrays(*shape)) for name, shape in shapes.items()}
    inputs["mask"] = draw(masks(n, n, dead_rows=domain.total)) if draw(st.booleans()) else None
    if "dmha" in tangents:
        inputs |= {"d" + name: draw(arrays(*shape)) for name, shape in shapes.items()} | {
            "dx": draw(arrays(n, d_model))
        }
    if "g" in tangents:
        inputs |= {"g": draw(arrays(n, d_model))}
    return inputs


@st.composite
def projected_inputs(draw, domain, kind):
    n1, n2, d_model, proj = (
        draw(sizes(1, 3)),
        draw(sizes(1, 3)),
        draw(sizes(0, 2)),
        draw(sizes(0 if domain.total else 1, 3)),
    )
    inputs = {name: draw(arrays(d_model, proj)) for name in ("Wq", "Wk", "Wv")} | {"Wo": draw(arrays(proj, d_model))}
    if kind == "cross":
        return inputs | {
            "query": draw(arrays(n1, d_model, magnitudes=domain.magnitudes)),
            "key": draw(arrays(n2, d_model)),
            "value": draw(arrays(n2, d_model)),
        }
    inputs["x"] = draw(arrays(n1, d_model, magnitudes=domain.magnitudes))
    return inputs | ({"pattern": draw(masks(n1, n1, dead_rows=domain.total))} if kind == "sparse" else {})


@st.composite
def like_shaped(draw, domain, *names, ranks=(2,)):
    """One tensor for each name, all of one shape with axes from 0 to 3; the first may be large."""
    shape = draw(st.lists(sizes(0, 3), min_size=min(ranks), max_size=max(ranks)))
    first, *others = names
    return {first: draw(arrays(*shape, magnitudes=domain.magnitudes))} | {name: draw(arrays(*shape)) for name in others}


@st.composite
def masked_scores(draw, domain, rank):
    shape = draw(st.lists(sizes(0 if domain.total else 1, 4), min_size=rank, max_size=rank))
    return {
        "scores": draw(arrays(*shape, magnitudes=domain.magnitudes)),
        "mask": draw(masks(*shape, dead_rows=domain.total)),
    }


@st.composite
def pairs(draw, domain):
    """A width d and the number i of one of its pairs; over ℝ the width 0 too."""
    d = draw(sizes(0 if domain.total else 1, 64))
    return {"i": draw(sizes(0, max(0, (d - 1) // 2))), "d": d}


@st.composite
def at_positions(draw, domain, inputs, name="start_pos"):
    return draw(inputs) | {name: draw(st.integers(0, domain.largest_position))}


@st.composite
def lists_of_heads(draw):
    num_heads, n, head_dim = draw(sizes(1, 3)), draw(sizes(0, 3)), draw(sizes(0, 3))
    return {"heads": [draw(arrays(n, head_dim)) for _ in range(num_heads)]}


@st.composite
def splittable(draw):
    n, num_heads, head_dim = draw(sizes(0, 3)), draw(sizes(0, 3)), draw(sizes(0, 3))
    return {"x": draw(arrays(n, num_heads * head_dim)), "num_heads": num_heads, "head_dim": head_dim}


@dataclass(frozen=True)
class Operation:
    """A declaration: the strategy of its inputs in a domain, and the call. Arrays come lifted to
    the scalar, the rest as drawn.
    """

    lean: str
    inputs: Callable[[Domain], st.SearchStrategy[dict[str, Any]]]
    call: Callable[..., Any]

    def __call__(self, alpha: Context, inputs: dict[str, Any]) -> list[Any]:
        """The entries of all results over alpha, in order."""
        result = self.call(alpha, **lifted(inputs, alpha))
        parts = result if isinstance(result, tuple) else (result,)
        return [entry for part in parts for entry in (part.flat if isinstance(part, np.ndarray) else [part])]


def lifted(inputs: dict[str, Any], alpha: Context) -> dict[str, Any]:
    def lift(given: Any) -> Any:
        if isinstance(given, np.ndarray) and given.dtype.kind == "f":  # not masks, offsets and positions
            return tensor(given, alpha)
        return [tensor(part, alpha) for part in given] if isinstance(given, list) else given

    return {name: lift(given) for name, given in inputs.items()}


def context(alpha, Q, K, V, mask):
    return att.AttentionContext(Q, K, V, mask, scalar=alpha)


def parameters(alpha, *, num_heads, head_dim, **named):
    """The structure of the parameters, under their own names or those of their tangents."""
    Wq, Wk, Wv, Wo = (named.get(name, named.get("d" + name)) for name in PARAMETERS)
    return att.MultiHeadAttention(Wq, Wk, Wv, Wo, num_heads, head_dim, scalar=alpha)


def _forward(alpha, x, mask, **named):
    return parameters(alpha, **named).forward(x, mask)


def _backward(alpha, x, mask, g, **named):
    return att.multi_head_attention_backward(parameters(alpha, **named), x, mask, g)


def _jvp(alpha, x, dx, mask, num_heads, head_dim, **named):
    split = {"num_heads": num_heads, "head_dim": head_dim}
    mha = parameters(alpha, **split, **{name: named[name] for name in PARAMETERS})
    dmha = parameters(alpha, **split, **{"d" + name: named["d" + name] for name in PARAMETERS})
    return att.multi_head_attention_jvp(mha, dmha, x, dx, mask)


OPERATIONS = (
    Operation("softmaxVecSpec", lambda dom: like_shaped(dom, "t", ranks=(1,)), lambda a, t: act.softmax_vec_spec(t, a)),
    Operation(
        "softmaxSpec", lambda dom: like_shaped(dom, "t", ranks=(0, 1, 2, 3)), lambda a, t: act.softmax_spec(t, a)
    ),
    Operation(
        "softmaxBackwardSpec",
        lambda dom: like_shaped(dom, "x", "dY", ranks=(0, 1, 2)),
        lambda a, x, dY: act.softmax_backward_spec(x, dY, a),
    ),
    Operation(
        "addPositionalEncodingSpec",
        lambda dom: like_shaped(dom, "x", "table"),
        lambda a, x, table: pos.add_positional_encoding_spec(pos.PositionalEncodingSpec(table, scalar=a), x),
    ),
    Operation(
        "addPositionalEncodingBackwardSpec",
        lambda dom: like_shaped(dom, "g", "table"),
        lambda a, g, table: pos.add_positional_encoding_backward_spec(pos.PositionalEncodingSpec(table, scalar=a), g),
    ),
    Operation("posencFreqDenomSpec", pairs, lambda a, i, d: pos.posenc_freq_denom_spec(i, d, a)),
    Operation(
        "posencAngleSpec",
        lambda dom: at_positions(dom, pairs(dom)),
        lambda a, start_pos, i, d: pos.posenc_angle_spec(start_pos, i, d, a),
    ),
    Operation(
        "sinusoidalPositionalEncodingSpec",
        lambda dom: at_positions(dom, st.fixed_dictionaries({"n": sizes(0, 3), "d": sizes(0, 5)})),
        lambda a, start_pos, n, d: pos.sinusoidal_positional_encoding_spec(n, d, start_pos, a),
    ),
    Operation(
        "addSinusoidalPositionalEncodingSpec",
        lambda dom: at_positions(dom, like_shaped(dom, "x")),
        lambda a, start_pos, x: pos.add_sinusoidal_positional_encoding_spec(x, start_pos, a),
    ),
    Operation(
        "ropeRotatePairsLastdimSpec",
        lambda dom: like_shaped(dom, "x", ranks=(1,)),
        lambda a, x: pos.rope_rotate_pairs_lastdim_spec(x, a),
    ),
    Operation(
        "ropeCosLastdimSpec",
        lambda dom: at_positions(dom, st.fixed_dictionaries({"d": sizes(0, 7)})),
        lambda a, start_pos, d: pos.rope_cos_lastdim_spec(start_pos, d, a),
    ),
    Operation(
        "ropeSinLastdimSpec",
        lambda dom: at_positions(dom, st.fixed_dictionaries({"d": sizes(0, 7)})),
        lambda a, start_pos, d: pos.rope_sin_lastdim_spec(start_pos, d, a),
    ),
    Operation(
        "ropeApplySpec",
        lambda dom: at_positions(dom, like_shaped(dom, "x")),
        lambda a, start_pos, x: pos.rope_apply_spec(x, start_pos, a),
    ),
    Operation(
        "ropeApplyHeadsSpec",
        lambda dom: at_positions(dom, like_shaped(dom, "x", ranks=(3,))),
        lambda a, start_pos, x: pos.rope_apply_heads_spec(x, start_pos, a),
    ),
    Operation(
        "hardMaskedSoftmaxVecSpec",
        lambda dom: masked_scores(dom, 1),
        lambda a, scores, mask: att.hard_masked_softmax_vec_spec(scores, mask, a),
    ),
    Operation(
        "hardMaskedSoftmaxSpec",
        lambda dom: masked_scores(dom, 2),
        lambda a, scores, mask: att.hard_masked_softmax_spec(scores, mask, a),
    ),
    Operation(
        "softmaxBackwardFromWeightsSpec",
        lambda dom: like_shaped(dom, "dW", "w", ranks=(0, 1, 2, 3)),
        lambda a, w, dW: att.softmax_backward_from_weights_spec(w, dW, a),
    ),
    Operation(
        "scaledDotProductAttention",
        attention_inputs,
        lambda a, **named: att.scaled_dot_product_attention(context(a, **named)),
    ),
    Operation(
        "hardMaskedScaledDotProductAttention",
        lambda dom: attention_inputs(dom, masked=True),
        lambda a, **named: att.hard_masked_scaled_dot_product_attention(context(a, **named)),
    ),
    Operation(
        "scaledDotProductAttentionBackward",
        attention_backward_inputs,
        lambda a, dOut, **named: att.scaled_dot_product_attention_backward(context(a, **named), dOut),
    ),
    Operation(
        "scaledDotProductAttentionJvp",
        attention_jvp_inputs,
        lambda a, dQ, dK, dV, **named: att.scaled_dot_product_attention_jvp(context(a, **named), dQ, dK, dV),
    ),
    Operation(
        "splitHeadsSpec",
        lambda dom: splittable(),
        lambda a, x, num_heads, head_dim: att.split_heads_spec(x, num_heads, head_dim, a),
    ),
    Operation("concatHeadsSpec", lambda dom: lists_of_heads(), lambda a, heads: att.concat_heads_spec(heads, scalar=a)),
    Operation(
        "combineHeadsSpec",
        lambda dom: like_shaped(dom, "heads", ranks=(3,)),
        lambda a, heads: att.combine_heads_spec(heads, a),
    ),
    Operation("MultiHeadAttention.forward", multi_head_inputs, _forward),
    Operation("MultiHeadAttentionBackward", lambda dom: multi_head_inputs(dom, ("g",)), _backward),
    Operation("MultiHeadAttentionJvp", lambda dom: multi_head_inputs(dom, ("dmha",)), _jvp),
    Operation(
        "selfAttention",
        lambda dom: projected_inputs(dom, "self"),
        lambda a, **named: att.self_attention(**named, scalar=a),
    ),
    Operation(
        "crossAttention",
        lambda dom: projected_inputs(dom, "cross"),
        lambda a, **named: att.cross_attention(**named, scalar=a),
    ),
    Operation(
        "sparseAttention",
        lambda dom: projected_inputs(dom, "sparse"),
        lambda a, x, pattern, **named: att.sparse_attention(x, pattern, **named, scalar=a),
    ),
)
