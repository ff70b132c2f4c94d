"""Defines the subcommand `attnspec new`, which writes an adapter (a file for the user's kernels) to
fill in.
"""

import argparse
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from properties.contract.operations import Operation

__all__ = ["adapter", "add_to"]

_DTYPES = ("float64", "float32", "float16", "bfloat16")
_WIDTH = 88


@dataclass(frozen=True)
class _Library:
    """The parts of an adapter that depend on the library of the user's kernels.

    standard, others   imports of the standard library and of other libraries
    array              the type of the library's arrays
    setup              code before the functions
    says               further fields of the `Implementation`
    derivatives        bodies of derivatives by suffix, if the library differentiates
    hint               a comment in a function to fill in
    """

    standard: tuple[str, ...]
    others: tuple[str, ...]
    array: str
    setup: str = ""
    says: str = ""
    derivatives: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""


_FORWARD = """\

    def forward({typed}) -> Array:
        return {forward}({given})

"""
_TORCH = {
    "_vjp": """\
    inputs = [each.requires_grad_() for each in ({inputs})]
    out = {forward}({given})
    return torch.autograd.grad(out, inputs, {grad}){place}
""",
    "_jvp": _FORWARD
    + """\
    found = torch.func.jvp(forward, ({inputs}), ({tangents}))
    tangent: Array = found[1]
    return tangent
""",
}
_JAX = {
    "_vjp": _FORWARD
    + """\
    gradients: tuple[Array, ...] = jax.vjp(forward, *({inputs}))[1]({grad})
    return gradients{place}
""",
    "_jvp": _FORWARD
    + """\
    tangent: Array = jax.jvp(forward, ({inputs}), ({tangents}))[1]
    return tangent
""",
}
_CTYPES = '''\
@cache
def library() -> ctypes.CDLL:
    """The library, as `cc -O2 -shared -fPIC -o lib{name}.so {name}.c -lm` makes it."""
    return ctypes.CDLL(str(Path(__file__).with_name("lib{name}.so")))


def pointer(x: Array) -> ctypes.c_void_p:
    """Where the numbers of an array are: a contiguous one, np.ascontiguousarray(x)."""
    return ctypes.c_void_p(x.ctypes.data)


'''
_CACHE = '''\
class Cache:
    """Keys and values of one head, as `decode` runs programs of steps on them.

    Take away the parameters and methods that yours has not; `ring = True` says that with a
    window and a capacity the oldest positions give way. What cannot be done is a ValueError.
    """

    def __init__(
        self, d: int, d_v: int, window: int | None = None, capacity: int | None = None
    ) -> None:
        raise NotImplementedError("Fill in decode: make your cache.")

    def append(self, k: Array, v: Array) -> None:
        """Add positions: k (n, d), v (n, d_v)."""

    def attend(self, q: Array) -> Array | tuple[Array, Array]:
        """out (n, d_v), or (out, lse), of q (n, d) at the last n positions."""
        return q

    def rollback(self, n: int) -> None:
        """The newest n positions go."""

    def evict(self, n: int) -> None:
        """The oldest n positions go; the others keep theirs."""

    def poison(self, value: float) -> None:
        """Fill the slots that are not in use with a number."""


'''
_BATCHED_CACHE = '''\
class BatchedCache:
    """Keys and values of several heads for a batch of rows, as `batched_decode` runs programs of
    steps on them. Each row has its own positions.

    Take away the parameters and methods that yours has not. If one row refuses a step, raise
    ValueError and change no row.
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        d: int,
        d_v: int,
        num_heads: int,
        *,
        window: int | None = None,
        capacity: int | None = None,
        prefix: int = 0,
    ) -> None:
        raise NotImplementedError("Fill in batched_decode: make your cache.")

    def append(self, k: Array, v: Array, rows: list[int] | None = None) -> None:
        """Add positions to r rows, or all: k (r, kv_heads, n, d), v (r, kv_heads, n, d_v)."""

    def attend(
        self, q: Array, rows: list[int] | None = None
    ) -> Array | tuple[Array, Array]:
        """out (r, num_heads, n, d_v), or (out, lse), of q (r, num_heads, n, d)."""
        return q

    def rollback(self, n: int, rows: list[int] | None = None) -> None:
        """The newest n positions of each row go."""

    def fork(self, source: int, target: int) -> None:
        """Row target becomes a copy of row source."""

    def reorder(self, index: list[int]) -> None:
        """Row b becomes what row index[b] was."""

    def free(self, row: int) -> None:
        """The row is empty again."""


'''
_CACHES = {"decode": ("Cache", _CACHE), "batched_decode": ("BatchedCache", _BATCHED_CACHE)}
_JAX_SETTINGS = {
    "float64": 'jax.config.update("jax_enable_x64", True)\n\n',
    "float32": 'jax.config.update("jax_default_matmul_precision", "highest")\n\n',
}
_NUMBERS = (
    *("base", "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"),
    *("low_freq_factor", "high_freq_factor", "partial_rotary_factor"),
)
_OPTIONS = {
    "scale": "float | None = None",
    "causal": "bool = False",
    "offset": "int | None = None",
    "window": "tuple[int | None, int | None] = (None, None)",
    "softcap": "float | None = None",
    "sections": "tuple[int, int, int] | None = None",
    **dict.fromkeys(("short_factor", "long_factor"), "tuple[float, ...] | None = None"),
    **dict.fromkeys(
        ("rotary_dim", "seq_len", "max_position_embeddings", "original_max_position_embeddings"), "int | None = None"
    ),
    "truncate": "bool | None = None",
    **dict.fromkeys(_NUMBERS, "float | None = None"),
}
"""The types and defaults of the options that are numbers."""

