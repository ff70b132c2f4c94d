"""The page of a report, without a browser: well-formed, on its own, the same every time, and true."""

import json
import math
import re
from collections import Counter

import html5lib
import numpy as np
import pytest

import properties
from oracles import Conventions
from properties.command import cli, outputs
from properties.contract.implementation import Implementation
from properties.laws import LAWS
from properties.views import whole
from properties.views.html import page as pages
from properties.views.html.environment import environment
from properties.views.html.figures import FIGURES
from properties.views.html.matrix import matrix
from properties.views.html.page import html, write
from properties.views.html.violations import finding, linked

HOSTILE = "</script><script>alert(1)</script><b id='data'>"


def half_rope(x, start_pos=0):
    d = x.shape[-1]
    angle = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)


def outcome(law, operation, implementation, status="held", **more):
    numbers = {"examples": 10, "informative": 10, "vacuous": 0, "worst_excess": 0.25, "seconds": 0.1, "reason": ""}
    return {"law": law, "operation": operation, "implementation": implementation, "status": status, **numbers, **more}


def report_of(outcomes, **settings):
    named = dict.fromkeys(o["implementation"] for o in outcomes)
    listed = [{"name": n, "group": f"group of {n}", "target": "m:a", "arithmetic": "float64"} for n in named]
    return {
        "version": 2,
        "ok": all(o["status"] == "held" for o in outcomes),
        "interrupted": False,
        "settings": {"max_examples": 10, "seed": 0, "timeout": 60.0, "implementations": listed, **settings},
        "outcomes": outcomes,
    }


@pytest.fixture(scope="module")
def real():
    """What a verification of a wrong RoPE found."""
    laws = [
        "rope is within its error limit[rope]",
        "f(a) + f(b) = f(a + b)[rope]",
        "at position p the first pair rotates by p radians[rope]",
    ]
    broken = Implementation(
        "half", {"rope": half_rope}, supports={"head_dim": lambda d: d % 2 == 0}, conventions=Conventions()
    )
    return properties.verify(broken, laws=laws, max_examples=20).to_dict()


@pytest.fixture(scope="module")
def hostile():
    """Every status, and names, reasons and citations that look like HTML."""
    law = LAWS[0]
    violation = {
        "law": law.name,
        "operation": law.operation,
        "implementation": HOSTILE,
        "summary": f"out[0]=nan, but should be {HOSTILE}",
        "counterexample": {"x": [["nan", 1.0], ["inf", 2.0]], "n": 3, "mask": None, "empty": [[]]},
        "excess": "inf",
        "diagnosis": [
            {
                "id": HOSTILE,
                "distance": 0.1,
                "mechanism": HOSTILE,
                "reported": f"a/b#1; {HOSTILE}",
                "repair": HOSTILE,
                "reproduces": 0.5,
                "partial": False,
            }
        ],
        "notes": [HOSTILE],
        "script": HOSTILE,
    }
    return report_of(
        [
            outcome(law.name, law.operation, HOSTILE, "violated", worst_excess="inf", violation=violation),
            outcome(LAWS[1].name, LAWS[1].operation, HOSTILE, "declared", reason=HOSTILE),
            outcome(LAWS[2].name, LAWS[2].operation, HOSTILE, "vacuous", reason="Only 0 of 10 were informative."),
            outcome(LAWS[4].name, LAWS[4].operation, HOSTILE),
            outcome(
                LAWS[3].name,
                LAWS[3].operation,
                HOSTILE,
                "not applicable",
                examples=0,
                worst_excess=0.0,
                reason="It is exempt.",
            ),
            outcome(
                law.name,
                law.operation,
                "elsewhere",
                "not run",
                examples=0,
                worst_excess=0.0,
                reason="No such device.",
                unavailable=True,
            ),
        ]
    )


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """They take seconds; the page of the tests on the whole page, made before, has them, and so
    have their own tests.
    """
    monkeypatch.setattr(pages, "FIGURES", ())


@pytest.fixture(scope="module")
def text(real, hostile):
    return html([real, hostile])


@pytest.fixture(scope="module")
def elements(text):
    return list(html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text).iter())


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


# -- The page is sound -----------------------------------------------------------------------------


def test_the_page_is_strictly_well_formed(elements):
    assert {"html", "head", "body", "main", "dialog", "svg"} <= {str(e.tag).rpartition("}")[2] for e in elements}


