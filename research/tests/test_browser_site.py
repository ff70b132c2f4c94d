"""The site's tables, titles, search and missing page in Chromium, wide and on a phone.

Only the search needs Sphinx, which builds two pages of the site. Elsewhere the tables come from the site's
sources, the headings from its templates, and a few lines stand for the theme's style.
"""

import re
import runpy
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from axe_playwright_python.sync_playwright import Axe
from markdown_it import MarkdownIt

from research.stamp import ROOT
from research.tests.test_browser import CHROMIUM, SIZES, chromium
from research.tests.test_site import pages

__all__ = ["chromium", "pages"]

SITE = ROOT / "docs/site"
THEME = """
* { box-sizing: border-box; }
body { margin: 0; font-family: sans-serif; --color-foreground-secondary: #5a5c63; overflow-wrap: break-word; }
h1 { font-size: 2.5em; }
code { font-size: 81.25%; }
table { border-collapse: collapse; font-size: 87.5%; }
table.docutils td, table.docutils th { padding: 0 0.25rem; border: 1px solid #aaa; }
.pre { white-space: nowrap; }
.sidebar { flex: 0 0 17rem; }
.page { display: flex; }
.content { padding: 0 3em; }
.table-wrapper { overflow-x: auto; width: 100%; }
@media (max-width: 63em) { .sidebar { display: none; } .content { padding: 0 1em; } }
"""
"""What matters here of the theme's style."""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="There is no Chromium: apt-get install chromium, or your system's package of it."
)


@pytest.fixture(scope="module")
def finished():
    """The function that changes the body of each page."""
    sys.path.insert(0, str(SITE))
    try:
        yield runpy.run_path(str(SITE / "markup.py"))["finished"]
    finally:
        sys.path.remove(str(SITE))


@pytest.fixture
def opened(chromium):
    """A function that opens a body as a page of the site."""
    contexts = []

    def open_body(body, size):
        width, height = SIZES[size]
        context = chromium.new_context(viewport={"width": width, "height": height}, offline=True)
        contexts.append(context)
        page = context.new_page()
        style = THEME + (SITE / "static/site.css").read_text()
        page.set_content(
            f"<!doctype html><html lang=en><title>attnspec</title><style>{style}</style>"
            f"<div class=page><div class=sidebar></div><main class=content>{body}</main></div>"
        )
        page.add_script_tag(path=SITE / "static/tables.js")
        return page

    yield open_body
    for context in contexts:
        context.close()


def tables_of(text):
    """The tables of a page in Markdown, as Sphinx writes them."""
    html = MarkdownIt("commonmark").enable("table").render(re.sub(r"\$[^$\n]*\$", "x", text))
    tables = "".join(re.findall(r"<table>.*?</table>", html, re.DOTALL))
    tables = re.sub(
        r"<code>(.*?)</code>",
        lambda code: f"<code>{' '.join(f'<span class=pre>{word}</span>' for word in code[1].split())}</code>",
        tables,
    )
    return tables.replace("<table>", '<div class="table-wrapper" tabindex=0><table class="docutils">').replace(
        "</table>", "</table></div>"
    )


def is_cut(page):
    return page.locator(".table-wrapper").evaluate_all("e => e.some(box => box.scrollWidth > box.clientWidth)")


@pytest.fixture(scope="module")
def tables(pages):
    """The tables of each page that has some."""
    made = {name: tables_of(text) for name, text in pages.items() if name.endswith(".md")}
    return {name: table for name, table in made.items() if table}


def test_no_table_is_cut_on_a_phone(opened, tables):
    assert len(tables) > 10
    assert [name for name, table in tables.items() if is_cut(opened(table, "phone"))] == []


def test_a_cell_on_a_phone_is_below_the_heading_of_its_column(opened, tables):
    shapes = opened(tables["guide/operations.md"], "phone").locator("tbody tr").first.locator("td").nth(2)
    assert shapes.evaluate("e => getComputedStyle(e, '::before').content") == '"shapes"'
    assert shapes.bounding_box()["width"] > 300
    assert opened(tables["guide/operations.md"], "wide").locator(".stacked").count() == 0


def test_numbers_of_a_picture_are_not_cut_on_a_phone(opened, pages):
    (numbers,) = re.findall(r"<details class=\"numbers\">.*?</details>", pages["extended/visible-keys.md"], re.DOTALL)
    page = opened(numbers, "phone")
    page.click("summary")
    page.wait_for_selector("table")
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"][0]
    assert page.locator(".scroll").evaluate("box => box.scrollWidth <= box.clientWidth")


