"""The search for worst inputs keeps what it finds, starts there again, and writes inputs that can be pasted."""

import json
import subprocess
import sys

import pytest

from properties.campaign.climbing import climb
from properties.measurements import worst

KERNEL = ("torch math bfloat16", "scaled_dot_product_attention", "out")


def test_kernels_are_results_of_what_can_be_run_and_others_are_told():
    found, left = worst.kernels()
    assert KERNEL in found
    assert ("torch math float32", "scaled_dot_product_attention_vjp", "dk") not in found  # it is offered in float64
    assert {name for name, *_ in found} >= {"torch flash float32", "torch flash bfloat16", "torch SDPA math, float masks float32"}
    assert any(sentence.startswith("torch flash float32, masks as given, scaled_dot_product_attention: The kernel") for sentence in left)
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


def test_the_command_keeps_worst_cases_and_says_how_far_they_are(tmp_path, monkeypatch, capsys):
    def search(known, seed, jobs, seconds):
        known[KERNEL] = known[KERNEL].after(climb(worst._implementations()[KERNEL[0]], KERNEL[1], "everyday", seed, 5), "everyday")

    monkeypatch.setattr(worst, "_search", search)
    given = ["--only", KERNEL[0], "--kept", str(tmp_path / "kept.json"), "--output", str(tmp_path / "worst.md"), "--seed"]
    assert worst.main([*given, "1"]) == 0
    first = worst._kept(tmp_path / "kept.json", [KERNEL])[KERNEL].worst
    assert worst.main([*given, "2"]) == 0
    assert worst._kept(tmp_path / "kept.json", [KERNEL])[KERNEL].worst.ratio >= first.ratio
    assert "times its budget" in capsys.readouterr().out
    assert worst.main(["--only", "no such kernel"]) == 2


def test_an_input_beyond_its_budget_ends_in_1(tmp_path, monkeypatch):
    def search(known, seed, jobs, seconds):
        known[KERNEL] = known[KERNEL].after(worst.Worst(1.5, "out", {"x": None}, 0, 1), "everyday")

    monkeypatch.setattr(worst, "_search", search)
    monkeypatch.setattr(worst, "_page", lambda *_: "")
    kept, page = (str(tmp_path / name) for name in ("kept.json", "worst.md"))
    assert worst.main(["--only", KERNEL[0], "--kept", kept, "--output", page]) == 1
