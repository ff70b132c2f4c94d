"""Attention and its derivatives on balls (value ± radius), for any batch axes. Fully masked rows
follow `conventions.dead_rows`, and results are rounded to the output's format.

The public operations and multi-head attention call these functions.  Inputs may have radii, as
results of earlier operations have.  Outputs are balls that contain the exact value for all inputs
within the balls. Under an arithmetic they also contain the result of every covered kernel for these
inputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, Ball, ball, multiply, rounded
from oracles.conventions import Conventions
from oracles.error_analysis import statistical_line as likely
from oracles.error_analysis.computation import Sizes
from oracles.error_analysis.forward import keys_alone, rows_forward, uniform_rows
from oracles.error_analysis.grouped_heads import Gathered, rounded_to_output
from oracles.error_analysis.jvp import Tangents, rows_jvp
from oracles.error_analysis.logits import Tiled
from oracles.error_analysis.output_error import Rows, live
from oracles.error_analysis.own_arithmetic import KEY_TILE, OWN
from oracles.error_analysis.ranges import ranges
from oracles.error_analysis.roundings import terms
from oracles.error_analysis.scores import ROW_TILE, AttentionProblem, Inputs, Operand, offset
from oracles.error_analysis.visible_keys import Mask, Visible
from oracles.error_analysis.vjp import Gradient, gradients
from oracles.formats import Arithmetic

Index = tuple[int, ...] | EllipsisType

_LOG2E = Ball(np.array(1.4426950408889634), np.array(2 * ROUNDOFF))
"""The number log₂ e."""

TOGETHER = 1 << 18
"""The number of scores up to which all batches are handled together. Larger batches are handled one
by one.
"""


class Setting(NamedTuple):
    """An attention problem without its numbers.

    `visible` says which keys are visible to each row (query). `features` are its bias, softcap and
    sinks, or None. The certified value has one error bound for each row unless `sharp` is true.
    `group` query heads share a key head and are folded into one problem.
    """

    visible: Visible
    scale: float
    arithmetic: Arithmetic | None
    conventions: Conventions
    sharp: bool = False
    features: Tiled | None = None
    group: int = 1


def forward(inputs: Inputs, setting: Setting) -> tuple[Ball, Ball]:
    """Return the output and the log-sum-exp of each row's logits, (…, n_q, 1). The log-sum-exp is
    in the base of the convention. It is −∞ in a fully masked row.
    """
    lse = _room_for_rows(inputs.q, 1)
    return output(inputs, setting, lse), lse


def output(inputs: Inputs, setting: Setting, lse: Ball | None = None) -> Ball:
    """Return softmax(scale·q·kᵀ)·v over the visible keys, with bias, softcap and sinks. The
    log-sum-exp is written to `lse` if it is given.

    A statistical line (a likely error instead of a proved one) covers the output alone.
    """
    if (points := _points(inputs, setting)) is not None:
        certificate, budget = output(inputs, setting._replace(arithmetic=None)), output(inputs, _proved(setting), lse)
        with np.errstate(all="ignore"):
            lines = np.stack([likely.forward(x) for x, _ in points]).reshape(budget.mid.shape)
        return _below(budget, certificate, lines)
    out = _room_for_rows(inputs.q, inputs.v.shape[-1])
    with np.errstate(all="ignore"):
        for index, problem, _ in _pieces(inputs, setting):
            uniform = uniform_rows(problem) if setting.conventions.dead_rows == "uniform" and problem.n_k else None
            for rows in problem.row_tiles():
                found = rows_forward(problem, rows)
                _store(out, index, rows, *_of_rows(problem, setting, found.dead, uniform, found.out, found.error))
                if lse is not None:
                    _store(lse, index, rows, *_of_sums(problem, setting, rows, found))
    return out


def jvp(inputs: Inputs, tangents: Tangents, setting: Setting) -> tuple[Ball, Ball]:
    """Return the derivatives of the output and of the log-sum-exp in the direction of the tangents."""
    out, lse = _room_for_rows(inputs.q, inputs.v.shape[-1]), _room_for_rows(inputs.q, 1)
    with np.errstate(all="ignore"):
        for index, problem, (tq, tk, tv) in _pieces(inputs, setting, tangents.q, tangents.k, tangents.v):
            problem = _levelled(problem, setting.conventions)
            here = Tangents(tq, tk, tv, *tangents.of_features(index))
            uniform = uniform_rows(problem._replace(v=tv)) if _averages(setting) and problem.n_k else None
            for rows in problem.row_tiles():
                found = rows_jvp(problem, here, rows)
                _store(out, index, rows, *_of_rows(problem, setting, found.dead, uniform, found.dout, found.dout_error))
                _store(lse, index, rows, *_of_lse(setting, ball(found.dlse, found.dlse_error)))
    return out, lse


def _room_for_rows(q: Operand, columns: int) -> Ball:
    """Return an uninitialised ball (…, n_q, columns)."""
    shape = (*q.shape[:-1], columns)
    return Ball(np.empty(shape), np.empty(shape))


def _of_rows(
    problem: AttentionProblem, setting: Setting, dead: Mask | None, uniform: Rows | None, out: Array, error: Array
) -> tuple[Array, Array]:
    """Return an output, or its derivative, rounded to the output's format; fully masked rows follow
    `conventions.dead_rows`.
    """
    if uniform is not None and dead is not None:
        out, error = np.where(dead, uniform.out, out), np.where(dead, uniform.error, error)
    return _dead(dead, rounded_to_output(problem.terms, out, error), setting.conventions)


def _of_sums(problem: AttentionProblem, setting: Setting, rows: slice, found: Rows) -> tuple[Array, Array]:
    """Return the log-sum-exp of a tile of rows, rounded to its format; fully masked rows follow
    `conventions.dead_rows`.
    """
    found = keys_alone(problem, rows) or found
    mid, rad = _of_lse(setting, ball(found.lse, found.lse_error * (1 + 2.0**-48)))
    unchecked = np.inf if setting.conventions.dead_rows == "uniform" else 0.0
    return live(mid, found.dead, -np.inf), live(rad, found.dead, unchecked)


def _of_lse(setting: Setting, sums: Ball) -> tuple[Array, Array]:
    """Return a log-sum-exp, or its derivative, in the base of the convention, rounded to its
    format.
    """
    arithmetic = setting.arithmetic
    if setting.conventions.lse_base == "2":
        sums = multiply(sums, _LOG2E)
    if arithmetic is not None:
        sums = rounded(sums, arithmetic.saved_lse or arithmetic.elementwise, times=3, flush=arithmetic.flush_to_zero)
    return sums.mid, sums.rad


def vjp(
    inputs: Inputs, g: Operand, setting: Setting, of_lse: Array | None = None, finer: Sequence[Gathered] = ()
) -> tuple[Ball, ...]:
    """Return the gradients of Σ g ⊙ out with respect to q, k and v, where out is the attention
    output.

    The gradients of the bias and of the sinks are added to `finer`.  `of_lse` (…, n_q, 1) is the
    cotangent of the log-sum-exp, which adds Σ of_lse ⊙ lse to the differentiated sum. A statistical
    line (a likely error instead of a proved one) does not cover `of_lse`, bias, softcap or sinks:
    with these the proved budget stays.
    """
    if of_lse is None and setting.features is None and (points := _points(inputs, setting, g)) is not None:
        certificates, budgets = vjp(inputs, g, setting._replace(arithmetic=None)), vjp(inputs, g, _proved(setting))
        with np.errstate(all="ignore"):
            lines = list(zip(*(likely.vjp(x, rest[0]) for x, rest in points), strict=True))
        shaped = (np.stack(line).reshape(budget.mid.shape) for line, budget in zip(lines, budgets, strict=True))
        return tuple(_below(*each) for each in zip(budgets, certificates, shaped, strict=True))
    results = tuple(Ball(np.empty(x.shape), np.empty(x.shape)) for x in inputs)
    unchecked = setting.conventions.dead_rows == "nan"
    with np.errstate(all="ignore"):
        for index, problem, (cotangent,) in _pieces(inputs, setting, g):
            problem = _levelled(problem, setting.conventions)
            of = None if of_lse is None else of_lse[index]
            here = [x.at(index) for x in finer]
            found = gradients(problem, cotangent, unchecked, of, here)
            if _averages(setting):
                _add_mean(problem, cotangent, found.dv)
            for result, x in zip(results, found, strict=True):
                _store(result, index, slice(None), *rounded_to_output(problem.terms, x.value, x.error))
    return results


def _add_mean(problem: AttentionProblem, g: Operand, dv: Gradient) -> None:
    """Add to dv the gradient of fully masked rows whose output is the mean of all values: each adds
    g/n_k to every row of dv. Add its error too.
    """
    dead, t = _dead_rows(problem, slice(0, problem.n_q)), problem.terms
    reach = np.where(dead, g.reach, 0.0).sum(axis=-2, keepdims=True)
    size = reach / problem.n_k  # which may underflow
    uniform = uniform_rows(problem)
    relative = uniform.entry + uniform.common + t.queries_sum.positive + t.weights + t.product
    apart = problem.group if problem.group > 1 else 0  # heads whose own gradients are rounded
    relative = relative + (apart > 0) * t.output
    dv.value = dv.value + np.where(dead, g.raw, 0.0).sum(axis=-2, keepdims=True) / problem.n_k
    error = dv.error + np.expm1(relative) * size * (1 + 2.0**-40)
    error = error + t.weight_underflow * problem.n_k * size
    error = error + (t.sum_underflow + apart * t.output_underflow) * (reach > 0)
    error = np.where(4 * size <= (problem.ranges.output if apart else problem.ranges.gradients), error, np.inf)
    if g.rad is not None:
        error = error + np.where(dead, g.rad, 0.0).sum(axis=-2, keepdims=True) / problem.n_k
    dv.error = error


def _proved(setting: Setting) -> Setting:
    """Return the same setting without a statistical line."""
    arithmetic = setting.arithmetic
    return setting if arithmetic is None else setting._replace(arithmetic=replace(arithmetic, likely=None))


def _points(inputs: Inputs, setting: Setting, *others: Operand) -> list[tuple[likely.Point, list[Array]]] | None:
    """Return the elements of the batch in plain numbers, for a statistical line.

    Return None, so that the proved budget stays, in four cases: no line is asked for; sums are too
    short for a line below the budget; inputs have radii or are not finite; a row has no visible
    key.
    """
    (q, k, v), arithmetic = inputs, setting.arithmetic
    if arithmetic is None or arithmetic.likely is None or not q.value.size or not k.shape[-2]:
        return None
    if max(q.shape[-2:] + k.shape[-2:] + v.shape[-1:]) <= likely.SHORT:
        return None
    if any(x.rad is not None or x.unknown is not None for x in (*inputs, *others)):
        return None
    allowed = setting.visible.tile(slice(None), slice(0, k.shape[-2]))
    if allowed is not None:
        allowed = np.broadcast_to(allowed, (*q.shape[:-1], k.shape[-2]))
        if not allowed.any(axis=-1).all():
            return None
    features = setting.features or Tiled()
    return [
        (
            likely.Point(
                q.value[index],
                k.value[index],
                v.value[index],
                None if allowed is None else allowed[index],
                setting.scale,
                arithmetic,
                features.at(index),
                setting.group,
            ),
            [x.value[index] for x in others],
        )
        for index in np.ndindex(q.shape[:-2])
    ]


def _below(budget: Ball, certificate: Ball, line: Array) -> Ball:
    """Return the statistical line plus the oracle's own error, where that is below the budget and
    the budget is finite; elsewhere return the budget.
    """
    with np.errstate(all="ignore"):
        rad = np.fmin(budget.rad, line + certificate.rad)
    return Ball(budget.mid, np.where(np.isinf(budget.rad), np.inf, rad))


def _pieces(
    inputs: Inputs, setting: Setting, *others: Operand
) -> Iterator[tuple[Index, AttentionProblem, list[Operand]]]:
    """Yield the problem of each element of the batch with its index and the operands of the other
    inputs. Small problems come as one, for all batches together.
    """
    head, (n_q, d), (n_k, d_v) = inputs.q.shape[:-2], inputs.q.shape[-2:], inputs.v.shape[-2:]
    arithmetic = setting.arithmetic
    sinks = setting.features is not None and setting.features.sink is not None
    biases = 0 if setting.features is None else setting.features.first_summands
    sizes = Sizes(n_q, n_k, d, d_v, setting.scale, sinks, biases)
    own = terms(None, sizes)
    together = own if arithmetic is None else terms(arithmetic, sizes)
    small = prod(head) * n_q * n_k <= TOGETHER
    room = np.empty((5, *(head if small else ()), min(n_q, ROW_TILE), min(n_k, KEY_TILE)))
    for index in [...] if small else np.ndindex(head):
        operands = [x[index] for x in (*inputs, *others)]
        elementwise = setting.sharp or arithmetic is not None or any(x.rad is not None for x in operands)
        drops = setting.features is not None and setting.features.kept is not None
        all_read = (
            setting.visible.everything and n_k > 0 and not sinks and not drops
        )  # else a centre would depend on what is not read, or miss a sink or a weight
        yield (
            index,
            AttentionProblem(
                q=operands[0],
                k=operands[1],
                v=operands[2],
                visible=setting.visible.at(index),
                features=None if setting.features is None else setting.features.at(index),
                scale=setting.scale,
                terms=together,
                own=own,
                delta=OWN.delta if arithmetic is None else arithmetic.delta,
                ranges=ranges(arithmetic),
                elementwise=elementwise,
                centre=offset(operands[2]) if elementwise and all_read else 0.0,
                room=room,
                lse_without_sink=setting.conventions.lse_sink == "excluded",
                group=1 if arithmetic is None else setting.group,
            ),
            operands[3:],
        )


def _dead(dead: Mask | None, result: tuple[Array, Array], conventions: Conventions) -> tuple[Array, Array]:
    """Return the result with the expected value of fully masked rows: NaN under `dead_rows` = nan,
    exactly 0 under zero. Under uniform the result stays.
    """
    mid, rad = result
    if conventions.dead_rows == "uniform" or dead is None:
        return mid, rad
    value = np.nan if conventions.dead_rows == "nan" else 0.0
    return np.where(dead, value, mid), np.where(dead, 0.0, rad)


def _dead_rows(problem: AttentionProblem, rows: slice) -> Mask:
    """Return which rows (rows, 1) have no visible key and no sink."""
    head = problem.q.shape[:-2]
    dead = np.ones((*head, rows.stop - rows.start, 1), dtype=bool)
    for _, allowed in problem.key_tiles(rows):
        dead &= False if allowed is None else ~allowed.any(axis=-1, keepdims=True)
    if problem.features is not None and problem.features.sink is not None:
        dead &= problem.features.sink[..., rows, :] == -np.inf
    return dead


def _averages(setting: Setting) -> bool:
    """Return whether fully masked rows have the derivatives of a mean with constant weights."""
    return setting.conventions.dead_rows == "uniform" and not setting.conventions.dead_rows_flow


def _levelled(problem: AttentionProblem, conventions: Conventions) -> AttentionProblem:
    """Return the problem from which derivatives are computed. If gradients flow through fully
    masked rows, all keys are visible to these rows, by equal logits.
    """
    dead = _dead_rows(problem, slice(0, problem.n_q)) if conventions.dead_rows_flow else None
    return problem if dead is None or not dead.any() else problem._replace(level=dead)


def _store(result: Ball, index: Index, rows: slice, mid: Array, rad: Array) -> None:
    """Write one part of a result."""
    place: Any = (index, rows, slice(None)) if index is ... else (*index, rows, slice(None))
    result.mid[place], result.rad[place] = mid, rad
