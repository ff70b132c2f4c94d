"""The experiments that tell the values of a convention apart: one row for each call.

An experiment is a call whose right result differs from one value of the convention to the next.
"""

from dataclasses import dataclass, field

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.inspection.array import Array
from properties.strategies.plain_calls import Fill, Options, Sizes, equal_scores, numbers, plain_call

__all__ = ["EXPERIMENTS", "Experiment"]


@dataclass(frozen=True)
class Experiment:
    """A call that shows the value of a convention.

    convention  a field of `Conventions`. "rope_pairing" means all three conventions of a rotation:
                its pairs, its base and its scale
    options     the arguments that are not plain numbers: values, or functions of the sizes of the call
    sizes       the wanted sizes of the call
    judged      the result that shows the value; "" for the first result
    operations  the operations for which the experiment is; () for all that have the convention and
                the options
    fill        the numbers of the arrays
    word        the word of `supports` for whose implementations the experiment is; "" for all
    """

    convention: str
    options: Options = field(default_factory=dict)
    sizes: Sizes = field(default_factory=dict)
    judged: str = ""
    operations: tuple[str, ...] = ()
    fill: Fill = numbers
    word: str = ""

    def arguments(self, operation: Operation, implementation: Implementation) -> Arguments | None:
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


def _sections(sizes: Sizes) -> tuple[int, ...]:
    """An eighth of the channels for height and for width, and the others for time."""
    few = sizes["head_dim"] // 8
    return sizes["head_dim"] // 2 - 2 * few, few, few


def _of_axes(sizes: Sizes) -> Array:
    """Positions in time, height and width, different on each axis."""
    return np.arange(sizes["seq_len"]) + 7 * np.arange(3)[:, None]


def _last_token_masked(sizes: Sizes) -> Array:
    """A mask for tokens in which the last query sees no key."""
    return _last_masked({"n_q": sizes["seq_len"], "n_k": sizes["seq_len"]})


def _sinks(sizes: Sizes) -> Array:
    """A sink for each head."""
    return numbers([sizes["num_heads"]], 3)


