"""Sizes that a user names: their grammar, the calls at exactly these sizes, and what a report covers."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import properties
from properties.bugs.reference import REFERENCE
from properties.command.cli import main
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.wanted_shapes import as_text, concerns, parsed, sizes_of
from properties.laws import find
from properties.strategies.cases import UnsupportedError
from properties.strategies.plain_calls import exact_call
from properties.strategies.wanted_cases import MOST_PRODUCTS, WantedCases
from properties.verifier.coverage import Coverage, none_yet, total
from properties.verifier.verify import examine

SDPA = "scaled_dot_product_attention"
RIGHT = REFERENCE[SDPA]
SHAPE = "batch=2,num_heads=3,n_q=1,n_k=300,head_dim=8"
LAWS = [f"attention is within its error limit[{SDPA}]", f"each query reads what it should[{SDPA}]"]


def zero_at_the_shape(q, k, v, mask=None):
    out = RIGHT(q, k, v, mask)
    return 0 * out if q.shape == (2, 3, 1, 8) and k.shape[-2] == 300 else out


def test_a_text_of_sizes_is_read_and_written() -> None:
    assert parsed("batch=2, n_k = 4096") == {"batch": 2, "n_k": 4096}
    assert as_text(parsed(SHAPE)) == SHAPE
    for text in ("n_k", "n_k=", "n_k=2,", "n_k=2,n_k=3", "n_k=2.5", "", "n_k=10000000000"):
        with pytest.raises(ValueError, match="should be sizes, such as batch=2,n_q=1,n_k=4096"):
            parsed(text)


@pytest.mark.parametrize(
    ("shapes", "kind", "sentence"),
    [
        (SHAPE, TypeError, 'but should be a list of texts or mappings, as ["batch=2,n_q=1,n_k=4096"].'),
        ([3], TypeError, 'shapes=[3], but should be a list of texts or mappings, as ["batch=2,n_q=1,n_k=4096"].'),
        (["heads=3"], ValueError, "Unknown size 'heads'. Did you mean 'kv_heads'?"),
        ([{"n_k": True}], ValueError, "n_k is True, but should be a whole number from 1."),
        ([{"batch": 10**9, "n_k": 10**9}], ValueError, "are more numbers than a memory has. Name smaller sizes."),
        (["kv_heads=2"], ValueError, f"{SDPA} has no kv_heads. Its sizes are batch, num_heads, n_q, n_k, head_dim, "),
    ],
)
def test_wrong_sizes_are_refused_in_a_sentence(shapes: Any, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=re.escape(sentence)):
        Implementation("mine", {SDPA: RIGHT}, shapes=shapes)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_call_has_exactly_the_wanted_sizes(name: str) -> None:
    operation = OPERATIONS[name]
    wanted = {size: 2 * place + 4 for place, size in enumerate(sizes_of(operation))}
    wanted |= {"num_heads": 2 * wanted["kv_heads"]} if "kv_heads" in wanted else {}
    assert concerns(wanted, operation)
    for ranks in ((0, 1, 2), (2,), (2, 3)):
        arguments = exact_call(operation, Implementation("any", {name: REFERENCE[name]}, batch_ranks=ranks), wanted)
        if wanted:
            assert arguments is not None
            found = operation.sizes(arguments)
            leading = "num_heads" not in found and wanted.keys() >= {"batch", "num_heads"}
            batch = wanted.get("batch", 1) * (wanted["num_heads"] if leading else 1)
            assert found == found | {size: number for size, number in wanted.items() if size in found} | (
                {"batch": batch} if "batch" in found else {}
            )


def test_a_mistake_at_the_named_sizes_alone_is_found() -> None:
    """Nothing else has these sizes. Both laws see it, on numbers and on zeros."""
    for laws, shapes, status in ((LAWS[:1], (), "held"), (LAWS, (SHAPE,), "violated")):
        implementation = Implementation("mine", {SDPA: zero_at_the_shape}, shapes=shapes)
        found = examine([law for name in laws for law in find(name)], implementation, 1, 0)
        assert [outcome.status for outcome in found] == [status] * len(laws)
        assert found[0].coverage is not None
        assert found[0].coverage.tried == [*shapes]


def test_symmetries_are_checked_at_small_sizes() -> None:
    """They take turns on the test inputs with numbers; at large sizes only agreement is checked."""
    for n_k, cheap in ((9, True), (2**18, False)):
        cases = WantedCases(OPERATIONS[SDPA], {"n_k": n_k}, Implementation("mine", {SDPA: RIGHT}), MOST_PRODUCTS)
        assert cases.cheap == cheap
        assert not np.any(cases.zeros[1])
    first, second = cases.draw(1, 0), cases.draw(2, 0)
    assert first[1].shape == (2**18, 8)
    assert (first[1] != second[1]).mean() > 0.9


def test_sizes_that_are_not_taken_are_said() -> None:
    """A kernel of fixed width, and sizes for which no time is."""
    mine = Implementation("mine", {SDPA: RIGHT}, supports={"head_dim": [8]}, shapes=["head_dim=16"])
    report = properties.verify(mine, laws=LAWS[:1], quick=True, max_examples=5)
    assert report.ok
    assert report.coverage.untried == {"head_dim=16": "mine does not take these sizes."}
    assert "NOT TRIED, though named: head_dim=16: mine does not take these sizes." in report.coverage.line
    assert "head_dim=16: mine does not take these sizes." in report.outcomes[0].undrawn
    with pytest.raises(UnsupportedError, match="compares at most 134,217,728 and 4,294,967,296: name"):
        WantedCases(OPERATIONS[SDPA], {"n_q": 2**18, "n_k": 2**18}, Implementation("any", {SDPA: RIGHT}), MOST_PRODUCTS)
    late = properties.verify(Implementation("mine", {SDPA: RIGHT}, shapes=["n_k=9"]), laws=LAWS[:1], time_limit=1e-9)
    assert late.coverage.untried == {"n_k=9": "Time was up."}


def test_coverage_counts_calls_that_were_made() -> None:
    covered = none_yet(Implementation("mine", {SDPA: RIGHT}, arithmetic="float32"))
    assert covered.line == ""
    covered.count(SDPA, (np.zeros((2, 3, 8, 4)), np.zeros((2, 3, 256, 4)), np.zeros((2, 3, 256, 5)), None))
    covered.count(SDPA, (np.zeros((9, 4)), np.zeros((256, 4)), np.zeros((256, 5)), None))
    assert covered.line == (
        "largest: n_q 9, n_k 256, batch × heads 6, head_dim 4; decode 1 call; not tried: float16, bfloat16, n_k > 256."
    )


def test_coverage_adds_up() -> None:
    """Sizes that one implementation tries are not untried."""
    parts = [
        Coverage(1, {"n_k": 3}, 0, ["float32"], [], {"n_k=9": "no.", "n_k=8": "no."}),
        Coverage(2, {"n_k": 2, "n_q": 1}, 1, ["float32", "float16"], ["n_k=9"]),
    ]
    found = total(parts, ["n_k=7"])
    assert (found.calls, found.largest, found.decoding) == (3, {"n_k": 3, "n_q": 1}, 1)
    assert (found.formats, found.tried) == (["float32", "float16"], ["n_k=9"])
    assert found.untried == {"n_k=8": "no.", "n_k=7": "no law that is checked calls an operation with them."}


KERNELS = """
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation

