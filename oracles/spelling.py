"""Suggests the known name that is nearest to a misspelt one."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(name: object, known: Iterable[str], otherwise: str = "") -> str:
    """Return a sentence with the known name that is nearest to `name`, after a space: " Did you
    mean 'half'?".

    Case does not matter, and a hyphen, an underscore and a space are equal. If no name is near,
    return `otherwise` after a space, or "" if `otherwise` is empty.
    """
    by_spelling = {_spelling(known_name): known_name for known_name in known}
    nearest = get_close_matches(_spelling(name), by_spelling, n=1) if isinstance(name, str) else []
    sentence = f"Did you mean {by_spelling[nearest[0]]!r}?" if nearest else otherwise
    return f" {sentence}" if sentence else ""


def _spelling(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().lower()
