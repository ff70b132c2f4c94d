"""Reads the test vectors, and judges a function by them. Needs NumPy only.

A file is checked as a whole before the first test: every tensor, and every name of a tensor. A
ValueError says what is wrong.
"""

import inspect
import json
from pathlib import Path
from typing import NamedTuple

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
        raise ValueError("The file is not a JSON object.")
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
        if not lists_of_names(group, "features"):
            raise ValueError("The features of a group are not names.")
        for test in group["tests"]:
            check(test, known)
    return groups


def lists_of_names(told, *fields):
    """Return whether some fields, where they are given, are lists of strings."""
    found = [told.get(field, []) for field in fields]
    return all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in found)


def check(test, known):
    """Whether a test has what is read from it: an id, inputs that are given, and bounds of one shape."""
    if not isinstance(test, dict) or not isinstance(test.get("id"), str) or not isinstance(test.get("inputs"), dict):
        raise ValueError("A test has no id or no inputs.")
    if not all(x in known for x in test["inputs"].values() if isinstance(x, str) and "/" in x):
        raise ValueError(f"{test['id']} names a tensor that is not in the file.")
    try:
        for reading in (test, *test.get("readings", ())):
            if not lists_of_names(test, "rests_on", "kills") or not (reading is test or {**reading["conventions"]}):
                raise TypeError
            for output in reading.get("outputs", {}).values():
                shapes = {known[output[part]].shape for part in ("lower", "upper", "budget")}
                if len(shapes) != 1:
                    raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{test['id']} lacks bounds, a budget of one shape, or names.") from None


class Judgement(NamedTuple):
    """The outcome of a test: "pass", "fail" or "skip". The sentence says why it fails or is skipped.

    `hints` are the known bugs that fail this test, and no test before it in this format. Look at the
    hints of the first test that fails.
    """

    test: str
    outcome: str
    sentence: str = ""
    hints: tuple[str, ...] = ()

    def __str__(self):
        hints = f" Known bugs that this test detects: {', '.join(self.hints)}." if self.hints else ""
        return " ".join(filter(None, (self.test, self.outcome, self.sentence))) + hints


def judged(file, function, arithmetic, features=None, conventions=None):
    """Yield a Judgement for each test of an arithmetic. The function takes the inputs by name, and
    returns an array or a tuple. It raises NotImplementedError for a call that it does not support:
    then the test is skipped. Any other exception refuses the call.

    `features` are the optional arguments that the function takes; by default the names of its parameters.
    `conventions` are the conventions in which it differs from the file, such as
    {"rope_pairing": "half"}.
    """
    told, known = opened(Path(file))
    groups = checked(told, known)
    optional = {name for group in groups for name in group.get("features", ())}
    taken = signature_of(function) if features is None else {*features}
    differing = declared(told, optional if features is None else taken, optional, conventions or {})
    tests = [(group, test) for group in groups if group["format"] == arithmetic for test in group["tests"]]
    if not tests:
        raise ValueError(f"The file has no tests in the format {arithmetic}.")
    for group, test in tests:
        named = {*group.get("features", ())} if features is not None else set()
        missing = [] if taken is None else sorted((named | optional & test["inputs"].keys()) - taken)
        reading, reason = chosen(group, test, differing)
        if missing or reason:
            reason = f"It needs features that the function does not take: {', '.join(missing)}." if missing else reason
            yield Judgement(test["id"], "skip", reason)
        else:
            yield called(function, test, reading, inputs(test, known, arithmetic), known)


def opened(file):
    """Return the JSON of a file, and the tensors beside it."""
    told = parsed(file.read_bytes())
    name = told.get("tensors")
    if not isinstance(name, str) or name.startswith(".") or not name or {*name} & {*"/\\:"}:
        raise ValueError(f"`tensors` should be the name of a file in the folder of {file}.")
    return told, dict(tensors(file.with_name(name).read_bytes()))


