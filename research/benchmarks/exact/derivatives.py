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
    reading = read(given)
    if reading.bent:
        return jvp_by_series(given)
    tangents: dict[str, Any] = _tangents(reading, given)
    x, keywords = _operands(reading)
    if "alibi" in reading.x and "dbias" in tangents:
        tangents["dbias"] = np.broadcast_to(tangents["dbias"], x["bias"].shape)
    dout, dlse = derivatives.attention_jvp(**x, **tangents, **keywords, scalar=ARB)
    if reading.conventions.lse_sink == "excluded" and "sink" in x:
        alone = {name: y for name, y in (x | tangents).items() if "sink" not in name}
        dlse = derivatives.attention_jvp(**alone, **keywords, scalar=ARB)[1]
    return _tangents_of_rows(given, reading, dout, per_unit(reading, dlse), tangents)


def _operands(reading: Reading) -> tuple[dict[str, Any], dict[str, Any]]:
    """The definitions' arrays, as balls, and their other keywords."""
    return reading.with_alibi({name: tensor(y, ARB) for name, y in reading.x.items()}), present(reading.said)


def _tangents(reading: Reading, given: Given) -> dict[str, Balls]:
    """The tangents that are given, as balls, in the definitions' order of heads; 0 where an input is −∞."""
    results = {}
    for name, x in reading.x.items():
        if (dx := given.get("d" + name)) is not None:
            moved = (
                reading.meant(dx) if name in ("q", "bias") else dx[np.argsort(reading.order)] if name == "sink" else dx
            )
            results["d" + name] = tensor(np.where(x == -np.inf, 0.0, moved), ARB)
    return results


def jvp_by_series(given: Given) -> tuple[Balls, ...]:
    """(dout, dlse): the forward definition over series."""
    reading = read(given)
    tangents = _tangents(reading, given)
    zeros = {"d" + name: tensor(np.zeros(x.shape), ARB) for name, x in reading.x.items()}
    dout, dlse = _along(reading, zeros | tangents)
    return _tangents_of_rows(given, reading, dout, dlse, tangents)


def _tangents_of_rows(
    given: Given, reading: Reading, dout: Balls, dlse: Balls, tangents: dict[str, Balls]
) -> tuple[Balls, ...]:
    """The requested tangents, with fully masked rows by convention. In level rows dlse is the mean
    of dU, and dout is the mean of (dU − dlse)·v + dv.
    """
    dout, dlse = with_dead_rows(reading, dout, dlse, tangents["dv"])
    dbias = np.zeros(()) if given.get("dbias") is None else reading.meant(given["dbias"])
    dbias = np.broadcast_to(tensor(dbias, ARB), reading.visible.shape)
    level = np.zeros_like(dlse)
    for row, keys, scale, slope in _level_rows(reading):
        q, k, v, dq, dk = *(tensor(reading.x[name], ARB) for name in ("q", "k", "v")), tangents["dq"], tangents["dk"]
        ds = scale * (_products(dk[keys], q[row]) + _products(k[keys], dq[row]))
        du = slope * (ds + dbias[row]) if reading.bent else slope * ds + dbias[row]
        mean = _sum(du) / len(du)
        dout[row] += _products(v[keys].T, du - mean) / len(du)
        level[row] = mean
    return rows_of(given, reading, dout, dlse + per_unit(reading, level))


