"""Released libraries: the registry needs none of them, findings are consistent and their scripts stand alone."""

import ast
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import properties
from oracles import Conventions
from properties.contract.operations import OPERATIONS
from properties.laws.twins import TWINS
from properties.verifier.plan import plan
from research import peers
from research.findings.confirmed import confirmed, drawn
from research.findings.library import LibraryFinding
from research.peers import FINDINGS, families, markdown
from systems import peers as released
from systems.peers import GROUPS
from systems.peers.library import Library

LIBRARIES = ("jax", "flax", "equinox", "haiku", "keras", "keras_hub", "mlx", "onnx", "onnxruntime", "transformers")
EACH = pytest.mark.parametrize("found", FINDINGS, ids=lambda found: found.name)


def finding(**fields: str) -> LibraryFinding:
    """A finding about no library, with some fields of a test's own."""
    texts = {
        "library": "ours",
        "title": "It",
        "detail": "It is.",
        "family": "masks",
        "cause": "defect",
        "known": "none",
    }
    texts |= {"module": "no_such_library", "line": "It.", "script": "print([1.0])", "expected": "[1.0]"}
    return LibraryFinding(**(texts | fields))


def test_the_registry_imports_no_library():
    script = f"import sys\nimport systems.peers\nprint([name for name in {LIBRARIES} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_an_absent_library_is_not_run_and_a_present_one_has_its_version():
    absent, present = Library("no-such-library", "no_such_library"), Library("numpy")
    assert absent.unavailable == "no-such-library is not installed: make peers."
    assert absent.called("attention") == "no-such-library attention"
    assert present.unavailable == ""
    assert present.called("attention") == f"numpy {np.__version__} attention"


def test_declarations_are_of_the_versions_that_are_pinned():
    pinned = dict(
        re.findall(
            r"^([\w.-]+)==(\S+)$", (Path(released.__file__).parent / "constraints.txt").read_text("utf-8"), re.MULTILINE
        )
    )
    pinned = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    declared = {i.name.split()[0] for group in GROUPS.values() for i in group if i.known_deviations}
    assert declared
    assert {name.lower().replace("_", "-") for name in declared} <= set(pinned)
    if find_spec("haiku") is None:
        pytest.skip("Versions are those of the constraints in the environment of `make peers` alone.")
    assert {name: Library(name).version for name in declared} == {
        name: pinned[name.lower().replace("_", "-")] for name in declared
    }


def test_a_library_that_is_not_installed_is_not_run():
    for name, group in {"JAX": "jax", "Flax": "flax", "Equinox": "equinox", "Haiku": "haiku", "MLX": "mlx"}.items():
        for implementation in GROUPS[name]:
            assert bool(implementation.unavailable) is (find_spec(group) is None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_a_small_share_of_a_library_is_judged_where_it_is_installed(group):
    one = next((i for i in group if not i.unavailable), group[0])
    if one.unavailable:
        pytest.skip(one.unavailable)
    laws = {law.name for law in plan(one) if law.agreement or law.name == TWINS}
    report = properties.verify(one, laws=sorted(laws), max_examples=3)
    assert any(outcome.status == "held" for outcome in report.outcomes)
    assert report.ok, [(c.example.summary, c.example.counterexample, c.laws) for c in report.causes]


def test_at_least_eight_libraries_name_paths_that_must_agree():
    assert sum(any(i.twins for i in group) for group in GROUPS.values()) >= 8


def test_every_declared_deviation_is_explained_by_a_finding():
    reasons = {reason for group in GROUPS.values() for i in group for reason in i.known_deviations.values()}
    assert reasons
    assert reasons <= {found.title for found in FINDINGS}


@EACH
def test_a_finding_has_a_name_of_its_own_and_ends_in_a_sentence(found):
    assert found.detail.endswith(".")
    assert sum(other.title == found.title and other.library == found.library for other in FINDINGS) == 1


@EACH
def test_a_script_stands_alone(found):
    tree = ast.parse(found.script)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in imported} & {"properties", "oracles", "spec"}
    assert "print(" in found.script


def test_the_findings_that_are_drawn_have_a_reference_and_no_others():
    assert sorted(found.name for found in drawn(FINDINGS)) == sorted(found.name for found in FINDINGS if found.mpmath)


@pytest.mark.parametrize("found", drawn(FINDINGS), ids=lambda found: found.name)
def test_mpmath_confirms_what_a_drawn_finding_expects(found):
    assert confirmed(found)


def test_another_number_than_mpmath_has_is_told():
    found = finding(title="A pair", expected="[-0.4161, 0.9092]")
    assert confirmed(found) == ""
    with pytest.raises(
        ValueError,
        match=r"ours: A pair: \[-0.4161, 0.9092\] is expected, but mpmath gives -0.416146836547, 0.909297426826\.",
    ):
        confirmed(replace(found, mpmath="rotated(2)"))


def test_a_line_is_looked_up_by_what_is_there_once():
    def at(line: str) -> int:
        file, _, number = finding(module="research.findings.library", line=line).where.partition(":")
        assert file == "research/findings/library.py"
        return int(number)

    decorated = "@dataclass(frozen=True, kw_only=True)"
    assert (
        at(f"{decorated}\nclass LibraryFinding(Finding):") == at("class LibraryFinding(Finding):") == at(decorated) + 1
    )
    for line in ("class Absent:", "def "):
        with pytest.raises(ValueError, match=r"in \d+ places, but should have it in one: see 'It' again"):
            at(line)


