"""The same verdicts on every processor.

`python -m research.portable` plays all those whose BLAS kernels and SIMD levels this one has.

BLAS and NumPy choose their loops by the processor, and with them the order of sums. Values may
differ by that, within budgets; verdicts, and what was tried for them, may not. Under each setting,
the tests whose outcome could depend on it are run, and the laws on NumPy's own implementation;
where an outcome differs in anything but its seconds and its worst error, the law is named.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Setting", "compared", "main", "settings"]

ROOT = Path(__file__).resolve().parents[1]

KERNELS = ("Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX", "Cooperlake")
"""OpenBLAS' for x86, from old to new. It takes another where two have the same code, and where the
processor cannot run one, but for the last ones, of which a process dies."""

TORCH = {"X86_V3": "avx2", "X86_V4": "avx512"}
"""NumPy's SIMD levels that torch has too, under its names."""

TESTS = (
    *("oracles/tests/test_attention.py", "oracles/tests/test_exact_attention.py", "oracles/tests/test_ball.py"),
    *("oracles/tests/test_composition.py", "oracles/tests/test_range.py", "oracles/tests/test_trust.py"),
    *("properties/tests/test_kills.py", "properties/tests/test_verifier.py"),
    *("properties/tests/test_laws_gradients.py", "properties/tests/test_laws_dominating.py"),
    "research/tests/test_vectors.py::test_what_is_published_is_what_is_written_to_the_byte",
)
"""The tests whose outcome could depend on the order of sums: oracles against exact values, laws on
right and wrong kernels, mutants, and the bytes of the vectors."""

_VALUES = ("seconds", "worst_excess")  # of an outcome: what may differ between processors

_PROBE = """
import json, numpy, threadpoolctl
simd = numpy.show_config("dicts")["SIMD Extensions"]
for dtype in "fd":
    numpy.ones((96, 96), dtype) @ numpy.ones((96, 96), dtype)
kernels = [library["architecture"] for library in threadpoolctl.threadpool_info() if "architecture" in library]
print(json.dumps([kernels, simd.get("found", [])]))
"""


@dataclass(frozen=True)
class Setting:
    """A processor to be played: its name, the environment variables that play it, and "" or why it
    cannot be, a sentence.
    """

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    reason: str = ""


