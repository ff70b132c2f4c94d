"""The files: for each operation its tests as JSON, and their numbers as safetensors, the same to the byte each time."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oracles import Conventions, preset
from oracles.formats import BRAIN16
from properties.contract.operations import OPERATIONS, Operation
from properties.strategies.domains import DOMAINS
from properties.vectors.container import Tensors, packed
from properties.vectors.expectation import Expected, certificate, dtype_of, expected, judges, tolerances
from properties.vectors.formulas import Formula
from research.vectors.choice import FORMATS, Choice
from research.vectors.choosing import Chosen, chosen
from research.vectors.flags import FLAGS, flags_of
from research.vectors.long import LONG
from research.vectors.readings import alternatives, changed
from research.vectors.refused import refused

__all__ = ["VECTORS", "VERSION", "document", "long_document", "text_of", "write"]

VECTORS = Path(__file__).parents[2] / "vectors"
"""The folder of what is published."""

VERSION = 1
_ALWAYS = ("rope_pairing",)
"""Conventions that so many kernels follow otherwise that each test shows both."""

Json = dict[str, Any]


@dataclass
class _File:
    """The tests of an operation, by their groups, and their numbers."""

    of: Operation
    groups: dict[str, Json] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)
    names: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)

    def add(self, features: Sequence[str], arithmetic: str, reading: Conventions, test: Json) -> None:
        """Put a test into its group."""
        head: Json = {"features": list(features), "format": arithmetic, "conventions": others(reading)}
        self.groups.setdefault(json.dumps(head), {**head, "tests": []})["tests"].append(test)

    def store(self, name: str, x: Any, dtype: Any) -> str:
        """Keeps an array in a dtype (by default its own). Returns its name, or the name of an equal
        array that is already there.
        """
        with np.errstate(all="ignore"):
            x = np.asarray(x, dtype, order="C")
        known = self.names.setdefault((x.dtype.name, x.shape, x.tobytes()), name)
        if known == name:
            self.tensors[name] = x
        return known

    def inputs(self, test: str, arguments: Sequence[Any], arithmetic: str) -> Json:
        """The inputs of a call: names of tensors for arrays, and other values directly. Omitted
        options are left out.
        """
        content: Json = {}
        for parameter, x in zip(self.of.parameters, arguments, strict=True):
            if isinstance(x, np.ndarray):
                whole = x.dtype.kind in "bi"
                content[parameter] = self.store(
                    f"{test}/{parameter}",
                    x,
                    (np.int64 if x.dtype.kind == "i" else np.bool_)
                    if whole
                    else dtype_of(self.of.stored(parameter, preset(arithmetic))),
                )
            elif x is not None:
                content[parameter] = int(x) if isinstance(x, np.integer) else list(x) if isinstance(x, tuple) else x
        return content

    def outputs(self, test: str, wanted: Sequence[Expected]) -> Json:
        """What must come of a call, result by result."""
        return {
            expected_result.name: self._output(f"{test}/{expected_result.name}", expected_result)
            for expected_result in wanted
        }

    def _output(self, name: str, of: Expected) -> Json:
        rtol, atol = tolerances(of)
        own, of_bounds = (of.value.dtype,) * 2 if of.format is None else (dtype_of(of.format), np.float64)
        content: Json = {"value": self.store(f"{name}.value", of.value, own)}
        for part in ("lower", "upper"):
            content[part] = self.store(f"{name}.{part}", getattr(of, part), of_bounds)
        narrow = of.budget.astype(
            dtype_of(BRAIN16)
        )  # eight bits are enough, but not where a budget is smaller than its numbers
        content["budget"] = self.store(f"{name}.budget", narrow if (narrow == of.budget).all() else of.budget, None)
        content["decided"] = True if of.decided.all() else self.store(f"{name}.decided", of.decided, np.bool_)
        return content | {"rtol": rtol, "atol": atol, "vacuous": of.vacuous}

    def told(self) -> Json:
        """The JSON."""
        used = {flag for group in self.groups.values() for test in group["tests"] for flag in test["flags"]}
        definition = self.of
        return {
            "attnspec_vectors": VERSION,
            "license": "CC0-1.0",
            "operation": definition.name,
            "inputs": {
                parameter: list(definition.axes[parameter]) if parameter in definition.axes else None
                for parameter in definition.parameters
            },
            "outputs": {parameter: list(definition.axes.get(parameter, ())) for parameter in definition.outputs},
            "conventions": {name: getattr(Conventions(), name) for name in definition.conventions},
            "tensors": f"{definition.name}.safetensors",
            "flags": {name: sentence for name, (sentence, _) in FLAGS.items() if name in used},
            "groups": list(self.groups.values()),
        }

    def sorted_tensors(self) -> Tensors:
        """The tensors, the widest types first."""
        return dict(sorted(self.tensors.items(), key=lambda entry: (-entry[1].dtype.itemsize, entry[0])))


def document(operation: str) -> tuple[Json, Tensors]:
    """The JSON and the tensors of an operation's tests."""
    file = _File(OPERATIONS[operation])
    cases = [case for case in chosen() if case.choice.operation == operation]
    for number, case in enumerate(cases):
        for arithmetic in FORMATS:
            if arithmetic in case.kills:
                _add(file, number, case, arithmetic)
    for number, (sentence, arithmetic, arguments) in enumerate(refused(operation)):
        name = f"{arithmetic}/refused-{number}"
        test: Json = {"id": f"{operation}/{name}", "comment": sentence, "flags": [], "result": "invalid"}
        file.add(
            (), arithmetic, Conventions(), test | {"inputs": file.inputs(name, arguments, arithmetic), "kills": []}
        )
    return file.told(), file.sorted_tensors()


