"""`python -m research.benchmarks.timing`: how fast, how narrow and how lean are the oracles?

Speed is the ratio of two functions that run in turn, A B A B …, after a warm-up. Each pair gives
one ratio, and the median counts. Ratios on a shared machine move together, seconds do not. Every
ratio is measured with one thread and with all threads; the target names one of the two.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from math import log2
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import torch
from rich.table import Table
from threadpoolctl import threadpool_info, threadpool_limits

import oracles
from research.benchmarks import naive
from research.benchmarks.report import console, save
from spec import MPF, tensor
from spec.attention import AttentionContext
from spec.attention import scaled_dot_product_attention as literal_attention

__all__ = ["Row", "Sizes", "main", "paired"]

Array = np.ndarray[Any, np.dtype[np.float64]]
ULP = 2.0**-52


@dataclass(frozen=True)
class Sizes:
    """The measured sizes. The defaults are the sizes of the targets."""

    square: int = 1024
    large_square: int = 4096
    d: int = 64
    sequence: int = 4096
    positions: int = 1 << 20
    keys: tuple[int, ...] = (1 << 14, 1 << 15, 1 << 16, 1 << 17)
    long_queries: int = 4096
    some_queries: int = 256
    some_rows: int = 64
    arb: tuple[int, int, int] = (32, 32, 16)
    window: int = 512
    windowed_rows: int = 4096


SMALLEST = Sizes(16, 32, 4, 16, 64, (64, 128), 16, 8, 4, (2, 2, 2), 8, 16)


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, the lowest and highest of its repeats, and the bound that it
    should keep, if it has one.
    """

    what: str
    threads: str
    figure: float
    low: float
    high: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the figure keeps its bound; None without one."""
        if self.at_most is None and self.at_least is None:
            return None
        return (self.at_most is None or self.figure <= self.at_most) and (
            self.at_least is None or self.figure >= self.at_least
        )


@contextmanager
def threads(count: str) -> Iterator[None]:
    """BLAS and torch restricted to one thread, or free to use all."""
    number = 1 if count == "one" else os.cpu_count() or 1
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with threadpool_limits(number):
            yield
    finally:
        torch.set_num_threads(before)


def seconds(run: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def paired(a: Callable[[], object], b: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """The median, least and greatest of time(a) ÷ time(b) over pairs of calls in turn, after one call of each."""
    a(), b()
    ratios = [seconds(a) / seconds(b) for _ in range(repeats)]
    return statistics.median(ratios), min(ratios), max(ratios)


def ratios(
    label: str, a: Callable[[], object], b: Callable[[], object], repeats: int, at_most: float, target: str
) -> Iterator[Row]:
    """Rows of one ratio with one thread and with all; the bound is for `target` of the two."""
    for count in ("one", "all"):
        with threads(count):
            yield Row(label, count, *paired(a, b, repeats), "×", at_most=at_most if count == target else None)


def radius(label: str, enclosures: tuple[oracles.Enclosure, ...], sizes: tuple[Array, ...], at_most: float) -> Row:
    """The largest radius of some results, each in units of the largest entry of an array."""
    worst = max(float(enclosure.rad.max() / np.abs(x).max()) for enclosure, x in zip(enclosures, sizes, strict=True))
    return Row(label, "", worst, worst, worst, "", at_most=at_most)


def _normal(*shapes: tuple[int, ...]) -> Iterator[Array]:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) for shape in shapes)


def attention_rows(sizes: Sizes, repeats: int) -> Iterator[Row]:
    """Certified attention and its derivatives against naive NumPy, and against torch."""
    for n, bound in ((sizes.square, 1.5), (sizes.large_square, 1.0)):
        q, k, v = _normal(*[(n, sizes.d)] * 3)
        fewer = repeats if n == sizes.square else max(3, repeats // 3)
        yield from ratios(
            f"attention ({n}, {n}, {sizes.d}) ÷ naive NumPy",
            partial(oracles.scaled_dot_product_attention, q, k, v),
            partial(naive.attention, q, k, v),
            fewer, bound, "one",
        )  # fmt: skip
        yield radius("  its radius ÷ max|v|", (oracles.scaled_dot_product_attention(q, k, v),), (v,), 1e-12)

    n = sizes.square
    q, k, v, a, b, c = _normal(*[(n, sizes.d)] * 6)
    yield from ratios(
        f"attention VJP ({n}, {n}, {sizes.d}) ÷ naive NumPy",
        lambda: oracles.scaled_dot_product_attention_vjp(q, k, v, None, a),
        lambda: naive.attention_vjp(q, k, v, a),
        repeats, 2.5, "one",
    )  # fmt: skip
    gradients = oracles.scaled_dot_product_attention_vjp(q, k, v, None, a)
    yield radius("  its radius ÷ max|gradient|", gradients, tuple(enclosure.mid for enclosure in gradients), 1e-10)
    yield from ratios(
        f"attention JVP ({n}, {n}, {sizes.d}) ÷ naive NumPy",
        lambda: oracles.scaled_dot_product_attention_jvp(q, k, v, None, a, b, c),
        lambda: naive.attention_jvp(q, k, v, a, b, c),
        repeats, 2.5, "one",
    )  # fmt: skip
    tangent = oracles.scaled_dot_product_attention_jvp(q, k, v, None, a, b, c)
    yield radius("  its radius ÷ max|tangent|", (tangent,), (tangent.mid,), 1e-10)

    tq, tk, tv = (torch.from_numpy(x)[None, None] for x in (q, k, v))
    yield from ratios(
        f"attention ({n}, {n}, {sizes.d}) ÷ torch float64",
        lambda: oracles.scaled_dot_product_attention(q, k, v),
        lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tv),
        repeats, 3.0, "all",
    )  # fmt: skip


def featured_rows(sizes: Sizes, repeats: int) -> Iterator[Row]:
    """Attention with a causal window, a cap, ALiBi, a sink and its log-sum-exp against the same in
    naive NumPy; and what a window saves.
    """
    n, width = sizes.square, sizes.square // 2
    q, k, v, g, of_lse = _normal(*[(n, sizes.d)] * 4, (n,))
    far = np.arange(n)[:, None] - np.arange(n)
    bias, sink = oracles.alibi_bias(1, n, n).mid, 0.5
    features = naive.Features((far >= 0) & (far <= width), bias[0], 30.0, sink)
    given: dict[str, Any] = {
        "causal": True,
        "window": (width, None),
        "softcap": features.cap,
        "bias": bias,
        "sink": np.array([sink]),
    }
    heads = q[None], k[None], v[None]
    yield from ratios(
        f"attention with all features ({n}, {n}, {sizes.d}) ÷ naive NumPy",
        lambda: oracles.attention(*heads, **given),
        lambda: naive.featured(q, k, v, features),
        repeats, 1.5, "one",
    )  # fmt: skip
    yield radius("  its radius ÷ max|v|", oracles.attention(*heads, **given)[:1], (v,), 1e-12)
    yield from ratios(
        f"  its VJP ({n}, {n}, {sizes.d}) ÷ naive NumPy",
        lambda: oracles.attention_vjp(*heads, g[None], of_lse[None], **given),
        lambda: naive.featured_vjp(q, k, v, g, of_lse, features),
        repeats, 2.5, "one",
    )  # fmt: skip

    n = sizes.keys[-1]
    q, k, v = _normal(*[(1, n, sizes.d)] * 3)
    attend = partial(oracles.attention, q, k, v, rows=range(n - sizes.windowed_rows, n))
    with threads("one"):
        figure = paired(partial(attend, window=(sizes.window - 1, 0)), attend, max(3, repeats // 5))
    yield Row(
        f"a window of {sizes.window} at {n} keys ÷ no window, {sizes.windowed_rows} rows",
        "one",
        *figure,
        "×",
        at_most=1 / 50,
    )


def positional_rows(sizes: Sizes, repeats: int) -> Iterator[Row]:
    """Certified RoPE and sinusoid against naive NumPy; their radii at every position, RoPE's for pairs of norm 1."""
    n, dim, start = sizes.sequence, 2 * sizes.d, sizes.positions - sizes.sequence
    angles = next(_normal((n, sizes.d)))
    x = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(n, dim)
    yield from ratios(
        f"RoPE ({n}, {dim}) ÷ naive NumPy",
        lambda: oracles.rope(x, start),
        lambda: naive.rope(x, start),
        repeats,
        2.0,
        "one",
    )
    yield from ratios(
        f"sinusoid ({n}, {dim}) ÷ naive NumPy",
        lambda: oracles.sinusoidal_positional_encoding(n, dim, start),
        lambda: naive.sinusoid(n, dim, start),
        repeats, 2.0, "one",
    )  # fmt: skip
    yield from table_rows(sizes, repeats)
    enclosures: dict[str, Callable[[int], oracles.Enclosure]] = {
        "RoPE": lambda first: oracles.rope(x, first),
        "sinusoid": lambda first: oracles.sinusoidal_positional_encoding(n, dim, first),
    }
    for label, at in enclosures.items():
        worst = max(float(at(first).rad.max()) for first in range(0, sizes.positions, n)) / ULP
        yield Row(
            f"{label}: radius at every position to {sizes.positions}", "", worst, worst, worst, "ulp of 1", at_most=4.0
        )


