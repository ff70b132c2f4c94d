"""Writes the certified vectors, the vectors of Attention in ONNX's layout, the schema, and which
known bugs each test kills.

`python -m research.vectors` writes vectors/; with `--choose` it first chooses all cases again.
"""

import argparse
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

from properties.vectors.checking import SCHEMA
from research.vectors.choosing import CHOSEN, SHOWN, choose, chosen, survivors, written
from research.vectors.matrix import markdown
from research.vectors.onnx_layout import write_onnx
from research.vectors.writing import VECTORS, write


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files. Returns 1 if a mutant that vectors can show survives in float64, or in the
    one format that it has.
    """
    parser = argparse.ArgumentParser(prog="python -m research.vectors", description=__doc__)
    parser.add_argument("--choose", action="store_true", help="choose all cases again")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=VECTORS, metavar="DIR", help="the folder to write to (vectors)")
    options = parser.parse_args(arguments)
    if options.choose:
        with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
            CHOSEN.write_text(written(list(chain.from_iterable(pool.map(choose, SHOWN)))), "utf-8")
    for place in chain(write(options.out / "data"), write_onnx(options.out / "onnx")):
        print(place, flush=True)
    shutil.copyfile(SCHEMA, options.out / "schema.json")
    (options.out / "MATRIX.md").write_text(markdown(chosen()), "utf-8")
    alive = survivors(chosen())
    print(f"{len(chosen())} cases; {len(alive)} mutants survive: {', '.join(alive) or 'none'}.")
    return bool(alive)


if __name__ == "__main__":
    raise SystemExit(main())
