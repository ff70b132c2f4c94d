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
    r = read(given)
    out, lse = forward(r, {name: tensor(x, ARB) for name, x in r.x.items()}, ARB)
    return rows_of(given, r, *with_dead_rows(r, out, lse, tensor(r.x["v"], ARB)))


def forward(r: Reading, x: dict[str, Balls], scalar: Context) -> tuple[Balls, Balls]:
    """(out, lse) over a scalar, in the definitions' order of heads. Fully masked rows are as the
    definitions have them.
    """
    operands: dict[str, Any] = _by_rows(r, x, scalar) if r.bent else {**x}
    said = present({"scale": 1.0, "softcap": r.said["softcap"]} if r.bent else r.said)
    out, lse = literal.attention(**operands, **said, scalar=scalar)
    if r.conventions.lse_sink == "excluded" and "sink" in operands:
        lse = literal.attention(**{name: y for name, y in operands.items() if name != "sink"}, **said, scalar=scalar)[1]
    return out.reshape(*r.visible.shape[:-1], x["v"].shape[-1]), per_unit(r, lse.reshape(r.visible.shape[:-1]))


def present(said: dict[str, Any]) -> dict[str, Any]:
    """The keywords, those left out that are not given."""
    return {name: value for name, value in said.items() if value is not None}


def per_unit(r: Reading, lse: Balls) -> Balls:
    """A log-sum-exp, or its derivative, in the base of the convention."""
    return lse * (1 / flint.arb(2).log()) if r.conventions.lse_base == "2" else lse


def _by_rows(r: Reading, x: dict[str, Balls], scalar: Context) -> dict[str, Any]:
    """q, k and v of rows that are heads of one query each, with scores scale·q·k + bias; −c where
    every key takes part, masked or not.
    """
    *batch, heads, n_q, n_k = r.visible.shape
    group, d, d_v = heads // x["k"].shape[-3], x["q"].shape[-1], x["v"].shape[-1]
    scale = 1 / flint.arb(max(d, 1)).sqrt() if r.said["scale"] is None else flint.arb(r.said["scale"])
    seen = r.visible.reshape(*batch, heads * n_q, n_k)

    def of_keys(y: Balls) -> Balls:
        spread = np.repeat(y, group, axis=-3)[..., :, None, :, :]
        return np.broadcast_to(spread, (*batch, heads, n_q, n_k, y.shape[-1])).reshape(
            *batch, heads * n_q, n_k, y.shape[-1]
        )

    nothing = np.broadcast_to(tensor(np.zeros(1), scalar), (*batch, heads * n_q, n_k))
    bias = nothing if "bias" not in x else np.broadcast_to(x["bias"], r.visible.shape).reshape(seen.shape)
    k = np.concatenate([of_keys(x["k"]), bias[..., None]], axis=-1)
    k = np.where(seen[..., None], k, nothing[..., None])
    ones = np.broadcast_to(tensor(np.ones(1), scalar), (*batch, heads * n_q, 1))
    q = np.concatenate([(x["q"] * scale).reshape(*batch, heads * n_q, d), ones], axis=-1)[..., None, :]
    found: dict[str, Any] = {"q": q, "k": k, "v": of_keys(x["v"]).reshape(*batch, heads * n_q, n_k, d_v)}
    if r.everything:
        found["bias"] = tensor(np.where(seen, 0.0, -float(r.said["softcap"])), scalar)[..., None, :]
    else:
        found["mask"] = seen[..., None, :]
    if "sink" in x:
        found["sink"] = np.repeat(x["sink"], n_q)
    return found


def with_dead_rows(r: Reading, out: Balls, lse: Balls, v: Balls) -> tuple[Balls, Balls]:
    """The output or its tangent, with fully masked rows by convention: the mean of `v` is the
    result of such a row if the convention is uniform.
    """
    out = out.copy()
    means = np.repeat(v, r.visible.shape[-3] // v.shape[-3], axis=-3)
    for at in zip(*np.nonzero(r.dead), strict=True):
        for column in range(out.shape[-1]):
            if r.conventions.dead_rows == "nan":
                out[*at, column] = flint.arb("nan")
            elif r.conventions.dead_rows == "uniform" and v.shape[-2]:
                out[*at, column] = sum(means[*at[:-1], :, column], flint.arb(0)) / v.shape[-2]
    return out, lse


def rows_of(given: Given, r: Reading, out: Balls, lse: Balls) -> tuple[Balls, Balls]:
    """The rows that are asked for, with heads as they were given."""
    rows = given.get("rows")
    chosen = slice(None) if rows is None else list(rows)
    return r.given(out)[..., chosen, :], r.given(lse[..., None])[..., chosen, 0]