def wrong_at_nine(q, k, v, mask=None):
    out = REFERENCE["scaled_dot_product_attention"](q, k, v, mask)
    return 0 * out if k.shape[-2] == 90 else out

adapter = Implementation("mine", {"scaled_dot_product_attention": wrong_at_nine})
"""


@pytest.mark.parametrize("where", ["option", "table"])
def test_the_command_takes_sizes_as_options_and_from_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shaped_kernels.py").write_text(KERNELS)
    table = 'shapes = ["n_q=7,n_k=90"]\n' if where == "table" else ""
    Path("pyproject.toml").write_text(f"[tool.attnspec]\n{table}")
    options = ["--shape", "n_q=7,n_k=90"] if where == "option" else []
    law = f"attention is within its error limit[{SDPA}]"
    command = ["verify", "shaped_kernels.py", "--laws", law, "--max-examples", "2", "--jobs", "1", *options]
    assert main([*command, "--json", "report.json"]) == 1
    report = json.loads(Path("report.json").read_text("utf-8"))
    assert report["settings"]["shapes"] == report["coverage"]["tried"] == ["n_q=7,n_k=90"]
    assert "named sizes: n_q=7,n_k=90;" in " ".join(capfd.readouterr().out.split())
    assert main([*command, "--shape", "seq_len=3"]) == 2
    assert f"attnspec: seq_len=3: {SDPA} has no seq_len." in capfd.readouterr().err
