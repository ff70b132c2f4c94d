"""Calls every public function with nonsense: `python -m research.fuzz` writes docs/fuzz.txt, and
`make test` runs a share of it.

Hypothesis draws the arguments: mostly what a caller could mean, and some nonsense, all of bounded
size. A function may return, may raise ValueError or TypeError with a whole sentence, or may raise
another error that its docstring states. It must not take long. The page shows each finding with its
smallest arguments.
"""

import argparse
import contextlib
import inspect
import io
import math
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis.extra import numpy as arrays

import oracles
import properties
import spec
from oracles import formats
from properties.bugs.reference import REFERENCE
from properties.command.cli import main as main_of_command
from properties.command.cli import parser_of_command
from properties.contract.features import KINDS
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.verifier.report import counted

__all__ = ["TARGETS", "Target", "fuzz", "main"]

_LONGEST = 15.0  # seconds for one call, on a machine that does something else too
_SHORTEST = 12  # characters of a sentence
_CALLS = 200  # of a function in a round


class Unspeakable:
    """An object without repr, length or truth value, which cannot be compared."""

    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def _raise(self, *_: Any) -> Any:
        raise self.kind("unspeakable")

    __repr__ = __len__ = __bool__ = __eq__ = __iter__ = __float__ = __index__ = __array__ = __dlpack__ = (
        __dlpack_device__
    ) = _raise
    __hash__ = object.__hash__


@dataclass(frozen=True)
class Made:
    """A value that Hypothesis shows in place of the argument, which `__call__` makes."""

    kind: type[Exception]

    def __call__(self) -> Unspeakable:
        return Unspeakable(self.kind)


class Lying:
    """An object that claims to be an array, and converts to another value."""

    def __init__(self, given: Any) -> None:
        self.given, self.shape, self.dtype, self.ndim = given, (2, 2), np.dtype(float), 2

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.given

    def __repr__(self) -> str:
        return f"Lying({type(self.given).__name__})"


_SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)
_DTYPES = st.sampled_from(
    ["f8", "f4", "f2", "g", ">f8", "c16", "i8", "u1", "?", "O", "U3", "S2", "M8[s]", "V4", [("a", "f8"), ("b", "i4")]]
)
_NUMBERS = st.sampled_from(
    [
        *range(-3, 5),
        2**31,
        2**53 + 1,
        2**63,
        10**40,
        -(10**40),
        0.5,
        -0.0,
        1e308,
        5e-324,
        math.nan,
        math.inf,
        -math.inf,
        1j,
        Fraction(1, 3),
    ]
)
_ODD = st.one_of(
    st.none(),
    st.booleans(),
    _NUMBERS,
    _NUMBERS.filter(lambda x: isinstance(x, float)).map(np.float64),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.sampled_from(
        [int, object(), len, Ellipsis, np.nan, np.float32, slice(1), range(3), "auto", "half", "float32", "\x1b[2J"]
    ),
    st.lists(_NUMBERS, max_size=3),
    st.dictionaries(st.text(max_size=3), _NUMBERS, max_size=2),
    st.frozensets(st.integers(0, 3), max_size=2),
    st.sampled_from([RuntimeError, OSError, KeyError, ZeroDivisionError, MemoryError, RecursionError]).map(Made),
    st.sampled_from([None, 3, "x", [1.0], np.ones(2)]).map(Lying),
    st.builds(lambda dtype, shape: np.zeros(shape, dtype), _DTYPES, _SHAPES),
    st.builds(lambda shape: np.ma.masked_array(np.ones(shape), np.ones(shape, bool)), _SHAPES),
    st.sampled_from([(2**20, 2**20), (1, 2**40), (2**40, 0), (0, 2**40, 2)]).map(
        lambda shape: np.broadcast_to(np.ones(1)[:, None][0], shape)
    ),
)
_FLOATS = st.one_of(
    st.sampled_from([(2, 2), (3, 2), (1, 2), (2, 3, 2), (1, 2, 2, 2), (0, 2, 2), (2, 0), (2, 1)]).flatmap(
        lambda shape: arrays.arrays(
            np.float64, shape, elements=st.sampled_from([0.0, -1.0, 0.5, 3.0, 1e300, math.nan, math.inf])
        )
    ),
    st.sampled_from([(2, 2), (4, 4)]).map(np.ones),
)
_MASKS = st.one_of(
    st.none(),
    st.sampled_from([(2, 2), (1, 2), (2,), (2, 2, 2), (3, 2)]).flatmap(lambda shape: arrays.arrays(bool, shape)),
)
_COUNTS = st.integers(0, 4)
_READINGS = {f.name: st.sampled_from(get_args(f.type) or (2.0, f.default)) for f in fields(oracles.Conventions)}
_CONVENTIONS = st.one_of(
    st.none(), st.fixed_dictionaries({}, optional=_READINGS).map(lambda found: oracles.Conventions(**found))
)


