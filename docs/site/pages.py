"""The pages that are made from the modules: definitions, errata, operations with their bugs, laws,
measurements, and the API.
"""

import inspect
import json
import re
import textwrap
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
from research.printed_runs import adapter, command, shown
from spec.errata import ERRATA, Erratum

__all__ = ["Site"]

HERE = Path(__file__).parent
MODULES = ("activation", "positional_encoding", "attention")
EXTENDED_MODULES = (
    *("attention", "attention_steps", "attention_derivatives", "alibi"),
    *("rotary_frequencies", "frequency_kinds", "frequency_bands", "rotary"),
)
WIDE = "```{raw} html\n<span class='wide'></span>\n```"
"""Gives a page all the width there is."""


@dataclass(frozen=True)
class Stated:
    """A definition of the spec: its Lean name, "" where it is ours, its text, and its equation."""

    lean: str
    text: Definition

    @property
    def equation(self) -> Equation:
        """Its equation, and the operations that it defines."""
        return EQUATIONS[self.lean] if self.lean else EXTENDED[self.text.name]

    @property
    def label(self) -> str:
        """What links to it name."""
        return f"definition-{slug(self.text.name)}"

    @property
    def declaration(self) -> str:
        """Where Lean declares it: the link that the decorator puts at the end of its docstring."""
        return str(attrgetter(self.text.name)(import_module(self.text.module.name)).__doc__).rpartition(" ")[2]

    @property
    def prose(self) -> list[Block]:
        """Its docstring without examples, equation and Lean name: what is said in words before the
        equation, and after it.
        """
        return [b for b in blocks(self.text.docstring) if b.kind != "example" and not b.lines[0].startswith("Lean: ")]

    @property
    def before(self) -> list[Block]:
        """What the docstring says before its equation."""
        return self.prose[: self._place]

    @property
    def after(self) -> list[Block]:
        """What the docstring says after its equation."""
        rest = self.prose[self._place :]
        return rest[1:] if rest and rest[0].kind == "literal" else rest

    @property
    def _place(self) -> int:
        return next((i for i, b in enumerate(self.prose) if b.kind == "literal"), 1)


@dataclass(frozen=True)
class Named:
    """All laws of one name."""

    name: str
    laws: tuple[Law, ...]

    @property
    def label(self) -> str:
        """What links to it name."""
        return f"law-{slug(self.name)}"

    @property
    def title(self) -> str:
        """Its name as a sentence."""
        return self.name[0].upper() + self.name[1:]

    @property
    def bodies(self) -> dict[str, list[Law]]:
        """Its laws by their statement."""
        found: dict[str, list[Law]] = {}
        for law in self.laws:
            found.setdefault(law.statement, []).append(law)
        return found


