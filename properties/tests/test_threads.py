"""What authors of twenty public bugs would have read: the essential words are in what attnspec says, and
it says nothing about the right twins.
"""

import json

import numpy as np
import pytest

from properties.command.cli import main
from properties.contract.operations import OPERATIONS
from properties.inspection.measurements import measured
from properties.tests.test_measured_causes import attention_case, case
from properties.tests.thread_kernels import STATEFUL, THREADS, two_passes
from properties.verifier.verify import verify

RANDOM = np.random.default_rng(0)


def rows_of_scores(n_k):
    return {"scores": RANDOM.normal(size=(2, n_k)).astype(np.float16).astype(float)}


TREE = np.tril(np.ones((40, 40), bool)) & (np.arange(40) % 3 > 0)
PASTS = {"causal": True, "offset": np.array([5, 7]), "window": (2, None)}

MEASURED = {
    "t01": (attention_case((), 4, 2, 3), "Heads 2–3 of 4 give weight 0 to every key."),
    "t02": (attention_case((), 2, 5, 3, window=(1, None)), "Query 2 of 12 misses the last 4 visible keys."),
    "t04": (case(5, 4, 3, 2), "Queries 1–4 of 5 are not written: equal calls give other results."),
    "t05": (case(3, 4, 2, 4), "dq is 0 where it should not be (channels 3–4 of 5 of grad_out and v)."),
    "t08": (
        {"x": RANDOM.normal(size=(4, 2600, 8)), "start_pos": 3, "rotary_dim": 4},
        "Partner channels come from the previous batch (batches 1, 3 of 4).",
    ),
    "t12": (rows_of_scores(5), "The maximum is not subtracted from the scores of 32 of 4096 keys."),
    "t13": (rows_of_scores(5), "Row sums stop at 2048, as sums in float16 do."),
    "t14": (
        attention_case((), 2, 2, 3, softcap=1.5),
        "beside scores of 0, scores from 44.37 × the softcap on give NaN",
    ),
    "t15": (attention_case((), 2, 40, 40, causal=True, mask=TREE), "Queries 16–31 of 40 read masked keys 0"),
    "t16": (attention_case((), 2, 18, 18, causal=True), "queries 16–31 of 40 miss the last 8 visible keys."),
    "t17": (case(2, 3, 3, 2), "Channel 0 of the next row of q × channel 0 of the next row of k adds"),
    "t19": (attention_case((2,), 4, 1, 1040), "Batch 1 of 2 reads the values of batch 0."),
    "t20": (
        attention_case((), 2, 2, 3, sink=np.array([0.5, -1.0])),
        "sink is added to the score of key 0, should be a separate key.",
    ),
    "t23": ({"x": RANDOM.normal(size=(2, 96)), "start_pos": 3}, "Channel 0 is paired with"),
    "t32": (attention_case((), 3, 2, 3), "3 heads are not refused, but their number should be a multiple of the 2"),
    "t36": (case(3, 4, 2, 4), "Sums of weights times values stop after 256 equal products, as sums in bfloat16 do."),
    "t37": (attention_case((2,), 2, 3, 12, **PASTS), "Batch 0 of 2 misses the first 2 visible keys."),
}
"""For each thread a call at whose shape the kernel is measured, and what is said. Stateful kernels are
wrong only after earlier calls.
"""

AT_OPERATING_POINTS = {
    "t08": (
        THREADS["t08"](True),
        ("Partner channels come from the previous head", "Partner channels come from the previous batch"),
    ),
    "t12": (THREADS["t12"](True), ("The maximum is not subtracted from the scores of 32 of 4096 keys.",)),
    "t19": (two_passes(True, 4096), ("attention-two-passes-without-the-batch", "reads the values of batch 0.")),
    "t32": (THREADS["t32"](True), ("3 heads are not refused, but their number should be a multiple of the 2",)),
    "t37": (THREADS["t37"](True), ("attention-window-starts-at-the-longest-past",)),
}
"""Kernels that are wrong only at sizes and options that random calls hardly reach, as reported, and words
of which one is in what is said about each cause.
"""

