"""The options that oracles take by keyword. Each option is written once, with its meaning and
default.

A function with options is written as

    @takes(AttentionOptions)
    def attention(q, k, v, **options: Unpack[AttentionOptions]): ...

`takes` fills in the defaults, refuses a name that is not an option, and adds the options to the
function's signature and help.
"""

import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar, cast, get_type_hints

from oracles import formats
from oracles.arguments import Given
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.formats import Arithmetic
from oracles.judging import Method, require_method
from oracles.spelling import did_you_mean

Window = tuple[int | None, int | None]
Function = TypeVar("Function", bound=Callable[..., Any])


class Option(NamedTuple):
    """The meaning of an option, and its default."""

    meaning: str
    default: Any = None


class AnswerOptions(TypedDict, total=False):
    """The options of every oracle: they say which kind of answer it gives."""

    arithmetic: Annotated[
        Given,
        Option(
            "None for the certified value: the exact value is within mid ± rad; an Arithmetic, or the name of a "
            "preset, for the budget: the result of any covered code in this arithmetic is within mid ± rad"
        ),
    ]
    conventions: Annotated[
        Conventions | None, Option("an oracles.Conventions; the defaults of oracles.Conventions() if None")
    ]
    method: Annotated[
        Method,
        Option(
            "'fast' (float64), 'arb' (ball arithmetic), or 'auto': fast, and arb where the radius of fast is too "
            "wide to judge by and arb is affordable",
            "auto",
        ),
    ]


class _ScaleOptions(AnswerOptions, total=False):
    scale: Annotated[float | None, Option("a finite float64 number; 1/√d by default (1 for d = 0)")]


class MultiHeadOptions(_ScaleOptions, total=False):
    """The options of multi-head attention."""

    is_causal: Annotated[
        bool, Option("query i attends only to keys j ≤ i that the mask allows, aligned by conventions.causal", False)
    ]


class LayerOptions(_ScaleOptions, total=False):
    """The options of `attention_layer`."""

    bq: Annotated[Any, Option("the bias of the queries (H·head_dim,); none by default")]
    bk: Annotated[Any, Option("the bias of the keys (H_kv·head_dim,); none by default")]
    bv: Annotated[Any, Option("the bias of the values (H_kv·value_dim,); none by default")]
    bo: Annotated[Any, Option("the bias of the output (d_out,); none by default")]
    mask: Annotated[Any, Option("bool, broadcast to (…, n_q, n_k), shared by the heads")]
    causal: Annotated[
        bool, Option("token i sees only the tokens j ≤ i of the context, aligned by conventions.causal", False)
    ]


class CausalOptions(_ScaleOptions, total=False):
    """The options of `causal_attention`."""

    rows: Annotated[Sequence[int] | None, Option("the query rows to evaluate; all by default")]


class DotProductOptions(MultiHeadOptions, CausalOptions, total=False):
    """The options of scaled dot-product attention."""


class _ScoreOptions(AnswerOptions, total=False):
    window: Annotated[
        Window,
        Option("(left, right): a query attends only to p − left ≤ j ≤ p + right; None is no limit", (None, None)),
    ]
    softcap: Annotated[float | None, Option("c > 0: scores s become c·tanh(s/c); no softcap if None")]
    sink: Annotated[Any, Option("(H,): for each head the logit of a key without a value; −∞ for a head without a sink")]


class _CausalityOptions(_ScoreOptions, total=False):
    causal: Annotated[bool, Option("the query at position p attends only to keys j ≤ p", False)]


class LatentOptions(_CausalityOptions, total=False):
    """The options of `latent_attention`."""

    mask: Annotated[Any, Option("bool, broadcast to (…, H, n_q, n_k)")]
    offset: Annotated[
        Any,
        Option(
            "the position of query 0 among the keys: an int within ±2⁵³, or one for each element of the batch; "
            "0 by default, or n_k − n_q under conventions.causal = bottom_right"
        ),
    ]


class _AlibiOptions(_ScaleOptions, total=False):
    alibi: Annotated[
        Any,
        Option(
            "(H,): the slope of each head, which adds −slope·|p − j| to the logit of key j, or slope·j under "
            "conventions.alibi_reference = key; None for no slopes"
        ),
    ]


class FeatureOptions(_AlibiOptions, LatentOptions, total=False):
    """The options of attention on which each row, and its derivatives, may depend."""

    bias: Annotated[Any, Option("float, broadcast to (…, H, n_q, n_k); −∞ masks the entry")]


class _PackedOptions(_AlibiOptions, _CausalityOptions, total=False):
    seqused_q: Annotated[Any, Option("integers (sequences,): how many of its query rows a sequence uses; all if None")]
    seqused_k: Annotated[Any, Option("integers (sequences,): how many of its key rows a sequence uses; all if None")]
    max_seqlen_q: Annotated[
        int | None, Option("at least the number of query rows of every sequence; the results do not depend on it")
    ]
    max_seqlen_k: Annotated[
        int | None, Option("at least the number of key rows of every sequence; the results do not depend on it")
    ]