_TRITON = '''\
@triton.jit
def doubled(x: Any, out: Any, n: int, block: tl.constexpr) -> None:
    """Twice the numbers of x: doubled[(triton.cdiv(n, 128),)](x, out, n, 128)."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < n
    tl.store(out + place, 2 * tl.load(x + place, mask=inside), mask=inside)


'''
_PALLAS = '''\
def doubled(x: Array) -> Array:
    """Twice the numbers of x, by a kernel in Pallas, as an example."""

    def kernel(numbers: Any, out: Any) -> None:
        out[...] = 2 * numbers[...]

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    result: Array = pallas.pallas_call(kernel, out_shape=shape)(x)
    return result


'''
_ON_A_GPU = '    device="cuda",  # with --interpret: the CPU\n'

_NUMPY = ("from numpy.typing import NDArray",)

_LIBRARIES = {
    "numpy": _Library(("from typing import Any",), _NUMPY, "NDArray[Any]"),
    "torch": _Library(
        (),
        ("import torch",),
        "torch.Tensor",
        says='    arrays="torch",\n    device="cuda" if torch.cuda.is_available() else "cpu",\n',
        derivatives=_TORCH,
    ),
    "jax": _Library(
        (), ("import jax", "import jax.numpy as jnp"), "jax.Array", says="    arrays=jnp.asarray,\n", derivatives=_JAX
    ),
    "triton": _Library(
        ("from typing import Any",),
        ("import torch", "import triton", "import triton.language as tl"),
        "torch.Tensor",
        setup=_TRITON,
        says='    arrays="torch",\n' + _ON_A_GPU,
    ),
    "pallas": _Library(
        ("from typing import Any",),
        ("import jax", "import jax.numpy as jnp", "from jax.experimental import pallas"),
        "jax.Array",
        setup=_PALLAS,
        says="    arrays=jnp.asarray,\n",
    ),
    "ctypes": _Library(
        ("import ctypes", "from functools import cache", "from pathlib import Path", "from typing import Any"),
        _NUMPY,
        "NDArray[Any]",
        setup=_CTYPES,
        hint="    # library().{operation}(pointer(…), …, ctypes.c_long(…))\n",
    ),
}


def add_to(commands: Any) -> None:
    """Add the subcommand to the parser."""
    new = commands.add_parser(
        "new",
        help="write an adapter to fill in",
        description="Write an adapter to fill in: a function for each operation, and declarations of what your kernels "
        "support. An existing file stays unchanged. With --inspect the adapter is filled in by measurement: "
        "`attnspec new FILE --inspect KERNELS` is `attnspec inspect KERNELS --write FILE`. "
        "Exit status: 0 the adapter was written · 1 it was written, and --inspect found an anomaly · 2 it cannot be "
        "written.",
    )
    new.add_argument("file", metavar="FILE", type=Path, help="the file to write, such as my_kernels.py")
    new.add_argument(
        *("--operations", "-o"),
        nargs="+",
        action="extend",
        metavar="OPERATION",
        help="the operations; `attnspec operations` lists them all (default: scaled_dot_product_attention)",
    )
    new.add_argument(
        "--library",
        choices=_LIBRARIES,
        default="numpy",
        help="the library of your kernels' arrays (default: %(default)s)",
    )
    new.add_argument(
        "--dtype", choices=_DTYPES, default="float32", help="the type of your kernels' numbers (default: %(default)s)"
    )
    new.add_argument(
        "--inspect",
        metavar="KERNELS",
        help="fill in what attnspec measures of these kernels: kernels.py, or kernels.py:function with its operation "
        "as --operations; --library and --dtype are then measured too",
    )
    new.set_defaults(run=_new)


