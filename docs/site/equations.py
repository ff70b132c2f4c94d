r"""The equation of each definition in LaTeX, and the operations that it defines.

The tables have Lean names, in the order of the Lean files. An equation uses the letters of its
definition: \alpha is the scalar, \top and \bot are true and false.
"""

from typing import NamedTuple

__all__ = ["ELSEWHERE", "EQUATIONS", "EXTENDED", "Equation"]


class Equation(NamedTuple):
    """The right side of a definition in LaTeX, and the operations of `properties` that batch this
    definition.
    """

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
            r"(\bar{Q}_h, \bar{K}_h, \bar{V}_h) &= \overline{\operatorname{Attention}}"
            r"\bigl( \operatorname{split}(\bar{C})_h \bigr)",
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
    "crossAttention": Equation(
        r"\operatorname{Attention}(\mathrm{query}\, W_Q, \mathrm{key}\, W_K, \mathrm{value}\, W_V)\, W_O"
    ),
    "sparseAttention": Equation(r"\operatorname{Attention}(x W_Q, x W_K, x W_V; M)\, W_O"),
}

ELSEWHERE: dict[str, str] = {
    "attention": "It is attention with features that TorchLean does not have: the extended definitions state it.",
    "attention_vjp": "It is the gradient of attention with its features: the extended definitions state it.",
    "attention_jvp": "It is the derivative of attention with its features: the extended definitions state it.",
    "packed_attention": "It is attention of each packed sequence: the extended definitions state it.",
    "packed_attention_vjp": "It is the gradient of attention of packed sequences: the extended definitions state it.",
    "latent_attention": "It is attention over latent rows: the extended definitions state it.",
    "attention_layer": "It is attention between projections with biases: the extended definitions state it.",
    "paged_attention": "It is attention over keys in pages: the extended definitions state it.",
    "merge_attention": "It joins attention over two parts of the keys: the extended definitions state it.",
    "alibi_slopes": "It is the slope of each head: the extended definitions state it.",
    "alibi_bias": "It is each head's slope times the distance: the extended definitions state it.",
    "relative_bias": "It is the entry of a table for a bucket of distances: the extended definitions state it.",
    "relative_position_index": "It is a row of a table for each offset in a window: the extended definitions state it.",
    "rotary_frequencies": "Each kind of frequencies has a page of its own: the extended definitions state them.",
    "rotary_embedding": "It rotates queries and keys by the frequencies of a kind: the extended definitions state it.",
    "rotary_tables": "They are the cosines and sines of positions times frequencies: the extended definitions state "
    "them.",
    "decode": "It is attention over the keys in a cache after a program of steps, with an offset and a window.",
    "batched_decode": "It is attention over the keys that each row of a cache holds after a program of steps.",
    "padding_mask": "Its mask shows the keys before a length.",
    "left_padding_mask": "Its mask shows the tokens after the padding: the extended definitions state it.",
    "document_mask": "Its mask shows the keys of the query's document: the extended definitions state it.",
    "prefix_mask": "Its mask shows the prefix and earlier keys: the extended definitions state it.",
    "chunked_mask": "Its mask shows earlier keys of the query's chunk: the extended definitions state it.",
    "tree_mask": "Its mask shows a node and its ancestors: the extended definitions state it.",
    "position_ids": "It counts the tokens of a padded sequence: the extended definitions state it.",
    "combine_masks": "Its mask shows the keys that all given masks show.",
    "rotate_half": "It rotates pairs by a right angle, in the half layout; the definitions' pairs are adjacent.",
}
"""The operations that the Lean definitions do not state, each with a sentence that describes it."""

