"""Positional encodings: learned, sinusoidal and rotary.

A position is counted from 0; a chunk that begins at `start_pos` holds the positions start_pos,
start_pos + 1, …. Column j of a sinusoidal or rotary encoding belongs to pair i = ⌊j/2⌋, and all
columns of a pair share one angle,

    θ(pos, i; d) = pos / 10000^(2i/d)   radians,

which grows fastest at pair 0 (one radian per position), and slower for each later pair. A position
that the scalar cannot hold as a finite number raises ValueError.

Sources: Vaswani et al., Attention Is All You Need, 2017, section 3.5 (sinusoidal); Su et al.,
RoFormer, 2021 (rotary).

Lean: `NN/Spec/Layers/PositionalEncoding.lean`, at the seed revision
"""

from dataclasses import dataclass, field

import numpy as np  # noqa: F401 - for the examples

from spec.context import Context, Scalar
from spec.lean import LeanFile
from spec.scope import alpha
from spec.signature import conform
from spec.tensor_core import Array, Tensor, stack, tabulate
from spec.tensor_ops import add_spec, mul_spec

__all__ = [
    "PositionalEncodingSpec",
    "add_positional_encoding_backward_spec",
    "add_positional_encoding_spec",
    "add_sinusoidal_positional_encoding_spec",
    "posenc_angle_spec",
    "posenc_freq_denom_spec",
    "rope_apply_heads_spec",
    "rope_apply_spec",
    "rope_cos_lastdim_spec",
    "rope_rotate_pairs_lastdim_spec",
    "rope_sin_lastdim_spec",
    "sinusoidal_positional_encoding_spec",
]

lean = LeanFile("NN/Spec/Layers/PositionalEncoding.lean")


# -- Learned ---------------------------------------------------------------------------------------


@lean(line=52)
@dataclass(frozen=True, eq=False)
class PositionalEncodingSpec:
    """The parameters of a learned positional encoding: one vector `pos[p]` for each position p.

    Raises ValueError unless `pos` is a matrix, TypeError unless its entries are scalars.

    Lean: `PositionalEncodingSpec`
    """

    pos: Tensor[Array, "seqLen embedDim"]
    scalar: Context | None = field(kw_only=True, default=None)

    def __post_init__(self) -> None:
        conform(self)


@lean(line=61)
def add_positional_encoding_spec(
    pe: PositionalEncodingSpec, x: Tensor[Array, "seqLen embedDim"], scalar: Context | None = None
) -> Tensor[Array, "seqLen embedDim"]:
    """Return x + pos: row p of x plus the vector of position p.

    Edge cases: seqLen = 0 or embedDim = 0 gives the empty tensor of that shape.

    >>> add_positional_encoding_spec(PositionalEncodingSpec(np.array([[10.0, 20.0]])), np.array([[1.0, 2.0]]))
    array([[11., 22.]])

    Lean: `addPositionalEncodingSpec`
    """
    return add_spec(x, pe.pos)


@lean(line=83)
def add_positional_encoding_backward_spec(
    pe: PositionalEncodingSpec, grad_output: Tensor[Array, "seqLen embedDim"], scalar: Context | None = None
) -> tuple[Tensor[Array, "seqLen embedDim"], Tensor[Array, "seqLen embedDim"]]:
    """Return (∂L/∂pos, ∂L/∂x) = (g, g), in this order, when y = x + pos has cotangent g. The two
    tensors share no memory.

    Raises ValueError if g does not have the shape of pos.

    >>> add_positional_encoding_backward_spec(PositionalEncodingSpec(np.array([[10.0]])), np.array([[3.0]]))
    (array([[3.]]), array([[3.]]))

    Lean: `addPositionalEncodingBackwardSpec`
    """
    return grad_output.copy(), grad_output.copy()


# -- Sinusoidal ------------------------------------------------------------------------------------


