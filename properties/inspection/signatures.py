"""The ways in which a function may take the arguments of an operation, as its signature shows them.

A function without a signature may name its parameters in its docstring, as PyTorch's do.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from properties.contract.features import FEATURES, KINDS
from properties.contract.operations import Operation
from properties.inspection.forms import required

__all__ = ["NAMES", "Way", "has_parameter", "names_of", "undeclared_features", "usual_names", "ways"]

NAMES: Mapping[str, tuple[str, ...]] = {
    "q": ("q", "query", "queries"),
    "k": ("k", "key", "keys"),
    "v": ("v", "value", "values"),
    "x": ("x", "t", "input", "hidden_states"),
    "grad_out": ("grad_out", "grad_output", "dout", "do", "grad"),
    "grad_lse": ("grad_lse", "dlse"),
    "start_pos": ("start_pos", "start", "offset", "position"),
    "mask": ("mask", "attn_mask", "attention_mask", "bias"),
    "bias": ("bias", "attn_bias", "attn_mask"),
    "causal": ("causal", "is_causal"),
    "window": ("window", "window_size", "local_window_size", "left_window"),
    "sink": ("sink", "sinks", "s_aux"),
    "alibi": ("alibi", "alibi_slopes"),
    "scale": ("scale", "softmax_scale", "sm_scale"),
    "softcap": ("softcap", "logits_soft_cap"),
    "positions": ("positions", "position_ids"),
}
"""The names that libraries give to a parameter, ours first."""

_OF_ATTENTION = ("causal", "window", "softcap", "sink", "alibi", "scale")
"""The options of `attention` whose names are no names of a mask."""

_MAY_LACK = ("mask", "start_pos")
"""The required parameters that a function may lack: a call then has no mask, and starts at 0."""

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Way(NamedTuple):
    """A way of passing the arguments that every call has."""

    positional: tuple[str, ...]
    keywords: Mapping[str, str]
    fills_mask: bool = False


def names_of(function: Callable[..., Any], operation: Operation, parameter: str) -> tuple[str, ...]:
    """Return the names under which a function may take a parameter of an operation. Where neither a
    signature nor a docstring shows the names, these are all usual names.
    """
    known = _known_names(function)
    return tuple(name for name in _own_names(operation, parameter) if known is None or name in known)


def _own_names(operation: Operation, parameter: str) -> list[str]:
    """The usual names of a parameter that are not names of other parameters of the operation."""
    return [name for name in usual_names(parameter) if name == parameter or name not in operation.parameters]


def undeclared_features(
    function: Callable[..., Any], operation: Operation, features: Collection[str]
) -> tuple[str, ...]:
    """Return the features that a function's signature names and the adapter does not declare. They are
    options under a usual name, and kinds of frequencies whose parameters the signature has. If an
    operation that returns the output of attention has no options, they are options of `attention`.
    """
    signature = _signature(function)
    if signature is None or operation.is_played:
        return ()
    own = signature.parameters.keys()
    offered = operation.options or (
        _OF_ATTENTION if operation.parameters[0] == "q" and operation.outputs == ("out",) else ()
    )
    options = [
        name
        for name in FEATURES
        if name in offered and own & {*names_of(function, operation, name)} and name not in KINDS
    ]
    kinds = [kind for kind, (needed, _) in KINDS.items() if needed and "kind" in own and own >= {*needed}]
    return tuple(name for name in (*options, *kinds) if name not in features)


def has_parameter(function: Callable[..., Any], parameter: str) -> bool:
    """Return whether the signature of a function names a parameter, by one of its usual names."""
    signature = _signature(function)
    return signature is not None and not signature.parameters.keys().isdisjoint(usual_names(parameter))


def usual_names(parameter: str) -> tuple[str, ...]:
    """Return the names that libraries give to a parameter, ours first."""
    return NAMES.get(parameter, (parameter,))


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function; of a module of PyTorch, which is an object, the signature of `forward`."""
    with suppress(TypeError, ValueError):
        return inspect.signature(getattr(function, "forward", function))
    return None


def _known_names(function: Callable[..., Any]) -> set[str] | None:
    """The names that a function takes as keywords; None if it may take any name."""
    signature = _signature(function)
    if signature is None:
        return set(re.findall(r"\b(\w+)=", function.__doc__ or "")) or None
    parameters = signature.parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY}


def ways(function: Callable[..., Any], operation: Operation) -> list[Way]:
    """Return the ways of passing the required arguments, the most likely first.

    The names of the parameters decide where they are usual names. Otherwise the arguments are
    passed in our order, with the parameters that a function may lack, and without them.
    """
    signature = _signature(function)
    passed = required(operation)
    needed = tuple(parameter for parameter in passed if parameter not in _MAY_LACK)
    shown = tuple(_shown_order(operation, signature)) if signature else ()
    if shown[: len(passed)] == passed:
        found = [Way(passed, {})]
    elif shown[: len(needed)] == needed:
        found = [Way(needed, _keywords(function, operation, [name for name in passed if name not in needed]))]
    elif (
        signature and _known_names(function) is not None and all(names_of(function, operation, name) for name in needed)
    ):
        found = [Way((), _keywords(function, operation, passed))]
    else:
        found = [Way(given, {}) for given in dict.fromkeys((passed, needed))]
    filled = [way._replace(fills_mask=True) for way in found if "mask" in (*way.positional, *way.keywords)]
    return [way for way in (*found, *filled) if signature is None or _binds(signature, way)]


def _shown_order(operation: Operation, signature: inspect.Signature) -> Iterator[str]:
    """The required parameters in the order of a signature, up to a name that is not usual, or less
    usual than the name of another parameter that is passed by position. Underscores around a name do
    not count.
    """
    shown = [each.name.strip("_") for each in signature.parameters.values() if each.kind in _BY_POSITION]
    remaining = list(required(operation))
    for own in shown:
        usual = {name: _own_names(operation, name) for name in remaining if own in usual_names(name)}
        found = [name for name, names in usual.items() if next((each for each in names if each in shown), own) == own]
        if not found:
            return
        remaining.remove(found[0])
        yield found[0]


def _keywords(function: Callable[..., Any], operation: Operation, parameters: Sequence[str]) -> dict[str, str]:
    """The name of each parameter that a function is known to have."""
    if _known_names(function) is None:
        return {}
    return {name: usual[0] for name in parameters if (usual := names_of(function, operation, name))}


def _binds(signature: inspect.Signature, way: Way) -> bool:
    try:
        signature.bind(*way.positional, **dict.fromkeys(way.keywords.values()))
    except TypeError:
        return False
    return True