def test_ids_are_unique_and_every_reference_has_one(elements):
    ids = Counter(e.get("id") for e in elements if e.get("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    made_later = {"dialog-title"}  # by the script, when a cell is opened
    for e in elements:
        named = [e.get("aria-labelledby", "")] + [
            x[1:] for x in (e.get("href", ""), e.get("for", "")) if x.startswith("#")
        ]
        named += re.findall(r"url\(#([^)]*)\)", " ".join(e.attrib.values()))
        assert {name for name in named if name} - made_later <= set(ids)


def test_nothing_is_loaded_from_anywhere(elements, text):
    for e in elements:
        tag = str(e.tag).rpartition("}")[2].lower()
        assert tag not in {"link", "iframe", "object", "embed", "audio", "video", "base"}
        assert e.get("src") is None
        target = next((value for name, value in e.attrib.items() if str(name).endswith("href")), "#")
        assert (
            target.startswith("#")
            or (tag == "a" and target.startswith("https://"))
            or (tag == "image" and target.startswith("data:"))
        )
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "default-src 'none'" in text


def test_what_implementations_say_is_text_and_never_markup(text, elements):
    assert "<script>alert" not in text
    assert not any(str(e.tag) == "b" for e in elements)
    assert sum(str(e.tag) == "script" for e in elements) == 2


def test_equal_reports_give_equal_pages(real):
    assert html([real]) == html([real])


def test_every_picture_has_an_alternative_and_a_table_of_its_numbers(elements):
    figures = [e for e in elements if str(e.tag) == "figure"]
    assert len(figures) >= len(FIGURES)
    for figure in figures:
        (shown,) = [e for e in figure.iter() if e.get("role") == "img"]
        assert len(shown.get("aria-label")) > 60
        assert len([e for e in figure.iter() if str(e.tag) == "td"]) > 1


def test_a_page_of_forty_implementations_and_every_law_stays_below_five_megabytes():
    outcomes = [outcome(law.name, law.operation, f"implementation number {i}") for i in range(40) for law in LAWS]
    text = html([report_of(outcomes)])
    assert len(text.encode()) < 5_000_000
    data = data_of(text)
    assert (len(data["implementations"]), len(data["laws"]), len(data["cells"])) == (40, len(LAWS), 40 * len(LAWS))
    assert len(set(data["texts"])) == len(data["texts"])


# -- It says what was found ------------------------------------------------------------------------


def test_a_cell_is_its_outcome(real):
    data = data_of(html([real]))
    assert len(data["cells"]) == len(real["outcomes"])
    for cell, o in zip(data["cells"], real["outcomes"], strict=True):
        law, column, status, examples, informative, vacuous, worst, seconds, reason = cell
        assert data["laws"][law][:2] == [o["law"], o["operation"]]
        assert data["implementations"][column][0] == "half"
        assert data["statuses"][status][0] == o["status"]
        assert [examples, informative, vacuous] == [o[k] for k in ("examples", "informative", "vacuous")]
        assert float(worst) == pytest.approx(float(o["worst_excess"]), rel=5e-3)
        assert seconds == pytest.approx(o["seconds"], abs=5e-3)
        assert data["reasons"][reason] == o["reason"]
        (stated,) = {
            f"{w.statement}\n\n{w.comparison}" for w in LAWS if (w.name, w.operation) == (o["law"], o["operation"])
        }
        assert data["texts"][data["laws"][law][2]] == stated


def test_a_violation_is_shown_with_its_input_what_reproduces_it_and_its_script(real):
    text = html([real])
    violation = next(
        o["violation"] for o in real["outcomes"] if o["law"] == "at position p the first pair rotates by p radians"
    )
    assert "rope-half-split-pairs" in text
    assert 'href="https://github.com/EleutherAI/gpt-neox/issues/834"' in text
    assert "properties.replay(" in text
    assert violation["diagnosis"][0]["repair"] in text
    assert "half: 2 checks fail" in text


def test_findings_of_one_cause_are_beneath_the_one_that_shows_it(real, elements):
    """The first is of the cause, those of its other laws are within it."""
    (cause,) = real["causes"]
    first = next(e for e in elements if "finding" in e.get("class", "").split())
    within = [e for e in first.iter("details") if e.get("class") == "finding"]
    shown = [e.find("summary").find(".//strong").text for e in within]
    assert shown[0] == cause["example"]["law"]
    assert sorted(shown) == sorted(law.partition("[")[0] for law in cause["laws"])
    assert len(shown) == 2
    assert html([real]).count("half: 2 checks fail, for 1 cause.") == 2  # the title, too


def test_a_summary_is_split_into_what_was_got_and_what_should_be():
    def split(summary):
        violation = {"summary": summary, "counterexample": {}, "diagnosis": [], "notes": [], "script": ""}
        f = finding(outcome("a law", "rope", "i", "violated", violation=violation), "finding-0-0")
        return f.where, f.actual, f.expected, f.summary

    assert split(
        "out[0, 2]=0.84, but should be 0.0 ± 0: the error is ∞ times its error limit; 2 of 80 entries are outside."
    ) == (
        "out[0, 2]",
        "0.84",
        "0.0 ± 0",
        "The error is ∞ times its error limit; 2 of 80 entries are outside.",
    )
    assert split("weights[0, 38]=nan, but should be a finite number.") == (
        "weights[0, 38]",
        "nan",
        "a finite number",
        "",
    )
    assert split("lanes[1]=-5.4, but should be exactly 0.0; 4 of 6 entries differ.") == (
        "lanes[1]",
        "-5.4",
        "exactly 0.0",
        "4 of 6 entries differ.",
    )
    assert split("raised RuntimeError: n=1 is bad.") == ("", "", "", "raised RuntimeError: n=1 is bad.")


def test_inputs_are_shown_as_arrays_with_nan_and_infinity(hostile):
    inputs = dict(finding(hostile["outcomes"][0], "finding-0-0").inputs)
    assert "nan" in inputs["x"]
    assert "inf" in inputs["x"]
    assert "(2, 2)" in inputs["x"]
    assert (inputs["n"], inputs["mask"]) == ("3", "None")
    assert "(1, 0)" in inputs["empty"]


def test_a_script_too_long_to_read_is_left_to_the_json(hostile):
    o = hostile["outcomes"][0]
    long = {**o, "violation": {**o["violation"], "script": "x" * 30_000}}
    assert finding(long, "finding-0-0").script == "# 30,000 characters, which `attnspec verify --json` writes."


def test_a_citation_links_to_its_threads():
    assert linked("none: <seen> nowhere") == "none: &lt;seen&gt; nowhere"
    assert str(linked("owner/repo#12; other")) == (
        '<a href="https://github.com/owner/repo/issues/12" rel="noreferrer">owner/repo#12</a>; other'
    )


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ({"one": ["held", "held"]}, "All checks pass."),
        ({"one": ["held"], "two": ["declared"]}, "All checks pass on all 2 implementations."),
        ({"one": ["violated", "held"]}, "one: 1 check fails."),
        ({"one": ["violated"], "two": ["held"], "three": ["violated"]}, "2 of 3 implementations fail a check."),
        ({"one": ["vacuous", "held"]}, "No check fails, but some checks have no verdict."),
        ({}, "No law was checked."),
    ],
)
def test_the_verdict_is_a_sentence(statuses, verdict):
    outcomes = [
        outcome(LAWS[i].name, LAWS[i].operation, name, s)
        for name, found in statuses.items()
        for i, s in enumerate(found)
    ]
    assert f"<title>{verdict} · attnspec</title>" in html([report_of(outcomes)])


