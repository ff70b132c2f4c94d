"""Agreement with the oracle: one law for each operation, over all of its domains."""

from typing import Any

from properties.law import Laws
from properties.operations import OPERATIONS
from properties.strategies.domains import DOMAINS
from properties.subject import Subject

law = Laws()

_LONG = ("131072 keys",)
_BY_CONVENTION = ("dead rows", "odd widths", "no rows", "no columns", "small")
"""Domains of quirks, each of which has a law of its own; and one of sizes that all others have."""

for _operation in OPERATIONS:
    _domains = tuple(name for name in DOMAINS[_operation] if name not in (*_LONG, *_BY_CONVENTION))

    @law(_operation, domains=_domains, agreement=True)
    def it_is_within_its_budget(subject: Subject, *arguments: Any) -> None:
        """For every case: each result is within its budget of the exact one; a mask is its definition.

        So are the results of all calls that other laws make of it on inputs without quirks.
        """
        subject(*arguments)
        subject.judge(0)
