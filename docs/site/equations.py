r"""The equation of each definition, typeset, and the operations that it defines.

By Lean name, in the Lean files' order. The letters are those of the definition: \alpha is the scalar, \top and \bot are true and false.
"""

from typing import NamedTuple

__all__ = ["ELSEWHERE", "EQUATIONS", "Equation"]


class Equation(NamedTuple):
    """What a definition equals, in LaTeX, and the operations of `properties` that are this definition, batched."""

    latex: str
    operations: tuple[str, ...] = ()


def _lines(*lines: str) -> str:
    """Equations one below the other, aligned at their &."""
    return r"\begin{split} " + r" \\ ".join(lines) + r" \end{split}"


EQUATIONS: dict[str, Equation] = {
    # activation
    "softmaxVecSpec": Equation(
        _lines(
            r"\operatorname{softmax}(t)_j &= \frac{e^{t_j - m}}{\sum_k e^{t_k - m}}",
            r"m &= \max_k\, t_k",
        ),
        ("hard_masked_softmax",),
    ),
    "softmaxSpec": Equation(
        _lines(
            r"\operatorname{softmax}(t)_{i j} &= \frac{e^{t_{i j} - m_i}}{\sum_k e^{t_{i k} - m_i}}",
            r"m_i &= \max_k\, t_{i k}",
        ),
        ("hard_masked_softmax",),
    ),
    "softmaxBackwardSpec": Equation(
        _lines(
            r"y &= \operatorname{softmax}(x)",
            r"\bar{x} &= y \odot \Bigl( \bar{y} - \sum_j \bar{y}_j y_j \Bigr)",
        ),
        ("hard_masked_softmax_vjp",),
    ),
    # positional_encoding
    "PositionalEncodingSpec": Equation(
        r"\mathrm{pos} \in \alpha^{\mathrm{seqLen} \times \mathrm{embedDim}}",
        ("learned_positional_encoding", "table_lookup"),
    ),
    "addPositionalEncodingSpec": Equation(r"y_p = x_p + \mathrm{pos}_p", ("add_positional_encoding",)),
    "addPositionalEncodingBackwardSpec": Equation(
        r"\Bigl( \frac{\partial L}{\partial\, \mathrm{pos}}, \frac{\partial L}{\partial x} \Bigr) = (g, g),"
        r" \qquad g = \frac{\partial L}{\partial y}"
    ),
    "posencFreqDenomSpec": Equation(r"10000^{2i/d} = \exp\Bigl( \ln\,10000 \cdot \frac{2i}{d} \Bigr)", ("inv_freq",)),
    "posencAngleSpec": Equation(r"\theta(\mathrm{pos}, i; d) = \frac{\mathrm{pos}}{10000^{2i/d}}", ("rope_angles",)),
    "sinusoidalPositionalEncodingSpec": Equation(
        _lines(
            r"\mathrm{PE}_{p,\, 2i} &= \sin\,\theta(s + p, i; d)",
            r"\mathrm{PE}_{p,\, 2i+1} &= \cos\,\theta(s + p, i; d)",
        ),
        ("sinusoidal_positional_encoding",),
    ),
    "addSinusoidalPositionalEncodingSpec": Equation(r"y_p = x_p + \mathrm{PE}_p"),
    "ropeRotatePairsLastdimSpec": Equation(
        _lines(
            r"R(x)_{2i} &= -x_{2i+1}",
            r"R(x)_{2i+1} &= x_{2i}",
        )
    ),
    "ropeCosLastdimSpec": Equation(r"c_j = \cos\,\theta(\mathrm{pos}, \lfloor j/2 \rfloor; d)", ("rope_tables",)),
    "ropeSinLastdimSpec": Equation(r"s_j = \sin\,\theta(\mathrm{pos}, \lfloor j/2 \rfloor; d)", ("rope_tables",)),
    "ropeApplySpec": Equation(
        _lines(
            r"\begin{pmatrix} y_{2i} \\ y_{2i+1} \end{pmatrix} &="
            r" \begin{pmatrix} \cos\,\theta_i & -\sin\,\theta_i \\ \sin\,\theta_i & \cos\,\theta_i \end{pmatrix}"
            r" \begin{pmatrix} x_{2i} \\ x_{2i+1} \end{pmatrix}",
            r"\theta_i &= \theta(s + p, i; d)",
        ),
        ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp"),
    ),
    "ropeApplyHeadsSpec": Equation(r"y_h = \operatorname{rope}(x_h)"),
    # attention
    "allTrueMask": Equation(r"M_{i j} = \top"),
    "allFalseMask": Equation(r"M_{i j} = \bot"),
    "causalMask": Equation(r"M_{i j} = (j \le i)", ("causal_mask",)),
    "futureMask": Equation(r"M_{i j} = (i < j)"),
    "AttentionContext": Equation(
        _lines(
            r"Q &\in \alpha^{n_Q \times d}",
            r"K, V &\in \alpha^{n_K \times d}",
            r"M &\in \{\top, \bot\}^{n_Q \times n_K}",
        )
    ),
    "hardMaskedSoftmaxVecSpec": Equation(
        _lines(
            r"w_j &= \frac{[M_j]\, e^{s_j}}{\sum_k [M_k]\, e^{s_k}}",
            r"[\top] &= 1, \quad [\bot] = 0",
        ),
        ("hard_masked_softmax",),
    ),
    "hardMaskedSoftmaxSpec": Equation(
        r"w_{i j} = \frac{[M_{i j}]\, e^{s_{i j}}}{\sum_k [M_{i k}]\, e^{s_{i k}}}", ("hard_masked_softmax",)
    ),
    "softmaxBackwardFromWeightsSpec": Equation(
        r"\bar{s} = w \odot \Bigl( \bar{w} - \sum_j \bar{w}_j w_j \Bigr)", ("hard_masked_softmax_vjp",)
    ),
    "scaledDotProductAttention": Equation(
        r"\operatorname{Attention}(Q, K, V) = \operatorname{softmax}\Bigl( \frac{Q K^\top}{\sqrt{d}} \Bigr) V",
        ("scaled_dot_product_attention", "causal_attention", "grouped_query_attention"),
    ),
    "hardMaskedScaledDotProductAttention": Equation(
        r"\operatorname{Attention}(Q, K, V) = \operatorname{softmax}_M\Bigl( \frac{Q K^\top}{\sqrt{d}} \Bigr) V",
        ("scaled_dot_product_attention",),
    ),
    "scaledDotProductAttentionBackward": Equation(
        _lines(
            r"\bar{V} &= A^\top \bar{O}, \quad \bar{A} = \bar{O} V^\top",
            r"\bar{S} &= \frac{1}{\sqrt{d}}\, A \odot \bigl( \bar{A} - \operatorname{rowsum}(\bar{A} \odot A) \bigr)",
            r"\bar{Q} &= \bar{S} K, \quad \bar{K} = \bar{S}^\top Q",
        ),
        ("scaled_dot_product_attention_vjp",),
    ),
    "scaledDotProductAttentionJvp": Equation(
        _lines(
            r"\dot{S} &= \frac{1}{\sqrt{d}} \bigl( \dot{Q} K^\top + Q \dot{K}^\top \bigr)",
            r"\dot{A} &= A \odot \bigl( \dot{S} - \operatorname{rowsum}(\dot{S} \odot A) \bigr)",
            r"\dot{O} &= \dot{A} V + A \dot{V}",
        ),
        ("scaled_dot_product_attention_jvp",),
    ),
    "MultiHeadAttention": Equation(
        _lines(
            r"W_Q, W_K, W_V &\in \alpha^{d_{\mathrm{model}} \times H d}",
            r"W_O &\in \alpha^{H d \times d_{\mathrm{model}}}",
        )
    ),
    "splitHeadsSpec": Equation(
        _lines(
            r"y_{h i c} &= x^{\flat}_{(h n + i) d + c}",
            r"x^{\flat}_{i H d + j} &= x_{i j}",
        ),
    ),
    "concatHeadsSpec": Equation(r"y_{i,\, h d + c} = (x_h)_{i c}"),
    "combineHeadsSpec": Equation(r"y_{i,\, h d + c} = x_{h i c}"),
    "buildBcProof": Equation(r"(n) \preceq (n, n)"),
    "MultiHeadAttention.forward": Equation(
        _lines(
            r"\operatorname{MultiHead}(x) &= \operatorname{combine}(O_1, \dots, O_H)\, W_O",
            r"O_h &= \operatorname{Attention}(Q_h, K_h, V_h)",
            r"Q_h &= \operatorname{split}(x W_Q)_h, \quad \text{and so on}",
        ),
        ("multi_head_attention",),
    ),
    "MultiHeadAttentionBackward": Equation(
        _lines(
            r"\bar{W}_O &= C^\top \bar{Y}, \quad \bar{C} = \bar{Y} W_O^\top",
            r"(\bar{Q}_h, \bar{K}_h, \bar{V}_h) &= \overline{\operatorname{Attention}}\bigl( \operatorname{split}(\bar{C})_h \bigr)",
            r"\bar{W}_Q &= x^\top \bar{Q}, \quad \bar{W}_K = x^\top \bar{K}, \quad \bar{W}_V = x^\top \bar{V}",
            r"\bar{x} &= \bar{Q} W_Q^\top + \bar{K} W_K^\top + \bar{V} W_V^\top",
        ),
        ("multi_head_attention_vjp",),
    ),
    "MultiHeadAttentionJvp": Equation(
        _lines(
            r"\dot{Q} &= \dot{x} W_Q + x \dot{W}_Q, \quad \text{and so on}",
            r"\dot{O}_h &= D \operatorname{Attention}(Q_h, K_h, V_h)\,[\dot{Q}_h, \dot{K}_h, \dot{V}_h]",
            r"\dot{Y} &= \dot{C} W_O + C \dot{W}_O",
        ),
        ("multi_head_attention_jvp",),
    ),
    "selfAttention": Equation(r"\operatorname{Attention}(x W_Q, x W_K, x W_V)\, W_O"),
    "crossAttention": Equation(r"\operatorname{Attention}(\mathrm{query}\, W_Q, \mathrm{key}\, W_K, \mathrm{value}\, W_V)\, W_O"),
    "sparseAttention": Equation(r"\operatorname{Attention}(x W_Q, x W_K, x W_V; M)\, W_O"),
}

ELSEWHERE: dict[str, str] = {
    "padding_mask": "Its mask allows the keys before a length.",
    "combine_masks": "Its mask allows what all the given ones allow.",
    "rotate_half": "It is the quarter turn of the half layout; the definitions' pairs are adjacent.",
}
"""Operations that none of these definitions states, and what they are."""
