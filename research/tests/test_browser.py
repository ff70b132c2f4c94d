"""The page in Chromium, as people use it: by mouse, by keyboard alone, on a phone, in the dark, on
paper. `make browser` runs this and the tests of a portrait's page and of the site.
"""

import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from properties.laws import LAWS
from properties.tests.test_html import outcome, report_of
from properties.views.html.page import write

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
SIZES = {"wide": (1280, 900), "phone": (390, 844), "narrow": (360, 740)}
NAMES = ("first", "second", "third")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="There is no Chromium: apt-get install chromium, or your system's package of it."
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A page on three implementations: one keeps every law, one breaks two laws of RoPE, one declares to break one."""
    outcomes = [outcome(law.name, law.operation, name) for name in NAMES for law in LAWS]
    ropes = [i for i, law in enumerate(LAWS) if law.operation == "rope"]
    for i, excess in zip(ropes[3:5], (7.5, "inf"), strict=True):
        law = LAWS[i]
        violation = {
            "law": law.name,
            "operation": law.operation,
            "implementation": "second",
            "summary": "out[0, 1]=0.84, but should be 0.0 ± 0: the error is ∞ times its budget; "
            "2 of 80 entries are outside.",
            "counterexample": {"x": [[1.0, 0.0]], "start_pos": 1},
            "excess": excess,
            "diagnosis": [
                {
                    "id": "a-known-bug",
                    "distance": 0.0,
                    "mechanism": "It turns back.",
                    "reported": "owner/repo#1",
                    "repair": "Turn it.",
                    "reproduces": 1.0,
                    "partial": False,
                }
            ],
            "notes": ["It was seen to fail from head_dim = 2 on."],
            "script": "import properties\nproperties.replay(...)\n",
        }
        place = len(LAWS) + i
        outcomes[place] = {**outcomes[place], "status": "violated", "worst_excess": excess, "violation": violation}
    outcomes[2 * len(LAWS)] |= {"status": "declared", "reason": "It is known to."}
    report = report_of(outcomes)
    for listed in report["settings"]["implementations"]:
        listed["group"] = "several"
    return write([report], tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, file):
    """A function that opens the page, without a network; what it complained of or asked for is found at the end."""
    contexts, wrong = [], []

    def open_page(size="wide", scheme="light"):
        width, height = SIZES[size]
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda request: wrong.append(request.url) if request.url.split(":")[0] not in ("file", "data") else None,
        )
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def page(opened):
    return opened()


def laws_shown(page):
    return page.locator("#grid tbody tr:not(.operation)").count()


def columns_shown(page):
    return page.locator("#grid th.name").all_inner_texts()


def focused(page):
    return page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText")


# -- The matrix ------------------------------------------------------------------------------------


def test_it_opens_from_disk_without_a_complaint_and_with_a_row_for_each_operation(page):
    operations = list(dict.fromkeys(law.operation for law in LAWS))
    assert page.title() == "1 of 3 implementations fails a check. · attnspec"
    assert page.locator("#grid tr.operation").count() == len(operations)
    assert laws_shown(page) == 0
    assert columns_shown(page) == list(NAMES)


def test_an_operation_opens_to_its_laws_and_closes(page):
    rope = page.locator("#grid tr.operation button", has_text="rope").filter(has_not_text="vjp").first
    rope.click()
    assert laws_shown(page) == sum(law.operation == "rope" for law in LAWS)
    rope.click()
    assert laws_shown(page) == 0


def test_words_narrow_the_laws(page):
    one = next(law for law in LAWS if law.operation == "rope" and not law.agreement)
    words = f"{one.operation} {one.name}".lower()
    page.fill("#filter [name=text]", words)
    wanted = [
        law
        for law in LAWS
        if all(word in f"{law.name} {law.operation} {law.statement}".lower() for word in words.split())
    ]
    assert one in wanted
    assert len(wanted) < len(LAWS)
    assert laws_shown(page) == len(wanted)
    assert page.inner_text("#shown") == f"{len(wanted)} of {len(LAWS)} laws, 3 of 3 implementations"
    page.fill("#filter [name=text]", "no law has these words")
    assert "No law matches the filter." in page.inner_text("#grid")


def test_a_status_leaves_the_laws_and_implementations_that_have_it(page):
    page.click("#statuses button:has-text('fails')")
    assert laws_shown(page) == 2
    assert columns_shown(page) == ["second"]
    page.click("#statuses button:has-text('as declared')")
    assert laws_shown(page) == 3
    page.click("#filter [type=reset]")
    expect(page.locator("#grid tbody tr:not(.operation)")).to_have_count(0)
    assert columns_shown(page) == list(NAMES)


def test_an_operation_and_an_implementation_can_be_chosen(page):
    page.select_option("#filter [name=operation]", "causal_mask")
    page.select_option("#filter [name=implementation]", label="third")
    assert columns_shown(page) == ["third"]
    assert page.locator("#grid tr.operation").count() == 1
    assert laws_shown(page) == sum(law.operation == "causal_mask" for law in LAWS)


def test_a_heading_sorts_by_what_its_implementation_did(page):
    page.select_option("#filter [name=operation]", "rope")
    page.click("#grid th.name button:has-text('second')")
    signs = page.locator("#grid tbody tr:not(.operation) td:nth-child(3)").all_inner_texts()
    assert signs[:2] == ["✗", "✗"]
    assert set(signs[2:]) == {"✓"}
    errors = [
        cell.get_attribute("aria-label").rpartition(": ")[2] for cell in page.locator("#grid .cell.violated").all()
    ]
    assert errors == ["fails, max error ÷ error limit ∞", "fails, max error ÷ error limit 7.5"]
    assert page.locator("#grid th[aria-sort]").inner_text() == "second"
    names = page.locator("#grid tbody tr:not(.operation) th").all_inner_texts()
    page.click("#grid th.law button")
    assert page.locator("#grid tbody tr:not(.operation) th").all_inner_texts() == sorted(names, key=str.lower)


def test_groups_of_implementations_have_a_heading(page):
    assert page.locator("#grid th[scope=colgroup]").all_inner_texts() == ["several"]
    page.select_option("#filter [name=implementation]", label="third")
    assert page.locator("#grid th[scope=colgroup]").count() == 0  # one column has no room for it


def test_headings_stay_in_sight(page):
    page.click("#unfold")
    head, grid = page.locator("#grid thead th.name").first, page.locator("#grid")
    page.evaluate("document.getElementById('grid').scrollTop = 4000")
    assert 0 <= head.bounding_box()["y"] - grid.bounding_box()["y"] < 40


# -- A cell ----------------------------------------------------------------------------------------


def test_a_cell_opens_and_says_what_was_found(page):
    page.click("#statuses button:has-text('fails')")
    page.locator("#grid .cell.violated").first.click()
    said = page.inner_text("dialog")
    for part in (
        "out[0, 1] is",
        "0.84",
        "0.0 ± 0",
        "start_pos",
        "a-known-bug",
        "Turn it.",
        "owner/repo#1",
        "properties.replay",
    ):
        assert part in said
    page.click("dialog .close")
    assert not page.is_visible("dialog")


def test_a_law_opens_and_says_who_keeps_it(page):
    page.click("#statuses button:has-text('fails')")
    page.locator("#grid tbody tr:not(.operation) th button").first.click()
    said = page.inner_text("dialog")
    assert "passes (2)" in said
    assert "first, third" in said
    assert "fails (1)" in said


def test_a_cell_of_a_law_that_held_has_its_statement_and_numbers(page):
    page.select_option("#filter [name=operation]", "rope")
    page.locator("#grid .cell.held").first.click()
    said = page.inner_text("dialog")
    law = next(law for law in LAWS if law.operation == "rope")
    assert " ".join(law.statement.split("\n\n")[0].split())[:60] in " ".join(said.split())
    assert "inputs that can expose a mistake" in said
    assert "0.25" in said


def test_the_keyboard_alone_is_enough(page):
    page.locator("#unfold").focus()
    page.keyboard.press("Tab")  # Reset
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('grid').contains(document.activeElement)")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")  # the first operation opens, and keeps the focus
    assert laws_shown(page) == sum(law.operation == LAWS[0].operation for law in LAWS)
    page.keyboard.press("ArrowDown")
    assert focused(page) == LAWS[0].name
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    assert focused(page) == NAMES[-1]
    page.keyboard.press("ArrowDown")  # past the operation's row, whose sums are no buttons
    assert focused(page).startswith(f"{LAWS[0].name}, {NAMES[-1]}: fails as declared")
    page.keyboard.press("Enter")
    assert "It is known to." in page.inner_text("dialog")
    page.keyboard.press("Escape")
    assert not page.is_visible("dialog")
    assert focused(page).startswith(f"{LAWS[0].name}, {NAMES[-1]}: fails as declared")
    page.keyboard.press("Shift+Tab")
    assert focused(page) == "Reset"


# -- Everyone, everywhere --------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing(opened, size, scheme):
    page = opened(size, scheme)
    page.click("#statuses button:has-text('fails')")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    found = list(Axe().run(page).response["violations"])
    page.locator("#grid .cell.violated").first.click()
    found += Axe().run(page, context="dialog").response["violations"]
    assert [(v["id"], [node["html"][:200] for node in v["nodes"]]) for v in found] == []


def test_axe_would_find_something(page):
    page.evaluate("document.querySelector('h1').style.color = '#ddd'")
    assert "color-contrast" in {v["id"] for v in Axe().run(page, context="h1").response["violations"]}


@pytest.mark.parametrize("size", SIZES)
def test_the_first_finding_that_fails_is_open_and_is_seen_without_scrolling(opened, size):
    page = opened(size)
    assert page.locator("main > section h2").first.inner_text() == "Findings"
    assert page.locator("section.implementation h3").all_inner_texts() == ["second", "third"]
    assert page.locator("details.finding[open]").count() == 1
    first = page.locator("details.finding").first
    assert first.locator(".mark").first.get_attribute("class") == "mark violated"
    assert first.locator(".compared").bounding_box()["y"] < SIZES[size][1]


@pytest.mark.parametrize("size", ["phone", "narrow"])
def test_no_table_is_cut_on_a_phone(opened, size):
    page = opened(size)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    wider = "e => e.filter(t => t.scrollWidth > t.clientWidth).map(t => t.ariaLabel)"
    assert page.locator(".scroll").evaluate_all(wider) == []
    cells = page.locator("section[aria-labelledby=implementations] tbody tr:not(.group)").first.locator("td:visible")
    labels = cells.evaluate_all("e => e.map(cell => getComputedStyle(cell, '::before').content)")
    assert labels == ['"passes"', '"max error ÷ error limit"', '"rounds as"', '"seconds"']


@pytest.mark.parametrize("size", SIZES)
def test_the_page_never_scrolls_sideways(opened, size):
    page = opened(size)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]


def test_the_dark_is_dark_and_pictures_follow(opened):
    light, dark = (opened(scheme=scheme) for scheme in ("light", "dark"))
    colour = "e => getComputedStyle(e).fill"
    assert dark.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    assert light.locator("figure svg text").first.evaluate(colour) != dark.locator("figure svg text").first.evaluate(
        colour
    )


def test_on_paper_every_finding_is_open_and_no_filter_is_printed(page):
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.finding:not([open])").count() == 0
    assert not page.is_visible("#filter")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.finding[open]").count() == 1
    assert page.pdf().startswith(b"%PDF")


def test_what_is_dark_is_printed_light(opened):
    page = opened(scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_link_to_a_finding_opens_it(page):
    anchor = page.locator("details.finding:not([open])").first.get_attribute("id")
    page.evaluate(f"location.hash = '{anchor}'")
    expect(page.locator(f"#{anchor}")).to_have_attribute("open", "")
