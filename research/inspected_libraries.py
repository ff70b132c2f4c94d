"""What `attnspec inspect` finds out about functions of released libraries: `python -m
research.inspected_libraries` writes docs/inspected.md.

Each function is inspected as it is, without an adapter and without a declaration. A library that is
not installed is left out. The environment of `make peers` has the libraries.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from operator import attrgetter
from pathlib import Path

from properties.inspection.form_trials import NoFormError
from properties.portraits.portrait import inspect
from properties.views.whole import write_whole

__all__ = ["FUNCTIONS", "Row", "markdown", "row_of"]

_PAGE = Path(__file__).parents[1] / "docs/inspected.md"
_SDPA, _SOFTMAX, _ROTARY = "scaled_dot_product_attention", "hard_masked_softmax", "apply_rotary"
_MOST_LETTERS = 240  # of a cell

FUNCTIONS: Sequence[tuple[str, str, str, str]] = (
    ("torch", "torch.nn.functional", "scaled_dot_product_attention", "attention"),
    ("jax", "jax.nn", "dot_product_attention", "attention"),
    ("flax", "flax.linen", "dot_product_attention", _SDPA),
    ("equinox", "equinox.nn._attention", "dot_product_attention", _SDPA),
    ("keras", "keras.ops", "dot_product_attention", _SDPA),
    ("memory-efficient-attention-pytorch", "memory_efficient_attention_pytorch.memory_efficient_attention",
     "memory_efficient_attention", _SDPA),
    ("scipy", "scipy.special", "softmax", _SOFTMAX),
    ("transformers", "transformers.models.llama.modeling_llama", "rotate_half", "rotate_half"),
    ("transformers", "transformers.models.gptj.modeling_gptj", "rotate_every_two", "rotate_half"),
    ("x-transformers", "x_transformers.x_transformers", "rotate_half", "rotate_half"),
    ("local-attention", "local_attention.rotary", "rotate_half", "rotate_half"),
    ("kornia", "kornia.feature.lightglue", "rotate_half", "rotate_half"),
    ("rotary-embedding-torch", "rotary_embedding_torch", "apply_rotary_emb", _ROTARY),
    ("diffusers", "diffusers.models.embeddings", "get_timestep_embedding", "sinusoidal_positional_encoding"),
    ("tinygrad", "tinygrad", "Tensor.scaled_dot_product_attention", _SDPA),
)  # fmt: skip
"""Distributions, their modules and functions, and the operations as which they are inspected."""


@dataclass(frozen=True)
class Row:
    """What was found out about a function: clauses for the cells of the table."""

    library: str
    function: str
    operation: str
    inferred: str = ""
    unknown: str = ""
    anomalies: str = ""
    calls: int = 0
    seconds: float = 0.0


def row_of(distribution: str, module: str, name: str, operation: str, seconds: float) -> Row | None:
    """Return what was found out about a function in some seconds; None if its library is not here."""
    try:
        library = f"{distribution} {metadata.version(distribution)}"
        function = attrgetter(name)(import_module(module))
    except ImportError:
        return None
    started = time.monotonic()
    try:
        (portrait,) = inspect({operation: function}, until=started + seconds).operations
    except NoFormError as error:
        return Row(library, name, operation, unknown=str(error), seconds=time.monotonic() - started)
    form = [f"{fact.subject}: {fact.says}" for fact in portrait.facts if fact.subject in ("arrays", "axes", "options")]
    conventions = [f"{convention}={value!r}" for convention, value in portrait.conventions.items()]
    assumed = portrait.form.assumed if portrait.form else ()
    return Row(
        *(library, name, operation, "; ".join([*conventions, *form]), "; ".join([*portrait.unknown, *assumed])),
        *("; ".join(portrait.anomalies), portrait.calls, time.monotonic() - started),
    )


def markdown(rows: Sequence[Row]) -> str:
    """Return the page."""
    lines = [
        "# Released libraries, inspected",
        "",
        "Each function is inspected as it is: no adapter, no declaration. A cell of unknowns says what could not be",
        "determined, and why.",
        "",
        "| library | function | inspected as | inferred | unknown | anomalies | calls | seconds |",
        "|---|---|---|---|---|---|---:|---:|",
    ]
    for row in rows:
        texts = (row.inferred, row.unknown, row.anomalies)
        cells = " | ".join(_cell(text) for text in texts)
        lines.append(
            f"| {row.library} | `{row.function}` | {row.operation} | {cells} | {row.calls or '—'} | {row.seconds:.3g} |"
        )
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """The text of a cell, cut to one that a reader reads: "—" if there is none."""
    one_line = " ".join(text.replace("|", "∣").split())
    return f"{one_line[:_MOST_LETTERS]}…" if len(one_line) > _MOST_LETTERS else one_line or "—"


def main() -> None:
    """Write the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=60.0, help="time for each function")
    seconds = options.parse_args().seconds
    rows = [row for function in FUNCTIONS if (row := row_of(*function, seconds))]
    write_whole(_PAGE, markdown(rows))


if __name__ == "__main__":
    main()
