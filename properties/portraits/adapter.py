"""Writes the adapter that declares what a portrait shows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from textwrap import wrap

from oracles import Conventions
from oracles.conventions import DEFAULT
from properties.contract.implementation import USUAL_REFUSALS, Implementation
from properties.inspection.forms import refusals_as_code
from properties.portraits.portrait import CAUSAL_ONLY, OperationPortrait, Portrait

__all__ = ["KERNEL", "adapter", "declaration"]

_WIDTH = 78

KERNEL = "kernels.{}".format
"""The expression of the function of an operation, if the user's module is not known."""


def adapter(portrait: Portrait, imports: Sequence[str], kernel: Callable[[str], str]) -> str:
    """Return the text of a module that declares the operations of a portrait, ready to verify.

    `imports` are lines that import the user's module. `kernel` returns the expression of the function that offers an
    operation.
    """
    code = declaration(portrait, kernel, is_commented=True)
    used = ", ".join(name for name in ("oracles", "properties") if f"{name}." in code)
    libraries = {statement for each in portrait.operations if each.form for statement in each.form.imports}
    lines = [
        f'"""The adapter of {portrait.name}: what `attnspec inspect` measured."""',
        "",
        *sorted(libraries - {"from attnspec import oracles"}),
        *imports,
        f"from attnspec import {used}",
        "",
        *(["", code] if code.startswith("def ") else [code]),
    ]
    return "\n".join(lines)


def declaration(portrait: Portrait, kernel: Callable[[str], str] = KERNEL, *, is_commented: bool = False) -> str:
    """Return the code that declares the operations of a portrait: one `Implementation`, or a list of
    them if their operations are called in different ways. A function before it calls a kernel whose
    arguments or results differ from the contract's. If `is_commented`, each question is a
    comment at its value.
    """
    wrappers = "".join(
        f"{each.form.code(kernel(each.own_name))}\n\n"
        for each in portrait.operations
        if each.form and not each.form.is_direct
    )
    groups: dict[tuple[tuple[str, str], ...], list[OperationPortrait]] = {}
    for each in portrait.operations:
        if each.form is not None:
            fields_of_form = {**each.form.declarations, **_refuses(each.implementation)}
            fields_of_form["arithmetic"] = repr(each.implementation.resolved_arithmetic.name)
            fields_of_form.pop("conventions", None)  # `_conventions` writes them
            groups.setdefault(tuple(fields_of_form.items()), []).append(each)
    texts = [
        _implementation(portrait, members, dict(group), kernel, number if len(groups) > 1 else 0, is_commented)
        for number, (group, members) in enumerate(groups.items(), 1)
    ]
    names = ", ".join(f"_adapter_{number}" for number in range(1, len(texts) + 1))
    return wrappers + "\n".join(texts) + (f"\nadapters = [{names}]\n" if len(texts) > 1 else "")


def _implementation(
    portrait: Portrait,
    members: Sequence[OperationPortrait],
    declarations: Mapping[str, str],
    kernel: Callable[[str], str],
    number: int,
    is_commented: bool,
) -> str:
    """The code of one `Implementation`."""
    offered = [
        f'"{each.operation}": {kernel(each.own_name) if each.form and each.form.is_direct else each.operation},'
        for each in members
    ]
    variable = f"_adapter_{number}" if number else "adapter"
    name = f"{portrait.name}, {number}" if number else portrait.name
    conventions = list(_conventions(portrait, members, is_commented))
    asked = [question.says for each in members for question in each.questions if question.convention == CAUSAL_ONLY]
    comments = [f"    # {line}" for says in asked if is_commented for line in wrap(says, _WIDTH - 6)]
    return "\n".join(
        [
            f"{variable} = properties.Implementation(",
            f"    name={_quoted(repr(name))},",
            *comments,
            *_collection("operations={", offered, "}"),
            *(f"    {field_name}={_quoted(code)}," for field_name, code in declarations.items()),
            *(_collection("conventions=oracles.Conventions(", conventions, ")") if conventions else []),
            ")",
            "",
        ]
    )


def _collection(opening: str, rows: Sequence[str], closing: str) -> list[str]:
    """The lines of an argument that is a collection. A single row is written on one line."""
    if len(rows) == 1:
        return [f"    {opening}{rows[0].removesuffix(',')}{closing},"]
    return [f"    {opening}", *(f"        {row}" for row in rows), f"    {closing},"]


def _refuses(implementation: Implementation) -> dict[str, str]:
    """The exceptions that the kernel raises in addition to the usual ones. An exception of a library is
    declared as `RuntimeError` or `Exception`, which need no import.
    """
    others = [kind for kind in implementation.refusals if kind not in USUAL_REFUSALS]
    if not others:
        return {}
    names = [next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins") for kind in others]
    return {"refuses": refusals_as_code(names)}


def _conventions(portrait: Portrait, members: Sequence[OperationPortrait], is_commented: bool) -> Iterator[str]:
    """The conventions that are declared. If `is_commented`, each question is a comment before its value."""
    questions = {question.convention: question for each in portrait.operations for question in each.questions}
    declared = {
        field.name: getattr(each.implementation.resolved_conventions, field.name)
        for each in members
        for field in fields(Conventions)
    }
    for name, value in declared.items():
        if value != getattr(DEFAULT, name):
            if is_commented and name in questions:
                yield from (f"# {line}" for line in wrap(questions[name].says, _WIDTH - 10))
            yield f"{name}={_quoted(repr(value))},"


def _quoted(code: str) -> str:
    """The code with double quotes, where it has no quotes inside."""
    return code if '"' in code else code.replace("'", '"')
