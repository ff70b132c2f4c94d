"""A verdict without a recognised cause says what was measured, in all views."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from properties import Implementation
from properties.bugs.reference import REFERENCE
from properties.contract.operations import OPERATIONS
from properties.inspection.measurements import measured
from properties.tests.diagnosing import violated
from properties.tests.measured_kernels import KERNELS
from properties.verifier import diagnosis
from properties.verifier.report import Diagnosis
from properties.verifier.verify import verify
from properties.views.html.violations import finding
from properties.views.junit import junit
from properties.views.sarif import sarif
from properties.views.violation import print_cause

SDPA = "scaled_dot_product_attention"

RANDOM = np.random.default_rng(0)


def attention_case(batch, heads, n_q, n_k, **options):
    """A case of attention with features, of random numbers."""
    shapes = {"q": (*batch, heads, n_q, 3), "k": (*batch, 2, n_k, 3), "v": (*batch, 2, n_k, 2)}
    absent = dict.fromkeys(OPERATIONS["attention"].options)
    return absent | {name: RANDOM.normal(size=shape) for name, shape in shapes.items()} | options


def case(n_q, n_k, head_dim, value_dim):
    """A case of scaled dot-product attention and its VJP, of random numbers."""
    shapes = {"q": (n_q, head_dim), "k": (n_k, head_dim), "v": (n_k, value_dim), "grad_out": (n_q, value_dim)}
    return {"mask": None} | {name: RANDOM.normal(size=shape) for name, shape in shapes.items()}


MEASURED = {
    "head_blocks": (attention_case((), 4, 2, 3), "Heads 2–3 of 4 give weight 0 to every key."),
    "right_side": (attention_case((), 2, 5, 3, window=(1, None)), "Query 2 of 12 misses the last 4 visible keys."),
    "first_row": (case(4, 5, 3, 2), "queries 1–4 of 5 are not written: equal calls give other results."),
    "value_width": (
        case(3, 4, 2, 4),
        "With n_q 3, n_k 4, head_dim 3, value_dim 5: "
        "dq is 0 where it should not be (channels 3–4 of 5 of grad_out and v).",
    ),
    "late_blocks": (attention_case((), 2, 18, 18, causal=True), "queries 16–31 of 40 miss the last 8 visible keys."),
    "padded_width": (
        case(2, 3, 3, 2),
        "Channel 0 of the next row of q × channel 0 of the next row of k adds 0.577 to the score, should add 0.",
    ),
    "split_keys": (attention_case((2,), 2, 3, 50), "Batch 1 of 2 reads the values of batch 0."),
    "sink_of_a_key": (
        attention_case((), 2, 2, 3, sink=np.array([0.5, -1.0])),
        "the sink is added to the score of key 0, should be a separate key.",
    ),
    "partner_lane": (
        {"x": RANDOM.normal(size=(2, 96)), "start_pos": 3},
        "48 of 96 measured channels have another partner.",
    ),
}
"""For each kernel a case on which it is wrong, and what the measurements say."""


@pytest.fixture
def unsearched(monkeypatch):
    """The search for causes, which takes seconds, finds nothing."""
    monkeypatch.setattr(diagnosis, "_explained", lambda _, violated: [(tuple(range(len(violated))), ())])


@pytest.mark.usefixtures("unsearched")
@pytest.mark.parametrize("name", KERNELS)
def test_an_unrecognised_cause_is_measured(name):
    kernel, (case, sentence) = KERNELS[name](True), MEASURED[name]
    _, violation = violated(kernel, case)
    (cause,) = diagnosis.causes_of(kernel, [violation])
    assert sentence in "\n".join(cause.example.measured)


@pytest.mark.parametrize("name", KERNELS)
def test_no_sentence_is_about_the_right_kernel(name):
    kernel, (case, _) = KERNELS[name](False), MEASURED[name]
    (operation,) = kernel.operations
    assert violated(kernel, case)[1] is None
    absent = dict.fromkeys(OPERATIONS[operation].options)
    assert measured(kernel, operation, [(absent | case)[name] for name in OPERATIONS[operation].parameters]) == ()


def test_a_recognised_cause_is_not_measured(monkeypatch):
    monkeypatch.setattr(diagnosis, "measured", lambda *arguments: pytest.fail("It was measured."))
    unscaled = Implementation("unscaled", {SDPA: lambda q, k, v, mask=None: REFERENCE[SDPA](q * 2, k, v, mask)})
    law, violation = violated(unscaled, case(2, 3, 4, 2))
    known = Diagnosis("a-bug", "It is wrong.", "Mend it.")
    monkeypatch.setattr(diagnosis, "_explained", lambda *arguments: [((0,), (known,))])
    (cause,) = diagnosis.causes_of(unscaled, [violation])
    assert cause.likely == known
    assert diagnosis.diagnosed(unscaled, law, violation).likely == known


@pytest.mark.usefixtures("unsearched")
def test_a_failure_of_an_instrument_is_a_note(monkeypatch):
    def fails(*arguments):
        raise RuntimeError("No instrument.")

    monkeypatch.setattr(diagnosis, "measured", fails)
    kernel = KERNELS["padded_width"](True)
    (cause,) = diagnosis.causes_of(kernel, [violated(kernel, case(2, 3, 3, 2))[1]])
    assert cause.example.measured == ()
    (note,) = [note for note in cause.example.notes if note.startswith("attnspec failed")]
    assert note.startswith("attnspec failed while it measured the kernel: RuntimeError: No instrument.")


@pytest.mark.usefixtures("unsearched")
def test_nothing_is_measured_after_the_time_limit_or_without_smaller_inputs():
    kernel = KERNELS["padded_width"](True)
    law, violation = violated(kernel, case(2, 3, 3, 2))
    for options in ({"until": 0.0}, {"shrinks": False}):
        (cause,) = diagnosis.causes_of(kernel, [violation], **options)
        assert cause.example.measured == ()
    assert diagnosis.diagnosed(kernel, law, violation).measured


@pytest.mark.usefixtures("unsearched")
def test_all_views_show_the_measurements():
    report = verify(KERNELS["first_row"](True), laws=["attention is within its error limit"], max_examples=30)
    (cause,) = report.causes
    assert cause.likely is None
    sentence = f"Measured: {cause.example.measured[0]}"
    console = Console(file=io.StringIO(), width=200)
    print_cause(console, cause)
    printed = console.file.getvalue()
    assert printed.index("cause not recognised") < printed.index(sentence) < printed.index("attention is within")
    assert sentence.replace('"', "&quot;") in junit(report)
    assert sentence in json.loads(sarif(report))["runs"][0]["results"][0]["message"]["text"]
    data = report.to_dict()
    assert data["causes"][0]["example"]["measured"] == list(cause.example.measured)
    (outcome,) = [each for each in data["outcomes"] if each["status"] == "violated"]
    assert finding(outcome, "anchor", data["causes"]).measured == cause.example.measured
    older = {name: value for name, value in outcome["violation"].items() if name != "measured"}
    assert finding(outcome | {"violation": older}, "anchor").measured == ()
    assert replace(cause.example, measured=()).to_dict()["measured"] == []


def test_a_lost_last_tile_is_described_at_more_keys_than_those_of_a_small_input():
    """With fewer keys than a tile has, every query loses every key: this alone does not show the tile."""

    def full_tiles(q, k, v, mask=None):
        keys = slice(0, k.shape[-2] // 32 * 32)
        scores = q @ k[..., keys, :].mT / np.sqrt(q.shape[-1])
        weights = np.exp(scores)
        return weights @ v[..., keys, :] / np.maximum(weights.sum(-1, keepdims=True), 1e-300)

    implementation = Implementation("tiles", {SDPA: full_tiles}, "float64", supports=["no masks"])
    first, second = measured(implementation, SDPA, (np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1)), None))
    assert first == "Every query gives weight 0 to every key."
    assert second == "With n_q 2, n_k 40: every query misses the last 8 visible keys."
