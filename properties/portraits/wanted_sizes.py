"""Reads an operation at the sizes that a user names, such as batch=2, n_q=1, n_k=4096."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from oracles.spelling import did_you_mean
from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operation import Operation
from properties.contract.results import BrokenError
from properties.contract.support import OutsideError
from properties.inspection.measurements import AROUND, sentences_at
from properties.inspection.probe import Probe, SpentError
from properties.inspection.shapes import Shape, shape_of
from properties.portraits.inference import Calls
from properties.portraits.maps import Record, names_of
from properties.strategies.plain_calls import plain_call

__all__ = ["AtSizes", "checked", "read_at"]

_SIZES = ("batch", "num_heads", "kv_heads", "n_q", "n_k", "seq_len", "head_dim", "value_dim")
_FOLLOWING = {"head_dim": "value_dim", "num_heads": "kv_heads"}
"""The size that is equal to another one unless it is named too."""

_MOST_CALLS = 40  # at one set of sizes
_SPENT = "no call was left"


@dataclass(frozen=True)
class AtSizes:
    """What the instruments read at some sizes.

    sizes       the sizes of the operation in words
    anomalies   sentences on what is not as it should be
    refused     why the operation was not read; "" if it was
    records     the records of the instruments
    """

    sizes: str
    anomalies: tuple[str, ...] = ()
    refused: str = ""
    records: tuple[Record, ...] = ()

    @property
    def says(self) -> str:
        """What is right at the sizes, in a clause; "" if something is wrong, or if nothing was read."""
        names = dict.fromkeys(name for record in self.records for name in names_of(record))
        return "" if self.anomalies or self.refused else f"right at {self.sizes}: {', '.join(names)}"


def checked(shapes: Sequence[Mapping[str, int]]) -> tuple[Mapping[str, int], ...]:
    """Return the sizes. Raises ValueError, a sentence, for a name that is not a size, and for a size
    that is not a whole number from 1.
    """
    for name, size in (item for sizes in shapes for item in sizes.items()):
        if name not in _SIZES:
            listed = f"Sizes are {', '.join(_SIZES)}."
            raise ValueError(f"Unknown size {name!r}.{did_you_mean(name, _SIZES, listed)}")
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} is {size!r}, but should be a whole number from 1.")
    return tuple(shapes)


def read_at(
    implementation: Implementation, operation: Operation, sizes: Mapping[str, int], calls: Calls, until: float
) -> AtSizes:
    """Read an operation at exactly these sizes. Sizes that are not named are as in a plain call."""
    arguments = plain_call(operation, implementation, {})
    if arguments is None or operation.name not in AROUND:
        return AtSizes(_words(sizes), refused=f"attnspec has no instrument for {operation.name}")
    plain = shape_of(operation, arguments)
    known = {name: size for name, size in sizes.items() if name in (*plain.sizes, "batch", "num_heads")}
    words = _words(known)
    if not known:
        return AtSizes(_words(sizes), refused=f"{operation.name} has no such size")
    probe = Probe(Caller(implementation, operation.name, calls.count), min(_MOST_CALLS, calls.left), until)
    shape = next(filter(probe.takes, _shapes(operation, implementation, plain, known)), None)
    if shape is None:
        return AtSizes(words, refused=f"{operation.name} does not take these sizes")
    try:
        probe.results(shape)
    except (BrokenError, OutsideError, UngivenError) as error:
        return AtSizes(words, refused=str(error))
    except SpentError:
        return AtSizes(words, refused=_SPENT)
    anomalies = tuple(f"With {words}: {sentence}" for sentence in sentences_at(probe, shape))
    return AtSizes(words, anomalies, "" if probe.records else _SPENT, tuple(probe.records))


def _shapes(
    operation: Operation, implementation: Implementation, plain: Shape, sizes: Mapping[str, int]
) -> Iterator[Shape]:
    """The shapes of calls with these sizes, one for each number of leading axes. If the operation has
    no axis of heads, heads are a leading axis after the batch. Other leading axes have size 1.
    """
    following = {other: sizes[name] for name, other in _FOLLOWING.items() if name in sizes}
    names = ("batch",) if "num_heads" in plain.sizes else ("batch", "num_heads")
    lead = tuple(sizes[name] for name in names if name in sizes)
    others = {name: size for name, size in {**following, **sizes}.items() if name != "batch"}
    for rank in implementation.ranks(operation):
        if rank >= len(lead):
            yield plain.changed(operation, (*lead, *[1] * (rank - len(lead))), **others)


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
