"""Whether a file of vectors is one: its form by the schema, its tensors, and every bound certified
again in ball arithmetic.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from oracles import Conventions, preset
from oracles.conventions import DEFAULT
from properties.contract.operations import OPERATIONS, Operation
from properties.vectors.container import unpacked
from properties.vectors.expectation import Expected, expected, tolerances
from properties.vectors.formulas import Formula
from properties.vectors.kinds import dtype_of

__all__ = ["SCHEMA", "check", "read"]

SCHEMA = Path(__file__).parent / "vectors.schema.json"
Json = Mapping[str, Any]


def read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON and the tensors of a file. Raises ValueError, in a sentence, for what is no file of vectors."""
    try:
        told = json.loads(file.read_text("utf-8"))
        jsonschema.validate(told, json.loads(SCHEMA.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        why = f"{error.strerror}." if isinstance(error, OSError) else error
        raise ValueError(f"{file} cannot be read: {why}") from error
    except jsonschema.ValidationError as error:
        raise ValueError(f"{file} is no file of vectors: {error.json_path}: {error.message}") from error
    if told["operation"] not in OPERATIONS:
        raise ValueError(f"{file} is about {told['operation']}, but should be about one of {', '.join(OPERATIONS)}.")
    return told, unpacked(file.with_name(told["tensors"]))


def check(file: Path) -> Iterator[tuple[str, str]]:
    """For each test of a file its id, and what is wrong with it in a sentence, or ""; last the
    file's name, for what is wrong besides.
    """
    told, tensors = read(file)
    o, used = OPERATIONS[told["operation"]], set[str]()
    for group in told["groups"]:
        for test in group["tests"]:
            names = set(_names(test))
            used |= names
            if missing := names - tensors.keys():
                yield test["id"], f"It names tensors that there are not: {', '.join(sorted(missing))}."
            else:
                yield test["id"], next(_wrong(o, group, test, tensors), "")
    unused = sorted(tensors.keys() - used)
    yield file.name, f"Tensors that no test names: {', '.join(unused)}." if unused else ""


def _names(test: Json) -> Iterator[str]:
    """The tensors that a test names."""
    yield from (x for x in test["inputs"].values() if isinstance(x, str) and "/" in x)
    for outputs in (test.get("outputs", {}), *(reading.get("outputs", {}) for reading in test.get("readings", ()))):
        for told in outputs.values():
            yield from (
                x for key in ("value", "lower", "upper", "budget", "decided") if isinstance(x := told[key], str)
            )


def arguments_of(o: Operation, test: Json, tensors: Json) -> tuple[Any, ...]:
    """The arguments of a test, numbers as float64."""

    def argument(x: Any) -> Any:
        if isinstance(x, str) and "/" in x:
            return tensors[x] if tensors[x].dtype.kind in "bi" else tensors[x].astype(np.float64)
        if isinstance(x, dict):
            return Formula.of(x).array()
        return tuple(x) if isinstance(x, list) else x

    return tuple(argument(test["inputs"].get(p)) for p in o.parameters)


def _wrong(o: Operation, group: Json, test: Json, tensors: Json) -> Iterator[str]:
    """What is wrong with a test, in sentences."""
    if unknown := set(test["inputs"]) - set(o.parameters):
        yield f"It has inputs that {o.name} does not take: {', '.join(sorted(unknown))}."
        return
    arguments, arithmetic = arguments_of(o, test, tensors), group["format"]
    for p, x in test["inputs"].items():
        if isinstance(x, str) and "/" in x and tensors[x].dtype.kind not in "bi":
            dtype = np.dtype(dtype_of(o.stored(p, preset(arithmetic))))
            if tensors[x].dtype != dtype:
                yield f"{p} is of {tensors[x].dtype}, but should be of {dtype}."
    if test["result"] == "invalid":
        if not _is_refused(o, arguments):
            yield "It should be refused, but is not."
        return
    for conventions, found in [
        ({}, test),
        *((reading["conventions"], reading) for reading in test.get("readings", ())),
    ]:
        by = Conventions(**{**group["conventions"], **conventions})
        where = (
            ""
            if by == DEFAULT
            else f" by {', '.join(f'{key}={x}' for key, x in {**group['conventions'], **conventions}.items())}"
        )
        try:
            wanted = expected(o, arguments, arithmetic, by)
        except ValueError as error:
            if not found.get("refused"):
                yield f"It is refused{where}: {error}"
            continue
        if found.get("refused"):
            yield f"It should be refused{where}, but is not."
        elif [of.name for of in wanted] != list(found["outputs"]):
            yield f"It has the results {', '.join(found['outputs'])}, but should have {', '.join(of.name for of in wanted)}{where}."
        else:
            for of in wanted:
                yield from (
                    f"{of.name}{where}: {sentence}" for sentence in _differs(of, found["outputs"][of.name], tensors)
                )


def _is_refused(o: Operation, arguments: tuple[Any, ...]) -> bool:
    """Whether the oracle refuses a call."""
    try:
        expected(o, arguments, "float64", DEFAULT)
    except ValueError:
        return True
    return False


def _differs(of: Expected, told: Json, tensors: Json) -> Iterator[str]:
    """What of one result is not what it should be."""
    parts = {key: tensors[told[key]].astype(np.float64) for key in ("value", "lower", "upper", "budget")}
    for key, x in parts.items():
        if x.shape != of.lower.shape:
            yield f"{key} has shape {x.shape}, but should have {of.lower.shape}."
            return
    decided = np.full(of.lower.shape, True) if told["decided"] is True else tensors[told["decided"]]
    parts["decided"] = decided.astype(np.float64)
    for key, x in parts.items():
        right = getattr(of, key).astype(np.float64)
        wrong = ~((x == right) | (np.isnan(x) & np.isnan(right)))
        if wrong.any():
            place = np.unravel_index(int(wrong.argmax()), wrong.shape)
            index = ", ".join(map(str, place))
            yield f"{key}[{index}]={x[place]}, but should be {right[place]}; {int(wrong.sum())} of {wrong.size} entries differ."
    of_all = dict(zip(("rtol", "atol"), tolerances(of), strict=True)) | {"vacuous": of.vacuous}
    yield from (f"{key} is {told[key]}, but should be {x}." for key, x in of_all.items() if told[key] != x)
