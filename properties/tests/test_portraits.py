"""Tests of portraits: what is inferred is right, and what is written can be verified."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import oracles
import properties
from oracles import Conventions
from oracles.conventions import DEFAULT
from properties.bugs.reference import REFERENCE
from properties.contract.features import FEATURES
from properties.contract.implementation import Implementation
from properties.contract.meanings import MEANINGS
from properties.contract.operations import OPERATIONS, Operation
from properties.portraits.portrait import OperationPortrait, inspect
from properties.strategies.choices import rounded

_NUMBERS = {"rope_base": (500_000.0, 100.0), "rope_scale": (0.25,)}
_NOT_SHOWN = {
    ("causal_attention", "dead_rows"),  # with as many keys as queries, no row is fully masked
    ("merge_attention", "dead_rows"),
    ("relative_bias", "causal"),  # portraits have no experiment on these two; a run tells from its results
    *(("rotary_embedding", convention) for convention in OPERATIONS["rotary_embedding"].conventions),
    ("inv_freq", "rope_pairing"),
    ("inv_freq", "odd_lane"),
    ("rope_angles", "rope_pairing"),
    ("rope_angles", "odd_lane"),
    ("attention_jvp", "lse_base"),
    ("attention_jvp", "lse_sink"),
    ("latent_attention", "softcap_order"),  # without a bias two orders are the same
    ("hard_masked_softmax_vjp", "dead_rows"),  # the gradient is 0 under each value but one
}
"""The operations that do not show a convention."""


def _cases() -> Iterator[Any]:
    """Each value of each convention of each operation. The defaults are thorough, since the reference
    follows them too, and so are conventions of packed and paged keys that attention has too.
    """
    for operation in OPERATIONS.values():
        for convention in () if operation.is_played else operation.conventions:
            is_shared = operation.has_sequences and convention in OPERATIONS["attention"].conventions
            for value in MEANINGS.get(convention, _NUMBERS.get(convention, ())):
                if value != "causal_alone" or "bias" in operation.options:  # without a bias it is "causal_wins"
                    is_thorough = is_shared or value == getattr(DEFAULT, convention)
                    yield pytest.param(operation.name, convention, value, marks=[pytest.mark.thorough] * is_thorough)


def oracle_with(operation: Operation, conventions: Conventions, arithmetic: str) -> Implementation:
    """The certified values as an implementation that follows conventions."""
    inverted = conventions.mask_polarity == "true_blocks"

    def answer(*positional: Any, **options: Any) -> Any:
        arguments = operation.arguments(positional, options)
        given = tuple(
            ~argument if inverted and argument is not None and operation.is_mask(name) else argument
            for name, argument in zip(operation.parameters, arguments, strict=False)
        )
        enclosures = operation.expected(
            given, made.resolved_arithmetic, replace(conventions, mask_polarity="true_allows")
        )
        values = [
            (~enclosure if inverted else enclosure)
            if isinstance(enclosure, np.ndarray)
            else rounded(enclosure.mid.copy(), operation.stored(name, made.resolved_arithmetic, result=True))
            for name, enclosure in zip(operation.returned(arguments), enclosures, strict=True)
        ]
        by_name = dict(zip(operation.returned(arguments), values, strict=True))
        return values[0] if len(operation.outputs) == 1 else tuple(by_name.get(name) for name in operation.outputs)

    made = Implementation("oracle", {operation.name: answer}, arithmetic, features=FEATURES, dtype="float64")
    return made


def portrait_of(implementation: Implementation) -> OperationPortrait:
    """The portrait of the only operation of an implementation."""
    (portrait,) = inspect(implementation).operations
    return portrait


@pytest.mark.parametrize(
    "arithmetic",
    ["float32", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("float64", "float16", "bfloat16"))],
)
@pytest.mark.parametrize(("name", "convention", "value"), list(_cases()))
def test_inferred_conventions_are_those_of_the_kernel(name: str, convention: str, value: Any, arithmetic: str) -> None:
    """Each value is found, or nothing is said about it; no other convention is misread."""
    conventions = replace(DEFAULT, **{convention: value})
    if convention == "dead_gradients":
        conventions = replace(conventions, dead_rows="uniform")
    portrait = portrait_of(oracle_with(OPERATIONS[name], conventions, arithmetic))
    assert all(found == getattr(conventions, shown) for shown, found in portrait.conventions.items())
    if (name, convention) not in _NOT_SHOWN and arithmetic == "float32" and convention != "dead_gradients":
        is_default = value == getattr(DEFAULT, convention)
        assert is_default or convention in portrait.conventions, portrait.unknown


@pytest.mark.parametrize("name", [name for name in REFERENCE if not OPERATIONS[name].is_played])
def test_the_reference_has_no_anomaly_and_raises_no_question(name: str) -> None:
    """Nothing is declared, and nothing is found wrong, in at most 60 calls; in 66 for keys in pages, of
    which batches without a sequence are tried too, and in 61 for attention, whose last tile of 40 keys is tried.
    """
    (portrait,) = inspect({name: REFERENCE[name]}).operations
    assert (portrait.anomalies, portrait.questions) == ((), ())
    assert portrait.calls <= {"paged_attention": 66, "attention": 61}.get(name, 60)


def _halves(x: Any, start_pos: int = 0) -> Any:
    """A rope that pairs channels i and i + d/2."""
    first, second = np.split(x, 2, axis=-1)
    width = first.shape[-1]
    angle = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * 10000.0 ** (-np.arange(width) / width)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def test_a_value_that_is_no_default_is_a_question_with_both_answers() -> None:
    """It names the convention and the known bug, which gives the same results."""
    (portrait,) = inspect({"rope": _halves}).operations
    (question,) = portrait.questions
    assert question.convention == "rope_pairing"
    assert "rope-half-split-pairs" in question.says
    assert portrait.anomalies == ()


def _inverted(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    """Attention in which True in a mask hides a key. A mask has no effect beside causal."""
    attend: Callable[..., Any] = REFERENCE["attention"]
    return attend(q, k, v, mask=None if mask is None or causal else ~mask, causal=causal)[0]


def test_trial_calls_show_conventions() -> None:
    """The calls that found the form show the polarity of masks and what a mask does beside causal, in no
    further call.
    """
    (portrait,) = inspect({"attention": _inverted}).operations
    shown = {name: portrait.conventions[name] for name in ("mask_polarity", "causal_with_mask")}
    assert shown == {"mask_polarity": "true_blocks", "causal_with_mask": "causal_wins"}
    assert portrait.form is not None
    calls = {id(made.arguments) for made in portrait.form.made}
    assert calls >= {id(found.arguments) for found in portrait.findings if found.convention in shown}


def _late(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Attention that loses the last key where there are more than 3 queries."""
    if q.shape[-2] > 3:
        k, v = k[..., :-1, :], v[..., :-1, :]
    right: Callable[..., Any] = REFERENCE["scaled_dot_product_attention"]
    return right(q, k, v, None if mask is None else mask[..., : k.shape[-2]])


