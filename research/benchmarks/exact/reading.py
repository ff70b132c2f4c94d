"""Translates the arguments of attention into the definitions' arguments.

The definitions follow the default conventions. Other conventions are the definitions of other
arguments: heads in another order, a window that is narrower by one, an inverted mask.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from oracles import Conventions
from spec.extended.attention_steps import visible_keys
from spec.tensor_core import Array as Balls

__all__ = ["Given", "Reading", "read", "unread_keys"]

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """A call in the arguments of the definitions.

    x           q, k and v, and bias, sink and alibi if the call has them, as float64 arrays
    said        the other keywords of the definitions
    order       the place among the heads of x of each head of the call
    conventions the conventions of the call
    visible     the visible keys of each row
    steps       −|p − j| of each row and key, or j where ALiBi counts keys
    """

    x: dict[str, Any]
    said: dict[str, Any]
    order: Any
    conventions: Conventions
    visible: Any
    steps: Any

    @property
    def bent(self) -> bool:
        """Whether a softcap acts on more than the scores."""
        return self.said["softcap"] is not None and self.conventions.softcap_order != "before_bias"

    @property
    def everything(self) -> bool:
        """Whether every key takes part, masked or not."""
        return self.said["softcap"] is not None and self.conventions.softcap_order == "after_mask"

    @property
    def keyless(self) -> Any:
        """Which rows have no key."""
        visible = self.visible | self.everything
        return ~visible.any(axis=-1)

    @property
    def dead(self) -> Any:
        """Which rows have neither a key nor a sink."""
        return self.keyless & (self.x["sink"] == -np.inf)[:, None] if "sink" in self.x else self.keyless

    @property
    def level(self) -> Any:
        """Which fully masked rows have the derivatives of a row that sees every key with equal
        logits.
        """
        return self.dead & self.conventions.dead_rows_flow

    def with_alibi(self, x: dict[str, Any]) -> dict[str, Any]:
        """The operands with the slopes of ALiBi times the steps, exactly, as a part of the bias of all scores."""
        if "alibi" not in x:
            return x
        bias = np.broadcast_to(x.get("bias", np.full(1, flint.arb(0))), self.visible.shape)
        others = {name: y for name, y in x.items() if name != "alibi"}
        return others | {"bias": bias + x["alibi"][:, None, None] * np.vectorize(int, otypes=[object])(self.steps)}

    def given(self, found: Balls) -> Balls:
        """Results (…, H, n_q, ·) with heads as they were given."""
        return np.asarray(np.take(found, self.order, axis=-3))

    def meant(self, x: Any) -> Any:
        """What goes with heads (…, H, ·, ·) or is shared by them, in the definitions' order."""
        shared = x.ndim < 3 or x.shape[-3] == 1
        return x if shared else np.take(x, np.argsort(self.order), axis=-3)


def read(given: Given) -> Reading:
    """What a call of the oracle means."""
    conventions: Conventions = given.get("conventions") or Conventions()
    q, k, v = (np.asarray(given[name], dtype=np.float64) for name in ("q", "k", "v"))
    heads, shape = q.shape[-3], (*q.shape[:-1], k.shape[-2])
    mask, causal, (left, right) = given.get("mask"), given.get("causal", False), given.get("window", (None, None))
    if mask is not None and conventions.mask_polarity == "true_blocks":
        mask = ~mask
    if mask is not None and causal:
        mask, causal = {"mask_wins": (mask, False), "causal_wins": (None, True), "causal_alone": (None, True)}.get(
            conventions.causal_with_mask, (mask, causal)
        )
    if left is not None and conventions.window == "count":
        left -= 1
    offset = given.get("offset")
    if offset is None:
        offset = shape[-1] - shape[-2] if conventions.causal == "bottom_right" else 0
    scale = 1.0 if given.get("scale") is None and conventions.scale_default == "one" else given.get("scale")
    tiled = np.arange(heads).reshape(-1, k.shape[-3]).T.ravel()
    order = np.argsort(tiled) if conventions.kv_heads == "tile" else np.arange(heads)
    p, j = np.asarray(offset)[..., None, None, None] + np.arange(shape[-2])[:, None], np.arange(shape[-1])
    steps = -np.abs(p - j) if conventions.alibi_reference == "distance" else j + 0 * p
    reading = Reading({}, {}, order, conventions, None, steps)
    x = {"q": reading.meant(q) if heads > 1 else q, "k": k, "v": v}
    ignores_bias = causal and conventions.causal_with_mask == "causal_alone"
    if given.get("bias") is not None and not ignores_bias:
        x["bias"] = reading.meant(given["bias"])
    x |= {name: given[name][np.argsort(order)] for name in ("sink", "alibi") if given.get(name) is not None}
    mask = None if mask is None else reading.meant(mask)
    visible = visible_keys(shape, mask=mask, causal=causal, offset=offset, window=(left, right))
    if "bias" in x:
        visible = visible & np.broadcast_to(x["bias"] > -np.inf, shape)
    keywords = {
        "mask": mask,
        "causal": causal,
        "offset": offset,
        "window": (left, right),
        "scale": scale,
        "softcap": given.get("softcap"),
        "dropout": given.get("dropout"),
        "dropout_mask": None if given.get("dropout_mask") is None else reading.meant(given["dropout_mask"]),
    }
    return Reading(x, keywords, order, conventions, visible, steps)


def unread_keys(given: Given) -> Any:
    """Which keys (…, H_kv, n_k) no row sees, so that their numbers may be anything. A fully masked
    row sees all keys under the convention "uniform".
    """
    reading = read(given)
    all_alike = reading.dead & (reading.conventions.dead_rows == "uniform")
    visible = (reading.visible | reading.everything | all_alike[..., None]).any(axis=-2)
    kv_heads = given["k"].shape[-3]
    return ~visible.reshape(*visible.shape[:-2], kv_heads, visible.shape[-2] // kv_heads, visible.shape[-1]).any(
        axis=-2
    )
