"""The exact values of attention as it is used today, of its merge and of ALiBi, by every convention: `spec.extended` over balls.

Each function takes one mapping, the arguments of the oracle of its name by keyword, and returns balls at the working precision. The
definitions have one reading, the default conventions; another one is put together from other arguments: heads in another order, a window
that is one narrower, a log-sum-exp in other units. A cap that does not act before the bias is one on the scores of longer vectors: of q
and 1 with k and the bias, for which each row is a head of its own.

The derivatives are those that `spec.extended` writes out, or those of the forward definition over series (`by_series`), which know no
formula: the only ones where a cap acts after the bias.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from oracles import Conventions
from spec import ARB, ARB_SERIES, derivative, taylor, tensor
from spec.context import Context
from spec.extended import attention as literal
from spec.extended import attention_derivatives as derivatives
from spec.extended.alibi import alibi_bias as literal_bias
from spec.extended.alibi import alibi_slopes as literal_slopes
from spec.extended.attention_steps import visible_keys
from spec.tensor_core import Array as Balls

__all__ = ["alibi_bias", "alibi_slopes", "attention", "attention_jvp", "attention_vjp", "by_series", "merge_attention", "unread_keys"]

Given = Mapping[str, Any]
INPUTS = ("q", "k", "v", "bias", "sink")


@dataclass(frozen=True)
class Reading:
    """A call in the definitions' own words.

    x           q, k and v, and bias and sink where there are such, as float64 arrays
    said        the other keywords of the definitions
    order       where each of the heads that were given stands among those of x
    conventions those that are left to be followed
    visible     which keys each row may read
    """

    x: dict[str, Any]
    said: dict[str, Any]
    order: Any
    conventions: Conventions
    visible: Any

    @property
    def bent(self) -> bool:
        """Whether a cap acts on what is no score."""
        return self.said["softcap"] is not None and self.conventions.softcap_order != "before_bias"

    @property
    def everything(self) -> bool:
        """Whether every key takes part, blocked or not."""
        return self.said["softcap"] is not None and self.conventions.softcap_order == "after_mask"

    @property
    def keyless(self) -> Any:
        """Which rows have no key."""
        seen = self.visible | self.everything
        return ~seen.any(axis=-1)

    @property
    def dead(self) -> Any:
        """Which rows have neither a key nor a sink."""
        return self.keyless & (self.x["sink"] == -np.inf)[:, None] if "sink" in self.x else self.keyless

    def given(self, found: Balls) -> Balls:
        """Results (…, H, n_q, ·) with heads as they were given."""
        return np.take(found, self.order, axis=-3)

    def meant(self, x: Any) -> Any:
        """What goes with heads (…, H, ·, ·) or is shared by them, in the definitions' order."""
        shared = x.ndim < 3 or x.shape[-3] == 1
        return x if shared else np.take(x, np.argsort(self.order), axis=-3)


def read(given: Given) -> Reading:
    """What a call of the oracle means."""
    c: Conventions = given.get("conventions") or Conventions()
    q, k, v = (np.asarray(given[name], dtype=np.float64) for name in ("q", "k", "v"))
    heads, shape = q.shape[-3], (*q.shape[:-1], k.shape[-2])
    mask, causal, (left, right) = given.get("mask"), given.get("causal", False), given.get("window", (None, None))
    if mask is not None and c.mask_polarity == "true_blocks":
        mask = ~mask
    if mask is not None and causal:
        mask, causal = {"mask_wins": (mask, False), "causal_wins": (None, True)}.get(c.causal_with_mask, (mask, causal))
    if left is not None and c.window == "count":
        left -= 1
    offset = given.get("offset")
    if offset is None:
        offset = shape[-1] - shape[-2] if c.causal == "bottom_right" else 0
    scale = 1.0 if given.get("scale") is None and c.scale_default == "one" else given.get("scale")
    tiled = np.arange(heads).reshape(-1, k.shape[-3]).T.ravel()
    order = np.argsort(tiled) if c.kv_heads == "tile" else np.arange(heads)
    reading = Reading({}, {}, order, c, None)
    x = {"q": reading.meant(q) if heads > 1 else q, "k": k, "v": v}
    if given.get("bias") is not None:
        x["bias"] = reading.meant(given["bias"])
    if given.get("sink") is not None:
        x["sink"] = given["sink"][np.argsort(order)]
    mask = None if mask is None else reading.meant(mask)
    visible = visible_keys(shape, mask=mask, causal=causal, offset=offset, window=(left, right))
    if "bias" in x:
        visible = visible & np.broadcast_to(x["bias"] > -np.inf, shape)
    said = {"mask": mask, "causal": causal, "offset": offset, "window": (left, right), "scale": scale, "softcap": given.get("softcap")}
    return Reading(x, said, order, c, visible)


