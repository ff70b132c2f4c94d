"""Reads an operation at the sizes that a user names, such as batch=2, n_q=1, n_k=4096."""

from collections.abc import Mapping
from dataclasses import dataclass

from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operation import Operation
from properties.contract.results import BrokenError
from properties.contract.support import OutsideError
from properties.contract.wanted_shapes import in_words, sizes_of
from properties.inspection.measurements import AROUND, sentences_at
from properties.inspection.probe import Probe, SpentError
from properties.inspection.shapes import shape_of
from properties.portraits.inference import Calls
from properties.portraits.maps import Record, names_of
from properties.strategies.plain_calls import exact_call

__all__ = ["AtSizes", "read_at"]

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


def read_at(
    implementation: Implementation, operation: Operation, sizes: Mapping[str, int], calls: Calls, until: float
) -> AtSizes:
    """Read an operation at exactly these sizes. Sizes that are not named are as in a plain call."""
    words = in_words(sizes)
    if operation.name not in AROUND:
        return AtSizes(words, refused=f"attnspec has no instrument for {operation.name}")
    if missing := sizes.keys() - {*sizes_of(operation)}:
        return AtSizes(words, refused=f"{operation.name} has no {' and no '.join(sorted(missing))}")
    arguments = exact_call(operation, implementation, sizes)
    if arguments is None:
        return AtSizes(words, refused=f"{operation.name} does not take these sizes")
    shape = shape_of(operation, arguments)
    probe = Probe(Caller(implementation, operation.name, calls.count), min(_MOST_CALLS, calls.left), until)
    try:
        probe.results(shape)
    except (BrokenError, OutsideError, UngivenError) as error:
        return AtSizes(words, refused=str(error))
    except SpentError:
        return AtSizes(words, refused=_SPENT)
    anomalies = tuple(f"With {words}: {sentence}" for sentence in sentences_at(probe, shape))
    return AtSizes(words, anomalies, "" if probe.records else _SPENT, tuple(probe.records))
