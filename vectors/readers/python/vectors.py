"""Reads the test vectors, and judges a function by them. Needs NumPy only."""

import json
from pathlib import Path

import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "BOOL": "?"}
FORMATS = {"float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<f4"}  # NumPy has no bfloat16


def tensors(file):
    """The names and arrays of a safetensors file, with bfloat16 as float32."""
    raw = Path(file).read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    for name, t in json.loads(raw[8:begin]).items():
        x = np.frombuffer(raw[begin:], "u1")[slice(*t["data_offsets"])].view(TYPES[t["dtype"]]).reshape(t["shape"])
        yield name, (x.astype("<u4") << 16).view("<f4") if t["dtype"] == "BF16" else x


def formula(told):
    """The array that the formula of a long case gives."""
    a, b, s = told["factors"]
    x = ((a * np.arange(np.prod(told["shape"][:-1]))[:, None] + b * np.arange(told["shape"][-1]) + s) % 127 - 63) / 16
    x[:, :1] = told.get("first", x[:, :1])
    for row, numbers in told.get("rows", {}).items():
        x[int(row)] = numbers
    return x.reshape(told["shape"])


def judged(file, function, number_format, conventions=None):
    """For each test of a format its id, and whether a function passes. The function takes the inputs by
    name, and returns an array or a tuple.

    `conventions` are the conventions in which the function differs from the file. If the result of a
    test depends on them, the reading for these conventions judges it. A test without such a reading
    is left out.
    """
    said = conventions or {}
    told = json.loads(Path(file).read_text("utf-8"))
    known = dict(tensors(Path(file).with_name(told["tensors"])))
    groups = [g for g in told["groups"] if g["format"] == number_format and g["conventions"].items() <= said.items()]
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