def test_shapes_have_room_on_the_page_of_operations(opened, tables):
    page = opened(tables["guide/operations.md"], "wide")
    assert page.locator("tbody td:nth-child(3)").first.bounding_box()["width"] >= 224
    assert not is_cut(page)


def test_a_title_breaks_only_between_words(opened, pages, finished):
    titles = re.findall(r"^# (.+)", "\n".join(pages.values()).replace("\\", ""), re.MULTILINE)
    names = {title for title in titles if re.fullmatch(r"[\w.]+", title)}
    assert {"scaled_dot_product_attention_vjp", "MultiHeadAttention.forward"} <= names
    page = opened(finished("".join(f"<h1>{name}</h1>" for name in sorted(names)), ""), "phone")
    split = """headings => headings.filter(heading => [...heading.childNodes].some(part => {
        const range = document.createRange();
        range.selectNodeContents(part);
        return range.getClientRects().length > 1;
    })).map(heading => heading.textContent)"""
    assert page.locator("h1").evaluate_all(split) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"][0]


def test_a_page_ends_with_its_version_and_a_link_to_the_changelog(opened, finished):
    page = opened(finished("<h1>rope</h1>", "../changelog.html"), "phone")
    assert page.locator("main > :last-child").inner_text() == f"attnspec {version()} · Changelog"
    assert page.locator("main a").last.get_attribute("href") == "../changelog.html"


def version():
    return re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)[1]


@pytest.mark.parametrize("size", ["wide", "phone"])
def test_axe_finds_nothing(opened, tables, finished, size):
    page = opened(finished("<h1>Operations</h1>" + tables["guide/operations.md"], "#"), size)
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in Axe().run(page).response["violations"]] == []


SEARCHED = ("operations/rope.md", "operations/alibi-slopes.md")


@pytest.fixture(scope="module")
def built(pages, tmp_path_factory):
    """The first page of a site of two operations, as Sphinx builds it with the site's settings."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed: make docs installs it.")
    sources, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    (sources / "operations").mkdir()
    for name in SEARCHED:
        (sources / name).write_text(pages[name], "utf-8")
    (sources / "index.md").write_text("# attnspec\n\n```{toctree}\n" + "\n".join(SEARCHED) + "\n```\n", "utf-8")
    (sources / "changelog.md").write_text("---\norphan: true\n---\n\n# Changelog\n", "utf-8")
    command = [sys.executable, "-m", "sphinx", "--silent", "-c", str(SITE), str(sources), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder / "index.html"


@pytest.mark.parametrize(("words", "page"), [("rotated", "rope"), ("slope", "alibi-slopes"), ("quixotic", "")])
def test_the_search_finds_the_page_that_has_the_words(chromium, built, words, page):
    opened = chromium.new_page()
    opened.goto(built.as_uri())
    opened.fill("input[name=q]", words)
    opened.press("input[name=q]", "Enter")
    opened.wait_for_function(
        "/Search (finished|Results)|did not match/.test(document.querySelector('#search-results').innerText)"
    )
    found = opened.locator("#search-results ul.search a")
    assert [link.get_attribute("href") for link in found.all()][:1] == ([f"operations/{page}.html"] if page else [])
    if page:
        found.first.click()
        opened.wait_for_url(f"**/operations/{page}.html*")
    opened.close()


class Server(SimpleHTTPRequestHandler):
    """A server that sends 404.html for missing addresses, as those for static sites do."""

    def send_error(self, code, message=None, explain=None):
        body = (SITE / "served/404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def address(tmp_path):
    """The address of a server with a release in the folder attnspec/0.2.0."""
    folder = tmp_path / "attnspec/0.2.0"
    folder.mkdir(parents=True)
    for name in ("index", "search"):
        (folder / f"{name}.html").write_text(f"<!doctype html><title>{name}</title>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=tmp_path)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("depth", ["", "laws/of/"])
def test_the_page_of_a_missing_address_leads_to_the_site_s_first_page_and_search(chromium, address, depth):
    page = chromium.new_page()
    missing = page.goto(f"{address}/attnspec/0.2.0/{depth}missing.html")
    assert missing.status == 404
    assert Axe().run(page).response["violations"] == []
    for name in ("search", "index"):
        page.goto(missing.url)
        page.wait_for_selector(f"a[href$='/attnspec/0.2.0/{name}.html']").click()
        page.wait_for_url(f"{address}/attnspec/0.2.0/{name}.html")
    page.close()