def long_document(operation: str) -> tuple[Json, Tensors]:
    """The JSON and the tensors of an operation's long cases. Formulas give their inputs, and one
    certificate serves all formats.
    """
    file, usual = _File(OPERATIONS[operation]), Conventions()
    for number, case in enumerate(case for case in LONG if case.operation == operation):
        arguments = case.arguments()
        exact, features = certificate(file.of, arguments, usual), file.of.given(arguments)
        test: Json = {
            "comment": case.comment,
            "flags": flags_of(Choice(operation, "", 0), arguments),
            "result": "valid",
            "rests_on": _fields(file.of, arguments, usual),
            "inputs": {parameter: x.told() if isinstance(x, Formula) else x for parameter, x in case.given.items()},
        }
        for arithmetic in FORMATS:
            wanted = expected(file.of, arguments, arithmetic, usual, exact)
            if judges(wanted):
                name = f"{arithmetic}/long-{number}"
                content = {"id": f"{operation}/{name}", **test, "outputs": file.outputs(name, wanted), "kills": []}
                file.add(features, arithmetic, usual, content)
    return file.told(), file.sorted_tensors()


def _fields(definition: Operation, arguments: tuple[Any, ...], reading: Conventions) -> list[str]:
    """The conventions that can change the results of a call."""
    return list(dict.fromkeys(name for name, *_ in changed(definition, arguments, reading)))


def others(reading: Conventions) -> dict[str, Any]:
    """The conventions of a reading that are not the defaults."""
    return {name: x for name, x in asdict(reading).items() if x != getattr(Conventions(), name)}


def _add(file: _File, number: int, case: Chosen, arithmetic: str) -> None:
    """Add the test of a case in a format."""
    choice, definition, name = case.choice, file.of, f"{arithmetic}/{number:03}"
    arguments = choice.arguments(arithmetic)
    wanted = expected(definition, arguments, arithmetic, choice.reading)
    depends_on = _fields(definition, arguments, choice.reading)
    content = [
        alternative
        for alternative in alternatives(definition, choice.reading)
        if f"{alternative[0]}={alternative[1]}" in case.shows
        or (alternative[0] in _ALWAYS and alternative[0] in depends_on)
    ]
    readings = list(_readings(file, name, arguments, arithmetic, content))
    source = {key: x for key, x in asdict(choice).items() if x and key not in ("operation", "conventions")}
    test: Json = {
        "id": f"{definition.name}/{name}",
        "comment": _comment(definition, choice.domain, arguments),
        "flags": flags_of(choice, arguments),
        "result": "acceptable" if readings else "valid",
        "rests_on": depends_on,
        "source": {"domain": choice.domain, "seed": choice.seed, **source},
        "inputs": file.inputs(name, arguments, arithmetic),
        "outputs": file.outputs(name, wanted),
        "kills": case.kills[arithmetic],
    }
    features = definition.given(arguments) or tuple(
        parameter
        for parameter, x in zip(definition.parameters, arguments, strict=True)
        if parameter == "mask" and x is not None
    )
    file.add(features, arithmetic, choice.reading, test | ({"readings": readings} if readings else {}))


def _readings(
    file: _File, test: str, arguments: tuple[Any, ...], arithmetic: str, content: Sequence[tuple[str, str, Conventions]]
) -> Iterator[Json]:
    """The results of a case under other conventions, if the format's budget decides something."""
    for field_name, value, reading in content:
        try:
            wanted = expected(file.of, arguments, arithmetic, reading)
        except ValueError:
            yield {"conventions": {field_name: value}, "refused": True}
            continue
        if judges(wanted):
            yield {"conventions": {field_name: value}, "outputs": file.outputs(f"{test}/{field_name}={value}", wanted)}


def _comment(definition: Operation, domain: str, arguments: tuple[Any, ...]) -> str:
    statement = DOMAINS[definition.name][domain].statement if domain in DOMAINS[definition.name] else domain
    return f"{statement} {', '.join(f'{name} {n}' for name, n in definition.sizes(arguments).items())}"


def text_of(head: Json) -> str:
    """The text of a JSON document: a test a line."""
    groups = []
    for group in head["groups"]:
        lines = ",\n".join(_line(test) for test in group["tests"])
        groups.append(_line({key: x for key, x in group.items() if key != "tests"})[:-1] + f',"tests":[\n{lines}\n]}}')
    return (
        _line({key: x for key, x in head.items() if key != "groups"})[:-1]
        + ',"groups":[\n'
        + ",\n".join(groups)
        + "\n]}\n"
    )


def _line(x: Json) -> str:
    return json.dumps(x, separators=(",", ":"), ensure_ascii=False)


def write(folder: Path, operations: Sequence[str] = tuple(OPERATIONS)) -> Iterator[Path]:
    """Writes the files of operations into a folder, and the files of their long cases into its
    subfolder `long`. Yields the path of each written file.
    """
    for operation in operations:
        for place, made in ((folder, document), (folder / "long", long_document)):
            head, tensors = made(operation)
            if head["groups"]:
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{operation}.json").write_text(text_of(head), "utf-8")
                (place / head["tensors"]).write_bytes(packed(tensors))
                yield place / f"{operation}.json"
