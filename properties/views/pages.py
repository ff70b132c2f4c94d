"""Prints lists of the laws and of the known bugs, and a page about each."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from properties.bugs import CATALOGUE, Bug
from properties.contract.operations import OPERATIONS, Operation
from properties.laws import FAMILIES, LAWS, LONG
from properties.laws.commuting_squares import Square
from properties.laws.law import Law
from properties.strategies.domains import DOMAINS
from properties.strategies.sizes import SIZES

__all__ = ["kind_of", "print_bug", "print_bugs", "print_coverage", "print_law", "print_laws"]


def print_laws(console: Console) -> None:
    """Print all laws by family, each with its operations."""
    for family, laws in FAMILIES.items():
        console.print(Text(family, style="bold underline"))
        named: dict[str, list[str]] = {}
        for law in laws:
            named.setdefault(law.name, []).append(law.operation)
        for name, operations in named.items():
            about = ", ".join(operations) if len(operations) <= 3 else f"{len(operations)} operations"
            _print_entry(console, name, about)
        console.print()
    names = len({law.name for law in LAWS})
    counts = f"{names} laws, {len(LAWS)} counted for each operation, and {len(LONG)} in the long plan"
    console.print(f"{counts}; `attnspec explain LAW` shows one.", highlight=False)


def print_law(console: Console, laws: Sequence[Law]) -> None:
    """Print the page of a law: its statement for each operation, and the known bugs that it
    detects.
    """
    console.print(Text(laws[0].name, style="bold underline"))
    for statement in dict.fromkeys(law.statement for law in laws):
        these = [law for law in laws if law.statement == statement]
        law = these[0]
        console.print()
        for paragraph in statement.split("\n\n"):
            console.print(Padding(Text(" ".join(paragraph.split())), (0, 0, 1, 2), expand=False))
        about = {law.operation for law in these}
        caught = [bug.id for bug in CATALOGUE.values() if bug.law == law.name and not about.isdisjoint(bug.mutants)]
        _print_fields(
            console,
            {
                "operations": ", ".join(law.operation for law in these),
                "needs also": ", ".join(law.needs),
                "compares": law.comparison,
                "kind": kind_of(law),
                "detects": ", ".join(caught),
                "Lean": law.lean,
            },
        )


def print_coverage(console: Console) -> None:
    """Print which sizes the default plan can draw for each forward operation, and how to ask for more."""
    console.print(Text("What the default plan covers", style="bold underline"))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 2), pad_edge=False, header_style="none")
    for heading in ("  operation", "fixed points", "longest", "widest"):
        table.add_column(heading, no_wrap=True)
    for name, operation in OPERATIONS.items():
        points = sum(len(domain.points) for domain in DOMAINS[name].values())
        if points and name == operation.forward:
            longest, widest = _largest(operation, "n_k", "seq_len"), _largest(operation, "head_dim", "embed_dim")
            table.add_row(f"  {name}", str(points), longest, widest)
    console.print(table)
    for paragraph in _COVERAGE:
        console.print()
        console.print(Padding(Text(paragraph), (0, 0, 0, 2), expand=False))


def _largest(operation: Operation, *axes: str) -> str:
    """The largest size of some axes of an operation in the default plan; "" if it has no such axis."""
    asked = {*operation.parameters, *(axis for named in operation.axes.values() for axis in named)}.intersection(axes)
    domains = [domain for domain in DOMAINS[operation.name].values() if domain.name not in _LONG_PLAN]
    everyday = {} if operation.widths else SIZES  # tokens of multi-head attention are fewer
    drawn = [max(one.sizes.get(axis, everyday.get(axis, (0,)))) for one in domains if not one.points for axis in asked]
    fixed = [point.sizes.get(axis, 0) for domain in domains for point in domain.points for axis in asked]
    return str(max(drawn + fixed)) if asked else ""


_LONG_PLAN = ("131072 keys",)
_COVERAGE = (
    "Test inputs of a family have random sizes, most of them short. Fixed points are in each run. A kernel is tested "
    "in its own number format. The last lines of a report say what its calls covered, and what they did not try.",
    "Your sizes: --shape batch=4,num_heads=32,kv_heads=8,n_q=1,n_k=8192,head_dim=128. Several are several options. In "
    'an adapter: Implementation(..., shapes=["n_q=1,n_k=8192"]); in pyproject.toml, [tool.attnspec]: '
    'shapes = ["n_q=1,n_k=8192"]. These sizes are tested first.',
    "More test inputs: --max-examples 1000. 131072 keys: --long. Another number format: --arithmetic bfloat16.",
)


def kind_of(law: Law) -> str:
    """Return the kind of a law, in words."""
    if law.agreement:
        return "agreement with the oracle"
    if isinstance(law.body, Square):
        return "a symmetry, f(x) = Σ R f(T x), and its derivatives"
    return "a relation between results of the implementation"


def print_bugs(console: Console) -> None:
    """Print the catalogue of known bugs: each bug's operation, its name, and where it was reported."""
    for operation in dict.fromkeys(bug.operation for bug in CATALOGUE.values()):
        console.print(Text(operation, style="bold underline"))
        for bug in (bug for bug in CATALOGUE.values() if bug.operation == operation):
            _print_entry(console, bug.id, bug.citation)
        console.print()
    console.print(f"{len(CATALOGUE)} bugs; `attnspec bugs BUG` shows one.", highlight=False)


def print_bug(console: Console, bug: Bug) -> None:
    """Print the page of a bug: its mechanism, its effect, its repair, and the law that detects it."""
    console.print(Text(bug.id, style="bold underline"))
    console.print()
    fields = {
        "operation": bug.operation,
        "also in": ", ".join(name for name in bug.mutants if name != bug.operation),
        "mechanism": bug.mechanism,
        "effect": bug.effect,
        "repair": bug.repair,
        "law": bug.law,
        "needs": ", ".join(bug.requires),
        "seen in": bug.citation,
    }
    _print_fields(console, fields)


def _print_entry(console: Console, name: str, about: str) -> None:
    """Print an entry of a list. In a terminal it is wrapped and indented. Otherwise it is one line,
    for grep.
    """
    text = Text.assemble("  ", name, "  ", (about, "dim"))
    if console.is_terminal:
        text = Text("\n      ").join(text.wrap(console, console.width - 6))
    console.print(text, soft_wrap=not console.is_terminal)


def _print_fields(console: Console, fields: dict[str, str]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for name, value in fields.items():
        if value:
            table.add_row(Text(name), Text(value))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
