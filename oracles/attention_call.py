"""The validated call of attention: its folded problem, its evaluation, and its results in the
caller's axes.

Query heads that share a key head are folded: they become one problem with the rows of all of them.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.arb_matrix import Rationals
from oracles.ball import ROUNDOFF, UNDERFLOW, Array, Ball, gamma
from oracles.enclosure import Enclosure
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.computation import step
from oracles.error_analysis.grouped_heads import Gathered, Heads, Shared
from oracles.error_analysis.logits import Features, Tiled
from oracles.error_analysis.scores import Inputs, Operand, operand
from oracles.error_analysis.visible_keys import Mask
from oracles.judging import Balls, Evaluation, Method, attention_is_vacuous, settle, zero_is_accepted
from oracles.quantised import Numbers


class AttentionCall(NamedTuple):
    """Validated arguments of attention, with query heads folded by key head.

    numbers  the numbers that q, k and v are, or that their codes stand for; of q the `chosen` rows only
    lead     the given shape of query rows: (…, H, n_q), or (…, n_q) without an axis of heads
    options  the options for ball arithmetic
    bias     the given shape of the bias; None without a bias that has an effect
    sink     the shape (H, 1, 1) of the sinks, with axes for rows and columns; None without sinks
    ignored_bias  the given shape of a bias without an effect; None without one
    """

    numbers: tuple[Numbers, Numbers, Numbers]
    lead: tuple[int, ...]
    chosen: NDArray[np.int64]
    heads: Heads
    setting: Setting
    method: Method
    options: dict[str, Any]
    bias: tuple[int, ...] | None = None
    sink: tuple[int, ...] | None = None
    ignored_bias: tuple[int, ...] | None = None

    @property
    def q(self) -> Array:
        """The chosen queries, next to their exact numbers."""
        return self.numbers[0].values

    @property
    def k(self) -> Array:
        """The keys, next to their exact numbers."""
        return self.numbers[1].values

    @property
    def v(self) -> Array:
        """The values, next to their exact numbers."""
        return self.numbers[2].values

    @property
    def inputs(self) -> Inputs:
        """The queries, keys and values as operands."""
        return Inputs(*(operand(x.values, x.radii) for x in self.numbers))

    @property
    def exact_inputs(self) -> tuple[Array | Rationals, ...]:
        """The queries, keys and values as exact numbers, some of them as rationals."""
        return tuple(x.values if x.quotients is None else x.quotients for x in self.numbers)

    def thinned(self, x: Operand) -> Operand:
        """Return an operand over 1 − p, where dropout has the probability p; the operand itself without
        dropout. Either the values of a forward pass or the cotangent of a backward pass are divided.

        A kernel rounds p, 1 − p, its reciprocal and the product. The error of p is p/(1 − p) times as
        large in 1 − p, and the others are γ₃. The oracle itself rounds 1 − p and the quotient. The
        sum ρ of these relative errors is at least γ₄, so 1 + 3ρ covers 1 + ρ and the roundings of the
        quotient of a radius.

        Near zero a quotient has an absolute error. A kernel's is at most η, or η/(1 − p) if it flushes x
        itself (η is `step`). Of the oracle's own two quotients and products, each has at most 2⁻¹⁰⁷⁴, so
        all are below 2⁻¹⁰²².
        """
        f, arithmetic = self.setting.features, self.setting.arithmetic
        if f is None or f.kept is None:
            return x
        kept, odds = 1 - f.dropout, f.dropout / (1 - f.dropout)
        relative, underflow = gamma(4, ROUNDOFF), UNDERFLOW
        if arithmetic is not None:
            u = arithmetic.elementwise.unit_roundoff
            relative += gamma(3, u) + odds * gamma(1, u)
            underflow += step(arithmetic.elementwise, arithmetic) / kept
        quotient = x.raw / kept
        own = 0.0 if x.rad is None else (1 + 3 * relative) * (x.rad / kept)
        return operand(quotient, relative * np.abs(quotient) + own + underflow * (x.reach != 0))

    @property
    def work(self) -> int:
        """The number of multiplications in one forward pass. An exponential counts as 8, and so
        does a hyperbolic tangent.
        """
        scores = prod(self.q.shape[:-1]) * int(self.k.shape[-2])
        elementary = 8 if self.setting.features is None or self.setting.features.cap is None else 16
        return scores * (int(self.q.shape[-1]) + int(self.v.shape[-1]) + elementary)

    @property
    def full(self) -> tuple[int, ...]:
        """The shape (…, H, n_q, n_k) of all scores, with an axis of heads."""
        return (*self.q.shape[:-3], self.heads.heads, self.lead[-1], self.k.shape[-2])

    @property
    def features(self) -> Features:
        """The bias, softcap, sinks and ALiBi of all folded rows, for ball arithmetic."""
        f = self.setting.features or Tiled()
        of_all_rows = f.tile(slice(None), slice(0, self.k.shape[-2]))
        scores = (*self.q.shape[:-1], self.k.shape[-2])
        whole: dict[str, Any] = {
            name: np.broadcast_to(x, scores)
            for name in ("blocked", "distance", "kept")
            if (x := getattr(of_all_rows, name)) is not None
        }
        return of_all_rows._replace(**whole)

    def allowed_row(self, i: int) -> Mask | None:
        """Return which keys are visible to the i-th folded row: (…, 1, n_k), or None for all."""
        return self.setting.visible.tile(slice(i, i + 1), slice(0, self.k.shape[-2]))

    def allowed(self) -> Mask:
        """Return which keys are visible to each folded row: (…, rows, n_k)."""
        visible = self.setting.visible.tile(slice(None), slice(0, self.k.shape[-2]))
        return np.broadcast_to(True if visible is None else visible, (*self.q.shape[:-1], self.k.shape[-2]))

    def like(self, x: Any, name: str, shape: tuple[int, ...]) -> Array:
        """Return a cotangent or tangent as float64. Raises ValueError unless it has the shape
        `shape`.
        """
        array = arrays.float_array(x, name, arithmetic=self.setting.arithmetic)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, but should be {shape}.")
        return array

    def of_rows(self, x: Any, name: str, *columns: int) -> Array:
        """Return the chosen rows of an array (*lead, *columns), folded by key head, with an axis of
        columns.
        """
        array = self.like(x, name, (*self.lead, *columns)).reshape(*self.full[:-1], *(columns or (1,)))
        return self.heads.fold(array[..., self.chosen, :])

    def of_keys(self, x: Any, name: str, keys: Array) -> Array:
        """Return a tangent or cotangent of k or v, in the axes of `keys`."""
        return self.like(x, name, self._given(keys.shape)).reshape(keys.shape)

    def tangents(self, dbias: Any, dsink: Any) -> tuple[Shared | None, Array | None]:
        """Return the tangents of the bias and of the sinks, in the layout of these inputs. Raises
        ValueError for a tangent whose input is missing.
        """
        given_bias = self.ignored_bias if self.bias is None else self.bias
        for x, name, argument_shape in ((dbias, "dbias", given_bias), (dsink, "dsink", self.sink)):
            if x is not None and argument_shape is None:
                raise ValueError(f"{name} is given, but should not be: there is no {name[1:]}.")
        of_bias = of_sink = None
        if dbias is not None and self.bias is not None:
            of_bias = self.heads.shared(*chosen_rows(self.like(dbias, "dbias", self.bias), self.chosen, self.full))
        if dsink is not None and self.sink is not None:
            tangent = self.like(dsink, "dsink", self.sink[:1]).reshape(self.sink)
            of_sink = self.heads.fold(np.broadcast_to(tangent, (*self.full[:-2], len(self.chosen), 1)))
        return of_bias, of_sink

    def evaluated(
        self,
        fast: Callable[[Setting], Balls],
        arb: Callable[[], Balls],
        *,
        of_rows: int,
        times: int = 1,
        averages: bool = False,
    ) -> tuple[Enclosure, ...]:
        """Return the enclosures of the results of an evaluation. The certified value is computed
        again with narrower bounds if it is too wide.

        `times` is the cost of the evaluation in forward passes. The first `of_rows` results have
        one row for each query: they get the caller's axes.  With `averages` the first result is an
        output of attention.
        """

        def sharp() -> Balls:
            return fast(self.setting._replace(sharp=True))

        def shaped(balls: Balls) -> Balls:
            return *map(self._unfolded, balls[:of_rows]), *balls[of_rows:]

        arithmetic, work = self.setting.arithmetic, times * self.work
        vacuous = attention_is_vacuous(self.v, self.allowed_row) if averages else zero_is_accepted
        return settle(
            Evaluation(
                arithmetic, self.method, lambda: fast(self.setting), arb, work, vacuous, sharp, shaped, by_rows=averages
            )
        )

    def _unfolded(self, x: Ball) -> Ball:
        """Return a result with one row for each query, in the caller's axes."""
        unfolded = self.heads.unfolded(x)
        shape = self._given(unfolded.mid.shape)
        return Ball(unfolded.mid.reshape(shape), unfolded.rad.reshape(shape))

    def of_lse(self, x: Enclosure) -> Enclosure:
        """Return a log-sum-exp, or its derivative, without its axis of columns. Its format is the
        one in which a log-sum-exp is saved.
        """
        arithmetic = self.setting.arithmetic
        saved = None if arithmetic is None else arithmetic.saved_lse or arithmetic.elementwise
        return Enclosure(x.mid[..., 0], x.rad[..., 0], format=saved, vacuous=x.vacuous, judged=x.judged)

    def gathered(self) -> list[Gathered]:
        """Return zeros to which the gradients of the bias and of the sinks are added; empty without
        bias and sinks.
        """
        shapes = ((self.bias, self.full), (self.sink, (*self.full[:-1], 1)))
        return [Gathered.of(own_shape, shape, self.heads) for own_shape, shape in shapes if own_shape is not None]

    def finished(self, gradients: list[Gathered]) -> Balls:
        """Return the gradients of the bias and of the sinks, in the shapes of these inputs."""
        results = [x.finished(self.setting.arithmetic) for x in gradients]
        if self.sink is not None:
            results[-1] = Ball(results[-1].mid.reshape(-1), results[-1].rad.reshape(-1))
        return tuple(results)

    def bias_gradient(self, finer: Sequence[Enclosure]) -> Enclosure | None:
        """Return the gradient of the bias, the first of `finer`; 0 for a bias without an effect, and None
        without a bias.
        """
        if self.bias is not None:
            return finer[0]
        return (
            None if self.ignored_bias is None else Enclosure(np.zeros(self.ignored_bias), np.zeros(self.ignored_bias))
        )

    def summed(self, finer: Balls) -> list[Gathered]:
        """Return the gradients of the bias and of the sinks as sums that are not finished, given the
        gradients of each logit and each row.
        """
        gradients = self.gathered()
        for gradient, x in zip(gradients, finer, strict=True):
            if x.mid.size:
                gradient.add(slice(0, x.mid.shape[-2]), slice(0, x.mid.shape[-1]), x.mid, x.rad)
        return gradients

    def _given(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape without the axis of heads, if `attention_arguments` added that axis."""
        return shape if len(self.lead) == len(self.full) - 1 else (*shape[:-3], *shape[-2:])


def chosen_rows(
    x: NDArray[Any], rows: NDArray[np.int64], full: tuple[int, ...]
) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return the chosen rows of an array that broadcasts to the shape of all scores, and the shape
    to which these rows broadcast.
    """
    if x.ndim > 1 and x.shape[-2] > 1 and not np.array_equal(rows, np.arange(full[-2])):
        x = x[..., rows, :]
    return x, (*full[:-2], len(rows), full[-1])
