"""The inequalities of vectors/onnx/accuracy.md hold in ball arithmetic, each of their parts is necessary,
and the page shows what its command computes.
"""

import re

import numpy as np
import pytest
from flint import arb, ctx

import oracles
from properties.vectors.expectation import dtype_of
from research.onnx_accuracy.__main__ import PAGE, tables
from research.onnx_accuracy.bounds import (
    FORMATS,
    Row,
    entry_bound,
    introduced,
    machine_of,
    propagated,
    range_bound,
    rotation_introduced,
    rotation_propagated,
    softmax,
    softmax_bound,
    softmax_introduced,
)
from research.onnx_accuracy.measured import function_body

SEEDS = range(40)
PRECISIONS = [(t1, stage) for t1 in FORMATS for stage in (None, *FORMATS) if stage != t1]


@pytest.fixture(autouse=True)
def many_bits():
    """Balls of 400 bits, which hold sums of products of these tests' inputs exactly."""
    with ctx.workprec(400):
        yield


def balls(x):
    return np.vectorize(lambda entry: arb(float(entry)), otypes=[object])(x)


def exact(row):
    return Row(*map(balls, row))


def output(scale, row, cap=None):
    """The output of a row by the definition, in loops."""
    total, sums = arb(0), [arb(0)] * row.v.shape[1]
    for k, v, mask in zip(row.k, row.v, row.mask, strict=True):
        score = scale * sum((a * b for a, b in zip(row.q, k, strict=True)), arb(0))
        weight = ((score if cap is None else cap * (score / cap).tanh()) + mask).exp()
        total, sums = total + weight, [one + weight * value for one, value in zip(sums, v, strict=True)]
    return np.array([one / total for one in sums])


def moved(row, error):
    return Row(*(x + off for x, off in zip(row, error, strict=True)))


def random_row(rng, n, d, size=1.0):
    draws = [size * rng.standard_normal(shape) for shape in ((d,), (n, d), (n, 3))]
    return Row(*draws, rng.standard_normal(n) * rng.integers(2))


def within(error, bound):
    return all(abs(one) <= limit for one, limit in zip(error, bound, strict=True))


def beyond(error, bound):
    return any(abs(one) > limit for one, limit in zip(error, bound, strict=True))


def is_one(ball):
    return ball.overlaps(arb(1)) and ball.rad() < 1e-100


# -- Propagated errors -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_propagated_error_is_within_both_bounds_with_and_without_a_softcap(seed):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(2, 7), rng.integers(1, 5)
    row, size = random_row(rng, n, d, 2.0 ** rng.integers(-3, 4)), 2.0 ** -rng.integers(0, 12)
    error = Row(*(size * x for x in random_row(rng, n, d)))
    row, error, scale = exact(row), exact(error), arb(0.5)
    errors = propagated(scale, row, error)
    for cap in (None, arb(2)):
        off = output(scale, moved(row, error), cap) - output(scale, row, cap)
        assert within(off, range_bound(row, errors))
        score = scale * (row.k @ row.q)
        logits = row.mask + (score if cap is None else cap * np.tanh(score / cap))
        assert within(off, entry_bound(scale, row._replace(q=0 * row.q, mask=logits), errors))


def worst(d, sizes=(3.0, 2.0, 5.0), errors=(0.25, 0.125, 0.5, 0.0625)):
    """A row and errors that reach the range bound: two keys of opposite signs, and a mask that makes
    the weight of the first 1/(1 + exp τ) before the errors and exp τ/(1 + exp τ) after them.
    """
    signs, (q, k, v), (q_off, k_off, v_off, mask_off) = balls([1, -1]), balls(sizes), balls(errors)
    ones, scale = balls(np.ones(d)), arb(0.5)
    error = Row(q_off * ones, np.outer(signs, k_off * ones), v_off * balls([[1], [1]]), mask_off * signs)
    row = Row(q * ones, np.outer(signs, k * ones), np.outer(signs, [v]), 0 * signs)
    tau = propagated(scale, row, error).logits[0]
    score = scale * q * k * d
    return scale, row._replace(mask=-signs * (score + tau / 2)), error


