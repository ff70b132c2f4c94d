"""Masks with what laws need besides live queries: keys that nobody may read, dead queries, axes of size 1."""

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.strategies.arrays import Draw, bits, live_masks

__all__ = ["alternating_masks", "dead_masks", "narrow_masks", "padded_masks"]


@st.composite
def padded_masks(draw: Draw, n_q: int, n_k: int, lead: tuple[int, ...] = ()) -> Any:
    """Live masks (…, n_q, n_k) with some keys that no query may attend to, unless there is one key only."""
    kept = draw(bits(n_k)) & (np.arange(n_k) != draw(st.integers(0, n_k - 1)))
    kept[draw(st.integers(0, n_k - 1)) if not kept.any() else kept.argmax()] = True
    mask = draw(live_masks(n_q, n_k, lead)) & kept
    mask[~mask.any(-1)] = kept
    return mask


@st.composite
def narrow_masks(draw: Draw, n_q: int, n_k: int, lead: tuple[int, ...] = ()) -> Any:
    """Live masks that broadcast to (…, n_q, n_k): axes have size 1, or are not there. They block a key unless its axis has size 1."""
    axes = [n if draw(st.booleans()) else 1 for n in (*lead, n_q)] + [draw(st.sampled_from([n_k, n_k, n_k, 1]))]
    axes = axes[draw(st.integers(0, len(lead) + 1)) :]
    if len(lead) > 1 and draw(st.booleans()):  # one for each sequence, shared by its heads
        axes = [*lead[:-1], 1, n_q, n_k]
    mask = draw(bits(math.prod(axes))).reshape(axes).copy()
    blocked = draw(st.integers(0, axes[-1] - 1))
    mask[..., blocked] = axes[-1] == 1
    mask[~mask.any(-1), blocked - 1] = True
    return mask


@st.composite
def alternating_masks(draw: Draw, n_q: int, n_k: int, lead: tuple[int, ...] = ()) -> Any:
    """Masks (…, n_q, n_k) that are two live ones by turns along the leading axes."""
    even, odd = draw(live_masks(n_q, n_k)), draw(live_masks(n_q, n_k))
    return np.where(np.indices(lead).sum(0)[..., None, None] % 2, odd, even)


@st.composite
def dead_masks(draw: Draw, n_q: int, n_k: int, lead: tuple[int, ...] = ()) -> Any:
    """Masks (…, n_q, n_k) in which some query may attend to no key: one, all, those of one problem, some, or the first ones."""
    mask = draw(live_masks(n_q, n_k, lead))
    row, kind = draw(st.integers(0, n_q - 1)), draw(st.sampled_from(["one", "all", "problem", "some", "first"]))
    if kind == "problem":
        mask[(0,) * len(lead)] = False
    elif kind == "some":
        mask[np.random.default_rng(row).random(mask.shape[:-1]) < 0.5] = False
        mask[..., row, :] = False
    else:
        mask[..., {"one": slice(row, row + 1), "all": slice(None), "first": slice(row + 1)}[kind], :] = False
    return mask
