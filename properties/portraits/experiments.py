"""The experiments that tell the values of a convention apart: one row for each call.

An experiment is a call whose right result differs from one value of the convention to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.inspection.array import Array
from properties.strategies.plain_calls import Fill, Options, Sizes, equal_scores, numbers, plain_call

__all__ = ["EXPERIMENTS", "Experiment"]


@dataclass(frozen=True)
class Experiment:
    """A call that shows the value of a convention.

    convention  a field of `Conventions`. "rope_pairing" means all three conventions of a rotation:
                its pairs, its base and its scale
    options     the arguments that are not plain numbers, from the sizes of the call
    sizes       the wanted sizes of the call
    judged      the result that shows the value; "" for the first result
    operations  the operations for which the experiment is; () for all that have the convention and
                the options
    fill        the numbers of the arrays
    word        the word of `supports` for whose implementations the experiment is; "" for all
    """

    convention: str
    options: Options = lambda sizes: {}
    sizes: Sizes = field(default_factory=dict)
    judged: str = ""
    operations: tuple[str, ...] = ()
    fill: Fill = numbers
    word: str = ""

    def arguments(self, operation: Operation, implementation: Implementation) -> tuple[Any, ...] | None:
        """Return the arguments of the call; None if the operation or the implementation takes no such call."""
        if self.convention not in operation.conventions or (self.operations and operation.name not in self.operations):
            return None
        if self.convention == "dead_gradients" and implementation.resolved_conventions.dead_rows != "uniform":
            return None  # no other value lets gradients flow through fully masked rows
        if self.word and self.word not in implementation.support.options:
            return None
        return plain_call(operation, implementation, self.sizes, self.options, self.fill)


def _slopes(sizes: Sizes) -> Array:
    """A slope for each head."""
    return np.ldexp(1.0, -np.arange(1, sizes["num_heads"] + 1))


def _mask(sizes: Sizes) -> Array:
    """A mask in which query i sees the keys 0 and i + 1, one query per row."""
    visible = np.zeros((sizes["n_q"], sizes["n_k"]), bool)
    visible[:, 0] = True
    visible[np.arange(sizes["n_q"]), (np.arange(sizes["n_q"]) + 1) % sizes["n_k"]] = True
    return visible


def _last_masked(sizes: Sizes) -> Array:
    """A mask in which the last query sees no key, and each other query sees all keys."""
    visible = np.ones((sizes["n_q"], sizes["n_k"]), bool)
    visible[-1] = False
    return visible


def _bias(sizes: Sizes) -> Array:
    """A bias from −4 to 4."""
    return 4 * numbers((sizes["num_heads"], sizes["n_q"], sizes["n_k"]), 5)


def _sections(sizes: Sizes) -> Mapping[str, Any]:
    """Positions in time, height and width, with an eighth of the channels for height and for width."""
    few = sizes["head_dim"] // 8
    sections = (sizes["head_dim"] // 2 - 2 * few, few, few)
    return {"start_pos": 0, "positions": _of_axes(sizes["seq_len"]), "sections": sections}


def _of_axes(number: int) -> Array:
    """Positions in time, height and width, different on each axis."""
    return np.arange(number) + 7 * np.arange(3)[:, None]


def _tokens_masked(sizes: Sizes) -> Mapping[str, Any]:
    """A mask for tokens in which the last query sees no key."""
    return {"num_heads": 1, "mask": _last_masked({"n_q": sizes["seq_len"], "n_k": sizes["seq_len"]})}


_YARN = {"kind": "yarn", "head_dim": 64, "factor": 4.0}
_LONGROPE = {"kind": "longrope", "head_dim": 8, "seq_len": 64, "factor": 4.0, "original_max_position_embeddings": 64}
_DYNAMIC = {"kind": "dynamic", "head_dim": 8, "seq_len": 96, "factor": 2.0, "max_position_embeddings": 64}
_FACTORS = {"short_factor": (1.0,) * 4, "long_factor": (2.0,) * 4}
_TABLES = {"positions": np.arange(3) + 1, "inv_freq": 10.0 ** -np.arange(4.0)}
_EMPTY = np.full(3, -np.inf)
_OF_KEYS = tuple(name for name, operation in OPERATIONS.items() if "n_k" in operation.axes.get("mask", ()))
_OPTIONAL = ("attention", "attention_vjp", "attention_jvp")
_PACKED = ("packed_attention", "packed_attention_vjp")
_PLACED = ("attention", "packed_attention", "paged_attention")
_ODD = {"head_dim": 5}
_WIDE = {"head_dim": 64}
_SQUARE = {"n_q": 6, "n_k": 6}
_MORE_QUERIES = {"n_q": 5, "n_k": 3}

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("causal", operations=_OPTIONAL, fill=equal_scores, word="causal only"),
    Experiment("rope_pairing", lambda sizes: {"start_pos": 1}, _WIDE, operations=("rope", "rope_vjp", "rope_tables")),
    Experiment("rope_base", lambda sizes: {"start_pos": 1}, _WIDE, operations=("rope_angles",)),
    Experiment("rope_base", sizes=_WIDE, operations=("inv_freq",)),
    Experiment("rope_pairing", operations=("apply_rotary", "apply_rotary_vjp")),
    Experiment("rope_pairing", lambda sizes: _TABLES),
    Experiment("odd_lane", lambda sizes: {"start_pos": 500}, _ODD, operations=("rope", "rope_vjp", "rope_tables")),
    Experiment("odd_lane", sizes=_ODD, operations=("apply_rotary", "apply_rotary_vjp")),
    Experiment("mrope", _sections),
    Experiment("mrope", lambda sizes: _TABLES | {"positions": _of_axes(3), "sections": (2, 1, 1)}),
    Experiment("scale_default", lambda sizes: {"steps": "append 5; attend 3"}),
    Experiment("scale_default"),
    Experiment("kv_heads", sizes={"num_heads": 4, "kv_heads": 2}),
    Experiment("mask_polarity", lambda sizes: {"mask": _mask(sizes)}, operations=_OF_KEYS),
    Experiment("mask_polarity", lambda sizes: {"num_heads": 1, "mask": np.tri(sizes["seq_len"], dtype=bool)}),
    Experiment("mask_polarity", lambda sizes: {"lengths": np.arange(1, 4), "max_len": 5}),
    Experiment("mask_polarity", lambda sizes: {"lengths": np.arange(1, 4), "n": 5}),
    Experiment("mask_polarity", lambda sizes: {"parents": np.array([-1, 0, 0])}),
    Experiment("mask_polarity", lambda sizes: {"first": _mask(sizes), "second": np.tri(3, 5, dtype=bool)}),
    Experiment("padding_position", lambda sizes: {"attention_mask": np.arange(sizes["seq_len"]) % 2}),
    Experiment("mask_polarity", operations=tuple(name for name, each in OPERATIONS.items() if each.returns_booleans)),
    Experiment("dead_rows", lambda sizes: {"mask": _last_masked(sizes)}, operations=_OF_KEYS),
    Experiment("dead_rows", _tokens_masked),
    Experiment("dead_rows", lambda sizes: {"lse_a": _EMPTY, "lse_b": _EMPTY}),
    Experiment("dead_gradients", lambda sizes: {"mask": _last_masked(sizes)}, operations=_OF_KEYS),
    Experiment("dead_gradients", _tokens_masked),
    Experiment("causal", lambda sizes: {"causal": True}),
    Experiment("causal", operations=("causal_attention", "causal_mask")),
    Experiment("dead_rows", sizes=_MORE_QUERIES, operations=("causal_attention",)),
    Experiment("dead_rows", lambda sizes: {"causal": True}, _MORE_QUERIES, operations=(*_OPTIONAL, "paged_attention")),
    Experiment("alibi_reference", lambda sizes: {"num_heads": 2, "n_q": 3, "n_k": 3}),
    Experiment("causal", lambda sizes: {"num_heads": 2, "n_q": 3, "n_k": 5}, operations=("alibi_bias",)),
    Experiment("alibi_slopes", lambda sizes: {"num_heads": 3}),
    Experiment("window", lambda sizes: {"causal": True, "window": (2, None)}, _SQUARE),
    Experiment("window", lambda sizes: {"window": (2, 1)}, _SQUARE, operations=_OPTIONAL),
    Experiment("causal", lambda sizes: {"window": (1, 1)}, operations=_OPTIONAL),
    Experiment("dead_rows", lambda sizes: {"window": (1, 1)}, _MORE_QUERIES, operations=(*_OPTIONAL, *_PACKED)),
    Experiment("softcap_order", lambda sizes: {"softcap": 1.0, "bias": _bias(sizes), "mask": _mask(sizes)}, {"n_k": 6}),
    Experiment("softcap_order", lambda sizes: {"softcap": 1.0, "bias": _bias(sizes)}),
    Experiment(
        "softcap_order",
        lambda sizes: {"softcap": 1.0, "causal": True, "alibi": _slopes(sizes)},
        _SQUARE,
        operations=_PACKED,
    ),
    Experiment("softcap_order", lambda sizes: {"softcap": 1.0, "alibi": _slopes(sizes)}, operations=_PLACED),
    Experiment("softcap_order", lambda sizes: {"softcap": 1.0, "causal": True}, _SQUARE, operations=_PACKED),
    Experiment("alibi_reference", lambda sizes: {"alibi": _slopes(sizes)}, judged="lse", operations=_PLACED),
    Experiment("alibi_reference", lambda sizes: {"alibi": _slopes(sizes)}, operations=(*_OPTIONAL, *_PACKED)),
    Experiment("window", lambda sizes: {"steps": "append 6; attend 3", "window": 2}, {"n_q": 3, "n_k": 6}),
    Experiment("softcap_order", lambda sizes: {"softcap": 1.0, "mask": _mask(sizes)}),
    Experiment("causal_with_mask", lambda sizes: {"causal": True, "mask": _mask(sizes), "bias": _bias(sizes)}, _SQUARE),
    Experiment("causal_with_mask", lambda sizes: {"causal": True, "mask": _mask(sizes)}, _SQUARE),
    Experiment("causal_with_mask", lambda sizes: {"causal": True, "bias": _bias(sizes)}, _SQUARE),
    Experiment("lse_base", lambda sizes: {"steps": "append 5; attend 3"}, judged="lse"),
    Experiment("lse_base", judged="lse"),
    Experiment("lse_base", lambda sizes: {"grad_lse": numbers([sizes["num_heads"], sizes["n_q"]], 3)}, judged="dq"),
    Experiment("lse_sink", lambda sizes: {"sink": numbers([sizes["num_heads"]], 3)}, judged="lse"),
    Experiment(
        "lse_sink",
        lambda sizes: {
            "sink": numbers([sizes["num_heads"]], 3),
            "grad_lse": numbers([sizes["num_heads"], sizes["n_q"]], 3),
        },
        judged="dsink",
    ),
    Experiment("sinusoid_layout", lambda sizes: {"start_pos": 3}),
    Experiment("sinusoid_layout", lambda sizes: {"start_pos": 0}),
    Experiment("yarn_truncate", lambda sizes: _YARN | {"original_max_position_embeddings": 4096, "base": 150000.0}),
    Experiment("yarn_upper", lambda sizes: _YARN | {"original_max_position_embeddings": 262144}),
    Experiment("longrope_switch", lambda sizes: _LONGROPE | _FACTORS),
    Experiment("dynamic_length", lambda sizes: _DYNAMIC),
)
"""All experiments, in the order in which they are made: an experiment needs the values of the
conventions before it.
"""