def _new(options: argparse.Namespace) -> int:
    from properties.contract.names import named
    from properties.contract.operations import OPERATIONS

    file: Path = options.file
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise ValueError(f"{file} cannot be imported: its name should be an identifier, such as my_kernels.py.")
    if options.inspect:
        return _inspected(file, options.inspect, options.operations or [])
    wanted = [named(text, OPERATIONS, "operation") for text in options.operations or ["scaled_dot_product_attention"]]
    text = adapter(file.stem, wanted, options.library, options.dtype)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise ValueError(f"{file} exists, and stays unchanged: give another name.") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be written: {error.strerror}.") from error
    to_fill_in = re.findall(r'"Fill in (\w+)', text)
    print(f"{file}: fill in {', '.join(to_fill_in)}; then `attnspec verify {file}`, in CI with `--strict`.")
    return 0


def _inspected(file: Path, kernels: str, operations: list[str]) -> int:
    """Write the adapter that `attnspec inspect` writes, and return the exit status."""
    from properties.command.inspecting import inspect

    if len(operations) > 1:
        raise ValueError(f"--inspect takes one operation, but --operations names {len(operations)}.")
    return inspect([kernels, "--write", str(file), *(f"--operation={name}" for name in operations)])


def adapter(name: str, operations: Iterable[str], library: str, dtype: str) -> str:
    """Return the text of an adapter, a file with a function to fill in for each operation. If the
    library computes a derivative, the adapter also has its forward operation.
    """
    from properties.contract.operations import OPERATIONS

    parts = _LIBRARIES[library]
    wanted = {
        name_wanted: None
        for operation in operations
        for name_wanted in (
            (OPERATIONS[operation].forward, operation) if _body(OPERATIONS[operation], parts) else (operation,)
        )
    }
    chosen = [OPERATIONS[operation] for operation in wanted]
    others = sorted(
        (*parts.others, "from attnspec import oracles, properties"), key=lambda line: (line.startswith("from"), line)
    )
    settings = _JAX_SETTINGS.get(dtype, "") if library == "jax" else ""
    return "".join(
        [
            f'"""What `attnspec verify {name}.py` puts under test: fill in what raises NotImplementedError."""\n\n',
            *(f"{line}\n" for line in (*parts.standard, *([""] if parts.standard else []), *others)),
            f"\n{settings}Array = {parts.array}\n\n\n",
            parts.setup.format(name=name),
            *(_function(operation, parts) for operation in chosen),
            _implementation(name, chosen, parts, dtype),
        ]
    )


def _body(operation: "Operation", kind: _Library) -> str:
    """Return the body of a derivative that the library computes.

    Return "" for other operations, and for operations whose options have derivatives too.
    """
    return (
        ""
        if {"bias", "dbias"} & {*operation.parameters, *operation.outputs}
        else kind.derivatives.get(operation.name[-4:], "")
    )


def _function(operation: "Operation", kind: _Library) -> str:
    """Return the text of a function: one to fill in, or a derivative that the library computes."""
    from properties.views.operations import shapes, summary

    if operation.is_played:
        return _CACHES[operation.name][1]
    returns = "Array" if len(operation.outputs) == 1 else "tuple[Array, ...]"
    typed = [
        f"{parameter}: {_type(operation, parameter)}"
        for parameter in operation.parameters
        if parameter not in operation.options
    ]
    typed += [
        *(["*"] if operation.options else []),
        *(f"{parameter}: {_OPTIONS.get(parameter, 'Array | None = None')}" for parameter in operation.options),
    ]
    signature = _wrapped(f"def {operation.name}(", typed, f") -> {returns}:")
    arrays = "".join(f"    {names}  {shape}\n" for shape, names in shapes(operation).items())
    masks = (
        "\n    mask allows where it is true; it may be None, and have axes of size 1, or fewer.\n"
        if "mask" in operation.parameters
        else ""
    )
    docstring = f'    """{summary(operation)}.\n\n{arrays}{masks}    """\n'
    derivative = _body(operation, kind)
    body = (
        _differentiated(operation, derivative)
        if derivative
        else kind.hint.format(operation=operation.name) + _fill_in(operation)
    )
    return f"{signature}{docstring}{body}\n\n"


