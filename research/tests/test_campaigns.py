"""What campaigns are measured with: workers on paper, a disk that is filled, and the costs in the guide."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from research.campaigns import disturbed
from research.campaigns.paper import simulated


def test_workers_on_paper_work_all_the_time_but_for_failures_and_a_driver_that_is_slow():
    ideal = simulated(10, 100, hours=0.1, life=1e12, driver=0.0)
    assert ideal == simulated(10, 100, hours=0.1, life=1e12, driver=0.0)
    assert ideal.lost == 0
    assert ideal.useful == pytest.approx(1.0)
    failing = simulated(10, 100, hours=0.1, life=60.0, driver=0.0)
    assert failing.lost > 20  # ten workers for six minutes, of which half they are away
    assert 0.3 < failing.useful < 0.7
    slow = simulated(100, 100, hours=0.1, life=1e12, driver=1.0)
    assert slow.driver == pytest.approx(1.0, abs=0.01)
    assert slow.chunks <= 360  # one a second


def test_a_disk_that_is_not_small_is_not_filled(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=5 << 30))
    for folder, said in (
        (tmp_path, "FOLDER has 5 GiB of free space, which will be filled"),
        (tmp_path / "x", "but should be a folder."),
    ):
        with pytest.raises(SystemExit, match="2"):
            disturbed.main([str(folder)])
        assert said in capsys.readouterr().err


def test_the_guide_has_the_costs_that_were_measured():
    docs = Path(__file__).parents[2] / "docs"
    guide, measured = (docs / "guide/campaigns.md").read_text("utf-8"), (docs / "campaign-costs.txt").read_text("utf-8")
    engines = re.findall(r"^(local|ray) +(\d) +(\d+) +\S+ +([\d.]+ %)$", measured, re.MULTILINE)
    clouds = re.findall(r"^ +(\d+) +([\d.]+) +(\d+)$", measured, re.MULTILINE)
    assert (len(engines), len(clouds)) == (4, 3)
    for row in [*engines, *clouds]:
        assert f"| {' | '.join(row).replace('ray', 'Ray')} |" in guide
    assert "All say the same of every chunk." in measured
    assert "The two databases say the same of every chunk." in (docs / "campaign-disturbed.txt").read_text("utf-8")
