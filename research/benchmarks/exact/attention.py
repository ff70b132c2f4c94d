"""The exact output and log-sum-exp of attention.

A softcap that does not act before the bias acts on the scores of longer vectors: (q, 1) and (k,
bias). Each row becomes a head, since its bias differs.
"""

from typing import Any

import flint
import numpy as np

from research.benchmarks.exact.reading import Given, Reading, read
from spec import ARB, tensor
from spec.context import Context
from spec.extended import attention as literal
from spec.tensor_core import Array as Balls

__all__ = ["attention", "forward", "per_unit", "present", "rows_of", "with_dead_rows"]


def attention(given: Given) -> tuple[Balls, ...]:
    """(out, lse)."""
    reading = read(given)
    x = {name: tensor(y, ARB) for name, y in reading.x.items()} | _numbers(given, reading)
    out, lse = forward(reading, x, ARB)
    return rows_of(given, reading, *with_dead_rows(reading, out, lse, x["v"]))


def _numbers(given: Given, reading: Reading) -> dict[str, Balls]:
    """The numbers of codes, of the arrays that have a scale with all axes of the codes."""
    found = {}
    for name in "qkv":
        if given.get(f"{name}_scale") is None:
            continue
        codes, scale = reading.x[name], np.broadcast_to(given[f"{name}_scale"], given[name].shape)
        scale = tensor(reading.meant(scale) if name == "q" and codes.shape[-3] > 1 else scale, ARB)
        codes = tensor(codes, ARB)
        found[name] = codes / scale if reading.conventions.fp8_scale == "divide" else codes * scale
    return found


def forward(reading: Reading, x: dict[str, Balls], scalar: Context) -> tuple[Balls, Balls]:
    """(out, lse) over a scalar, in the definitions' order of heads. Fully masked rows are as the
    definitions have them.
    """
    whole = reading.with_alibi(x)
    operands: dict[str, Any] = _by_rows(reading, whole, scalar) if reading.bent else whole
    keywords = present(_said_by_rows(reading) if reading.bent else reading.said)
    out, lse = literal.attention(**operands, **keywords, scalar=scalar)
    if reading.conventions.lse_sink == "excluded" and "sink" in operands:
        lse = literal.attention(
            **{name: y for name, y in operands.items() if name != "sink"}, **keywords, scalar=scalar
        )[1]
    return out.reshape(*reading.visible.shape[:-1], x["v"].shape[-1]), per_unit(
        reading, lse.reshape(reading.visible.shape[:-1])
    )


def _said_by_rows(reading: Reading) -> dict[str, Any]:
    """The keywords for rows that are heads of one query each."""
    kept, shape = reading.said["dropout_mask"], reading.visible.shape
    if kept is not None:
        kept = np.broadcast_to(kept, shape).reshape(*shape[:-3], shape[-3] * shape[-2], 1, shape[-1])
    others = {name: reading.said[name] for name in ("softcap", "dropout")}
    return {"scale": 1.0, "dropout_mask": kept, **others}


def present(keywords: dict[str, Any]) -> dict[str, Any]:
    """The keywords, those left out that are not given."""
    return {name: value for name, value in keywords.items() if value is not None}


def per_unit(reading: Reading, lse: Balls) -> Balls:
    """A log-sum-exp, or its derivative, in the base of the convention."""
    return lse * (1 / flint.arb(2).log()) if reading.conventions.lse_base == "2" else lse


def _by_rows(reading: Reading, x: dict[str, Balls], scalar: Context) -> dict[str, Any]:
    """q, k and v of rows that are heads of one query each, with scores scale·q·k + bias; −c where
    every key takes part, masked or not.
    """
    *batch, heads, n_q, n_k = reading.visible.shape
    group, d, d_v = heads // x["k"].shape[-3], x["q"].shape[-1], x["v"].shape[-1]
    scale = 1 / flint.arb(max(d, 1)).sqrt() if reading.said["scale"] is None else flint.arb(reading.said["scale"])
    visible = reading.visible.reshape(*batch, heads * n_q, n_k)

    def of_keys(y: Balls) -> Balls:
        spread = np.repeat(y, group, axis=-3)[..., :, None, :, :]
        return np.broadcast_to(spread, (*batch, heads, n_q, n_k, y.shape[-1])).reshape(
            *batch, heads * n_q, n_k, y.shape[-1]
        )

    nothing = np.broadcast_to(tensor(np.zeros(1), scalar), (*batch, heads * n_q, n_k))
    bias = nothing if "bias" not in x else np.broadcast_to(x["bias"], reading.visible.shape).reshape(visible.shape)
    k = np.concatenate([of_keys(x["k"]), bias[..., None]], axis=-1)
    k = np.where(visible[..., None], k, nothing[..., None])
    ones = np.broadcast_to(tensor(np.ones(1), scalar), (*batch, heads * n_q, 1))
    q = np.concatenate([(x["q"] * scale).reshape(*batch, heads * n_q, d), ones], axis=-1)[..., None, :]
    operands_by_row: dict[str, Any] = {"q": q, "k": k, "v": of_keys(x["v"]).reshape(*batch, heads * n_q, n_k, d_v)}
    if reading.everything:
        operands_by_row["bias"] = tensor(np.where(visible, 0.0, -float(reading.said["softcap"])), scalar)[..., None, :]
    else:
        operands_by_row["mask"] = visible[..., None, :]
    if "sink" in x:
        operands_by_row["sink"] = np.repeat(x["sink"], n_q)
    return operands_by_row


def with_dead_rows(reading: Reading, out: Balls, lse: Balls, v: Balls) -> tuple[Balls, Balls]:
    """The output or its tangent, with fully masked rows by convention: the mean of `v` is the
    result of such a row if the convention is uniform.
    """
    out = out.copy()
    means = np.repeat(v, reading.visible.shape[-3] // v.shape[-3], axis=-3)
    for place in zip(*np.nonzero(reading.dead), strict=True):
        for column in range(out.shape[-1]):
            if reading.conventions.dead_rows == "nan":
                out[*place, column] = flint.arb("nan")
            elif reading.conventions.dead_rows == "uniform" and v.shape[-2]:
                out[*place, column] = sum(means[*place[:-1], :, column], flint.arb(0)) / v.shape[-2]
    return out, lse


def rows_of(given: Given, reading: Reading, out: Balls, lse: Balls) -> tuple[Balls, Balls]:
    """The rows that are asked for, with heads as they were given."""
    rows = given.get("rows")
    chosen = slice(None) if rows is None else list(rows)
    return reading.given(out)[..., chosen, :], reading.given(lse[..., None])[..., chosen, 0]