def test_a_wrong_kernel_has_an_anomaly() -> None:
    """No convention explains a lost key."""
    portrait = inspect({"scaled_dot_product_attention": _late})
    assert not portrait.ok
    assert any("last" in anomaly for anomaly in portrait.operations[0].anomalies), portrait.operations[0].anomalies


def _one_key_head_for_each_query_head(q: Any, k: Any, v: Any, window: Any = None) -> Any:
    """Attention that refuses grouped heads, and counts the query's own key in a window."""
    if q.shape[-3] != k.shape[-3]:
        raise ValueError("as many key heads as query heads")
    distance = np.arange(q.shape[-2])[:, None] - np.arange(k.shape[-2])
    left, right = (None, None) if window is None else window
    visible = (left is None or distance < left) & (right is None or -distance <= right) & np.full(distance.shape, True)
    attend: Callable[..., Any] = REFERENCE["scaled_dot_product_attention"]
    return attend(q, k, v, visible)


def test_a_kernel_without_grouped_heads_is_read() -> None:
    """Its adapter restricts the numbers of heads, and calls with these numbers show the window."""
    (portrait,) = inspect({"attention": _one_key_head_for_each_query_head}).operations
    assert portrait.conventions["window"] == "count"


@pytest.mark.parametrize("takes", [{"window"}, {"causal"}])
def test_fully_masked_rows_are_seen_without_a_mask(takes: set[str]) -> None:
    """A window, or the causal mask from the bottom right, leaves queries without a key."""
    conventions = Conventions(causal="bottom_right", dead_rows="nan")
    made = oracle_with(OPERATIONS["attention"], conventions, "float32")
    (portrait,) = inspect(replace(made, features=tuple(takes))).operations
    assert (portrait.conventions["causal"], portrait.conventions["dead_rows"]) == ("bottom_right", "nan")


