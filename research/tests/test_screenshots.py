"""The pictures are drawn of README's example."""

import shutil

import pytest

from research import screenshots


@pytest.mark.skipif(not any(map(shutil.which, screenshots.BROWSERS)), reason="There is no Chromium.")
def test_four_pictures_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(screenshots, "DOCS", tmp_path)
    screenshots.main()
    found = {
        file.name: int.from_bytes(file.read_bytes()[16:20], "big") for file in tmp_path.iterdir()
    }  # the width that PNG states
    width = found.pop("terminal.png")
    assert found == {"report-wide.png": 1280, "report-dark.png": 1280, "report-narrow.png": 390}
    assert 1000 < width < 1400


def test_without_a_browser_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(screenshots, "BROWSERS", ())
    with pytest.raises(SystemExit, match="need Chromium: apt-get install chromium"):
        screenshots.main()
