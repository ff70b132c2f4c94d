"""Simulated kernels of rotary frequencies, in the order of operations of the libraries that have
them; every operation rounds.

Numbers are binary64 or binary32. Logarithms and powers are the nearest number, or have the error
that `oracles.rotary.frequencies` allows. The logarithm of the base in the exponent of a power is an
exception: it is rounded once.
"""

from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from oracles.formats import BINARY32, BINARY64
from oracles.tests.simulated.rounding import rounding

__all__ = ["FORMS", "FrequencyKernel"]

FORMS = {
    "power": ("pow", "reciprocal", "exp"),
    "divided": ("quotient", "reciprocal"),
    "off": ("near", "above", "below", "random"),
    "parameters": ("double", "same"),
}
"""The choices of a form: how to compute a power, how to divide by a factor, the sign of the errors of
functions, and the precision of the ends of a ramp.
"""
ULPS = 7.0
"""The error of a logarithm or a power before it is rounded, in units of u."""


@dataclass(frozen=True)
class FrequencyKernel:
    """A form of the computation in roundoff `u`."""

    u: float
    form: dict[str, str]
    seed: int

    def work(self, x: Any) -> Array:
        """The nearest number."""
        return rounding(BINARY64 if self.u <= BINARY64.unit_roundoff else BINARY32)(np.asarray(x, dtype=np.float64))

    def off(self, x: Any) -> Array:
        """The computed result for the exact result x of a logarithm or a power."""
        x = np.asarray(x, dtype=np.float64)
        fine = self.u <= BINARY64.unit_roundoff
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], x.shape)
        direction = {"near": 0.0, "above": 1.0, "below": -1.0}.get(self.form["off"])
        return self.work(x * (1 + (signs if direction is None else direction) * (ULPS / 2 if fine else ULPS) * self.u))

    def over(self, x: Any, s: Any) -> Array:
        """x / s, or x · (1/s)."""
        s = self.work(s)
        return self.work(x / s) if self.form["divided"] == "quotient" else self.work(x * self.work(1 / s))

    def powers(self, channels: int, base: Any) -> Array:
        """base^(−2i/r) for each pair i of the r channels."""
        e, base = self.work(np.arange(0, channels, 2) / max(channels, 1)), self.work(base)
        if self.form["power"] == "pow":
            return self.exactly_one(e, self.off(base ** (-e)))
        if self.form["power"] == "reciprocal":
            return self.exactly_one(e, self.work(1 / self.off(base**e)))
        return self.exactly_one(e, self.off(np.exp(self.work(-e * self.work(np.log(base))))))

    @staticmethod
    def exactly_one(e: Array, x: Array) -> Array:
        """x, or exactly 1 for the exponent 0."""
        return np.where(e == 0, 1.0, x)

    def computed(self, parameters: dict[str, Any]) -> tuple[Array, Array]:
        """inv_freq and the attention factor of a kind."""
        conventions: Conventions = parameters["conventions"]
        channels, base = parameters.get("rotary_dim", parameters["head_dim"]), parameters.get("base", 10000.0)
        one, kind = np.ones(1), parameters["kind"]
        if kind == "dynamic":
            base = self._grown(parameters, channels, base, conventions)
        f = self.powers(channels, base)
        if kind in ("default", "dynamic"):
            return f, one
        if kind == "longrope":
            return self._by_lists(parameters, f, conventions)
        s = parameters["factor"]
        divided = self.over(f, s)
        if kind == "linear":
            return divided, one
        if kind == "proportional":
            return np.where(np.arange(len(f)) < int(parameters["partial_rotary_factor"] * len(f)), divided, 0.0), one
        if kind == "llama3":
            return self._by_wavelength(parameters, f), one
        kept = self.work(1 - self._ramp(parameters, channels, conventions))
        mixed = self.work(self.work(divided * self.work(1 - kept)) + self.work(f * kept))
        return mixed, self._sharpened(parameters)

    def _grown(self, parameters: dict[str, Any], channels: int, base: Any, conventions: Conventions) -> Array:
        work, s, most = self.work, self.work(parameters["factor"]), parameters["max_position_embeddings"]
        length = (
            most
            if conventions.dynamic_length == "configured" or parameters.get("seq_len") is None
            else max(parameters["seq_len"], most)
        )
        grown = work(work(work(s * work(length)) / work(most)) - work(s - 1))
        return work(
            self.work(base) * self.off(np.where(grown == 1, 1.0, np.power(grown, work(channels / (channels - 2)))))
        )

    def _by_lists(self, parameters: dict[str, Any], f: Array, conventions: Conventions) -> tuple[Array, Array]:
        most, length = parameters["original_max_position_embeddings"], parameters.get("seq_len")
        short = length is None or length < most or (length == most and conventions.longrope_switch == "at_most")
        divided = self.over(f, np.array(parameters["short_factor" if short else "long_factor"]))
        if "attention_factor" in parameters:
            return divided, self.work([parameters["attention_factor"]])
        if parameters["factor"] <= 1:
            return divided, np.ones(1)
        ratio = self.work(self.off(np.log(self.work(parameters["factor"]))) / self.off(np.log(self.work(most))))
        return divided, self.work(np.sqrt(self.work(1 + ratio))).reshape(1)

    def _by_wavelength(self, parameters: dict[str, Any], f: Array) -> Array:
        work, s, most = (
            self.work,
            self.work(parameters["factor"]),
            self.work(parameters["original_max_position_embeddings"]),
        )
        low, high = self.work(parameters["low_freq_factor"]), self.work(parameters["high_freq_factor"])
        wavelength, divided = work(work(2 * pi) / f), self.over(f, s)
        smooth = work(work(work(most / wavelength) - low) / work(high - low))
        mixed = work(work(work(work(1 - smooth) * f) / s) + work(smooth * f))
        short, long = wavelength < work(most / high), wavelength > work(most / low)
        return np.where(short, f, np.where(long, divided, mixed))

    def _ramp(self, parameters: dict[str, Any], channels: int, conventions: Conventions) -> Array:
        fine = (
            FrequencyKernel(BINARY64.unit_roundoff, self.form | {"off": "near"}, self.seed)
            if self.form["parameters"] == "double"
            else self
        )
        w, most = fine.work, parameters["original_max_position_embeddings"]

        def corr(turns: float) -> float:
            fewer = fine.off(np.log(w(most / w(w(turns * 2) * w(pi)))))
            return float(w(w(channels * fewer) / w(2 * fine.off(np.log(w(parameters.get("base", 10000.0)))))))

        low, high = corr(parameters.get("beta_fast", 32)), corr(parameters.get("beta_slow", 1))
        if parameters.get("truncate", conventions.yarn_truncate == "truncated"):
            low, high = float(np.floor(low)), float(np.ceil(high))
        last = channels - 1 if conventions.yarn_upper == "last_channel" else channels // 2 - 1
        low, high = max(low, 0.0), min(high, float(last))
        high = high if high != low else high + 0.001
        ramp = self.work(self.work(np.arange(channels // 2) - self.work(low)) / self.work(w(high - low)))
        return np.clip(ramp, 0, 1)

    def _sharpened(self, parameters: dict[str, Any]) -> Array:
        if "attention_factor" in parameters:
            return self.work([parameters["attention_factor"]])
        work, s = self.work, parameters["factor"]

        def m(weight: float) -> Array:
            return (
                np.ones(1)
                if s <= 1
                else work(work(work(work(0.1) * work(weight)) * self.off(np.log(self.work([s])))) + 1)
            )

        if parameters.get("mscale") and parameters.get("mscale_all_dim"):
            return work(m(parameters["mscale"]) / m(parameters["mscale_all_dim"]))
        return m(1.0)
