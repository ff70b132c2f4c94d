"""Explains a wrong result by measurement: which instruments measure an operation, and at which
shapes.

The first shape is the shape of the given call. The shapes of `AROUND` follow, as far as the
implementation takes them, until an instrument has something to say at one of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from properties.contract.caller import Caller, Observer
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.contract.results import BrokenError, Call
from properties.contract.support import OutsideError
from properties.inspection.caches import caches, sentences_of_caches
from properties.inspection.curve import curve
from properties.inspection.curve_sentences import sentences_of_curve
from properties.inspection.entries import sentences_of_entries
from properties.inspection.gradients import gradients
from properties.inspection.head_numbers import sentences_of_head_numbers
from properties.inspection.influence import influence, sentences_of_influence
from properties.inspection.micrometer import (
    micrometer,
    sentences_of_equal_scores,
    sentences_of_micrometer,
    sums_of_equal_scores,
)
from properties.inspection.one_sequence import OneSequence
from properties.inspection.packed_reads import packed_reads, sentences_of_packed_reads
from properties.inspection.paged_reads import paged_reads
from properties.inspection.probe import Probe, SpentError
from properties.inspection.read_sentences import sentences_of_reads
from properties.inspection.reads import reads
from properties.inspection.rotation import rotation, sentences_of_rotation
from properties.inspection.scales import sentences_of_scales
from properties.inspection.score_form import score_form, sentences_of_scores
from properties.inspection.shapes import Shape, shape_of
from properties.inspection.softmax import softmax_gradients, softmax_weights
from properties.inspection.term_sentences import sentences_of_terms
from properties.inspection.terms import terms

__all__ = [
    "AROUND",
    "calls_of_equal_scores",
    "measured",
    "needs_many_calls",
    "reads_bits",
    "sentences_around",
    "sentences_at",
]

_MOST_CALLS = 60
_MOST_SECONDS = 5.0  # of the calls of slow implementations: everyday sizes take less than one

_MOST_SENTENCES = 3  # at one shape

Instrument = Callable[[Probe, Shape], tuple[str, ...]]
_Measurements = Sequence[tuple[Instrument, Mapping[str, int]]]
"""Instruments, each with the sizes that replace those of the call."""


def _said_of(
    measure: Callable[[Probe, Shape], Any], sentences: Callable[[Any], tuple[str, ...]], *, is_kept: bool = False
) -> Instrument:
    """Return the instrument that says in sentences what a function measures. If `is_kept`, the probe
    keeps the record of each measurement.
    """

    def instrument(probe: Probe, shape: Shape) -> tuple[str, ...]:
        record = measure(probe, shape)
        return sentences(probe.kept(shape, record) if is_kept else record)

    return instrument


def _terms(probe: Probe, shape: Shape) -> tuple[str, ...]:
    return sentences_of_terms(terms(probe, shape, shape.arguments.keys() & {"bias", "sink", "mask"}))


_reads = _said_of(reads, sentences_of_reads, is_kept=True)
_scores = _said_of(score_form, sentences_of_scores, is_kept=True)
_curve = _said_of(curve, sentences_of_curve)
_gradients = _said_of(gradients, sentences_of_entries, is_kept=True)
_weights = _said_of(softmax_weights, sentences_of_entries)
_of_weights = _said_of(softmax_gradients, sentences_of_entries)
_influence = _said_of(influence, sentences_of_influence)
_micrometer = _said_of(micrometer, sentences_of_micrometer, is_kept=True)
_equal_scores = _said_of(sums_of_equal_scores, sentences_of_equal_scores)
_caches = _said_of(caches, sentences_of_caches)
_packed = _said_of(packed_reads, sentences_of_packed_reads)
_paged = _said_of(paged_reads, sentences_of_packed_reads)
_rotation = _said_of(rotation, sentences_of_rotation, is_kept=True)

_OF_MANY_CALLS: tuple[Instrument, ...] = (_influence, _micrometer, _equal_scores)

_OPTIONS: Mapping[Instrument, frozenset[str]] = {
    _scores: frozenset({"scale"}),
    _curve: frozenset({"scale", "softcap"}),
}
"""The options that change what an instrument reads. Instruments that are not listed read with all."""

_HEADS = {"num_heads": 4, "kv_heads": 2}
_OF_ATTENTION: _Measurements = (
    (sentences_of_head_numbers, {}),
    (sentences_of_scales, {}),
    (sentences_of_scales, {"batch": 2, **_HEADS, "n_q": 3, "n_k": 5, "head_dim": 32, "value_dim": 32}),
    (_equal_scores, {}),
    (_terms, {}),
    (_terms, {"batch": 2, **_HEADS, "n_q": 4, "n_k": 5}),
    (_reads, {}),
    (_reads, {"batch": 2, **_HEADS, "n_q": 5, "n_k": 12}),
    (_reads, {"batch": 2, **_HEADS, "n_q": 12, "n_k": 5}),
    (_reads, {"n_q": 2, "n_k": 40}),
    (_reads, {"batch": 2, **_HEADS, "n_q": 40, "n_k": 40}),
    (_reads, {**_HEADS, "n_q": 3, "n_k": 130}),
    (_reads, {"batch": 2, **_HEADS, "n_q": 1, "n_k": 1040}),
    (_scores, {}),
    (_curve, {}),
    (_scores, {"head_dim": 6}),
    (_scores, {"head_dim": 96}),
    (_micrometer, {}),
    (_influence, {}),
)
_OF_GRADIENTS: _Measurements = (
    (_gradients, {}),
    (_gradients, {"n_q": 3, "n_k": 4, "head_dim": 3, "value_dim": 5}),
    (_gradients, {"batch": 2, **_HEADS, "n_q": 4, "n_k": 3, "head_dim": 5, "value_dim": 3}),
    (_influence, {}),
)
_OF_ROTATIONS: _Measurements = (
    (_rotation, {}),
    (_rotation, {"seq_len": 4, "head_dim": 6}),
    (_rotation, {"seq_len": 3, "head_dim": 96}),
    (_influence, {}),
)
_OF_SOFTMAX: _Measurements = (
    (_equal_scores, {}),
    (_weights, {}),
    (_weights, {"n_q": 11, "n_k": 33}),
    (_micrometer, {}),
    (_influence, {}),
)

AROUND: Mapping[str, _Measurements] = {
    **dict.fromkeys(
        ("scaled_dot_product_attention", "causal_attention", "grouped_query_attention", "attention"), _OF_ATTENTION
    ),
    **dict.fromkeys(("scaled_dot_product_attention_vjp", "attention_vjp"), _OF_GRADIENTS),
    **dict.fromkeys(("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp"), _OF_ROTATIONS),
    "hard_masked_softmax": _OF_SOFTMAX,
    "hard_masked_softmax_vjp": ((_of_weights, {}), (_of_weights, {"n_q": 3, "n_k": 5}), (_influence, {})),
    **dict.fromkeys(("decode", "batched_decode"), ((_caches, {}),)),
    "packed_attention": ((_packed, {}),),
    "paged_attention": ((_paged, {}),),
}
"""The measurements of each operation, in order."""


def measured(
    implementation: Implementation,
    operation: str,
    arguments: Sequence[Any],
    observe: Observer | None = None,
    until: float = inf,
) -> tuple[str, ...]:
    """Sentences on what an implementation does otherwise than it should, at the shape of a call and
    at one more shape: the sentences of the first instrument that has some, else ().

    At most 60 calls are made, until `until`, a reading of time.monotonic. An instrument is left out
    where the implementation does not take its calls, or raises. If what is read in packed
    sequences or in pages gives none, the kernel is measured as attention of one sequence.
    """
    probe = Probe(Caller(implementation, operation, observe), _MOST_CALLS, until, seconds=_MOST_SECONDS)
    found = sentences_around(probe, arguments)
    if found or operation not in ("packed_attention", "paged_attention"):
        return found
    if not all(shape_of(probe.operation, arguments).sizes.values()):
        return ()
    alone = OneSequence(implementation, probe.operation, tuple(arguments), observe)
    left = Probe(alone, probe.calls, until, seconds=_MOST_SECONDS - probe.caller.seconds)
    return tuple(f"With one sequence, {said[0].lower()}{said[1:]}" for said in sentences_around(left, alone.small))


def calls_of_equal_scores(implementation: Implementation, call: Call) -> tuple[Call, ...]:
    """Return calls with up to 4096 equal scores, of the shape of another call otherwise; () for an
    operation without scores, and where the implementation does not take them, or raises.
    """
    probe = Probe(Caller(implementation, call.operation), _MOST_CALLS, seconds=_MOST_SECONDS)
    shape = shape_of(probe.operation, call.arguments)
    if (_equal_scores, {}) in AROUND.get(call.operation, ()) and all((*shape.sizes.values(), *shape.batch)):
        _said(probe, _equal_scores, shape)
    return tuple(probe.made)


def sentences_around(
    probe: Probe, arguments: Sequence[Any], chosen: Callable[[Instrument], bool] = lambda instrument: True
) -> tuple[str, ...]:
    """Return the sentences of `measured` on the operation of a probe, by the chosen instruments and by
    the calls that the probe has left.
    """
    called = probe.operation
    if called.name not in AROUND:
        return ()
    own = shape_of(called, arguments)
    if not all((*own.sizes.values(), *own.batch)):
        return ()
    found: tuple[str, ...] = ()
    speaks: Instrument | None = None
    for instrument, shape in _measurements(probe, called, own):
        if not chosen(instrument) or speaks not in (None, instrument):
            continue
        if not (said := _said(probe, instrument, shape)):
            continue
        speaks, where = instrument, shape.beside(own)
        if not where:
            found = said[:_MOST_SENTENCES]
        elif new := " ".join(sentence for sentence in said[:_MOST_SENTENCES] if sentence not in found):
            return (*found, f"With {where}: {new[0].lower()}{new[1:]}")
    return found


def needs_many_calls(instrument: Instrument) -> bool:
    """Return whether an instrument makes about ten calls for one shape."""
    return instrument in _OF_MANY_CALLS


def reads_bits(instrument: Instrument) -> bool:
    """Return whether an instrument is one of those that read single bits: what a change of one entry
    changes, and how accurate exponentials and sums are, those over equal scores among them.
    """
    return instrument in (_influence, _micrometer)


def sentences_at(probe: Probe, shape: Shape, *, is_brief: bool = False) -> tuple[str, ...]:
    """Return the sentences of the first instrument that has something to say at one shape, of those
    that measure the operation at the shape of the given call by few calls. An instrument that reads
    the same with the options of the shape and without them is left out. If it `is_brief`, an
    instrument is left out too if another one shows as much.
    """
    given = shape.arguments.keys()
    measuring = [instrument for instrument, sizes in AROUND.get(probe.operation.name, ()) if not sizes]
    own = (
        instrument
        for instrument in measuring
        if not needs_many_calls(instrument)
        and (not given or given & _OPTIONS.get(instrument, given))
        and not (is_brief and _is_covered(instrument, shape, measuring))
    )
    return next((said for instrument in own if (said := _said(probe, instrument, shape))), ())


def _is_covered(instrument: Instrument, shape: Shape, measuring: Sequence[Instrument]) -> bool:
    """Whether another instrument shows as much at a shape. `_terms` measures the weights of all keys too,
    and with a scale of 0 all scores are equal, as `_reads` has them.
    """
    if instrument is _reads:
        return _terms in measuring and shape.arguments.keys() in ({"bias"}, {"sink"})
    return instrument is _curve and shape.arguments.get("scale") == 0


def _said(probe: Probe, instrument: Instrument, shape: Shape) -> tuple[str, ...]:
    """The sentences of an instrument, () where it cannot measure."""
    with suppress(BrokenError, OutsideError, UngivenError, SpentError):
        return instrument(probe, shape)
    return ()


def _measurements(probe: Probe, operation: Operation, own: Shape) -> Iterator[tuple[Instrument, Shape]]:
    """Each instrument with each shape at which it measures, once."""
    done = set[tuple[Instrument, str]]()
    for instrument, sizes in AROUND[operation.name]:
        shape = own
        for changes in _together(sizes):
            other = _changed(operation, shape, changes)
            shape = other if probe.takes(other) else shape
        if (instrument, shape.beside(own)) not in done:
            done.add((instrument, shape.beside(own)))
            yield instrument, shape


def _together(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The sizes that change together, one group after the other."""
    for group in (("batch",), ("num_heads", "kv_heads"), ("n_q", "n_k"), ("head_dim", "value_dim"), ("seq_len",)):
        yield {name: sizes[name] for name in group if name in sizes}


def _changed(operation: Operation, shape: Shape, changes: dict[str, int]) -> Shape:
    batch = (changes["batch"],) if "batch" in changes else None
    return shape.changed(operation, batch, **{name: size for name, size in changes.items() if name != "batch"})