@pytest.mark.parametrize("d", [1, 4, 64])
def test_some_errors_reach_the_range_bound_so_no_smaller_constant_holds(d):
    scale, row, error = worst(d)
    (off,) = output(scale, moved(row, error)) - output(scale, row)
    (bound,) = range_bound(row, propagated(scale, row, error))
    assert is_one(off / bound)
    assert off > 0.999999 * bound


@pytest.mark.parametrize("d", [1, 4, 64])
def test_the_coarse_form_of_the_range_bound_is_reached_too(d):
    """2·|V|·tanh(τ/2) + |V_err| with τ from the largest sizes, as the page states it."""
    scale, row, error = worst(d)
    (off,) = output(scale, moved(row, error)) - output(scale, row)
    size, largest_error = ([abs(x).max() for x in of] for of in (row, error))
    tau = scale * d * (size[0] * largest_error[1] + largest_error[0] * size[1] + largest_error[0] * largest_error[1])
    coarse = 2 * size[2] * ((tau + largest_error[3]) / 2).tanh() + largest_error[2]
    assert is_one(off / coarse)


@pytest.mark.parametrize("forgotten", Row._fields)
@pytest.mark.parametrize("bound", [range_bound, lambda row, errors: entry_bound(arb(0.5), row, errors)])
def test_a_bound_that_forgets_the_errors_of_an_input_is_violated(bound, forgotten):
    small = dict(zip(Row._fields, (2.0**-30 * np.array([0.25, 0.125, 0.5, 0.0625])), strict=True))
    scale, row, error = worst(4, errors=tuple(small.values()))
    off = output(scale, moved(row, error)) - output(scale, row)
    without = error._replace(**{forgotten: 0 * getattr(error, forgotten)})
    assert beyond(off, bound(row, propagated(scale, row, without)))


def test_the_errors_of_queries_and_keys_multiply():
    scale, row, error = worst(4, sizes=(0.0, 0.0, 1.0), errors=(0.5, 0.5, 0.0, 0.0))
    assert abs(output(scale, moved(row, error)) - output(scale, row))[0] > 0.1
    assert all(propagated(scale, row, error).logits > 0)


def test_small_errors_reach_the_entry_bound():
    """To first order in the errors; the rest is of second order."""
    rng, shares = np.random.default_rng(0), []
    row, scale = exact(random_row(rng, 5, 1)._replace(v=rng.standard_normal((5, 1)))), arb(1)
    far = row.v[:, 0] - output(scale, row)[0]
    for size in (2.0**-10, 2.0**-20):
        signs = np.array([one.sgn() for one in far * row.q[0]])
        error = Row(0 * row.q, size * abs(row.k) * signs[:, None], size * abs(row.v), 0 * row.mask)
        (off,) = output(scale, moved(row, error)) - output(scale, row)
        shares.append(off / entry_bound(scale, row, propagated(scale, row, error))[0])
    assert 0.99 < shares[0] < 0.99999 < shares[1] < 1


# -- Introduced errors -----------------------------------------------------------------------------


def wide(rng):
    return random_row(rng, 6, 16, 2.0)


def narrow(rng):
    return random_row(rng, 5, 4)._replace(v=np.abs(rng.standard_normal((5, 3))) + 4)


def equal(rng):
    return Row(np.zeros(4), rng.standard_normal((7, 4)), np.tile(rng.standard_normal(3), (7, 1)), np.zeros(7))


def cancelling(rng):
    q, k = 64 * rng.standard_normal(16), rng.standard_normal((2, 16))
    return Row(q, k - np.outer(k @ q, q) / (q @ q), np.array([[1.0], [-1.0]]), np.zeros(2))