def test_a_portrait_without_any_reading_says_so() -> None:
    """A kernel for a single length of 5 takes no call that attnspec plans."""
    of_length_5 = {"n_q": lambda size: size == 5, "n_k": lambda size: size == 5}
    declared = Implementation("mine", {"attention": REFERENCE["attention"]}, supports=of_length_5)
    portrait = portrait_of(declared)
    assert portrait.unknown[-1] == "what it computes: attnspec makes no call that the function takes"


def _with_torch_names(q: Any, k: Any, v: Any, attn_mask: Any = None, is_causal: bool = False) -> Any:
    """Attention with PyTorch's names, without a log-sum-exp."""
    attend: Callable[..., Any] = REFERENCE["attention"]
    return attend(q, k, v, mask=attn_mask, causal=is_causal)[0]


def test_a_portrait_says_each_reason_once_and_conventions_first() -> None:
    """What a query reads comes before the scale, the masks, and how the function is called."""
    (portrait,) = inspect({"attention": _with_torch_names}).operations
    subjects = list(dict.fromkeys(fact.subject for fact in portrait.facts))
    expected = ["kv_heads", "causal", "scale_default", "mask_polarity", "arithmetic", "bits", "arrays", "not taken"]
    assert [subject for subject in subjects if subject in expected] == expected
    said = [fact.says for fact in portrait.facts]
    assert "scale, offset, window, softcap, sink, alibi: no parameter has a usual name" in said
    assert (
        "window, softcap_order, lse_sink, alibi_reference: the function takes no option that shows this"
        in portrait.unknown
    )


def test_the_printed_adapter_runs_with_imports() -> None:
    """It has the function that renames arguments, and the questions are not repeated in it."""
    portrait = inspect({"attention": _with_torch_names})
    code = str(portrait).partition("with its imports):\n")[2].rpartition("\n\n")[0]
    names: dict[str, Any] = {"properties": properties, "oracles": oracles}
    names["kernels"] = SimpleNamespace(attention=_with_torch_names)
    exec(code, names)
    q = np.ones((1, 2, 4))
    assert np.array_equal(names["adapter"].operations["attention"](q, q, q, causal=True), q)


def test_a_declaration_that_the_results_contradict_is_an_anomaly() -> None:
    """The adapter declares adjacent pairs, and rotates halves."""
    declared = Implementation("mine", {"rope": _halves}, supports={"head_dim": lambda size: size % 2 == 0})
    assert any("declares rope_pairing='adjacent'" in anomaly for anomaly in portrait_of(declared).anomalies)


_KERNELS = """
import numpy as np


def attention(q, k, v, is_causal=False):
    groups = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, groups, axis=-3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""


def _attnspec(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "attnspec", *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_the_adapter_that_inspect_writes_passes(tmp_path: Path) -> None:
    """From a bare function to a passing verification in two commands."""
    (tmp_path / "kernels.py").write_text(_KERNELS)
    inspected = _attnspec(tmp_path, "inspect", "kernels.py", "--write", "adapter.py")
    assert inspected.returncode == 0, inspected.stdout + inspected.stderr
    verified = _attnspec(tmp_path, "verify", "adapter.py", "--quick")
    assert verified.returncode == 0, verified.stdout


def test_a_function_of_another_name_needs_its_operation(tmp_path: Path) -> None:
    """--operation says what the function computes; the JSON holds the portrait."""
    (tmp_path / "kernels.py").write_text(_KERNELS.replace("def attention", "def mine"))
    found = _attnspec(tmp_path, "inspect", "kernels.py:mine", "--operation", "attention", "--json", "-")
    assert found.returncode == 0, found.stderr
    (portrait,) = json.loads(found.stdout)
    assert portrait["operations"][0]["conventions"]["causal"] == "top_left"


def test_a_kernel_that_ends_its_process_is_reported(tmp_path: Path) -> None:
    """The exit status is that of the signal."""
    (tmp_path / "kernels.py").write_text("import os\n\n\ndef rope(x, start_pos=0):\n    os.abort()\n")
    found = _attnspec(tmp_path, "inspect", "kernels.py")
    assert (found.returncode, found.stdout) == (134, "")
    assert "SIGABRT" in found.stderr


def test_bad_input_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """An existing file, an unknown operation, and a function that cannot be called."""
    (tmp_path / "kernels.py").write_text("def rope(x):\n    raise RuntimeError('no')\n")
    for arguments, message in (
        (("kernels.py", "--write", "kernels.py"), "stays unchanged"),
        (("kernels.py:rope", "--operation", "ropes"), "Did you mean"),
        (("kernels.py",), "RuntimeError: no"),
    ):
        found = _attnspec(tmp_path, "inspect", *arguments)
        assert found.returncode == 2, found.stdout
        assert message in found.stderr
        assert "Traceback" not in found.stderr


def _of_width_64(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Attention that takes vectors of width 64 only."""
    if q.shape[-1] != 64:
        raise ValueError(f"width {q.shape[-1]} is not 64")
    attend: Callable[..., Any] = REFERENCE["scaled_dot_product_attention"]
    return attend(q, k, v, mask)


