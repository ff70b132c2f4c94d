"""The form of a function is found by calls: with which arrays, names, axes and sizes it can be called."""

import ctypes
import time
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from properties import interpreters, verify
from properties.bugs.reference import REFERENCE
from properties.contract.operations import OPERATIONS
from properties.inspection.array_libraries import libraries_of
from properties.inspection.form_search import NoFormError, form_of
from properties.inspection.form_trials import alike
from properties.inspection.forms import HEADS_FIRST, ROWS_FIRST, Form, Refusal
from properties.inspection.signatures import Way, names_of, ways
from properties.inspection.size_rules import predicate_of, rule_of, sentence_of
from properties.portraits.facts import Fact, facts_of_form

SDPA, CAUSAL, GQA, ATTENTION = (
    "scaled_dot_product_attention",
    "causal_attention",
    "grouped_query_attention",
    "attention",
)


# -- Kernels as new users bring them -----------------------------------------------------------------------------------


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def plain(q, k, v):
    scores = (q @ k.swapaxes(-1, -2)).astype(np.float32) / np.float32(q.shape[-1] ** 0.5)
    return (softmax(scores).astype(q.dtype) @ v).astype(q.dtype)


def unchecked(q, k, v):
    """Reads and writes float32 at the addresses of its arrays, as C does."""

    def memory(x):
        return np.ctypeslib.as_array(ctypes.cast(x.ctypes.data, ctypes.POINTER(ctypes.c_float)), (x.size,))

    assert min(q.itemsize, k.itemsize, v.itemsize) >= 4, "It would read beyond the end of its arrays."
    out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    memory(out)[:] = plain(*(memory(x).reshape(x.shape) for x in (q, k, v))).reshape(-1)
    return out


def of_width_64(q, k, v):
    if q.shape[-1] != 64 or v.shape[-1] != 64:
        raise RuntimeError(f"head_dim is {q.shape[-1]}, should be 64.")
    return plain(q, k, v)


def of_float16(q, k, v):
    if q.dtype != np.float16:
        raise TypeError(f"{q.dtype} is not float16.")
    return plain(q, k, v)


def of_blocks(q, k, v):
    assert q.shape[-2] % 128 == 0
    assert k.shape[-2] % 128 == 0
    return plain(q, k, v)


def of_one_width(q, k, v):
    if q.shape[-1] != v.shape[-1] or q.shape[-2] > k.shape[-2]:
        raise ValueError("One width, and at least as many keys as queries.")
    return plain(q, k, v)


def always_causal(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)) @ v


def rows_first(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, local_window_size=None):
    """Attention with the signature and the axes of JAX's, and as strict."""
    if query.ndim != 4 or query.dtype == np.float64:
        raise ValueError("query has 4 axes, and at most 32 bits.")
    q, k, v = (x.swapaxes(-2, -3) for x in (query, key, value))
    if k.shape[-3] != q.shape[-3]:
        raise ValueError("Heads are not grouped.")
    scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5 if scale is None else scale)
    for added in (bias, mask):
        assert added is None or added.ndim == 4
    scores = scores if bias is None else scores + bias
    rows, columns = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])
    visible = np.ones(scores.shape, bool) if mask is None else mask
    if is_causal:
        visible = visible & (columns <= rows)
    if local_window_size is not None:
        left, right = (int(side) for side in local_window_size)
        visible = visible & (columns >= rows - left) & (columns <= rows + right)
    return (softmax(np.where(visible, scores, np.float32(-1e30))) @ v).swapaxes(-2, -3).astype(query.dtype)


def with_lse(q, k, v, softmax_scale=None, sinks=None):
    """(out, lse, None) with the log-sum-exp of each row and head, as (b, s, h)."""
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    powers = np.exp(scores)
    total = powers.sum(-1, keepdims=True) + (0 if sinks is None else np.exp(sinks)[:, None, None])
    return powers / total @ v, np.log(total[..., 0]).swapaxes(-1, -2)