def _probed(environment: dict[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The BLAS kernels and NumPy's SIMD levels beyond its baseline, as a process with these
    variables finds them; None where it dies of a product, as of an instruction that the processor
    does not have."""
    process = subprocess.run(
        [sys.executable, "-c", _PROBE], env={**os.environ, **environment}, capture_output=True, text=True, cwd=ROOT
    )
    if process.returncode < 0:
        return None
    process.check_returncode()
    kernels, levels = json.loads(process.stdout)
    return tuple(kernels), tuple(levels)


def settings() -> Iterator[Setting]:
    """The machine's own setting, then every other BLAS kernel, and every lower SIMD level; those
    that cannot be had with the reason.
    """
    own, levels = _probed({}) or ((), ())
    yield Setting(f"this machine's own ({' and '.join(own) or 'no OpenBLAS'})")
    seen = {own: "this machine's own"}
    for kernel in KERNELS:
        environment = {"OPENBLAS_CORETYPE": kernel}
        probed = _probed(environment)
        if probed is None:
            yield Setting(kernel, environment, "This processor does not have its instructions: a process with it dies.")
            continue
        possible, _ = probed
        same = (
            f"OpenBLAS takes {' and '.join(possible) or 'nothing'} for it, as for {seen[possible]}."
            if possible in seen
            else ""
        )
        yield Setting(kernel, environment, same)
        seen.setdefault(possible, kernel)
    for place in range(len(levels)):
        torch = next((TORCH[level] for level in reversed(levels[:place]) if level in TORCH), "default")
        environment = {"NPY_DISABLE_CPU_FEATURES": " ".join(levels[place:]), "ATEN_CPU_CAPABILITY": torch}
        yield Setting(f"without {', '.join(levels[place:])}", environment)
    if not levels:
        yield Setting("without SIMD", {}, "NumPy finds no level here beyond its baseline.")


def another(possible: Iterable[Setting]) -> Setting:
    """One setting with a BLAS kernel and a SIMD level other than the machine's own: the last kernel
    that is another, and the lowest level.

    The last kernel, for it is the nearest to what other machines have.
    """
    others = [setting_of for setting_of in possible if setting_of.environment and not setting_of.reason]
    kernels = [setting_of for setting_of in others if "OPENBLAS_CORETYPE" in setting_of.environment][-1:]
    lowest = [setting_of for setting_of in others if "NPY_DISABLE_CPU_FEATURES" in setting_of.environment][:1]
    chosen = kernels + lowest
    environment = {name: value for setting_of in chosen for name, value in setting_of.environment.items()}
    return Setting(
        " ".join(setting_of.name for setting_of in chosen),
        environment,
        "" if chosen else "There is no other that this processor can run.",
    )


def _outcomes(setting: Setting, examples: int, jobs: int) -> dict[str, dict[str, Any]]:
    """{law: its outcome} on NumPy's own implementation."""
    command = [sys.executable, "-m", "attnspec", "verify", "systems:GROUPS", "--only", "NumPy", "--json", "-"]
    options = ["--max-examples", str(examples), "--jobs", str(jobs)]
    process = subprocess.run(
        [*command, *options], env={**os.environ, **setting.environment}, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    if process.returncode == 2:
        raise SystemExit(f"{setting.name}: attnspec could not be run.")
    return {f"{outcome['law']}[{outcome['operation']}]": outcome for outcome in json.loads(process.stdout)["outcomes"]}


def compared(here: dict[str, dict[str, Any]], there: dict[str, dict[str, Any]]) -> tuple[list[str], int]:
    """Sentences on the laws whose outcomes differ in more than values, and how many differ in their
    worst errors only.
    """
    differ, errors = [], 0
    for law in here | there:
        here_outcome, there_outcome = here.get(law, {}), there.get(law, {})
        names = [
            name
            for name in here_outcome | there_outcome
            if name not in _VALUES and here_outcome.get(name) != there_outcome.get(name)
        ]
        if names:
            differences = ", ".join(
                f"{name} is {there_outcome.get(name)!r} and not {here_outcome.get(name)!r}" for name in names
            )
            differ.append(f"{law}: {differences}.")
        errors += not names and here_outcome["worst_excess"] != there_outcome["worst_excess"]
    return differ, errors


def _tested(setting: Setting, jobs: int) -> bool:
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", str(jobs), *TESTS]
    return subprocess.run(command, env={**os.environ, **setting.environment}, cwd=ROOT).returncode == 0


def main(arguments: list[str] | None = None) -> int:
    """Test and compare; returns 1 if a test fails or an outcome differs."""
    parser = argparse.ArgumentParser(prog="python -m research.portable", description=__doc__)
    parser.add_argument("--examples", type=int, default=25, help="cases of each operation (25)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--another", action="store_true", help="one other setting only, and its tests: a share for every day"
    )
    options = parser.parse_args(arguments)
    possible = list(settings())
    if options.another:
        setting_of = another(possible)
        print(f"== {setting_of.name or 'another setting'}: {setting_of.reason or setting_of.environment}", flush=True)
        return 0 if setting_of.reason else int(not _tested(setting_of, options.jobs))
    failed: list[str] = []
    own: dict[str, dict[str, Any]] = {}
    for setting in possible:
        print(f"== {setting.name}: {setting.reason or setting.environment or 'nothing is set'}", flush=True)
        if setting.reason:
            continue
        outcomes = _outcomes(setting, options.examples, options.jobs)
        own = own or outcomes
        differ, errors = compared(own, outcomes)
        print(
            *differ,
            f"{len(outcomes)} laws: {len(differ)} differ, {errors} in their worst error only.",
            sep="\n",
            flush=True,
        )
        if differ or not _tested(setting, options.jobs):
            failed.append(setting.name)
    played = sum(not setting.reason for setting in possible)
    print(
        f"The same under {played} settings; {len(possible) - played} cannot be played here."
        if not failed
        else f"Not the same: {', '.join(failed)}."
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
