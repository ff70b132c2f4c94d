"""Writes the adapter that declares what a portrait shows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from textwrap import wrap

from oracles import Conventions
from oracles.conventions import DEFAULT
from properties.contract.implementation import Implementation
from properties.portraits.portrait import OperationPortrait, Portrait

__all__ = ["adapter", "declaration"]

_WIDTH = 78
_USUAL = (ValueError, TypeError, NotImplementedError)


def adapter(portrait: Portrait, module: str, kernel: Callable[[str], str]) -> str:
    """Return the text of a module that declares the operations of a portrait, ready to verify.

    `module` is the user's module. `kernel` returns the expression of the function that offers an
    operation.
    """
    portraits = [each for each in portrait.operations if each.form is not None]
    wrappers = [each.form.code(kernel(each.operation)) for each in portraits if each.form and not each.form.is_direct]
    code = declaration(portrait, kernel)
    used = ", ".join(name for name in ("oracles", "properties") if f"{name}." in code)
    libraries = {statement for each in portraits if each.form for statement in each.form.imports}
    lines = [
        f'"""The adapter of {portrait.name}: what `attnspec inspect` measured."""',
        "",
        *sorted(libraries - {"from attnspec import oracles"}),
        f"import {module}",
        f"from attnspec import {used}",
        "",
        *(f"\n{wrapper}\n" for wrapper in wrappers),
        code,
    ]
    return "\n".join(lines).rstrip() + "\n"


def declaration(portrait: Portrait, kernel: Callable[[str], str] = lambda operation: operation) -> str:
    """Return the code that declares the operations of a portrait: one `Implementation`, or a list of
    them if their operations are called in different ways.
    """
    groups: dict[tuple[tuple[str, str], ...], list[OperationPortrait]] = {}
    for each in portrait.operations:
        if each.form is not None:
            fields_of_form = {**each.form.declarations, **_refuses(each.implementation)}
            fields_of_form["arithmetic"] = repr(each.implementation.resolved_arithmetic.name)
            fields_of_form.pop("conventions", None)  # `_conventions` writes them
            groups.setdefault(tuple(fields_of_form.items()), []).append(each)
    texts = [
        _implementation(portrait, dict(group), members, kernel, number if len(groups) > 1 else 0)
        for number, (group, members) in enumerate(groups.items(), 1)
    ]
    names = ", ".join(f"_adapter_{number}" for number in range(1, len(texts) + 1))
    return "\n".join(texts) + (f"\nadapters = [{names}]\n" if len(texts) > 1 else "")


def _implementation(
    portrait: Portrait,
    declarations: Mapping[str, str],
    members: Sequence[OperationPortrait],
    kernel: Callable[[str], str],
    number: int,
) -> str:
    """The code of one `Implementation`."""
    offered = [
        f'        "{each.operation}": '
        f"{kernel(each.operation) if each.form and each.form.is_direct else each.operation},"
        for each in members
    ]
    variable = f"_adapter_{number}" if number else "adapter"
    name = f"{portrait.name}, {number}" if number else portrait.name
    return "\n".join(
        [
            f"{variable} = properties.Implementation(",
            f"    name={_quoted(repr(name))},",
            "    operations={",
            *offered,
            "    },",
            *(f"    {field_name}={_quoted(code)}," for field_name, code in declarations.items()),
            *_conventions(portrait, members),
            ")",
            "",
        ]
    )


def _refuses(implementation: Implementation) -> dict[str, str]:
    """The exceptions that the kernel raises besides the usual ones. An exception of a library is
    declared as `RuntimeError` or `Exception`, which need no import.
    """
    others = [kind for kind in implementation.refuses if kind not in _USUAL]
    if not others:
        return {}
    names = [next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins") for kind in others]
    return {"refuses": f"({', '.join(dict.fromkeys([*(kind.__name__ for kind in _USUAL), *names]))})"}


def _conventions(portrait: Portrait, members: Sequence[OperationPortrait]) -> Iterator[str]:
    """The lines that declare the conventions, with each question as a comment before its value."""
    questions = {question.convention: question for each in portrait.operations for question in each.questions}
    declared = {
        field.name: getattr(each.implementation.resolved_conventions, field.name)
        for each in members
        for field in fields(Conventions)
    }
    others = {name: value for name, value in declared.items() if value != getattr(DEFAULT, name)}
    if not others:
        return
    yield "    conventions=oracles.Conventions("
    for name, value in others.items():
        if name in questions:
            yield from (f"        # {line}" for line in wrap(questions[name].says, _WIDTH - 10))
        yield f"        {name}={_quoted(repr(value))},"
    yield "    ),"


def _quoted(code: str) -> str:
    """The code with double quotes, where it has no quotes inside."""
    return code if '"' in code else code.replace("'", '"')