def softmax_with_mask(scores, mask):
    return softmax(np.where(mask, scores, -1e30))


def rope_of_halves(x, position_ids=None, *, offset=0):
    width = x.shape[-1]
    if width % 2:
        raise ValueError(f"head_dim is {width}, should be even.")
    positions = offset + np.arange(x.shape[-2]) if position_ids is None else position_ids
    angles = positions[..., None] * 10000.0 ** (-2 * np.arange(width // 2) / width)
    first, second = np.split(x, 2, -1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], -1)


def rope_at_0(x):
    return rope_of_halves(x)


def rope_of_rows(x, start_pos):
    return rope_of_halves(x.swapaxes(-2, -3), offset=start_pos).swapaxes(-2, -3)


def heads_of_batches(x, wq, wk, wv, wo, num_heads, mask=None):
    if x.ndim != 3:
        raise ValueError(f"x has {x.ndim} axes, should have 3.")
    return REFERENCE["multi_head_attention"](x, wq, wk, wv, wo, num_heads, mask)


def rows_from_0(table, seq_len, start_pos):
    if start_pos:
        raise ValueError("start_pos should be 0.")
    return table[:seq_len]


def gradients_first(grad_out, query, key, value, attn_mask=None):
    return REFERENCE[f"{SDPA}_vjp"](query, key, value, attn_mask, grad_out)


def refused(form):
    return {refusal.what: refusal.error for refusal in form.refusals}


# -- What is found -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [name for name, operation in OPERATIONS.items() if not operation.is_played])
def test_the_reference_is_called_directly(operation):
    form = form_of(REFERENCE[operation], operation)
    assert form.is_direct
    assert (form.arrays, form.dtype, form.axes) == ("numpy", "float64", HEADS_FIRST)
    assert form.calls <= 40
    assert not form.is_cut
    assert form.layouts is None
    assert form.words == ()
    assert form.sizes == _RESTRICTED.get(operation, {})


_RESTRICTED = {
    **{name: {"head_dim": "lambda size: size % 2 == 0"} for name in ("rotate_half", "rotary_embedding")},
    "latent_attention": {"value_dim_minus_head_dim": "lambda difference: difference <= 0"},
}
"""The sizes that the reference of an operation restricts."""


def test_all_options_of_the_reference_are_found():
    assert form_of(REFERENCE[ATTENTION], ATTENTION).features == (
        *("mask", "bias", "scale", "causal", "offset", "window", "softcap", "sink", "alibi", "offsets"),
    )
    assert "grad_lse" in form_of(REFERENCE["attention_vjp"], "attention_vjp").features
    assert form_of(REFERENCE["rope"], "rope").features == ("positions", "inv_freq", "attention_factor", "rotary_dim")


def test_a_library_that_checks_nothing_gets_contiguous_float32_only():
    form = form_of(unchecked, SDPA)
    assert (form.dtypes, form.layouts) == (("float32",), ())
    assert form.words[0] == "no masks"
    assert refused(form)["float64"] == "More than a quarter of out is 0."
    assert refused(form)["float16"] == "It was not tried: the function does not check the type of its arrays."
    assert refused(form)["transposed arrays"] == "The results differ from those of contiguous arrays."


def test_a_fixed_width_is_a_list():
    form = form_of(of_width_64, SDPA)
    assert form.sizes == {"head_dim": "(64,)", "value_dim": "(64,)"}
    assert refused(form)["head_dim = value_dim = 128"] == "RuntimeError: head_dim is 128, should be 64."
    assert form.refuses == ("RuntimeError",)
    assert form.declarations["refuses"] == "(ValueError, TypeError, NotImplementedError, RuntimeError)"


def test_multiples_of_a_block_are_a_rule():
    form = form_of(of_blocks, SDPA)
    assert form.sizes == dict.fromkeys(("n_q", "n_k"), "lambda size: size % 128 == 0")
    assert form.predicates["n_q"](1280)
    assert not form.predicates["n_q"](64)
    assert "n_q = n_k: size % 128 == 0, since 128, 256, 384 worked and 1, 7, 16, 48 failed" in form.assumed


def test_differences_of_sizes_are_found():
    assert form_of(of_one_width, SDPA).sizes == {
        "value_dim_minus_head_dim": "lambda difference: difference == 0",
        "n_k_minus_n_q": "lambda difference: difference >= 0",
    }


def test_float16_alone_is_found():
    form = form_of(of_float16, SDPA)
    assert form.dtypes == ("float16",)
    assert refused(form)["bfloat16"] == "TypeError: bfloat16 is not float16."
    assert form.implementation("half", of_float16).resolved_arithmetic.name == "float16"


def test_a_kernel_that_is_always_causal_needs_no_switch():
    assert form_of(always_causal, CAUSAL).is_direct


def test_another_order_of_axes_and_other_names_need_a_wrapper():
    form = form_of(rows_first, ATTENTION)
    assert (form.axes, form.dtype, form.batch_ranks) == (ROWS_FIRST, "float32", (2,))
    assert form.features == ("mask", "bias", "scale", "causal", "window")
    assert form.adjusted == ("bias", "window")
    assert form.sizes["num_heads"] == form.sizes["kv_heads"] == "(4,)"
    assert len(form.results) == 1
    assert refused(form)["softcap"] == "no parameter has a usual name"
    assert form.code("mine.attention") == (
        "def attention(q, k, v, **options):\n"
        '    if "bias" in options:\n'
        '        bias = options["bias"]\n'
        '        options["bias"] = bias.reshape((1,) * (q.ndim - bias.ndim) + bias.shape)\n'
        '    if "window" in options:\n'
        "        longest = max(q.shape[-2], k.shape[-2])\n"
        '        options["window"] = tuple(longest if side is None else side for side in options["window"])\n'
        "    q = q.swapaxes(-2, -3).copy()\n"
        "    k = k.swapaxes(-2, -3).copy()\n"
        "    v = v.swapaxes(-2, -3).copy()\n"
        '    names = {"causal": "is_causal", "window": "local_window_size"}\n'
        "    options = {names.get(name, name): option for name, option in options.items()}\n"
        "    found = mine.attention(q, k, v, **options)\n"
        "    return found.swapaxes(-2, -3)\n"
    )


def test_a_mask_is_passed_under_its_most_usual_name():
    form = form_of(rows_first, SDPA)
    assert (form.axes, form.positional, form.keywords) == (ROWS_FIRST, ("q", "k", "v"), {"mask": "mask"})
    assert form.words[0] == "full masks"
    assert '    found = kernel(q, k, v, **({} if mask is None else {"mask": mask}))\n' in form.code()


def test_a_bias_stands_in_for_a_mask_of_numbers():
    def biased(q, k, v, bias=None):
        scores = q @ k.swapaxes(-1, -2)
        return softmax(scores if bias is None else scores + bias[..., :, :]) @ v

    form = form_of(biased, SDPA)
    assert form.positional == ("q", "k", "v", "mask")
    assert form.words[:2] == ("full masks", "additive masks")


def test_the_order_of_axes_is_found_for_rotations_and_gradients():
    assert form_of(rope_of_rows, "rope").axes == ROWS_FIRST

    def gradients(q, k, v, mask, grad_out):
        swapped = (x.swapaxes(-2, -3) for x in (q, k, v))
        found = REFERENCE[f"{SDPA}_vjp"](*swapped, mask, grad_out.swapaxes(-2, -3))
        return [x.swapaxes(-2, -3) for x in found]

    assert form_of(gradients, f"{SDPA}_vjp").axes == ROWS_FIRST


def test_a_log_sum_exp_may_have_another_order_of_axes():
    form = form_of(with_lse, ATTENTION)
    assert form.results == ("found[0]", "found[1].swapaxes(-1, -2)")
    assert form.features == ("scale", "sink")
    assert form.keywords == {"scale": "softmax_scale", "sink": "sinks"}


def with_narrow_lse(q, k, v):
    out, lse = REFERENCE["attention"](q, k, v)
    return out.astype(q.dtype), lse.astype(np.float32)


def test_a_log_sum_exp_of_float32_is_no_missing_one():
    form = form_of(with_narrow_lse, "attention")
    assert not form.words
    assert form.dtype == "float32"
    assert Refusal("float64", "lse has dtype float32, but should have dtype float64.") in form.refusals


def test_a_kernel_in_an_interpreter_is_tried_in_float32_first(monkeypatch):
    monkeypatch.setattr(interpreters, "is_interpreting", lambda: True)
    form = form_of(with_narrow_lse, "attention")
    assert form.dtype == "float32"
    assert form.refusals[0].error.startswith("kernels in an interpreter are judged in float32")


def test_a_function_that_needs_a_mask_gets_one():
    form = form_of(softmax_with_mask, "hard_masked_softmax")
    assert form.fills_mask
    assert form.imports == ("import numpy as np",)
    weights = form.wrapped(softmax_with_mask)(np.zeros((2, 4)), None)
    assert np.array_equal(weights, np.full((2, 4), 0.25))


def test_a_rotation_of_even_widths_is_found():
    form = form_of(rope_of_halves, "rope")
    assert form.sizes == {"head_dim": "lambda size: size % 2 == 0"}
    assert form.keywords == {"start_pos": "offset", "positions": "position_ids"}
    assert form_of(rope_at_0, "rope").sizes["start_pos"] == "(0,)"


def test_one_number_of_axes_is_found():
    form = form_of(heads_of_batches, "multi_head_attention")
    assert form.batch_ranks == (1,)
    assert refused(form)["4 axes"] == "ValueError: x has 4 axes, should have 3."


def test_a_start_at_0_alone_is_found():
    assert form_of(rows_from_0, "learned_positional_encoding").sizes == {"start_pos": "(0,)"}


def test_arguments_in_another_order_are_passed_by_keyword():
    form = form_of(gradients_first, f"{SDPA}_vjp")
    assert form.keywords == {"q": "query", "k": "key", "v": "value", "mask": "attn_mask", "grad_out": "grad_out"}
    assert form.words == ()


def test_an_object_with_forward_is_a_function_with_the_names_of_forward():
    """So are modules of PyTorch. Underscores around a name do not count."""

    class Module:
        def __call__(self, *arguments, **options):
            return self.forward(*arguments, **options)

        def forward(self, query, key_, value, mask=None, *, key=None):
            return REFERENCE[SDPA](query, key_, value, mask)

    form = form_of(Module(), SDPA)
    assert (form.positional, form.keywords) == (("q", "k", "v", "mask"), {})


def test_arrays_without_leading_axes_are_found():
    """Nothing but 2 axes works, with arrays of every library and every type."""

    def attend(q, k, v, mask=None):
        if q.ndim != 2:
            raise ValueError("q should have 2 axes.")
        return REFERENCE[SDPA](q, k, v, mask)

    assert form_of(attend, SDPA).batch_ranks == (0,)


def test_an_option_that_changes_nothing_is_not_taken():
    def ignores(q, k, v, *, softcap=None, **others):
        return plain(q, k, v)

    form = form_of(ignores, ATTENTION)
    assert form.features == ()
    assert refused(form)["softcap"] == "The results are the same with it and without it."


def test_a_mask_that_is_added_is_not_taken_for_booleans():
    def adds(q, k, v, mask=None):
        scores = q @ k.swapaxes(-1, -2)
        return softmax(scores if mask is None else scores + mask) @ v

    form = form_of(adds, SDPA)
    assert form.words[0] == "additive masks"


def test_a_mask_may_exclude_causality():
    def excludes(q, k, v, *, mask=None, causal=False):
        if mask is not None and causal:
            raise ValueError("Give a mask, or causal.")
        return REFERENCE[ATTENTION](q, k, v, mask=mask, causal=causal)

    form = form_of(excludes, ATTENTION)
    assert form.declarations["conventions"] == 'oracles.Conventions(causal_with_mask="refuse")'
    assert form.imports == ("from attnspec import oracles",)
    assert refused(form)["mask and causal together"] == "ValueError: Give a mask, or causal."


def test_gradients_without_those_of_bias_and_sink_are_completed():
    def gradients(q, k, v, grad_out):
        return REFERENCE["attention_vjp"](q, k, v, grad_out)[:3]

    form = form_of(gradients, "attention_vjp")
    assert form.results == ("found[0]", "found[1]", "found[2]", "None", "None")


# -- Libraries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [SDPA, CAUSAL, GQA, ATTENTION])
def test_attention_of_torch_is_found(operation):
    functional = pytest.importorskip("torch.nn.functional")
    form = form_of(functional.scaled_dot_product_attention, operation)
    assert (form.arrays, form.axes, form.dtypes) == (
        *("torch", HEADS_FIRST),
        ("float64", "float32", "float16", "bfloat16"),
    )
    assert form.switches == {CAUSAL: {"is_causal": True}, SDPA: {}}.get(operation, {"enable_gqa": True})
    assert form.layouts is None
    if operation == ATTENTION:
        assert form.keywords == {"mask": "attn_mask", "scale": "scale", "causal": "is_causal"}
        assert form.conventions == {"causal_with_mask": "refuse"}


def test_gradients_of_torch_are_found():
    torch = pytest.importorskip("torch")

    def gradients(q, k, v, mask, grad_out):
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=mask)
        return torch.autograd.grad(out, inputs, grad_out)

    form = form_of(gradients, f"{SDPA}_vjp")
    assert (form.arrays, form.is_direct, form.dtype) == ("torch", True, "float64")