EXTENDED: dict[str, Equation] = {
    # attention_steps
    "visible_keys": Equation(
        _lines(
            r"\mathrm{visible}_{h i j} &= M_{h i j} \wedge (\text{causal} \Rightarrow j \le p)"
            r" \wedge p - \mathrm{left} \le j \le p + \mathrm{right}",
            r"p &= i + \mathrm{offset}",
        )
    ),
    "attention_scores": Equation(
        r"s_{h i j} = \frac{1}{\sqrt{d}} \sum_c q_{h i c}\, k_{g j c}, \qquad g = \lfloor h / (H / H_{kv}) \rfloor"
    ),
    "softcap_scores": Equation(r"t = c \tanh(s / c)"),
    "dropout_factors": Equation(r"\tfrac{1}{1 - p}\ \text{where the mask keeps the weight, else}\ 0"),
    "softmax_with_sink": Equation(
        _lines(
            r"w_j &= \frac{e^{u_j}}{D}, \qquad w_{\mathrm{sink}} = \frac{e^{\mathrm{sink}}}{D}",
            r"D &= \sum_{j\ \text{visible}} e^{u_j} + e^{\mathrm{sink}}",
        )
    ),
    # attention
    "attention_weights": Equation(
        r"w_{h i j} = e^{u_{h i j} - \mathrm{lse}_{h i}}, \qquad u = c \tanh(s / c) + \mathrm{bias}"
        r" - \mathrm{alibi}_h\, |p_i - j|"
    ),
    "attention": Equation(
        _lines(
            r"\mathrm{out}_{h i} &= \sum_{j\ \text{visible}} w_{h i j}\, v_{g j}",
            r"\mathrm{lse}_{h i} &= \log\, D_{h i}",
        )
    ),
    "merge_attention": Equation(
        _lines(
            r"\mathrm{out} &= \frac{e^{\mathrm{lse}_a - m}\, \mathrm{out}_a + e^{\mathrm{lse}_b - m}\, \mathrm{out}_b}"
            r"{e^{\mathrm{lse}_a - m} + e^{\mathrm{lse}_b - m}}",
            r"\mathrm{lse} &= m + \log\,( e^{\mathrm{lse}_a - m} + e^{\mathrm{lse}_b - m} )",
            r"m &= \max(\mathrm{lse}_a, \mathrm{lse}_b)",
        )
    ),
    # attention_derivatives
    "attention_vjp": Equation(
        _lines(
            r"\bar{u} &= w \odot \bigl( g v^\top - \delta + \bar{\mathrm{lse}} \bigr),"
            r" \qquad \delta_i = \sum_j w_{i j} (g v^\top)_{i j}",
            r"\bar{s} &= \bar{u} \odot (1 - \tanh^2(s / c)), \quad \bar{q} = \frac{\bar{s}\, k}{\sqrt{d}},"
            r" \quad \bar{k} = \frac{\bar{s}^\top q}{\sqrt{d}}, \quad \bar{v} = w^\top g",
            r"\bar{\mathrm{sink}} &= \sum_i w_{\mathrm{sink}, i} \bigl( \bar{\mathrm{lse}}_i - \delta_i \bigr)",
        )
    ),
    "attention_jvp": Equation(
        _lines(
            r"\dot{u} &= \frac{\dot{q} k^\top + q \dot{k}^\top}{\sqrt{d}} \odot (1 - \tanh^2(s / c))"
            r" + \dot{\mathrm{bias}}",
            r"\dot{\mathrm{lse}} &= \sum_j w_j \dot{u}_j + w_{\mathrm{sink}}\, \dot{\mathrm{sink}}",
            r"\dot{\mathrm{out}} &= \sum_j w_j (\dot{u}_j - \dot{\mathrm{lse}})\, v_j + \sum_j w_j \dot{v}_j",
        )
    ),
    # attention_layer
    "attention_layer": Equation(
        _lines(
            r"q &= x W_Q + b_Q, \qquad k = \mathrm{context}\, W_K + b_K, \qquad v = \mathrm{context}\, W_V + b_V",
            r"\mathrm{out} &= [\mathrm{head}_0 \mid \mathrm{head}_1 \mid \dots]\, W_O + b_O,"
            r" \qquad \mathrm{head}_h = \operatorname{attention}(q_h, k_g, v_g)",
        )
    ),
    # latent
    "latent_attention": Equation(
        r"\mathrm{out}, \mathrm{lse} = \operatorname{attention}(q, \ell, \ell_{\,:c}),"
        r" \qquad s_{h i j} = \mathrm{scale} \sum_{c'} q_{h i c'}\, \ell_{j c'}"
    ),
    "latent_layer": Equation(
        r"\mathrm{out}_h = \operatorname{attention}(q_h,\; [\ell_{\,:c} W^{UK}_h, \ell_{\,c:}],\; \ell_{\,:c} W^{UV}_h)"
    ),
    # quantised
    "dequantised": Equation(
        r"x_{h i c} = a_{h i c}\, \sigma_{h i c} \quad\text{or}\quad x_{h i c} = a_{h i c} / \sigma_{h i c},"
        r" \qquad a_{h i c} \in \mathrm{grid},\; \sigma_{h i c} > 0"
    ),
    "quantised_attention": Equation(
        r"\mathrm{out}, \mathrm{lse} ="
        r" \operatorname{attention}(q \odot \sigma^q,\; k \odot \sigma^k,\; v \odot \sigma^v)"
    ),
    "quantised_packed_attention": Equation(
        r"(\mathrm{out}, \mathrm{lse})_{R_b} = \operatorname{attention}("
        r"q_{R_b} \odot \sigma^q_{R_b},\; k_{K_b} \odot \sigma^k_{K_b},\; v_{K_b} \odot \sigma^v_{K_b})"
    ),
    "quantised_paged_attention": Equation(
        r"(\mathrm{out}, \mathrm{lse})_b = \operatorname{attention}("
        r"q_b \odot \sigma^q_b,\; k_b \odot \sigma^k_b,\; v_b \odot \sigma^v_b)"
    ),
    # packed
    "packed_attention": Equation(
        _lines(
            r"(\mathrm{out}, \mathrm{lse})_{R_b} &= \operatorname{attention}(q_{R_b}, k_{K_b}, v_{K_b}),"
            r" \qquad p_i = i + |K_b| - |R_b|",
            r"R_b &= \{ \mathrm{cu}_b, \ldots, \mathrm{cu}_b + \mathrm{used}_b - 1 \}",
        )
    ),
    "packed_attention_vjp": Equation(
        r"(\bar{q}_{R_b}, \bar{k}_{K_b}, \bar{v}_{K_b}) = \operatorname{attention}'(q_{R_b}, k_{K_b}, v_{K_b})^\top"
        r" (g, \bar{\mathrm{lse}})_{R_b}, \qquad \bar{\mathrm{sink}} = \sum_b \bar{\mathrm{sink}}_b"
    ),
    # paged
    "paged_attention": Equation(
        _lines(
            r"(\mathrm{out}, \mathrm{lse})_b &= \operatorname{attention}(q_b, k_b, v_b),"
            r" \qquad p_i = i + \mathrm{length}_b - n_q",
            r"k_{b j} &= \mathrm{kPages}_{\mathrm{blockTable}_{b, \lfloor j / s \rfloor},\ j \bmod s},"
            r" \qquad j < \mathrm{length}_b",
        )
    ),
    # alibi
    "alibi_slopes": Equation(r"\mathrm{slope}_h = 2^{-8h/m}, \qquad h = 1, \ldots, m = 2^{\lfloor \log_2 n \rfloor}"),
    "alibi_bias": Equation(r"\mathrm{bias}_{h i j} = -\mathrm{slope}_h\, |i + \mathrm{offset} - j|"),
    "distance_bias": Equation(r"\mathrm{bias}_{h i j} = -\mathrm{slopes}_h\, |i + \mathrm{offset} - j|"),
    # relative_bias
    "relative_bucket": Equation(
        _lines(
            r"\operatorname{bucket}(n) &= n \quad (n < m),",
            r"\operatorname{bucket}(n) &= m + \min\Bigl( \Bigl\lfloor"
            r" \frac{\ln(n/m)}{\ln(\mathrm{maxDistance}/m)} (B - m) \Bigr\rfloor,\ B - m - 1 \Bigr) \quad (n \ge m)",
        )
    ),
    "relative_bias": Equation(
        r"\mathrm{bias}_{h i j} = \mathrm{table}_{\operatorname{bucket}(j - i - \mathrm{offset}),\, h}"
    ),
    "relative_position_index": Equation(
        r"\mathrm{index}_{i j} = (y_i - y_j + \mathrm{height} - 1)(2\,\mathrm{width} - 1)"
        r" + x_i - x_j + \mathrm{width} - 1, \quad"
        r" y_i = \lfloor i / \mathrm{width} \rfloor,\ x_i = i - \mathrm{width}\, y_i"
    ),
    # sequence_masks
    "document_mask": Equation(r"M_{i j} = (\mathrm{ids}^q_i = \mathrm{ids}^k_j)"),
    "prefix_mask": Equation(r"M_{i j} = (j \le i) \vee (j < \mathrm{prefix})"),
    "chunked_mask": Equation(
        r"M_{i j} = (j \le i) \wedge \left\lfloor \frac{\mathrm{start} + i}{\mathrm{chunk}} \right\rfloor"
        r" = \left\lfloor \frac{\mathrm{start} + j}{\mathrm{chunk}} \right\rfloor"
    ),
    "tree_mask": Equation(r"M_{i j} = (j = i) \vee M_{\mathrm{parents}_i\, j}"),
    "left_padding_mask": Equation(r"M_{b j} = (j \ge n - \mathrm{lengths}_b)"),
    "position_ids": Equation(
        _lines(
            r"\mathrm{position}_j &= \sum_{i \le j} \mathrm{mask}_i - 1 \quad (\mathrm{mask}_j = 1),",
            r"\mathrm{position}_j &= \mathrm{padding} \quad (\mathrm{mask}_j = 0)",
        )
    ),
    # rotary_frequencies, frequency_kinds, frequency_bands
    "rotary_frequencies": Equation(r"f_i = \mathrm{base}^{-2i/r}, \qquad \lambda_i = \frac{2\pi}{f_i}"),
    "default_frequencies": Equation(r"f_i = \mathrm{base}^{-2i/r}"),
    "linear_frequencies": Equation(r"f_i / s"),
    "dynamic_frequencies": Equation(
        r"\Bigl( \mathrm{base} \cdot \bigl( s L' / M - (s - 1) \bigr)^{r/(r-2)} \Bigr)^{-2i/r},"
        r" \qquad L' = \max(L, M)"
    ),
    "longrope_frequencies": Equation(
        r"\frac{f_i}{\mathrm{short}_i}\ \text{where}\ L \le M, \qquad \frac{f_i}{\mathrm{long}_i}\ \text{where}\ L > M"
    ),
    "proportional_frequencies": Equation(
        r"\frac{1}{s}\, \mathrm{base}^{-2i/\mathrm{headDim}}\ \text{for}"
        r"\ i < \Bigl\lfloor \mathrm{share} \cdot \frac{\mathrm{headDim}}{2} \Bigr\rfloor"
    ),
    "yarn_ramp": Equation(
        _lines(
            r"\mathrm{ramp}_i &= \min\Bigl( 1, \max\Bigl( 0,"
            r" \frac{i - \mathrm{low}}{\mathrm{high} - \mathrm{low}} \Bigr) \Bigr)",
            r"\mathrm{corr}(\rho) &= \frac{r\, \ln \frac{M}{2\pi\rho}}{2\, \ln \mathrm{base}}",
        )
    ),
    "yarn_mscale": Equation(r"m(s, x) = 0.1\, x\, \ln s + 1\ \text{for}\ s > 1"),
    "yarn_frequencies": Equation(r"f_i \Bigl( (1 - \mathrm{ramp}_i) + \frac{\mathrm{ramp}_i}{s} \Bigr)"),
    "llama3_frequencies": Equation(
        r"\Bigl( \frac{1 - z}{s} + z \Bigr) f_i, \qquad"
        r" z = \min\Bigl( 1, \max\Bigl( 0,"
        r" \frac{M / \lambda_i - \mathrm{low}}{\mathrm{high} - \mathrm{low}} \Bigr) \Bigr)"
    ),
    # rotary
    "rope": Equation(
        r"\begin{pmatrix} y_a \\ y_b \end{pmatrix} ="
        r" m \begin{pmatrix} \cos\,\theta & -\sin\,\theta \\ \sin\,\theta & \cos\,\theta \end{pmatrix}"
        r" \begin{pmatrix} x_a \\ x_b \end{pmatrix}, \qquad \theta = p f_i"
    ),
    "rotary_embedding": Equation(
        r"(y^q, y^k) = (\operatorname{rope}(q), \operatorname{rope}(k)), \qquad f_i ="
        r" \frac{\mathrm{invFreq}_i(\mathrm{kind})}{\mathrm{freqFactors}_i}"
    ),
    "mrope_axes": Equation(r"\mathrm{axis}_i \in \{ t, h, w \}, \qquad t + h + w = r/2"),
}
"""The equations of the extended definitions, by name."""
