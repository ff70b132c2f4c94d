"""Seeds as the caller's Hypothesis profile draws them. Hypothesis takes a while to load, and is
loaded only where they are asked for.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import settings

__all__ = ["by_profile", "profile"]


def profile() -> "settings":
    """The caller's profile."""
    from hypothesis import settings

    return settings.default or settings()


def by_profile(hold: Callable[[int], None], number: int, most: int) -> None:
    """Call a function on so many seeds from 0 to the most; those on which it raised before come
    first. What it raises ends it.
    """
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    quietly = settings(
        profile(),
        max_examples=number,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        print_blob=False,
        phases=(Phase.reuse, Phase.generate),
    )
    quietly(given(st.integers(0, most))(hold))()
