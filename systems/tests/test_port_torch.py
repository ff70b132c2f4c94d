"""PyTorch takes the intended paths, wrong calls break the laws, and declared sizes are refused."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from properties.laws import find
from properties.verifier.verify import examine
from systems import torch_attention, torch_compiled, torch_encoder_layer, torch_flex, torch_multi_head
from systems.attention_arguments import Projections, with_projections

SDPA, HEADS = "scaled_dot_product_attention", "multi_head_attention"
DEAD = "a fully masked row follows its convention[multi_head_attention]"
X = torch.arange(24.0).reshape(1, 2, 3, 4) / 8
NAMED = {
    i.name: i
    for module in (torch_attention, torch_compiled, torch_encoder_layer, torch_flex, torch_multi_head)
    for i in module.IMPLEMENTATIONS
}


def status(name, law, examples=20, **operations):
    """The status of a law, "law[operation]", on an implementation with some operations replaced."""
    i = NAMED[name]
    return examine([find(law)[0]], replace(i, operations={**i.operations, **operations}), examples, 0)[0].status


def test_names_are_distinct():
    modules = (torch_attention, torch_compiled, torch_encoder_layer, torch_flex, torch_multi_head)
    assert len(NAMED) == sum(len(module.IMPLEMENTATIONS) for module in modules)


@pytest.mark.parametrize("name", ["torch math float32", "torch flash float32", "torch flex float32"])
def test_a_wrong_scale_is_caught(name):
    wrong = partial(scaled_dot_product_attention, scale=1.0)
    assert status(name, f"attention is within its error limit[{SDPA}]", **{SDPA: wrong}) == "violated"


@pytest.mark.parametrize(
    "name", ["torch math float32", "torch flash float32", "torch flex float32", "torch compiled float64"]
)
def test_an_inverted_mask_is_caught(name):
    def wrong(q, k, v, mask=None):
        return scaled_dot_product_attention(q, k, v, None if mask is None else ~mask)

    assert status(name, f"masked keys and values do not matter[{SDPA}]", **{SDPA: wrong}) == "violated"


@pytest.mark.parametrize("name", ["torch math float64", "torch flash float32", "torch flex float32"])
def test_the_other_alignment_is_caught(name):
    def wrong(q, k, v):
        n_q, n_k = q.shape[-2], k.shape[-2]
        return scaled_dot_product_attention(q, k, v, torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q))

    assert (
        status(name, "causal attention is within its error limit[causal_attention]", causal_attention=wrong)
        == "violated"
    )


@pytest.mark.parametrize(
    ("n_q", "n_k", "rows"), [(2, 3, [[1, 0, 0], [0.5, 0.5, 0]]), (3, 2, [[1, 0], [0.5, 0.5], [0.5, 0.5]])]
)
@pytest.mark.parametrize("name", ["torch math float64", "torch flash float32", "torch flex float32"])
def test_causal_attention_is_aligned_top_left(name, n_q, n_k, rows):
    q, k = torch.zeros(1, 1, n_q, n_k), torch.zeros(1, 1, n_k, n_k)
    assert NAMED[name].operations["causal_attention"](q, k, torch.eye(n_k)[None, None])[0, 0].tolist() == rows


def test_heads_taken_round_robin_are_caught():
    def wrong(q, k, v, mask=None):
        group = q.shape[1] // k.shape[1]
        return scaled_dot_product_attention(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), mask)

    law = "grouped-query attention is within its error limit[grouped_query_attention]"
    assert status("torch flash float32", law, grouped_query_attention=wrong) == "violated"


def test_exchanged_gradients_are_caught():
    right = NAMED["torch flash float64 func"].operations[f"{SDPA}_vjp"]

    def wrong(*arguments):
        dq, dk, dv = right(*arguments)
        return dq, dv, dk

    assert (
        status("torch flash float64 func", f"the VJP is within its error limit[{SDPA}_vjp]", **{f"{SDPA}_vjp": wrong})
        == "violated"
    )


@pytest.mark.parametrize("change", [{"masks": "additive"}, {"masks": "padding"}, {"masks": "boolean"}])
def test_an_inverted_mask_of_multi_head_attention_is_caught(change):
    path = replace(torch_multi_head._Path(need_weights=False, train=True), **change)

    def wrong(*arguments):
        *rest, mask = arguments
        return with_projections(path.forward)(*rest, None if mask is None else ~mask)

    law = f"a single visible token returns its projection x @ wv @ wo[{HEADS}]"
    assert status("torch MHA no weights eval float32", law, **{HEADS: wrong}) == "violated"


def test_the_fast_path_is_the_native_kernel_and_nothing_else(monkeypatch):
    calls, native = [], torch._native_multi_head_attention
    monkeypatch.setattr(torch, "_native_multi_head_attention", lambda *a: calls.append(a) or native(*a))
    x, w = torch.ones(1, 2, 4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    blocked = torch.tensor([[False, True], [False, True]])
    masks = {
        "torch MHA fast path float64": 2,
        "torch MHA fast path with weights float64": 2,
        "torch MHA fast path padding float64": 1,
    }
    for name, mask_type in masks.items():
        NAMED[name].operations[HEADS](x, w, w, w, w, 2, blocked)
        assert calls[-1][-1] == mask_type
    assert len(calls) == 3
    with pytest.raises(ValueError, match=r"^num_heads=1, but should be even: otherwise the fast path is not taken\.$"):
        NAMED["torch MHA fast path float64"].operations[HEADS](x, w, w, w, w, 1, blocked)
    added = torch.zeros(2, 2, dtype=torch.float64).masked_fill_(blocked, -torch.inf)
    for name, mask in (("no weights padding", blocked), ("no weights additive", added), ("weights train", blocked)):
        NAMED[f"torch MHA {name} float64"].operations[HEADS](x, w, w, w, w, 2, mask)
    assert len(calls) == 3


def test_a_key_padding_mask_holds_what_no_query_may_attend_to():
    mask = torch.tensor([[[True, False, False], [True, False, True], [True, False, False]]])
    padded, rest = torch_multi_head._padding(mask, torch.zeros(2, 3, 4))
    assert padded.tolist() == [[True, False, False]] * 2
    assert rest.tolist() == [[[False, False, False], [False, False, True], [False, False, False]]]
    assert torch_multi_head._padding(padded[:1, None].expand(1, 3, 3), torch.zeros(2, 3, 4))[1] is None


def test_the_declared_deviation_of_multi_head_attention_depends_on_the_number_of_heads():
    module, x = torch_multi_head._Path(need_weights=False, train=False, bias=True), torch.ones(1, 2, 4)
    w, dead = torch.eye(4), torch.tensor([[True, True], [False, False]])
    weights = Projections(w, w, w, w)
    rows = {heads: module.forward(x, weights, heads, dead)[0, 0] for heads in (1, 2)}
    assert rows[1].tolist() == [0, 0, 0, 0]
    assert rows[2].isnan().all()
    assert module.forward(x[0], weights, 2, dead)[0].tolist() == [0, 0, 0, 0]  # no batch
    assert status("torch MHA as it comes float32", DEAD) == "declared"
    assert status("torch MHA fast path float64", DEAD) == "held"  # where a row with nothing to attend to is NaN


def test_a_dead_row_spoils_every_weight_gradient_of_the_module_with_weights():
    x, w = torch.ones(2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    dead = torch.tensor([[True, True], [False, False]])
    grad_out = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)  # nothing from the dead row
    gradients = {}
    for name in ("torch MHA weights train float64", "torch MHA no weights train float64"):
        fresh = [y.clone() for y in (x, w, w, w, w)]
        gradients[name] = NAMED[name].operations[f"{HEADS}_vjp"](*fresh, 1, dead, grad_out)
    with_weights, without = gradients.values()
    assert all(g.isnan().any() for g in with_weights[:3])
    assert all(g.isfinite().all() for g in without)


def test_a_layer_differs_between_training_and_evaluation_on_a_dead_row():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(4, 2, dim_feedforward=4, dropout=0.0, batch_first=True)
    dead = torch.tensor([[True, True], [False, False]])
    x = torch.arange(8.0).reshape(1, 2, 4)
    with torch.no_grad():
        assert layer.train()(x, src_mask=dead).isfinite().all()
        assert layer.eval()(x, src_mask=dead)[0, 0].isnan().all()


@pytest.mark.parametrize("shape", [(3,), (2, 3, 3)])
def test_flash_takes_masks_of_two_or_four_axes(shape):
    mask = torch.ones(shape, dtype=torch.bool)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises((RuntimeError, IndexError)):
        scaled_dot_product_attention(X, X, X, attn_mask=mask)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.equal(scaled_dot_product_attention(X, X, X, attn_mask=mask), scaled_dot_product_attention(X, X, X))
    assert (
        status("torch flash float32, masks as given", f"a broadcast mask gives the same as the full mask[{SDPA}]")
        == "declared"
    )


def test_a_mask_of_one_axis_is_an_index_error_where_no_backend_is_chosen():
    with pytest.raises(IndexError, match="Dimension out of range"):
        scaled_dot_product_attention(X, X, X, attn_mask=torch.ones(3, dtype=torch.bool))


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)  # what torch.func.jvp itself uses, at first
def test_flash_has_no_forward_mode():
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(NotImplementedError, match="Trying to use forward AD"):
        torch.func.jvp(scaled_dot_product_attention, (X, X, X), (X, X, X))
    assert not any(f"{SDPA}_jvp" in i.operations for i in NAMED.values() if "flash" in i.name)


def test_flex_has_no_gradients_on_the_cpu_and_no_width_zero():
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(X.clone().requires_grad_(), X, X)
    with pytest.raises(ZeroDivisionError):
        NAMED["torch flex float32"].operations[SDPA](X[..., :0], X[..., :0], X)


def test_multi_head_attention_refuses_an_empty_batch_with_a_mask_for_each_sequence():
    path, w = torch_multi_head._Path(need_weights=False, train=True), torch.eye(4)
    empty = torch.ones(0, 3, 4)
    weights = Projections(w, w, w, w)
    assert path.forward(empty, weights, 2).shape == (0, 3, 4)
    with pytest.raises(RuntimeError, match="cannot reshape tensor of 0 elements"):
        path.forward(empty, weights, 2, torch.zeros(0, 3, 3, dtype=torch.bool))