def _grad_lse(sizes: Sizes) -> Array:
    """A cotangent of the log-sum-exp."""
    return numbers([sizes["num_heads"], sizes["n_q"]], 3)


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
    Experiment("rope_pairing", {"start_pos": 1}, _WIDE, operations=("rope", "rope_vjp", "rope_tables")),
    Experiment("rope_base", {"start_pos": 1}, _WIDE, operations=("rope_angles",)),
    Experiment("rope_base", sizes=_WIDE, operations=("inv_freq",)),
    Experiment("rope_pairing", operations=("apply_rotary", "apply_rotary_vjp")),
    Experiment("rope_pairing", _TABLES),
    Experiment("odd_lane", {"start_pos": 500}, _ODD, operations=("rope", "rope_vjp", "rope_tables")),
    Experiment("odd_lane", sizes=_ODD, operations=("apply_rotary", "apply_rotary_vjp")),
    Experiment("mrope", {"start_pos": 0, "positions": _of_axes, "sections": _sections}),
    Experiment("mrope", _TABLES | {"positions": _of_axes({"seq_len": 3}), "sections": (2, 1, 1)}),
    Experiment("scale_default", {"steps": "append 5; attend 3"}),
    Experiment("scale_default"),
    Experiment("kv_heads", sizes={"num_heads": 4, "kv_heads": 2}),
    Experiment("mask_polarity", {"mask": _mask}, operations=_OF_KEYS),
    Experiment("mask_polarity", {"num_heads": 1, "mask": lambda sizes: np.tri(sizes["seq_len"], dtype=bool)}),
    Experiment("mask_polarity", {"lengths": np.arange(1, 4), "max_len": 5}),
    Experiment("mask_polarity", {"lengths": np.arange(1, 4), "n": 5}),
    Experiment("mask_polarity", {"parents": np.array([-1, 0, 0])}),
    Experiment("mask_polarity", {"first": _mask, "second": np.tri(3, 5, dtype=bool)}),
    Experiment("padding_position", {"attention_mask": lambda sizes: np.arange(sizes["seq_len"]) % 2}),
    Experiment("mask_polarity", operations=tuple(name for name, each in OPERATIONS.items() if each.returns_booleans)),
    Experiment("dead_rows", {"mask": _last_masked}, operations=_OF_KEYS),
    Experiment("dead_rows", {"num_heads": 1, "mask": _last_token_masked}),
    Experiment("dead_rows", {"lse_a": _EMPTY, "lse_b": _EMPTY}),
    Experiment("dead_gradients", {"mask": _last_masked}, operations=_OF_KEYS),
    Experiment("dead_gradients", {"num_heads": 1, "mask": _last_token_masked}),
    Experiment("causal", {"causal": True}),
    Experiment("causal", operations=("causal_attention", "causal_mask")),
    Experiment("dead_rows", sizes=_MORE_QUERIES, operations=("causal_attention",)),
    Experiment("dead_rows", {"causal": True}, _MORE_QUERIES, operations=(*_OPTIONAL, "paged_attention")),
    Experiment("alibi_reference", {"num_heads": 2, "n_q": 3, "n_k": 3}),
    Experiment("causal", {"num_heads": 2, "n_q": 3, "n_k": 5}, operations=("alibi_bias",)),
    Experiment("alibi_slopes", {"num_heads": 3}),
    Experiment("window", {"causal": True, "window": (2, None)}, _SQUARE),
    Experiment("window", {"window": (2, 1)}, _SQUARE, operations=_OPTIONAL),
    Experiment("causal", {"window": (1, 1)}, operations=_OPTIONAL),
    Experiment("dead_rows", {"window": (1, 1)}, _MORE_QUERIES, operations=(*_OPTIONAL, *_PACKED)),
    Experiment("softcap_order", {"softcap": 1.0, "bias": _bias, "mask": _mask}, {"n_k": 6}),
    Experiment("softcap_order", {"softcap": 1.0, "bias": _bias}),
    Experiment(
        "softcap_order",
        {"softcap": 1.0, "causal": True, "alibi": _slopes},
        _SQUARE,
        operations=_PACKED,
    ),
    Experiment("softcap_order", {"softcap": 1.0, "alibi": _slopes}, operations=_PLACED),
    Experiment("softcap_order", {"softcap": 1.0, "causal": True}, _SQUARE, operations=_PACKED),
    Experiment("alibi_reference", {"alibi": _slopes}, judged="lse", operations=_PLACED),
    Experiment("alibi_reference", {"alibi": _slopes}, operations=(*_OPTIONAL, *_PACKED)),
    Experiment("window", {"steps": "append 6; attend 3", "window": 2}, {"n_q": 3, "n_k": 6}),
    Experiment("softcap_order", {"softcap": 1.0, "mask": _mask}),
    Experiment("causal_with_mask", {"causal": True, "mask": _mask, "bias": _bias}, _SQUARE),
    Experiment("causal_with_mask", {"causal": True, "mask": _mask}, _SQUARE),
    Experiment("causal_with_mask", {"causal": True, "bias": _bias}, _SQUARE),
    Experiment("lse_base", {"steps": "append 5; attend 3"}, judged="lse"),
    Experiment("lse_base", judged="lse"),
    Experiment("lse_base", {"grad_lse": _grad_lse}, judged="dq"),
    Experiment("lse_sink", {"sink": _sinks}, judged="lse"),
    Experiment(
        "lse_sink",
        {"sink": _sinks, "grad_lse": _grad_lse},
        judged="dsink",
    ),
    Experiment("sinusoid_layout", {"start_pos": 3}),
    Experiment("sinusoid_layout", {"start_pos": 0}),
    Experiment("yarn_truncate", _YARN | {"original_max_position_embeddings": 4096, "base": 150000.0}),
    Experiment("yarn_upper", _YARN | {"original_max_position_embeddings": 262144}),
    Experiment("longrope_switch", _LONGROPE | _FACTORS),
    Experiment("dynamic_length", _DYNAMIC),
)
"""All experiments, in the order in which they are made: an experiment needs the values of the
conventions before it.
"""
