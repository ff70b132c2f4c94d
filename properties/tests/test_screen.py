"""The report on a broken kernel fits one screen: its cause first, its smallest input, its laws, and the numbers."""

import io
import re
from typing import get_args

import numpy as np
import pytest
from rich.console import Console

from properties.contract.operations import OPERATIONS
from properties.laws import LAWS
from properties.verifier.report import Cause, Outcome, Report, Status, Violation
from properties.verifier.verify import verify
from properties.views.statuses import LABELS, SIGNS, status_counts
from properties.views.terminal import print_report
from properties.views.violation import named

LINES, COLUMNS = 50, 100
SDPA = "scaled_dot_product_attention"
TILE = 16


def flash(q, k, v, mask=None):
    """Attention by tiles of keys, whose accumulator is not rescaled from the third tile on."""
    out, total, top = 0.0, 0.0, -np.inf
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(max(1, q.shape[-1]))
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    for number, start in enumerate(range(0, k.shape[-2], TILE)):
        part = scores[..., start : start + TILE]
        new = np.maximum(top, part.max(-1, keepdims=True, initial=-np.inf))
        weights, shrink = (np.exp(x - np.where(np.isinf(new), 0.0, new)) for x in (part, top))
        total, top = total * shrink + weights.sum(-1, keepdims=True), new
        out = (out * shrink if number < 2 else out) + weights @ v[..., start : start + TILE, :]
    found = np.where(total > 0, out / np.where(total > 0, total, 1.0), 0.0)
    return np.broadcast_to(found, (*scores.shape[:-1], v.shape[-1])).copy()


def flash_vjp(q, k, v, mask, g):
    """Its gradients, by what the forward returned."""
    scale = 1 / np.sqrt(max(1, q.shape[-1]))
    scores = scale * q @ k.swapaxes(-1, -2)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(top), 0.0, top))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    ds = weights * (g @ v.swapaxes(-1, -2) - (g * flash(q, k, v, mask)).sum(-1, keepdims=True)) * scale
    return ds @ k, ds.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g


BROKEN = {
    SDPA: flash,
    f"{SDPA}_vjp": flash_vjp,
    "causal_attention": lambda q, k, v: flash(q, k, v, np.tri(q.shape[-2], k.shape[-2], dtype=bool)),
}


def printed(report, names=("implementation",), everything=False, columns=COLUMNS):
    console = Console(file=io.StringIO(), width=columns, no_color=True, force_terminal=False)
    print_report(console, report, {"implementation": list(names)}, everything)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture(scope="module")
def report():
    return verify(BROKEN, max_examples=40)


def test_a_broken_flash_attention_is_one_cause_on_one_screen(report):
    lines = printed(report)
    assert len(report.causes) == 1
    assert len(report.causes[0].laws) >= 8
    assert len(lines) <= LINES, "\n".join(lines)
    assert lines.index("-v prints all checks that fail, with notes and scripts.") <= 16
    assert lines[0] == f"✗ implementation: {len(report.causes[0].laws)} checks fail; cause not recognised"
    for needed in (
        r"  out\[.*\]=.*, but should be ",
        "  The smallest input found:",
        r"  \d+ lines of Python: -v prints them, --write-tests DIR writes them as a test\.|    properties\.replay",
    ):
        assert any(re.match(needed, line) for line in lines), needed
    rows = [line.split() for line in lines if line.startswith("✗  ")]
    assert [row[1] for row in rows] == list(BROKEN)
    held = [sum(o.status == "held" for o in report.outcomes if o.operation == operation) for operation in BROKEN]
    assert [int(row[2]) for row in rows] == held
    assert lines[-1] == f"{status_counts(report.counts())} ({report.seconds:.1f} s)"


def test_everything_is_shown_where_that_is_asked_for(report):
    text = "\n".join(printed(report, everything=True))
    assert " more\n" not in text
    words = " ".join(text.split())
    assert all(o.law in words for o in report.outcomes)


def test_a_screen_holds_the_cause_of_every_law_of_an_operation():
    laws = [law.id for law in LAWS if law.operation in (SDPA, f"{SDPA}_vjp", "causal_attention")]
    example = Violation(
        laws[0].partition("[")[0],
        SDPA,
        "implementation",
        "is wrong.",
        {"n": 3},
        2.0,
        script="import numpy as np\n" * 400,
    )
    outcomes = tuple(
        Outcome(*law.removesuffix("]").split("["), "implementation", "violated", violation=example) for law in laws
    )
    lines = printed(Report(outcomes, causes=(Cause("implementation", tuple(laws), example),)))
    assert len(lines) <= LINES
    assert "  400 lines of Python: -v prints them, --write-tests DIR writes them as a test." in lines


@pytest.mark.parametrize("operation", OPERATIONS)
def test_names_of_laws_that_do_not_fit_are_counted(operation):
    laws = [law.id for law in LAWS if law.operation == operation]
    (short,), (whole,) = (list(named(laws, COLUMNS, everything)) for everything in (False, True))
    told = re.fullmatch(r"(.*?)(?:; and (\d+) more)?", short)
    assert whole.startswith(told[1])
    assert told[1].count(";") + 1 + int(told[2] or 0) == len(laws)
    assert len(short) <= 2 * COLUMNS


@pytest.mark.parametrize("columns", [40, 80, 100])
def test_no_heading_is_shortened(columns):
    outcomes = tuple(
        Outcome("a law", o, "implementation", s, 1000, vacuous=7, worst_excess=0.5) for o in OPERATIONS for s in SIGNS
    )
    text = "\n".join(printed(Report(outcomes), columns=columns))
    assert not re.search(r"\w…", text)
    for heading in (*LABELS.values(), "test inputs", "vacuous limits", "max error", "÷ limit"):
        assert all(word in text for word in heading.split()), heading
    letters = re.sub(r"\s", "", re.sub(r"(?m) \d.*$", "", text))
    assert all(operation in letters for operation in OPERATIONS)


def test_every_status_has_a_sign_and_words_for_one_check_and_for_several():
    assert list(SIGNS) == list(LABELS) == list(get_args(Status))
    counts = {"held": 1, "violated": 2, "declared": 2, "not applicable": 1}
    assert status_counts(counts) == "1 passes, 2 fail, 2 fail as declared, 1 does not apply"
    assert status_counts({"vacuous": 3}) == "0 pass, 0 fail, 3 inconclusive"
    assert status_counts({"vacuous": 3}, always=()) == "3 inconclusive"


def test_a_passing_implementation_has_a_line_with_its_tightest_preset():
    outcome = Outcome("a law", "rope", "implementation", "held", 20, within=("float32", "tf32"), looked_at=6)
    lines = printed(Report((outcome,)))
    assert lines[-2:] == ["implementation: Tightest preset that fits: float32 (6 calls checked)", "1 passes, 0 fail"]