def signature_of(function):
    """Return the names of a function's parameters, or None if it takes any name or does not say."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else {*parameters}


def declared(told, features, optional, conventions):
    """Return the conventions that differ from the file. ValueError for a name that the file does not know."""
    defaults, arguments = told.get("conventions", {}), told.get("inputs", {})
    if not isinstance(defaults, dict) or not isinstance(arguments, dict):
        raise ValueError("The file has no conventions or no inputs.")
    for kind, names, known in (("feature", features, optional), ("convention", conventions, defaults)):
        for name in names:
            if name not in known and name not in arguments:
                raise ValueError(f"The file has no {kind} {name!r}, but has: {', '.join(sorted(known))}.")
    return {name: value for name, value in conventions.items() if defaults.get(name) != value}


def chosen(group, test, differing):
    """Return the results that hold under the declared conventions, or the reason why the test has no such result."""
    other = [f"{name}={x}" for name, x in group["conventions"].items() if differing.get(name) != x]
    if other:
        return None, f"It is for code with {', '.join(other)}."
    rests = [name for name in test.get("rests_on", ()) if name in differing and name not in group["conventions"]]
    wanted = {name: differing[name] for name in rests}
    for reading in test.get("readings", ()):
        if wanted and reading["conventions"] == wanted:
            return reading, ""
    return test, f"It has no result for {', '.join(f'{n}={x}' for n, x in wanted.items())}." if wanted else ""


def inputs(test, known, arithmetic):
    """Return the arguments of a test by name."""
    given = {name: known[x].copy() if isinstance(x, str) and "/" in x else x for name, x in test["inputs"].items()}
    return given | {name: formula(x).astype(FORMATS[arithmetic]) for name, x in given.items() if isinstance(x, dict)}


def called(function, test, reading, given, known):
    """Return the judgement of one call."""
    wanted = reading.get("outputs", {})
    try:
        out = function(**given)
    except NotImplementedError as error:
        outcome = "skip" if wanted else "pass"
        return Judgement(test["id"], outcome, f"The function does not support this call: {error}" if wanted else "")
    except Exception as error:
        sentence = f"The function refuses this call: {type(error).__name__}: {error}" if wanted else ""
    else:
        outs = out if isinstance(out, tuple) else (out,)
        sentence = mistake(outs, wanted, known)
        sentence += otherwise(outs, test, known) if sentence else ""
    hints = tuple(test.get("kills", ())) if sentence else ()
    return Judgement(test["id"], "fail" if sentence else "pass", sentence, hints)


def otherwise(outs, test, known):
    """Return a sentence about the conventions under which wrong results are right, or ""."""
    readings = [reading for reading in test.get("readings", ()) if reading.get("outputs")]
    found = [reading["conventions"] for reading in readings if not mistake(outs, reading["outputs"], known)]
    names = " or ".join(", ".join(f"{name}={value}" for name, value in conventions.items()) for conventions in found)
    return f" The results are right for code with {names}." if names else ""


def mistake(outs, wanted, known):
    """Return a sentence that says what is wrong with the results of a call, or ""."""
    if not wanted:
        return "The function returns a result, but should refuse this call."
    if len(outs) != len(wanted):
        return f"The function returns {len(outs)} results, but should return {len(wanted)}."
    return next(filter(None, (outside(out, *pair, known) for out, pair in zip(outs, wanted.items(), strict=True))), "")


def outside(out, name, wanted, known):
    """Return a sentence about the entry that is farthest outside its error limit, or "" if each entry
    is within the limit of the certified bounds. A bound may be infinite or NaN.
    """
    lower, upper, budget = (known[wanted[part]].astype(float) for part in ("lower", "upper", "budget"))
    if out.shape != lower.shape:
        return f"{name} has the shape {list(out.shape)}, but should have {list(lower.shape)}."
    out = out.astype(float)
    right = ((lower - budget <= out) & (out <= upper + budget)) | (np.isnan(out) & np.isnan(lower)) | np.isinf(budget)
    if right.all():
        return ""
    distance = np.maximum(lower - out, out - upper)
    limits = np.where(right, -1.0, np.where(np.isnan(distance) | (budget == 0), np.inf, distance / budget))
    worst = np.unravel_index(int(limits.argmax()), limits.shape)
    low, high = (lower - budget)[worst], (upper + budget)[worst]
    return (
        f"{name}[{', '.join(map(str, worst))}]={out[worst]:.9g}, but should be from {low:.9g} to {high:.9g}: the error "
        f"is {limits[worst]:.3g} times its error limit; {(~right).sum()} of {right.size} entries are outside."
    )
