"""Rotary frequencies of released libraries against the oracles: `make peers` writes docs/rotary.md.

The frequencies and the rotations of released models, by transformers' own modules, and the rotary
layers of other libraries. Everything is judged by the budget of float32. The exit status is 1 where
something is outside that is not declared, or where what is declared no longer happens. What was
found about them is on the page of `research.peers`.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oracles
from spec.extended.released import RELEASED, Released
from systems.peers import transformers_rotary
from systems.peers.rotary_layers import LAYERS, Layer

__all__ = ["markdown"]

LIBRARIES = (
    "torch",
    "transformers",
    "torchtune",
    "x-transformers",
    "rotary-embedding-torch",
    "keras-hub",
    "litgpt",
    "ibm-fms",
)
STARTS = (0, 1000, 4088)
Row = tuple[str, ...]


def rotation(x: NDArray[np.float32], positions: Any, kind: dict[str, Any], **options: Any) -> oracles.Enclosure:
    """What a kernel in float32 may get for the rotation of rows by frequencies that it computes itself."""
    inv_freq, factor = oracles.rotary_frequencies(**kind, arithmetic="float32")
    given = {
        "positions": positions,
        "inv_freq": inv_freq,
        "attention_factor": factor,
        "rotary_dim": kind.get("rotary_dim"),
    }
    return oracles.rope(x, **given, arithmetic="float32", **options)


def model_row(model: Released, length: int) -> tuple[Row, float]:
    """The largest errors ÷ budget of a model's frequencies, its attention factor and its rotation,
    near positions 0 and the last one.
    """
    kind = model.arguments | {"seq_len": length}
    inv_freq, factor = oracles.rotary_frequencies(**kind, arithmetic="float32")
    frequencies, scaling = transformers_rotary.frequencies(model, length)
    positions = np.array([0, 1, 2, 17, length // 2, length - 1])
    if model.sections is not None:
        positions = np.stack([positions, positions[::-1], positions * 3 % length])
    x = np.random.default_rng(0).standard_normal((positions.shape[-1], model.head_dim)).astype(np.float32)
    conventions = oracles.Conventions(
        rope_pairing="adjacent" if model.module == "deepseek_v3" else "half", mrope=model.mrope
    )
    budget = rotation(x, positions, kind, sections=model.sections, conventions=conventions)
    rotated = transformers_rotary.rotated(model, x, positions)
    worst = [float(b.excess(v).max()) for b, v in ((inv_freq, frequencies), (factor, scaling), (budget, rotated))]
    return (model.name, model.kind, str(length), *(f"{enclosure:.2g}" for enclosure in worst), model.source), max(worst)


def layer_row(layer: Layer) -> tuple[Row, float]:
    """The largest error ÷ budget of a layer's rotation, near three positions."""
    conventions = oracles.Conventions(rope_pairing=layer.rope_pairing)
    worst = 0.0
    for start in STARTS:
        x = np.random.default_rng(start).standard_normal((8, layer.arguments["head_dim"])).astype(np.float32)
        budget = rotation(x, start + np.arange(8), layer.frequencies, conventions=conventions)
        worst = max(worst, float(budget.excess(np.asarray(layer.rotate(x, start), dtype=np.float64)).max()))
    return (layer.library, layer.name, layer.arguments["kind"], f"{worst:.2g}", layer.deviates or ""), worst


def rows(name: str, judge: Callable[[], tuple[Row, float]], declared: bool, wrong: list[str]) -> Row:
    """A row of a table: what is outside and not declared, or declared and inside, is noted; what is
    not installed is not run.
    """
    try:
        cells, worst = judge()
    except ImportError as missing:
        return (name, f"not run here: {missing}")
    if (worst > 1) != declared:
        wrong.append(
            f"{name} is {worst:.3g} times its budget away" + (", but is declared to be outside" if declared else "")
        )
    return cells


def markdown(wrong: list[str]) -> str:
    """The page; what is not as declared is added to a list."""
    models = [rows(model.name, partial(model_row, model, n), False, wrong) for model in RELEASED for n in model.lengths]
    layers = [rows(x.name, partial(layer_row, x), bool(x.deviates), wrong) for x in LAYERS]
    lines = [
        "# Rotary frequencies of released libraries",
        "",
        "Written by `make peers`, with "
        + ", ".join(f"{name} {_version(name)}" for name in LIBRARIES)
        + f", on {platform.machine()} CPUs.",
        "Errors are in units of the budget of float32 arithmetic: at most 1 is rounding.",
        "",
        "## Released models, by transformers' modules",
        "",
        "The source of each configuration gives its numbers. They build the rotary module of the model, without",
        "weights. `frequencies` and `factor` are its buffers; `rotation` is the result of its",
        "`apply_rotary_pos_emb` for random rows at six positions up to the length. InternLM2's code is not part of",
        "transformers: Llama's module reads its numbers.",
        "",
        *_table(("model", "kind", "length", "frequencies", "factor", "rotation", "source"), models),
        "",
        "## Rotary layers of other libraries",
        "",
        *_table(("library", "layer", "kind", "rotation", "finding"), layers),
        "",
        "What was found about them is in [peers.md](peers.md).",
    ]
    return "\n".join([*lines, ""])


def _table(head: Row, body: list[Row]) -> list[str]:
    return [
        f"| {' | '.join(row)} |"
        for row in (head, ("---",) * len(head), *(row + ("",) * (len(head) - len(row)) for row in body))
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    os.environ |= {"KERAS_BACKEND": "torch", "TRANSFORMERS_VERBOSITY": "error"}
    parser = argparse.ArgumentParser(prog="python -m research.rotary_peers", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/rotary.md"))
    problems: list[str] = []
    parser.parse_args().output.write_text(markdown(problems), "utf-8")
    sys.exit("\n".join(problems) or 0)
