"""Reads the test vectors, and judges a function by them. Needs NumPy only.

A file is checked as a whole before the first test: every tensor, and every name of a tensor. A
ValueError says what is wrong.
"""

import json
from pathlib import Path

import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "BOOL": "?"}
FORMATS = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<f4"}  # NumPy has no bfloat16


def parsed(raw):
    """The JSON object of some bytes."""
    try:
        told = json.loads(raw)
    except RecursionError:
        raise ValueError("The JSON has too many levels.") from None
    if not isinstance(told, dict):
        raise ValueError("The file is no JSON object.")
    return told


def tensors(raw):
    """The names and arrays of the bytes of a safetensors file, with bfloat16 as float32."""
    begin = 8 + int.from_bytes(raw[:8], "little")
    if not 8 < begin <= len(raw):
        raise ValueError("The header of the tensors is cut off.")
    for name, told in parsed(raw[8:begin]).items():
        if name != "__metadata__":
            yield name, tensor(raw[begin:], name, told)


def tensor(data, name, told):
    """The array of an entry of the header."""
    try:
        kind, shape, (start, end) = TYPES[told["dtype"]], told["shape"], told["data_offsets"]
        if not all(type(n) is int and n >= 0 for n in (*shape, start)) or len(data[start:end]) != end - start:
            raise ValueError
        x = np.frombuffer(data[start:end], kind).reshape(shape)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(f"The type, the shape or the place of the tensor {name} is wrong.") from None
    return (x.astype("<u4") << 16).view("<f4") if told["dtype"] == "BF16" else x


def formula(told):
    """The array that the formula of a long case gives."""
    try:
        (a, b, s), shape = told["factors"], told["shape"]
        if not all(type(n) is int and n >= 0 for n in shape) or np.prod(shape, dtype=float) > 2**28:
            raise ValueError
        x = ((a * np.arange(np.prod(shape[:-1]))[:, None] + b * np.arange(shape[-1]) + s) % 127 - 63) / 16
        x[:, :1] = told.get("first", x[:, :1])
        for row, numbers in told.get("rows", {}).items():
            x[int(row)] = numbers
        return x.reshape(shape)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise ValueError("The formula of an input is wrong.") from None


def checked(told, known):
    """The groups of a file, whose tests name only tensors that are known."""
    groups = told.get("groups")
    if not groups or not isinstance(groups, list):
        raise ValueError("The file has no groups of tests.")
    for group in groups:
        kinds = {"tests": list, "format": str, "conventions": dict}
        if not isinstance(group, dict) or not all(isinstance(group.get(name), kind) for name, kind in kinds.items()):
            raise ValueError("A group has no tests, no format or no conventions.")
        for test in group["tests"]:
            check(test, known)
    return groups


def check(test, known):
    """Whether a test has what is read from it: an id, inputs that are given, and bounds of one shape."""
    if not isinstance(test, dict) or not isinstance(test.get("id"), str) or not isinstance(test.get("inputs"), dict):
        raise ValueError("A test has no id or no inputs.")
    if not all(x in known for x in test["inputs"].values() if isinstance(x, str) and "/" in x):
        raise ValueError(f"{test['id']} names a tensor that is not in the file.")
    try:
        for reading in (test, *test.get("readings", ())):
            for output in reading.get("outputs", {}).values():
                shapes = {known[output[part]].shape for part in ("lower", "upper", "budget")}
                if len(shapes) != 1:
                    raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{test['id']} lacks bounds or a budget of one shape.") from None


def judged(file, function, number_format, conventions=None):
    """For each test of a format its id, and whether a function passes. The function takes the inputs by
    name, and returns an array or a tuple.

    `conventions` are the conventions in which the function differs from the file. If the result of a
    test depends on them, the reading for these conventions judges it. A test without such a reading
    is left out.
    """
    said = conventions or {}
    told = parsed(Path(file).read_bytes())
    name = told.get("tensors")
    if not isinstance(name, str) or name.startswith(".") or not name or {*name} & {*"/\\:"}:
        raise ValueError(f"`tensors` should be the name of a file in the folder of {file}.")
    known = dict(tensors(Path(file).with_name(name).read_bytes()))
    groups = [
        g
        for g in checked(told, known)
        if g["format"] == number_format and g["conventions"].items() <= said.items() and g["tests"]
    ]
    if not groups:
        raise ValueError(f"The file has no tests in the format {number_format}.")
    for group, test in ((g, test) for g in groups for test in g["tests"]):
        differ = {
            name: x for name, x in said.items() if name in test.get("rests_on", ()) and name not in group["conventions"]
        }
        reading = next((r for r in test.get("readings", ()) if r["conventions"] == differ), None) if differ else test
        if reading is None:
            continue
        wanted = reading.get("outputs", {}).values()
        given = {name: known[x].copy() if isinstance(x, str) and "/" in x else x for name, x in test["inputs"].items()}
        given |= {name: formula(x).astype(FORMATS[number_format]) for name, x in given.items() if isinstance(x, dict)}
        try:
            out = function(**given)
        except Exception:
            yield test["id"], not wanted
            continue
        outs = out if isinstance(out, tuple) else (out,)
        yield (
            test["id"],
            len(outs) == len(wanted) > 0 and all(within(x, w, known) for x, w in zip(outs, wanted, strict=True)),
        )


def within(out, wanted, known):
    """Whether an output is within its budget of the certified bounds, which may be infinite, and
    NaN where that is expected.
    """
    lower, upper, budget = (known[wanted[part]].astype(float) for part in ("lower", "upper", "budget"))
    if out.shape != lower.shape:
        return False
    right = ((lower - budget <= out) & (out <= upper + budget)) | (np.isnan(out) & np.isnan(lower)) | np.isinf(budget)
    return bool(right.all())