def _help(*words: str) -> str:
    """The help of the command, or of a subcommand."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        parser_of_command().parse_args([*words, "--help"])
    return out.getvalue()


_COMMANDS = re.findall(r"^ {4}(\w+)", _help(), re.MULTILINE)
_OPTIONS = ["--help", "--version", *re.findall(r"(?<=\[)--[a-z-]+", _help("verify"))]
_RIGHT = {"rope": REFERENCE["rope"]}
_LAW = "all results have the declared types and shapes, and are finite[rope]"
_MEANT: dict[str, st.SearchStrategy[Any]] = {
    "candidate": st.just("gone.py"),
    "limits": st.none(),
    "mask": _MASKS,
    "masks": _MASKS,
    "first": _MASKS,
    "second": _MASKS,
    "lengths": st.lists(st.integers(-1, 4), max_size=3).map(lambda x: np.array(x, int)),
    "indices": st.lists(st.integers(-1, 4), max_size=3).map(lambda x: np.array(x, int)),
    **dict.fromkeys(
        ("n_q", "n_k", "seq_len", "max_len", "embed_dim", "head_dim", "start_pos", "num_heads", "rows"), _COUNTS
    ),
    "arithmetic": st.one_of(st.none(), st.sampled_from([preset.name for preset in formats.PRESETS])),
    "conventions": _CONVENTIONS,
    "method": st.sampled_from(["auto", "fast", "arb"]),
    "scale": st.sampled_from([None, 0.5, 0, 2]),
    "softcap": st.sampled_from([None, 0.5, 30.0, 0, -1.0, 5e-324, math.inf]),
    "window": st.sampled_from([None, 1, (0, 0), (1, None), (None, 2), (-1, 1), (2**62, 2**62)]),
    "offset": st.sampled_from([None, 0, 2, -3, 2**53, np.array([0, 1]), np.array([[0], [1]])]),
    "causal": st.booleans(),
    "sink": st.sampled_from([None, np.zeros(2), np.array([math.inf]), np.array([-math.inf, 0.0]), np.zeros(3)]),
    "positions": st.lists(st.sampled_from([-1, 0, 3, 2**31, 2**53]), max_size=3).map(lambda x: np.array(x, int)),
    "inv_freq": st.sampled_from([None, np.ones(1), np.array([1.0, 0.5]), np.array([math.nan]), np.zeros(0)]),
    "attention_factor": st.sampled_from([1.0, 0.0, -2.5, 1e308]),
    "rotary_dim": st.sampled_from([None, 0, 1, 2, 4]),
    "sections": st.sampled_from([None, (1, 0, 0), (1, 1, 1), (0, 0, 0), (2,)]),
    "kind": st.sampled_from([*KINDS, "none", ""]),
    "base": st.sampled_from([10000.0, 1.0, 0.0, 1e300]),
    "is_causal": st.booleans(),
    "name": st.sampled_from(["float32", "bfloat16", "mine"]),
    "scalar": st.sampled_from(spec.SCALARS),
    "target": st.just(_RIGHT),
    "implementations": st.just([_RIGHT]),
    "operations": st.just(_RIGHT),
    "laws": st.just([_LAW]),
    "law": st.just(_LAW),
    "operation": st.sampled_from(["rope", "causal_mask"]),
    "max_examples": st.just(1),
    "seed": st.integers(0, 3),
    "known_deviations": st.sampled_from([None, {}, {"f(a) + f(b) = f(a + b)": "It is so."}]),
    "command": st.sampled_from([*_COMMANDS, "verify", "nothing", ""]),
    "words": st.sampled_from(
        [
            *(
                "nowhere",
                "json:loads",
                "os:",
                ":",
                "",
                "-",
                "--",
                ".",
                "x",
                "rope",
                "[rope]",
                "1",
                "0",
                "1e9",
                "nan",
                "float32",
                "bash",
            ),
            *_OPTIONS,
            *("/dev/full", "/dev/null", "/proc/self", "\x1b[2J", "\udc80", "a\nb", "x" * 300),
        ]
    ),
    "layout": st.sampled_from(["contiguous", "transposed", "strided"]),
}


def attnspec(command: str, *words: str) -> None:
    """Runs the command in a temporary folder. Raises RuntimeError if its exit status is not a
    documented one.
    """
    out, err = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with TemporaryDirectory() as folder, contextlib.chdir(folder), out, err:
        try:
            status: Any = main_of_command([command, *words])
        except SystemExit as exit:
            status = exit.code
    if status not in (0, 1, 2):
        raise RuntimeError(f"exit status {status}")


_ALWAYS_MEANT = (
    "max_examples",
    "command",
    "words",
)  # a million examples are no nonsense, and words are what a shell gives


@dataclass(frozen=True)
class Target:
    """A public function, and the errors that it may raise in addition to ValueError and TypeError."""

    name: str
    function: Callable[..., Any]
    raises: tuple[type[BaseException], ...] = ()

    def arguments(self) -> st.SearchStrategy[tuple[list[Any], dict[str, Any]]]:
        """Arguments by position and by name. Most are meaningful, some are nonsense, and half of
        those with defaults are left out.
        """

        @st.composite
        def drawn(draw: Any) -> tuple[list[Any], dict[str, Any]]:
            places: list[Any] = []
            names: dict[str, Any] = {}
            for parameter in inspect.signature(self.function).parameters.values():
                meaningful = _MEANT.get(parameter.name, _FLOATS)
                values = meaningful if parameter.name in _ALWAYS_MEANT else st.one_of(meaningful, meaningful, _ODD)
                if parameter.kind is parameter.VAR_POSITIONAL:
                    places += draw(st.lists(values, max_size=5))
                elif parameter.kind is parameter.VAR_KEYWORD:
                    names |= draw(
                        st.fixed_dictionaries(
                            {}, optional={"x": st.one_of(_FLOATS, _ODD), "start_pos": _ODD, "y": _ODD}
                        )
                    )
                elif parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty:
                    if parameter.name not in ("long", "progress") and draw(st.booleans()):
                        names[parameter.name] = draw(values)
                elif parameter.name == "command":
                    places.append(draw(values))
                else:
                    names[parameter.name] = draw(values)
            return places, names

        return drawn()


def _targets() -> Iterator[Target]:
    yield Target("attnspec", attnspec)
    for package in (oracles, spec, properties):
        for name in package.__all__:
            function = getattr(package, name)
            if not callable(function) or name in (
                "Report",
                "Verdict",
                "Violation",
                "Context",
            ):  # records, which nothing is asked of
                continue
            besides = {
                "assert_within": (AssertionError,),
                "replay": (BrokenError, KeyError),
                "call": (BrokenError, KeyError),
            }
            yield Target(f"{package.__name__}.{name}", function, besides.get(name, ()))


TARGETS = {target.name: target for target in _targets()}
_OF_CACHES = {f"oracles.{name}" for name, operation in OPERATIONS.items() if operation.is_played}
assert {f"oracles.{name}" for name in OPERATIONS} <= TARGETS.keys() | _OF_CACHES | {"oracles.causal_attention"}


class _SlowError(Exception):
    """A call took too long."""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _SlowError(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(
        signal.ITIMER_PROF, seconds, 5.0
    )  # of the processor, which others may keep busy; again, should a finaliser swallow it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(target: Target, examples: int, seed: int | None = None) -> None:
    """Calls a function with `examples` nonsense arguments. Raises AssertionError, with the smallest
    arguments, if it does something that it may not do.
    """

    def hold(drawn: tuple[list[Any], dict[str, Any]]) -> None:
        places = [x() if isinstance(x, Made) else x for x in drawn[0]]
        names = {name: x() if isinstance(x, Made) else x for name, x in drawn[1].items()}
        try:
            with _limited(_LONGEST):
                target.function(*places, **names)
        except target.raises:
            return
        except (ValueError, TypeError) as error:
            if len(str(error)) < _SHORTEST or not str(error).endswith("."):
                raise AssertionError(
                    f"{target.name}: {type(error).__name__}: {str(error)!r} is no sentence."
                ) from error
        except BaseException as error:
            raise AssertionError(f"{target.name} raised {type(error).__name__}: {error}") from error

    quietly = settings(
        max_examples=examples,
        derandomize=seed is None,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    test = quietly(given(target.arguments())(hold))
    (test if seed is None else with_seed(seed)(test))()


def _page(rounds: int, minutes: float, failures: dict[str, str]) -> str:
    functions, times = counted(len(TARGETS), "public function"), counted(rounds, "round")
    calls = f"{functions} given nonsense, {times} of {_CALLS} calls each, in {minutes:.0f} minutes."
    all_is_well = "Each returned, or raised what its docstring says, with a whole sentence, within seconds."
    return "\n".join([calls, "", *sorted(TARGETS), "", *(failures.values() or [all_is_well])]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzzes all functions in rounds until the time is over. Returns 1 if it found something."""
    parser = argparse.ArgumentParser(prog="python -m research.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="for how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--output", type=Path, default=Path("docs/fuzz.txt"))
    options = parser.parse_args(arguments)
    start, failures, seed = time.monotonic(), dict[str, str](), options.seed
    while time.monotonic() - start < 60 * options.minutes:
        for target in TARGETS.values():
            if target.name not in failures:
                try:
                    fuzz(target, _CALLS, seed)
                except AssertionError as error:
                    failures[target.name] = "\n".join([f"Seed {seed}: {error}", *getattr(error, "__notes__", ())])
                    print(failures[target.name], flush=True)
        seed += 1
        options.output.write_text(_page(seed - options.seed, (time.monotonic() - start) / 60, failures))
    print(options.output.read_text(), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
