"""What diagnosis names from outputs alone: `make named` writes docs/named.md.

The measurement plants each other value of every convention, in each operation that follows it, and
every reported bug, in the operation where it was seen. The adapter declares the default conventions,
or the ones in `BESIDE`. The laws of the quick plan verify it up to the first case that breaks one, as
`verify` does with `quick` and `fail_fast`. It is named if it is the first or the second diagnosis of
the first cause, because outputs cannot distinguish two names of one function.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from oracles import Conventions
from oracles.conventions import DEFAULT
from properties.bugs import CATALOGUE
from properties.bugs.declared import under
from properties.contract.features import FEATURES
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.tests.diagnosing import first_cause
from properties.tests.readings import meaning
from properties.views.whole import write_whole

__all__ = ["Planted", "Row", "bugs", "markdown", "named", "readings"]

_PAGE = Path(__file__).parents[1] / "docs/named.md"

CASES = 100
LEAST = 0.9
"""The share of conventions and of bugs that diagnosis should name."""
SAME = {
    **{
        ("dead_rows", value, "causal_attention"): "from the top left every query sees a key"
        for value in ("nan", "uniform")
    },
    ("dead_rows", "uniform", "hard_masked_softmax_vjp"): "equal weights of what is masked have no gradient either",
    **{
        ("odd_lane", "passthrough", o): "a channel without a partner has a frequency all the same"
        for o in ("inv_freq", "rope_angles")
    },
    **{
        ("odd_lane", value, "decode"): "no case of a cache that rotates has an odd width"
        for value in ("passthrough", "reject")
    },
    **{
        (field, value, o): "numbers of float32 have no scale"
        for o in ("attention", "packed_attention", "paged_attention")
        for field, value in (
            ("fp8_scale", "divide"),
            *(("scale_shape", shape) for shape in ("head", "token", "block16", "block32")),
        )
    },
    ("softcap_order", "after_bias", "latent_attention"): "it has no bias",
    ("packed_lse", "rows_first", "packed_attention_vjp"): "it returns no log-sum-exp",
}
"""Conventions that no case of an operation distinguishes from the default, and why."""

PROMISES = {
    ("blocked_values", "unread"): "it promises more, and changes no result",
    ("padding_rows", "zero"): "it promises more, and changes no result",
    ("max_seqlen", "bound"): "it allows more calls, and changes no result",
    ("causal_with_mask", "refuse"): "an undeclared kernel may refuse calls: the verdict says which",
}
"""Conventions that break no law of an adapter that declares nothing, and why."""

BESIDE = {"dead_gradients": Conventions(dead_rows="uniform")}
"""Conventions that change a result only together with another one, which the adapter declares."""


@dataclass(frozen=True)
class Planted:
    """A convention or bug to be named: its name, its operation, and a function that follows it."""

    name: str
    operation: str
    function: Callable[..., Any]
    conventions: Conventions = DEFAULT
    arithmetic: str = "float32"

    @property
    def implementation(self) -> Implementation:
        """Float32 implementations by float64 arithmetic, so that no result is the reference's to
        the last bit; caches are of float64.
        """
        is_cache = OPERATIONS[self.operation].is_played
        function, arithmetic = (self.function, "float64") if is_cache else (_in_float32(self.function), self.arithmetic)
        return Implementation(
            self.name,
            {self.operation: function},
            arithmetic=arithmetic,
            features=FEATURES,
            conventions=self.conventions,
        )


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    def doubled(x: Any) -> Any:
        return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x

    def stored(x: Any) -> Any:
        return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x

    def rounded(*arguments: Any, **options: Any) -> Any:
        results = function(*map(doubled, arguments), **{name: doubled(x) for name, x in options.items()})
        return tuple(map(stored, results)) if isinstance(results, tuple) else stored(results)

    return rounded


def readings() -> Iterator[Planted]:
    """Each other value of every convention except the numbers, in each operation that follows it
    and where it changes a result.
    """
    for field in fields(Conventions):
        declared, usual = BESIDE.get(field.name, DEFAULT), getattr(DEFAULT, field.name)
        for value in get_args(field.type):
            if (field.name, value) in PROMISES:
                continue
            for operation in OPERATIONS.values():
                if (
                    value != usual
                    and field.name in operation.conventions
                    and (field.name, value, operation.name) not in SAME
                ):
                    yield Planted(
                        f"{field.name}={value}",
                        operation.name,
                        meaning(operation, replace(declared, **{field.name: value})),
                        declared,
                    )


def bugs() -> Iterator[Planted]:
    """Known bugs that somebody reported, each where it was seen."""
    for bug in CATALOGUE.values():
        if "#" in bug.citation:
            promised = bug.promises.get("conventions", DEFAULT)
            arithmetic = bug.promises.get("arithmetic", "float32").replace("float64", "float32")
            yield Planted(bug.id, bug.operation, under(promised, bug.operation, bug.fresh()), promised, arithmetic)


def named(planted: Planted, seed: int) -> tuple[str, ...]:
    """The diagnoses of the first cause, best first, without hints; ("held",) if all laws hold."""
    cause = first_cause(planted.implementation, CASES, seed)
    return tuple(d.id for d in cause.diagnosis if not d.partial) if cause else ("held",)


@dataclass(frozen=True)
class Row:
    """The names that diagnosis gave a planted change, with each seed."""

    name: str
    operation: str
    told: tuple[tuple[str, ...], ...]

    def among(self, places: int) -> int:
        """With how many seeds it is among the first `places` diagnoses."""
        return sum(self.name in names[:places] for names in self.told)

    @property
    def instead(self) -> str:
        """The first diagnoses of the runs in which it was not among the first two, with their numbers."""
        others = Counter(" ".join(names[:1]) or "nothing" for names in self.told if self.name not in names[:2])
        return ", ".join(f"{'no law broken' if name == 'held' else name} {n}" for name, n in others.most_common())


def share(rows: Sequence[Row]) -> float:
    """The share of seeds with which the planted change was among the first two diagnoses."""
    return sum(row.among(2) for row in rows) / sum(len(row.told) for row in rows)


def _row(seeds: int, place: int) -> Row:
    planted = [*readings(), *bugs()][place]
    return Row(planted.name, planted.operation, tuple(named(planted, seed) for seed in range(seeds)))


def markdown(conventions: Sequence[Row], known: Sequence[Row]) -> str:
    """The page."""
    lines = [
        "# What diagnosis names",
        "",
        "Each other value of every convention is planted, and each reported bug, with seeds 0 to "
        f"{len(known[0].told) - 1}.",
        f"The laws of the quick plan get at most {CASES} cases, up to the first case that breaks one. Results are",
        "float64, rounded to float32; results of caches stay float64. A planted change is named if it is the first or",
        "the second diagnosis of the first cause: calls cannot distinguish two names of one function.",
        "",
        *_said("conventions", conventions),
        *_said("bugs", known),
        "## Conventions",
        "",
        *_table("reading", conventions),
        "",
        "These conventions are not planted, because no case distinguishes them from the default:",
        "",
        *(f"- `{field}={value}` in `{operation}`: {reason}." for (field, value, operation), reason in SAME.items()),
        *(f"- `{field}={value}`: {reason}." for (field, value), reason in PROMISES.items()),
        "",
        "Other numbers as `rope_base` and `rope_scale` are not planted either: diagnosis tries the usual ones.",
        "",
        "## Bugs",
        "",
        *_table("bug", known),
    ]
    return "\n".join([*lines, ""])


def _said(what: str, rows: Sequence[Row]) -> tuple[str, str]:
    runs_of, first_named = sum(len(row.told) for row in rows), sum(row.among(1) for row in rows)
    return f"Of the {what}, in {runs_of} runs, {share(rows):.1%} are named: {first_named / runs_of:.1%} first.", ""


def _table(what: str, rows: Sequence[Row]) -> Iterator[str]:
    yield f"| {what} | operation | first | first or second | of | named instead |"
    yield "|---|---|---:|---:|---:|---|"
    for row in rows:
        counts = f"{row.among(1)} | {row.among(2)} | {len(row.told)}"
        yield f"| `{row.name}` | `{row.operation}` | {counts} | {row.instead} |"


def main(arguments: list[str] | None = None) -> int:
    """Writes the page. Returns 1 if less than nine tenths are named."""
    parser = argparse.ArgumentParser(prog="python -m research.named", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many, from 0 on (10)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--output", type=Path, default=_PAGE, help="the page (docs/named.md)")
    options = parser.parse_args(arguments)
    conventions = len([*readings()])
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = [*pool.map(partial(_row, options.seeds), range(conventions + len([*bugs()])))]
    known = rows[conventions:]
    write_whole(options.output, markdown(rows[:conventions], known))
    return int(min(share(rows[:conventions]), share(known)) < LEAST)


if __name__ == "__main__":
    raise SystemExit(main())
