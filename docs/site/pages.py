"""The pages made from the modules: definitions, errata, operations with their bugs, laws,
measurements, and the API.
"""

import inspect
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from docstrings import Block, blocks, escaped, examples, fenced, inline, markdown
from equations import ELSEWHERE, EQUATIONS, EXTENDED, Equation
from families import FAMILIES, position
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pictures import PICTURES
from sources import ROOT, Definition, parsed

from properties.bugs import CATALOGUE, Bug
from properties.contract.operations import OPERATIONS, Operation
from properties.laws import LAWS
from properties.laws.commuting_squares import Square
from properties.laws.law import Law
from properties.views.pages import kind_of
from research.pages import PAGES, results
from research.printed_runs import runs
from spec.errata import ERRATA, Erratum

__all__ = ["Site"]

HERE = Path(__file__).parent
MODULES = ("activation", "positional_encoding", "attention")
EXTENDED_MODULES = (
    *("attention", "attention_steps", "attention_derivatives", "attention_layer", "packed", "paged", "latent"),
    *(
        "quantised",
        "quantised_sequences",
        "sequence_masks",
        "alibi",
        "relative_bias",
        "rotary_frequencies",
        "frequency_kinds",
        "frequency_bands",
        "rotary",
    ),
)
WIDE = "```{raw} html\n<span class='wide'></span>\n```"
"""Markup that lets a page use the whole width of the window."""


@dataclass(frozen=True)
class Stated:
    """A definition of the spec: its Lean name, or "" for an extended definition, and its text."""

    lean: str
    text: Definition

    @property
    def equation(self) -> Equation:
        """The equation of the definition, and the operations that it defines."""
        return EQUATIONS[self.lean] if self.lean else EXTENDED[self.text.name]

    @property
    def label(self) -> str:
        """The label that links to the definition name."""
        return f"definition-{slug(self.text.name)}"

    @property
    def declaration(self) -> str:
        """The link to the declaration in Lean, which the decorator puts at the end of the
        docstring.
        """
        return str(attrgetter(self.text.name)(import_module(self.text.module.name)).__doc__).rpartition(" ")[2]

    @property
    def prose(self) -> list[Block]:
        """The docstring without examples and Lean name."""
        return [
            block
            for block in blocks(self.text.docstring)
            if block.kind != "example" and not block.lines[0].startswith("Lean: ")
        ]

    @property
    def before(self) -> list[Block]:
        """The prose before the equation."""
        return self.prose[: self._place]

    @property
    def after(self) -> list[Block]:
        """The prose after the equation."""
        rest = self.prose[self._place :]
        return rest[1:] if rest and rest[0].kind == "literal" else rest

    @property
    def _place(self) -> int:
        return next((place for place, block in enumerate(self.prose) if block.kind == "literal"), 1)


@dataclass(frozen=True)
class Named:
    """All laws of one name."""

    name: str
    laws: tuple[Law, ...]

    @property
    def label(self) -> str:
        """The label that links to the laws name."""
        return f"law-{slug(self.name)}"

    @property
    def title(self) -> str:
        """The name with a capital letter."""
        return self.name[0].upper() + self.name[1:]

    @property
    def bodies(self) -> dict[str, list[Law]]:
        """The laws of this name, by statement."""
        by_statement: dict[str, list[Law]] = {}
        for law in self.laws:
            by_statement.setdefault(law.statement, []).append(law)
        return by_statement


