"""What the instruments read otherwise than it should be under the declared conventions."""

from dataclasses import dataclass

import numpy as np

from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operation import Operation
from properties.inspection.measurements import needs_many_calls, reads_bits, sentences_around, sentences_at
from properties.inspection.micrometer import Micrometer
from properties.inspection.probe import Probe
from properties.inspection.shapes import shape_of
from properties.portraits.facts import Fact, facts_of_accuracy, facts_of_bits
from properties.portraits.inference import Calls
from properties.portraits.maps import Record
from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import plain_call, zero_sinks

__all__ = ["POINTS", "Readings", "read"]

_NARROW = {"head_dim": 2, "value_dim": 2, "num_heads": 2, "kv_heads": 1}
_SQUARE, _WIDE, _HIGH = ({**_NARROW, "n_q": n_q, "n_k": n_k} for n_q, n_k in ((6, 6), (3, 7), (7, 3)))

_GRADIENTS = {"n_q": 3, "n_k": 4, "head_dim": 3, "value_dim": 5}  # each channel of v and grad_out is a call

_MOST_CALLS = 60
_CALLS_OF_BITS = 8
_CALLS_OF_MANY = 11  # of one instrument: with fewer it would end without a reading

POINTS = (
    Point("causal", _WIDE, {"causal": True}),
    Point("causal and scale=0", _WIDE, {"causal": True, "scale": 0.0}),
    Point("causal and scale=-0.5", _WIDE, {"causal": True, "scale": -0.5}),
    Point("causal and more queries than keys", _HIGH, {"causal": True}),
    Point("causal and an offset of 2", _WIDE, {"causal": True, "offset": 2}),
    Point("causal and window=(2, None)", _SQUARE, {"causal": True, "window": (2, None)}),
    Point("window=(2, 1)", _SQUARE, {"window": (2, 1)}),
    Point("a sink", _WIDE, {"sink": zero_sinks}),
    Point("a bias", _WIDE, {"bias": lambda sizes: np.zeros((sizes["num_heads"], sizes["n_q"], sizes["n_k"]))}),
)
"""Where the instruments read the operation beyond its plain calls. The names are clauses of sentences."""


@dataclass(frozen=True)
class Readings:
    """What the instruments read: sentences on what is otherwise than it should be, facts, and the
    records of those instruments that have maps. `unread` are the options for which no call was left.
    """

    anomalies: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    records: tuple[Record, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """A clause on the options for which no call was left; () if every option was read."""
        return (f"what queries read with {'; '.join(self.unread)}: no call was left",) if self.unread else ()


def read(implementation: Implementation, operation: Operation, calls: Calls, until: float) -> Readings:
    """Read an operation with all instruments, by at most 60 calls, and by eight more that show what
    changes bits. Plain calls come first, calls with options follow, and the instruments that need many
    calls come last, until a sentence is found.
    """
    plain = plain_call(operation, implementation, _GRADIENTS if "grad_out" in operation.parameters else {})
    if plain is None or not operation.takes_arrays:
        return Readings()
    probe = Probe(Caller(implementation, operation.name, calls.count), min(_MOST_CALLS, calls.left), until, stacks=True)
    said, unread = sentences_around(probe, plain, lambda instrument: not needs_many_calls(instrument)), []
    seen: list[set[str]] = []
    for point in () if operation.is_played else POINTS:
        arguments = plain_call(operation, implementation, point.sizes, point.options, four_axes=True)
        if arguments is None or said:
            continue
        if operation.has_sequences:  # the instruments have sizes of their own, and all queries are 0
            seen.append({*shape_of(operation, arguments).arguments} - {"scale"})
            if seen[-1] in seen[:-1]:
                continue
        told = sentences_at(probe, shape_of(operation, arguments), is_brief=True)
        unread += [] if probe.calls else [point.name]
        said = tuple(f"With {point.name}: {sentence[0].lower()}{sentence[1:]}" for sentence in told)
    said = said or sentences_around(
        probe, plain, lambda instrument: reads_bits(instrument) and probe.calls >= _CALLS_OF_MANY
    )
    accuracy = [
        fact for _, record in probe.records if isinstance(record, Micrometer) for fact in facts_of_accuracy(record)
    ]
    facts = Probe(Caller(implementation, operation.name, calls.count), min(_CALLS_OF_BITS, calls.left), until)
    maps = tuple(one for one in probe.records if not isinstance(one[1], Micrometer))
    return Readings(said, (*accuracy, *facts_of_bits(facts, plain)), maps, () if said else tuple(unread))