def test_widths_that_fail_share_a_line() -> None:
    """The reason is that of the first width."""
    (portrait,) = inspect({"scaled_dot_product_attention": _of_width_64}).operations
    said = [fact.says for fact in portrait.facts if fact.subject == "not taken" and "width" in fact.says]
    assert said[0].startswith("head_dim = value_dim = 1, 3, 128, ")
    assert said[0].endswith(": ValueError: width 1 is not 64")
    assert len(said) <= 2  # the other line has a head_dim that is not the value_dim


def test_options_without_a_call_are_named() -> None:
    """A kernel that takes no batch needs a call for each channel of each reading, more than there are."""
    (portrait,) = inspect({"attention_vjp": _gradients_of_heads}).operations
    assert any("a sink; a bias: no call was left" in clause for clause in portrait.unknown), portrait.unknown


def _gradients_of_heads(q: Any, k: Any, v: Any, grad_out: Any, **options: Any) -> Any:
    """The gradients of attention of a single problem of several heads."""
    if q.ndim != 3:
        raise ValueError("q has the axes of heads, queries and channels.")
    return REFERENCE["attention_vjp"](q, k, v, grad_out, **options)


@pytest.mark.parametrize("name", ["attention", "attention_vjp"])
def test_every_option_is_read(name: str) -> None:
    (portrait,) = inspect({name: REFERENCE[name]}).operations
    assert portrait.unknown == ()


def _always_causal(q: Any, k: Any, v: Any, mask: Any = None, *, is_aligned_last: bool = False) -> Any:
    """Attention that is causal in every call."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    visible = np.tri(n_q, n_k, n_k - n_q if is_aligned_last else 0, dtype=bool)
    attend: Callable[..., Any] = REFERENCE["attention"]
    return attend(q, k, v, mask=visible if mask is None else visible & mask)[0]


def _aligned_last(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Attention that is causal in every call, with the last query at the last key."""
    return _always_causal(q, k, v, mask, is_aligned_last=True)


def _single_head(q: Any, k: Any, v: Any) -> Any:
    """Attention of as many key heads as query heads that is causal in every call."""
    scores = np.where(
        np.tri(q.shape[-2], k.shape[-2], dtype=bool), q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5, -np.inf
    )
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


_CAUSAL = (
    ("scaled_dot_product_attention", _single_head, "causal_attention", "top_left"),
    ("grouped_query_attention", _always_causal, "attention", "top_left"),
    ("grouped_query_attention", _aligned_last, "attention", "bottom_right"),
    ("attention", _aligned_last, "attention", "bottom_right"),
)


@pytest.mark.parametrize(("name", "function", "offered", "corner"), _CAUSAL)
def test_a_function_that_is_always_causal_is_declared(name: str, function: Any, offered: str, corner: str) -> None:
    """Nothing is wrong in it, but it is a question whether every call should be causal."""
    (portrait,) = inspect({name: function}).operations
    assert (portrait.anomalies, portrait.operation, portrait.own_name) == ((), offered, name)
    assert portrait.questions[0].convention == "causal only"
    assert portrait.conventions["causal"] == corner
    if offered == "attention":
        assert {"mask_polarity", "kv_heads", "dead_rows", "scale_default"} <= portrait.conventions.keys()