def _level_rows(reading: Reading) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], flint.arb, Balls]]:
    """Each level row (…, h, i), the place of its keys, the scale, and by key the slope 1 − tanh² of
    what is capped, 1 without a cap; a bias of −∞, which a fill stands for, counts as 0."""
    heads, kv_heads, n_k = reading.visible.shape[-3], reading.x["k"].shape[-3], reading.visible.shape[-1]
    q, k = (tensor(reading.x[name], ARB) for name in ("q", "k"))
    scale = (
        1 / flint.arb(max(q.shape[-1], 1)).sqrt() if reading.said["scale"] is None else flint.arb(reading.said["scale"])
    )
    bent = {name: reading.x[name] for name in ("bias", "alibi") if reading.bent and name in reading.x}
    bent |= {"bias": np.where(bent["bias"] == -np.inf, 0.0, bent["bias"])} if "bias" in bent else {}
    bias = reading.with_alibi({name: tensor(x, ARB) for name, x in bent.items()}).get("bias", tensor(np.zeros(()), ARB))
    bias = np.broadcast_to(bias, reading.visible.shape)
    for *b, h, i in zip(*np.nonzero(reading.level & bool(n_k)), strict=True):
        row, keys = (*b, h, i), (*b, h // (heads // kv_heads))
        slope = tensor(np.ones(n_k), ARB)
        if (cap := reading.said["softcap"]) is not None:
            capped = scale * _products(k[keys], q[row]) + bias[row]
            slope = np.array([1 - (s / flint.arb(cap)).tanh() ** 2 for s in capped])
        yield row, keys, scale, slope


def _products(rows: Balls, x: Balls) -> Balls:
    """Every row times x, 0 without columns."""
    return np.array([_sum(row * x) for row in rows])


def _sum(x: Balls) -> flint.arb:
    return sum(x.flat, flint.arb(0))


def _along(reading: Reading, tangents: dict[str, Balls]) -> tuple[Balls, Balls]:
    """The tangents of both results, 0 where a row has no key, or its log-sum-exp no summand."""
    out, lse = (
        derivative(y)
        for y in forward(
            reading, {name: taylor(tensor(x, ARB), tangents["d" + name]) for name, x in reading.x.items()}, ARB_SERIES
        )
    )
    silent = reading.keyless if reading.conventions.lse_sink == "excluded" else reading.dead
    zero = np.broadcast_to(tensor(np.zeros(1), ARB), silent.shape)
    return np.where(reading.keyless[..., None], zero[..., None], out), np.where(silent, zero, lse)


def attention_vjp(given: Given) -> tuple[Balls, ...]:
    """(dq, dk, dv, dbias, dsink), without the gradient of a bias or sink that the call does not
    have.
    """
    reading = read(given)
    if reading.bent:
        return vjp_by_series(given)
    g, of_lse = _cotangents(reading, given)
    x, keywords = _operands(reading)
    if reading.conventions.lse_sink == "excluded" and "sink" in x and of_lse is not None:
        alone = {name: y for name, y in x.items() if name != "sink"}
        first = derivatives.attention_vjp(**x, grad_out=g, **keywords, scalar=ARB)
        second = derivatives.attention_vjp(
            **alone, grad_out=tensor(np.zeros(g.shape), ARB), grad_lse=of_lse, **keywords, scalar=ARB
        )
        results = [a if b is None else a + b for a, b in zip(first, second, strict=True)]
    else:
        results = list(derivatives.attention_vjp(**x, grad_out=g, grad_lse=of_lse, **keywords, scalar=ARB))
    if "alibi" in reading.x:
        results[3] = _shared(results[3], reading.x["bias"].shape) if "bias" in reading.x else None
    return _with_ignored_bias(given, reading, _gradients(reading, g, of_lse, results))


def vjp_by_series(given: Given) -> tuple[Balls, ...]:
    """The same, entry by entry: along each unit vector, the forward definition over series."""
    reading = read(given)
    g, of_lse = _cotangents(reading, given)
    zeros = {"d" + name: tensor(np.zeros(x.shape), ARB) for name, x in reading.x.items()}
    results: list[Balls | None] = []
    for name in INPUTS:
        if name not in reading.x:
            results.append(None)
            continue
        gradient = tensor(np.zeros(reading.x[name].shape), ARB)
        for index in np.ndindex(gradient.shape):
            if reading.x[name][index] == -np.inf:
                continue
            unit = np.zeros(gradient.shape)
            unit[index] = 1.0
            dout, dlse = _along(reading, zeros | {"d" + name: tensor(unit, ARB)})
            gradient[index] = sum((g * dout).flat, flint.arb(0))
            if of_lse is not None:
                gradient[index] += sum((of_lse * _natural(reading, dlse)).flat, flint.arb(0))
        results.append(gradient)
    return _with_ignored_bias(given, reading, _gradients(reading, g, of_lse, results))


def _shared(x: Any, shape: tuple[int, ...]) -> Balls:
    """The sum of x over the axes along which an array of a shape broadcasts to it."""
    total = np.full(shape, flint.arb(0), object)
    places = np.broadcast_to(np.arange(total.size).reshape(shape), x.shape)
    for place, entry in zip(places.flat, x.flat, strict=True):
        total.flat[place] += entry
    return total


def _natural(reading: Reading, dlse: Balls) -> Balls:
    """The tangent of a natural log-sum-exp."""
    return dlse * flint.arb(2).log() if reading.conventions.lse_base == "2" else dlse


def _cotangents(reading: Reading, given: Given) -> tuple[Balls, Balls | None]:
    """The cotangents of the output and of a natural log-sum-exp, in the definitions' order of
    heads.
    """
    g, of_lse = given["grad_out"], given.get("grad_lse")
    return tensor(reading.meant(g), ARB), None if of_lse is None else per_unit(
        reading, tensor(reading.meant(of_lse[..., None])[..., 0], ARB)
    )


def _with_ignored_bias(given: Given, reading: Reading, gradients: tuple[Balls, ...]) -> tuple[Balls, ...]:
    """The gradients, with 0 for a bias that the call has and the convention ignores."""
    if given.get("bias") is None or "bias" in reading.x:
        return gradients
    return (*gradients[:3], tensor(np.zeros(given["bias"].shape), ARB), *gradients[3:])


def _gradients(reading: Reading, g: Balls, of_lse: Balls | None, results: list[Balls | None]) -> tuple[Balls, ...]:
    """The gradients in the caller's order of heads. Under the convention "uniform", fully masked
    rows give every key the same weight.
    """
    dq, dk, dv, dbias, dsink = results
    assert dq is not None
    assert dk is not None
    assert dv is not None
    if reading.conventions.dead_rows == "uniform":
        group, n_k = reading.visible.shape[-3] // dv.shape[-3], dv.shape[-2]
        for *b, h, i in zip(*np.nonzero(reading.dead), strict=True):
            for j in range(n_k):
                dv[*b, h // group, j] += g[*b, h, i] / n_k
    for row, keys, scale, slope in _level_rows(reading):
        q, k, v = (tensor(reading.x[name], ARB) for name in ("q", "k", "v"))
        dp = _products(v[keys], g[row])
        du = (dp - _sum(dp) / len(dp) + (flint.arb(0) if of_lse is None else of_lse[row])) / len(dp)
        ds = slope * du * scale
        dq[row] += _products(k[keys].T, ds)
        dk[keys] += ds[:, None] * q[row]
        if dbias is not None:
            for j, x in enumerate(slope * du if reading.bent else du):
                dbias[tuple(place % n for place, n in zip((*row, j)[-dbias.ndim :], dbias.shape, strict=True))] += x
    dq = reading.given(dq) if reading.order.size > 1 else dq
    dbias = dbias if dbias is None or dbias.ndim < 3 or dbias.shape[-3] == 1 else reading.given(dbias)
    dsink = None if dsink is None else dsink[reading.order]
    return tuple(x for x in (dq, dk, dv, dbias, dsink) if x is not None)
