"""Finds the law, the known bug or the operation that the user means by a text, and splits a law's
id into name and operation.
"""

import re
from collections.abc import Iterable

from oracles.spelling import did_you_mean

__all__ = ["hyphenated", "named", "parts_of"]


def named(text: str, names: Iterable[str], *kinds: str) -> str:
    """Return the one name that a text means: an equal name, or else the only name that contains the
    text.

    Case and punctuation are ignored. Raises ValueError with a suggestion if no name fits, or if
    several names fit. `kinds` says what the names are, such as "law", for that message.
    """
    by_plain_name = {_plain(name): name for name in names}
    plain_text = _plain(text)
    if plain_text in by_plain_name:
        return by_plain_name[plain_text]
    containing = [name for plain, name in by_plain_name.items() if plain_text in plain]
    if len(containing) == 1:
        return containing[0]
    if containing:
        listed = "; ".join(containing[:8]) + ("; …" if len(containing) > 8 else "")
        plurals = " or ".join(f"{kind}s" for kind in kinds)
        raise ValueError(f"{text!r} may mean {len(containing)} {plurals}: {listed}.")
    commands = " and ".join(f"`attnspec {kind}s`" for kind in kinds)
    listed = f"{commands} {'lists' if len(kinds) == 1 else 'list'} the known ones."
    raise ValueError(f"Unknown {' or '.join(kinds)} {text!r}.{did_you_mean(text, by_plain_name.values(), listed)}")


def parts_of(law_id: str) -> tuple[str, str]:
    """Return the name and the operation of a law's id, "law[operation]".

    The operation is "" if the text has no brackets.
    """
    name, _, operation = law_id.partition("[")
    return name, operation.removesuffix("]")


def hyphenated(name: str) -> str:
    """Return a name as a word that needs no quotes on the command line. `named` finds the name by
    this word.
    """
    return _plain(name).replace(" ", "-")


def _plain(name: str) -> str:
    """Return the name in lower case, with spaces instead of ASCII punctuation."""
    return re.sub(r"[\s!-/:-@\\^-`{-~]+", " ", name).strip().lower()
