"""Words are plain, and names are nouns in full.

Docstrings, help and guide avoid phrases that a reader has to read twice: at most one in 1000 words
of a folder.  The local names of a package have at least six letters on average, without the
mathematics of its pages: single letters, `d` and a letter, and `SYMBOLS`.  Few functions have many
parameters.
"""

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import spec
from properties.command.cli import parser_of_command

ROOT = Path(spec.__file__).parents[1]
PACKAGES = ("spec", "oracles", "properties", "attnspec")
PER_THOUSAND_WORDS = 1
LETTERS_OF_A_NAME = 6
MANY_PARAMETERS = 6
FUNCTIONS_WITH_MANY_PARAMETERS = 34

PHRASES = (
    # The subject is missing, or stands behind its verb.
    r"(?-i:none)|(?:is|are) no (?!longer\b)[a-z]+|that there is|which there is|there is one|if there is|nothing is"
    r"|is what|are what|what it is|what comes|what is meant|whatever|whose is|is said|is told|are told|says nothing"
    # A pronoun stands for a noun of another sentence.
    r"|that of|those of|of which|as whose|is not one|as it is|as they are"
    # A rare idiom stands for a plain word.
    r"|so many|so much|by turns|anew|at last|but for|besides|such as are|of its own|of their own|at hand|by itself"
    r"|alike"
    # The glossary has another term.
    r"|(?:blocked|hidden|readable|allowed) (?:keys?|scores?|entry|entries)|reads nothing|dead rows?|planted faults?"
)
HARD = re.compile(rf"\b(?:{PHRASES})\b".replace(" ", r"\s+"), re.IGNORECASE)

# The symbols of the formulas: a local name, and how a docstring writes it.
SYMBOLS = {
    **{name: name for name in ("n_q", "n_k", "d_v", "wq", "wk", "wv", "wo", "lse", "sin", "cos", "mid", "rad")},
    **{name: name for name in ("dout", "dlse", "dbias", "dsink")},
    **{"alpha": "α", "delta": "δ", "kappa": "κ", "lam": "λ", "phi": "φ", "rho": "ρ", "tau": "τ", "theta": "θ"},
}
MATHEMATICS = re.compile(rf"d?\w|{'|'.join(SYMBOLS)}")


class Passage(NamedTuple):
    """A text, with the file and the line at which it begins."""

    place: str
    line: int
    text: str


def modules(package: str) -> Iterator[tuple[str, ast.Module]]:
    """The path and the syntax tree of each module of a package, without its tests."""
    for path in sorted((ROOT / package).rglob("*.py")):
        if "tests" not in path.relative_to(ROOT).parts:
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))


def docstrings(package: str) -> Iterator[Passage]:
    """The docstrings of a package's modules."""
    for path, tree in modules(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                text := ast.get_docstring(node, clean=False)
            ):
                yield Passage(path, node.body[0].lineno, text)