def test_attention_of_jax_is_found():
    jax = pytest.importorskip("jax")
    form = form_of(jax.nn.dot_product_attention, ATTENTION)
    assert (form.arrays, form.axes) == ("jax", ROWS_FIRST)
    assert {"mask", "bias", "scale", "causal"} <= {*form.features}


def test_the_library_that_the_code_names_comes_first():
    torch = pytest.importorskip("torch")

    def by_torch(q, k, v):
        return torch.softmax(q @ k.mT, -1) @ v

    assert next(libraries_of(by_torch, lambda: False)) == "torch"
    assert next(libraries_of(lambda q, k, v: by_torch(q, k, v), lambda: False)) == "torch"
    assert next(libraries_of(plain, lambda: False)) == "numpy"


# -- Limits ------------------------------------------------------------------------------------------------------------


def test_the_search_ends_after_a_number_of_calls():
    form = form_of(plain, SDPA, calls=3)
    assert form.calls == 3
    assert form.is_cut
    assert Fact("not promised", "everything else, since the search ended after 3 calls") in facts_of_form(form)


def test_a_form_of_a_search_that_ended_early_promises_nothing():
    assert "supports" in form_of(plain, SDPA).declarations
    form = form_of(plain, SDPA, calls=3)
    assert "supports" not in form.declarations
    assert not form.implementation("mine", plain).support.declared
    worded = replace(form, words=("positive sizes",))
    assert worded.implementation("mine", plain).support.declared
    assert Fact("assumed", "everything else, since the search ended after 3 calls") in facts_of_form(worded)