def far_apart(rng):
    return Row(np.array([4.0, 0, 0, 0]), np.outer([0, -8.5], np.ones(4)), np.array([[0.0], [2.0**15]]), np.zeros(2))


def rounded(row, t1):
    """A row of numbers of a type."""
    return Row(*(x.astype(dtype_of(FORMATS[t1])).astype(np.float64) for x in row))


def body_error(row, t1, stage):
    out = function_body(row.q[None], row.k, row.v, row.mask[None], t1, stage)[0]
    return balls(out) - output(1 / arb(row.q.size).sqrt(), exact(row))


@pytest.mark.parametrize("family", [wide, narrow, equal, cancelling, far_apart])
@pytest.mark.parametrize(("t1", "stage"), PRECISIONS)
def test_the_function_body_is_within_both_bounds_in_each_precision(t1, stage, family):
    for seed in range(4):
        row = rounded(family(np.random.default_rng(seed)), t1)
        off, d = body_error(row, t1, stage), row.q.size
        scale, errors = arb(d**-0.5), introduced(d**-0.5, exact(row), machine_of(t1, d, stage))
        assert within(off, range_bound(exact(row), errors))
        assert within(off, entry_bound(scale, exact(row), errors))


FORGOTTEN = {
    "the sums over keys": ("float", equal, lambda errors: errors._replace(values=0 * errors.values)),
    "the logits": ("float", cancelling, lambda errors: errors._replace(logits=0 * errors.logits)),
    "underflow": ("float16", far_apart, lambda errors: errors._replace(rest=0 * errors.rest)),
}


@pytest.mark.parametrize("part", FORGOTTEN)
def test_a_bound_that_forgets_a_part_of_the_introduced_error_is_violated(part):
    t1, family, forgetting = FORGOTTEN[part]
    violated = []
    for seed in SEEDS:
        row = rounded(family(np.random.default_rng(seed)), t1)
        d = row.q.size
        errors = forgetting(introduced(d**-0.5, exact(row), machine_of(t1, d)))
        violated.append(beyond(body_error(row, t1, None), entry_bound(arb(d**-0.5), exact(row), errors)))
    assert any(violated)


@pytest.mark.parametrize(
    ("t1", "d", "share"), [("double", 242, 0.7), ("float16", 1, 0.3), ("bfloat16", 6, 0.25), ("float", 5, 0.15)]
)
def test_roundings_reach_the_share_of_the_bound_that_the_page_states(t1, d, share):
    """Two keys of opposite scores and values: the errors of both weights add up."""
    rng, scale, shares = np.random.default_rng(0), d**-0.5, []
    for _ in range(1 if t1 == "double" else 300):
        q, k = rng.uniform(1, 2, (2, d))
        score = 2 ** rng.uniform(-1, 1)
        k *= score / (scale * (k @ q))
        row = rounded(Row(q, np.array([k, -k]), np.array([[1.0], [-1.0]]), np.zeros(2)), t1)
        (bound,) = entry_bound(scale, row, introduced(scale, row, machine_of(t1, d)))
        shares.append(abs(float(body_error(row, t1, None)[0])) / bound)
    assert share < max(shares) < 1
    assert f"{share:g} in {t1}" in PAGE.read_text("utf-8")


@pytest.mark.parametrize(("stage", "mask"), [("float16", 0.0), (None, 1000.0)])
def test_a_bound_that_forgets_the_cast_or_the_sum_with_the_mask_is_violated(stage, mask):
    row = random_row(np.random.default_rng(0), 6, 16, 2.0)._replace(mask=np.full(6, mask))
    row = rounded(row, "float")
    off, whole = body_error(row, "float", stage), introduced(0.25, exact(row), machine_of("float", 16, stage))
    forgetting = introduced(0.25, exact(row._replace(mask=np.zeros(6))), machine_of("float", 16))
    assert within(off, entry_bound(arb(0.25), exact(row), whole))
    assert beyond(off, entry_bound(arb(0.25), exact(row), forgetting))


