"""Docstrings as Markdown: plain text with indented equations, lists, columns and worked examples.

They are written to be read in a terminal, not in a markup language, so every character stands for
itself. What is recognised is what they use: paragraphs, lines that begin with "- ", indented
blocks, `code`, examples that begin with ">>>", and columns of names and what they mean.
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
    i = 0
    while i < len(lines):
        start = i
        if not lines[i].strip():
            i += 1
        elif lines[i].startswith(">>>"):
            while i < len(lines) and lines[i].strip():
                i += 1
            found.append(Block("example", tuple(lines[start:i])))
        elif lines[i].startswith("    "):
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            body = "\n".join(line[4:] for line in lines[start:i]).strip("\n")
            table = body.count("\n") > 1 and all(_ROW.match(line) for line in body.splitlines())
            found.append(Block("columns" if table else "literal", tuple(body.splitlines())))
        elif lines[i].startswith("- "):
            while i < len(lines) and lines[i].startswith(("- ", "  ")):
                i += 1
            found.append(Block("list", tuple(lines[start:i])))
        elif _COLUMNS.match(lines[i]):
            while i < len(lines) and (_COLUMNS.match(lines[i]) or lines[i].startswith("     ")):
                i += 1
            found.append(Block("columns", tuple(lines[start:i])))
        else:
            while i < len(lines) and lines[i].strip() and (i == start or not _begins(lines[i])):
                i += 1
            found.append(Block("paragraph", tuple(lines[start:i])))
    return found


def _begins(line: str) -> bool:
    return line.startswith(("- ", ">>>", "    ")) or bool(_COLUMNS.match(line))


def examples(docstring: str) -> str:
    """The worked examples of a docstring, as a session."""
    return "\n\n".join("\n".join(b.lines) for b in blocks(docstring) if b.kind == "example")


def markdown(parts: list[Block], links: Mapping[str, str]) -> str:
    """Parts of a docstring as Markdown; `links` maps what stands between backticks to the label that it leads to."""
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
    """A paragraph with every character standing for itself, but for `code`, which is linked where
    it is a name in `links`.
    """
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(_code(p[1:-1], links) if p.startswith("`") and len(p) > 2 else escaped(p) for p in pieces)


def escaped(text: str) -> str:
    """Text in which no character means anything to Markdown."""
    return re.sub(r"([\\`*_\[\]<>#$|{}~^@+&]|^-|(?<=^\d)\.)", r"\\\1", text)


def _code(text: str, links: Mapping[str, str]) -> str:
    return f"[`{text}`](#{links[text]})" if text in links else f"`{text}`"


def fenced(text: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"