def table_rows(sizes: Sizes, repeats: int) -> Iterator[Row]:
    """Whole caches of a rotary encoding against naive NumPy: the certificate, and the budget of float32."""
    positions, inv_freq = np.arange(sizes.keys[-1]), 10000.0 ** (-np.arange(sizes.d) / sizes.d)
    half = oracles.Conventions(rope_pairing="half")
    for label, arithmetic in (("certificate", None), ("budget of float32", "float32")):
        yield from ratios(
            f"rotary tables ({sizes.keys[-1]}, {2 * sizes.d}), {label} ÷ naive NumPy",
            partial(oracles.rotary_tables, positions, inv_freq, arithmetic=arithmetic, conventions=half),
            partial(naive.rotary_tables, positions, inv_freq),
            repeats, 2.0, "one",
        )  # fmt: skip


def arb_rows(sizes: Sizes, repeats: int) -> Iterator[Row]:
    """The literal spec over mpmath against the oracle's ball arithmetic."""
    n_q, n_k, d = sizes.arb
    q, k, v = _normal((n_q, d), (n_k, d), (n_k, d))

    def literal() -> object:
        with mpmath.workprec(113):
            return literal_attention(AttentionContext(tensor(q, MPF), tensor(k, MPF), tensor(v, MPF)))

    def balls() -> object:
        return oracles.scaled_dot_product_attention(q, k, v, method="arb")

    backend = mpmath.libmp.BACKEND
    figure = paired(literal, balls, repeats)
    yield Row(
        f"literal spec over mpmath ({backend}) ÷ arb path, {sizes.arb}, 113 bits", "", *figure, "×", at_least=30.0
    )