def _fill_in(operation: "Operation") -> str:
    sentence = f'"Fill in {operation.name}: call your kernel, and return its result."'
    return (
        f"    raise NotImplementedError(\n        {sentence}\n    )\n"
        if len(sentence) > _WIDTH - 31
        else f"    raise NotImplementedError({sentence})\n"
    )


def _differentiated(operation: "Operation", body: str) -> str:
    """Return the body of a derivative that the library computes from the forward operation."""
    from properties.contract.operations import OPERATIONS

    forward = OPERATIONS[operation.forward]
    inputs = [
        parameter for parameter in forward.parameters if f"d{parameter}" in (*operation.outputs, *operation.parameters)
    ]
    filled = body.format(
        inputs=_tuple(inputs),
        typed=", ".join(f"{parameter}: Array" for parameter in inputs),
        forward=forward.name,
        given=", ".join(
            f"{parameter}={parameter}" if parameter in forward.options else parameter
            for parameter in forward.parameters
            if parameter in operation.parameters
        ),
        tangents=_tuple(f"d{parameter}" for parameter in inputs),
        grad=next((parameter for parameter in operation.parameters if parameter.startswith("grad_")), ""),
        place="" if len(inputs) > 1 else "[0]",
    )
    return "".join(_split(line) if len(line) > _WIDTH + 1 else line for line in filled.splitlines(keepends=True))


def _split(line: str) -> str:
    """Return a call on several lines. It is for a call that is too long for one line."""
    indentation = len(line) - len(line.lstrip())
    start, _, given = line.strip().partition("(")
    return indent(_wrapped(f"{start}(", given.removesuffix(")").split(", "), ")", indentation), " " * indentation)


def _tuple(names: Iterable[str]) -> str:
    """Return the text between the brackets of a tuple."""
    first, *others = names
    return ", ".join((first, *others)) if others else f"{first},"


def _type(operation: "Operation", parameter: str) -> str:
    if parameter == "kind":
        return "str"
    if parameter not in operation.axes:
        return "int | None" if (operation.name, parameter) == ("causal_mask", "n_k") else "int"
    return "Array | None" if parameter == "mask" else "Array"


def _implementation(name: str, chosen: "list[Operation]", kind: _Library, dtype: str) -> str:
    """Return the text of the `Implementation`. Comments show the other values of conventions, and
    further declarations.
    """
    from properties.contract.features import ATTENTION, FEATURES, KINDS
    from properties.views.operations import readings

    fields = list(dict.fromkeys(field for operation in chosen for field in operation.conventions))
    stated = []
    for name_ in fields:
        first, *others = readings(name_)
        stated.append(
            f"        {name_}={first!r},{'  # or ' if others else ''}{', '.join(map(repr, others))}\n".replace("'", '"')
        )
    conventions = (
        f"    conventions=oracles.Conventions(\n{''.join(stated)}    ),\n"
        if stated
        else "    conventions=oracles.Conventions(),\n"
    )
    called = [operation for operation in chosen if not operation.is_played]
    options = [
        option
        for option in FEATURES
        if any(
            option in operation.options or (option in KINDS and "kind" in operation.parameters) for operation in called
        )
    ]
    named = "".join(f'        {"" if option in ATTENTION else "# "}"{option}",\n' for option in options)
    features = f"    features=[  # others are never passed\n{named}    ],\n" if options else ""
    offered = "".join(
        f'        "{operation.name}": {_CACHES.get(operation.name, (operation.name,))[0]},\n' for operation in chosen
    )
    return f"""\
adapter = properties.Implementation(
    name="{name}",
    operations={{
{offered}    }},
    arithmetic="{dtype}",  # what it rounds: its budgets follow from that alone
{features}{conventions}{kind.says}\
    # What it does not take is not asked for, if it is said here:
    # supports=["full masks", "at most 8 shapes", {{"head_dim": (64, 128)}}],
    # batch_ranks=(2,),  # how many leading axes
    # deterministic=False,  # equal calls may differ within the budget
    # bits=["batch size"],  # what leaves each bit of an output unchanged
)
"""


def _wrapped(start: str, parts: list[str], end: str, indentation: int = 0) -> str:
    """Return the parts as text between `start` and `end`. They stand on one line if that is not too
    long; else on a separate line between start and end; else on one line each.
    """
    joined = ", ".join(parts)
    if indentation + len(f"{start}{joined}{end}") <= _WIDTH:
        return f"{start}{joined}{end}\n"
    if indentation + len(joined) <= _WIDTH - 4:
        return f"{start}\n    {joined}\n{end}\n"
    return f"{start}\n{''.join(f'    {part},{chr(10)}' for part in parts)}{end}\n"
