"""Finds the masks and the options that a function takes, and the names under which it takes them.

An option is taken if a call with it works and has other results than the call without it.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from properties.inspection.array import Array
from properties.inspection.form_arguments import OPTIONS, Trial
from properties.inspection.form_trials import RefusedError, Trials, alike
from properties.inspection.forms import Form
from properties.inspection.signatures import names_of

__all__ = ["find_both", "find_options"]

_GROUPED_HEADS = "enable_gqa"
"""The keyword that PyTorch needs for grouped heads."""

_NAMELESS = "no parameter has a usual name"

_MASKS = ((), ("full masks",), ("padding masks",), ("additive masks",), ("full masks", "additive masks"))
"""The kinds of masks, as words of `supports`, the most general first."""

_UNUSUAL: Mapping[str, Callable[[Trial], Any]] = {
    "window": lambda trial: (None, 1),
    "bias": lambda trial: np.ones(trial.size("n_k")),
}
"""Values that a function may refuse though it takes an option: an open side, and a bias with fewer
axes.
"""


def find_options(trials: Trials) -> None:
    """Find the switches, the masks and the options that the function takes."""
    _find_causal_switch(trials)
    _find_mask(trials)
    values = {
        name: OPTIONS[name](trials.trial, trials.operation, name)
        for name in trials.operation.options
        if name != "mask" and name in OPTIONS
    }
    found = _find_together(trials, values) if trials.is_certified else set()
    for name, value in values.items():
        if name not in found:
            _find_option(trials, name, value)
    features = trials.form.features
    is_open = "offset" in features and "offsets" not in features
    if is_open and _changes(trials, "offsets", trials.form, offset=_offsets(trials)):
        trials.change(features=(*features, "offsets"))
    _find_grouped_heads(trials)


def find_both(trials: Trials) -> None:
    """Find whether a call may have a mask and be causal. A call with a bias too shows more."""
    if not {"mask", "causal"} <= {*trials.form.features}:
        return
    fewer = {"n_q": trials.trial.size("n_k") // 2} if trials.takes_all else {}  # shows the causal corner too
    trial = trials.trial.sized(**fewer)
    given = {name: OPTIONS[name](trial, trials.operation, name) for name in ("mask", "causal")}
    if "bias" in trials.form.features:
        bias = OPTIONS["bias"](trial, trials.operation, "bias")
        with suppress(RefusedError):
            trials.results(trials.form, trial.with_arguments(**given, bias=bias))
            return
    if not trials.works("mask and causal together", trial.with_arguments(**given)):
        trials.change(conventions={"causal_with_mask": "refuse"})


def _find_causal_switch(trials: Trials) -> None:
    """Set the keyword that makes attention causal, if the function has one that is not set."""
    if trials.operation.name != "causal_attention":
        return
    for keyword in names_of(trials.function, trials.operation, "causal"):
        form = replace(trials.form, switches={keyword: True})
        if results := trials.changed("causal", form, trials.trial):
            trials.adopt(form, results)
            return


def _find_grouped_heads(trials: Trials) -> None:
    """Find whether a key head may have several query heads."""
    if "kv_heads" not in trials.operation.axes.get("k", ()):
        return
    fewer = trials.trial.sized(kv_heads=2)
    if trials.works("2 key heads for 4 query heads", fewer):
        return
    if names_of(trials.function, trials.operation, _GROUPED_HEADS):
        form = replace(trials.form, switches={_GROUPED_HEADS: True})
        with suppress(RefusedError):
            trials.results(form, fewer)
            trials.adopt(form, trials.base)
            trials.refusals.pop()
            return
    trials.restrict("num_heads", "kv_heads", rule=f"({fewer.size('num_heads')},)")


# -- Masks -----------------------------------------------------------------------------------------


def _find_mask(trials: Trials) -> None:
    """Find the kind of masks that the function takes."""
    if "mask" not in trials.operation.parameters:
        return
    form = trials.form
    if "mask" in trials.operation.options:
        names = names_of(trials.function, trials.operation, "mask")
        named = [replace(form, keywords={**form.keywords, "mask": name}) for name in names]
        _find_kind(trials, [replace(each, features=(*form.features, "mask")) for each in named])
    elif not _find_kind(trials, [form] if "mask" in (*form.positional, *form.keywords) else []):
        kept = {name: keyword for name, keyword in form.keywords.items() if name != "mask"}
        trials.change(words=(*form.words, "no masks"), keywords=kept)
    else:
        _fill_mask(trials)


def _find_kind(trials: Trials, forms: list[Form]) -> bool:
    """Adopt the first of some forms, with words for masks, with which masks hide keys."""
    earlier = len(trials.refusals)
    for form in forms:
        for words in _MASKS:
            tried = replace(form, words=(*form.words, *words))
            if _hides_keys(trials, tried, f"mask ({' and '.join(words) or 'booleans that broadcast'})"):
                del trials.refusals[earlier:]
                trials.adopt(tried, trials.base)
                return True
            if _is_unknown(trials):
                break
    if not forms:
        trials.refuse("mask", _NAMELESS)
    return False


def _hides_keys(trials: Trials, form: Form, what: str) -> bool:
    """Whether a mask works, and hides keys.

    With q = 0 all visible keys have equal weights. v is 1 in the rows of visible keys and 0 in the
    others, so that the output is 1, or 0 if the mask has the other polarity. A mask that is added
    to the scores as 1 and 0 gives e/(1 + e) = 0.73.
    """
    operation, trial = trials.operation, trials.trial
    visible = OPTIONS["mask"](trial, operation, "mask")
    if operation.outputs[0] != "out" or "v" not in operation.parameters:
        return bool(trials.changed(what, form, trial.with_arguments(mask=visible)))
    v = np.broadcast_to(visible[:, None], trial.shape(operation, "v")).astype(float)
    zeros = np.zeros(trial.shape(operation, "q"))
    try:
        out = trials.results(form, trial.with_arguments(q=zeros, v=v, mask=visible))[0]
    except RefusedError as refused:
        trials.refuse(what, refused)
        return False
    if (np.minimum(np.abs(out), np.abs(out - 1)) < 0.1).all():
        return True
    trials.refuse(what, "Masked keys have weights that are not 0.")
    return False


def _fill_mask(trials: Trials) -> None:
    """Pass a mask in every call, if a call without a mask hides keys."""
    if not trials.form.fills_mask:
        visible = np.ones(trials.trial.shape(trials.operation, "mask")[-1], bool)
        with suppress(RefusedError):
            results = trials.results(trials.form, trials.trial.with_arguments(mask=visible))
            if not all(map(alike, results, trials.base)):
                trials.adopt(replace(trials.form, fills_mask=True), results)


# -- Other options ---------------------------------------------------------------------------------


def _find_together(trials: Trials, values: Mapping[str, Any]) -> set[str]:
    """Return the options that the function takes, if one call with all of them gives the certified
    results; otherwise the call shows nothing. A second call has the values that are less usual.
    """
    form, known = trials.form, {*trials.form.features}
    for name, value in values.items():
        free = _free_names(trials, form, name)
        if free and _is_passed(trials, name, value):
            form = replace(form, keywords={**form.keywords, name: free[0]}, features=(*form.features, name))
    found = {*form.features} - known
    with suppress(RefusedError):
        if len(found) > 1 and _is_certified(trials, form, {name: values[name] for name in found}):
            unusual = {name: _UNUSUAL[name](trials.trial) for name in found & _UNUSUAL.keys()}
            several = {"causal": True, "offset": _offsets(trials)}
            if several.keys() <= found and _is_certified(trials, form, {**unusual, **several}):
                form = replace(form, features=(*form.features, "offsets"))
            elif unusual:
                trials.results(form, trials.trial.with_arguments(**unusual))
            trials.adopt(form, trials.base)
            return found
    return set()


def _is_certified(trials: Trials, form: Form, given: Mapping[str, Any]) -> bool:
    """Whether the results of a call with some options are the certified ones. Raises RefusedError."""
    trial = trials.trial.with_arguments(**given)
    return trials.are_right(form, trial, trials.results(form, trial))


def _offsets(trials: Trials) -> Array:
    """An offset for each element of the batch."""
    return 1 + np.arange(trials.trial.batch)


def _free_names(trials: Trials, form: Form, name: str) -> list[str]:
    """The names under which the function may take an option, and which pass no other argument."""
    return [
        keyword
        for keyword in names_of(trials.function, trials.operation, name)
        if keyword not in form.keywords.values()
    ]


def _is_passed(trials: Trials, name: str, value: Any) -> bool:
    """Whether the contract passes an option with this value only to functions that take it."""
    operation = trials.operation
    return name in operation.given(trials.trial.with_arguments(**{name: value}).arguments(operation))


def _find_option(trials: Trials, name: str, value: Any) -> None:
    """Find the name under which the function takes an option."""
    operation, form = trials.operation, trials.form
    if not _is_passed(trials, name, value):
        return
    names = _free_names(trials, form, name)
    earlier = len(trials.refusals)
    for keyword in names:
        tried = replace(form, keywords={**form.keywords, name: keyword}, features=(*form.features, name))
        if _changes(trials, name, tried, **{name: value}) and (found := _adjusted(trials, tried, name)):
            del trials.refusals[earlier:]
            trials.adopt(found, trials.base)
            return
        if not _is_unknown(trials):  # a function that takes any name may take only one of them
            return
    if not names:
        known = names_of(trials.function, operation, name)
        trials.refuse(name, f"{known[0]} passes another argument." if known else _NAMELESS)


def _adjusted(trials: Trials, form: Form, name: str) -> Form | None:
    """Return the form that passes the less usual values of an option too; None if no form passes them."""
    if name not in _UNUSUAL:
        return form
    trial = trials.trial.with_arguments(**{name: _UNUSUAL[name](trials.trial)})
    for tried in (form, replace(form, adjusted=(*form.adjusted, name))):
        try:
            trials.results(tried, trial)
        except RefusedError as refused:
            trials.refuse(name, refused)
        else:
            return tried
    return None


def _changes(trials: Trials, name: str, form: Form, **given: Any) -> bool:
    """Whether an option changes the results. Offsets are tried in causal calls, if the function
    takes `causal`.
    """
    if not name.startswith("offset") or "causal" not in form.features:
        return bool(trials.changed(name, form, trials.trial.with_arguments(**given)))
    causal = trials.trial.with_arguments(causal=True)
    with suppress(RefusedError):
        return bool(trials.changed(name, form, causal.with_arguments(**given), trials.results(trials.form, causal)))
    return False


def _is_unknown(trials: Trials) -> bool:
    """Whether the last call failed because the function does not know a name."""
    return "unexpected keyword" in trials.refusals[-1].error
