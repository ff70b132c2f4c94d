"""The site's sources have a place for everything, and no link leads nowhere."""

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

import oracles
from properties.bugs import CATALOGUE
from properties.contract.operations import OPERATIONS
from properties.laws import LAWS
from research.pages import PAGES
from research.printed_runs import runs
from research.stamp import ROOT
from spec.errata import ERRATA
from spec.extended.rotary_frequencies import KINDS
from spec.tests.declarations import MODULES


@pytest.fixture(scope="module")
def pages(tmp_path_factory, worker_id):
    """The sources of all pages by name, and the pictures on them: made by one of the processes that
    run tests, for all.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "docs"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            made = tmp_path_factory.mktemp("docs")
            subprocess.run([sys.executable, ROOT / "docs/site", made], check=True)
            made.rename(folder)
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*.*")}


@pytest.fixture(scope="module")
def labels(pages):
    return [label for text in pages.values() for label in re.findall(r"^\((\S+)\)=$", text, re.MULTILINE)]


def slug(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


NOT_DEFINITIONS = ("spec.extended.arguments", "spec.extended.released")
DEFINITIONS = [d for module in ("activation", "positional_encoding", "attention") for d in MODULES[module][1]]


def test_everything_has_its_place_and_only_one(labels):
    wanted = [f"law-{slug(name)}" for name in dict.fromkeys(law.name for law in LAWS)]
    wanted += [f"bug-{bug}" for bug in CATALOGUE]
    wanted += [f"operation-{slug(name)}" for name in OPERATIONS]
    wanted += [f"erratum-{erratum}" for erratum in ERRATA]
    wanted += [f"definition-{slug(d.python)}" for d in DEFINITIONS]
    wanted += [f"api-oracles-{slug(name)}" for name in oracles.__all__]
    assert set(wanted) <= set(labels)
    assert len(labels) == len(set(labels))


def test_every_definition_has_an_equation():
    equations = runpy.run_path(str(ROOT / "docs/site/equations.py"))
    assert list(equations["EQUATIONS"]) == [d.lean for d in DEFINITIONS]


def test_every_extended_definition_has_an_equation_and_a_page(pages):
    equations = runpy.run_path(str(ROOT / "docs/site/equations.py"))["EXTENDED"]
    modules = [
        importlib.import_module(f"spec.extended.{path.stem}")
        for path in sorted((ROOT / "spec/extended").glob("[!_]*.py"))
    ]
    named = {name for module in modules for name in module.__all__ if module.__name__ not in NOT_DEFINITIONS} - {
        "Attended",
        "GRIDS",
    }
    assert set(equations) == named
    assert {f"extended/{slug(name)}.md" for name in named} <= set(pages)


def test_every_kind_of_frequencies_has_a_page_and_every_report_an_answer(pages):
    reports = (
        "sglang#33558 exllamav3#259 mlx-lm#1507 keras-hub#2981 Megatron-LM#1429 mlxcel#1355 unsloth#6197 unsloth#10681 "
        "vllm#27431"
    )
    for kind in KINDS:
        assert f"(#definition-{kind}-frequencies)" in pages[f"rotary/{kind}.md"]
        assert pages[f"rotary/{kind}.md"].count("<svg") == 2
    written = "".join(pages[f"rotary/{kind}.md"] for kind in KINDS)
    for report in (reports + " vllm#41236 transformers#25104 mlxcel#1324").split():
        assert report.replace("#", "\\#") in written


def test_what_a_query_sees_and_a_capped_row_are_drawn_in_the_page_s_colours(pages):
    seen, row = pages["extended/visible-keys.md"], pages["extended/softcap-scores.md"]
    cells = re.findall(r"<td.*?>(.*?)</td>", seen)
    assert [cells[i + 2] for i, x in enumerate(cells) if "a count" in x][5] == "· · · · 1 1 · ·"
    assert [cells[i + 2] for i, x in enumerate(cells) if "a bound" in x][5] == "· · · 1 1 1 · ·"
    assert "0.613 (no cap, sink 4)" in row
    css = (ROOT / "docs/site/static/site.css").read_text()
    used = set(re.findall(r"var\((--[\w-]+)\)", seen + row))
    assert used <= set(re.findall(r"^\s*(--[\w-]+):", css, re.MULTILINE))
    assert len(re.findall("--series-1:", css)) == 3, "for light ground, for dark, and for dark by the system's choice"


def test_every_page_of_measurements_is_on_the_site(pages):
    written = {file.stem for page in PAGES for file in page.written}
    assert written == {Path(name).stem for name in pages if name.startswith("measured/") and name.endswith(".md")} - {
        "index"
    }


def test_every_operation_is_defined_somewhere():
    equations = runpy.run_path(str(ROOT / "docs/site/equations.py"))
    defined = {operation for equation in equations["EQUATIONS"].values() for operation in equation.operations}
    assert defined | set(equations["ELSEWHERE"]) == set(OPERATIONS)
    assert not defined & set(equations["ELSEWHERE"])


def test_no_link_leads_nowhere(pages, labels):
    broken = []
    for name, text in pages.items():
        prose = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
        headings = {
            re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-")
            for h in re.findall(r"^#{1,3} (.+)", prose, re.MULTILINE)
        }
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose)):
            if target.startswith(("http://", "https://")):
                continue
            if target.startswith("#"):
                reached = target[1:] in labels or target[1:] in headings
            else:
                reached = str((Path("/") / name).parent.joinpath(target).resolve().relative_to("/")) in pages
            if not reached:
                broken.append(f"{name}: {target}")
    assert broken == []


def test_the_first_page_opens_with_the_verdict_that_readme_shows(pages):
    verdict = runs((ROOT / "README.md").read_text("utf-8"))[0].shown.strip()
    assert "likely cause: rope_pairing=half\n" in verdict
    assert verdict in pages["index.md"].partition("Underneath")[0]


def test_the_changelog_is_a_page_with_links_into_the_site(pages):
    assert pages["changelog.md"].startswith("# Changelog\n")
    assert "](measured/kill-matrix.md)" in pages["changelog.md"]
    assert "\nchangelog\n" in pages["index.md"]


def test_a_law_page_shows_each_code_once_and_the_terms_of_a_restricted_symmetry(pages):
    codes = {name: re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for name, text in pages.items()}
    laws = {name: shown for name, shown in codes.items() if name.startswith("laws/") and name != "laws/index.md"}
    assert len(laws) == len({law.name for law in LAWS})
    assert [name for name, shown in laws.items() if not shown or len(shown) != len(set(shown))] == []
    order = "laws/the-order-of-keys-does-not-matter.md"
    assert "The code of the 3 statements:" in pages[order]
    assert "case.along(axis, case.choose.order(case.size(axis)))" in laws[order][0]


def test_definitions_laws_and_bugs_are_linked_both_ways(pages):
    definition, law = pages["spec/causal-mask.md"], pages["laws/a-causal-mask-equals-its-definition.md"]
    assert "(#law-a-causal-mask-equals-its-definition)" in definition
    assert "(#definition-causal-mask)" in law
    bug = pages["operations/causal-mask.md"]
    assert "(#bug-causal-group-of-four)" in definition
    assert "(#bug-causal-group-of-four)" in law
    assert "(#definition-causal-mask)" in bug
    assert "(#law-a-causal-mask-equals-its-definition)" in bug
    assert "(#erratum-rope-odd-lane)" in pages["spec/rope-apply-spec.md"]
    assert "(#definition-rope-apply-spec)" in pages["errata.md"]
