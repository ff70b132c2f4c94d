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
    ran = subprocess.run(
        [sys.executable, "-c", _PROBE], env={**os.environ, **environment}, capture_output=True, text=True, cwd=ROOT
    )
    if ran.returncode < 0:
        return None
    ran.check_returncode()
    kernels, levels = json.loads(ran.stdout)
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
        found, _ = probed
        same = (
            f"OpenBLAS takes {' and '.join(found) or 'nothing'} for it, as for {seen[found]}." if found in seen else ""
        )
        yield Setting(kernel, environment, same)
        seen.setdefault(found, kernel)
    for place in range(len(levels)):
        torch = next((TORCH[level] for level in reversed(levels[:place]) if level in TORCH), "default")
        environment = {"NPY_DISABLE_CPU_FEATURES": " ".join(levels[place:]), "ATEN_CPU_CAPABILITY": torch}
        yield Setting(f"without {', '.join(levels[place:])}", environment)
    if not levels:
        yield Setting("without SIMD", {}, "NumPy finds no level here beyond its baseline.")


def another(found: Iterable[Setting]) -> Setting:
    """One setting with a BLAS kernel and a SIMD level other than the machine's own: the last kernel
    that is another, and the lowest level.

    The last kernel, for it is the nearest to what other machines have.
    """
    others = [one for one in found if one.environment and not one.reason]
    kernels = [one for one in others if "OPENBLAS_CORETYPE" in one.environment][-1:]
    lowest = [one for one in others if "NPY_DISABLE_CPU_FEATURES" in one.environment][:1]
    chosen = kernels + lowest
    environment = {name: value for one in chosen for name, value in one.environment.items()}
    return Setting(
        " ".join(one.name for one in chosen),
        environment,
        "" if chosen else "There is no other that this processor can run.",
    )


def _outcomes(setting: Setting, examples: int, jobs: int) -> dict[str, dict[str, Any]]:
    """{law: its outcome} on NumPy's own implementation."""
    command = [sys.executable, "-m", "attnspec", "verify", "systems:GROUPS", "--only", "NumPy", "--json", "-"]
    options = ["--max-examples", str(examples), "--jobs", str(jobs)]
    ran = subprocess.run(
        [*command, *options], env={**os.environ, **setting.environment}, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    if ran.returncode == 2:
        raise SystemExit(f"{setting.name}: attnspec could not be run.")
    return {f"{o['law']}[{o['operation']}]": o for o in json.loads(ran.stdout)["outcomes"]}


def compared(here: dict[str, dict[str, Any]], there: dict[str, dict[str, Any]]) -> tuple[list[str], int]:
    """Sentences on the laws whose outcomes differ in more than values, and how many differ in their
    worst errors only.
    """
    differ, errors = [], 0
    for law in here | there:
        a, b = here.get(law, {}), there.get(law, {})
        names = [name for name in a | b if name not in _VALUES and a.get(name) != b.get(name)]
        if names:
            told = ", ".join(f"{name} is {b.get(name)!r} and not {a.get(name)!r}" for name in names)
            differ.append(f"{law}: {told}.")
        errors += not names and a["worst_excess"] != b["worst_excess"]
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
    found = list(settings())
    if options.another:
        one = another(found)
        print(f"== {one.name or 'another setting'}: {one.reason or one.environment}", flush=True)
        return 0 if one.reason else int(not _tested(one, options.jobs))
    failed: list[str] = []
    own: dict[str, dict[str, Any]] = {}
    for setting in found:
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
    played = sum(not setting.reason for setting in found)
    print(
        f"The same under {played} settings; {len(found) - played} cannot be played here."
        if not failed
        else f"Not the same: {', '.join(failed)}."
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
