"""Validates the arguments of multi-head attention, and computes its projections in the modelled
arithmetic, as products of balls (value ± radius).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod, sqrt
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import arrays, ball
from oracles.arguments import checked_flag, checked_scale
from oracles.ball import ROUNDOFF, Array, Ball, exact
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.grouped_heads import Shared
from oracles.error_analysis.scores import Inputs, Operand, operand
from oracles.error_analysis.visible_keys import Mask, Visible
from oracles.formats import Format
from oracles.judging import Method
from oracles.options import MultiHeadOptions, answer


@dataclass(frozen=True)
class Projections:
    """The validated arguments of multi-head attention. Its methods compute matrix products in the
    modelled arithmetic.

    context    the tokens that keys and values are made of
    key_heads  the key head of each query head
    biases     the biases of the projections, by name
    """

    x: Array
    wq: Array
    wk: Array
    wv: Array
    wo: Array
    num_heads: int
    setting: Setting
    method: Method
    mask: Mask | None
    options: dict[str, Any]
    context: Array
    key_heads: NDArray[np.int64]
    biases: Mapping[str, Array] = field(default_factory=dict)

    @property
    def arguments(self) -> tuple[Array, ...]:
        """The arguments of the call, in order."""
        return self.x, self.wq, self.wk, self.wv, self.wo

    @property
    def work(self) -> int:
        """The number of multiplications in one forward pass. An exponential counts as 8."""
        tokens, n, width = prod(self.x.shape[:-1]), int(self.context.shape[-2]), int(self.wq.shape[1])
        return tokens * (4 * int(self.x.shape[-1]) * width + n * (2 * width + 8 * self.num_heads))

    def like(self, x: Any, name: str, argument: Array) -> Array:
        """Return a cotangent or tangent as float64. Raises ValueError unless it has the shape of
        its argument.
        """
        array = arrays.float_array(x, name, arithmetic=self.setting.arithmetic)
        if array.shape != argument.shape:
            raise ValueError(f"{name} has shape {array.shape}, but should be {argument.shape}.")
        return array

    def allowed(self) -> Mask | None:
        """Return which tokens are visible to each token: (…, n_q, n_k), or None for all."""
        if self.setting.visible.high is None:
            return self.mask
        n = self.context.shape[-2]
        past = np.arange(n) <= self.setting.visible.positions[:, None]
        return np.broadcast_to(past if self.mask is None else past & self.mask, (*self.x.shape[:-1], n))

    def product(self, a: Ball, b: Ball, backward: bool = False) -> Ball:
        """Return a matrix product in the modelled arithmetic, before it is stored."""
        model = self.setting.arithmetic
        if model is None:
            return ball.matmul(a, b)
        work, flushed = model.elementwise, float(model.flush_to_zero)
        code = ball.ProductErrors(
            roundoff=model.grad_accumulate if backward else model.accumulate,
            product=model.product,
            underflow=work.smallest_normal if model.flush_to_zero else work.smallest_subnormal,
            operand=work.smallest_normal * (model.product + flushed),
            largest=work.largest,
        )
        return ball.matmul(a, b, code)

    def stored(self, a: Ball) -> Ball:
        """Return a result that enters the next product. It is rounded to every format in which a
        kernel may store it before that.
        """
        arithmetic = self.setting.arithmetic
        if arithmetic is None:
            return a
        return self._rounded(a, {arithmetic.elementwise, arithmetic.output, arithmetic.inputs})

    def kept(self, a: Ball, of: Operand, *others: Operand) -> Ball:
        """Return a result of attention, which is already rounded, with radius ∞ where it overflows
        the format in which it is stored.

        A kernel that multiplies masked entries by 0 spreads ∞, also in rows without visible tokens,
        because a weight of 0 times ∞ is NaN. `of` is the operand that is summed, and `others` are
        the operands from which its weights are computed. So the radius is also ∞ in the columns of
        `of` that are lost, and in a whole head if a column of `others` is lost.
        """
        arithmetic = self.setting.arithmetic
        if arithmetic is None:
            return a
        overflows = np.abs(a.mid) + a.rad > min(
            arithmetic.elementwise.largest, arithmetic.output.largest, arithmetic.inputs.largest
        )
        for x in (of, *others) if self._reads_what_is_blocked else ():
            if x.unknown is not None:
                unknown_columns = x.unknown.all(axis=-2, keepdims=True)
                overflows = overflows | (unknown_columns if x is of else unknown_columns.any(axis=-1, keepdims=True))
        return Ball(a.mid, np.where(overflows, np.inf, a.rad))

    @property
    def _reads_what_is_blocked(self) -> bool:
        """Whether a kernel may multiply a masked entry by a weight of 0."""
        masked = self.mask is not None or self.setting.visible.high is not None
        return masked and self.setting.arithmetic is not None and self.setting.conventions.blocked_values == "finite"

    def last(self, a: Ball) -> Ball:
        """Return a result, rounded to the output's format."""
        arithmetic = self.setting.arithmetic
        return a if arithmetic is None else self._rounded(a, {arithmetic.elementwise, arithmetic.output})

    def plus(self, a: Ball, b: Ball) -> Ball:
        """Return a + b. A budget counts the rounding of this sum even where the sum is exact:
        whether it is depends on the order in which BLAS added up a and b.
        """
        if self.setting.arithmetic is None:
            return a + b
        with np.errstate(all="ignore"):
            mid = a.mid + b.mid
            return ball.ball(mid, (a.rad + b.rad + ROUNDOFF * np.abs(mid)) * (1 + 2.0**-50))

    def added(
        self, parts: Sequence[Ball], others: Sequence[Ball], keep: Callable[[Ball], Ball], backward: bool = False
    ) -> Ball:
        """Return the sum of the products parts[i]·others[i], with a radius for every way in which a
        kernel may add them.

        A kernel may store each product and add them in any order. Automatic differentiation takes
        the reverse order, and a partial sum may overflow in one order only. Or a kernel may compute
        all of them as one product, as with packed projections.

        The midpoint is the sum in the given order, and the radius is the largest of the radii for
        these ways. The radius of a sum in another order already contains its distance from the
        exact sum of the products' midpoints. The sum in the given order differs from that exact sum
        by at most u·Σ|partial sums|, which is added. The radius of the packed product holds for
        every order of summation, and so it holds about this midpoint too.
        """
        products = [keep(self.product(x, y, backward)) for x, y in zip(parts, others, strict=True)]
        if self.setting.arithmetic is None:
            return reduce(add, products)
        first, *reordered = (
            reduce(lambda x, y: keep(self.plus(x, y)), products[i:] + products[:i]) for i in range(len(products))
        )
        order_error = (len(products) - 1) * ROUNDOFF * sum(np.abs(x.mid) for x in products)
        packed = keep(self.product(joined(parts, -1), joined(others, -2), backward))
        radii = (first.rad, packed.rad, *(x.rad + order_error for x in reordered))
        return ball.ball(first.mid, np.maximum.reduce(radii) * (1 + 2.0**-50))

    def _rounded(self, a: Ball, targets: set[Format]) -> Ball:
        for target in sorted(targets, key=lambda f: f.unit_roundoff):
            a = ball.rounded(
                a, target, flush=self.setting.arithmetic is not None and self.setting.arithmetic.flush_to_zero
            )
        return a

    def affine(self, x: Ball, weight: Array, bias: str, keep: Callable[[Ball], Ball]) -> Ball:
        """Return x·weight plus the bias of this name, if there is one: the sum of two products, the second
        of a column of ones and the bias.
        """
        if bias not in self.biases:
            return keep(self.product(x, exact(weight)))
        ones, row = np.ones((*x.mid.shape[:-1], 1)), self.biases[bias][np.newaxis]
        return self.added([x, exact(ones)], [exact(weight), exact(row)], keep)

    def heads(self, a: Ball, *given: Array, of_keys: bool = False) -> Operand:
        """Return the heads of a projection, in the layout of attention: (…, n, num_heads·head_dim)
        -> (…, num_heads, n, head_dim). A key head is repeated for its query heads.

        Where a projection of a finite token overflows, its column is marked as unknown. A mask does
        not prevent this if a kernel reads masked entries, because a weight of 0 times ∞ is NaN.
        """
        if given and self._reads_what_is_blocked:
            finite = np.logical_and.reduce([np.isfinite(x).all(axis=-1, keepdims=True) for x in given])
            overflows = (np.isinf(a.rad) & finite).any(axis=-2, keepdims=True)
            a = Ball(a.mid, np.where(overflows, np.inf, a.rad))
        number = int(self.key_heads.max()) + 1 if of_keys else self.num_heads
        by_head = mapped(a, lambda m: m.reshape(*m.shape[:-1], number, m.shape[-1] // number).swapaxes(-3, -2))
        if number < self.num_heads:
            by_head = mapped(by_head, lambda m: m[..., self.key_heads, :, :])
        return operand(by_head.mid, by_head.rad)

    def projections(self, backward: bool = False) -> Inputs:
        """Return the heads of x·wq, x·wk and x·wv, with their biases. For masked tokens, derivatives
        (`backward`) multiply all three by a weight of 0; the output multiplies only x·wv.
        """
        tokens = self.context
        q = self.affine(exact(self.x), self.wq, "bq", self.stored)
        k, v = (self.affine(exact(tokens), w, bias, self.stored) for w, bias in ((self.wk, "bk"), (self.wv, "bv")))
        given = (self.x,) if backward else ()
        return Inputs(self.heads(q, *given), self.heads(k, *given, of_keys=True), self.heads(v, tokens, of_keys=True))

    def expecting_nan(self, out: Ball) -> Ball:
        """Return the output with NaN expected for tokens to which no token is visible, if that is
        the convention.
        """
        allowed = self.allowed()
        if self.setting.conventions.dead_rows != "nan" or allowed is None or self.wq.shape[1] == 0:
            return out
        fully_masked = ~allowed.any(axis=-1, keepdims=True)
        return Ball(np.where(fully_masked, np.nan, out.mid), np.where(fully_masked, 0.0, out.rad))


def checked(inputs: Sequence[Any], num_heads: Any, mask: Any, options: MultiHeadOptions) -> Projections:
    """Validate a call of multi-head attention on the inputs x, wq, wk, wv and wo, and return it."""
    arithmetic, conventions, method = answer(options)
    names = ("x", "wq", "wk", "wv", "wo")
    arguments = [
        arrays.float_array(given, name, arithmetic=arithmetic) for given, name in zip(inputs, names, strict=True)
    ]
    x, wq, wk, wv, wo = arguments
    heads = arrays.natural(num_heads, "num_heads", 1)
    _require_shapes(arguments, heads)
    n, width = x.shape[-2], wq.shape[1]
    if width == 0:
        heads = 1  # heads without columns add nothing, whatever their number
    given = arrays.bool_mask(mask, "mask", (*x.shape[:-1], n), conventions.mask_polarity)
    shared = None if given is None else np.broadcast_to(given[..., None, None, :, :], (*x.shape[:-2], heads, 1, n, n))
    last = 0 if checked_flag(options["is_causal"]) else None
    visible = Visible(None if shared is None else Shared(shared), np.arange(n), high=last)
    scale = checked_scale(options["scale"])
    setting = Setting(
        visible, scale if scale is not None else 1.0 / sqrt(max(width // heads, 1)), arithmetic, conventions
    )
    named = {"scale": scale, "conventions": conventions}
    return Projections(x, wq, wk, wv, wo, heads, setting, method, given, named, x, np.arange(heads))


def _require_shapes(arguments: Sequence[Array], heads: int) -> None:
    """Raise ValueError unless x has a token and the weights fit to it and to the number of heads."""
    x, wq, wk, wv, wo = arguments
    if x.ndim < 2 or x.shape[-2] == 0:
        raise ValueError(f"x has shape {x.shape}, but should be (…, n, d_model) with n at least 1.")
    d_model = x.shape[-1]
    if wq.ndim != 2 or wq.shape[0] != d_model:
        raise ValueError(
            f"wq has shape {wq.shape}, but should be ({d_model}, num_heads·head_dim) as x has shape {x.shape}."
        )
    width = wq.shape[1]
    if width % heads:
        raise ValueError(f"num_heads={heads}, but should divide the {width} columns of wq.")
    for weight, name, shape in ((wk, "wk", wq.shape), (wv, "wv", wq.shape), (wo, "wo", (width, d_model))):
        if weight.shape != shape:
            raise ValueError(f"{name} has shape {weight.shape}, but should be {shape} as wq has shape {wq.shape}.")


def joined(parts: Sequence[Ball], axis: int) -> Ball:
    """Return one ball: the given balls, one after the other along an axis."""
    return Ball(np.concatenate([x.mid for x in parts], axis=axis), np.concatenate([x.rad for x in parts], axis=axis))


def mapped(a: Ball, change: Callable[[Array], Array]) -> Ball:
    """Return a ball with its midpoint and radius in another layout."""
    return Ball(change(a.mid), change(a.rad))
