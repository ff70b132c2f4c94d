"""The operations: what they take, what they return, which conventions they follow, and the oracle
that answers for them.

An operation is a row: its parameters and results with the names of their axes. What else is to be
known of shapes follows from that: which sizes a call has, which of them `supports` may restrict,
which arrays share an axis, what an axis can be cut along.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import oracles
from oracles import Arithmetic, Conventions, Enclosure
from oracles.formats import BINARY32, BINARY64, Format
from properties.contract.caches import decode
from properties.contract.features import FEATURES, KINDS

__all__ = ["BATCH", "FEATURES", "OPERATIONS", "Operation"]

BATCH = "*"
"""Any number of leading axes, the same for all arrays that have them; masks and biases may have
fewer, and size 1 along any axis.
"""

_NUMBERS = {"num_heads", "n_q", "n_k", "seq_len", "max_len", "embed_dim", "head_dim", "start_pos"}
_MASKS = {"mask", "first", "second"}
_LOOSE = _MASKS | {"bias", "dbias", "positions"}
_INTEGERS = {"lengths", "indices", "offset", "positions"}
_PARAMETERS = tuple(dict.fromkeys(p for given, optional in KINDS.values() for p in (*given, *optional)))
_OF_ATTENTION, _OF_CACHES = {"scale", "causal", "offset", "window", "softcap"}, {"steps", "capacity", "rotates"}
_SETTINGS = _OF_ATTENTION | _OF_CACHES | {"kind", "base", "rotary_dim", "sections", *_PARAMETERS}
_HELD = {"inv_freq", "attention_factor"}
_TABLES = {"cos", "sin"}
_SUMS, _BIASES = {"lse", "dlse", "lse_a", "lse_b"}, {"slopes", "biases"}
_FREQUENCIES = ("rope_pairing", "odd_lane", "rope_base", "rope_scale")
_ATTENTION = ("dead_rows", "mask_polarity")
_DERIVED = ("dead_rows", "dead_gradients", "mask_polarity")

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Operation:
    """An operation: its parameters in order and its results, the axes of those that are arrays, and
    the fields of `Conventions` that change it. `options` are the parameters that are passed by
    keyword, or, where they are None, left out."""

    name: str
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    axes: Mapping[str, Axes]
    oracle: Callable[..., Any]
    conventions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def forward(self) -> str:
        """The operation whose derivative it is; itself, where it is none."""
        return re.sub("_(vjp|jvp)$", "", self.name)

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The parameters that hold numbers of the implementation's format."""
        return tuple(p for p in self.parameters if p not in _NUMBERS | _MASKS | _INTEGERS | _SETTINGS)

    @property
    def is_played(self) -> bool:
        """Whether it runs a program of steps, on caches."""
        return "steps" in self.parameters

    @property
    def takes_arrays(self) -> bool:
        """Whether it takes an array at all: of numbers, booleans or integers."""
        return not (_NUMBERS | _SETTINGS).issuperset(self.parameters)

    @property
    def returns_booleans(self) -> bool:
        """Whether it builds a mask."""
        return self.outputs == ("mask",)

    def is_mask(self, parameter: str) -> bool:
        """Whether a parameter is a mask, of booleans in the implementation's polarity."""
        return parameter in _MASKS

    def is_integer(self, parameter: str) -> bool:
        """Whether a parameter is an array of integers, which stay integers in every arithmetic."""
        return parameter in _INTEGERS

    def is_table(self, name: str) -> bool:
        """Whether a parameter or a result is a table of cosines or sines, whose format is that of
        the arithmetic's angles.
        """
        return name in _TABLES

    def is_log_sum_exp(self, name: str) -> bool:
        """Whether a parameter or a result is a log-sum-exp, whose format is that in which they are saved."""
        return name in _SUMS

    def broadcasts(self, parameter: str) -> bool:
        """Whether axes of a parameter may have size 1, or not be there: those of masks and biases,
        and of positions for an array's rows.
        """
        return parameter in _LOOSE and (parameter != "positions" or parameter in self.options)

    def named(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Arguments by the names of their parameters."""
        return dict(zip(self.parameters, arguments, strict=False))

    def ahead(self, parameter: str, arguments: Sequence[Any]) -> int:
        """How many axes an array has in front of those that are named: of positions that of time,
        height and width, with sections.
        """
        return int(parameter == "positions" and self.named(arguments).get("sections") is not None)

    def is_setting(self, parameter: str) -> bool:
        """Whether a parameter is no array and no size, but says what is computed: a window, a cap,
        a kind of frequencies.
        """
        return parameter in _SETTINGS or (parameter in _NUMBERS and parameter in self.options)

    def is_number(self, result: str) -> bool:
        """Whether a result is one number, which may be a float."""
        return result in self.outputs and result not in self.axes and not self.returns_booleans

    def stored(self, name: str, arithmetic: Arithmetic, *, result: bool = False) -> Format:
        """The format of a parameter's numbers, or of a result's: tables have that of angles,
        frequencies binary64 or binary32, whichever is as fine as they are computed, log-sum-exps
        that in which they are saved; ALiBi's biases are no inputs yet."""
        if self.is_table(name):
            return arithmetic.angle.table
        if name in _HELD:
            fine = max(arithmetic.angle.frequency, arithmetic.angle.product) <= BINARY64.unit_roundoff
            return BINARY64 if fine else BINARY32
        if self.is_log_sum_exp(name):
            return arithmetic.saved_lse or arithmetic.elementwise
        return arithmetic.inputs if not result else arithmetic.elementwise if name in _BIASES else arithmetic.output

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], **others: Any) -> Any:
        """What a function returns for arguments: options are passed by keyword, where they are given."""
        each = self.named(arguments)
        options = {p: x for p, x in each.items() if p in self.options and x is not None}
        return function(*(x for p, x in each.items() if p not in self.options), **options, **others)

    def arguments(self, positional: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments that a call of that kind was of."""
        rest = iter(positional)
        return tuple(options.get(p) if p in self.options else next(rest) for p in self.parameters)

    def given(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """The features with which a call is made: names of `FEATURES`."""
        if self.is_played or not any(p in self.parameters for p in ("q", "kind", "inv_freq")):
            return ()
        each = {p: x for p, x in self.named(arguments).items() if x is not None}
        kind = [each["kind"]] if each.get("kind", "default") != "default" else []
        several = ["offsets"] if isinstance(each.get("offset"), np.ndarray) else []
        return (*(p for p in each if p in self.options and p in FEATURES), *kind, *several)

    def returned(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """The results that there are: of an option that is not given there is no gradient."""
        absent = {f"d{p}" for p, x in self.named(arguments).items() if p in self.options and x is None}
        return tuple(name for name in self.outputs if name not in absent)

    def expected(self, arguments: tuple[Any, ...], arithmetic: Any, conventions: Conventions) -> tuple[Enclosure, ...]:
        """The oracle's enclosures of the results, masks in its own polarity; for a mask builder,
        the mask with radius 0.
        """
        found = self.call(self.oracle, arguments, arithmetic=arithmetic, conventions=conventions)
        return tuple(x for x in found if x is not None) if isinstance(found, tuple) else (found,)

    def sizes(self, arguments: tuple[Any, ...]) -> dict[str, int]:
        """The sizes of a call by the names of axes and numbers; `batch` is how many elements the batch has."""
        found: dict[str, int] = {}
        for (parameter, axes), x in zip(self._measured, arguments, strict=False):
            if x is None or axes is None:
                continue
            if not axes:
                found[parameter] = int(x)
                continue
            if axes[0] == BATCH:
                lead = x.shape[self.ahead(parameter, arguments) : x.ndim - len(axes) + 1]
                found.setdefault("batch", math.prod(lead))
            found |= zip(reversed(axes), reversed(x.shape), strict=False)
        found.pop(BATCH, None)
        return found

    @cached_property
    def _measured(self) -> list[tuple[str, Axes | None]]:
        """Each parameter with its axes, where they are sizes of a call: none of a number, and None
        where nothing is a size.
        """
        return [(p, self._axes_of(p)) for p in self.parameters]

    def _axes_of(self, p: str) -> Axes | None:
        if p in _NUMBERS and p not in self.options:
            return ()
        return None if p not in self.axes or self.broadcasts(p) or p in _SETTINGS else self.axes[p]

    def lead(self, arguments: tuple[Any, ...]) -> tuple[int, ...]:
        """The leading axes of a call: those of the first array that has some."""
        for parameter, x in self.named(arguments).items():
            if BATCH in self.axes.get(parameter, ()):
                return tuple(x.shape[self.ahead(parameter, arguments) : x.ndim - len(self.axes[parameter]) + 1])
        return ()

    def shapes(self, *arguments: Any) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results."""
        if self.name == "combine_masks":
            return (np.broadcast_shapes(*(mask.shape for mask in arguments)),)
        sizes, lead = self.sizes(arguments), self.lead(arguments)
        each = self.named(arguments)
        rotating = each["rotary_dim"] if each.get("rotary_dim") is not None else sizes.get("head_dim", 0)
        sizes.setdefault("pairs", -(-rotating // 2))
        sizes["channels"] = 2 * sizes["pairs"]
        sizes.setdefault("n_k", sizes.get("n_q", 0))

        def shape(axes: Axes) -> Iterator[int]:
            for axis in axes:
                yield from lead if axis == BATCH else (sizes[axis],)

        return tuple(
            each["bias"].shape if name == "dbias" else () if self.is_number(name) else tuple(shape(self.axes[name]))
            for name in self.returned(arguments)
        )


def _operation(
    name: str, parameters: str, outputs: str, *conventions: str, oracle: Callable[..., Any] | None = None
) -> Operation:
    """An operation by its parameters and results, "name[axes]" for arrays, "name?" for options; its
    oracle has its name, by default.
    """
    given, returned = (re.findall(r"(\w+)(?:\[(.*?)\])?(\??)", text) for text in (parameters, outputs))
    axes = {name: tuple(axes.split()) for name, axes, _ in (*given, *returned) if axes}
    names, results = (tuple(name for name, *_ in found) for found in (given, returned))
    options = tuple(name for name, _, mark in given if mark)
    return Operation(name, names, results, axes, oracle or getattr(oracles, name), conventions, options)


_QKV = "q[* n_q head_dim] k[* n_k head_dim] v[* n_k value_dim]"
_MASKED = f"{_QKV} mask[* n_q n_k]"
_OUT = "out[* n_q value_dim]"
_GROUPED = (
    "q[* num_heads n_q head_dim] k[* kv_heads n_k head_dim] v[* kv_heads n_k value_dim] mask[* num_heads n_q n_k]"
)
_SCORES = "scores[* n_q n_k] mask[* n_q n_k]"
_WEIGHTS = "wq[model_dim heads_width] wk[model_dim heads_width] wv[model_dim heads_width] wo[heads_width model_dim]"
_HEADS = f"x[* seq_len model_dim] {_WEIGHTS} num_heads mask[* seq_len seq_len]"
_ROWS = "[* seq_len head_dim]"
_HEADED = "q[* num_heads n_q head_dim] k[* kv_heads n_k head_dim] v[* kv_heads n_k value_dim]"
_BIAS, _SINK = "bias[* num_heads n_q n_k]", "sink[num_heads]"
_FEATURED = f"{_HEADED} mask[* num_heads n_q n_k]? {_BIAS}? scale? causal? offset[*]? window? softcap? {_SINK}?"
_OUTPUT, _SUM = "out[* num_heads n_q value_dim]", "lse[* num_heads n_q]"
_FEATURES = (
    "causal",
    "kv_heads",
    "window",
    "softcap_order",
    "lse_base",
    "lse_sink",
    "scale_default",
    "causal_with_mask",
)
_MERGED = ("out_a[* n_q value_dim] lse_a[* n_q] out_b[* n_q value_dim] lse_b[* n_q]", "out[* n_q value_dim] lse[* n_q]")
_STEPS = "q[n_q head_dim] k[n_k head_dim] v[n_k value_dim] steps window? capacity? rotates?"
_TABLE = "cos[seq_len head_dim] sin[seq_len head_dim]"
_ROTATED = "positions[* seq_len]? inv_freq[pairs]? attention_factor? rotary_dim? sections?"
_KINDS = " ".join(f"{p}?" for p in ("base", "rotary_dim", "seq_len", *_PARAMETERS))


def _tangents(parameters: str) -> str:
    """Of each array of numbers among some parameters its gradient, or tangent."""
    return " ".join(f"d{x}" for x in re.findall(r"\w+\[.*?\]", parameters) if not x.startswith("mask"))


OPERATIONS: dict[str, Operation] = {
    o.name: o
    for o in (
        _operation("scaled_dot_product_attention", _MASKED, _OUT, *_ATTENTION),
        _operation("scaled_dot_product_attention_vjp", f"{_MASKED} grad_{_OUT}", _tangents(_QKV), *_DERIVED),
        _operation("scaled_dot_product_attention_jvp", f"{_MASKED} {_tangents(_QKV)}", f"d{_OUT}", *_DERIVED),
        _operation("causal_attention", _QKV, _OUT, "causal", "dead_rows"),
        _operation("grouped_query_attention", _GROUPED, "out[* num_heads n_q value_dim]", "kv_heads", *_ATTENTION),
        _operation("attention", _FEATURED, f"{_OUTPUT} {_SUM}", *_ATTENTION, *_FEATURES),
        _operation(
            "attention_vjp",
            f"{_FEATURED} grad_{_OUTPUT} grad_{_SUM}?",
            _tangents(f"{_HEADED} {_BIAS} {_SINK}"),
            *_DERIVED,
            *_FEATURES,
        ),
        _operation(
            "attention_jvp",
            f"{_FEATURED} {_tangents(_HEADED)} d{_BIAS}? d{_SINK}?",
            f"d{_OUTPUT} d{_SUM}",
            *_DERIVED,
            *_FEATURES,
        ),
        _operation("merge_attention", *_MERGED, "dead_rows", "lse_base"),
        _operation("alibi_slopes", "num_heads", "slopes[num_heads]", "alibi_slopes"),
        _operation(
            "alibi_bias",
            "num_heads n_q n_k offset?",
            "biases[num_heads n_q n_k]",
            "alibi_slopes",
            "alibi_reference",
            "causal",
        ),
        _operation(
            "decode",
            _STEPS,
            "out[n_q value_dim] lse[n_q]",
            "window",
            "lse_base",
            "scale_default",
            *_FREQUENCIES,
            oracle=decode,
        ),
        _operation("multi_head_attention", _HEADS, "out[* seq_len model_dim]", *_ATTENTION),
        _operation("multi_head_attention_vjp", f"{_HEADS} grad_out[* seq_len model_dim]", _tangents(_HEADS), *_DERIVED),
        _operation("multi_head_attention_jvp", f"{_HEADS} {_tangents(_HEADS)}", "dout[* seq_len model_dim]", *_DERIVED),
        _operation("hard_masked_softmax", _SCORES, "weights[* n_q n_k]", *_ATTENTION),
        _operation("hard_masked_softmax_vjp", f"{_SCORES} grad_weights[* n_q n_k]", "dscores[* n_q n_k]", *_DERIVED),
        _operation("causal_mask", "n_q n_k", "mask[n_q n_k]", "causal", "mask_polarity"),
        _operation("padding_mask", "lengths[batch] max_len", "mask[batch max_len]", "mask_polarity"),
        _operation("combine_masks", "first[* n_q n_k] second[* n_q n_k]", "mask[* n_q n_k]", "mask_polarity"),
        _operation(
            "sinusoidal_positional_encoding",
            "seq_len embed_dim start_pos",
            "encoding[seq_len embed_dim]",
            "sinusoid_layout",
        ),
        _operation(
            "add_positional_encoding", "x[* seq_len embed_dim] pos[* seq_len embed_dim]", "out[* seq_len embed_dim]"
        ),
        _operation(
            "learned_positional_encoding", "table[rows embed_dim] seq_len start_pos", "encoding[seq_len embed_dim]"
        ),
        _operation("table_lookup", "table[rows embed_dim] indices[*]", "rows[* embed_dim]"),
        _operation("rope", f"x{_ROWS} start_pos {_ROTATED}", f"out{_ROWS}", *_FREQUENCIES, "mrope"),
        _operation("rope_vjp", f"x{_ROWS} grad_out{_ROWS} start_pos {_ROTATED}", f"dx{_ROWS}", *_FREQUENCIES, "mrope"),
        _operation("apply_rotary", f"x{_ROWS} {_TABLE}", f"out{_ROWS}", "rope_pairing", "odd_lane"),
        _operation("apply_rotary_vjp", f"x{_ROWS} {_TABLE} grad_out{_ROWS}", f"dx{_ROWS}", "rope_pairing", "odd_lane"),
        _operation("rotate_half", f"x{_ROWS}", f"out{_ROWS}"),
        _operation("inv_freq", "head_dim", "frequencies[pairs]", *_FREQUENCIES),
        _operation(
            "rotary_frequencies",
            f"kind head_dim {_KINDS}",
            "inv_freq[pairs] attention_factor",
            "yarn_truncate",
            "yarn_upper",
            "longrope_switch",
            "dynamic_length",
        ),
        _operation("rope_angles", "seq_len head_dim start_pos", "angles[seq_len pairs]", *_FREQUENCIES),
        _operation("rope_tables", "seq_len head_dim start_pos", _TABLE, *_FREQUENCIES),
        _operation(
            "rotary_tables",
            "positions[* seq_len] inv_freq[pairs] attention_factor? sections?",
            "cos[* seq_len channels] sin[* seq_len channels]",
            "rope_pairing",
            "mrope",
        ),
    )
}
"""All operations by name."""
