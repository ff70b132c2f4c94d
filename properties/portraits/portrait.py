"""The portrait of a kernel: what each operation computes, found out by calls.

First the form of the call is found, then the arithmetic and the conventions, then the instruments
read the kernel as it should be under these conventions. What they read otherwise is an anomaly.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from statistics import median
from typing import Any

from oracles import Arithmetic
from oracles.conventions import DEFAULT
from oracles.formats import PRESETS
from properties.contract.implementation import USUAL_REFUSALS, Implementation, implementation_of
from properties.contract.meanings import MEANINGS, meaning
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.support import read as read_support
from properties.contract.wanted_shapes import checked, require_concerned
from properties.inspection.form_search import form_of
from properties.inspection.form_trials import NoFormError
from properties.inspection.forms import Form, Refusal, reasons
from properties.portraits.always_causal import asked, causal_form, is_always_causal
from properties.portraits.empty_sizes import wrong_empty_sizes
from properties.portraits.facts import Fact, facts_of_form
from properties.portraits.inference import Calls, Finding, following, infer
from properties.portraits.maps import Map, Record, chosen, maps_of
from properties.portraits.readings import read
from properties.portraits.wanted_sizes import AtSizes, read_at

__all__ = ["CAUSAL_ONLY", "Fact", "OperationPortrait", "Portrait", "Question", "inspect"]

_MOST_QUICK_CALLS = 20
_CALLS_OF_A_QUICK_FORM = 8
_KEPT_FOR_INSTRUMENTS = 5  # of quick calls


CAUSAL_ONLY = "causal only"
"""The word of `supports` for functions that are causal in every call; also the subject of a question
about them.
"""


@dataclass(frozen=True)
class Question:
    """A value of a convention that is not the default: the kernel may follow it, or have a bug.

    convention, value  the convention, and the value that was measured. For a function that is causal
                       in every call, "causal only" and the operation that the adapter offers
    says               the sentences of the question, with both answers
    """

    convention: str
    value: Any
    says: str


@dataclass(frozen=True)
class OperationPortrait:
    """What one operation of a kernel computes.

    operation        its name
    implementation   the operation with the declarations that its results show
    form             how its function is called; None if the adapter declares it
    findings         what the experiments say about its conventions
    anomalies        sentences on results that no convention explains. The kernel is wrong, or it
                     follows a convention that attnspec does not know
    unknown          sentences on what could not be determined, and why
    calls            the number of calls
    seconds          the median time of a call
    measured         facts on the accuracy and the bits of the results
    at_sizes         what the instruments read at the sizes that were asked for
    records          the records of instruments that are worth a map
    always_causal    the operation that the function is named after, if every call is causal; else ""
    """

    operation: str
    implementation: Implementation
    form: Form | None
    findings: tuple[Finding, ...]
    anomalies: tuple[str, ...]
    unknown: tuple[str, ...]
    calls: int
    seconds: float
    measured: tuple[Fact, ...] = ()
    at_sizes: tuple[AtSizes, ...] = ()
    records: tuple[Record, ...] = ()
    always_causal: str = ""

    @property
    def own_name(self) -> str:
        """The operation that the function is named after."""
        return self.always_causal or self.operation

    def to_dict(self) -> dict[str, Any]:
        """Return the portrait as data that JSON can hold."""
        return {
            "operation": self.operation,
            "anomalies": list(self.anomalies),
            "questions": [vars(question) for question in self.questions],
            "conventions": self.conventions,
            "facts": [vars(fact) for fact in self.facts],
            "unknown": list(self.unknown),
            "declarations": dict(self.form.declarations) if self.form else {},
            "calls": self.calls,
            "seconds_per_call": self.seconds,
            "maps": [one.to_dict() for one in self.maps],
        }

    @property
    def maps(self) -> tuple[Map, ...]:
        """What the instruments measured, beside what it should be."""
        return tuple(one for record in self.records for one in maps_of(record))

    @property
    def conventions(self) -> dict[str, Any]:
        """The values of the conventions that the results show."""
        return {name: value for finding in self.findings for name, value in finding.values.items()}

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What was measured: its conventions, its arithmetic, and how the function is called."""
        shown = (Fact(name, meaning(name, self.conventions[name])) for name in sorted(self.conventions, key=_place))
        explained = all(finding.values for finding in self.findings) and bool(self.findings)
        name = self.implementation.resolved_arithmetic.name
        accuracy = (Fact("arithmetic", f"{name}: the results above are within its error limits"),) if explained else ()
        sizes = (Fact("sizes", read.says) for read in self.at_sizes if read.says)
        form = () if self.form is None else facts_of_form(self.form)
        return (*shown, *accuracy, *self.measured, *sizes, *form)

    @property
    def questions(self) -> tuple[Question, ...]:
        """One question for each convention whose value is not the default, after the question whether
        every call should be causal.
        """
        causal = (
            [Question(CAUSAL_ONLY, self.operation, asked(self.always_causal, self.operation))]
            if self.always_causal
            else []
        )
        values = (
            Question(name, value, _asked(name, value, finding.bug))
            for finding in self.findings
            for name, value in finding.values.items()
            if value != getattr(DEFAULT, name)
        )
        return (*causal, *values)


