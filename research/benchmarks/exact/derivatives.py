"""The exact derivatives of attention, by the formulas of `spec.extended`, or by the forward
definition over series.

Series use no formula. They are the only way if a softcap acts after the bias, and an independent
check elsewhere.

A fully masked row may have the derivatives of equal logits. Neither way computes these: the weights
are 1/n_k for all scores, and a logit moves with its score by the slope of the softcap. The module
adds the contributions of such rows.
"""

from collections.abc import Iterator
from typing import Any

import flint
import numpy as np

from research.benchmarks.exact.attention import forward, per_unit, present, rows_of, with_dead_rows
from research.benchmarks.exact.reading import Given, Reading, read
from spec import ARB, ARB_SERIES, derivative, taylor, tensor
from spec.extended import attention_derivatives as derivatives
from spec.tensor_core import Array as Balls

__all__ = ["attention_jvp", "attention_vjp", "jvp_by_series", "vjp_by_series"]

INPUTS = ("q", "k", "v", "bias", "sink")


def attention_jvp(given: Given) -> tuple[Balls, ...]:
    """(dout, dlse)."""
    r = read(given)
    if r.bent:
        return jvp_by_series(given)
    tangents: dict[str, Any] = _tangents(r, given)
    x, said = _operands(r)
    dout, dlse = derivatives.attention_jvp(**x, **tangents, **said, scalar=ARB)
    if r.conventions.lse_sink == "excluded" and "sink" in x:
        alone = {name: y for name, y in (x | tangents).items() if "sink" not in name}
        dlse = derivatives.attention_jvp(**alone, **said, scalar=ARB)[1]
    return _tangents_of_rows(given, r, dout, per_unit(r, dlse), tangents)


def _operands(r: Reading) -> tuple[dict[str, Any], dict[str, Any]]:
    """The definitions' arrays, as balls, and their other keywords."""
    return {name: tensor(y, ARB) for name, y in r.x.items()}, present(r.said)


def _tangents(r: Reading, given: Given) -> dict[str, Balls]:
    """The tangents that are given, as balls, in the definitions' order of heads; 0 where an input is −∞."""
    found = {}
    for name, x in r.x.items():
        if (dx := given.get("d" + name)) is not None:
            moved = r.meant(dx) if name in ("q", "bias") else dx[np.argsort(r.order)] if name == "sink" else dx
            found["d" + name] = tensor(np.where(x == -np.inf, 0.0, moved), ARB)
    return found


def jvp_by_series(given: Given) -> tuple[Balls, ...]:
    """(dout, dlse): the forward definition over series."""
    r = read(given)
    tangents = _tangents(r, given)
    zeros = {"d" + name: tensor(np.zeros(x.shape), ARB) for name, x in r.x.items()}
    dout, dlse = _along(r, zeros | tangents)
    return _tangents_of_rows(given, r, dout, dlse, tangents)


def _tangents_of_rows(
    given: Given, r: Reading, dout: Balls, dlse: Balls, tangents: dict[str, Balls]
) -> tuple[Balls, ...]:
    """The requested tangents, with fully masked rows by convention. In level rows dlse is the mean
    of dU, and dout is the mean of (dU − dlse)·v + dv.
    """
    dout, dlse = with_dead_rows(r, dout, dlse, tangents["dv"])
    dbias = np.zeros(()) if given.get("dbias") is None else r.meant(given["dbias"])
    dbias = np.broadcast_to(tensor(dbias, ARB), r.visible.shape)
    level = np.zeros_like(dlse)
    for row, keys, scale, slope in _level_rows(r):
        q, k, v, dq, dk = *(tensor(r.x[name], ARB) for name in ("q", "k", "v")), tangents["dq"], tangents["dk"]
        ds = scale * (_products(dk[keys], q[row]) + _products(k[keys], dq[row]))
        du = slope * (ds + dbias[row]) if r.bent else slope * ds + dbias[row]
        mean = _sum(du) / len(du)
        dout[row] += _products(v[keys].T, du - mean) / len(du)
        level[row] = mean
    return rows_of(given, r, dout, dlse + per_unit(r, level))


