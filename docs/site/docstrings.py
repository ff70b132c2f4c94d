"""Docstrings as Markdown: plain text with indented equations, lists, columns and worked examples.

Docstrings are plain text for a terminal, not markup, so every character is literal. This module
recognises paragraphs, lines that begin with "- ", indented blocks, `code`, examples that begin with
">>>", and columns of names and their meanings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Block", "blocks", "escaped", "examples", "fenced", "inline", "markdown"]

Kind = Literal["paragraph", "list", "columns", "literal", "example"]
_COLUMNS = re.compile(r"^(\S(?:[^ ]| (?! ))*[^ .:;,]) {2,}(\S.*)$")

_ROW = re.compile(r"^[\w, ]+? {2,}\S")


@dataclass(frozen=True)
class Block:
    """A part of a docstring: its kind, and its lines without their common indentation."""

    kind: Kind
    lines: tuple[str, ...]


def blocks(docstring: str) -> list[Block]:
    """The parts of a docstring in order."""
    found: list[Block] = []
    lines = docstring.splitlines()
    position = 0
    while position < len(lines):
        start = position
        if not lines[position].strip():
            position += 1
        elif lines[position].startswith(">>>"):
            while position < len(lines) and lines[position].strip():
                position += 1
            found.append(Block("example", tuple(lines[start:position])))
        elif lines[position].startswith("    "):
            while position < len(lines) and (lines[position].startswith("    ") or not lines[position].strip()):
                position += 1
            body = "\n".join(line[4:] for line in lines[start:position]).strip("\n")
            table = body.count("\n") > 1 and all(_ROW.match(line) for line in body.splitlines())
            found.append(Block("columns" if table else "literal", tuple(body.splitlines())))
        elif lines[position].startswith("- "):
            while position < len(lines) and lines[position].startswith(("- ", "  ")):
                position += 1
            found.append(Block("list", tuple(lines[start:position])))
        elif _COLUMNS.match(lines[position]):
            while position < len(lines) and (_COLUMNS.match(lines[position]) or lines[position].startswith("     ")):
                position += 1
            found.append(Block("columns", tuple(lines[start:position])))
        else:
            while (
                position < len(lines)
                and lines[position].strip()
                and (position == start or not _begins(lines[position]))
            ):
                position += 1
            found.append(Block("paragraph", tuple(lines[start:position])))
    return found


def _begins(line: str) -> bool:
    return line.startswith(("- ", ">>>", "    ")) or bool(_COLUMNS.match(line))


def examples(docstring: str) -> str:
    """The worked examples of a docstring, as a session."""
    return "\n\n".join("\n".join(b.lines) for b in blocks(docstring) if b.kind == "example")


def markdown(parts: list[Block], links: Mapping[str, str]) -> str:
    """Parts of a docstring as Markdown; `links` maps code between backticks to the label of its
    target.
    """
    return "\n\n".join(_markdown(part, links) for part in parts)


def _markdown(part: Block, links: Mapping[str, str]) -> str:
    if part.kind == "example":
        return fenced("\n".join(part.lines), "pycon")
    if part.kind == "literal":
        return fenced("\n".join(part.lines), "text")
    if part.kind == "list":
        items = re.split(r"(?m)^- ", "\n".join(part.lines))[1:]
        return "\n".join(f"- {inline(item, links)}" for item in items)
    if part.kind == "columns":
        rows: list[list[str]] = []
        for line in part.lines:
            if found := _COLUMNS.match(line):
                rows.append([found[1], re.sub(r"([^.]) {2,}", r"\1 · ", found[2])])
            else:
                rows[-1][1] += " " + line.strip()
        return "\n\n".join(f"`{name}`\n: {inline(meaning, links)}" for name, meaning in rows)
    text = inline("\n".join(part.lines), links)
    return f"**{text}**" if part.lines == ("Edge cases",) else text


def inline(text: str, links: Mapping[str, str]) -> str:
    """A paragraph as Markdown in which every character is literal, except in `code`.

    Code that is a name in `links` becomes a link.
    """
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(_code(p[1:-1], links) if p.startswith("`") and len(p) > 2 else escaped(p) for p in pieces)


def escaped(text: str) -> str:
    """Text with an escape before each character that has a meaning in Markdown."""
    return re.sub(r"([\\`*_\[\]<>#$|{}~^@+&]|^-|(?<=^\d)\.)", r"\\\1", text)


def _code(text: str, links: Mapping[str, str]) -> str:
    return f"[`{text}`](#{links[text]})" if text in links else f"`{text}`"


def fenced(text: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"
