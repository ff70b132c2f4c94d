"""Every refusal of the spec, by its whole sentence, as a user's program sees it: signatures are unchecked here."""

import flint
import mpmath
import numpy as np
import pytest

import spec
from spec import ARB, ARB_SERIES, FLOAT32, FLOAT64, MPF, REAL32, REAL64, SCALARS, corrected
from spec.activation import softmax_backward_spec, softmax_spec, softmax_vec_spec
from spec.attention import (
    AttentionContext,
    MultiHeadAttention,
    all_false_mask,
    all_true_mask,
    build_bc_proof,
    causal_mask,
    combine_heads_spec,
    concat_heads_spec,
    cross_attention,
    future_mask,
    hard_masked_softmax_spec,
    hard_masked_softmax_vec_spec,
    multi_head_attention_backward,
    multi_head_attention_jvp,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
    scaled_dot_product_attention_jvp,
    self_attention,
    softmax_backward_from_weights_spec,
    sparse_attention,
    split_heads_spec,
)
from spec.positional_encoding import (
    PositionalEncodingSpec,
    add_positional_encoding_backward_spec,
    add_positional_encoding_spec,
    add_sinusoidal_positional_encoding_spec,
    posenc_angle_spec,
    posenc_freq_denom_spec,
    rope_apply_heads_spec,
    rope_apply_spec,
    rope_cos_lastdim_spec,
    rope_rotate_pairs_lastdim_spec,
    rope_sin_lastdim_spec,
    sinusoidal_positional_encoding_spec,
)
from spec.scope import in_scope
from spec.tensor_core import BroadcastTo, derivative, nat, over, stack, tabulate, taylor, tensor, value
from spec.tensor_linalg import mat_mul_spec
from spec.tensor_ops import add_spec, div_spec, map2_spec, map_spec, mul_spec, scale_spec, sub_spec
from spec.tensor_reduction_shape import (
    concat_spec,
    mat_mul_backward_spec,
    matrix_transpose_spec,
    reshape_spec,
    sum_spec,
    swap_first_two_spec,
)

pytestmark = pytest.mark.usefixtures("unchecked")


def refused(error, sentence, call):
    with pytest.raises(error) as info:
        call()
    assert type(info.value) is error
    assert str(info.value) == sentence


def z(*shape):
    return np.zeros(shape)


def single(*shape):
    return np.zeros(shape, np.float32)


def mha(num_heads=1, head_dim=1, d_model=1, **others):
    width = num_heads * head_dim
    W = {"Wq": z(d_model, width), "Wk": z(d_model, width), "Wv": z(d_model, width), "Wo": z(width, d_model)} | others
    return MultiHeadAttention(**W, num_heads=num_heads, head_dim=head_dim)


def endless():
    values = []
    values.append(values)
    return values


CTX = AttentionContext(z(2, 3), z(4, 3), z(4, 3))

# -- Shapes ----------------------------------------------------------------------------------------