def _level_rows(r: Reading) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], flint.arb, Balls]]:
    """Each level row (…, h, i), the place of its keys, the scale, and by key the slope 1 − tanh² of
    what is capped, 1 without a cap; a bias of −∞, which a fill stands for, counts as 0."""
    heads, kv_heads, n_k = r.visible.shape[-3], r.x["k"].shape[-3], r.visible.shape[-1]
    q, k = (tensor(r.x[name], ARB) for name in ("q", "k"))
    scale = 1 / flint.arb(max(q.shape[-1], 1)).sqrt() if r.said["scale"] is None else flint.arb(r.said["scale"])
    bias = r.x["bias"] if r.bent and "bias" in r.x else np.zeros(())
    bias = np.broadcast_to(tensor(np.where(bias == -np.inf, 0.0, bias), ARB), r.visible.shape)
    for *b, h, i in zip(*np.nonzero(r.level & bool(n_k)), strict=True):
        row, keys = (*b, h, i), (*b, h // (heads // kv_heads))
        slope = tensor(np.ones(n_k), ARB)
        if (cap := r.said["softcap"]) is not None:
            capped = scale * _products(k[keys], q[row]) + bias[row]
            slope = np.array([1 - (s / flint.arb(cap)).tanh() ** 2 for s in capped])
        yield row, keys, scale, slope


def _products(rows: Balls, x: Balls) -> Balls:
    """Every row times x, 0 without columns."""
    return np.array([_sum(row * x) for row in rows])


def _sum(x: Balls) -> flint.arb:
    return sum(x.flat, flint.arb(0))


def _along(r: Reading, tangents: dict[str, Balls]) -> tuple[Balls, Balls]:
    """The tangents of both results, 0 where a row has no key, or its log-sum-exp no summand."""
    out, lse = (
        derivative(y)
        for y in forward(r, {name: taylor(tensor(x, ARB), tangents["d" + name]) for name, x in r.x.items()}, ARB_SERIES)
    )
    silent = r.keyless if r.conventions.lse_sink == "excluded" else r.dead
    zero = np.broadcast_to(tensor(np.zeros(1), ARB), silent.shape)
    return np.where(r.keyless[..., None], zero[..., None], out), np.where(silent, zero, lse)


def attention_vjp(given: Given) -> tuple[Balls, ...]:
    """(dq, dk, dv, dbias, dsink), without the gradient of a bias or sink that the call does not
    have.
    """
    r = read(given)
    if r.bent:
        return vjp_by_series(given)
    g, of_lse = _cotangents(r, given)
    x, said = _operands(r)
    if r.conventions.lse_sink == "excluded" and "sink" in x and of_lse is not None:
        alone = {name: y for name, y in x.items() if name != "sink"}
        first = derivatives.attention_vjp(**x, grad_out=g, **said, scalar=ARB)
        second = derivatives.attention_vjp(
            **alone, grad_out=tensor(np.zeros(g.shape), ARB), grad_lse=of_lse, **said, scalar=ARB
        )
        found = [a if b is None else a + b for a, b in zip(first, second, strict=True)]
    else:
        found = list(derivatives.attention_vjp(**x, grad_out=g, grad_lse=of_lse, **said, scalar=ARB))
    return _gradients(r, g, of_lse, found)


def vjp_by_series(given: Given) -> tuple[Balls, ...]:
    """The same, entry by entry: along each unit vector, the forward definition over series."""
    r = read(given)
    g, of_lse = _cotangents(r, given)
    zeros = {"d" + name: tensor(np.zeros(x.shape), ARB) for name, x in r.x.items()}
    found: list[Balls | None] = []
    for name in INPUTS:
        if name not in r.x:
            found.append(None)
            continue
        gradient = tensor(np.zeros(r.x[name].shape), ARB)
        for index in np.ndindex(gradient.shape):
            if r.x[name][index] == -np.inf:
                continue
            unit = np.zeros(gradient.shape)
            unit[index] = 1.0
            dout, dlse = _along(r, zeros | {"d" + name: tensor(unit, ARB)})
            gradient[index] = sum((g * dout).flat, flint.arb(0))
            if of_lse is not None:
                gradient[index] += sum((of_lse * _natural(r, dlse)).flat, flint.arb(0))
        found.append(gradient)
    return _gradients(r, g, of_lse, found)


def _natural(r: Reading, dlse: Balls) -> Balls:
    """The tangent of a natural log-sum-exp."""
    return dlse * flint.arb(2).log() if r.conventions.lse_base == "2" else dlse


def _cotangents(r: Reading, given: Given) -> tuple[Balls, Balls | None]:
    """The cotangents of the output and of a natural log-sum-exp, in the definitions' order of
    heads.
    """
    g, of_lse = given["grad_out"], given.get("grad_lse")
    return tensor(r.meant(g), ARB), None if of_lse is None else per_unit(
        r, tensor(r.meant(of_lse[..., None])[..., 0], ARB)
    )


def _gradients(r: Reading, g: Balls, of_lse: Balls | None, found: list[Balls | None]) -> tuple[Balls, ...]:
    """The gradients in the caller's order of heads. Under the convention "uniform", fully masked
    rows give every key the same weight.
    """
    dq, dk, dv, dbias, dsink = found
    assert dq is not None
    assert dk is not None
    assert dv is not None
    if r.conventions.dead_rows == "uniform":
        group, n_k = r.visible.shape[-3] // dv.shape[-3], dv.shape[-2]
        for *b, h, i in zip(*np.nonzero(r.dead), strict=True):
            for j in range(n_k):
                dv[*b, h // group, j] += g[*b, h, i] / n_k
    for row, keys, scale, slope in _level_rows(r):
        q, k, v = (tensor(r.x[name], ARB) for name in ("q", "k", "v"))
        dp = _products(v[keys], g[row])
        du = (dp - _sum(dp) / len(dp) + (flint.arb(0) if of_lse is None else of_lse[row])) / len(dp)
        ds = slope * du * scale
        dq[row] += _products(k[keys].T, ds)
        dk[keys] += ds[:, None] * q[row]
        if dbias is not None:
            for j, x in enumerate(slope * du if r.bent else du):
                dbias[tuple(at % n for at, n in zip((*row, j)[-dbias.ndim :], dbias.shape, strict=True))] += x
    dq = r.given(dq) if r.order.size > 1 else dq
    dbias = dbias if dbias is None or dbias.ndim < 3 or dbias.shape[-3] == 1 else r.given(dbias)
    dsink = None if dsink is None else dsink[r.order]
    return tuple(x for x in (dq, dk, dv, dbias, dsink) if x is not None)