@lean(line=112)
def posenc_freq_denom_spec(i: int, d: int, scalar: Context | None = None) -> Scalar:
    """Return 10000^(2i/d), computed as exp(log 10000 · (2i/d)): the number of positions per radian
    of pair i in width d.

    Edge cases
    - i = 0: exp(0) = 1 exactly.
    - d = 0: over ℝ, 2i/0 = 0 and the result is 1; over Float it is NaN for i = 0 and ∞ for i > 0.
      No entry of an encoding uses it.
    - d odd: the same formula; the exponent of the last pair is (d − 1)/d.

    >>> from spec import FLOAT64, REAL64
    >>> [float(posenc_freq_denom_spec(*given)) for given in ((0, 4, REAL64), (3, 0, REAL64), (3, 0, FLOAT64))]
    [1.0, 1.0, inf]

    Lean: `posencFreqDenomSpec`
    """
    return alpha.exp(alpha.log10000 * alpha.div(alpha.two * alpha.of_nat(i), alpha.of_nat(d)))


@lean(line=120)
def posenc_angle_spec(pos: int, i: int, d: int, scalar: Context | None = None) -> Scalar:
    """Return θ(pos, i; d) = pos / 10000^(2i/d), the angle of pair i at position pos in width d, in
    radians.

    Edge cases: at position 0 every angle is 0; the angle of pair 0 is pos exactly.

    >>> from spec import REAL64
    >>> posenc_angle_spec(7, 0, 4, REAL64), posenc_angle_spec(0, 1, 4, REAL64)
    (np.float64(7.0), np.float64(0.0))

    Lean: `posencAngleSpec`
    """
    return alpha.div(alpha.of_nat(pos), posenc_freq_denom_spec(i, d))


