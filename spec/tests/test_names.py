import ast
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

import spec
from spec.lean import LITERAL, REPOSITORY
from spec.tests.declarations import ATTENTION, MODULES, POSITIONAL, Declaration

PACKAGE = Path(spec.__file__).parent


def definitions(source):
    """The public definitions of a module by name, in the order of the source, with their
    docstrings; methods follow their class.
    """
    found = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        found[node.name] = ast.get_docstring(node) or ""
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                found[f"{node.name}.{method.name}"] = ast.get_docstring(method) or ""
    return found


def exported(source):
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return sorted(ast.literal_eval(node.value))
    return None


def faults(source, declarations):
    """What is wrong with a module that should define exactly these declarations, in this order,
    each with its Lean name.
    """
    found = definitions(source)
    names = [declaration.python for declaration in declarations]
    problems = [f"{name} is missing." for name in names if name not in found]
    problems += [f"{name} is extra: no declaration has this name." for name in found if name not in names]
    # A method stands in its class, wherever Lean declares it: methods and the rest are in order
    # each by themselves.
    for of_methods in (False, True):
        expected = [name for name in names if ("." in name) == of_methods and name in found]
        actual = [name for name in found if ("." in name) == of_methods and name in names]
        problems += [f"{a} is misplaced: {e} should be here." for a, e in zip(actual, expected, strict=True) if a != e]
    for declaration in declarations:
        docstring = found.get(declaration.python)
        line = f"Lean: `{declaration.lean}`"
        if docstring is not None and not docstring.endswith(line):
            problems.append(f"{declaration.python} should end its docstring with the line {line}.")
    if exported(source) != sorted(name for name in names if "." not in name):
        problems.append("__all__ should list the declarations and nothing else.")
    return problems


@pytest.mark.parametrize("module", MODULES)
def test_a_module_defines_the_declarations_of_its_lean_file_in_order_and_nothing_else(module):
    _, declarations = MODULES[module]
    assert faults((PACKAGE / f"{module}.py").read_text("utf-8"), declarations) == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_names_its_lean_file(module):
    lean_file, _ = MODULES[module]
    assert f"Lean: `{lean_file}`" in (ast.get_docstring(ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))) or "")


def test_every_module_has_its_declarations_listed_or_is_known_to_be_of_another_kind():
    of_another_kind = {"__init__", "context", "tensor_core", "lean", "scope", "signature", "corrected", "errata"}
    assert {path.stem for path in PACKAGE.glob("*.py")} - of_another_kind == set(MODULES)


def test_the_two_layers_have_35_declarations():
    assert (len(POSITIONAL), len(ATTENTION)) == (12, 23)


def links(module):
    """The last line of each definition's docstring at run time, in the order of the declarations."""
    found = import_module(f"spec.{module}")
    return [
        attrgetter(declaration.python)(found).__doc__.splitlines()[-1].strip() for declaration in MODULES[module][1]
    ]


@pytest.mark.parametrize("module", MODULES)
def test_a_definition_links_to_its_declaration_at_the_revision_that_is_transcribed(module):
    lean_file, declarations = MODULES[module]
    url = f"https://github.com/{REPOSITORY}/blob/{LITERAL}/{lean_file}"
    for declaration, link in zip(declarations, links(module), strict=True):
        assert re.fullmatch(rf".*Lean: `{re.escape(declaration.lean)}`, {re.escape(url)}(#L\d+)?", link)


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"tensor_reduction_shape"}))
def test_the_lines_of_a_file_are_in_the_order_of_its_declarations(module):
    lines = [int(link.rpartition("#L")[2]) for link in links(module)]
    assert lines == sorted(set(lines))


def test_a_revision_is_stated_in_one_place():
    sources = [path for path in PACKAGE.rglob("*.py") if re.search(r"\b(411682f|0f84531)", path.read_text("utf-8"))]
    assert sources == [PACKAGE / "lean.py", Path(__file__)]


@pytest.mark.parametrize(
    ("kind", "lean", "python"),
    [
        ("structure", "PositionalEncodingSpec", "PositionalEncodingSpec"),
        ("structure", "MultiHeadAttention", "MultiHeadAttention"),
        ("def", "ropeApplySpec", "rope_apply_spec"),
        ("def", "map2Spec", "map2_spec"),
        ("def", "MultiHeadAttentionBackward", "multi_head_attention_backward"),
        ("def", "MultiHeadAttention.forward", "MultiHeadAttention.forward"),
    ],
)
def test_a_name_is_derived_mechanically(kind, lean, python):
    assert Declaration(kind, lean).python == python


# -- The check itself can fail ---------------------------------------------------------------------

GOOD = '''
__all__ = ["Pair", "first_spec", "second_spec"]

class Pair:
    """A pair.

    Lean: `Pair`
    """

    def swap(self):
        """Swapped.

        Lean: `Pair.swap`
        """

def first_spec(): """The first. Lean: `firstSpec`"""

def second_spec(): """The second. Lean: `secondSpec`"""

def _private(): pass
'''

DECLARED = [
    Declaration("structure", "Pair"),
    *(Declaration("def", lean) for lean in ("firstSpec", "Pair.swap", "secondSpec")),
]


def test_a_module_as_declared_has_no_faults():
    assert faults(GOOD, DECLARED) == []


FIRST, SECOND = (f'def {n}_spec(): """The {n}. Lean: `{n}Spec`"""\n' for n in ("first", "second"))


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (GOOD.replace("def first_spec", "def _first_spec"), "first_spec is missing."),
        (GOOD.replace("def swap", "def _swap"), "Pair.swap is missing."),
        (GOOD.replace("class Pair", "class Couple"), "Pair is missing."),
        (GOOD + "def third_spec(): pass\n", "third_spec is extra: no declaration has this name."),
        (
            GOOD.replace("    def swap", "    def more(self): pass\n\n    def swap"),
            "Pair.more is extra: no declaration has this name.",
        ),
        (
            GOOD.replace(FIRST, "").replace(SECOND, SECOND + "\n" + FIRST),
            "second_spec is misplaced: first_spec should be here.",
        ),
        (GOOD.replace("Lean: `firstSpec`", ""), "first_spec should end its docstring with the line Lean: `firstSpec`."),
        (
            GOOD.replace("`Pair.swap`", "`Pair.turn`"),
            "Pair.swap should end its docstring with the line Lean: `Pair.swap`.",
        ),
        (GOOD.replace('"first_spec", ', ""), "__all__ should list the declarations and nothing else."),
    ],
)
def test_a_module_that_departs_from_its_declarations_is_reported(changed, fault):
    assert changed != GOOD
    assert fault in faults(changed, DECLARED)