@dataclass(frozen=True, repr=False)
class Portrait:
    """What the operations of a kernel compute. `seconds` is the time that the measurements took.

    `str` gives the portrait as `attnspec inspect` prints it. A notebook shows it in colours.
    """

    name: str
    operations: tuple[OperationPortrait, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no operation has an anomaly."""
        return not any(portrait.anomalies for portrait in self.operations)

    @property
    def verdict(self) -> str:
        """How many anomalies and questions there are: "1 anomaly, no question"."""
        anomalies, questions = (
            sum(len(getattr(one, kind)) for one in self.operations) for kind in ("anomalies", "questions")
        )
        return f"{_counted(anomalies, 'anomaly', 'anomalies')}, {_counted(questions, 'question', 'questions')}"

    def __repr__(self) -> str:
        """Return what the portrait is of, and its verdict."""
        operations = ", ".join(one.operation for one in self.operations)
        return f"<Portrait of {self.name} ({operations}): {self.verdict}>"

    def __str__(self) -> str:
        from properties.portraits.printing import print_portrait
        from properties.portraits.rendering import text

        return text(lambda console: print_portrait(console, self))

    def _repr_html_(self) -> str:
        from properties.portraits.printing import print_portrait
        from properties.portraits.rendering import fragment

        return fragment(lambda console: print_portrait(console, self))

    def to_dict(self) -> dict[str, Any]:
        """Return the portrait as data that JSON can hold."""
        return {"name": self.name, "seconds": self.seconds, "operations": [one.to_dict() for one in self.operations]}


def inspect(
    kernel: Any,
    operation: str | None = None,
    *,
    declared: bool | None = None,
    until: float = inf,
    shapes: Sequence[Mapping[str, int]] = (),
    quick: bool = False,
) -> Portrait:
    """Return the portrait of a kernel: a function with the name of its operation, a mapping, a module
    or an object with functions that are named after operations, or an `Implementation`.

    Only an `Implementation` is taken to be `declared`. For anything else attnspec expects nothing: it
    tries how the functions can be called, and finds the conventions that they follow.
    `until` is a reading of time.monotonic at which measurements end. Each of `shapes` holds sizes by
    name, such as {"batch": 2, "n_k": 4096}, at which each operation is read too. If `quick`, at most
    20 calls of each operation are made.

    Raises TypeError and ValueError for something that is not a kernel, ValueError for an unknown
    size, and NoFormError, a ValueError, for a function that cannot be called in any way that was
    tried.
    """
    started = time.perf_counter()
    work = _Work(until, checked(shapes), quick)
    own_name = getattr(kernel, "__name__", "")
    offered = operation or (own_name if callable(kernel) and own_name in OPERATIONS else None)
    adapter = implementation_of(kernel if offered is None else {offered: kernel}, name=own_name or None)
    require_concerned(work.shapes, adapter.operations)
    portraits: list[OperationPortrait] = []
    for name in (name for name in OPERATIONS if name in adapter.operations):
        known = {found: value for portrait in portraits for found, value in portrait.conventions.items()}
        is_declared = isinstance(kernel, Implementation) if declared is None else declared
        of_operation = _of_declared if is_declared else _of_undeclared
        portraits.append(of_operation(adapter, OPERATIONS[name], replace(work, known=known)))
    return Portrait(adapter.name, tuple(portraits), time.perf_counter() - started)


@dataclass(frozen=True)
class _Work:
    """What is measured of an operation: until a reading of time.monotonic, also at some sizes, by any
    number of calls or by few. `known` are the conventions that earlier operations showed.
    """

    until: float
    shapes: tuple[Mapping[str, int], ...]
    is_quick: bool
    known: Mapping[str, Any] = field(default_factory=dict)

    def form(self, function: Any, operation: str) -> Form:
        """How a function can be called as an operation."""
        if self.is_quick:
            return form_of(function, operation, self.until, _CALLS_OF_A_QUICK_FORM)
        return form_of(function, operation, self.until)

    def calls(self, form: Form | None = None) -> Calls:
        """The calls that may still be made after those that found a form."""
        used, made = (form.calls, form.made) if form else (0, ())
        return Calls(_MOST_QUICK_CALLS - used, _KEPT_FOR_INSTRUMENTS, made) if self.is_quick else Calls(made=made)


def _of_undeclared(adapter: Implementation, operation: Operation, work: _Work) -> OperationPortrait:
    """The portrait of an operation without a declaration."""
    function = adapter.operations[operation.name]
    form = work.form(function, operation.name)
    calls = work.calls(form)
    form, always_causal, cannot = _as_causal(form, adapter, calls, work)
    operation = OPERATIONS[form.operation]
    adapter = replace(adapter, operations={operation.name: function})
    made, findings = _best(form, adapter, operation, work.known, calls)
    values = {**work.known, **{name: value for finding in findings for name, value in finding.values.items()}}
    usual = made.refuses or USUAL_REFUSALS
    others = sorted((kind for kind in calls.raised if not issubclass(kind, usual)), key=str)
    implementation = following(replace(made, refuses=(*usual, *others)), values)
    if empty := tuple(wrong_empty_sizes(implementation, operation, calls)):
        refusals = (Refusal(f"{name} = 0", "The results differ from those of the definition.") for name in empty)
        form = replace(form, words=(*form.words, "positive sizes"), refusals=(*form.refusals, *refusals))
        positive = {**implementation.support.sizes, **read_support("positive sizes").sizes}
        implementation = replace(implementation, supports=replace(implementation.support, sizes=positive))
    portrait = _portrait(implementation, operation, form, findings, calls, work)
    return replace(portrait, always_causal=always_causal, unknown=(*([cannot] if cannot else []), *portrait.unknown))


def _as_causal(form: Form, adapter: Implementation, calls: Calls, work: _Work) -> tuple[Form, str, str]:
    """The form of a function as an adapter declares it, the operation that the function is named after
    if every call is causal, and a clause if it is and no adapter can declare it.
    """
    function = adapter.operations[form.operation]
    presets = _presets(form.implementation(adapter.name, function).resolved_arithmetic)
    if not is_always_causal(form, function, presets, calls):
        return form, "", ""
    try:
        found = causal_form(form, adapter.operations, lambda name: work.form(function, name))
    except NoFormError as error:
        return form, "", str(error)
    calls.most -= found.calls - form.calls
    calls.made = found.made
    calls.kept = min(calls.kept, calls.left // 2)
    return found, form.operation, ""


def _best(
    form: Form, adapter: Implementation, operation: Operation, known: Mapping[str, Any], calls: Calls
) -> tuple[Implementation, tuple[Finding, ...]]:
    """The implementation in the first number type and preset under which every experiment agrees with
    some value of its convention, widest and finest first; else the one with the fewest others.
    """
    best: tuple[int, Implementation, tuple[Finding, ...]] | None = None
    for place in range(len(form.dtypes)):
        of_type = replace(form, dtypes=form.dtypes[place:])
        made = of_type.implementation(adapter.name, adapter.operations[operation.name])
        for arithmetic in _presets(made.resolved_arithmetic):
            declared = replace(made, arithmetic=arithmetic)
            findings = infer(replace(declared, refuses=(Exception,)), operation, known, calls)
            unexplained = sum(not finding.values for finding in findings)
            if best is None or unexplained < best[0]:
                best = unexplained, declared, findings
            if not unexplained:
                return declared, findings
    assert best is not None
    return best[1:]


def _of_declared(adapter: Implementation, operation: Operation, work: _Work) -> OperationPortrait:
    """The portrait of an operation whose adapter declares everything. A value that the results show
    and the adapter does not declare is an anomaly.
    """
    called, calls = replace(adapter, operations={operation.name: adapter.operations[operation.name]}), work.calls()
    findings = infer(replace(called, conventions=DEFAULT), operation, work.known, calls)
    portrait = _portrait(called, operation, None, findings, calls, work)
    declared = called.resolved_conventions
    others = tuple(
        f"The adapter declares {name}={getattr(declared, name)!r}, but the results show {name}={value!r}: "
        f"{meaning(name, value)}."
        for name, value in portrait.conventions.items()
        if value != getattr(declared, name)
    )
    return replace(portrait, anomalies=(*others, *portrait.anomalies))


def _portrait(
    implementation: Implementation,
    operation: Operation,
    form: Form | None,
    findings: tuple[Finding, ...],
    calls: Calls,
    work: _Work,
) -> OperationPortrait:
    """The portrait of an operation, read as its declarations say."""
    unexplained = tuple(_unexplained_call(finding) for finding in findings if not finding.values)
    asked = Calls(calls.left)
    at_sizes = tuple(read_at(implementation, operation, sizes, asked, work.until) for sizes in work.shapes)
    calls.most -= asked.number
    readings = read(implementation, operation, calls, work.until)
    return OperationPortrait(
        operation.name,
        implementation,
        form,
        findings,
        (*(sentence for one in at_sizes for sentence in one.anomalies), *readings.anomalies, *unexplained),
        (
            *_unknown(implementation, operation, {*work.known, *_shown(findings)}, calls),
            *(f"{one.sizes}: {one.refused}" for one in at_sizes if one.refused),
            *(
                []
                if calls.number or calls.made
                else ["what it computes: attnspec makes no call that the function takes"]
            ),
            *(
                (f"quick: at most {_MOST_QUICK_CALLS} calls are made, which show less",)
                if work.is_quick
                else readings.left_out
            ),
        ),
        calls.number + asked.number + (form.calls if form else 0),
        median(calls.seconds or [0.0]),
        readings.facts,
        at_sizes,
        (*chosen(readings.records), *(record for one in at_sizes for record in one.records)),
    )


def _place(convention: str) -> int:
    """The place of a convention in a portrait: the base and the scale of a rotation follow its pairs."""
    names = list(MEANINGS)
    return names.index(convention if convention in names else "rope_pairing")


def _counted(number: int, one: str, several: str) -> str:
    return f"{number or 'no'} {one if number < 2 else several}"


def _presets(narrowest: Arithmetic) -> Iterator[Arithmetic]:
    """The presets that store inputs and results in the same formats, finest first."""
    for preset in PRESETS:
        if (preset.inputs, preset.output) == (narrowest.inputs, narrowest.output):
            yield preset


def _unexplained_call(finding: Finding) -> str:
    """A sentence on an experiment whose results agree with no value of its convention."""
    values = ", ".join(f"{value!r}" for value in MEANINGS[finding.convention])
    said = f"{finding.call}: the results agree with no value of {finding.convention} ({values})."
    value, error = finding.nearest or (None, inf)
    return f"{said} The nearest is {value!r}, with an error of {error:.2g}." if isfinite(error) else said


def _shown(findings: Sequence[Finding]) -> set[str]:
    """The conventions about which an experiment says something."""
    return {name for finding in findings for name in (finding.convention, *finding.values)}


def _unknown(
    implementation: Implementation, operation: Operation, shown: Collection[str], calls: Calls
) -> tuple[str, ...]:
    """Clauses on the conventions that the results do not show, one for each reason."""
    return tuple(
        reasons(
            Refusal(name, reason)
            for name in sorted(set(operation.conventions) - set(shown), key=_place)
            if (reason := _why_unknown(name, operation, implementation, calls))
        )
    )


_NEEDS = {
    "causal": "causal",
    "window": "window",
    "softcap_order": "softcap",
    "lse_sink": "sink",
    "alibi_reference": "alibi",
    "mask_polarity": "mask",
    "dead_rows": "mask",
    "causal_with_mask": "causal",
    "mrope": "sections",
}
"""The feature without which no result shows a convention."""


def _why_unknown(convention: str, operation: Operation, implementation: Implementation, calls: Calls) -> str:
    """Why the results do not show a convention; "" if it does not matter."""
    if convention == "lse_base" and implementation.support.untold(operation):
        return "the function returns no log-sum-exp"
    needed = _NEEDS.get(convention, "")
    if needed in operation.options and implementation.lacks(needed):
        return "the function takes no option that shows this"
    if convention not in _ALWAYS:
        return ""
    return "no call was left" if calls.left <= calls.kept else "the calls that work do not show this"


_ALWAYS = ("scale_default", "kv_heads", "rope_pairing", "rope_base", "sinusoid_layout", "lse_base")


def _asked(name: str, value: Any, bug: str) -> str:
    """The sentences of a question: what the results show, and what they mean if the default is meant."""
    default = getattr(DEFAULT, name)
    wrong = f"the kernel has the known bug {bug}" if bug else "the kernel is wrong"
    shown = f"{name}={value!r}: {meaning(name, value)}."
    return f"{shown} If {name}={default!r} is meant ({meaning(name, default)}), {wrong}."
