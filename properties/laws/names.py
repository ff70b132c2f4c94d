"""Names: what one means that somebody typed, of a law, a bug or an operation; and the two parts of a law's."""

import re
from collections.abc import Iterable

from oracles.spelling import did_you_mean

__all__ = ["named", "parts_of"]


def named(text: str, names: Iterable[str], *kinds: str) -> str:
    """The one name that a text means: the name itself, or else the only one that contains it; case,
    hyphens and underscores are alike.

    Raises ValueError, a sentence that suggests a name, where no name or more than one fits; `kinds`
    says what the names are of.
    """
    known = {_plain(name): name for name in names}
    wanted = _plain(text)
    if wanted in known:
        return known[wanted]
    within = [name for plain, name in known.items() if wanted in plain]
    if len(within) == 1:
        return within[0]
    if within:
        some = "; ".join(within[:8]) + ("; …" if len(within) > 8 else "")
        raise ValueError(f"{text!r} may mean {len(within)} {' or '.join(f'{kind}s' for kind in kinds)}: {some}.")
    lists = " and ".join(f"`attnspec {kind}s`" for kind in kinds)
    listed = f"{lists} {'lists' if len(kinds) == 1 else 'list'} the known ones."
    raise ValueError(f"Unknown {' or '.join(kinds)} {text!r}.{did_you_mean(text, known.values(), listed)}")


def parts_of(law: str) -> tuple[str, str]:
    """The name of a law and its operation, which "law[operation]" says; without brackets, and by
    the operation "", a name alone.
    """
    name, _, operation = law.partition("[")
    return name, operation.removesuffix("]")


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().lower()