def unread_keys(given: Given) -> Any:
    """Which keys (…, H_kv, n_k) no row reads, and whose numbers may be anything; a row that is dead may read the mean of all."""
    r = read(given)
    all_alike = r.dead & (r.conventions.dead_rows == "uniform")
    seen = (r.visible | r.everything | all_alike[..., None]).any(axis=-2)
    kv_heads = given["k"].shape[-3]
    return ~seen.reshape(*seen.shape[:-2], kv_heads, seen.shape[-2] // kv_heads, seen.shape[-1]).any(axis=-2)


# -- Attention -----------------------------------------------------------------------------------------------------------------


def attention(given: Given) -> tuple[Balls, ...]:
    """(out, lse)."""
    r = read(given)
    out, lse = forward(r, {name: tensor(x, ARB) for name, x in r.x.items()}, ARB)
    return rows_of(given, r, *_with_dead_rows(r, out, lse, tensor(r.x["v"], ARB)))


def forward(r: Reading, x: dict[str, Balls], scalar: Context) -> tuple[Balls, Balls]:
    """(out, lse) over a scalar, in the definitions' order of heads; dead rows as the definitions have them."""
    operands, said = (_by_rows(r, x, scalar), {"scale": 1.0, "softcap": r.said["softcap"]}) if r.bent else (x, r.said)
    operands, said = _unscaled(operands, said)
    out, lse = literal.attention(**operands, **said, scalar=scalar)
    if r.conventions.lse_sink == "excluded" and "sink" in operands:
        lse = literal.attention(**{name: y for name, y in operands.items() if name != "sink"}, **said, scalar=scalar)[1]
    return out.reshape(*r.visible.shape[:-1], x["v"].shape[-1]), _per_unit(r, lse.reshape(r.visible.shape[:-1]))


def _unscaled(x: dict[str, Any], said: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The operands and the keywords, those left out that are not given."""
    return x, {name: value for name, value in said.items() if value is not None}


def _per_unit(r: Reading, lse: Balls) -> Balls:
    """A log-sum-exp, or its derivative, in the base of the convention."""
    return lse * (1 / flint.arb(2).log()) if r.conventions.lse_base == "2" else lse


def _by_rows(r: Reading, x: dict[str, Balls], scalar: Context) -> dict[str, Any]:
    """q, k and v of rows that are heads of one query each, with scores scale·q·k + bias; −c where every key takes part, blocked or not."""
    *batch, heads, n_q, n_k = r.visible.shape
    group, d, d_v = heads // x["k"].shape[-3], x["q"].shape[-1], x["v"].shape[-1]
    scale = 1 / flint.arb(max(d, 1)).sqrt() if r.said["scale"] is None else flint.arb(r.said["scale"])
    seen = r.visible.reshape(*batch, heads * n_q, n_k)

    def of_keys(y: Balls) -> Balls:
        spread = np.repeat(y, group, axis=-3)[..., :, None, :, :]
        return np.broadcast_to(spread, (*batch, heads, n_q, n_k, y.shape[-1])).reshape(*batch, heads * n_q, n_k, y.shape[-1])

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


def _with_dead_rows(r: Reading, out: Balls, lse: Balls, v: Balls) -> tuple[Balls, Balls]:
    """out, or its tangent, with dead rows by convention: `v` is what they may have the mean of."""
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


# -- Derivatives ---------------------------------------------------------------------------------------------------------------


def attention_jvp(given: Given) -> tuple[Balls, ...]:
    """(dout, dlse)."""
    r = read(given)
    if r.bent:
        return by_series(given)
    tangents = _tangents(r, given)
    x, said = _unscaled({name: tensor(y, ARB) for name, y in r.x.items()}, r.said)
    dout, dlse = derivatives.attention_jvp(**x, **tangents, **said, scalar=ARB)
    if r.conventions.lse_sink == "excluded" and "sink" in x:
        x, tangents = ({name: y for name, y in of.items() if "sink" not in name} for of in (x, tangents))
        dlse = derivatives.attention_jvp(**x, **tangents, **said, scalar=ARB)[1]
    return rows_of(given, r, *_with_dead_rows(r, dout, _per_unit(r, dlse), tangents["dv"]))


def _tangents(r: Reading, given: Given) -> dict[str, Balls]:
    """The tangents that are given, as balls, in the definitions' order of heads; 0 where an input is −∞."""
    found = {}
    for name, x in r.x.items():
        if (dx := given.get("d" + name)) is not None:
            moved = r.meant(dx) if name in ("q", "bias") else dx[np.argsort(r.order)] if name == "sink" else dx
            found["d" + name] = tensor(np.where(x == -np.inf, 0.0, moved), ARB)
    return found


def by_series(given: Given) -> tuple[Balls, ...]:
    """(dout, dlse): the forward definition over series."""
    r = read(given)
    tangents = _tangents(r, given)
    zeros = {"d" + name: tensor(np.zeros(x.shape), ARB) for name, x in r.x.items()}
    dout, dlse = _along(r, zeros | tangents)
    return rows_of(given, r, *_with_dead_rows(r, dout, dlse, tangents["dv"]))


def _along(r: Reading, tangents: dict[str, Balls]) -> tuple[Balls, Balls]:
    """The tangents of both results, 0 where a row has no key, or its log-sum-exp no summand."""
    out, lse = (
        derivative(y) for y in forward(r, {name: taylor(tensor(x, ARB), tangents["d" + name]) for name, x in r.x.items()}, ARB_SERIES)
    )
    silent = r.keyless if r.conventions.lse_sink == "excluded" else r.dead
    zero = np.broadcast_to(tensor(np.zeros(1), ARB), silent.shape)
    return np.where(r.keyless[..., None], zero[..., None], out), np.where(silent, zero, lse)


def attention_vjp(given: Given) -> tuple[Balls, ...]:
    """(dq, dk, dv, dbias, dsink), those of a bias or sink that is not given left out."""
    r = read(given)
    if r.bent:
        return vjp_by_series(given)
    g, of_lse = _cotangents(r, given)
    x, said = _unscaled({name: tensor(y, ARB) for name, y in r.x.items()}, r.said)
    if r.conventions.lse_sink == "excluded" and "sink" in x and of_lse is not None:
        alone = {name: y for name, y in x.items() if name != "sink"}
        first = derivatives.attention_vjp(**x, grad_out=g, **said, scalar=ARB)
        second = derivatives.attention_vjp(**alone, grad_out=tensor(np.zeros(g.shape), ARB), grad_lse=of_lse, **said, scalar=ARB)
        found = [a if b is None else a + b for a, b in zip(first, second, strict=True)]
    else:
        found = list(derivatives.attention_vjp(**x, grad_out=g, grad_lse=of_lse, **said, scalar=ARB))
    return _gradients(r, g, found)


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
    return _gradients(r, g, found)


def _natural(r: Reading, dlse: Balls) -> Balls:
    """The tangent of a natural log-sum-exp."""
    return dlse * flint.arb(2).log() if r.conventions.lse_base == "2" else dlse


def _cotangents(r: Reading, given: Given) -> tuple[Balls, Balls | None]:
    """Those of the output and of a natural log-sum-exp, in the definitions' order of heads."""
    g, of_lse = given["grad_out"], given.get("grad_lse")
    return tensor(r.meant(g), ARB), None if of_lse is None else _per_unit(r, tensor(r.meant(of_lse[..., None])[..., 0], ARB))


def _gradients(r: Reading, g: Balls, found: list[Balls | None]) -> tuple[Balls, ...]:
    """The gradients with heads as they were given; dead rows read all keys alike under that convention."""
    dq, dk, dv, dbias, dsink = found
    assert dv is not None
    if r.conventions.dead_rows == "uniform":
        group, n_k = r.visible.shape[-3] // dv.shape[-3], dv.shape[-2]
        for *b, h, i in zip(*np.nonzero(r.dead), strict=True):
            for j in range(n_k):
                dv[*b, h // group, j] += g[*b, h, i] / n_k
    dq = r.given(dq) if r.order.size > 1 else dq
    dbias = dbias if dbias is None or dbias.ndim < 3 or dbias.shape[-3] == 1 else r.given(dbias)
    dsink = None if dsink is None else dsink[r.order]
    return tuple(x for x in (dq, dk, dv, dbias, dsink) if x is not None)


# -- Merge and ALiBi -----------------------------------------------------------------------------------------------------------


def merge_attention(given: Given) -> tuple[Balls, ...]:
    """(out, lse)."""
    c: Conventions = given.get("conventions") or Conventions()
    unit = flint.arb(2).log() if c.lse_base == "2" else flint.arb(1)
    x = {name: tensor(given[name], ARB) for name in ("out_a", "lse_a", "out_b", "lse_b")}
    for name in ("lse_a", "lse_b"):
        x[name] = np.where(given[name] == -np.inf, x[name], x[name] * unit)
    out, lse = literal.merge_attention(**x, scalar=ARB)
    dead = np.maximum(given["lse_a"], given["lse_b"]) == -np.inf
    if c.dead_rows == "nan":
        out = np.where(dead[..., None], flint.arb("nan"), out)
    return out, np.where(dead, lse, lse * (1 / unit))


def alibi_slopes(given: Given) -> tuple[Balls, ...]:
    """(slopes,)."""
    c, n = given.get("conventions") or Conventions(), given["num_heads"]
    if c.alibi_slopes == "press":
        return (literal_slopes(n, scalar=ARB),)
    return (np.array([flint.arb(2) ** (flint.arb(-8 * h) / n) for h in range(1, n + 1)], dtype=object),)


def alibi_bias(given: Given) -> tuple[Balls, ...]:
    """(bias,)."""
    c: Conventions = given.get("conventions") or Conventions()
    n, n_q, n_k, offset = (given.get(name) for name in ("num_heads", "n_q", "n_k", "offset"))
    if offset is None:
        offset = n_k - n_q if c.causal == "bottom_right" else 0
    if c.alibi_slopes == "press" and c.alibi_reference == "distance":
        return (literal_bias(n, n_q, n_k, offset=offset, scalar=ARB),)
    p, j = np.arange(n_q)[:, None] + offset, np.arange(n_k)
    steps = -abs(p - j) if c.alibi_reference == "distance" else j + 0 * p
    (slopes,) = alibi_slopes(given)
    return (slopes[:, None, None] * steps.astype(object),)