def test_the_page_has_all_that_a_finding_says():
    found = finding(line="", known="one | two", script="print([2.0])\n")
    table = (
        "| | |\n|---|---|\n| expected | `[1.0]` |\n| actual | `[2.0]` |\n"
        "| cause | defect |\n| source | no_such_library |\n"
    )
    table += "| known upstream | one \\| two |\n| confirmed by mpmath | 1.0 |\n"
    assert "\n".join(found.markdown("1.0")) == f"\n#### ours: It\n\nIt is.\n\n{table}\n```python\nprint([2.0])\n```"
    assert "confirmed" not in "\n".join(found.markdown(""))


def test_every_operation_has_a_column():
    assert set(families()) == set(OPERATIONS)


def _report(status: str, reason: str = "", group: str = "A") -> dict:
    row = {"implementation": "a 1", "operation": "rope", "law": "pairs", "status": status, "reason": reason}
    return {"settings": {"max_examples": 10, "implementations": [{"name": "a 1", "group": group}]}, "outcomes": [row]}


@pytest.fixture
def page(monkeypatch) -> str:
    """The page with a law of JAX, on which no script is run and no model compared."""
    monkeypatch.setattr(LibraryFinding, "actual", "")
    monkeypatch.setattr(LibraryFinding, "markdown", lambda found, confirmed: [f"\n#### {found.name}"])
    monkeypatch.setattr(peers, "_models", lambda wrong: [])
    return markdown([_report("held", group="JAX")], [])


def test_every_finding_stands_under_the_library_and_the_family_that_it_is_of(page):
    named, seen = {found.name: found for found in FINDINGS}, []
    for part in page.split("\n### ")[1:]:
        library, family = part.splitlines()[0].split(", ")
        for name in re.findall(r"^#### (.+)", part, re.MULTILINE):
            assert named[name].family == family
            assert any(i.name.split()[0] == named[name].library for i in GROUPS[library])
            seen.append(name)
    assert sorted(seen) == sorted(named)


def test_a_cell_counts_its_findings_and_its_link_has_a_heading(page):
    counted = re.findall(r"[|;] \[([^]]+)\]\(#", page)
    assert sum(int(n) for n in re.findall(r"\d+", " ".join(counted))) == len(FINDINGS)
    headings = [
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)", page, re.MULTILINE)
    ]
    links = re.findall(r"\]\(#([^)]+)\)", page)
    assert links
    assert all(headings.count(link) == 1 for link in links)


def test_a_cell_has_its_laws_before_its_findings_and_may_have_either(monkeypatch):
    own = [
        finding(library="jax", family="rotary", cause=cause)
        for cause in ("defect", "defect", "convention", "arithmetic")
    ]
    monkeypatch.setattr(peers, "FINDINGS", [*own, finding(library="other", family="caches")])
    page = markdown([_report("held", group="JAX")], [])
    assert "| JAX |  |  |  |  | 1 held; [2 defects, 1 convention, 1 of arithmetic](#jax-rotary) |  |  |\n" in page
    assert "| other |  |  | [1 defect](#other-caches) |  |  |  |  |\n" in page


def test_what_one_report_could_not_run_is_taken_from_another(monkeypatch):
    monkeypatch.setattr(peers, "FINDINGS", [])
    wrong: list[str] = []
    assert "| A |  |  |  |  | not run here |  |  |" in markdown([_report("not run", "why")], wrong)
    assert "| A |  |  |  |  | 1 held |  |  |" in markdown([_report("not run"), _report("held")], wrong)
    assert wrong == []
    assert "| A |  |  |  |  | 1 **violated** |  |  |" in markdown([_report("violated")], wrong)
    assert wrong == ["a 1 breaks pairs [rope]."]


def test_a_later_report_of_a_part_counts(monkeypatch):
    monkeypatch.setattr(peers, "FINDINGS", [])
    assert "| A |  |  |  |  | 1 held |  |  |" in markdown(
        [_report("violated"), _report("held"), _report("not run")], []
    )


def test_a_finding_that_no_longer_happens_and_an_absent_library_are_noted(monkeypatch):
    gone, absent = finding(library="numpy", module="numpy", title="Two is one"), finding(title="Two is one")
    monkeypatch.setattr(LibraryFinding, "where", "")
    monkeypatch.setattr(peers, "FINDINGS", [gone])
    wrong: list[str] = []
    markdown([], wrong)
    assert wrong == ["numpy prints [1.0] now, as it should: take the finding 'Two is one' away."]
    monkeypatch.setattr(peers, "FINDINGS", [changed := replace(gone, expected="[2.0]")])
    wrong = []
    page = markdown([], wrong, "#### numpy: Two is one\n| actual | `[1.5]` |\n")
    assert wrong == [f"{changed.name} prints [1.0] now, and printed [1.5] before: look at it again."]
    markdown([], wrong := [], page)
    assert wrong == []
    monkeypatch.undo()
    monkeypatch.setattr(peers, "FINDINGS", [absent])
    assert "#### ours: Two is one\n\nNot run here: No module named 'no_such_library'." in markdown([], [])


def test_a_law_about_means_leaves_keys_and_values_with_as_many_heads():
    def attend(q, k, v, mask=None):
        if k.shape[-3] != v.shape[-3]:
            raise ValueError(f"k has {k.shape[-3]} heads, but v has {v.shape[-3]}.")
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
        scores = np.where(True if mask is None else mask, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -1e300)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights @ v / weights.sum(-1, keepdims=True)

    uniform = Conventions(dead_rows="uniform")
    i = properties.Implementation(
        "means", {"grouped_query_attention": attend}, conventions=uniform, supports="positive sizes"
    )
    law = "a fully masked row follows its convention[grouped_query_attention]"
    (outcome,) = properties.verify(i, laws=[law], max_examples=5).outcomes
    assert outcome.status == "held"
