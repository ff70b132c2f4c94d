"""Finds by trial calls how a function can be called as an operation, without any declaration.

The search varies one thing after another: the library and the type of arrays, the order and the
number of axes, the options, the memory layout, and the sizes. A call works if it returns finite
arrays of the right shape and type. The search does not ask whether the numbers are right.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from typing import Any

import numpy as np

from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.inspection.array import Array
from properties.inspection.forms import LIBRARIES, Form, Refusal
from properties.inspection.probe import SpentError
from properties.inspection.signatures import names_of, ways
from properties.inspection.size_rules import predicate_of, rule_of, sentence_of
from properties.inspection.trial_calls import OPTIONS, Trial
from properties.inspection.trials import RefusedError, Trials, alike

__all__ = ["NoFormError", "form_of"]

_MOST_CALLS = 40
_DTYPES = ("float64", "float32", "float16", "bfloat16")
_PLACES = ((2, "b h s d"), (2, "b s h d"), (1, "b h s d"), (0, "b h s d"))
"""The numbers and orders of axes with which the first call is tried."""

_OTHER_SIZES: Mapping[str, int] = dict.fromkeys(("head_dim", "value_dim", "embed_dim"), 128)
"""The sizes of the first call if everyday sizes fail."""

_FEW_ROWS = 16

_GROUPED_HEADS = "enable_gqa"
"""The keyword that PyTorch needs for grouped heads."""

_FACTOR = 1 / 1024
_LINEAR: Mapping[str, str] = {
    **dict.fromkeys(("rope", "apply_rotary", "rotate_half"), "x"),
    **dict.fromkeys(("scaled_dot_product_attention", "causal_attention", "grouped_query_attention", "attention"), "v"),
    **dict.fromkeys(
        (
            "scaled_dot_product_attention_vjp",
            "attention_vjp",
            "multi_head_attention_vjp",
            "rope_vjp",
            "apply_rotary_vjp",
        ),
        "grad_out",
    ),
    **{"multi_head_attention": "wo", "hard_masked_softmax_vjp": "grad_weights"},
    **{"table_lookup": "table", "learned_positional_encoding": "table"},
}
"""An argument of each operation in which the first result is linear."""

_MASKS = ((), ("full masks",), ("padding masks",), ("additive masks",), ("full masks", "additive masks"))
"""The kinds of masks, as words of `supports`, the most general first."""

_WIDTHS = ((1, 3, 64, 128), (5, 6, 8, 16, 96))
_LENGTHS = ((1, 7), (2, 16, 48, 256, 384))
_SIZES: Mapping[tuple[str, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {
    ("head_dim", "value_dim"): _WIDTHS,
    ("embed_dim",): _WIDTHS,
    ("n_q", "n_k"): _LENGTHS,
    ("seq_len",): _LENGTHS,
}
"""The sizes that are equal in trials, and their values. The second values are tried if one of the
first values fails.
"""

_DIFFERENCES = (("value_dim", "head_dim"), ("n_k", "n_q"), ("model_dim", "heads_width"))
_COMPARED = {(True, False): ">= 0", (False, True): "<= 0", (False, False): "== 0"}


class NoFormError(ValueError):
    """No call worked. The message has a line for each reason."""


def form_of(function: Callable[..., Any], operation: str, until: float = inf, calls: int = _MOST_CALLS) -> Form:
    """Return how a function can be called as an operation.

    At most `calls` calls are made, until `until`, a reading of time.monotonic. `Form.assumed` says
    if the search ended early. Raises NoFormError if no call worked, and ValueError for `decode`,
    which takes a class.
    """
    if OPERATIONS[operation].is_played:
        raise ValueError(f"{operation} takes a class of caches, and not a function.")
    search = _Search(Trials(function, OPERATIONS[operation], calls, until))
    try:
        search.run()
    except SpentError:
        search.assumed.append(f"The search ended after {search.trials.calls} calls. The rest is assumed to work.")
    return search.found


class _Search:
    """What the trial calls of a function have shown so far."""

    def __init__(self, trials: Trials) -> None:
        self.trials, self.operation, self.function = trials, trials.operation, trials.function
        self.first_trial = self.trial = Trial()
        self.form: Form | None = None
        self.base: list[Array] = []
        self.refusals: list[Refusal] = []
        self.assumed: list[str] = []
        self.is_unchecked = False

    @property
    def found(self) -> Form:
        """The form as far as it is known. Raises NoFormError before a call worked."""
        if self.form is None:
            reasons = dict.fromkeys(f"{refusal.what}: {refusal.error}" for refusal in self.refusals)
            raise NoFormError("\n".join(reasons) or "No call was made.")
        return replace(self.form, refusals=tuple(self.refusals), assumed=tuple(self.assumed), calls=self.trials.calls)

    def run(self) -> None:
        """Make the trial calls, the most important first."""
        self._find_first()
        self._shorten()
        self._find_order_of_axes()
        self._find_dtypes()
        self._find_causal_switch()
        self._find_mask()
        self._find_options()
        self._find_ranks()
        self._find_layouts()
        self._find_grouped_heads()
        self._find_sizes()
        self._find_empty_sizes()

    def _change(self, **fields: Any) -> None:
        self.form = replace(self.found, **fields)

    def _refuse(self, what: str, error: object) -> None:
        self.refusals.append(Refusal(what, str(error)))

    def _works(self, what: str, trial: Trial) -> bool:
        """Whether a call works. If it fails, the reason is kept."""
        try:
            self.trials.results(self.found, trial)
        except RefusedError as refused:
            self._refuse(what, refused)
            return False
        return True

    # -- The first call ----------------------------------------------------------------------------

    def _find_first(self) -> None:
        """Find arrays, and a way of passing them, with which a call works."""
        for sizes in ({}, _OTHER_SIZES):
            for library in _libraries(self.function, self.refusals):
                for rank, axes in _PLACES:
                    if self._find_at(Trial(sizes, rank), Form(self.operation.name, library, (), (rank,), axes)):
                        return

    def _find_at(self, trial: Trial, form: Form) -> bool:
        """Find a number type, and a way of passing arguments, with which a call works."""
        if trial.rank < _heads(self.operation):
            return False
        earlier, self.is_unchecked = len(self.refusals), False
        for dtype in _DTYPES:
            for way in ways(self.function, self.operation):
                takes_start = "start_pos" in (*way.positional, *way.keywords)
                self.first_trial = self.trial = trial if takes_start else trial.with_arguments(start_pos=0)
                try:
                    self.form, self.base = self.trials.with_results(
                        replace(form, dtypes=(dtype,), **way._asdict()), self.trial
                    )
                except RefusedError as refused:
                    self._refuse(dtype, refused)
                    self.is_unchecked |= self.trials.has_returned
                    continue
                del self.refusals[:earlier]
                return True
        return False

    def _shorten(self) -> None:
        """Make the trial calls that follow cheaper, with fewer rows, if the function takes them."""
        lengths = {name: _FEW_ROWS for name in self._measured if name in ("n_q", "n_k", "seq_len")}
        with suppress(RefusedError):
            self.base = self.trials.results(self.found, self._sized(**lengths))
            self.trial = self._sized(**lengths)

    # -- Order of axes, and types ------------------------------------------------------------------

    def _find_order_of_axes(self) -> None:
        """Exchange the axes of heads and rows if the function mixes the entries of the former."""
        shown = _shows_rows(self.operation)
        if shown is None or self.found.batch_ranks[0] < 1:
            return
        name, at, result = shown
        array = np.zeros(self.trial.shape(self.operation, name))
        array[(..., *at, slice(None))] = 1.0
        found = self.trials.results(self.found, self.trial.with_arguments(**{name: array}))[result]
        if _reach(found, -3) and not _reach(found, -2):
            other = {"b h s d": "b s h d", "b s h d": "b h s d"}[self.found.axes]
            self._change(axes=other)
            self.base = self.trials.results(self.found, self.trial)

    def _find_dtypes(self) -> None:
        """Find the number types that work, from the first one that worked on."""
        first = self.found.dtypes[0]
        reading: list[str] = []
        returning: list[str] = []
        for dtype in _DTYPES[_DTYPES.index(first) :]:
            if reading and self.is_unchecked:  # it would read beyond the end of narrower arrays
                self._refuse(dtype, "It was not tried: the function does not check the type of its arrays.")
                continue
            form = replace(self.found, dtypes=(dtype,))
            try:
                results = self.base if dtype == first else self.trials.results(form, self.trial)
                returning.append(dtype)
                self._require_linear(form, results)
                reading.append(dtype)
            except RefusedError as refused:
                self._refuse(dtype, refused)
                self.is_unchecked |= self.trials.has_returned and not reading
        self._change(dtypes=tuple(reading or returning))
        if self.found.dtype != first:
            self.base = self.trials.results(self.found, self.trial)

    def _require_linear(self, form: Form, results: list[Array]) -> None:
        """Raise RefusedError if a factor of an argument is not a factor of the first result. A
        function that misreads the type of its arrays shows this.
        """
        name = _LINEAR.get(self.operation.name)
        if name is None:
            return
        given = dict(zip(self.operation.parameters, self.trial.arguments(self.operation), strict=True))[name]
        scaled = self.trials.results(form, self.trial.with_arguments(**{name: given * _FACTOR}))
        if not alike(results[0] * _FACTOR, scaled[0]):
            raise RefusedError(f"{name} / 1024 does not give {self.operation.outputs[0]} / 1024.")

    # -- Options -----------------------------------------------------------------------------------

    def _find_causal_switch(self) -> None:
        """Set the keyword that makes attention causal, if the function has one that is not set."""
        if self.operation.name == "causal_attention":
            for keyword in names_of(self.function, "causal"):
                form = replace(self.found, switches={keyword: True})
                if self._changes("causal", form, self.trial):
                    self.form, self.base = form, self.trials.results(form, self.trial)
                    return

    def _changes(self, what: str, form: Form, trial: Trial, base: list[Array] | None = None) -> bool:
        """Whether a call works and has other results than the call without an option."""
        try:
            results = self.trials.results(form, trial)
        except RefusedError as refused:
            self._refuse(what, refused)
            return False
        before = self.base if base is None else base
        if all(np.array_equal(one, other) for one, other in zip(before, results, strict=False)):
            self._refuse(what, "The results are the same with it and without it.")
            return False
        return True

    def _find_mask(self) -> None:
        """Find the kind of masks that the function takes."""
        if "mask" not in self.operation.parameters:
            return
        form, is_option = self.found, "mask" in self.operation.options
        earlier, names = len(self.refusals), names_of(self.function, "mask") if is_option else ("",)
        given = is_option or "mask" in (*form.positional, *form.keywords)
        for words, keyword in ((words, keyword) for keyword in names if given for words in _MASKS):
            named = {"mask": keyword} if is_option else {}
            tried = replace(
                form,
                keywords={**form.keywords, **named},
                features=(*form.features, *named),
                words=(*form.words, *words),
            )
            if self._hides_keys(tried, words):
                del self.refusals[earlier:]
                self.form = tried
                return
            if "unexpected keyword" in self.refusals[-1].error:
                break
        if not is_option:
            kept = {name: keyword for name, keyword in form.keywords.items() if name != "mask"}
            self._change(words=(*form.words, "no masks"), keywords=kept)
        if not given or not names:
            self._refuse("mask", _nameless("mask"))

    def _hides_keys(self, form: Form, words: tuple[str, ...]) -> bool:
        """Whether a mask works, and hides keys.

        With q = 0 all weights of visible keys are equal. v has ones in the rows that the mask hides
        not, so that the output is 0 or 1. A mask that is added as 0 and 1 gives e/(1 + e) = 0.73.
        """
        trial, what = self.trial, f"mask ({' and '.join(words) or 'booleans that broadcast'})"
        visible = OPTIONS["mask"](trial, self.operation, "mask")
        if self.operation.forward != self.operation.name or not {"q", "v"} <= {*self.operation.parameters}:
            return self._changes(what, form, trial.with_arguments(mask=visible))
        v = np.broadcast_to(visible[:, None], trial.shape(self.operation, "v")).astype(float)
        zeros = np.zeros(trial.shape(self.operation, "q"))
        try:
            out = self.trials.results(form, trial.with_arguments(q=zeros, v=v, mask=visible))[0]
        except RefusedError as refused:
            self._refuse(what, refused)
            return False
        if (np.minimum(np.abs(out), np.abs(out - 1)) < 0.1).all():
            return True
        self._refuse(what, "Masked keys have weights that are not 0.")
        return False

    def _find_options(self) -> None:
        """Find the options that the function takes, and their names."""
        for name in self.operation.options:
            if name != "mask" and name in OPTIONS:
                self._find_option(name, OPTIONS[name](self.trial, self.operation, name))
        if "offset" in self.found.features:
            offsets = 1 + np.arange(self.trial.batch)
            if self._changes_causally("offsets", self.found, offset=offsets):
                self._change(features=(*self.found.features, "offsets"))

    def _find_option(self, name: str, value: Any) -> None:
        if name not in self.operation.given(self.trial.with_arguments(**{name: value}).arguments(self.operation)):
            return  # the contract passes it to every function
        taken = set(self.found.keywords.values())
        names = [keyword for keyword in names_of(self.function, name) if keyword not in taken]
        earlier = len(self.refusals)
        for keyword in names:
            form = replace(
                self.found,
                keywords={**self.found.keywords, name: keyword},
                features=(*self.found.features, name),
            )
            if self._changes_causally(name, form, **{name: value}):
                del self.refusals[earlier:]
                self.form = form
                return
        if not names:
            self._refuse(name, _nameless(name))

    def _changes_causally(self, name: str, form: Form, **given: Any) -> bool:
        """Whether an option changes the results. Offsets are tried with causality where it is taken."""
        if not name.startswith("offset") or "causal" not in form.features:
            return self._changes(name, form, self.trial.with_arguments(**given))
        causal = self.trial.with_arguments(causal=True)
        base = self.trials.results(self.found, causal)
        # Without an offset row i reads up to key i.
        return self._changes(name, form, causal.with_arguments(**given), base)

    # -- Ranks, layouts and sizes ------------------------------------------------------------------

    def _find_ranks(self) -> None:
        """Find the numbers of axes that work."""
        if not any(BATCH in self.operation.axes.get(name, ()) for name in self.operation.arrays):
            self._change(batch_ranks=(0, 1, 2))
            return
        known = self.found.batch_ranks[0]
        others = [rank for rank in range(_heads(self.operation), 4) if rank != known]
        working = [rank for rank in others if self._works(f"{rank + 2} axes", replace(self.trial, rank=rank))]
        self._change(batch_ranks=tuple(sorted([known, *working])))

    def _find_layouts(self) -> None:
        """Find whether the function misreads arrays that are not contiguous."""
        if self.found.arrays == "jax" or not self.operation.arrays:
            return
        for layout in ("transposed", "strided"):
            with suppress(RefusedError):
                results = self.trials.results(self.found, self.trial, layout)
                if not all(map(alike, self.base, results)):
                    self._refuse(f"{layout} arrays", "The results differ from those of contiguous arrays.")
                    self._change(layouts=())
                    return

    def _sized(self, **sizes: int) -> Trial:
        return replace(self.trial, sizes={**self.trial.sizes, **sizes})

    def _find_grouped_heads(self) -> None:
        """Find whether a key head may have several query heads."""
        if "kv_heads" not in self.operation.axes.get("k", ()):
            return
        fewer = self._sized(kv_heads=2)
        if self._works("kv_heads 2 of num_heads 4", fewer):
            return
        if _GROUPED_HEADS in (names_of(self.function, _GROUPED_HEADS)):
            form = replace(self.found, switches={_GROUPED_HEADS: True})
            with suppress(RefusedError):
                self.trials.results(form, fewer)
                self.form = form
                self.refusals.pop()
                return
        self._restrict("num_heads", "kv_heads", rule="(4,)")

    def _restrict(self, *names: str, rule: str) -> None:
        if rule:
            self._change(sizes={**self.found.sizes, **dict.fromkeys(names, rule)})

    @property
    def _measured(self) -> set[str]:
        """The names of the sizes of a call."""
        return {*self.operation.sizes(self.trial.arguments(self.operation))}

    def _find_sizes(self) -> None:
        """Find rules for widths and lengths, and for their differences."""
        if "start_pos" in self._measured and "start_pos" in self.trial.given:
            self._restrict("start_pos", rule="(0,)")
        for group, values in _SIZES.items():
            if names := [name for name in group if name in self._measured]:
                self._find_size(names, *values)
        for larger, smaller in _DIFFERENCES:
            if {larger, smaller} <= self._measured:
                self._find_difference(larger, smaller)

    def _find_size(self, names: list[str], first: tuple[int, ...], second: tuple[int, ...]) -> None:
        """Find a rule for sizes that are equal."""
        label = " = ".join(names)
        tried = {trial.size(names[0]): True for trial in (self.first_trial, self.trial)}
        for sizes in (first, second):
            for size in sizes:
                if size not in tried:
                    tried[size] = self._works(f"{label} = {size}", self._sized(**dict.fromkeys(names, size)))
            if all(tried.values()):
                break
        rule = rule_of(tried)
        self._restrict(*names, rule=rule)
        self.assumed += filter(None, [sentence_of(" = ".join(names), rule, tried)])

    def _find_difference(self, larger: str, smaller: str) -> None:
        """Find which of two sizes may be the larger one."""
        usual, holds = self.trial.size(larger), predicate_of(self.found.sizes.get(larger, ""))
        other = next((size for size in (usual // 2, 2 * usual, 7, 1) if holds(size)), None)
        if other is None:
            return
        least, most = sorted((usual, other))
        works_more, works_less = (
            self._works(f"{larger} {size}, {smaller} {rest}", self._sized(**{larger: size, smaller: rest}))
            for size, rest in ((most, least), (least, most))
        )
        if not (works_more and works_less):
            comparison = _COMPARED[works_more, works_less]
            self._restrict(f"{larger}_minus_{smaller}", rule=f"lambda difference: difference {comparison}")

    def _find_empty_sizes(self) -> None:
        """Find whether sizes may be 0."""
        tied = {name: pair for pair in _DIFFERENCES for name in pair if "_minus_".join(pair) in self.found.sizes}
        for name in ("n_k", "n_q", "head_dim", "seq_len", "embed_dim", "batch"):
            if name == "batch" and self.found.batch_ranks[-1] <= _heads(self.operation):
                continue
            if name not in {*self._measured, "batch"} or not predicate_of(self.found.sizes.get(name, ""))(0):
                continue
            empty = self._sized(**dict.fromkeys(tied.get(name, (name,)), 0))
            trial = replace(self.trial, batch=0) if name == "batch" else empty
            if not self._works(f"{name} 0", trial):
                self._change(words=(*self.found.words, "positive sizes"))
                return


def _heads(operation: Operation) -> int:
    """1 if the arrays of the operation have an axis of heads with a name, else 0."""
    return int("num_heads" in operation.axes.get("q", ()))


def _shows_rows(operation: Operation) -> tuple[str, tuple[Any, Any], int] | None:
    """An argument, its entries that are 1 in the trial of axes, and the result that shows the axis
    of rows.

    A value of the first key reaches all queries. The gradient of the last query reaches the values
    of all keys. A row of ones is rotated by its position.
    """
    if operation.name in ("rope", "apply_rotary", "rope_vjp"):
        return ("grad_out" if operation.name.endswith("_vjp") else "x"), (slice(None), slice(None)), 0
    if operation.outputs[:3] == ("dq", "dk", "dv") and "grad_out" in operation.parameters:
        return "grad_out", (-1, -1), 2
    if {"q", "k", "v"} <= {*operation.parameters} and operation.outputs[0] == "out":
        return "v", (0, 0), 0
    return None


def _reach(array: Array, axis: int) -> bool:
    """Whether an array differs along an axis, counted among the entries that are not 0."""
    return bool((array != np.take(array, [0], axis)).any())


def _nameless(parameter: str) -> str:
    usual = " or ".join(names_of(lambda **_: None, parameter))
    return f"The function has no parameter named {usual}."


def _libraries(function: Callable[..., Any], refusals: list[Refusal]) -> Iterator[str]:
    """The libraries whose arrays a function may take, the most likely first.

    A library that is not imported is tried only after a TypeError, and if it is installed.
    """
    used = _used_modules(function)
    loaded = [library for library in LIBRARIES if library == "numpy" or library in sys.modules]
    yield from sorted(loaded, key=lambda library: library == "numpy" or library not in used)
    if any("TypeError" in refusal.error for refusal in refusals):
        yield from (library for library in LIBRARIES if library not in loaded and find_spec(library))


def _used_modules(function: Callable[..., Any]) -> set[str]:
    """The packages that a function's module uses by name."""
    plain = inspect.unwrap(getattr(function, "func", function))
    values = getattr(plain, "__globals__", {}).values()
    modules = [plain.__module__ or "", *(getattr(value, "__name__", "") for value in values if inspect.ismodule(value))]
    return {str(module).split(".")[0] for module in modules}