class Site:
    """All that the pages say and how they are linked, from the modules and from docs/kill-matrix.json."""

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
        """Write all sources into a folder: those that are made, and those that are written by hand."""
        for name, text in self.pages():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def pages(self) -> Iterator[tuple[str, str]]:
        """The name of each page in the site's sources, and its Markdown."""
        yield "index.md", self._index()
        for path in sorted((ROOT / "docs/guide").glob("*.md")):
            yield f"guide/{path.name}", path.read_text("utf-8")
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
        for package in ("oracles", "properties"):
            yield f"api/{package}.md", self._api(package)

    # -- What there is -----------------------------------------------------------------------------

    @cached_property
    def definitions(self) -> dict[str, Stated]:
        """The definitions of the three modules by Lean name, in the order of the text."""
        found: dict[str, Stated] = {}
        for module in MODULES:
            for text in parsed(f"spec.{module}").definitions.values():
                if lean := re.search(r"^Lean: `(.+)`\Z", text.docstring, re.MULTILINE):
                    found[lean[1]] = Stated(lean[1], text)
        return found

    @cached_property
    def extended(self) -> dict[str, Stated]:
        """The extended definitions by their names, in the order of the text."""
        texts = [
            (m, t)
            for m in (parsed(f"spec.extended.{name}") for name in EXTENDED_MODULES)
            for t in m.definitions.values()
        ]
        return {
            text.name: Stated("", text)
            for module, text in texts
            if text.name in module.exported and text.name in EXTENDED
        }

    @cached_property
    def laws(self) -> dict[str, Named]:
        """The laws by name."""
        found: dict[str, list[Law]] = {}
        for law in LAWS:
            found.setdefault(law.name, []).append(law)
        return {name: Named(name, tuple(laws)) for name, laws in found.items()}

    @cached_property
    def laws_by_operation(self) -> dict[str, list[str]]:
        """The names of the laws of each operation."""
        return {o: list(dict.fromkeys(law.name for law in LAWS if law.operation == o)) for o in OPERATIONS}

    @cached_property
    def bugs(self) -> dict[str, list[Bug]]:
        """The known bugs of each operation."""
        return {o: [bug for bug in CATALOGUE.values() if bug.operation == o] for o in OPERATIONS}

    @cached_property
    def links(self) -> dict[str, str]:
        """Labels by what stands between backticks."""
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
        """A link to the law of a name, or of "name[operation]"."""
        return f"[{escaped(law.partition('[')[0])}](#law-{slug(law.partition('[')[0])})"

    # -- The pages of one thing --------------------------------------------------------------------

    def _page(self, template: str, **values: Any) -> str:
        return self.environment.get_template(f"{template}.md").render(**values)

    def _index(self) -> str:
        """The first page, which opens with the verdict that README shows, as `make printed-runs` wrote it."""
        readme = (ROOT / "README.md").read_text("utf-8")
        file, code = adapter(readme)
        return self._page(
            "index",
            file=f"`{file}`",
            code=code.rstrip(),
            command=" ".join(command(readme)),
            verdict=fenced(shown(readme).strip(), "text"),
        )

    def _definition(self, stated: Stated) -> str:
        module = stated.text.module
        stating = [
            n
            for n in self.laws.values()
            if any(law.lean.removeprefix("Spec.") == (stated.lean or None) for law in n.laws)
        ]
        return self._page(
            "definition",
            d=stated,
            source=module.with_helpers(stated.text.name),
            examples=examples(stated.text.docstring),
            picture=PICTURES[stated.text.name]() if not stated.lean and stated.text.name in PICTURES else None,
            stating=stating,
            errata=[e for e in ERRATA.values() if e.declaration == stated.lean or f"`{e.id}`" in stated.text.docstring],
            laws={o: self.laws_by_operation[o] for o in stated.equation.operations},
            bugs={o: self.bugs[o] for o in stated.equation.operations},
        )

    def _erratum(self, erratum: Erratum) -> dict[str, Any]:
        corrected = parsed("spec.corrected").definitions
        functions: Iterable[Callable[..., Any]] = (
            erratum.corrected if isinstance(erratum.corrected, tuple) else (erratum.corrected,)
        )
        mentioned = [
            d
            for d in self.definitions.values()
            if f"`{erratum.id}`" in d.text.docstring or d.lean == erratum.declaration
        ]
        return {
            "e": erratum,
            "broken": erratum.law(erratum.literal),
            "kept": erratum.law(erratum.corrected),
            "corrected": [corrected[f.__name__].source for f in functions],
            "definitions": mentioned,
        }

    def _operation(self, operation: Operation) -> str:
        stated = [d for d in self.definitions.values() if operation.name in d.equation.operations]
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
            definitions=stated,
            elsewhere=ELSEWHERE.get(operation.name, ""),
            laws=[self.laws[name] for name in self.laws_by_operation[operation.name]],
            bugs=bugs,
        )

    def _law(self, named: Named) -> str:
        ids = {law.id for law in named.laws}
        killed: dict[str, int] = {}
        for mutant, by in self.kills.items():
            bug, first = mutant.partition("[")[0], min((n for law, n in by.items() if law in ids), default=0)
            if first:
                killed[bug] = min(first, killed.get(bug, first))
        definitions = [
            d for d in self.definitions.values() if any(law.operation in d.equation.operations for law in named.laws)
        ]
        statements = [
            {
                "statement": statement,
                "laws": laws,
                "kind": kind_of(laws[0]),
                "source": source_of(laws[0]),
                "compares": laws[0].comparison,
                "needs": list(dict.fromkeys(o for law in laws for o in law.needs)),
                "exempts": list(dict.fromkeys(reason for law in laws for reason in self._exempts(law))),
            }
            for statement, laws in named.bodies.items()
        ]
        return self._page(
            "law",
            n=named,
            statements=statements,
            killed=sorted(killed.items(), key=lambda item: item[1]),
            expected=[bug for bug in CATALOGUE.values() if bug.law == named.name],
            catalogue=CATALOGUE,
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
            own = module.definitions[name]
            methods = [d for n, d in module.definitions.items() if n.startswith(f"{name}.") and d.docstring]
            entries.append({"name": name, "module": origin[name], "definition": own, "methods": methods})
        return self._page("api", package=package, docstring=home.docstring, entries=entries)


def slug(name: str) -> str:
    """A name as part of an address: lower case, with hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def source_of(law: Law) -> str:
    """The text of a law's body; of a symmetry that of its terms."""
    body = law.body.symmetry.terms if isinstance(law.body, Square) else law.body
    return textwrap.dedent(inspect.getsource(body)).strip()


def bug_link(bug: str) -> str:
    """A link to a known bug."""
    return f"[`{bug}`](#bug-{bug})"


def operation_link(operation: str) -> str:
    """A link to an operation."""
    return f"[`{operation}`](#operation-{slug(operation)})"


def cited(citation: str) -> str:
    """A citation with its owner/repo#number as links."""
    pieces = re.split(r"([\w.-]+/[\w.-]+#\d+)", citation)
    return "".join(_issue(p) if i % 2 else escaped(p) for i, p in enumerate(pieces))


def _issue(reference: str) -> str:
    repository, _, number = reference.partition("#")
    return f"[{escaped(reference)}](https://github.com/{repository}/issues/{number})"
