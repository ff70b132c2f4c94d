"""Tests of what portraits show: maps, wanted sizes, few calls, differences, the page, and texts."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import html5lib
import numpy as np
import pytest

import properties
from properties.bugs.reference import REFERENCE
from properties.command.cli import main
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.wanted_shapes import sizes_of
from properties.inspection.gradients import gradients
from properties.inspection.probe import Probe
from properties.inspection.reads import reads
from properties.inspection.rotation import rotation
from properties.inspection.score_form import score_form
from properties.inspection.shapes import Shape
from properties.portraits.differences import Difference, differences
from properties.portraits.maps import Map, maps_of
from properties.portraits.portrait import Portrait
from properties.views.html.portrait import html

SDPA = "scaled_dot_product_attention"
right: Callable[..., Any] = REFERENCE[SDPA]


def losing_the_last_key(longest: int) -> Callable[..., Any]:
    """Attention that loses the last key where there are more than some keys."""

    def scaled_dot_product_attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        if k.shape[-2] > longest:
            mask = np.ones((q.shape[-2], k.shape[-2]), bool) if mask is None else mask
            mask = mask & (np.arange(k.shape[-2]) < k.shape[-2] - 1)
        return right(q, k, v, mask)

    return scaled_dot_product_attention


def probe_of(operation: str, function: Any) -> Probe:
    """A probe of a function in float64."""
    return Probe(Caller(Implementation("mine", {operation: function}, "float64"), operation), 60)


def map_of_reads(n_q: int, n_k: int, longest: int) -> Map:
    """The only map of what is read by attention that loses the last key."""
    shape = Shape({"n_q": n_q, "n_k": n_k, "head_dim": 4, "value_dim": 64})
    (found,) = maps_of((shape, reads(probe_of(SDPA, losing_the_last_key(longest)), shape)))
    return found


# -- Maps ------------------------------------------------------------------------------------------


def test_a_map_of_reads_marks_every_wrong_weight() -> None:
    """The last key has the weight 0, should be 1/4, and the others have 1/3."""
    found = map_of_reads(2, 4, 3)
    assert found.title == "Weights with q = 0 (n_q 2, n_k 4, head_dim 4, value_dim 64)"
    assert (found.axes, found.rows, found.columns) == (("query", "key"), ("0", "1"), ("0", "1", "2", "3"))
    assert np.allclose(found.measured, [[1 / 3, 1 / 3, 1 / 3, 0]] * 2, rtol=0, atol=1e-6)
    assert np.allclose(found.expected, 1 / 4, rtol=0, atol=1e-6)
    assert found.wrong.all()


def test_a_map_of_right_reads_has_no_mark() -> None:
    """The kernel is right up to 10 keys."""
    assert not map_of_reads(2, 4, 10).wrong.any()


def test_a_long_axis_is_cut_into_blocks_that_keep_the_wrong_entries() -> None:
    """130 queries have 3 in a block; the title says so."""
    found = map_of_reads(130, 4, 3)
    assert found.title.endswith(", in blocks of 3 × 1")
    assert found.wrong.shape == (44, 4)
    assert found.rows[:2] == ("0", "3")
    assert found.wrong.all()


def test_a_single_wrong_entry_of_a_block_is_shown() -> None:
    """Of 70 queries in blocks of 2 only query 69 is wrong."""

    def kernel(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        out = right(q, k, v, mask)
        out[..., 69:, :] = 0.0
        return out

    shape = Shape({"n_q": 70, "n_k": 4, "head_dim": 4, "value_dim": 4})
    (found,) = maps_of((shape, reads(probe_of(SDPA, kernel), shape)))
    assert np.argwhere(found.wrong.any(1)).tolist() == [[34]]
    assert not found.measured[34].any()


def test_a_map_of_scores_is_channels_by_channels() -> None:
    """Without a mistake it is scale · identity, with zeros for rows of zeros."""
    shape = Shape({"n_q": 3, "n_k": 5, "head_dim": 4, "value_dim": 64})
    (found,) = maps_of((shape, score_form(probe_of(SDPA, right), shape)))
    assert found.axes == ("channel of q", "channel of k")
    assert found.rows == found.columns == ("none", "0", "1", "2", "3")
    assert np.allclose(found.measured, 0.5 * np.diag([0, 1, 1, 1, 1]), rtol=0, atol=1e-6)
    assert not found.wrong.any()


def test_a_map_of_a_rotation_is_a_matrix_of_one_row() -> None:
    """Row 1 at position 1 rotates the first pair by 1 radian."""
    shape = Shape({"seq_len": 2, "head_dim": 2}, arguments={"start_pos": 0})

    def kernel(x: Any, start_pos: int = 0) -> Any:
        return REFERENCE["rope"](x, start_pos) * [[1.0], [-1.0]]

    (found,) = maps_of((shape, rotation(probe_of("rope", kernel), shape)))
    assert "row 1" in found.title
    assert np.allclose(found.expected, [[np.cos(1), np.sin(1)], [-np.sin(1), np.cos(1)]], rtol=0, atol=1e-6)
    assert np.allclose(found.measured, -found.expected, rtol=0, atol=1e-6)


def test_maps_of_gradients_name_the_gradient() -> None:
    """dk is 0; dq and dv are right, and have a map without marks each."""
    operation = f"{SDPA}_vjp"

    def kernel(*arguments: Any) -> Any:
        dq, dk, dv = REFERENCE[operation](*arguments)
        return dq, 0 * dk, dv

    shape = Shape({"n_q": 3, "n_k": 4, "head_dim": 3, "value_dim": 5})
    found = list(maps_of((shape, gradients(probe_of(operation, kernel), shape))))
    wrong = [one for one in found if one.wrong.any()]
    assert {one.title[:11] for one in wrong} == {"Gradient dk"}
    assert {one.title[:11] for one in found} == {"Gradient dq", "Gradient dk", "Gradient dv"}


def test_a_map_is_json_although_it_has_nan() -> None:
    """JSON has no NaN."""
    nan = np.full((1, 1), np.nan)
    found = Map("Title", ("query", "key"), ("0",), ("0",), nan, np.ones((1, 1)), np.ones((1, 1), bool))
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["measured"] == [["nan"]]


# -- Wanted sizes, and few calls -------------------------------------------------------------------


def test_a_mistake_at_one_size_is_found_where_it_is_asked_for() -> None:
    """Only more than 5000 keys lose one, which no other measurement has."""
    kernel = losing_the_last_key(5000)
    assert properties.inspect(kernel).ok
    portrait = properties.inspect(kernel, shapes=[{"n_q": 1, "n_k": 5001}])
    (anomaly,) = portrait.operations[0].anomalies
    assert anomaly == "With n_q 1, n_k 5001: Every query misses the last visible key."


def test_right_sizes_are_a_fact_and_their_maps_are_kept() -> None:
    """Heads are a leading axis of an operation without an axis of heads."""
    (portrait,) = properties.inspect(right, SDPA, shapes=[{"batch": 2, "num_heads": 3, "n_k": 9}]).operations
    (said,) = [fact.says for fact in portrait.facts if fact.subject == "sizes"]
    assert said.startswith("right at batch 2, num_heads 3, n_k 9: weights with q = 0, score")
    assert any("batch 2 × 3, n_q 3, n_k 9" in one.title for one in portrait.maps)


def test_wanted_sizes_take_no_calls_from_other_readings() -> None:
    """A mistake that shows with an option is found with many wanted sizes too."""

    def attention(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
        out, _ = REFERENCE["attention"](q, k, v, causal=causal)
        return 2 * out if causal and q.shape[-2] == 7 else out

    for shapes in ([], [{"n_k": size} for size in range(90, 99)]):
        (portrait,) = properties.inspect(attention, shapes=shapes).operations
        assert any(anomaly.startswith("With causal and more queries than keys: ") for anomaly in portrait.anomalies)


def test_sizes_that_a_kernel_does_not_take_are_said() -> None:
    """By a declaration, or by an exception."""
    declared = Implementation("mine", {SDPA: right}, supports={"n_k": lambda size: size < 8})

    def raising(x: Any, start_pos: int = 0) -> Any:
        if x.shape[-2] == 33:
            raise ValueError("too long")
        return REFERENCE["rope"](x, start_pos)

    for kernel, sizes, said in (
        (declared, {"n_k": 9}, f"n_k 9: {SDPA} does not take these sizes"),
        ({"rope": raising}, {"seq_len": 33}, "too long"),
        ({"causal_mask": REFERENCE["causal_mask"]}, {"n_k": 9}, "attnspec has no instrument for causal_mask"),
    ):
        (portrait,) = properties.inspect(kernel, shapes=[sizes]).operations
        assert any(said in sentence for sentence in portrait.unknown), portrait.unknown


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"n_keys": 3}, "Unknown size 'n_keys'. Did you mean 'n_k'?"),
        ({"n_k": 0}, "n_k is 0, but should be a whole number from 1."),
        ({"n_k": 1.5}, "n_k is 1.5, but should be a whole number from 1."),
        (
            {"kv_heads": 2, "n_k": 5},
            f"kv_heads=2,n_k=5: {SDPA} has no kv_heads. Its sizes are batch, num_heads, n_q, n_k, head_dim, value_dim. "
            "Type n_k=5.",
        ),
        (
            {"seq_len": 5},
            f"seq_len=5: {SDPA} has no seq_len. Its sizes are batch, num_heads, n_q, n_k, head_dim, value_dim. Type "
            "batch=2,n_q=1,n_k=4096,head_dim=64.",
        ),
    ],
)
def test_a_wrong_size_is_refused_in_a_sentence(sizes: dict[str, Any], sentence: str) -> None:
    """Nothing is measured."""
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        properties.inspect(right, SDPA, shapes=[sizes])


@pytest.mark.parametrize("operation", [SDPA, "attention", "attention_vjp", "rope", "inv_freq", "causal_mask"])
@pytest.mark.parametrize("declared", [False, True])
def test_a_quick_portrait_makes_at_most_twenty_calls(operation: str, declared: bool) -> None:
    """Calls are counted by the kernel itself. The sizes that are asked for need calls too."""
    calls = 0

    def kernel(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return REFERENCE[operation](*arguments, **options)

    given: Any = Implementation("mine", {operation: kernel}) if declared else {operation: kernel}
    sizes = {name: 9 for name in sizes_of(OPERATIONS[operation]) if name in ("n_k", "seq_len", "head_dim")}
    (portrait,) = properties.inspect(given, quick=True, shapes=[sizes]).operations
    assert calls == portrait.calls <= 20
    assert portrait.anomalies == ()
    assert "quick: at most 20 calls are made, which show less" in portrait.unknown


def test_a_quick_portrait_finds_a_lost_key() -> None:
    """The instruments keep some of the few calls."""
    assert not properties.inspect(losing_the_last_key(3), quick=True).ok


# -- Differences -----------------------------------------------------------------------------------


def inspected(function: Callable[..., Any], operation: str = SDPA) -> Portrait:
    """The portrait of a function."""
    return properties.inspect(function, operation)


def test_a_kernel_does_not_differ_from_itself() -> None:
    """Every comparison is of the same values."""
    assert differences(inspected(right), inspected(right)) == ()


def test_the_first_results_that_differ_are_shown_with_the_entry() -> None:
    """No convention differs; 12 keys are the first of the compared sizes with more than 5."""
    found = differences(inspected(right), inspected(losing_the_last_key(11)))
    results = [one for one in found if one.subject.startswith("out[")]
    (one,) = results
    assert "n_q 5, n_k 12" in one.subject
    assert "(error limits allow a difference of " in one.subject
    assert float(one.first) != float(one.second)
    assert {other.subject for other in found} == {one.subject, "anomaly"}


def test_a_call_that_only_one_kernel_refuses_and_a_nan_are_differences() -> None:
    """An exception, and a result that is not a number, at 12 keys."""

    def kernel(wrong: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda q, k, v, mask=None: wrong(right(q, k, v, mask)) if k.shape[-2] == 12 else right(q, k, v, mask)

    def raising(out: Any) -> Any:
        raise ValueError("twelve")

    for wrong, ending in ((raising, "twelve"), (lambda out: out * np.nan, "nan")):
        found = differences(inspected(right), inspected(kernel(wrong)))
        assert "n_k 12" in found[0].subject
        assert ending in found[0].second
    both = inspected(kernel(raising))
    assert differences(both, both) == ()


def test_differences_within_rounding_are_none() -> None:
    """float32 results are within the sum of both error limits of the float64 ones."""

    def narrow(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return right(*(x.astype(np.float32) for x in (q, k, v)), mask).astype(np.float32)

    first = properties.inspect(Implementation("wide", {SDPA: right}, "float64"))
    second = properties.inspect(Implementation("narrow", {SDPA: narrow}, "float32"))
    assert differences(first, second) == (Difference(SDPA, "arithmetic", "float64", "float32"),)


def test_conventions_options_and_sizes_that_differ_are_named() -> None:
    """Pairs of channels, and widths."""
    halves = Implementation("halves", {"rope": _halves}, supports={"head_dim": lambda size: size % 2 == 0})
    found = differences(inspected(REFERENCE["rope"], "rope"), properties.inspect(halves))
    by_subject = {one.subject: one for one in found}
    assert by_subject["rope_pairing"].first.startswith("'adjacent': channels 2i and 2i + 1")
    assert by_subject["rope_pairing"].second.startswith("'half': channels i and i + head_dim/2")
    assert by_subject["head_dim"].second.startswith("takes 0, 2, 8, 16")
    assert "out[" in next(iter(by_subject))


def _halves(x: Any, start_pos: int) -> Any:
    first, second = np.split(x, 2, axis=-1)
    width = first.shape[-1]
    angle = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * 10000.0 ** (-np.arange(width) / max(width, 1))
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def test_operations_that_one_kernel_lacks_are_named() -> None:
    """They are not compared further."""
    both = properties.inspect({SDPA: right, "rope": REFERENCE["rope"]})
    assert differences(both, inspected(right)) == (Difference("rope", "operation", "offered", "not offered"),)


# -- Texts and the page ----------------------------------------------------------------------------


def test_a_portrait_is_a_text_a_line_and_a_fragment_of_html() -> None:
    """What `print`, the console and a notebook show."""
    portrait = inspected(right)
    assert repr(portrait) == f"<Portrait of {portrait.name} ({SDPA}): no anomaly, no question>"
    assert str(portrait).startswith(f"{SDPA}  ")
    assert "adapter = properties.Implementation(" in str(portrait)
    assert "\x1b" not in str(portrait)
    fragment = portrait._repr_html_()
    assert fragment.startswith("<pre>")
    assert SDPA in fragment


def test_the_page_has_anomalies_first_and_a_text_for_each_picture() -> None:
    """It is well-formed, and says in words what the pictures show."""
    portrait = properties.inspect(losing_the_last_key(3))
    page = html([portrait])
    document = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    headings = [heading.text for heading in document.iter("h3")]
    assert headings == ["Anomalies", "Facts", "Maps"]
    pictures = [one.get("aria-label") for one in document.iter("div") if one.get("role") == "img"]
    assert len(pictures) == 2 * len(portrait.operations[0].maps)
    assert any("measured" in said and "entries differ" in said for said in pictures)
    assert page == html([portrait])


# -- The command -----------------------------------------------------------------------------------

_KERNELS = """
import numpy as np