def test_the_search_ends_in_time():
    with pytest.raises(NoFormError, match=r"^No call of scaled_dot_product_attention worked\.$"):
        form_of(plain, SDPA, until=time.monotonic())


def test_without_the_order_of_axes_there_is_no_form():
    """A form with a guessed order of axes would show mistakes that the function does not have."""

    def slow(q, k, v):
        time.sleep(0.3)
        return plain(q, k, v)

    with pytest.raises(NoFormError, match="before the number types and the order of axes were known"):
        form_of(slow, SDPA, until=time.monotonic() + 0.5)


def test_a_function_that_never_works_says_why():
    def broken(q, k, v):
        raise OSError("no device")

    with pytest.raises(NoFormError, match=r"worked\. float64, float32, float16, bfloat16: OSError: no device\.$"):
        form_of(broken, SDPA)


def test_caches_have_no_form():
    with pytest.raises(ValueError, match=r"decode takes a class of caches, and not a function\."):
        form_of(plain, "decode")


def test_what_a_function_prints_is_not_shown(capsys):
    def prints(q, k, v):
        print("called")
        return plain(q, k, v)

    form_of(prints, SDPA)
    assert capsys.readouterr().out == ""


# -- The parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("working", "failing", "rule"),
    [
        ((1, 3, 64), (), ""),
        ((6, 8, 16, 64, 96), (1, 3), "lambda size: size % 2 == 0"),
        ((8, 16, 64, 96), (1, 3, 6), "lambda size: size % 8 == 0"),
        ((64, 128), (1, 96), "(64, 128)"),
        ((1, 3, 64), (96, 128), "lambda size: size <= 64"),
        ((7, 16), (1,), "lambda size: size >= 7"),
        ((8, 64, 24), (1, 6, 128), "lambda size: size % 8 == 0 and size <= 64"),
        ((3, 7), (1, 8), "lambda size: size >= 3 and size <= 7"),
        ((64,), (1, 128), "(64,)"),
    ],
)
def test_a_rule_is_true_of_all_tried_sizes(working, failing, rule):
    tried = dict.fromkeys(working, True) | dict.fromkeys(failing, False)
    assert rule_of(tried) == rule
    assert all(predicate_of(rule)(size) == works for size, works in tried.items())