class Site:
    """The contents of all pages and the links between them, from the modules and
    docs/kill-matrix.json.
    """

    def __init__(self) -> None:
        self.kills: dict[str, dict[str, int]] = json.loads((ROOT / "docs/kill-matrix.json").read_text("utf-8"))["kills"]
        self.environment = Environment(
            loader=FileSystemLoader([HERE / "templates", ROOT / "properties/views/html/templates"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
        )
        self.environment.filters |= {
            "text": escaped,
            "inline": lambda x: inline(x, self.links),
            "blocks": lambda parts: markdown(parts, self.links),
            "markdown": lambda x: markdown(blocks(x), self.links),
            "python": lambda x: fenced(x, "python"),
            "slug": slug,
            "law_link": self.law_link,
            "bug_link": bug_link,
            "operation_link": operation_link,
            "cited": cited,
            "position": position,
            "numbers": lambda values: ", ".join(f"{x:.4g}" for x in values),
        }

    def write(self, folder: Path) -> None:
        """Write all sources into a folder: the generated pages and the pages written by hand."""
        for name, text in self.pages():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def pages(self) -> Iterator[tuple[str, str]]:
        """The name of each page in the site's sources, and its Markdown."""
        yield "index.md", self._index()
        for path in sorted((ROOT / "docs/guide").glob("*.md")):
            text = path.read_text("utf-8")
            yield f"guide/{path.name}", re.sub(r"\]\(\.\./([\w-]+)\.(?:md|txt)\)", r"](../measured/\1.md)", text)
        yield (
            "spec/index.md",
            self._page("spec", modules={m: parsed(f"spec.{m}") for m in MODULES}, definitions=self.definitions),
        )
        for stated in self.definitions.values():
            yield f"spec/{slug(stated.text.name)}.md", self._definition(stated)
        modules = {m: parsed(f"spec.extended.{m}") for m in EXTENDED_MODULES}
        yield (
            "extended/index.md",
            self._page(
                "extended", docstring=parsed("spec.extended").docstring, modules=modules, definitions=self.extended
            ),
        )
        for stated in self.extended.values():
            yield f"extended/{slug(stated.text.name)}.md", self._definition(stated)
        yield "rotary/index.md", self._page("families", families=FAMILIES)
        for family in FAMILIES:
            yield f"rotary/{family.kind}.md", self._page("family", f=family)
        yield "errata.md", self._page("errata", errata=[self._erratum(e) for e in ERRATA.values()])
        yield (
            "operations/index.md",
            self._page("operations", operations=OPERATIONS.values(), bugs=self.bugs, laws=self.laws_by_operation),
        )
        for operation in OPERATIONS.values():
            yield f"operations/{slug(operation.name)}.md", self._operation(operation)
        families: dict[str, list[Named]] = {}
        for named in self.laws.values():
            families.setdefault(named.laws[0].body.__module__, []).append(named)
        yield (
            "laws/index.md",
            self._page("laws", families={parsed(m): laws for m, laws in families.items()}, count=len(self.laws)),
        )
        for named in self.laws.values():
            yield f"laws/{slug(named.name)}.md", self._law(named)
        yield "bugs.md", self._page("bugs", operations=OPERATIONS.values(), bugs=self.bugs, kills=self.kills)
        measured = {file: page.title for page in PAGES for file in page.written}
        yield (
            "measured/index.md",
            self._page(
                "measured", results=results(lambda file: f"{file.stem}.md"), names=[file.stem for file in measured]
            ),
        )
        for picture in sorted((ROOT / "docs").glob("*.svg")):
            yield f"measured/{picture.name}", picture.read_text("utf-8")
        for file, title in measured.items():
            text = file.read_text("utf-8").rstrip("\n")
            page = text if file.suffix == ".md" else f"# {title}\n\n{fenced(text, 'text')}"
            yield f"measured/{file.stem}.md", f"---\nhide-toc: true\n---\n\n{WIDE}\n\n{page}\n"
        yield "changelog.md", _changelog()
        for package in ("oracles", "properties"):
            yield f"api/{package}.md", self._api(package)

    # -- The contents ------------------------------------------------------------------------------

    @cached_property
    def definitions(self) -> dict[str, Stated]:
        """The definitions of the three modules by Lean name, in the order of the text."""
        definitions: dict[str, Stated] = {}
        for module in MODULES:
            for text in parsed(f"spec.{module}").definitions.values():
                if lean := re.search(r"^Lean: `(.+)`\Z", text.docstring, re.MULTILINE):
                    definitions[lean[1]] = Stated(lean[1], text)
        return definitions

    @cached_property
    def extended(self) -> dict[str, Stated]:
        """The extended definitions by their names, in the order of the text."""
        return {
            text.name: Stated("", text)
            for module in (parsed(f"spec.extended.{name}") for name in EXTENDED_MODULES)
            for text in module.definitions.values()
            if text.name in module.exported and text.name in EXTENDED
        }

    @cached_property
    def laws(self) -> dict[str, Named]:
        """The laws by name."""
        by_name: dict[str, list[Law]] = {}
        for law in LAWS:
            by_name.setdefault(law.name, []).append(law)
        return {name: Named(name, tuple(laws)) for name, laws in by_name.items()}

    @cached_property
    def laws_by_operation(self) -> dict[str, list[str]]:
        """The names of the laws of each operation."""
        names: dict[str, list[str]] = {operation: [] for operation in OPERATIONS}
        for law in LAWS:
            if law.name not in names[law.operation]:
                names[law.operation].append(law.name)
        return names

    @cached_property
    def bugs(self) -> dict[str, list[Bug]]:
        """The known bugs of each operation."""
        return {
            operation: [bug for bug in CATALOGUE.values() if bug.operation == operation] for operation in OPERATIONS
        }

    @cached_property
    def links(self) -> dict[str, str]:
        """The label of each name that a text may have between backticks."""
        found = {f"oracles.{name}": f"api-oracles-{slug(name)}" for name in parsed("oracles").exported}
        found |= {f"properties.{name}": f"api-properties-{slug(name)}" for name in parsed("properties").exported}
        found |= {bug: f"bug-{bug}" for bug in CATALOGUE}
        found |= {name: f"operation-{slug(name)}" for name in OPERATIONS}
        found |= {stated.text.name: stated.label for stated in self.definitions.values()}
        found |= {erratum: f"erratum-{erratum}" for erratum in ERRATA}
        found = {stated.text.name: stated.label for stated in self.extended.values()} | found
        return found | {"spec.errata": "all-errata", "spec.extended": "extended-definitions"}

    @cached_property
    def _mutants(self) -> dict[str, Definition]:
        """The text of each bug."""
        modules = [parsed(f"properties.bugs.{p.stem}") for p in sorted((ROOT / "properties/bugs").glob("[!_]*.py"))]
        return {
            name.replace("_", "-"): text
            for module in modules
            for name, text in (module.definitions | module.rows).items()
        }

    def law_link(self, law: str) -> str:
        """A link to the laws of a name; `law` is the name, or "name[operation]"."""
        return f"[{escaped(law.partition('[')[0])}](#law-{slug(law.partition('[')[0])})"

    # -- Pages of one definition, erratum, operation or law ----------------------------------------

    def _page(self, template: str, **values: Any) -> str:
        return self.environment.get_template(f"{template}.md").render(**values)

    def _index(self) -> str:
        """The first page, which opens with the verdict that README shows, as `make printed-runs`
        wrote it.
        """
        run = runs((ROOT / "README.md").read_text("utf-8"))[0]
        ((file, code),) = run.files.items()
        return self._page(
            "index",
            file=f"`{file}`",
            code=code.rstrip(),
            command=" ".join(run.arguments),
            verdict=fenced(run.shown.strip(), "text"),
        )

    def _definition(self, stated: Stated) -> str:
        module = stated.text.module
        stating = [
            named
            for named in self.laws.values()
            if any(law.lean.removeprefix("Spec.") == (stated.lean or None) for law in named.laws)
        ]
        return self._page(
            "definition",
            d=stated,
            source=module.with_helpers(stated.text.name),
            examples=examples(stated.text.docstring),
            picture=PICTURES[stated.text.name]() if not stated.lean and stated.text.name in PICTURES else None,
            stating=stating,
            errata=[erratum for erratum in ERRATA.values() if _concerns(erratum, stated)],
            laws={operation: self.laws_by_operation[operation] for operation in stated.equation.operations},
            bugs={operation: self.bugs[operation] for operation in stated.equation.operations},
        )

    def _erratum(self, erratum: Erratum) -> dict[str, Any]:
        corrected = parsed("spec.corrected").definitions
        functions: Iterable[Callable[..., Any]] = (
            erratum.corrected if isinstance(erratum.corrected, tuple) else (erratum.corrected,)
        )
        return {
            "e": erratum,
            "broken": erratum.law(erratum.literal),
            "kept": erratum.law(erratum.corrected),
            "corrected": [corrected[function.__name__].source for function in functions],
            "definitions": [stated for stated in self.definitions.values() if _concerns(erratum, stated)],
        }

    def _operation(self, operation: Operation) -> str:
        definitions = [stated for stated in self.definitions.values() if operation.name in stated.equation.operations]
        bugs = [
            {
                "bug": bug,
                "source": self._mutants[bug.id].source,
                "killers": sorted(self.kills.get(bug.id, {}).items(), key=lambda item: item[1]),
            }
            for bug in self.bugs[operation.name]
        ]
        return self._page(
            "operation",
            o=operation,
            definitions=definitions,
            elsewhere=ELSEWHERE.get(operation.name, ""),
            laws=[self.laws[name] for name in self.laws_by_operation[operation.name]],
            bugs=bugs,
        )

    def _law(self, named: Named) -> str:
        ids = {law.id for law in named.laws}
        killed: dict[str, int] = {}
        for mutant, killers in self.kills.items():
            bug, first = mutant.partition("[")[0], min((n for law, n in killers.items() if law in ids), default=0)
            if first:
                killed[bug] = min(first, killed.get(bug, first))
        operations = {law.operation for law in named.laws}
        definitions = [
            stated for stated in self.definitions.values() if operations.intersection(stated.equation.operations)
        ]
        statements: list[dict[str, Any]] = [
            {
                "statement": statement,
                "laws": laws,
                "kind": kind_of(laws[0]),
                "source": source_of(laws[0]),
                "compares": laws[0].comparison,
                "needs": list(dict.fromkeys(operation for law in laws for operation in law.needs)),
                "exempts": list(dict.fromkeys(reason for law in laws for reason in self._exempts(law))),
            }
            for statement, laws in named.bodies.items()
        ]
        sharing = Counter(entry["source"] for entry in statements)
        last = {entry["source"]: entry for entry in statements}
        for entry in statements:
            entry["sharing"] = sharing[entry["source"]] if entry is last[entry["source"]] else 0
        return self._page(
            "law",
            n=named,
            statements=statements,
            killed=sorted(killed.items(), key=lambda item: item[1]),
            expected=[bug for bug in CATALOGUE.values() if bug.law == named.name],
            definitions=definitions,
        )

    def _exempts(self, law: Law) -> list[str]:
        """The reasons for which a law does not apply, as its exemption gives them."""
        exempts = law.exempts.func if isinstance(law.exempts, partial) else law.exempts
        text = parsed(exempts.__module__).definitions.get(exempts.__name__)
        return re.findall(r'"([^"]*\.)"', text.source) if text and exempts.__name__ != "always" else []

    def _api(self, package: str) -> str:
        home = parsed(package)
        origin = home.imported_from()
        entries: list[dict[str, Any]] = []
        for name in sorted(home.exported, key=str.isupper):  # constants last
            module = parsed(origin[name])
            methods = [
                definition
                for defined, definition in module.definitions.items()
                if defined.startswith(f"{name}.") and definition.docstring
            ]
            entry = {"name": name, "module": origin[name], "definition": module.definitions[name], "methods": methods}
            entries.append(entry)
        return self._page("api", package=package, docstring=home.docstring, entries=entries)


def _concerns(erratum: Erratum, stated: Stated) -> bool:
    """Whether an erratum is about a definition: its declaration, or a docstring that names the
    erratum.
    """
    return erratum.declaration == stated.lean or f"`{erratum.id}`" in stated.text.docstring


def _changelog() -> str:
    """The changelog, with the site's addresses of the guide and of measurements."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/guide/", "](guide/")
    text = text.replace("](docs/results.md)", "](measured/index.md)")
    return re.sub(r"\]\((?:docs|vectors/onnx)/([\w-]+\.md)\)", r"](measured/\1)", text)


def slug(name: str) -> str:
    """A name as part of an address: lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def source_of(law: Law) -> str:
    """The text of a law's body, or of the terms of a symmetry, also where these are restricted to
    some inputs.
    """
    if not isinstance(law.body, Square):
        return textwrap.dedent(inspect.getsource(law.body)).strip()
    terms = law.body.symmetry.terms
    unrestricted = inspect.getclosurevars(terms).nonlocals.get("terms", terms)
    return textwrap.dedent(inspect.getsource(unrestricted)).strip()


def bug_link(bug: str) -> str:
    """A link to a known bug."""
    return f"[`{bug}`](#bug-{bug})"


def operation_link(operation: str) -> str:
    """A link to an operation."""
    return f"[`{operation}`](#operation-{slug(operation)})"


def cited(citation: str) -> str:
    """A citation with links for its owner/repo#number."""
    pieces = re.split(r"([\w.-]+/[\w.-]+#\d+)", citation)
    return "".join(_issue(piece) if place % 2 else escaped(piece) for place, piece in enumerate(pieces))


def _issue(reference: str) -> str:
    repository, _, number = reference.partition("#")
    return f"[{escaped(reference)}](https://github.com/{repository}/issues/{number})"