def test_a_mask_may_replace_the_causal_mask() -> None:
    """Calls without a mask are causal, and calls with a mask are not."""
    attend: Callable[..., Any] = REFERENCE["attention"]

    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return _always_causal(q, k, v) if mask is None else attend(q, k, v, mask=mask)[0]

    (portrait,) = inspect({"attention": attention}).operations
    assert portrait.anomalies == ()
    assert portrait.conventions["causal_with_mask"] == "mask_wins"


def test_an_adapter_that_declares_causal_only_is_read() -> None:
    """Its calls are causal from the declared corner."""
    (undeclared,) = inspect({"attention": _aligned_last}).operations
    portrait = portrait_of(undeclared.implementation)
    assert (portrait.anomalies, portrait.questions[0].value) == ((), "bottom_right")


def test_a_function_that_cannot_be_declared_causal_says_why() -> None:
    """Another function offers the operation that has the argument."""
    functions = {"grouped_query_attention": _always_causal, "attention": REFERENCE["attention"]}
    portrait, _ = inspect(functions).operations
    assert any("they are causal" in anomaly for anomaly in portrait.anomalies)
    assert any("another function offers attention" in clause for clause in portrait.unknown)


def test_a_function_that_needs_a_mask_is_not_declared_causal() -> None:
    """No call without a mask works."""

    def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return _always_causal(q, k, v, mask)

    (portrait,) = inspect({"grouped_query_attention": attend}).operations
    assert portrait.unknown[0].endswith("has no argument causal. No call of attention worked")


@pytest.mark.parametrize(("name", "function"), [row[:2] for row in _CAUSAL])
def test_a_quick_portrait_of_a_function_that_is_always_causal_has_20_calls(name: str, function: Any) -> None:
    (portrait,) = inspect({name: function}, quick=True).operations
    assert portrait.calls <= 20
    assert (portrait.anomalies, portrait.own_name) == ((), name)


def test_a_function_with_an_option_causal_is_not_always_causal() -> None:
    """Its calls without the option are causal, which is wrong: nothing declares it."""

    def attention(q: Any, k: Any, v: Any, causal: bool = True) -> Any:
        attend: Callable[..., Any] = REFERENCE["attention"]
        return attend(q, k, v, causal=causal)[0]

    portrait = inspect({"attention": attention})
    assert not portrait.ok
    assert portrait.operations[0].own_name == "attention"


_TOP_LEFT = _KERNELS.replace(", is_causal=False", "").replace("if is_causal", "if True")
_BOTTOM_RIGHT = _TOP_LEFT.replace("*scores.shape[-2:]", "*scores.shape[-2:], k.shape[-2] - q.shape[-2]")
_NO_GROUPS = _TOP_LEFT.replace("groups = q.shape[-3] // k.shape[-3]", "pass").replace("groups, axis=-3", "1, axis=0")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("grouped_query_attention", _BOTTOM_RIGHT),
        *(
            pytest.param(*row, marks=pytest.mark.thorough)
            for row in (
                ("grouped_query_attention", _TOP_LEFT),
                ("attention", _TOP_LEFT),
                ("attention", _BOTTOM_RIGHT),
                ("scaled_dot_product_attention", _NO_GROUPS),
            )
        ),
    ],
)
def test_the_written_adapter_of_a_function_that_is_always_causal_passes(tmp_path: Path, name: str, code: str) -> None:
    """The question is a comment above its operations."""
    (tmp_path / "kernels.py").write_text(code.replace("def attention", f"def {name}"))
    inspected = _attnspec(tmp_path, "inspect", "kernels.py", "--write", "adapter.py")
    assert inspected.returncode == 0, inspected.stdout + inspected.stderr
    assert "# A call without options is causal" in (tmp_path / "adapter.py").read_text()
    verified = _attnspec(tmp_path, "verify", "adapter.py", "--quick")
    assert verified.returncode == 0, verified.stdout


def test_declared_caches_are_read() -> None:
    """Programs on them have windows, which are lengths."""
    portrait = portrait_of(Implementation("caches", {"decode": REFERENCE["decode"]}))
    assert (portrait.anomalies, portrait.calls > 0) == ((), True)