SAID = {
    **{name: words for name, (_, words) in MEASURED.items() if name not in AT_OPERATING_POINTS},
    "t01": "give weight 0 to every key",
    "t02": "attention-missing-right-side-is-the-number-of-keys",
    "t04": "not written: equal calls give other results",
    "t05": "vjp-queries-from-the-first-channels",
    "t15": "reads every masked key",
    "t17": "sdpa-width-padded-by-the-next-row",
}
"""What `verify` says: known bugs have a name."""


def said_by(thread, wrong):
    """The sentences on the kernel of a thread, at the shape of its call."""
    kernel, given = THREADS[thread](wrong), MEASURED[thread][0]
    (operation,) = kernel.operations
    return "\n".join(measured(kernel, operation, [given.get(name) for name in OPERATIONS[operation].parameters]))


@pytest.mark.parametrize("thread", MEASURED)
def test_a_measurement_says_what_is_wrong(thread):
    assert MEASURED[thread][1] in said_by(thread, wrong=True)


@pytest.mark.parametrize("thread", MEASURED)
def test_no_sentence_is_about_a_right_twin(thread):
    assert said_by(thread, wrong=False) == ""


def test_every_thread_is_tested():
    assert {*MEASURED, *STATEFUL} == {*THREADS}


@pytest.mark.thorough
@pytest.mark.parametrize("thread", SAID)
def test_a_verdict_says_what_is_wrong(thread):
    cause, *others = verify(THREADS[thread](True), max_examples=60).causes
    assert not any(other.searched for other in others)  # sizes that the adapter excludes have a cause of their own
    likely = [f"{each.id}: {each.mechanism}" for each in cause.diagnosis if not each.partial]
    assert SAID[thread] in "\n".join([*likely, *cause.example.measured])
    assert not any("attnspec failed" in note for note in cause.example.notes)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("thread", AT_OPERATING_POINTS)
def test_a_mistake_at_operating_points_is_seen_with_each_seed(thread, seed):
    kernel, words = AT_OPERATING_POINTS[thread]
    causes = verify(kernel, seed=seed).causes
    assert causes
    for cause in causes:
        said = [*(each.id for each in cause.diagnosis), *cause.example.measured, cause.example.summary]
        assert any(each in "\n".join(said) for each in words), said


@pytest.mark.thorough
@pytest.mark.parametrize("thread", [name for name in THREADS if name not in STATEFUL])
def test_a_verdict_on_a_right_twin_has_no_cause(thread):
    assert not verify(THREADS[thread](False), max_examples=60).causes


ADAPTER = """
from properties.tests.thread_kernels import STATEFUL

WRONG, RIGHT = ([make(wrong) for make in STATEFUL.values()] for wrong in (True, False))
"""

AFTER = {
    "masks": "only after an earlier call: the same call with a mask of shape (",
    "positions": "only after an earlier call: the same call with start_pos=0 instead of ",
    "pages": "only after an earlier call: the same call with other values in ",
}


@pytest.mark.thorough
def test_stateful_kernels_have_one_cause_with_the_earlier_call(tmp_path, monkeypatch):
    (tmp_path / "threads.py").write_text(ADAPTER)
    monkeypatch.chdir(tmp_path)
    few = ["--max-examples", "60", "--jobs", "1", "--json", "report"]
    assert main(["verify", "threads.py:RIGHT", *few]) == 0
    assert main(["verify", "threads.py:WRONG", *few]) == 1
    causes = json.loads((tmp_path / "report").read_text())["causes"]
    assert [cause["implementation"] for cause in causes] == [*AFTER]
    named = [[each["id"] for each in cause["diagnosis"]] for cause in causes]
    assert named == [[], ["rope-cache-ignores-offset"], ["sdpa-replay-reads-captured-keys"]]
    for cause in causes:
        assert AFTER[cause["implementation"]] in cause["example"]["on_earlier_calls"]
