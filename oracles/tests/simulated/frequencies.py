"""Honest kernels of rotary frequencies, in the order of operations of the libraries that have them,
every operation rounded.

Numbers are held in binary64 or binary32; logarithms and powers are the nearest number, or off by
what `oracles.rotary.frequencies` grants them, but for the logarithm of the base in the exponent of a
power, which is rounded once.
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
"""How a power is taken, how a factor divides, in which direction functions are off, and in what the
ends of a ramp are computed.
"""
ULPS = 7.0
"""What a logarithm or a power is off by, in units of u, before it is rounded."""


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
        """What a logarithm or a power comes out as."""
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
        """base^(−2i/r)."""
        e, base = self.work(np.arange(0, channels, 2) / max(channels, 1)), self.work(base)
        if self.form["power"] == "pow":
            return self.exactly_one(e, self.off(base ** (-e)))
        if self.form["power"] == "reciprocal":
            return self.exactly_one(e, self.work(1 / self.off(base**e)))
        return self.exactly_one(e, self.off(np.exp(self.work(-e * self.work(np.log(base))))))

    @staticmethod
    def exactly_one(e: Array, x: Array) -> Array:
        """The power 0 is 1."""
        return np.where(e == 0, 1.0, x)

    def computed(self, said: dict[str, Any]) -> tuple[Array, Array]:
        """inv_freq and the attention factor of a kind."""
        c: Conventions = said["conventions"]
        channels, base = said.get("rotary_dim", said["head_dim"]), said.get("base", 10000.0)
        one, kind = np.ones(1), said["kind"]
        if kind == "dynamic":
            base = self._grown(said, channels, base, c)
        f = self.powers(channels, base)
        if kind in ("default", "dynamic"):
            return f, one
        if kind == "longrope":
            return self._by_lists(said, f, c)
        s = said["factor"]
        divided = self.over(f, s)
        if kind == "linear":
            return divided, one
        if kind == "proportional":
            return np.where(np.arange(len(f)) < int(said["partial_rotary_factor"] * len(f)), divided, 0.0), one
        if kind == "llama3":
            return self._by_wavelength(said, f), one
        kept = self.work(1 - self._ramp(said, channels, c))
        mixed = self.work(self.work(divided * self.work(1 - kept)) + self.work(f * kept))
        return mixed, self._sharpened(said)

    def _grown(self, said: dict[str, Any], channels: int, base: Any, c: Conventions) -> Array:
        work, s, most = self.work, self.work(said["factor"]), said["max_position_embeddings"]
        length = most if c.dynamic_length == "configured" or said.get("seq_len") is None else max(said["seq_len"], most)
        grown = work(work(work(s * work(length)) / work(most)) - work(s - 1))
        return work(
            self.work(base) * self.off(np.where(grown == 1, 1.0, np.power(grown, work(channels / (channels - 2)))))
        )

    def _by_lists(self, said: dict[str, Any], f: Array, c: Conventions) -> tuple[Array, Array]:
        most, length = said["original_max_position_embeddings"], said.get("seq_len")
        short = length is None or length < most or (length == most and c.longrope_switch == "at_most")
        found = self.over(f, np.array(said["short_factor" if short else "long_factor"]))
        if "attention_factor" in said:
            return found, self.work([said["attention_factor"]])
        if said["factor"] <= 1:
            return found, np.ones(1)
        ratio = self.work(self.off(np.log(self.work(said["factor"]))) / self.off(np.log(self.work(most))))
        return found, self.work(np.sqrt(self.work(1 + ratio))).reshape(1)

    def _by_wavelength(self, said: dict[str, Any], f: Array) -> Array:
        work, s, most = self.work, self.work(said["factor"]), self.work(said["original_max_position_embeddings"])
        low, high = self.work(said["low_freq_factor"]), self.work(said["high_freq_factor"])
        wavelength, divided = work(work(2 * pi) / f), self.over(f, s)
        smooth = work(work(work(most / wavelength) - low) / work(high - low))
        mixed = work(work(work(work(1 - smooth) * f) / s) + work(smooth * f))
        short, long = wavelength < work(most / high), wavelength > work(most / low)
        return np.where(short, f, np.where(long, divided, mixed))

    def _ramp(self, said: dict[str, Any], channels: int, c: Conventions) -> Array:
        fine = (
            FrequencyKernel(BINARY64.unit_roundoff, self.form | {"off": "near"}, self.seed)
            if self.form["parameters"] == "double"
            else self
        )
        w, most = fine.work, said["original_max_position_embeddings"]

        def corr(turns: float) -> float:
            fewer = fine.off(np.log(w(most / w(w(turns * 2) * w(pi)))))
            return float(w(w(channels * fewer) / w(2 * fine.off(np.log(w(said.get("base", 10000.0)))))))

        low, high = corr(said.get("beta_fast", 32)), corr(said.get("beta_slow", 1))
        if said.get("truncate", c.yarn_truncate == "truncated"):
            low, high = float(np.floor(low)), float(np.ceil(high))
        last = channels - 1 if c.yarn_upper == "last_channel" else channels // 2 - 1
        low, high = max(low, 0.0), min(high, float(last))
        high = high if high != low else high + 0.001
        ramp = self.work(self.work(np.arange(channels // 2) - self.work(low)) / self.work(w(high - low)))
        return np.clip(ramp, 0, 1)

    def _sharpened(self, said: dict[str, Any]) -> Array:
        if "attention_factor" in said:
            return self.work([said["attention_factor"]])
        work, s = self.work, said["factor"]

        def m(weight: float) -> Array:
            return (
                np.ones(1)
                if s <= 1
                else work(work(work(work(0.1) * work(weight)) * self.off(np.log(self.work([s])))) + 1)
            )

        if said.get("mscale") and said.get("mscale_all_dim"):
            return work(m(said["mscale"]) / m(said["mscale_all_dim"]))
        return m(1.0)
