"""What is special about a case, by names that a report can count: a table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from properties.contract import packing
from properties.contract.paging import pages_are_shared, unused_entries
from properties.laws.feature_rules import band, visible_keys
from research.vectors.choice import Choice, implementation

__all__ = ["FLAGS", "flags_of"]

_LENGTHS = ("n_q", "n_k", "seq_len", "max_len")


@dataclass(frozen=True)
class _Case:
    """A case as flags look at it: its arguments by name, its sizes, and which entries each row may
    read, where it has such.
    """

    choice: Choice
    x: Mapping[str, Any]
    sizes: Mapping[str, int]
    visible: Any

    def arrays(self) -> list[Any]:
        return [x for x in self.x.values() if isinstance(x, np.ndarray)]

    def fewest(self) -> int:
        """The smallest number of visible keys of a query; the number of all keys without a mask."""
        return (
            int(self.visible.sum(-1).min(initial=self.sizes["n_k"]))
            if self.visible is not None
            else self.sizes.get("n_k", 0)
        )


def _case(choice: Choice, arguments: tuple[Any, ...]) -> _Case:
    definition, x = choice.of, dict(zip(choice.of.parameters, arguments, strict=True))
    sizes = definition.sizes(arguments)
    if "seq_len" in sizes and "wq" in x:
        sizes |= {"n_q": sizes["seq_len"], "n_k": sizes["seq_len"]}
    visible = None
    if "window" in x and not choice.of.has_sequences:
        visible = visible_keys(x, implementation("float64", choice.reading))
    elif x.get("mask") is not None:
        visible = np.broadcast_to(x["mask"], np.broadcast_shapes(x["mask"].shape, (sizes["n_q"], sizes["n_k"])))
    return _Case(choice, x, sizes, visible)


_POISONING = (
    "masked keys",
    "masked scores",
    "appending masked",
    "keys masked for all queries",
    "NaN and ±∞ in masked",
)
"""How the laws begin that put something into what is masked."""


def _is_poisoned(case: _Case) -> bool:
    far = any(x.dtype == np.float64 and bool((~(np.abs(x) < 128)).any()) for x in case.arrays())
    return case.choice.law.startswith(_POISONING) and case.visible is not None and far


def _cuts(case: _Case) -> bool:
    if case.visible is None or (case.x.get("window") is None and not case.x.get("causal")):
        return False
    allowed = band(case.x, implementation("float64", case.choice.reading))
    return bool(allowed.any() and not allowed.all())


def _has(name: str, condition: Callable[[Any], Any]) -> Callable[[_Case], bool]:
    """Whether some entry of the array with this name satisfies a condition."""
    return lambda case: case.x.get(name) is not None and bool(np.any(condition(np.asarray(case.x[name]))))


FLAGS: dict[str, tuple[str, Callable[[_Case], bool]]] = {
    "DeadRow": (
        "Some query may read no key, or some row has no allowed entry.",
        lambda c: c.sizes.get("n_k", 0) > 0 and c.fewest() == 0,
    ),
    "Empty": (
        "Some array has size 0.",
        lambda c: (
            any(n == 0 for name, n in c.sizes.items() if name != "start_pos") or any(x.size == 0 for x in c.arrays())
        ),
    ),
    "WindowOfOne": (
        "A window leaves some query one key of several.",
        lambda c: (
            c.x.get("window") is not None
            and c.visible is not None
            and c.sizes["n_k"] > 1
            and bool((c.visible.sum(-1) == 1).any())
        ),
    ),
    "OneKey": (
        "A mask leaves some query one key of several.",
        lambda c: c.x.get("mask") is not None and c.sizes["n_k"] > 1 and bool((c.visible.sum(-1) == 1).any()),
    ),
    "BandEdge": ("The band of a window, or of causality, cuts through the keys.", _cuts),
    "TileEdge": (
        "A length is a power of two from 8 on, one less, or one more.",
        lambda c: any(
            n + e in {2**p for p in range(3, 18)}
            for name in _LENGTHS
            for n in [c.sizes.get(name, 0)]
            for e in (-1, 0, 1)
        ),
    ),
    "Poisoned": ("What no query may read holds numbers far larger than all others, or no numbers.", _is_poisoned),
    "FarPosition": (
        "Positions from 65536 on.",
        lambda c: (c.x.get("start_pos") or 0) >= 2**16 or _has("positions", lambda x: x >= 2**16)(c),
    ),
    "OddWidth": (
        "The last channel has no partner.",
        lambda c: (
            bool({"seq_len", "embed_dim", "head_dim"} & set(c.x) or "cos" in c.x or "start_pos" in c.x)
            and (
                c.sizes.get("head_dim", 0) % 2 == 1
                or (c.choice.operation.startswith("sinus") and c.sizes["embed_dim"] % 2 == 1)
            )
        ),
    ),
    "LargeScores": (
        "Scores of every size that the format has.",
        lambda c: c.choice.domain in ("extreme scores", "one key each"),
    ),
    "NearTheCap": (
        "Scores are around the softcap.",
        lambda c: c.choice.domain == "near the cap" and c.x["softcap"] is not None,
    ),
    "BroadcastMask": (
        "The mask has axes of size 1, or fewer axes than the scores.",
        lambda c: (
            c.x.get("mask") is not None
            and (
                c.x["mask"].ndim < _rank(c)
                or c.x["mask"].shape[-2:] != (c.sizes["n_q"], c.sizes["n_k"])
                or 1 in c.x["mask"].shape[:-2]
            )
        ),
    ),
    "EmptySequence": (
        "A sequence, packed or with keys in pages, has no queries, or no keys.",
        lambda c: "cu_q" in c.x and any(0 in pair for pair in packing.lengths(c.x)),
    ),
    "UnusedRows": (
        "Some rows belong to no packed sequence, or are not used by theirs.",
        lambda c: "cu_q" in c.x and packing.has_padding(c.x),
    ),
    "SharedPage": (
        "Two sequences read one page.",
        lambda c: "block_table" in c.x and pages_are_shared(c.x),
    ),
    "UnusedEntry": (
        "A table has entries beyond a length.",
        lambda c: "block_table" in c.x and bool(unused_entries(c.x).any()),
    ),
    "BlockingBias": ("The bias has entries of −∞.", _has("bias", np.isneginf)),
    "SinkOff": ("Some head has no sink: −∞.", _has("sink", np.isneginf)),
    "NegativeOffset": ("The first query stands before the first key.", _has("offset", lambda x: x < 0)),
    "EmptyPart": ("A part of the keys that is merged is empty: its log-sum-exp is −∞.", _has("lse_a", np.isneginf)),
    "GroupedHeads": (
        "Several heads share a head of keys.",
        lambda c: c.sizes.get("num_heads", 0) != c.sizes.get("kv_heads", c.sizes.get("num_heads", 0)),
    ),
}
"""Each flag with what it says, a sentence, and of which cases it is so."""


def _rank(case: _Case) -> int:
    first = next((case.x[parameter] for parameter in ("q", "scores", "x") if parameter in case.x), None)
    return 0 if first is None else int(first.ndim)


def flags_of(choice: Choice, arguments: tuple[Any, ...]) -> list[str]:
    """The flags of a case."""
    case = _case(choice, arguments)
    return [name for name, (_, holds) in FLAGS.items() if holds(case)]