def test_in_double_the_scale_has_an_error_of_float():
    row = random_row(np.random.default_rng(0), 6, 4)
    off, machine = body_error(row, "double", None), machine_of("double", 4)
    assert within(off, entry_bound(arb(0.5), exact(row), introduced(0.5, exact(row), machine)))
    assert beyond(off, entry_bound(arb(0.5), exact(row), introduced(0.5, exact(row), machine._replace(scale=0.0))))


def test_a_row_for_which_the_bound_does_not_hold_is_refused():
    row = Row(np.zeros(4), np.zeros((2**21, 4)), np.zeros((2**21, 1)), np.zeros(2**21))
    with pytest.raises(ValueError, match="The bound does not hold for 2097152 keys of head size 4 in binary32"):
        introduced(0.5, row, machine_of("float", 4))


# -- Softmax and RotaryEmbedding -------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_errors_of_softmax_are_within_their_bounds(seed):
    rng = np.random.default_rng(seed)
    t, tau = balls(4 * rng.standard_normal(5)), arb(2.0 ** rng.integers(-8, 2))
    off = softmax(t + tau * balls(rng.choice([-1, 0.5, 0.75], 5))) - softmax(t)
    assert within(off, softmax_bound(softmax(t), tau))
    t32 = (4 * rng.standard_normal(9)).astype(np.float32)
    e = np.exp(t32 - t32.max())
    introduced_off = balls(e / e.sum()) - softmax(balls(t32))
    assert within(introduced_off, softmax_introduced(balls(t32), machine_of("float", 1)))


@pytest.mark.parametrize("first", [-2.0, 1.0])
def test_some_errors_reach_the_bound_of_softmax(first):
    t, tau = balls([first, 0, 0]), arb(0.5)
    signs = balls([1, -1, -1] if first < 0 else [-1, 1, 1])
    share = (softmax(t + tau * signs) - softmax(t))[0] / softmax_bound(softmax(t), tau)[0]
    assert is_one(abs(share))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_errors_of_a_rotation_are_within_their_bounds(seed):
    rng = np.random.default_rng(seed)
    x, table = rng.standard_normal((2, 2)).astype(np.float32)
    out = x[0] * table[0] - x[1] * table[1]
    exact_out = arb(float(x[0])) * float(table[0]) - arb(float(x[1])) * float(table[1])
    assert abs(arb(float(out)) - exact_out) <= rotation_introduced(balls(x), balls(table), machine_of("float", 1))
    off, table_off = balls(rng.standard_normal((2, 2)) / 8)
    x, table = balls(x), balls(table)
    rotated = ((x + off) * (table + table_off) - x * table) @ balls([1, -1])
    assert abs(rotated) <= rotation_propagated(x, table, off, table_off)


def test_some_errors_reach_the_bound_of_a_rotation():
    x, table, off, table_off = balls([1, -2]), balls([3, 4]), balls([0.5, -0.25]), balls([0.125, 0.5])
    assert ((x + off) * (table + table_off) - x * table) @ balls([1, -1]) == rotation_propagated(
        x, table, off, table_off
    )


# -- The page --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def computed():
    return dict(tables())


def cells(rows):
    return [re.split(r" \| ", row.strip("| ")) for row in rows.strip().splitlines()]


def is_number(cell):
    return re.fullmatch(r"\d\.\de[-+]\d\d", cell) is not None


