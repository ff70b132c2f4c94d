"""What a known bug is: a small executable slip in the reference, with where it was seen, what it does and how it is mended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Bug", "Register", "Requirement"]

Requirement = Literal["strided views", "two calls in a row", "tables that are not rotations", "long positions", "large sizes"]


@dataclass(frozen=True)
class Bug:
    """A known mistake in one operation.

    `fresh` makes a new instance of the mutant, a function of the operation's arguments in NumPy float64, with no memory of earlier calls.
    `mechanism` says what it does, `effect` what a user sees, `repair` what to change; each is a sentence. `citation` names public reports
    (owner/repo#number), or says "none" and why it is here. `law` names the law that is expected to see it; `requires` what a harness must
    do besides calling it on arrays. `public` bugs are the thirty that the suite was tuned on; of the others some are documented in the open
    too. `promises` are those of an implementation that has the bug, where they are not the usual ones.
    """

    id: str
    operation: str
    fresh: Callable[[], Callable[..., Any]]
    mechanism: str
    effect: str
    repair: str
    citation: str
    law: str
    requires: tuple[Requirement, ...] = ()
    public: bool = False
    promises: Mapping[str, Any] = field(default_factory=dict)


class Register:
    """A decorator that turns a mutant into an entry of a catalogue: its name is the id, its docstring the mechanism.

        @bug("scaled_dot_product_attention", effect="…", repair="…", citation="…", law="…")
        def sdpa_softmax_query_axis(q, k, v, mask=None):
            \"\"\"The softmax is taken over the queries instead of the keys.\"\"\"

    With `stateful=True` the function takes no argument and returns the mutant: its local variables are what the mutant remembers.
    """

    def __init__(self) -> None:
        self.bugs: list[Bug] = []

    def __call__(self, operation: str, *, stateful: bool = False, **entry: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The decorator for a mutant of an operation; the other arguments are fields of `Bug`."""

        def register(mutant: Callable[..., Any]) -> Callable[..., Any]:
            mechanism = " ".join((mutant.__doc__ or "").split())
            fresh = mutant if stateful else lambda: mutant
            self.bugs.append(Bug(mutant.__name__.replace("_", "-"), operation, fresh, mechanism, **entry))
            return mutant

        return register