def rope(x, start_pos=0):
    first, second = np.split(x, 2, axis=-1)
    width = first.shape[-1]
    angle = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * 10000.0 ** (-np.arange(width) / width)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with three kernels: one, its copy, and one that rotates the other way."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels_one.py").write_text(_KERNELS)
    (tmp_path / "kernels_copied.py").write_text(_KERNELS)
    (tmp_path / "kernels_reversed.py").write_text(_KERNELS.replace("np.sin(angle)", "-np.sin(angle)"))
    return tmp_path


def test_against_says_what_differs_by_its_exit_status(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """0 without a difference, 1 with some."""
    assert main(["inspect", "kernels_one.py", "--against", "kernels_copied.py", "--quick"]) == 0
    assert "No difference between kernels_one and kernels_copied" in capfd.readouterr().out
    assert main(["inspect", "kernels_one.py", "--against", "kernels_reversed.py", "--quick", "--json", "-"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert (found["first"], found["second"]) == ("kernels_one", "kernels_reversed")
    assert found["differences"][0]["subject"].startswith("out[")


def test_the_page_and_the_json_have_the_maps(folder: Path) -> None:
    """Both come from one run."""
    command = ["inspect", "kernels_one.py", "--quick", "--shape", "seq_len=5,head_dim=6"]
    assert main([*command, "--html", "page", "--json", "found.json"]) == 0
    (portrait,) = json.loads((folder / "found.json").read_text("utf-8"))
    titles = [one["title"] for one in portrait["operations"][0]["maps"]]
    page = (folder / "page/index.html").read_text("utf-8")
    assert any("seq_len 5, head_dim 6" in title for title in titles)
    assert all(title in page for title in titles)


def test_new_writes_what_inspect_writes(folder: Path) -> None:
    """They are one command."""
    assert main(["new", "first.py", "--inspect", "kernels_one.py:rope", "--operations", "rope"]) == 0
    assert main(["inspect", "kernels_one.py:rope", "--operation", "rope", "--write", "second.py"]) == 0
    text = (folder / "first.py").read_text("utf-8")
    assert text == (folder / "second.py").read_text("utf-8")
    assert 'rope_pairing="half"' in text
    assert "NotImplementedError" not in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["inspect", "kernels_one.py", "--shape", "heads=3"], "Unknown size 'heads'. Did you mean 'kv_heads'?"),
        (
            ["inspect", "kernels_one.py", "--against", "kernels_copied.py", "--write", "adapter.py"],
            "--against prints differences, and writes no adapter and no page: leave out --write and --html.",
        ),
        (
            ["inspect", "kernels_one.py", "kernels_copied.py", "--against", "kernels_reversed.py", "--quick"],
            "--against compares two kernels, but there are 3.",
        ),
        (
            ["new", "adapter.py", "--inspect", "kernels_one.py", "--operations", "rope", "rope_vjp"],
            "--inspect takes one operation, but --operations names 2.",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused_in_a_sentence(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    """The exit status is 2."""
    assert main(arguments) == 2
    assert f"attnspec: {sentence}" in capfd.readouterr().err


def test_text_that_is_no_size_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An example is given."""
    with pytest.raises(SystemExit):
        main(["inspect", "kernels_one.py", "--shape", "n_k"])
    assert "'n_k' should be sizes, such as batch=2,n_q=1,n_k=4096" in capfd.readouterr().err
