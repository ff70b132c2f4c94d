"""Checks a file of test vectors: its form by the schema, its tensors, and every bound. The bounds
are computed again in ball arithmetic (intervals value ± radius).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from oracles import Conventions, preset
from oracles.conventions import DEFAULT
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.vectors.container import unpacked
from properties.vectors.expectation import Expected, dtype_of, expected, tolerances
from properties.vectors.formulas import Formula

__all__ = ["SCHEMA", "check", "read"]

SCHEMA = Path(__file__).parent / "vectors.schema.json"
Json = Mapping[str, Any]


def read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON and the tensors of a file. Raises ValueError, with a sentence, for a file
    without test vectors.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
        jsonschema.validate(content, json.loads(SCHEMA.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        reason = f"{error.strerror}." if isinstance(error, OSError) else error
        raise ValueError(f"{file} cannot be read: {reason}") from error
    except jsonschema.ValidationError as error:
        raise ValueError(f"{file} is not a file of vectors: {error.json_path}: {error.message}") from error
    if content["operation"] not in OPERATIONS:
        raise ValueError(f"{file} is about {content['operation']}, but should be about one of {', '.join(OPERATIONS)}.")
    return content, unpacked(file.with_name(content["tensors"]))


def check(file: Path) -> Iterator[tuple[str, str]]:
    """Yield a pair for each test of a file: its id, and a sentence that says what is wrong with it,
    or "". The last pair is the file's name with a sentence about unused tensors, or "".
    """
    content, tensors = read(file)
    operation, used = OPERATIONS[content["operation"]], set[str]()
    for group in content["groups"]:
        for test in group["tests"]:
            tensor_names = set(_names(test))
            used |= tensor_names
            if missing := tensor_names - tensors.keys():
                yield test["id"], f"It names tensors that the file lacks: {', '.join(sorted(missing))}."
            else:
                yield test["id"], next(_mistakes(operation, group, test, tensors), "")
    unused = sorted(tensors.keys() - used)
    yield file.name, f"No test names these tensors: {', '.join(unused)}." if unused else ""


def _names(test: Json) -> Iterator[str]:
    """Yield the names of the tensors that a test uses."""
    yield from (value for value in test["inputs"].values() if isinstance(value, str) and "/" in value)
    for outputs in (test.get("outputs", {}), *(reading.get("outputs", {}) for reading in test.get("readings", ()))):
        for output in outputs.values():
            for key in ("value", "lower", "upper", "budget", "decided"):
                if isinstance(output[key], str):
                    yield output[key]


def arguments_of(operation: Operation, test: Json, tensors: Json) -> Arguments:
    """Return the arguments of a test, with numbers as float64."""

    def argument(value: Any) -> Any:
        if isinstance(value, str) and "/" in value:
            return tensors[value] if tensors[value].dtype.kind in "bi" else tensors[value].astype(np.float64)
        if isinstance(value, dict):
            return Formula.of(value).array()
        return tuple(value) if isinstance(value, list) else value

    return tuple(argument(test["inputs"].get(name)) for name in operation.parameters)


def _mistakes(operation: Operation, group: Json, test: Json, tensors: Json) -> Iterator[str]:
    """Yield sentences that say what is wrong with a test."""
    if unknown := set(test["inputs"]) - set(operation.parameters):
        yield f"It has inputs that {operation.name} does not take: {', '.join(sorted(unknown))}."
        return
    arithmetic = group["format"]
    for name, value in test["inputs"].items():
        if isinstance(value, str) and "/" in value and tensors[value].dtype.kind not in "bi":
            dtype = np.dtype(dtype_of(operation.stored(name, preset(arithmetic))))
            if tensors[value].dtype != dtype:
                yield f"{name} is of {tensors[value].dtype}, but should be of {dtype}."
    arguments = arguments_of(operation, test, tensors)
    if test["result"] == "invalid":
        if not _is_refused(operation, arguments):
            yield "The oracle should refuse it, but does not."
        return
    readings = [(reading["conventions"], reading) for reading in test.get("readings", ())]
    for changed, result in [({}, test), *readings]:
        all_conventions = {**group["conventions"], **changed}
        conventions = Conventions(**all_conventions)
        condition = (
            ""
            if conventions == DEFAULT
            else f" by {', '.join(f'{key}={value}' for key, value in all_conventions.items())}"
        )
        try:
            expectations = expected(operation, arguments, arithmetic, conventions)
        except ValueError as error:
            if not result.get("refused"):
                yield f"The oracle refuses it{condition}: {error}"
            continue
        yield from _mistakes_in_results(result, expectations, condition, tensors)


def _mistakes_in_results(result: Json, wanted: tuple[Expected, ...], where: str, tensors: Json) -> Iterator[str]:
    """Yield sentences that say what is wrong with the results of a test under some conventions."""
    expected_names = [expectation.name for expectation in wanted]
    if result.get("refused"):
        yield f"The oracle should refuse it{where}, but does not."
    elif expected_names != list(result["outputs"]):
        yield f"It has the results {', '.join(result['outputs'])}, but should have {', '.join(expected_names)}{where}."
    else:
        for expectation in wanted:
            for sentence in _differences(expectation, result["outputs"][expectation.name], tensors):
                yield f"{expectation.name}{where}: {sentence}"


def _is_refused(operation: Operation, arguments: Arguments) -> bool:
    """Return whether the oracle refuses a call."""
    try:
        expected(operation, arguments, "float64", DEFAULT)
    except ValueError:
        return True
    return False


def _differences(wanted: Expected, output: Json, tensors: Json) -> Iterator[str]:
    """Yield sentences about the differences between an output in the file and the expected one."""
    stored_arrays = {
        field_name: tensors[output[field_name]].astype(np.float64)
        for field_name in ("value", "lower", "upper", "budget")
    }
    for field_name, array in stored_arrays.items():
        if array.shape != wanted.lower.shape:
            yield f"{field_name} has shape {array.shape}, but should have {wanted.lower.shape}."
            return
    decided = np.full(wanted.lower.shape, True) if output["decided"] is True else tensors[output["decided"]]
    stored_arrays["decided"] = decided.astype(np.float64)
    for field_name, array in stored_arrays.items():
        correct = getattr(wanted, field_name).astype(np.float64)
        differs = ~((array == correct) | (np.isnan(array) & np.isnan(correct)))
        if differs.any():
            position = np.unravel_index(int(differs.argmax()), differs.shape)
            index, count = ", ".join(map(str, position)), f"{int(differs.sum())} of {differs.size} entries differ"
            yield f"{field_name}[{index}]={array[position]}, but should be {correct[position]}; {count}."
    tolerance_fields = dict(zip(("rtol", "atol"), tolerances(wanted), strict=True)) | {"vacuous": wanted.vacuous}
    for field_name, correct in tolerance_fields.items():
        if output[field_name] != correct:
            yield f"{field_name} is {output[field_name]}, but should be {correct}."
