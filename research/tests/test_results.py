"""What `make results` writes of a device, from a report that stands in for one; without a device it says so."""

import json
from dataclasses import replace

import numpy as np
import pytest

import properties
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.verifier.report_file import read
from research import results

SDPA = "scaled_dot_product_attention"
DEVICE = {"device": "NVIDIA H900 (SXM)", "CUDA": "14.2"}


@pytest.fixture
def stand_in(monkeypatch):
    """A device, and a verification that has one right entry and a wrong one."""

    def verify(arguments):
        assert arguments[:4] == ["verify", "systems:GROUPS", "--only", "CUDA"]
        examples, seed = (int(arguments[arguments.index(name) + 1]) for name in ("--max-examples", "--seed"))
        right = Implementation("CUDA right", {SDPA: REFERENCE[SDPA]})
        wrong = replace(
            right, name="CUDA wrong", operations={SDPA: lambda q, k, v, mask=None: 2 * REFERENCE[SDPA](q, k, v, mask)}
        )
        laws = [f"attention is within its error limit[{SDPA}]"]
        found = [properties.verify(i, laws=laws, max_examples=examples, seed=seed).to_dict() for i in (right, wrong)]
        report = found[1] | {"outcomes": [*found[0]["outcomes"], *found[1]["outcomes"]]}
        report["settings"] = {"max_examples": examples, "seed": seed, "environment": {"python": "3.11"}}
        with open(arguments[arguments.index("--json") + 1], "w", encoding="utf-8") as file:
            json.dump(report, file)
        return 1

    monkeypatch.setattr(results, "device", lambda: DEVICE)
    monkeypatch.setattr(results, "attnspec", verify)


def test_a_page_and_a_report_are_written_under_the_name_of_the_device(stand_in, tmp_path):
    assert results.main(["--examples", "8", "--seed", "3", "--output", str(tmp_path)]) == 1
    page = (tmp_path / "nvidia-h900-sxm.md").read_text("utf-8")
    report = read(tmp_path / "nvidia-h900-sxm.json")
    assert report["settings"]["environment"] == {**DEVICE, "python": "3.11"}
    assert page.startswith("# NVIDIA H900 (SXM)\n")
    assert "8 cases of each operation, seed\n3." in page
    assert "| CUDA | 14.2 |\n| python | 3.11 |" in page
    assert "| CUDA wrong | 1 **violated** |" in page
    assert "| CUDA right | 1 held, 0." in page
    assert "### CUDA wrong: " in page
    script = (
        page.partition("```python\n")[2].partition("```")[0].replace("implementation = ...", "implementation = wrong")
    )
    with pytest.raises(AssertionError, match="but should be"):
        exec(script, {"wrong": {SDPA: lambda q, k, v, mask=None: 2 * REFERENCE[SDPA](q, k, v, mask)}, "np": np})


def test_a_run_that_could_not_be_written_writes_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "device", lambda: DEVICE)
    monkeypatch.setattr(results, "attnspec", lambda arguments: 2)
    assert results.main(["--output", str(tmp_path)]) == 2
    assert not list(tmp_path.iterdir())


def test_without_a_device_it_says_so_and_writes_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(results.torch.cuda, "is_available", lambda: False)
    assert results.main(["--output", str(tmp_path / "results")]) == 1
    assert capsys.readouterr().err == (
        "There is no CUDA device: nothing was run, and nothing written. Run `make results` on a machine with one.\n"
    )
    assert not (tmp_path / "results").exists()