@lean(line=137)
def sinusoidal_positional_encoding_spec(
    seq_len: int, embed_dim: int, start_pos: int = 0, scalar: Context | None = None
) -> Tensor[Array, "seqLen embedDim"]:
    """Return the table whose row p encodes position start_pos + p: with θ = θ(start_pos + p, ⌊j/2⌋;
    embedDim),

        entry (p, j) = sin θ for even j, cos θ for odd j.

    Edge cases
    - seqLen = 0 or embedDim = 0: the empty table of that shape.
    - embedDim odd: the last column is a sine without its cosine.
    - Position 0 is the row 0, 1, 0, 1, ….

    >>> from spec import REAL64
    >>> sinusoidal_positional_encoding_spec(1, 3, scalar=REAL64)
    array([[0., 1., 0.]])

    Lean: `sinusoidalPositionalEncodingSpec`
    """

    def entry(pos: int, j: int) -> Scalar:
        theta = posenc_angle_spec(start_pos + pos, j // 2, embed_dim)
        return alpha.sin(theta) if j % 2 == 0 else alpha.cos(theta)

    return tabulate((seq_len, embed_dim), entry)


@lean(line=150)
def add_sinusoidal_positional_encoding_spec(
    x: Tensor[Array, "seqLen embedDim"], start_pos: int = 0, scalar: Context | None = None
) -> Tensor[Array, "seqLen embedDim"]:
    """Return x + sinusoidal(seqLen, embedDim, start_pos): row p of x plus the encoding of position
    start_pos + p.

    Edge cases: seqLen = 0 or embedDim = 0 gives the empty tensor of that shape.

    >>> add_sinusoidal_positional_encoding_spec(np.array([[5.0, 5.0, 5.0]]))
    array([[5., 6., 5.]])

    Lean: `addSinusoidalPositionalEncodingSpec`
    """
    seq_len, embed_dim = x.shape
    return add_spec(x, sinusoidal_positional_encoding_spec(seq_len, embed_dim, start_pos))


# -- Rotary ----------------------------------------------------------------------------------------


@lean(line=186)
def rope_rotate_pairs_lastdim_spec(
    x: Tensor[Array, "headDim"], scalar: Context | None = None
) -> Tensor[Array, "headDim"]:
    """Return (−x₁, x₀, −x₃, x₂, …): each adjacent pair rotated by a quarter turn, that is,
    multiplied by [[0, −1], [1, 0]].

    Edge cases
    - headDim odd: the last entry has no partner and stays unchanged. (So it is not rotated:
      `spec.errata`, `rope-odd-lane`.)
    - headDim = 0: empty.

    >>> rope_rotate_pairs_lastdim_spec(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    array([-2.,  1., -4.,  3.,  5.])

    Lean: `ropeRotatePairsLastdimSpec`
    """
    (head_dim,) = x.shape

    def entry(j: int) -> Scalar:
        if j % 2 == 0:
            return -x[j + 1] if j + 1 < head_dim else x[j]
        return x[j - 1]

    return tabulate((head_dim,), entry)


@lean(line=203)
def rope_cos_lastdim_spec(pos: int, head_dim: int, scalar: Context | None = None) -> Tensor[Array, "headDim"]:
    """Return (cos θ₀, cos θ₀, cos θ₁, cos θ₁, …) with θᵢ = θ(pos, i; headDim): entry j is the
    cosine of pair ⌊j/2⌋.

    Edge cases: an odd headDim ends with a single cosine. At position 0 all entries are 1.

    >>> from spec import REAL64
    >>> rope_cos_lastdim_spec(0, 3, REAL64)
    array([1., 1., 1.])

    Lean: `ropeCosLastdimSpec`
    """
    return tabulate((head_dim,), lambda j: alpha.cos(posenc_angle_spec(pos, j // 2, head_dim)))


@lean(line=210)
def rope_sin_lastdim_spec(pos: int, head_dim: int, scalar: Context | None = None) -> Tensor[Array, "headDim"]:
    """Return (sin θ₀, sin θ₀, sin θ₁, sin θ₁, …) with θᵢ = θ(pos, i; headDim): entry j is the sine
    of pair ⌊j/2⌋.

    Edge cases: an odd headDim ends with a single sine. At position 0 all entries are 0.

    >>> from spec import REAL64
    >>> rope_sin_lastdim_spec(0, 3, REAL64)
    array([0., 0., 0.])

    Lean: `ropeSinLastdimSpec`
    """
    return tabulate((head_dim,), lambda j: alpha.sin(posenc_angle_spec(pos, j // 2, head_dim)))


@lean(line=227)
def rope_apply_spec(
    x: Tensor[Array, "seqLen headDim"], start_pos: int = 0, scalar: Context | None = None
) -> Tensor[Array, "seqLen headDim"]:
    """Return x with each adjacent pair of row p rotated by its angle at position start_pos + p:

        row p = x[p] ⊙ cos + rotate_pairs(x[p]) ⊙ sin,
        (x₂ᵢ, x₂ᵢ₊₁) ↦ (x₂ᵢ cos θᵢ − x₂ᵢ₊₁ sin θᵢ,  x₂ᵢ₊₁ cos θᵢ + x₂ᵢ sin θᵢ).

    Edge cases
    - Position 0 is the identity.
    - headDim odd: the last entry has no partner, and is multiplied by cos θ + sin θ, where θ is the
      angle of the pair that it would begin (`spec.errata`, `rope-odd-lane`).
    - seqLen = 0 or headDim = 0: the empty tensor of that shape.

    >>> rope_apply_spec(np.array([[1.0, 0.0], [1.0, 0.0]])).round(4)  # position 0, then position 1: cos 1 and sin 1
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])

    Lean: `ropeApplySpec`
    """
    _, head_dim = x.shape

    def row(p: int) -> Array:
        c = rope_cos_lastdim_spec(start_pos + p, head_dim)
        s = rope_sin_lastdim_spec(start_pos + p, head_dim)
        return add_spec(mul_spec(x[p], c), mul_spec(rope_rotate_pairs_lastdim_spec(x[p]), s))

    return stack(x.shape, row)


@lean(line=240)
def rope_apply_heads_spec(
    x: Tensor[Array, "numHeads seqLen headDim"], start_pos: int = 0, scalar: Context | None = None
) -> Tensor[Array, "numHeads seqLen headDim"]:
    """Return `rope_apply_spec` of each head.

    Edge cases: numHeads = 0 gives the empty tensor.

    >>> rope_apply_heads_spec(np.array([[[1.0, 2.0]], [[3.0, 4.0]]])).tolist()  # position 0 only
    [[[1.0, 2.0]], [[3.0, 4.0]]]

    Lean: `ropeApplyHeadsSpec`
    """
    return stack(x.shape, lambda h: rope_apply_spec(x[h], start_pos))