def test_a_list_assumes_nothing():
    assert sentence_of("head_dim", "(64,)", {64: True}) == ""
    assert sentence_of("head_dim", "", {64: True}) == "head_dim: all sizes, since 64 worked"


def test_names_are_read_from_signatures_and_docstrings():
    def function(q, k, v, *, sm_scale):
        """No names."""

    class Builtin:
        """attend(q, k, v, softmax_scale=None)"""

        __signature__ = "none"

        def __call__(self):
            """Not called."""

    operation = OPERATIONS[ATTENTION]
    assert names_of(function, operation, "scale") == ("sm_scale",)
    assert names_of(Builtin(), operation, "scale") == ("softmax_scale",)
    assert names_of(lambda **options: None, operation, "scale") == ("scale", "softmax_scale", "sm_scale")
    assert "bias" not in names_of(lambda **options: None, operation, "mask")


def test_ways_follow_the_names_of_parameters():
    operation = OPERATIONS[SDPA]
    assert ways(lambda a, b, c: None, operation) == [Way(("q", "k", "v"), {})]
    assert ways(lambda q, k, v, attn_mask: None, operation)[0] == Way(("q", "k", "v", "mask"), {})
    assert ways(lambda v, k, q: None, operation) == [Way((), {"q": "q", "k": "k", "v": "v"})]


def test_rounding_is_alike_and_misreading_is_not():
    numbers = np.random.default_rng(0).normal(size=1000)
    assert alike(numbers, numbers.astype(ml_dtypes.bfloat16).astype(float))
    assert not alike(numbers, numbers[::-1])
    assert alike(np.zeros(3), np.ones(3))


# -- The implementation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "operation"), [(rope_at_0, "rope"), (always_causal, CAUSAL)])
def test_no_law_fails_for_a_restriction(function, operation):
    form = form_of(function, operation)
    implementation = form.implementation("mine", function)
    outcomes = verify(implementation, max_examples=3).outcomes
    raising = [outcome for outcome in outcomes if outcome.violation and "raised" in outcome.violation.summary]
    assert not raising


def test_a_form_is_a_record():
    form = Form(SDPA, "numpy", ("float64",), (0, 1, 2), positional=("q", "k", "v", "mask"), results=("found",))
    assert form.is_direct
    assert form.declarations == {"arithmetic": '"float64"', "supports": "[]"}
    assert form.imports == ()
    assert form.wrapped(plain) is plain
    assert Refusal("float16", "TypeError") == Refusal("float16", "TypeError")