def length_rows(sizes: Sizes, repeats: int) -> Iterator[Row]:
    """How time grows with n_k: the slope of log time against log n_k, from the shortest to the
    longest; and the memory it takes.
    """
    for label, n_q, rows in (
        (
            f"{sizes.some_rows} of {sizes.long_queries} rows",
            sizes.long_queries,
            list(range(0, sizes.long_queries, sizes.long_queries // sizes.some_rows)),
        ),
        (f"all of {sizes.some_queries} rows", sizes.some_queries, None),
    ):
        slopes = []
        for _ in range(max(3, repeats // 3)):
            times = []
            for n_k in sizes.keys:
                q, k, v = _normal((n_q, sizes.d), (n_k, sizes.d), (n_k, sizes.d))
                oracles.scaled_dot_product_attention(q[:1], k, v)
                with threads("one"):
                    times.append(seconds(partial(oracles.scaled_dot_product_attention, q, k, v, rows=rows)))
            slopes.append(float(np.polyfit([log2(n) for n in sizes.keys], [log2(t) for t in times], 1)[0]))
        figure = statistics.median(slopes), min(slopes), max(slopes)
        yield Row(
            f"time ~ n_k^figure, n_k = {sizes.keys[0]} … {sizes.keys[-1]}, {label}", "one", *figure, "", at_most=1.1
        )
    shape = (sizes.long_queries, sizes.keys[-1], sizes.d)
    resident, allocated, elapsed = _long_in_a_process(*shape)
    yield Row(
        f"memory above the inputs, {shape}: peak of the process",
        "all",
        resident,
        resident,
        resident,
        "MiB",
        at_most=256.0,
    )
    yield Row("  allocated by NumPy, pages never touched included", "all", allocated, allocated, allocated, "MiB")
    yield Row("  its time", "all", elapsed, elapsed, elapsed, "s")


def _long_in_a_process(n_q: int, n_k: int, d: int) -> tuple[float, float, float]:
    """What `_long` prints in a fresh process."""
    command = [sys.executable, "-m", "research.benchmarks.timing", "--long", f"{n_q},{n_k},{d}"]
    resident, allocated, elapsed = map(
        float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    )
    return resident, allocated, elapsed


def _long(n_q: int, n_k: int, d: int) -> None:
    """Print the MiB by which the process's peak exceeds the resident memory with the inputs, the
    MiB allocated on top, and the seconds.

    A small problem loads everything first. On a system that does not report resident memory, the
    allocated memory counts as the peak.
    """
    oracles.scaled_dot_product_attention(*_normal(*[(256, d)] * 3))
    q, k, v = _normal((n_q, d), (n_k, d), (n_k, d))
    before = _status("VmRSS")
    tracemalloc.start()
    elapsed = seconds(lambda: oracles.scaled_dot_product_attention(q, k, v))
    allocated = tracemalloc.get_traced_memory()[1]
    print(((_status("VmHWM") - before) or allocated) / 2**20, allocated / 2**20, elapsed)


def _status(field: str) -> int:
    """A field of the process's memory in bytes, as Linux tells it (0 elsewhere): VmRSS is resident
    now, VmHWM the most so far.

    Not getrusage, whose maximum begins at what the parent had resident when it forked.
    """
    status = Path("/proc/self/status").read_text() if Path("/proc/self/status").exists() else f"{field}: 0"
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field + ":"))) * 1024


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "libraries": sorted(
            {f"{x['internal_api']} {x.get('version')} ({x['num_threads']} threads)" for x in threadpool_info()}
        ),
    }


