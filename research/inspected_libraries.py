"""What `attnspec inspect` finds out about functions of released libraries: `python -m
research.inspected_libraries` writes docs/inspected.md.

Each function is inspected without an adapter and without a declaration. What its documentation says
about conventions was read by hand; each inferred convention is compared with it. A library that is
not installed is left out.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from properties.inspection.form_trials import NoFormError
from properties.portraits.portrait import OperationPortrait, inspect
from properties.views.whole import write_whole

__all__ = ["FUNCTIONS", "Function", "Row", "markdown", "row_of"]

_PAGE = Path(__file__).parents[1] / "docs/inspected.md"
_SDPA, _SINUSOID = "scaled_dot_product_attention", "sinusoidal_positional_encoding"
_MOST_LETTERS = 400  # of a cell


@dataclass(frozen=True)
class Function:
    """A function of a released library.

    distribution  the name under which the library is installed
    imports       import statements
    call          the function as code. A lambda passes the arguments of the operation in another form
    operation     the operation as which the function is inspected
    documented    what the documentation says: values of conventions, of which one is true
    document      which document says so
    """

    distribution: str
    imports: str
    call: str
    operation: str
    documented: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    document: str = ""


FUNCTIONS: Sequence[Function] = (
    Function(
        "torch",
        "import torch",
        "torch.nn.functional.scaled_dot_product_attention",
        "attention",
        {
            **{"scale_default": ["rsqrt"], "causal": ["top_left"], "mask_polarity": ["true_allows"]},
            **{"causal_with_mask": ["refuse"], "kv_heads": ["repeat"]},
        },
        "docstring, with its equivalent code",
    ),
    Function(
        "jax",
        "import jax",
        "jax.nn.dot_product_attention",
        "attention",
        {"scale_default": ["rsqrt"], "mask_polarity": ["true_allows"], "window": ["bound"]},
        "docstring: mask, scale, local_window_size",
    ),
    Function(
        "keras",
        "import keras",
        "keras.ops.dot_product_attention",
        "attention",
        {"scale_default": ["rsqrt"], "mask_polarity": ["true_allows"]},
        "docstring: mask, scale",
    ),
    Function(
        "flax",
        "import flax.linen",
        "flax.linen.dot_product_attention",
        _SDPA,
        {"mask_polarity": ["true_allows"]},
        "docstring: mask",
    ),
    Function("equinox", "from equinox.nn import _attention", "_attention.dot_product_attention", _SDPA),
    Function(
        "memory-efficient-attention-pytorch",
        "from memory_efficient_attention_pytorch.memory_efficient_attention import attention",
        "attention",
        "attention",
    ),
    Function(
        "transformers",
        "from transformers.models.llama.modeling_llama import apply_rotary_pos_emb",
        "lambda x, cos, sin: apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=0)[0]",
        "apply_rotary",
        {"rope_pairing": ["half"]},
        "docstring of rotate_half",
    ),
    Function(
        "transformers",
        "from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions",
        "create_sinusoidal_positions",
        _SINUSOID,
    ),
    Function(
        "diffusers",
        "from diffusers.models.embeddings import apply_rotary_emb",
        "lambda x, cos, sin: apply_rotary_emb(x, (cos, sin))",
        "apply_rotary",
        {"rope_pairing": ["adjacent"]},
        "docstring: inputs are reshaped as complex numbers",
    ),
    Function(
        "diffusers",
        "import torch\nfrom diffusers.models.embeddings import get_timestep_embedding",
        "lambda seq_len, embed_dim, start_pos: "
        "get_timestep_embedding(torch.arange(start_pos, start_pos + seq_len), embed_dim)",
        _SINUSOID,
        {"sinusoid_layout": ["concatenated", "tensor2tensor"]},
        "docstring: flip_sin_to_cos",
    ),
    Function(
        "rotary-embedding-torch",
        "from rotary_embedding_torch import RotaryEmbedding",
        "lambda x, start_pos: RotaryEmbedding(x.shape[-1]).rotate_queries_or_keys(x, offset=start_pos)",
        "rope",
    ),
    Function(
        "positional-encodings",
        "import torch\nfrom positional_encodings.torch_encodings import PositionalEncoding1D",
        "lambda seq_len, embed_dim, start_pos: "
        "PositionalEncoding1D(embed_dim)(torch.zeros(1, start_pos + seq_len, embed_dim))[0, start_pos:]",
        _SINUSOID,
    ),
    Function(
        "scipy", "import scipy.special", "lambda scores: scipy.special.softmax(scores, axis=-1)", "hard_masked_softmax"
    ),
    Function(
        "tinygrad",
        "from tinygrad import Tensor",
        "lambda q, k, v: Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)).numpy()",
        _SDPA,
    ),
)
"""Functions of released libraries, and what their documentation says."""


@dataclass(frozen=True)
class Row:
    """What was found out about a function: clauses for the cells of the table. `wrong` are the inferred
    conventions that contradict the documentation.
    """

    library: str
    call: str
    operation: str
    inferred: str = ""
    documented: str = ""
    unknown: str = ""
    anomalies: str = ""
    calls: int = 0
    seconds: float = 0.0
    wrong: tuple[str, ...] = ()


def row_of(function: Function, seconds: float) -> Row | None:
    """Return what was found out about a function in some seconds; None if its library is not here."""
    names: dict[str, Any] = {}
    try:
        library = f"{function.distribution} {metadata.version(function.distribution)}"
        exec(function.imports, names)
    except ImportError:
        return None
    started = time.monotonic()
    try:
        (portrait,) = inspect({function.operation: eval(function.call, names)}, until=started + seconds).operations
    except NoFormError as error:
        unknown = str(error)
        return Row(library, function.call, function.operation, unknown=unknown, seconds=time.monotonic() - started)
    return Row(
        library,
        function.call,
        function.operation,
        "; ".join(f"{convention}={value!r}" for convention, value in portrait.conventions.items()),
        _compared(function, portrait),
        "; ".join(portrait.unknown),
        "; ".join(portrait.anomalies),
        portrait.calls,
        time.monotonic() - started,
        tuple(
            convention
            for convention, values in function.documented.items()
            if portrait.conventions.get(convention, values[0]) not in values
        ),
    )


def _compared(function: Function, portrait: OperationPortrait) -> str:
    """What the documentation says beside what was inferred."""
    verdicts: dict[str, list[str]] = {}
    for convention, values in function.documented.items():
        inferred = portrait.conventions.get(convention)
        verdict = "not inferred" if inferred is None else "the same" if inferred in values else f"says {values[0]!r}"
        verdicts.setdefault(verdict, []).append(convention)
    said = "; ".join(f"{', '.join(names)}: {verdict}" for verdict, names in verdicts.items())
    return f"{said} ({function.document})" if said else ""


def markdown(rows: Sequence[Row]) -> str:
    """Return the page."""
    wrong = sum(len(row.wrong) for row in rows)
    inferred = [row for row in rows if row.inferred]
    lines = [
        "# Released libraries, inspected",
        "",
        "Each function is inspected without an adapter and without a declaration. A lambda passes the arguments in the",
        "form that the function takes. What the documentation says was read by hand.",
        "",
        f"Conventions of {len(inferred)} functions of {len({row.library for row in inferred})} libraries are inferred. "
        f"{wrong or 'None'} of them {'contradicts' if wrong < 2 else 'contradict'} the documentation.",
        "",
        "| library | function | inspected as | inferred | documentation | unknown | anomalies | calls | seconds |",
        "|---|---|---|---|---|---|---|---:|---:|",
    ]
    for row in rows:
        cells = " | ".join(_cell(text) for text in (row.inferred, row.documented, row.unknown, row.anomalies))
        lines.append(
            f"| {row.library} | `{row.call}` | {row.operation} | {cells} | {row.calls or '—'} | {row.seconds:.3g} |"
        )
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """The text of a cell, cut to one that a reader reads: "—" if there is none."""
    one_line = " ".join(text.replace("|", "∣").split())
    return f"{one_line[:_MOST_LETTERS]}…" if len(one_line) > _MOST_LETTERS else one_line or "—"


def main() -> None:
    """Write the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=300.0, help="time for each function")
    seconds = options.parse_args().seconds
    os.environ.setdefault("KERAS_BACKEND", "jax")
    rows = [row for function in FUNCTIONS if (row := row_of(function, seconds))]
    write_whole(_PAGE, markdown(rows))


if __name__ == "__main__":
    main()