def test_who_could_not_be_run_is_named_with_the_reason_and_neither_passes_nor_fails(hostile):
    found = matrix([hostile])
    elsewhere = found.implementations[1]
    assert (elsewhere.unavailable, elsewhere.broken) == ("No such device.", [])
    text = html([hostile])
    assert "No such device." in text
    assert ": 1 check fails." in text  # of the one that was run
    assert "1 implementation could not be run here." in text


def test_implementations_of_one_name_in_two_reports_are_told_apart(real):
    assert [i.name for i in matrix([real, real]).implementations] == ["half", "half #2"]


def test_the_page_says_how_to_make_it_again(real):
    settings = {
        "targets": ["m:a", "n"],
        "arithmetic": "float32",
        "laws": ["f(a) + f(b) = f(a + b)"],
        "only": ["one"],
        "timeout": 5.0,
        "environment": {"python": "3.11.7"},
    }
    text = html([report_of([outcome(LAWS[0].name, LAWS[0].operation, "one")], **settings)])
    assert (
        "attnspec verify m:a n --max-examples 10 --seed 0 --arithmetic float32 "
        "--laws &#39;f(a) + f(b) = f(a + b)&#39; --only one --timeout 5" in text
    )
    assert "3.11.7" in text


def test_the_environment_names_versions_and_the_machine():
    found = environment()
    assert found["numpy"] == np.__version__
    assert {"python", "attnspec", "system", "processor"} <= set(found)


# -- Files and the command -------------------------------------------------------------------------