def _verdict(row: Row) -> tuple[str, str]:
    bound = "" if row.met is None else f"≤ {row.at_most:g}" if row.at_most is not None else f"≥ {row.at_least:g}"
    return bound, {None: "", True: "[green]met[/green]", False: "[bold red]MISSED[/bold red]"}[row.met]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print every row, write JSON if asked to. Returns 0 if every bound is kept, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.timing", description=__doc__)
    parser.add_argument("--output", type=Path, help="a text file for the table")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--repeats", type=int, default=15, help="pairs of calls for each ratio (15)")
    parser.add_argument(
        "--smallest", action="store_true", help="sizes that only show that it runs: targets are not meant for them"
    )
    parser.add_argument("--long", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.long:
        _long(*map(int, options.long.split(",")))
        return 0

    sizes = SMALLEST if options.smallest else Sizes()
    target, rows = console(), []
    table = Table(
        "what", "threads", "median", "least", "greatest", "", "target", "", title="Timing", title_justify="left"
    )
    for column in table.columns[2:5]:
        column.justify = "right"
    with target.status("") as status:
        for measure in (attention_rows, featured_rows, positional_rows, arb_rows, length_rows):
            for row in measure(sizes, options.repeats):
                rows.append(row)
                status.update(row.what)
                spread = (f"{row.low:.3g}", f"{row.high:.3g}") if row.low != row.high else ("", "")
                table.add_row(row.what, row.threads, f"{row.figure:.3g}", *spread, row.unit, *_verdict(row))
    target.print(table)
    facts = environment()
    target.print(
        f"{facts['cores']} cores, load {facts['load'][0]:.1f}, Python {facts['python']}, "
        f"NumPy {facts['numpy']}, torch {facts['torch']}; ",
        end="",
    )
    target.print(", ".join(facts["libraries"]))
    missed = [row for row in rows if row.met is False]
    target.print(f"{len(missed)} missed" if missed else "all met", style="bold red" if missed else "bold green")
    save(target, options.output)
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "environment": facts,
                    "rows": [asdict(row_of_table) | {"met": row_of_table.met} for row_of_table in rows],
                },
                indent=1,
            )
            + "\n"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
