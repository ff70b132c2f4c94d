"""The page about TorchLean has each declaration and each erratum, and is what its command writes."""

import numpy as np

from research.pages import PAGES
from research.stamp import read, stamped
from research.torchlean import CHANGES, markdown
from spec import corrected, positional_encoding
from spec.context import FLOAT64
from spec.errata import ERRATA
from spec.lean import LITERAL, REPOSITORY, REVISED
from spec.tests.declarations import MODULES

(PAGE,) = (file for page in PAGES if page.name == "torchlean" for file in page.written)


def test_the_page_is_what_the_command_writes():
    page = PAGE.read_text("utf-8")
    assert page == stamped(markdown(), read(page))


def test_each_declaration_that_spec_transcribes_has_a_row():
    rows = [(file["seed"], [row[0] for row in file["declarations"]]) for file in CHANGES["file"]]
    assert rows == [(file, [each.lean for each in declarations]) for file, declarations in MODULES.values()]


def test_each_erratum_has_a_row():
    mended = [identifier for mending in CHANGES["mending"] for identifier in mending["errata"]]
    assert sorted(mended) == sorted(ERRATA)


def test_the_revisions_are_those_that_spec_names():
    commits = {row["name"]: (row["repository"], row["commit"]) for row in CHANGES["revision"]}
    assert commits["seed"] == (REPOSITORY, LITERAL)
    assert commits["revised"] == (REPOSITORY, REVISED)
    assert {revision for mending in CHANGES["mending"] for revision in mending["lines"]} <= commits.keys()


def test_the_cause_of_an_erratum_has_the_line_that_spec_links_to():
    for mending in CHANGES["mending"]:
        (module,) = (module for module, (file, _) in MODULES.items() if file == mending["file"])
        (name,) = (each.python for each in MODULES[module][1] if each.lean == mending["declaration"])
        documentation = getattr(__import__(f"spec.{module}", fromlist=[name]), name).__doc__
        assert documentation.endswith(f"{mending['file']}#L{mending['lines']['seed']}")


def test_one_times_x_plus_zero_times_x_is_x_if_x_is_finite_and_nan_if_it_is_infinite():
    x = np.array([[5e-324], [-0.0], [-1.5], [1.7976931348623157e308], [np.inf]])
    kept = corrected.rope_apply(x, 7, FLOAT64)
    with np.errstate(invalid="ignore"):
        newest = x * 1.0 + x * 0.0
    assert newest[:-1].tobytes() == kept[:-1].tobytes() == x[:-1].tobytes()
    assert kept[-1] == np.inf
    assert np.isnan(newest[-1])
    assert not np.array_equal(positional_encoding.rope_apply_spec(x[2:3], 7, FLOAT64), x[2:3])
