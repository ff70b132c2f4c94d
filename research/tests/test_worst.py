"""The search for worst inputs keeps what it finds, starts there again, and writes inputs that can be pasted."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from properties.verifier.worst_input import climb
from research import worst

KERNEL = ("torch math bfloat16", "scaled_dot_product_attention", "out")


def test_kernels_are_results_of_what_can_be_run_and_others_are_told():
    found, left = worst.kernels()
    assert KERNEL in found
    assert ("torch math float32", "scaled_dot_product_attention_vjp", "dk") not in found  # it is offered in float64
    assert {name for name, *_ in found} >= {
        "torch flash float32",
        "torch flash bfloat16",
        "torch SDPA math, float masks float32",
    }
    assert any(
        sentence.startswith("torch flash float32, masks as given, scaled_dot_product_attention: The kernel")
        for sentence in left
    )
    assert {name for name, *_ in worst.kernels("flash bfloat16")[0]} == {"torch flash bfloat16"}


def test_every_other_turn_starts_where_a_kernel_is_worst():
    found = climb(worst._implementations()[KERNEL[0]], KERNEL[1], "everyday", 1, 5)
    known = {KERNEL: worst._Known(found, "tiles")}
    turns = worst._turns(known, 3)
    seen = [next(turns) for _ in range(4)]
    assert [(domain, begun is found) for _, domain, _, begun in seen] == [
        ("tiles", True),
        ("everyday", False),
        ("tiles", True),
        (worst._LAWS[KERNEL[1]].domains[1], False),
    ]
    assert len({number for _, _, number, _ in seen}) == 4


def test_an_input_near_its_budget_is_cut_down_and_printed_as_python_that_shows_it(tmp_path, monkeypatch):
    found = climb(worst._implementations()[KERNEL[0]], KERNEL[1], "small", 2, 30)
    monkeypatch.setattr(worst, "_NEAR", 0.9 * found.ratio)
    page = worst._page({KERNEL: worst._Known(found, "small", 30)}, ["nothing: A reason."], "Settings.")
    assert f"| {KERNEL[0]} | {KERNEL[1]} | out | {found.ratio:.3g} | small | 2 |" in page
    assert "- nothing: A reason." in page
    script = page.partition("```python\n")[2].partition("```")[0]
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(printed)[0] == pytest.approx(float(page.rpartition("out: ")[2].partition("\n")[0]), rel=1e-3)
    assert json.loads(printed)[0] >= 0.99 * found.ratio


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The command without its processes: one climb of a kernel."""

    def search(known, seed, jobs, seconds):
        known[KERNEL] = known[KERNEL].after(
            climb(worst._implementations()[KERNEL[0]], KERNEL[1], "everyday", seed, 5), "everyday"
        )

    monkeypatch.setattr(worst, "_search", search)
    given = [
        "--only",
        KERNEL[0],
        "--kept",
        str(tmp_path / "kept.json"),
        "--output",
        str(tmp_path / "worst.md"),
        "--seed",
    ]
    return lambda seed: worst.main([*given, str(seed)])


def test_the_command_keeps_worst_cases_and_says_how_far_they_are(command, tmp_path, capsys):
    another = ("torch float32", "rope", "out")
    kept = tmp_path / "kept.json"
    found = climb(worst._implementations()[another[0]], "rope", "everyday", 1, 2)
    kept.write_text(json.dumps([{"kernel": another, "domain": "everyday", "worst": asdict(found)}]))
    assert command(1) == 0
    first = worst._kept(kept)[KERNEL].worst
    assert command(2) == 0
    assert worst._kept(kept)[KERNEL].worst.ratio >= first.ratio
    assert worst._kept(kept)[another].worst == found
    assert "times its budget" in capsys.readouterr().out
    assert "entries with 'torch math bfloat16' in their names alone" in (tmp_path / "worst.md").read_text("utf-8")
    assert worst.main(["--only", "no such kernel"]) == 2


def test_what_was_kept_is_measured_again(command, tmp_path):
    assert command(1) == 0
    kept = tmp_path / "kept.json"
    (entry,) = json.loads(kept.read_text())
    kept.write_text(json.dumps([entry | {"worst": entry["worst"] | {"ratio": 7.0}}]))
    assert command(1) == 0
    assert worst._kept(kept)[KERNEL].worst.ratio == entry["worst"]["ratio"]


def test_what_was_found_before_an_interrupt_is_written(command, tmp_path, monkeypatch):
    search = worst._search

    def interrupted(*arguments):
        search(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(worst, "_search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command(1)
    assert worst._kept(tmp_path / "kept.json")[KERNEL].worst.ratio > 0
    assert KERNEL[0] in (tmp_path / "worst.md").read_text("utf-8")


def test_an_input_beyond_its_budget_ends_in_1(command, monkeypatch):
    monkeypatch.setattr(worst, "_write", lambda *_: 1.5)
    assert command(1) == 1