def local_names(tree: ast.Module) -> Iterator[str]:
    """Each name that a function of a module binds, once for each place that binds it, without mathematics."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for name in dict.fromkeys(node for function in functions for node in ast.walk(function)):
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and not MATHEMATICS.fullmatch(name.id):
            yield name.id


def number_of_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a function has; `self` and `cls` do not count."""
    arguments = function.args
    named = [x.arg for x in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    collected = [x for x in (arguments.vararg, arguments.kwarg) if x is not None]
    return len(named) + len(collected) - (named[:1] in (["self"], ["cls"]))


def guide() -> Iterator[Passage]:
    """The pages of the guide. Code is blank, and lines keep their numbers."""
    for path in sorted((ROOT / "docs/guide").glob("*.md")):
        text = path.read_text("utf-8")
        text = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
        yield Passage(str(path.relative_to(ROOT)), 1, re.sub(r"`[^`\n]*`", "code", text))


def helps(parser: argparse.ArgumentParser) -> Iterator[Passage]:
    """The help of a command, and of its subcommands."""
    yield Passage(f"{parser.prog} --help", 1, parser.format_help())
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in dict.fromkeys(action.choices.values()):
                yield from helps(subparser)


@cache
def texts_of(folder: str) -> list[Passage]:
    """The docstrings of a package, the help of the command, or the guide. They are read when a test needs them."""
    return list(
        helps(parser_of_command()) if folder == "help" else guide() if folder == "guide" else docstrings(folder)
    )


def hard_sentences(passages: list[Passage]) -> list[str]:
    """The sentences with hard phrases, each with its place and the phrases, the worst sentence first."""
    found = []
    for place, first, text in passages:
        for sentence in re.finditer(r"[^.:;|\n](?:[^.:;|]|[.:](?=\w))*", text):
            if phrases := HARD.findall(sentence[0]):
                line = first + text.count("\n", 0, sentence.start())
                said = f"{place}:{line}: {', '.join(phrases)}: {sentence[0]}"
                found.append((len(phrases), " ".join(said.split())))
    return [said for _, said in sorted(found, key=lambda row: -row[0])]


@pytest.mark.parametrize("folder", [*PACKAGES, "help", "guide"])
def test_at_most_one_word_in_a_thousand_begins_a_hard_phrase(folder: str) -> None:
    words = sum(len(passage.text.split()) for passage in texts_of(folder))
    phrases = sum(len(HARD.findall(passage.text)) for passage in texts_of(folder))
    worst = hard_sentences(texts_of(folder))[:20]
    assert 1000 * phrases <= PER_THOUSAND_WORDS * words, (
        f"{folder} has {phrases} hard phrases in {words} words, but should have at most {PER_THOUSAND_WORDS} in 1000. "
        + "Say these sentences plainly:\n"
        + "\n".join(worst)
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_local_name_has_six_letters_on_average(package: str) -> None:
    names = Counter(name for _, tree in modules(package) for name in local_names(tree))
    mean = sum(len(name) * number for name, number in names.items()) / names.total()
    missing = {name: (LETTERS_OF_A_NAME - len(name)) * number for name, number in names.items()}
    worst = sorted(missing, key=missing.__getitem__, reverse=True)[:20]
    assert mean >= LETTERS_OF_A_NAME, (
        f"The local names of {package} have {mean:.2f} letters on average, but should have at least "
        f"{LETTERS_OF_A_NAME}. Write these in full: {', '.join(worst)}"
    )


def test_a_local_name_counts_once_for_each_place_that_binds_it() -> None:
    tree = ast.parse(
        "outside = 1\n"
        "def mean(entry):\n"
        "    total = sum(value for value in entry)\n"
        "    def half(): total = lse = dlse = dq = q = _ = 0\n"
    )
    assert sorted(local_names(tree)) == ["total", "total", "value"]


@pytest.mark.parametrize("name", SYMBOLS)
def test_a_docstring_writes_each_mathematical_symbol(name: str) -> None:
    symbol = re.compile(rf"(?<!\w){SYMBOLS[name]}(?!\w)")
    assert any(symbol.search(text.text) for package in PACKAGES for text in texts_of(package))


def test_a_hard_phrase_is_found_with_its_line() -> None:
    passage = Passage("page.md", 10, "A plain sentence.\nThe result is no\nview of an input, at last. None is a value.")
    assert hard_sentences([passage]) == ["page.md:11: is no view, at last: The result is no view of an input, at last"]


def test_few_functions_have_many_parameters() -> None:
    found = [
        f"{place}:{node.lineno}: {node.name}"
        for package in PACKAGES
        for place, tree in modules(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and number_of_parameters(node) > MANY_PARAMETERS
    ]
    assert len(found) <= FUNCTIONS_WITH_MANY_PARAMETERS, (
        f"{len(found)} functions have more than {MANY_PARAMETERS} parameters, but at most "
        f"{FUNCTIONS_WITH_MANY_PARAMETERS} should. Gather parameters in a record:\n" + "\n".join(found)
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("def f(): ...", 0),
        ("def f(a, /, b, *, c=1): ...", 3),
        ("async def f(self, a, *rest, **options): ...", 3),
        ("def f(*self): ...", 1),
    ],
)
def test_all_parameters_count_except_self(text: str, number: int) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    assert number_of_parameters(function) == number