SHAPES = {
    "softmax of a matrix as a vector": (
        lambda: softmax_vec_spec(z(2, 2)),
        "t has shape (2, 2), but should have shape (n).",
    ),
    "a matrix product of a vector": (
        lambda: mat_mul_spec(z(2), z(2, 2)),
        "A has shape (2,), but should have shape (m, n).",
    ),
    "a matrix product with a vector": (
        lambda: mat_mul_spec(z(2, 2), z(2)),
        "B has shape (2,), but should have shape (n, p).",
    ),
    "a matrix product of unlike inner widths": (
        lambda: mat_mul_spec(z(2, 3), z(2, 3)),
        "B has shape (2, 3), but should have shape (3, 3): n is 3 in A.",
    ),
    "a cotangent that does not fit a product": (
        lambda: mat_mul_backward_spec(z(2, 3), z(3, 4), z(2, 5)),
        "dC has shape (2, 5), but should have shape (2, 4): p is 4 in B.",
    ),
    "addition of unlike shapes": (
        lambda: add_spec(z(2), z(1)),
        "b has shape (1,), but should have shape (2,), the shape of a: nothing broadcasts.",
    ),
    "subtraction of unlike shapes": (
        lambda: sub_spec(z(2), z()),
        "b has shape (), but should have shape (2,), the shape of a: nothing broadcasts.",
    ),
    "multiplication of unlike shapes": (
        lambda: mul_spec(z(2, 1), z(1, 2)),
        "b has shape (1, 2), but should have shape (2, 1), the shape of a: nothing broadcasts.",
    ),
    "division of unlike shapes": (
        lambda: div_spec(z(2), z(3)),
        "b has shape (3,), but should have shape (2,), the shape of a: nothing broadcasts.",
    ),
    "a function of a tensor and a mask of unlike shapes": (
        lambda: map2_spec(lambda x, _: x, z(2), np.ones(3, bool)),
        "b has shape (3,), but should have shape (2,), the shape of a: nothing broadcasts.",
    ),
    "a reshape that changes the number of entries": (
        lambda: reshape_spec(z(2, 3), (4,)),
        "t has shape (2, 3) and 6 entries, but shape (4,) has 4.",
    ),
    "the transpose of a vector": (
        lambda: matrix_transpose_spec(z(2)),
        "A has shape (2,), but should have shape (m, n).",
    ),
    "swapping the axes of a vector": (
        lambda: swap_first_two_spec(z(2)),
        "t has shape (2,), but should have shape (m, n, …).",
    ),
    "joining nothing without a shape": (
        lambda: concat_spec([], scalar=REAL64),
        "tensors is empty and shape=None, but shape=(n, d) should be given where there is no tensor to read it from.",
    ),
    "joining unlike shapes": (
        lambda: concat_spec([z(1, 2), z(2, 1)]),
        "tensors[1] has shape (2, 1), but should have shape (1, 2), the shape of tensors[0].",
    ),
    "joining vectors": (lambda: concat_spec([z(1)]), "tensors[0] has shape (1,), but should have shape (n, d)."),
    "joining what is not of the given shape": (
        lambda: concat_heads_spec([z(1, 2)], (1, 3)),
        "tensors[0] has shape (1, 2), but should have shape (1, 3).",
    ),
    "a positional encoding that is no matrix": (
        lambda: PositionalEncodingSpec(z(2)),
        "pos has shape (2,), but should have shape (seqLen, embedDim).",
    ),
    "a positional encoding of another length": (
        lambda: add_positional_encoding_spec(PositionalEncodingSpec(z(3, 2)), z(2, 2)),
        "x has shape (2, 2), but should have shape (3, 2), the shape of pe.pos.",
    ),
    "a sinusoidal encoding added to a vector": (
        lambda: add_sinusoidal_positional_encoding_spec(z(2)),
        "x has shape (2,), but should have shape (seqLen, embedDim).",
    ),
    "turning the pairs of a matrix": (
        lambda: rope_rotate_pairs_lastdim_spec(z(2, 2)),
        "x has shape (2, 2), but should have shape (headDim).",
    ),
    "rotating a vector": (lambda: rope_apply_spec(z(2)), "x has shape (2,), but should have shape (seqLen, headDim)."),
    "rotating the heads of a matrix": (
        lambda: rope_apply_heads_spec(z(2, 2)),
        "x has shape (2, 2), but should have shape (numHeads, seqLen, headDim).",
    ),
    "masked softmax of a matrix as a vector": (
        lambda: hard_masked_softmax_vec_spec(z(1, 1), np.ones((1, 1), bool)),
        "scores has shape (1, 1), but should have shape (n).",
    ),
    "masked softmax of a vector as a matrix": (
        lambda: hard_masked_softmax_spec(z(1), np.ones(1, bool)),
        "scores has shape (1,), but should have shape (nQ, nK).",
    ),
    "a mask that does not fit a row": (
        lambda: hard_masked_softmax_vec_spec(z(2), np.ones(1, bool)),
        "mask has shape (1,), but should have shape (2,), the shape of scores.",
    ),
    "a mask that does not fit the scores": (
        lambda: hard_masked_softmax_spec(z(2, 3), np.ones((3, 2), bool)),
        "mask has shape (3, 2), but should have shape (2, 3), the shape of scores.",
    ),
    "tangents that do not fit the weights": (
        lambda: softmax_backward_from_weights_spec(z(2), z(3)),
        "dWeights has shape (3,), but should have shape (2,), the shape of weights: nothing broadcasts.",
    ),
    "queries that are a vector": (
        lambda: AttentionContext(z(2), z(2, 2), z(2, 2)),
        "Q has shape (2,), but should have shape (nQ, dModel).",
    ),
    "keys that are a vector": (
        lambda: AttentionContext(z(2, 2), z(2), z(2, 2)),
        "K has shape (2,), but should have shape (nK, dModel).",
    ),
    "no query": (
        lambda: AttentionContext(z(0, 2), z(1, 2), z(1, 2)),
        "Q has shape (0, 2), but nQ should not be 0: attention needs at least one query.",
    ),
    "no key": (
        lambda: AttentionContext(z(1, 2), z(0, 2), z(0, 2)),
        "K has shape (0, 2), but nK should not be 0: attention needs at least one key.",
    ),
    "keys of another width": (
        lambda: AttentionContext(z(1, 2), z(1, 3), z(1, 3)),
        "K has shape (1, 3), but should have shape (1, 2): dModel is 2 in Q.",
    ),
    "values of another length": (
        lambda: AttentionContext(z(1, 2), z(2, 2), z(3, 2)),
        "V has shape (3, 2), but should have shape (2, 2), the shape of K.",
    ),
    "a mask that does not fit the context": (
        lambda: AttentionContext(z(1, 2), z(2, 2), z(2, 2), np.ones((2, 1), bool)),
        "mask has shape (2, 1), but should have shape (1, 2): nQ is 1 in Q, nK is 2 in K.",
    ),
    "the witness of other shapes": (
        lambda: AttentionContext(z(1, 2), z(2, 2), z(2, 2), bc_sum_to_target=build_bc_proof(2)),
        "bc_sum_to_target=BroadcastTo(source=(2,), target=(2, 2)), "
        "but should be BroadcastTo(source=(1,), target=(1, 2)).",
    ),
    "a witness that cannot be": (
        lambda: BroadcastTo((2,), (3, 3)),
        "A tensor of shape (2,) does not broadcast to shape (3, 3).",
    ),
    "a witness of too few axes": (
        lambda: BroadcastTo((2, 2), (2,)),
        "A tensor of shape (2, 2) does not broadcast to shape (2,).",
    ),
    "a cotangent that does not fit attention": (
        lambda: scaled_dot_product_attention_backward(CTX, z(4, 3)),
        "dOut has shape (4, 3), but should have shape (2, 3), the shape of ctx.Q.",
    ),
    "a tangent that does not fit Q": (
        lambda: scaled_dot_product_attention_jvp(CTX, z(4, 3), z(4, 3), z(4, 3)),
        "dQ has shape (4, 3), but should have shape (2, 3), the shape of ctx.Q.",
    ),
    "a tangent that does not fit K": (
        lambda: scaled_dot_product_attention_jvp(CTX, z(2, 3), z(2, 3), z(4, 3)),
        "dK has shape (2, 3), but should have shape (4, 3), the shape of ctx.K.",
    ),
    "a tangent that does not fit V": (
        lambda: scaled_dot_product_attention_jvp(CTX, z(2, 3), z(4, 3), z(2, 3)),
        "dV has shape (2, 3), but should have shape (4, 3), the shape of ctx.K.",
    ),
    "a projection that is a vector": (
        lambda: mha(Wq=z(1)),
        "Wq has shape (1,), but should have shape (dModel, num_heads·head_dim).",
    ),
    "a query projection of another width": (
        lambda: mha(2, 2, Wq=z(1, 3)),
        "Wq has shape (1, 3), but should have shape (1, 4): num_heads·head_dim is 2·2.",
    ),
    "a key projection of another width": (
        lambda: mha(2, 2, Wk=z(1, 3)),
        "Wk has shape (1, 3), but should have shape (1, 4), the shape of Wq.",
    ),
    "a value projection of another width": (
        lambda: mha(2, 2, Wv=z(2, 4)),
        "Wv has shape (2, 4), but should have shape (1, 4), the shape of Wq.",
    ),
    "an output projection that is not turned": (
        lambda: mha(2, 2, Wo=z(1, 4)),
        "Wo has shape (1, 4), but should have shape (4, 1): num_heads·head_dim is 2·2, dModel is 1 in Wq.",
    ),
    "an input that is a vector": (lambda: mha().forward(z(1)), "x has shape (1,), but should have shape (n, dModel)."),
    "an input of another width": (
        lambda: mha().forward(z(2, 3)),
        "x has shape (2, 3), but should have shape (2, 1): dModel is 1 in self.Wq.",
    ),
    "multi-head attention of no token": (
        lambda: mha().forward(z(0, 1)),
        "x has shape (0, 1), but n should not be 0: attention needs at least one query.",
    ),
    "a mask that does not fit multi-head attention": (
        lambda: mha().forward(z(2, 1), np.ones((2, 1), bool)),
        "mask has shape (2, 1), but should have shape (2, 2): n is 2 in x.",
    ),
    "a mask that does not fit multi-head attention without heads": (
        lambda: mha(0).forward(z(2, 1), np.ones((2, 1), bool)),
        "mask has shape (2, 1), but should have shape (2, 2): n is 2 in x.",
    ),
    "a cotangent that does not fit multi-head attention": (
        lambda: multi_head_attention_backward(mha(), z(2, 1), None, z(1, 2)),
        "grad_output has shape (1, 2), but should have shape (2, 1), the shape of x.",
    ),
    "a tangent that does not fit multi-head attention": (
        lambda: multi_head_attention_jvp(mha(), mha(), z(2, 1), z(3, 1)),
        "dx has shape (3, 1), but should have shape (2, 1), the shape of x.",
    ),
    "tangents of differently split parameters": (
        lambda: multi_head_attention_jvp(mha(2, 1), mha(1, 2), z(1, 1), z(1, 1)),
        "dmha.num_heads=1, but should be 2, as mha.num_heads.",
    ),
    "a width that is not heads times head width": (
        lambda: split_heads_spec(z(2, 5), 2, 2),
        "x has shape (2, 5), but should have shape (2, 4): num_heads·head_dim is 2·2.",
    ),
    "splitting a vector": (
        lambda: split_heads_spec(z(4), 2, 2),
        "x has shape (4,), but should have shape (n, num_heads·head_dim).",
    ),
    "combining a matrix": (
        lambda: combine_heads_spec(z(2, 2)),
        "heads has shape (2, 2), but should have shape (numHeads, n, headDim).",
    ),
    "self-attention of no token": (
        lambda: self_attention(z(0, 1), z(1, 2), z(1, 2), z(1, 2), z(2, 1)),
        "x has shape (0, 1), but n should not be 0: attention needs at least one query.",
    ),
    "cross-attention to no token": (
        lambda: cross_attention(z(1, 1), z(0, 1), z(0, 1), z(1, 2), z(1, 2), z(1, 2), z(2, 1)),
        "key has shape (0, 1), but n2 should not be 0: attention needs at least one key.",
    ),
    "a sparsity pattern of another size": (
        lambda: sparse_attention(z(2, 1), np.ones((1, 1), bool), z(1, 1), z(1, 1), z(1, 1), z(1, 1)),
        "sparsity_pattern has shape (1, 1), but should have shape (2, 2): n is 2 in x.",
    ),
    "a direction of another shape": (
        lambda: taylor(z(2), z(3)),
        "direction has shape (3,), but should have the shape (2,) of values.",
    ),
    "ragged rows": (
        lambda: tensor([[1], [2, 3]], REAL64),
        "values has rows of shapes [(1,), (2,)], but all rows should have one shape.",
    ),
    "a number among rows": (
        lambda: tensor([[1], 2], ARB),
        "values has rows of shapes [(), (1,)], but all rows should have one shape.",
    ),
    "a cotangent that does not fit a learned encoding": (
        lambda: add_positional_encoding_backward_spec(PositionalEncodingSpec(z(3, 2)), z(2, 2)),
        "grad_output has shape (2, 2), but should have shape (3, 2), the shape of pe.pos.",
    ),
    "joining by a shape of one axis": (lambda: concat_spec([], (2,), REAL64), "shape=(2,), but should be (n, d)."),
    "slices of another shape": (
        lambda: stack((2, 3), lambda i: z(1), REAL64),
        "part(0) has shape (1,), but should have shape (3,), the tail of shape.",
    ),
    "lists without end": (
        lambda: tensor(endless(), REAL64),
        "values is nested more than 64 deep, but a tensor has at most 64 axes.",
    ),
    "a corrected split of a width that is not heads times head width": (
        lambda: corrected.split_heads(z(2, 6), 2, 2),
        "x has shape (2, 6), but should have shape (2, 4): num_heads·head_dim is 2·2.",
    ),
    "a mask that does not fit a corrected row": (
        lambda: corrected.hard_masked_softmax_vec(z(2), np.ones(1, bool)),
        "mask has shape (1,), but should have shape (2,), the shape of scores.",
    ),
    "a mask that does not fit corrected scores": (
        lambda: corrected.hard_masked_softmax(z(2, 3), np.ones((2, 4), bool)),
        "mask has shape (2, 4), but should have shape (2, 3), the shape of scores.",
    ),
    "a cotangent that does not fit corrected attention": (
        lambda: corrected.scaled_dot_product_attention_backward(CTX, z(4, 3)),
        "dOut has shape (4, 3), but should have shape (2, 3), the shape of ctx.Q.",
    ),
    "a tangent that does not fit corrected attention": (
        lambda: corrected.scaled_dot_product_attention_jvp(CTX, z(2, 3), z(4, 3), z(2, 3)),
        "dV has shape (2, 3), but should have shape (4, 3), the shape of ctx.K.",
    ),
    "an input of another width to no corrected heads": (
        lambda: corrected.multi_head_attention_forward(mha(0), z(2, 3)),
        "x has shape (2, 3), but should have shape (2, 1): dModel is 1 in mha.Wq.",
    ),
    "a cotangent of another shape to no corrected heads": (
        lambda: corrected.multi_head_attention_backward(mha(0), z(2, 1), None, z(2, 3)),
        "grad_output has shape (2, 3), but should have shape (2, 1), the shape of x.",
    ),
    "a tangent of another shape to no corrected heads": (
        lambda: corrected.multi_head_attention_jvp(mha(0), mha(0), z(2, 1), z(1, 1)),
        "dx has shape (1, 1), but should have shape (2, 1), the shape of x.",
    ),
    "a softmax backward of unlike shapes": (
        lambda: softmax_backward_spec(z(2), z(3)),
        "dY has shape (3,), but should have shape (2,), the shape of x: nothing broadcasts.",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shapes_that_do_not_fit_are_refused(case):
    call, sentence = SHAPES[case]
    refused(ValueError, sentence, call)


# -- Natural numbers -------------------------------------------------------------------------------

NATURALS = {
    "all_true_mask nQ": ("nQ", lambda n: all_true_mask(n, 1)),
    "all_true_mask nK": ("nK", lambda n: all_true_mask(1, n)),
    "all_false_mask nQ": ("nQ", lambda n: all_false_mask(n, 1)),
    "all_false_mask nK": ("nK", lambda n: all_false_mask(1, n)),
    "causal_mask": ("n", causal_mask),
    "future_mask": ("n", future_mask),
    "build_bc_proof": ("n", build_bc_proof),
    "posenc_freq_denom_spec i": ("i", lambda n: posenc_freq_denom_spec(n, 2, REAL64)),
    "posenc_freq_denom_spec d": ("d", lambda n: posenc_freq_denom_spec(0, n, REAL64)),
    "posenc_angle_spec pos": ("pos", lambda n: posenc_angle_spec(n, 0, 2, REAL64)),
    "posenc_angle_spec i": ("i", lambda n: posenc_angle_spec(0, n, 2, REAL64)),
    "posenc_angle_spec d": ("d", lambda n: posenc_angle_spec(0, 0, n, REAL64)),
    "sinusoidal_positional_encoding_spec seq_len": (
        "seq_len",
        lambda n: sinusoidal_positional_encoding_spec(n, 2, 0, REAL64),
    ),
    "sinusoidal_positional_encoding_spec embed_dim": (
        "embed_dim",
        lambda n: sinusoidal_positional_encoding_spec(1, n, 0, REAL64),
    ),
    "sinusoidal_positional_encoding_spec start_pos": (
        "start_pos",
        lambda n: sinusoidal_positional_encoding_spec(1, 2, n, REAL64),
    ),
    "add_sinusoidal_positional_encoding_spec": (
        "start_pos",
        lambda n: add_sinusoidal_positional_encoding_spec(z(1, 2), n),
    ),
    "rope_cos_lastdim_spec pos": ("pos", lambda n: rope_cos_lastdim_spec(n, 2, REAL64)),
    "rope_cos_lastdim_spec head_dim": ("head_dim", lambda n: rope_cos_lastdim_spec(0, n, REAL64)),
    "rope_sin_lastdim_spec pos": ("pos", lambda n: rope_sin_lastdim_spec(n, 2, REAL64)),
    "rope_sin_lastdim_spec head_dim": ("head_dim", lambda n: rope_sin_lastdim_spec(0, n, REAL64)),
    "rope_apply_spec": ("start_pos", lambda n: rope_apply_spec(z(1, 2), n)),
    "rope_apply_heads_spec": ("start_pos", lambda n: rope_apply_heads_spec(z(1, 1, 2), n)),
    "rope_cos_lastdim_spec pos of no width": ("pos", lambda n: rope_cos_lastdim_spec(n, 0, REAL64)),
    "rope_sin_lastdim_spec pos of no width": ("pos", lambda n: rope_sin_lastdim_spec(n, 0, REAL64)),
    "rope_apply_heads_spec of no heads": ("start_pos", lambda n: rope_apply_heads_spec(z(0, 1, 2), n)),
    "corrected.split_heads num_heads": ("num_heads", lambda n: corrected.split_heads(z(1, 2), n, 2)),
    "split_heads_spec num_heads": ("num_heads", lambda n: split_heads_spec(z(1, 2), n, 2)),
    "split_heads_spec head_dim": ("head_dim", lambda n: split_heads_spec(z(1, 2), 2, n)),
    "MultiHeadAttention num_heads": (
        "num_heads",
        lambda n: MultiHeadAttention(z(1, 1), z(1, 1), z(1, 1), z(1, 1), n, 1),
    ),
    "MultiHeadAttention head_dim": ("head_dim", lambda n: MultiHeadAttention(z(1, 1), z(1, 1), z(1, 1), z(1, 1), 1, n)),
    "nat": ("count", lambda n: nat(n, "count")),
}


@pytest.mark.parametrize("case", NATURALS)
def test_a_natural_number_is_not_negative(case):
    name, call = NATURALS[case]
    refused(ValueError, f"{name}=-1, but should be a natural number.", lambda: call(-1))
    refused(ValueError, f"{name}=-2, but should be a natural number.", lambda: call(np.int64(-2)))


@pytest.mark.parametrize("case", NATURALS)
def test_a_natural_number_is_no_boolean_float_or_string(case):
    name, call = NATURALS[case]
    refused(TypeError, f"{name}=True is a bool, but should be a natural number.", lambda: call(True))
    refused(TypeError, f"{name}=np.True_ is a bool, but should be a natural number.", lambda: call(np.True_))
    refused(TypeError, f"{name}=1.0 is a float, but should be a natural number.", lambda: call(1.0))
    refused(TypeError, f"{name}='1' is a str, but should be a natural number.", lambda: call("1"))
    refused(TypeError, f"{name}=None is a NoneType, but should be a natural number.", lambda: call(None))


def test_numpy_integers_are_natural_numbers():
    assert causal_mask(np.int8(2)).tolist() == causal_mask(2).tolist()
    assert type(nat(np.uint64(3), "n")) is int


POSITIONS = {
    "posenc_angle_spec": lambda n, alpha: posenc_angle_spec(n, 0, 2, alpha),
    "sinusoidal_positional_encoding_spec": lambda n, alpha: sinusoidal_positional_encoding_spec(1, 2, n, alpha),
    "rope_cos_lastdim_spec": lambda n, alpha: rope_cos_lastdim_spec(n, 2, alpha),
    "rope_apply_spec": lambda n, alpha: rope_apply_spec(tensor([[0, 0]], alpha), n, alpha),
}


@pytest.mark.parametrize("case", POSITIONS)
@pytest.mark.parametrize(
    ("alpha", "n"),
    [(REAL64, 10**400), (FLOAT64, 10**309), (REAL32, 10**60), (FLOAT32, 10**39)],
    ids=["REAL64", "FLOAT64", "REAL32", "FLOAT32"],
)
def test_a_position_beyond_the_largest_number_is_refused(case, alpha, n):
    largest = np.finfo(alpha.element).max
    refused(
        ValueError,
        f"{n} is not a number of {alpha!r}: the largest one is {largest!r}.",
        lambda: POSITIONS[case](n, alpha),
    )


@pytest.mark.parametrize("case", POSITIONS)
def test_a_position_beyond_every_float_is_a_position_over_balls(case):
    result = POSITIONS[case](10**400, ARB)
    assert not isinstance(result, np.ndarray) or all(entry.overlaps(flint.arb(0, 1)) for entry in result.flat)


# -- Structures ------------------------------------------------------------------------------------

CONTEXTS = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "scaled_dot_product_attention_backward": lambda ctx: scaled_dot_product_attention_backward(ctx, z(2, 3)),
    "scaled_dot_product_attention_jvp": lambda ctx: scaled_dot_product_attention_jvp(ctx, z(2, 3), z(4, 3), z(4, 3)),
    "corrected.scaled_dot_product_attention": corrected.scaled_dot_product_attention,
    "corrected.scaled_dot_product_attention_backward": lambda ctx: corrected.scaled_dot_product_attention_backward(
        ctx, z(2, 3)
    ),
    "corrected.scaled_dot_product_attention_jvp": lambda ctx: corrected.scaled_dot_product_attention_jvp(
        ctx, z(2, 3), z(4, 3), z(4, 3)
    ),
}
PARAMETERS = {
    "multi_head_attention_backward": lambda mha: multi_head_attention_backward(mha, z(2, 1), None, z(2, 1)),
    "multi_head_attention_jvp": lambda given: multi_head_attention_jvp(given, mha(), z(2, 1), z(2, 1)),
    "corrected.multi_head_attention_forward": lambda mha: corrected.multi_head_attention_forward(mha, z(2, 1)),
    "corrected.multi_head_attention_backward": lambda mha: corrected.multi_head_attention_backward(
        mha, z(2, 1), None, z(2, 1)
    ),
    "corrected.multi_head_attention_jvp": lambda given: corrected.multi_head_attention_jvp(
        given, mha(), z(2, 1), z(2, 1)
    ),
}
STRUCTURES = {name: ("ctx", "AttentionContext", call) for name, call in CONTEXTS.items()}
STRUCTURES |= {name: ("mha", "MultiHeadAttention", call) for name, call in PARAMETERS.items()}
STRUCTURES |= {
    "tangents": ("dmha", "MultiHeadAttention", lambda given: multi_head_attention_jvp(mha(), given, z(2, 1), z(2, 1))),
    "corrected tangents": (
        "dmha",
        "MultiHeadAttention",
        lambda given: corrected.multi_head_attention_jvp(mha(), given, z(2, 1), z(2, 1)),
    ),
    "add_positional_encoding_spec": (
        "pe",
        "PositionalEncodingSpec",
        lambda pe: add_positional_encoding_spec(pe, z(1, 1)),
    ),
    "add_positional_encoding_backward_spec": (
        "pe",
        "PositionalEncodingSpec",
        lambda pe: add_positional_encoding_backward_spec(pe, z(1, 1)),
    ),
    "bc_sum_to_target": (
        "bc_sum_to_target",
        "BroadcastTo",
        lambda w: AttentionContext(z(1, 1), z(1, 1), z(1, 1), bc_sum_to_target=w),
    ),
    "concat_spec": ("tensors", "Sequence", concat_spec),
}


@pytest.mark.parametrize("case", STRUCTURES)
@pytest.mark.parametrize("given", [z(1, 1), 0], ids=["array", "0"])
def test_what_is_no_structure_is_refused(case, given):
    name, structure, call = STRUCTURES[case]
    refused(
        TypeError, f"{name} is of type {type(given).__name__}, but should be of type {structure}.", lambda: call(given)
    )


def test_the_cotangents_of_a_learned_encoding_share_no_memory():
    g = z(1, 2)
    grad_pos, grad_x = add_positional_encoding_backward_spec(PositionalEncodingSpec(z(1, 2)), g)
    grad_pos += 1
    assert grad_x.tolist() == g.tolist() == [[0, 0]]


# -- Calls -----------------------------------------------------------------------------------------


def test_what_does_not_fit_the_parameters_is_refused_as_python_does():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'B'"):
        mat_mul_spec(z(1, 1))
    with pytest.raises(TypeError, match="got multiple values for argument 'A'"):
        mat_mul_spec(z(1, 1), z(1, 1), A=z(1, 1))
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 4 were given"):
        mat_mul_spec(z(1, 1), z(1, 1), REAL64, None)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'C'"):
        mat_mul_spec(z(1, 1), z(1, 1), C=z(1, 1))


def test_a_method_is_called_on_its_structure():
    refused(
        TypeError,
        "self is of type int, but should be of type MultiHeadAttention.",
        lambda: MultiHeadAttention.forward(0, z(1, 1)),
    )


def test_a_definition_that_is_called_by_another_runs_over_the_same_scalar():
    row = z(1), np.array([False])
    assert map_spec(lambda x: hard_masked_softmax_vec_spec(*row)[0] + x, z(1), REAL64).tolist() == [0.0]
    assert np.isnan(map_spec(lambda x: hard_masked_softmax_vec_spec(*row)[0] + x, z(1), FLOAT64)).all()


def test_a_refusal_leaves_no_scalar_behind():
    refused(
        ValueError,
        "B has shape (3, 1), but should have shape (2, 1): n is 2 in A.",
        lambda: map_spec(_unfit, z(1), FLOAT64),
    )
    assert in_scope() is None


def _unfit(x):
    return mat_mul_spec(z(1, 2), z(3, 1))[0, 0]


# -- Series ----------------------------------------------------------------------------------------


@pytest.fixture
def capped():
    """flint cuts every series below its first-order term, which then reads as an exact 0."""
    cap, flint.ctx.cap = flint.ctx.cap, 1
    yield
    flint.ctx.cap = cap


CAP = "flint.ctx.cap=1, but should be at least 2: a derivative is the second term of a series."
X = taylor(z(1) + 3, z(1) + 1)


@pytest.mark.usefixtures("capped")
def test_a_series_without_a_first_order_term_has_no_derivative():
    sentence = (
        "t[0]=9.00000000000000 + O(x^1) is known to order 1, but should be known to order 2: was flint.ctx.cap below 2?"
    )
    cut = X * X
    refused(ValueError, sentence, lambda: derivative(cut))
    refused(ValueError, sentence, lambda: value(cut))
    refused(ValueError, CAP, lambda: taylor(z(1), z(1)))
    refused(ValueError, CAP, lambda: tensor([1.0], ARB_SERIES))
    refused(ValueError, CAP, lambda: ARB_SERIES.one)


def test_a_division_by_zero_does_not_restore_a_term_that_was_cut():
    quotient = ARB_SERIES.div(X[0], flint.arb_series([0], 1))
    assert quotient[0] == 0
    assert not quotient[1].is_finite()


@pytest.mark.parametrize("function", [value, derivative])
def test_only_series_have_a_value_and_a_derivative(function):
    refused(
        TypeError,
        "t[0] is of type float64, but should be an arb_series: build t with spec.taylor.",
        lambda: function(z(1)),
    )
    refused(
        TypeError,
        "t[0] is of type arb, but should be an arb_series: build t with spec.taylor.",
        lambda: function(tensor([1.0], ARB)),
    )
    refused(TypeError, listed("t"), lambda: function([1.0]))


# -- Scalars ---------------------------------------------------------------------------------------


def listed(name):
    return f"{name} is a list, but should be a numpy.ndarray: build one with spec.tensor(values, scalar)."


LISTS = {
    "softmax_spec": ("t", lambda: softmax_spec([1.0])),
    "sum_spec": ("t", lambda: sum_spec([1.0])),
    "mat_mul_spec": ("A", lambda: mat_mul_spec([[1.0]], z(1, 1))),
    "add_spec": ("b", lambda: add_spec(z(1), [1.0])),
    "map_spec": ("t", lambda: map_spec(abs, [1.0])),
    "scale_spec": ("t", lambda: scale_spec([1.0], 2.0)),
    "concat_spec": ("tensors[0]", lambda: concat_spec([[1.0]])),
    "taylor values": ("values", lambda: taylor([1.0], [1.0])),
    "taylor direction": ("direction", lambda: taylor(z(1), [1.0])),
    "stack": ("part(0)", lambda: stack((1,), lambda i: [1.0], REAL64)),
    "AttentionContext": ("V", lambda: AttentionContext(z(1, 1), z(1, 1), [[1.0]])),
    "MultiHeadAttention": ("Wk", lambda: mha(Wk=[[1.0]])),
    "MultiHeadAttention.forward": ("x", lambda: mha().forward([[1.0]])),
    "PositionalEncodingSpec": ("pos", lambda: PositionalEncodingSpec([[1.0]])),
    "rope_apply_spec": ("x", lambda: rope_apply_spec([[1.0]])),
    "add_positional_encoding_backward_spec": (
        "grad_output",
        lambda: add_positional_encoding_backward_spec(PositionalEncodingSpec(z(1, 1)), [[1.0]]),
    ),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_list_is_no_tensor(case):
    name, call = LISTS[case]
    refused(TypeError, listed(name), call)


@pytest.mark.parametrize(
    "mask",
    [[True], np.ones((1, 1), bool).view(np.matrix), np.ones(1), np.ones(1, np.int64), None],
    ids=["list", "matrix", "float64", "int64", "None"],
)
def test_a_mask_holds_booleans(mask):
    found = f"holds {mask.dtype}" if type(mask) is np.ndarray else f"is a {type(mask).__name__}"
    sentence = f"mask {found}, but should be a numpy.ndarray of bool."
    refused(TypeError, sentence, lambda: hard_masked_softmax_vec_spec(z(1), mask))
    if mask is not None:
        refused(TypeError, sentence, lambda: AttentionContext(z(1, 1), z(1, 1), z(1, 1), mask))
        refused(TypeError, sentence, lambda: mha(0).forward(z(1, 1), mask))


@pytest.mark.parametrize("element", ["int64", "bool", "float16", "complex128"])
def test_elements_of_no_scalar_are_refused(element):
    sentence = (
        f"t holds {'bool' if element == 'bool' else element} elements, "
        "but should hold float64, float32, mpf, arb or arb_series: "
        "build it with spec.tensor(values, scalar)."
    )
    refused(TypeError, sentence, lambda: softmax_spec(np.ones(1, element)))


def test_objects_of_no_scalar_are_refused():
    sentence = (
        "x holds str elements, but should hold float64, float32, mpf, arb or arb_series: "
        "build it with spec.tensor(values, scalar)."
    )
    refused(TypeError, sentence, lambda: rope_apply_spec(np.array([["a"]], object)))


def test_an_empty_object_tensor_names_no_scalar():
    sentence = "scalar=None, but should be given: there is no element to infer it from."
    refused(TypeError, sentence, lambda: softmax_spec(np.empty((0,), object)))
    refused(TypeError, sentence, lambda: sinusoidal_positional_encoding_spec(1, 2))
    refused(TypeError, sentence, lambda: posenc_angle_spec(1, 0, 2))
    refused(TypeError, sentence, lambda: rope_cos_lastdim_spec(1, 2))
    refused(TypeError, sentence, lambda: concat_heads_spec([], (1, 2)))
    assert softmax_spec(np.empty((0,), object), ARB).shape == (0,)


def test_an_empty_object_tensor_beside_a_full_one_is_over_the_same_scalar():
    assert mat_mul_spec(tensor(np.empty((1, 0)), ARB), tensor(np.empty((0, 1)), ARB), ARB).item() == 0
    alpha, _, _ = over(None, a=np.empty((0,), object), b=tensor([1], MPF))
    assert alpha is MPF


@pytest.mark.parametrize("scalar", ["ARB", np.float64, 64, False], ids=repr)
def test_what_is_no_scalar_is_refused(scalar):
    sentence = f"scalar={scalar!r}, but should be one of spec.SCALARS."
    refused(TypeError, sentence, lambda: softmax_spec(z(1), scalar))
    refused(TypeError, sentence, lambda: tensor([1.0], scalar))
    refused(TypeError, sentence, lambda: scaled_dot_product_attention(CTX, scalar))
    refused(TypeError, sentence, lambda: mha().forward(z(1, 1), None, scalar))
    refused(TypeError, sentence, lambda: add_positional_encoding_spec(PositionalEncodingSpec(z(1, 1)), z(1, 1), scalar))


def test_a_tensor_is_over_a_scalar():
    refused(TypeError, "scalar=None, but should be one of spec.SCALARS.", lambda: tensor([1.0], None))


def test_tensors_over_different_scalars_are_refused():
    refused(
        TypeError,
        "The tensors are a over REAL64, b over REAL32, but should all be over one scalar.",
        lambda: add_spec(z(1), single(1)),
    )
    refused(
        TypeError,
        "The tensors are Q over REAL64, K over ARB, V over MPF, but should all be over one scalar.",
        lambda: AttentionContext(z(1, 1), tensor([[0]], ARB), tensor([[0]], MPF)),
    )
    refused(
        TypeError,
        "The tensors are Wq over REAL64, Wk over REAL64, Wv over REAL64, Wo over REAL32, "
        "but should all be over one scalar.",
        lambda: mha(Wo=single(1, 1)),
    )
    refused(
        TypeError,
        "The tensors are A over ARB, B over ARB_SERIES, but should all be over one scalar.",
        lambda: mat_mul_spec(tensor([[0]], ARB), tensor([[0]], ARB_SERIES)),
    )


def test_a_given_scalar_takes_tensors_over_any_scalar_that_it_extends():
    assert add_spec(z(1), single(1), REAL64).dtype == np.float64
    assert add_spec(z(1), single(1), ARB).tolist() == [flint.arb(0)]


def test_a_subclass_of_ndarray_is_no_tensor():
    """A numpy.matrix keeps two axes when it is indexed, and a masked array hides entries."""
    for given in (z(2, 2).view(np.matrix), np.ma.masked_array(z(2), [True, False])):
        should = "but should be a numpy.ndarray: build one with spec.tensor(values, scalar)."
        refused(TypeError, f"t is a {type(given).__name__}, {should}", lambda given=given: softmax_spec(given))
        refused(TypeError, f"values is a {type(given).__name__}, {should}", lambda given=given: tensor(given, REAL64))
        refused(
            TypeError,
            f"mask is a {type(given).__name__}, but should be a numpy.ndarray of bool.",
            lambda given=given: corrected.hard_masked_softmax(z(2, 2), given),
        )


def test_a_factor_is_a_number_of_the_tensors_scalar():
    refused(
        TypeError,
        f"[1e+0 +/- 0.501] has type arb, {REAL} REAL64 can hold.",
        lambda: scale_spec(z(1), flint.arb(1, 0.5)),
    )
    inexact = "np.float64(0.1) is not a number of REAL32: the nearest one is np.float32(0.1)."
    refused(ValueError, inexact, lambda: scale_spec(single(1), np.float64(0.1)))
    assert scale_spec(single(1), np.float64(0.5)).dtype == np.float32
    assert scale_spec(tensor([2], ARB), 0.5).item() == 1


def test_an_entry_is_neither_rounded_nor_stripped_of_its_radius():
    refused(
        TypeError,
        f"[1e+0 +/- 0.501] has type arb, {REAL} REAL64 can hold.",
        lambda: tabulate((1,), lambda i: flint.arb(1, 0.5), REAL64),
    )
    inexact = "np.float64(0.1) is not a number of REAL32: the nearest one is np.float32(0.1)."
    refused(ValueError, inexact, lambda: tabulate((1,), lambda i: np.float64(0.1), REAL32))
    refused(ValueError, inexact, lambda: stack((1, 1), lambda i: z(1) + 0.1, REAL32))
    refused(ValueError, inexact, lambda: map_spec(lambda x: np.float64(0.1), single(1)))
    refused(TypeError, "1 is of type int, but should be a boolean.", lambda: tabulate((1,), lambda i: 1, bool))
    assert tabulate((1,), lambda i: 0.5, ARB).tolist() == [flint.arb(0.5)]


REAL = "but should be a real number that"
BIG = 10**400
INEXACT = {
    "a third of the precision": (
        FLOAT32,
        0.1,
        ValueError,
        "0.1 is not a number of FLOAT32: the nearest one is np.float32(0.1).",
    ),
    "a float64 over REAL32": (
        REAL32,
        np.float64(0.1),
        ValueError,
        "np.float64(0.1) is not a number of REAL32: the nearest one is np.float32(0.1).",
    ),
    "beyond binary32": (
        REAL32,
        1e39,
        ValueError,
        "1e+39 is not a number of REAL32: the nearest one is np.float32(inf).",
    ),
    "an odd integer beyond 2^53": (
        REAL64,
        2**53 + 1,
        ValueError,
        "9007199254740993 is not a number of REAL64: the nearest one is np.float64(9007199254740992.0).",
    ),
    "a NumPy integer beyond 2^53": (
        FLOAT64,
        np.int64(2**53 + 1),
        ValueError,
        "9007199254740993 is not a number of FLOAT64: the nearest one is np.float64(9007199254740992.0).",
    ),
    "an integer beyond binary64": (
        REAL64,
        BIG,
        ValueError,
        f"{BIG} is not a number of REAL64: the nearest one is np.float64(inf).",
    ),
    "a negative one": (
        REAL64,
        -BIG,
        ValueError,
        f"{-BIG} is not a number of REAL64: the nearest one is np.float64(-inf).",
    ),
    "an integer beyond mpmath's precision": (
        MPF,
        2**53 + 1,
        ValueError,
        "9007199254740993 is not a number of MPF at 53 bits: the nearest one is mpf('9007199254740992.0').",
    ),
    "a boolean over REAL64": (REAL64, True, TypeError, f"True has type bool, {REAL} REAL64 can hold."),
    "a boolean over MPF": (MPF, True, TypeError, f"True has type bool, {REAL} MPF can hold."),
    "a boolean over ARB": (ARB, np.True_, TypeError, f"np.True_ has type bool, {REAL} ARB can hold."),
    "a string": (REAL64, "1", TypeError, f"'1' has type str, {REAL} REAL64 can hold."),
    "nothing": (ARB_SERIES, None, TypeError, f"None has type NoneType, {REAL} ARB can hold."),
    "a complex number": (MPF, 1j, TypeError, f"1j has type complex, {REAL} MPF can hold."),
    "a ball over REAL64": (REAL64, flint.arb(1), TypeError, f"1.00000000000000 has type arb, {REAL} REAL64 can hold."),
    "an mpf over ARB": (ARB, mpmath.mpf(1), TypeError, f"mpf('1.0') has type mpf, {REAL} ARB can hold."),
}


@pytest.mark.parametrize("case", INEXACT)
def test_what_a_scalar_cannot_hold_is_refused(case):
    alpha, given, error, sentence = INEXACT[case]
    refused(error, sentence, lambda: alpha.lift(given))
    refused(error, sentence, lambda: tensor([[given]], alpha))


def test_a_float_beyond_mpmaths_precision_is_refused():
    with mpmath.workprec(20):
        refused(
            ValueError,
            f"0.1 is not a number of MPF at 20 bits: the nearest one is {mpmath.mpf(0.1)!r}.",
            lambda: MPF.lift(0.1),
        )


@pytest.mark.parametrize("alpha", SCALARS, ids=repr)
def test_what_a_scalar_can_hold_is_kept_exactly(alpha):
    for given in (0, -3, 0.5, np.float32(0.25), np.float64(-0.75), np.float16(1.5), np.int8(7), np.uint64(2**20)):
        kept = alpha.lift(given)
        assert type(kept) is alpha.element
        assert (kept[0] if alpha is ARB_SERIES else kept) == float(given)


def test_results_are_over_the_scalar_of_the_context():
    ctx = AttentionContext(z(1, 1), z(1, 1), z(1, 1), all_false_mask(1, 1), scalar=FLOAT64)
    assert np.isnan(scaled_dot_product_attention(ctx)).all()
    assert not np.isnan(scaled_dot_product_attention(ctx, REAL64)).any()
    assert spec.tensor([0.5], FLOAT32).dtype == np.float32
