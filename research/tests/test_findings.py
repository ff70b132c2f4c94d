"""Findings are read from files that are checked, what they expect is computed again, and each one still happens."""

from importlib.util import find_spec

import pytest

from research.findings.expected import computed
from research.findings.library import LibraryFinding
from research.findings.loader import read
from research.findings.page import FINDINGS, errata, findings
from research.kernels import FINDINGS as KERNEL_FINDINGS
from research.native import FINDINGS as NATIVE_FINDINGS
from research.peers import FINDINGS as LIBRARY_FINDINGS
from spec.errata import ERRATA
from systems.native import GROUPS as NATIVE
from systems.native import recipes

ENTRY = {
    **{"title": "It", "family": "masks", "cause": "defect", "detail": "It is.", "known": "none"},
    **{"module": "ours", "script": "print(1)", "expected": "2"},
}
BOTH = [*FINDINGS, *LIBRARY_FINDINGS, *NATIVE_FINDINGS, *KERNEL_FINDINGS]


@pytest.fixture
def folder(tmp_path):
    """A function that writes a file of findings, whose entries are given, and the folder that it stands in."""

    def write(*entries, before=""):
        tables = [
            "\n".join(("[[finding]]", *(f"{key} = {value!r}" for key, value in entry.items()))) for entry in entries
        ]
        (tmp_path / "ours.toml").write_text("\n".join([before, *tables]), "utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_differs_from_what_was_to_be_expected(finding):
    assert finding.actual != finding.expected
    assert finding.detail.endswith(".")


@pytest.mark.parametrize(
    "finding", [finding for finding in FINDINGS if finding.recorded], ids=lambda finding: finding.name
)
def test_an_output_that_is_recorded_is_what_the_script_prints(finding):
    assert finding.actual == finding.recorded


def test_an_output_that_is_recorded_stands_for_a_package_that_is_not_installed():
    (finding, *_) = FINDINGS
    absent = {
        name: getattr(finding, name)
        for name in ("library", "title", "detail", "expected", "promised", "source", "input")
    }
    absent["script"] = "import no_such_library"
    assert type(finding)(**absent, recorded="1").actual == "1"
    with pytest.raises(ModuleNotFoundError):
        _ = type(finding)(**absent).actual


@pytest.mark.parametrize("finding", [finding for finding in BOTH if finding.oracle], ids=lambda finding: finding.name)
def test_the_oracle_of_a_finding_computes_what_it_expects(finding):
    assert computed(finding.oracle) == finding.expected


@pytest.mark.parametrize("finding", BOTH, ids=lambda finding: finding.name)
def test_a_script_is_python_that_prints(finding):
    assert "print" in compile(finding.script, finding.name, "exec").co_names
    assert finding.script.endswith("\n")


@pytest.mark.parametrize("finding", LIBRARY_FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_about_a_library_still_happens(finding):
    if finding.line and find_spec(finding.module.split(".")[0]) is None:
        pytest.skip(f"{finding.library} is in the environment of `make peers` alone")
    assert finding.where
    assert finding.actual != finding.expected


@pytest.mark.parametrize("finding", NATIVE_FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_about_a_native_runtime_still_happens(finding):
    if why := recipes.unavailable(finding.library):
        pytest.skip(why)
    assert finding.where
    assert finding.actual != finding.expected
    assert "ModuleNotFoundError" not in finding.actual


@pytest.mark.parametrize("finding", KERNEL_FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_about_a_released_kernel_still_happens(finding):
    missing = [name for name in ("triton", finding.module.split(".")[0]) if find_spec(name) is None]
    if missing:
        pytest.skip(f"{missing} are in the environment of `make kernels` alone")
    assert finding.where
    assert finding.actual != finding.expected
    assert "Error" not in finding.actual


def test_each_deviation_of_a_native_runtime_is_explained_by_a_finding():
    reasons = {reason for group in NATIVE.values() for i in group for reason in i.known_deviations.values()}
    assert reasons
    assert reasons <= {finding.title for finding in NATIVE_FINDINGS}


def test_a_file_is_named_after_its_library(folder):
    first, second = read(folder(ENTRY, ENTRY | {"title": "Another", "line": "line"}), LibraryFinding)
    assert (first.library, first.name, first.line) == ("ours", "ours: It", "")
    assert (second.name, second.line) == ("ours: Another", "line")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (ENTRY | {"titel": "It"}, "ours.toml, finding 1 ('It'), has the unknown key 'titel'. Did you mean 'title'?"),
        (
            ENTRY | {"zzz": "It"},
            "ours.toml, finding 1 ('It'), has the unknown key 'zzz'. "
            "Type one of title, detail, script, expected, oracle, family, cause, known, module, line, mpmath.",
        ),
        ({"cause": "defect"}, "ours.toml, finding 1 ('without a title'), has no 'title'. Type title = \"…\"."),
        (
            ENTRY | {"script": 3},
            "ours.toml, finding 1 ('It'), has script = 3, but should have a text. Type script = \"…\".",
        ),
        (
            ENTRY | {"line": " "},
            "ours.toml, finding 1 ('It'), has line = ' ', but should have a text. Type line = \"…\".",
        ),
        (
            ENTRY | {"cause": "bug"},
            "ours.toml, finding 1 ('It'), has cause = 'bug'. "
            'Type cause = "…" with one of defect, convention, arithmetic.',
        ),
    ],
)
def test_an_entry_with_another_key_or_value_is_refused(folder, entry, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011, the whole sentence is compared
        read(folder(entry), LibraryFinding)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("before", ["", "library = 'ours'\n[[finding]]"])
def test_a_file_has_findings_and_nothing_else(folder, before):
    with pytest.raises(
        ValueError, match=r"^ours.toml should have tables \[\[finding\]\] and nothing else. Type \[\[finding\]\] above"
    ):
        read(folder(before=before), LibraryFinding)


def test_a_file_that_is_not_toml_is_named(folder):
    with pytest.raises(ValueError, match=r"^ours.toml is not TOML: .*line 1"):
        read(folder(before="title: It"), LibraryFinding)


def test_the_page_has_every_finding_and_every_erratum():
    page = "\n".join([*findings(), *errata()])
    assert [page.count(f"\n### {finding.title}\n\n{finding.detail}\n") for finding in FINDINGS] == [1] * len(FINDINGS)
    assert [page.count(f"\n### {erratum}\n") for erratum in ERRATA] == [1] * len(ERRATA)
    assert page.count("\n| actual | ") == len(FINDINGS) + len(ERRATA)