class _CodeOptions(AnswerOptions, total=False):
    q_scale: Annotated[
        Any,
        Option(
            "float32 above 0: what q's codes are multiplied by, or divided by under conventions.fp8_scale. One for all "
            "codes (), for each key head of a batch entry or sequence, for each row and head, or for each block of its "
            "channels. `oracles.quantised`, `oracles.packed` and `oracles.paged` say the shapes"
        ),
    ]
    k_scale: Annotated[Any, Option("the same of k or k_pages")]
    v_scale: Annotated[Any, Option("the same of v or v_pages, with blocks of d_v")]


class PackedOptions(_PackedOptions, _CodeOptions, total=False):
    """The options of `packed_attention`."""


class PackedGradientOptions(_PackedOptions, total=False):
    """The options of `packed_attention_vjp`."""

    grad_lse: Annotated[Any, Option("the cotangent of the log-sum-exp, in the shape of lse; 0 if None")]


class PagedOptions(_AlibiOptions, _ScoreOptions, _CodeOptions, total=False):
    """The options of `paged_attention`."""

    cu_q: Annotated[
        Any,
        Option("integers (batch + 1,): sequence b has the rows cu_q[b] … cu_q[b + 1] − 1 of q; equal numbers if None"),
    ]
    causal: Annotated[bool, Option("the query at position p attends only to keys j ≤ p", True)]


class DirectionalOptions(FeatureOptions, CausalOptions, total=False):
    """The options of `attention_jvp`."""


class DropoutOptions(TypedDict, total=False):
    """The options of operations that leave out given weights."""

    dropout_mask: Annotated[
        Any, Option("bool, broadcast to (…, H, n_q, n_k): which weights dropout keeps (True); all without dropout")
    ]
    dropout: Annotated[
        float, Option("p from 0 to less than 1, with a dropout_mask: the kept weights are divided by 1 − p", 0.0)
    ]


class AttentionOptions(DirectionalOptions, DropoutOptions, _CodeOptions, total=False):
    """The options of `attention`."""


class GradientOptions(FeatureOptions, DropoutOptions, total=False):
    """The options of `attention_vjp`."""


class RotationOptions(AnswerOptions, total=False):
    """The options of `rope`."""

    positions: Annotated[
        Any, Option("integers, broadcast to the axes of x but the last, instead of positions counted from start_pos")
    ]
    inv_freq: Annotated[Any, Option("the frequencies (r/2,): an array, or an Enclosure whose radius counts")]
    attention_factor: Annotated[Any, Option("a number, or an Enclosure of one, that multiplies cosines and sines", 1.0)]
    rotary_dim: Annotated[Any, Option("r, how many of the first channels rotate; head_dim by default")]
    sections: Annotated[Any, Option("(t, h, w): how many pairs rotate by time, by height and by width; or (h, w)")]


class Answer(NamedTuple):
    """The validated `AnswerOptions`: they say which kind of answer the caller asks for."""

    arithmetic: Arithmetic | None
    conventions: Conventions
    method: Method


def answer(options: AnswerOptions) -> Answer:
    """Validate the `AnswerOptions`, and return them as an `Answer`. Raises TypeError and ValueError
    for values that do not fit.
    """
    require_method(options["method"])
    arithmetic, conventions = formats.resolve(options["arithmetic"]), resolve_conventions(options["conventions"])
    return Answer(arithmetic, conventions, options["method"])


def defaults(options: type) -> dict[str, Any]:
    """Return the default of each option in a class of options, by name."""
    return {name: option.default for name, option in _explained(options).items()}


def takes(options: type) -> Callable[[Function], Function]:
    """Return a decorator for a function that takes the options of this class by keyword."""
    explained, usual, hints = _explained(options), defaults(options), get_type_hints(options)
    by_keyword = [Parameter(x, Parameter.KEYWORD_ONLY, default=usual[x], annotation=hints[x]) for x in explained]

    def decorated(function: Function) -> Function:
        written = signature(function)
        others = [x for x in written.parameters.values() if x.kind is not x.VAR_KEYWORD]
        known = [*(x.name for x in others if x.kind is not x.VAR_POSITIONAL), *explained]
        names = frozenset(known)

        @wraps(function)
        def complete(*arguments: Any, **given: Any) -> Any:
            if not names.issuperset(given):
                unknown = next(name for name in given if name not in names)
                nearest = did_you_mean(unknown, known, f"It takes {', '.join(known)}.")
                raise TypeError(f"{function.__name__}() has no option {unknown!r}.{nearest}")
            return function(*arguments, **(usual | given))

        complete.__signature__ = written.replace(parameters=[*others, *by_keyword])  # type: ignore[attr-defined]
        complete.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n{_help(explained)}\n    "
        return cast(Function, complete)

    return decorated


def _explained(options: type) -> dict[str, Option]:
    """Return the options of a class, by name. The options that all oracles take come last."""
    hints = get_type_hints(options, include_extras=True)
    last = AnswerOptions.__annotations__
    return {name: hints[name].__metadata__[0] for name in sorted(hints, key=lambda name: name in last)}


def _help(explained: dict[str, Option]) -> str:
    """Return the text about the options that ends a docstring."""
    width = max(map(len, explained))
    lines = ["    Options, by keyword:", ""]
    for name, option in explained.items():
        start, rest = f"        {name.ljust(width)}  ", " " * (width + 10)
        lines += textwrap.wrap(option.meaning, 100, initial_indent=start, subsequent_indent=rest)
    return "\n".join(lines)
