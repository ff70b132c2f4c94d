"""The page of a portrait in Chromium: wide, on a phone and in the dark, for every reader."""

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import properties
from properties.bugs.reference import REFERENCE
from properties.views.html.portrait import write
from research.tests.test_browser import CHROMIUM, SIZES, chromium, opened

__all__ = ["chromium", "opened"]

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="There is no Chromium: apt-get install chromium, or your system's package of it."
)


def scaled_dot_product_attention(q, k, v, mask=None):
    """Attention that loses the last key if there are more than 3, and gives NaN for query 40 of 130."""
    if k.shape[-2] > 3:
        mask = np.ones((q.shape[-2], k.shape[-2]), bool) if mask is None else mask
        mask = mask & (np.arange(k.shape[-2]) < k.shape[-2] - 1)
    out = REFERENCE["scaled_dot_product_attention"](q, k, v, mask)
    if q.shape[-2] == 130:
        out[..., 40, :] = np.nan
    return out


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of an attention with anomalies and of a right rope, also at 130 queries and keys."""
    kernels = {"scaled_dot_product_attention": scaled_dot_product_attention, "rope": REFERENCE["rope"]}
    portrait = properties.inspect(kernels, shapes=[{"n_q": 130, "n_k": 130}, {"head_dim": 64}])
    return write([portrait], tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing(opened, size, scheme):
    page = opened(size, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    found = Axe().run(page).response["violations"]
    assert [(v["id"], [node["html"][:200] for node in v["nodes"]]) for v in found] == []


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_cut_and_the_page_never_scrolls_sideways(opened, size):
    page = opened(size)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    width = SIZES[size][0]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    right_ends = "[...document.querySelectorAll('dd, dt, li, figure svg')].map(e => e.getBoundingClientRect().right)"
    assert max(page.evaluate(right_ends)) <= width


def test_pictures_are_beside_each_other_and_below_each_other_on_a_phone(opened):
    for size, is_beside in (("wide", True), ("narrow", False)):
        first, second = (panel.bounding_box() for panel in opened(size).locator("figure .panel").all()[:2])
        assert (first["y"] == second["y"]) == is_beside


def test_the_dark_is_dark_and_pictures_follow(opened):
    light, dark = (opened(scheme=scheme) for scheme in ("light", "dark"))
    colour = "e => getComputedStyle(e).fill"
    assert dark.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    texts = [page.locator("figure svg text").first.evaluate(colour) for page in (light, dark)]
    cells = [page.locator("figure svg path[style*='fill: var(--series-1)']").first for page in (light, dark)]
    assert texts[0] != texts[1]
    assert cells[0].evaluate(colour) != cells[1].evaluate(colour)


def test_anomalies_come_first_and_wrong_entries_have_a_frame(opened):
    page = opened()
    headings = page.locator("section h3").all_inner_texts()
    assert headings[0] == "Anomalies"
    framed = page.locator("figure .panel:first-child svg path[style*='stroke: var(--ink)'][style*='fill: none']")
    assert framed.count() > 0
