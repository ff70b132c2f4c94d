"""Which scales of quantised queries, keys and values a kernel uses.

One call has drawn codes, and scales that differ between heads, rows or blocks. Where its results are
wrong, attnspec looks for other scales with which the oracle gives these results, all of them within
their error limits: a sentence says only what explains every number of the call.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from properties.contract.features import QUANTISED
from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.probe import Probe, Reading
from properties.inspection.shapes import Shape
from properties.strategies import drawn_codes
from properties.strategies.choices import Choices

__all__ = ["scales", "sentences_of_scales"]

_SEED = 5

_Scales = dict[str, Array]

_USES: Mapping[str, Callable[[Array], Array]] = {
    "{} is not applied": np.ones_like,
    "{} is applied inversely": lambda scale: 1 / scale,
    "{} is applied twice": lambda scale: scale * scale,
    "The {} of head 0 is used for all heads": lambda scale: _all_as_first(scale, -3),
    "The {} of the first batch element is used for all": lambda scale: _all_as_first(scale, 0),
    "The {} of row 0 is used for all rows": lambda scale: _all_as_first(scale, -2),
    "The {} of the first block is used for all blocks": lambda scale: _all_as_first(scale, -1),
    "Each head has the {} of the head before it": lambda scale: np.roll(scale, 1, -3),
    "Each head has the {} of the head after it": lambda scale: np.roll(scale, -1, -3),
    "Each row has the {} of the row before it": lambda scale: np.roll(scale, 1, -2),
    "Each row has the {} of the row after it": lambda scale: np.roll(scale, -1, -2),
    "Each block has the {} of the block before it": lambda scale: np.roll(scale, _block(scale), -1),
    "Each block has the {} of the block after it": lambda scale: np.roll(scale, -_block(scale), -1),
}
"""What a kernel may do with the scale of an array, in words, and the scale that it then uses."""


def scales(probe: Probe, shape: Shape) -> tuple[tuple[Any, ...], dict[str, Reading]]:
    """The arguments and the results of one call of a shape with codes and scales. Raises OutsideError
    where the implementation takes no scales, and as `Probe.results`.
    """
    operation, implementation = probe.operation, probe.caller.implementation
    choose, arrays = Choices(_SEED), {name: shape.zeros(operation, name) for name in "qkv"}
    for name in "qkv":
        scale = f"{name}_scale"
        if drawn_codes.are_scaled(operation, name, implementation):
            grid = operation.stored(name, probe.caller.arithmetic)
            arrays[name] = drawn_codes.codes(arrays[name].shape, grid, choose)
            arrays[scale] = drawn_codes.scale(scale, implementation, arrays, choose)
        else:
            arrays[name] = choose.grid(arrays[name].shape, 1 / 64)
    if not any(name in arrays for name in QUANTISED):
        raise OutsideError("The implementation takes no scales.")
    arguments = probe.plain(shape, "scale").call(operation, **arrays)
    return arguments, probe.values(arguments)


def sentences_of_scales(probe: Probe, shape: Shape) -> tuple[str, ...]:
    """Return the sentence about the scales that a kernel uses, if all its results at a shape follow from
    them; () if they are right, or follow from other scales.
    """
    arguments, results = scales(probe, shape)
    if not any(reading.wrong.any() for reading in results.values()):
        return ()
    given = probe.operation.named(arguments)
    return next(((f"{words}.",) for words, used in _others(given) if _explains(probe, given | used, results)), ())


def _others(given: Mapping[str, Any]) -> Iterator[tuple[str, _Scales]]:
    """What a kernel may do with the scales of a call, in words, and the scales that it then uses."""
    own = {name: given[name] for name in QUANTISED if given[name] is not None}
    heads, groups = given["q"].shape[-3], given["k"].shape[-3]
    if "q_scale" in own and own["q_scale"].shape[-3] == heads:
        of_keys = own["q_scale"][..., :: heads // groups, :, :]
        yield "q_scale is indexed by the query head", {"q_scale": of_keys.take(np.arange(heads), -3, mode="clip")}
    for words, change in _USES.items():
        yield from ((words.format(name), {name: _held(change(scale))}) for name, scale in own.items())
    if {"k_scale", "v_scale"} <= own.keys() and own["k_scale"].shape == own["v_scale"].shape:
        yield "k_scale and v_scale are exchanged", {"k_scale": own["v_scale"], "v_scale": own["k_scale"]}
    for words, change in _USES.items():
        changed = {name: _held(change(scale)) for name, scale in own.items()}
        yield f"{words.format('scale')}, for all arrays", changed


def _explains(probe: Probe, given: Mapping[str, Any], results: Mapping[str, Reading]) -> bool:
    """Whether all results of a call are within the error limits of the same call with other scales."""
    arguments = tuple(given.values())
    expected = probe.operation.expected(arguments, probe.caller.arithmetic, probe.caller.conventions)
    missing = probe.caller.implementation.support.untold(probe.operation)
    named = zip(probe.operation.returned(arguments), expected, strict=True)
    return all(
        bool((enclosure.excess(results[name].measured) <= 1).all()) for name, enclosure in named if name not in missing
    )


def _held(scale: Array) -> Array:
    """The scale rounded to binary32."""
    return scale.astype(np.float32).astype(np.float64)


def _all_as_first(scale: Array, axis: int) -> Array:
    """The scale with the entries of an axis all as the first."""
    return np.broadcast_to(scale.take([0], axis), scale.shape).copy()


def _block(scale: Array) -> int:
    """The number of channels that share a scale in the last axis."""
    changes = np.flatnonzero((np.diff(scale, axis=-1) != 0).reshape(-1, max(scale.shape[-1] - 1, 1)).any(0))
    return int(changes[0]) + 1 if changes.size else 1