def test_a_page_that_cannot_be_written_leaves_the_old_one_and_nothing_else(real, tmp_path, monkeypatch):
    write([real], tmp_path)
    old = (tmp_path / "index.html").read_bytes()

    def fails(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(whole.os, "replace", fails)
    with pytest.raises(OSError, match="no space left"):
        write([real, real], tmp_path)
    assert (tmp_path / "index.html").read_bytes() == old
    assert [f.name for f in tmp_path.iterdir()] == ["index.html"]


def test_the_command_makes_a_page_of_reports(real, tmp_path, capsys):
    (tmp_path / "report.json").write_text(json.dumps(real))
    assert cli.main(["report", str(tmp_path / "report.json"), "--html", str(tmp_path / "page" / "of it")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'page' / 'of it' / 'index.html'}\n"
    assert data_of((tmp_path / "page" / "of it" / "index.html").read_text()) == data_of(html([real]))


def test_verifying_writes_the_page_too(tmp_path, monkeypatch, capsys):
    (tmp_path / "kernels.py").write_text(
        "from properties.bugs.reference import REFERENCE\nadapter = {'rope': REFERENCE['rope']}\n"
    )
    monkeypatch.chdir(tmp_path)
    law = "f(a) + f(b) = f(a + b)[rope]"
    assert (
        cli.main(["verify", "kernels:adapter", "--laws", law, "--max-examples", "5", "--jobs", "1", "--html", "page"])
        == 0
    )
    text = (tmp_path / "page" / "index.html").read_text()
    assert "All checks pass." in text
    assert np.__version__ in text


def test_without_what_makes_pages_the_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outputs, "find_spec", lambda name: None)
    for command in (["report", "r.json"], ["verify", "m:a"]):
        assert cli.main([*command, "--html", str(tmp_path / "page")]) == 2
        said = capsys.readouterr().err
        assert (
            said == "attnspec: A page needs jinja2 and matplotlib, which `pip install 'attnspec[report]'` installs.\n"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_found_out_first(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["verify", "m:a", "--html", str(tmp_path / "file" / "page")]) == 2
    assert capsys.readouterr().err == f"attnspec: {tmp_path / 'file' / 'page'} cannot be created: Not a directory.\n"


# -- Pictures --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures():
    return {picture.name: picture for picture in (draw() for draw in FIGURES)}


def rows_of(picture):
    return [dict(zip(picture.table.headings, row, strict=True)) for row in picture.table.rows]


def test_pictures_are_the_same_every_time_with_text_as_text_and_the_colours_of_the_page(pictures):
    for draw in FIGURES:
        picture = draw()
        assert picture == pictures[picture.name]
        assert "<text" in picture.svg
        assert re.findall(r"#[0-9a-f]{6}\b", picture.svg) == []
        assert "font-family" not in picture.svg


def test_correct_code_stays_within_its_budget_in_the_pictures(pictures):
    for name in ("error-against-size", "error-against-position"):
        excesses = [
            float(row[dtype])
            for row in rows_of(pictures[name])
            for dtype in ("float64", "float32", "float16", "bfloat16")
        ]
        assert max(excesses) <= 1
        assert max(excesses) > 0.5  # a budget that nobody comes near would be no picture of one
    assert all(float(row["error"]) <= float(row["error limit"]) for row in rows_of(pictures["budget-of-a-row"]))


def test_masks_are_drawn_by_their_definitions(pictures):
    allowed = {
        "causal: j ≤ i": lambda i, j: j <= i,
        "causal, bottom right": lambda i, j: j <= i + 2,
        "future: j > i": lambda i, j: j > i,
        "padding: 5 keys of 8": lambda i, j: j < 5,
    }
    for mask, query, keys in pictures["masks"].table.rows:
        assert keys == " ".join("1" if allowed[mask](int(query), j) else "·" for j in range(8))


def test_sinusoids_are_drawn_by_their_definition(pictures):
    for layout, position, *values in pictures["sinusoid"].table.rows:
        for heading, value in zip(pictures["sinusoid"].table.headings[2:], values, strict=True):
            c, p = int(heading.removeprefix("column ")), int(position)
            i, wave = (
                (c // 2, math.cos if c % 2 else math.sin)
                if layout == "interleaved"
                else (c % 32, math.cos if c >= 32 else math.sin)
            )
            assert float(value) == pytest.approx(wave(p * 10000 ** (-2 * i / 64)), abs=6e-5)


def test_pairs_are_drawn_where_they_turn_to(pictures):
    for row in rows_of(pictures["rotation"]):
        p = int(row["position"])
        slow, odd = p * 10 ** (-2 / 5), p * 10 ** (-4 / 5)
        expected = (math.cos(p), math.sin(p), math.cos(slow), math.sin(slow), math.cos(odd) + math.sin(odd), 1)
        assert [float(x) for x in list(row.values())[1:]] == pytest.approx(expected, abs=6e-5)


def test_angles_in_bfloat16_are_lost_beyond_position_256(pictures):
    rows = rows_of(pictures["error-of-angle-tables"])
    narrow = {row["position"]: float(row["bfloat16, angles too"]) for row in rows}
    assert narrow["2⁷"] < narrow["2⁹"]
    assert all(float(row["bfloat16, of float32 angles"]) < 0.1 for row in rows)
    assert all(narrow[power] > 0.5 for power in ("2⁹", "2¹²", "2²⁰"))


def test_a_report_in_which_nothing_held_on_numbers_has_no_picture_of_budgets_used():
    text = html([report_of([outcome(LAWS[0].name, LAWS[0].operation, "one", worst_excess=0.0)])])
    assert 'id="budgets-used"' not in text
