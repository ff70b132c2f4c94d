"""The readings of the instruments as laws: an instrument measures the operation at fixed sizes and
options, and the error limit of each of its calls judges what it reads.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from properties.contract.features import QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.quantising import scales_of
from properties.contract.results import BrokenError, RaisedError, entry
from properties.contract.subject import Subject
from properties.contract.support import NotTakenError, OutsideError
from properties.inspection.array import Array
from properties.inspection.caches import caches, sentences_of_caches
from properties.inspection.curve import curve
from properties.inspection.curve_sentences import sentences_of_curve
from properties.inspection.entries import Entries, sentences_of_entries
from properties.inspection.exact_calls import PROBES, ExactCall
from properties.inspection.exact_probes import PairProbe, scale_between
from properties.inspection.gradients import gradients
from properties.inspection.head_numbers import sentences_of_head_numbers
from properties.inspection.merging import merging, sentences_of_merging
from properties.inspection.one_hot import CALLS, one_hot
from properties.inspection.packed_reads import packed_reads, sentences_of_packed_reads
from properties.inspection.paged_reads import paged_reads
from properties.inspection.probe import Probe, Reading
from properties.inspection.read_sentences import sentences_of_reads
from properties.inspection.reads import reads
from properties.inspection.rotation import rotation, sentences_of_rotation
from properties.inspection.scales import scales, sentences_of_scales
from properties.inspection.score_form import score_form, sentences_of_scores
from properties.inspection.shapes import Shape, shape_of
from properties.inspection.softmax import softmax_gradients, softmax_weights
from properties.inspection.term_sentences import sentences_of_terms
from properties.inspection.terms import terms
from properties.laws.feature_rules import why_few_shapes, why_no_log_sum_exps
from properties.laws.law import Laws
from properties.laws.refusals import UNDEFINED

__all__ = ["law"]

_ATTENTION = ("scaled_dot_product_attention", "causal_attention", "grouped_query_attention", "attention")
_WITH_TERMS = ("scaled_dot_product_attention", "grouped_query_attention", "attention")

_MOST_CALLS = 60
_FEW_BITS = 11  # the significant bits of float16
_NEAR = 0.01  # relative to the largest entry: errors that look like roundings


def _no_sum(implementation: Implementation) -> str:
    return why_few_shapes(implementation) or why_no_log_sum_exps(implementation)


def _finer_results(implementation: Implementation) -> str:
    arithmetic = implementation.resolved_arithmetic
    bits = -np.log2(arithmetic.output.unit_roundoff)
    if arithmetic.weights is not None and not arithmetic.weights.is_binary:
        return "The static factor of its weights is no power of two."
    if arithmetic.operands.smallest_normal >= 1:
        return f"The grid {arithmetic.operands.name} lacks numbers near rounding boundaries."
    return why_few_shapes(implementation) or (
        "Its results have more than 16 bits: their error limits show small mistakes." if bits > _FEW_BITS else ""
    )


law = Laws(lambda operation: ("operating points",))

Found = tuple[Sequence[Reading], Sequence[str]]
"""The readings of an instrument, and sentences about the wrong entries."""

Measure = Callable[[Probe, Shape], Found]


def reading(
    *operations: str, of: str, exempts: Callable[[Implementation], str] = why_few_shapes, **fields: Any
) -> Callable[[Measure], Measure]:
    """Return the decorator for a law that an instrument measures: every entry of its readings is right.
    `of` says of what the entries are. The other arguments are fields of `Law`.
    """

    def register(measure: Measure) -> Measure:
        @wraps(measure)
        def body(subject: Subject, *arguments: Any) -> bool:
            probe, shape = _measuring(subject, arguments)
            readings, sentences = measure(probe, shape)
            _require_right(subject, probe, readings, sentences, of)
            return bool(readings)

        law(*operations, measures=True, exempts=exempts, **fields)(body)
        return measure

    return register


def _entries(found: Sequence[Entries]) -> Found:
    """The readings of several arrays, and the sentences about them."""
    return [entries.reading for entries in found], sentences_of_entries(found)


def _restricts_heads(implementation: Implementation) -> str:
    """Return why heads that do not divide are not tried; "" if they are."""
    if implementation.outside == "undefined":
        return UNDEFINED
    restricts = any("heads" in name for name in implementation.restricted)
    return why_few_shapes(implementation) or ("It declares which numbers of heads it takes." if restricts else "")


@reading(*_ATTENTION, of="weights")
def each_query_reads_what_it_should(probe: Probe, shape: Shape) -> Found:
    """At every operating point: with q = 0, the output is the mean of the values of the visible
    keys.

    Each column of v is 1 in the rows of some keys and 0 elsewhere, so the output is the weight that
    each query gives to these keys, in every batch entry and head.
    """
    found = reads(probe, shape, cuts=not probe.caller.keeps_sizes)
    return [found.reading], sentences_of_reads(found)


@reading(
    "attention",
    of="log-sum-exps",
    exempts=_no_sum,
    domains=("operating options",),
    name="the log-sum-exp counts the visible keys",
)
def the_log_sum_exp_counts_the_visible_keys(probe: Probe, shape: Shape) -> Found:
    """At every operating point with options: with q = 0, the log-sum-exp is the logarithm of the
    number of visible keys, plus e^sink if the convention `lse_sink` counts sinks.
    """
    return _entries([Entries("lse", (*["batch"] * len(shape.batch), "head", "query"), probe.results(shape)["lse"])])


@reading(
    *_ATTENTION,
    of="weights of one-hot queries and keys",
    domains=("operating widths",),
    name="scores are scale·q·k",
)
def scores_are_the_scaled_dot_products(probe: Probe, shape: Shape) -> Found:
    """At every operating width: the score of a query and a key is the scale times the sum of the
    products of their channels.

    Rows of q and k are 0 except in one channel, and v tells the keys apart, so the output shows what
    each pair of channels adds to each score.
    """
    found = score_form(probe, shape)
    return [found.reading], sentences_of_scores(found)


@law("grouped_query_attention", "attention", measures=True, exempts=_restricts_heads, domains=("operating heads",))
def heads_that_do_not_divide_are_refused(subject: Subject, *arguments: Any) -> None:
    """If the number of key heads does not divide the number of heads, the call raises an exception.

    The call is not recorded, because no known bug explains a call that should be refused.
    """
    probe, shape = _measuring(subject, arguments)
    try:
        sentences = sentences_of_head_numbers(probe, shape)
    except (RaisedError, NotTakenError):
        subject.require(True, "")
        return
    finally:
        subject.calls.clear()
    if not sentences:
        raise OutsideError("The sizes that it takes have no heads that do not divide.")
    raise BrokenError(" ".join(sentences))


@reading("scaled_dot_product_attention_vjp", "attention_vjp", of="entries of gradients")
def gradients_come_from_the_right_queries_keys_and_channels(probe: Probe, shape: Shape) -> Found:
    """At every operating point: the gradients of q, k and v are right where all
    visible keys have equal weights.

    Rows of k, of q and of the cotangent are 0 except in one channel, so each gradient shows which
    queries, keys and channels it comes from.
    """
    return _entries(gradients(probe, shape))


@law(
    *PROBES,
    measures=True,
    exempts=_finer_results,
    domains=("exact probes",),
    exact="where one result is possible",
    name="stored results are the only ones that rounding allows",
)
def stored_results_are_the_only_possible_ones(subject: Subject, *arguments: Any) -> bool:
    """At every exact probe: the inputs leave a correct kernel no choice, so that each result is the
    one number, or one of the few numbers, that the declared arithmetic allows.

    Two keys count in each row of attention, and results are next to rounding boundaries. So an error
    of the sum of the weights, of the scale or of an angle changes a result, although it is smaller
    than a unit of 16 bits.
    """
    probe, shape = _measuring(subject, arguments)
    is_single, missing = False, subject.implementation.support.untold(probe.operation)
    for call in PROBES[subject.operation](probe, shape):
        found = probe.results(call.shape, **call.arrays)
        for name in (name for name in call.possible if name in found and name not in missing):
            _require_possible(subject, probe, name, found[name], call)
            is_single = is_single or bool(call.possible[name].single.any())
    return is_single


@reading(*_ATTENTION, of="weights", domains=("operating terms",))
def weights_are_exponentials_of_scores(probe: Probe, shape: Shape) -> Found:
    """At every operating term: the quotient of the weights of two visible keys is the exponential of
    the difference of their scores, with a softcap c of c·tanh(s/c). Masked keys have no weight.
    """
    found = curve(probe, shape)
    points = [found.visible, *([found.masked] if found.masked else [])]
    return [each.reading for each in points], sentences_of_curve(found)


def _no_scales(implementation: Implementation) -> str:
    possible = scales_of(implementation.resolved_arithmetic)
    return why_few_shapes(implementation) or implementation.lacks(*(possible or QUANTISED))


@reading("attention", of="numbers", exempts=_no_scales)
def each_scale_belongs_to_its_own_codes(probe: Probe, shape: Shape) -> Found:
    """At every operating point, with drawn codes and scales: the result is attention of the codes, each
    multiplied (or divided) by the scale of its array, head, row and block.
    """
    _, results = scales(probe, shape)
    said = sentences_of_scales(probe, shape) if any(each.wrong.any() for each in results.values()) else ()
    return list(results.values()), said


@reading(*_WITH_TERMS, of="weights", domains=("operating terms",))
def each_bias_sink_and_mask_goes_to_its_place(probe: Probe, shape: Shape) -> Found:
    """At every operating term: a bias is added to the score of its query and key, a sink to the sum of
    its head, and a mask masks the key of its query.
    """
    found = terms(probe, shape)
    return [term.reading for term in found], sentences_of_terms(found)


@reading(*CALLS, of="entries")
def each_part_of_the_result_has_its_value(probe: Probe, shape: Shape) -> Found:
    """At every operating point: where arrays with one-hot rows leave one part of a derivative or of
    multi-head attention, the result is this part.
    """
    return _entries(one_hot(probe, shape))


@reading("merge_attention", of="weights")
def parts_have_the_weights_of_their_log_sum_exps(probe: Probe, shape: Shape) -> Found:
    """For fixed log-sum-exps of two parts: the weight of each part is e^(its log-sum-exp − the merged
    one), and 0 for a part without keys.
    """
    found = merging(probe, shape)
    return [found.weights, found.sums], sentences_of_merging(found)


@reading("hard_masked_softmax", of="weights")
def weights_are_exponentials_divided_by_their_sum(probe: Probe, shape: Shape) -> Found:
    """At every operating point: the weights of a row in which one score differs are exponentials,
    divided by their sum over the visible keys.
    """
    return _entries(softmax_weights(probe, shape))


@reading("hard_masked_softmax_vjp", of="entries of dscores")
def gradients_of_scores_come_from_their_row(probe: Probe, shape: Shape) -> Found:
    """At every operating point: where all visible keys have the weight W, the gradient of the scores
    is W·(g − Σ W·g).
    """
    return _entries(softmax_gradients(probe, shape))


@reading("decode", "batched_decode", of="weights")
def each_query_of_a_cache_reads_what_it_should(probe: Probe, shape: Shape) -> Found:
    """In programs of appends, rollbacks, evictions, restarts and copied rows: each query reads the positions that
    are visible to it, with equal weights if all keys are 0.
    """
    found = caches(probe, shape)
    return [program.reading for program in found], sentences_of_caches(found)


@reading("packed_attention", of="weights")
def each_query_of_a_sequence_reads_what_it_should(probe: Probe, shape: Shape) -> Found:
    """In packings of unequal lengths, some of them 0: each query reads the visible keys of its own
    sequence, with equal weights if all queries are 0.
    """
    found = packed_reads(probe, shape)
    return [each.reading for each in found], sentences_of_packed_reads(found)


@reading("paged_attention", of="weights")
def each_query_reads_the_pages_of_its_sequence(probe: Probe, shape: Shape) -> Found:
    """At tables with shared pages, lengths at borders of pages and unused entries: each query reads the
    slots of its own sequence that are visible to it, with equal weights if all queries are 0.
    """
    found = paged_reads(probe, shape)
    return [each.reading for each in found], sentences_of_packed_reads(found)


@reading("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp", "rotate_half", of="entries of rotated rows")
def each_pair_rotates_by_its_angle(probe: Probe, shape: Shape) -> Found:
    """At every operating point: a row that is 0 except in one channel becomes the cosine of its angle
    in this channel and the sine in its partner.
    """
    found = rotation(probe, shape)
    return [found.reading], sentences_of_rotation(found)


@law(
    *("inv_freq", "rope_angles", "rope_tables", "sinusoidal_positional_encoding", "causal_mask"),
    *("alibi_slopes", "alibi_bias"),
    measures=True,
    exempts=why_few_shapes,
    exact="for masks",
)
def each_entry_of_a_table_has_its_value(subject: Subject, *arguments: Any) -> None:
    """At every operating point: a table that follows from sizes and positions alone has the entries
    that it should have, in every row and column.
    """
    operation, probe = OPERATIONS[subject.operation], Probe(subject, _MOST_CALLS)
    readings = probe.values(arguments)
    axes = {name: tuple(_NAMES.get(axis, axis) for axis in operation.axes[name]) for name in readings}
    found = [Entries(name, axes[name], reading) for name, reading in readings.items()]
    _require_right(subject, probe, *_entries(found), "entries")


_NAMES = {"seq_len": "row", "n_q": "query", "n_k": "key", "embed_dim": "column", "head_dim": "column"} | {
    "pairs": "pair",
    "num_heads": "head",
    "channels": "column",
}
"""The names of axes in sentences."""


def _require_possible(subject: Subject, probe: Probe, name: str, reading: Reading, call: ExactCall) -> None:
    """Raise BrokenError if no correct kernel stores some entry of a result, or if a result of the call
    is outside its error limit.
    """
    found, possible = reading.measured, call.possible[name]
    excluded = possible.excludes(found)
    if excluded.any():
        index = tuple(int(i) for i in np.argwhere(excluded)[0])
        lower, upper = (float(bound[index]) for bound in possible)
        correct = f"exactly {lower!r}" if lower == upper else f"from {lower!r} to {upper!r}"
        subject.calls[:] = probe.made[-1:]
        raise BrokenError(
            f"{entry(name, index)}={found[index]}, but should be {correct}, however a kernel in "
            f"{subject.arithmetic.name} rounds; {int(excluded.sum())} of {excluded.size} entries are wrong."
            f"{_scale_of(call.pairs, found, subject) if name == 'out' else ''}",
            probe.worst if probe.wrong else np.inf,
        )
    _require_right(subject, probe, [reading], (), f"entries of {name}")


def _scale_of(pairs: Sequence[PairProbe], out: Array, subject: Subject) -> str:
    """A sentence about the scale that the weights have, if it is another one than the right one."""
    rows: Sequence[Array] = tuple(out.reshape(len(pairs), -1, out.shape[-1])) if pairs else ()
    factors = [scale_between(pair, each, subject.arithmetic) for pair, each in zip(pairs, rows, strict=True)]
    ranges = [factor for factor in factors if factor is not None]
    lowest, highest = min((low for low, _ in ranges), default=1.0), max((high for _, high in ranges), default=1.0)
    if not ranges or len(ranges) < len(factors) or lowest <= 1 <= highest:
        return ""
    return f" The weights are those of a scale between {lowest:.6g} and {highest:.6g} times the right one."


def _measuring(subject: Subject, arguments: Sequence[Any]) -> tuple[Probe, Shape]:
    """A probe of the operation, and the shape of a case."""
    return Probe(subject, _MOST_CALLS), shape_of(OPERATIONS[subject.operation], arguments)


def _require_right(
    subject: Subject, probe: Probe, readings: Sequence[Reading], sentences: Sequence[str], entries: str
) -> None:
    """Raise BrokenError if an entry of some readings is wrong, with the sentences about them. The
    first call with a wrong result is the call of the case.
    """
    wrong = sum(int(reading.wrong.sum()) for reading in readings)
    number = sum(reading.wrong.size for reading in readings)
    if wrong:
        subject.calls[:] = probe.wrong
        counted = f"{wrong} of {number} {entries} are wrong{_like_roundings(readings)}."
        raise BrokenError(" ".join(sentences) or counted, probe.worst)
    subject.worst = probe.worst
    if probe.tells:
        subject.require(True, "")


def _like_roundings(readings: Sequence[Reading]) -> str:
    """By how much the wrong entries of readings differ, if all errors look like roundings; else ""."""
    shares = [
        np.abs(measured[wrong] - expected[wrong]).max() / np.abs(expected).max(where=np.isfinite(expected), initial=0.0)
        for measured, expected, wrong in readings
        if wrong.any() and expected.any() and np.isfinite(measured[wrong]).all() and np.isfinite(expected[wrong]).all()
    ]
    whole = len(shares) == sum(bool(reading.wrong.any()) for reading in readings)
    if not whole or max(shares) >= _NEAR:
        return ""
    signs = {sign for measured, expected, wrong in readings for sign in np.sign(measured[wrong] - expected[wrong])}
    kind = "as by roundings" if len(signs) > 1 else "all too large" if 1 in signs else "all too small"
    return f", by up to {max(shares):.2g} of the largest, {kind}"