def test_the_page_shows_what_its_command_computes(computed):
    """Measured errors depend on the processor's order of sums; each is below its bounds on the page."""
    page = PAGE.read_text("utf-8")
    for head, rows in computed.items():
        shown = re.search(re.escape(head) + r"\|[-: |]+\|\n((?:\|.*\n)*)", page)
        assert shown, head
        names, found = cells(head)[0], cells(shown[1])
        assert len(found) == len(rows.strip().splitlines())
        for of_page, now in zip(found, cells(rows), strict=True):
            for name, before, after in zip(names, of_page, now, strict=True):
                if "bound" in name or "limit" in name or name == "constructed error":
                    (before, *vacuous), (after, *still_vacuous) = before.split(", "), after.split(", ")
                    assert float(before) == pytest.approx(float(after), rel=0.05)  # two digits are shown
                    assert vacuous == still_vacuous
                elif not is_number(before):
                    assert before == after
            named = dict(zip(names, of_page, strict=True))
            error = float(named.get("measured error") or named["constructed error"])
            assert error < float(named["bound (2)"]) < float(named.get("bound (1)", "inf"))


def test_the_script_of_the_page_accepts_its_output():
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    exec(compile(script, PAGE.name, "exec"), {})


# -- ONNX's own text -------------------------------------------------------------------------------


def run_onnx(model, given):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, given)[0]


def run_onnxruntime(model, given):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


def onnx_s_output(row, t1, stage=None, run=run_onnx, expands=False):
    """What an engine computes for a row: of the operator Attention-24, or of the function body that ONNX
    expands it to.
    """
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: its function body was not evaluated.")
    helper, kinds = onnx.helper, {name: getattr(onnx.TensorProto, name.upper()) for name in FORMATS}
    attributes = {} if stage is None else {"softmax_precision": kinds[stage]}
    nodes = [helper.make_node("Attention", ["Q", "K", "V"], ["Y"], **attributes)]
    arrays = zip("QKV", (row.q[None], row.k, row.v), strict=True)
    given = {name: x[None, None].astype(dtype_of(FORMATS[t1])) for name, x in arrays}
    infos = [helper.make_tensor_value_info(name, kinds[t1], x.shape) for name, x in given.items()]
    if expands:
        schema, types = onnx.defs.get_schema("Attention", 24), [info.type.SerializeToString() for info in infos]
        body = schema.get_context_dependent_function_with_opset_version(24, nodes[0].SerializeToString(), types)
        nodes = onnx.FunctionProto.FromString(body).node
    graph = helper.make_graph(nodes, "attention", infos, [helper.make_tensor_value_info("Y", kinds[t1], None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    return run(model, given)[0, 0, 0].astype(np.float64)


@pytest.mark.parametrize(("t1", "stage"), [("float", None), ("float16", None), ("float16", "float"), ("double", None)])
@pytest.mark.parametrize("d", [16, 64])
def test_what_onnx_expands_is_within_the_bound_and_in_double_has_an_error_of_float(t1, stage, d):
    row = rounded(random_row(np.random.default_rng(d), 6, d)._replace(mask=np.zeros(6)), t1)
    scale, machine = d**-0.5, machine_of(t1, d, stage)
    off = balls(onnx_s_output(row, t1, stage, expands=True)) - output(arb(scale), exact(row))
    assert within(off, entry_bound(arb(scale), exact(row), introduced(scale, exact(row), machine)))
    if t1 == "double" and d == 64:
        without = introduced(scale, exact(row), machine._replace(scale=0.0))
        assert beyond(off, entry_bound(arb(scale), exact(row), without))


@pytest.mark.parametrize(
    ("engine", "run", "keeps"), [("onnx", run_onnx, True), ("onnxruntime", run_onnxruntime, False)]
)
def test_which_engines_keep_the_limit_of_double_is_what_the_page_says(engine, run, keeps):
    version = pytest.importorskip(engine, reason=f"{engine} is not installed: it was not run.").__version__
    if version not in PAGE.read_text("utf-8"):
        pytest.skip(f"The page is about another version than {engine} {version}.")
    row = random_row(np.random.default_rng(0), 6, 64)._replace(mask=np.zeros(6))
    limit = oracles.scaled_dot_product_attention(row.q[None], row.k, row.v, arithmetic="float64")
    assert limit.contains(onnx_s_output(row, "double", run=run)[None]).all() == keeps
