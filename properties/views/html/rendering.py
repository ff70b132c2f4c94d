"""Fills in the templates of pages. Each page is one file, with its style inside."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from properties.verifier.report import counted
from properties.views.statuses import SIGNS

__all__ = ["beside", "rendered"]

_FOLDER = Path(__file__).with_name("templates")


def rendered(template: str, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """Return a template, filled in with values. It also gets the style of all pages, and the signs of
    statuses.
    """
    templates = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"counted": counted, "thousands": "{:,}".format, **filters}
    signs = {status: sign for status, (sign, _) in SIGNS.items()}
    return templates.get_template(template).render(signs=signs, style=beside("page.css"), **values)


def beside(name: str) -> Markup:
    """Return the text of a file beside the templates, as it stands."""
    return Markup((_FOLDER / name).read_text("utf-8"))
