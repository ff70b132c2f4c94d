"""Chooses the sizes of a test input among those that an implementation supports, so that no test
input is thrown away.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from math import prod
from typing import Any

from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, Operation
from properties.strategies import drawn_features, drawn_masks, drawn_rotations
from properties.strategies.choices import Choices
from properties.strategies.domain import BROAD, EDGES, EVEN, LENGTHS, LONG, SHORT, Domain
from properties.strategies.domains import DOMAINS, ODDITIES, QUIRKS

__all__ = ["PAIRED", "Sizes", "UnsupportedError"]

_CHANNELS = ("model_dim", "context_dim", "out_dim")
SIZES: dict[str, Sequence[int]] = {
    "n_q": LENGTHS,
    "n_k": LENGTHS,
    "head_dim": BROAD,
    "value_dim": BROAD,
    "embed_dim": (1, 2, 3, 4, 5, 8, 16),
    "seq_len": (*(1, 2, 3, 4, 5, 7) * 6, *LONG),
    **dict.fromkeys(_CHANNELS, (1, 2, 3, 5)),
    "num_heads": (1, 2, 3, 4),
    "kv_heads": (1, 2, 3),
    "group": (1, 2, 3),
    "max_len": LENGTHS,
    "n": LENGTHS,
    "prefix": (1, 0, 2, 3, 5, 8, 16, 33, 130),
    "chunk": (2, 1, 3, 4, 5, 8, 16, 64),
    "height": (2, 1, 3, 4, 7, 8, 12),
    "width": (2, 1, 3, 5, 7, 8, 14),
    "start": (0, 1, 3, 7, 63, 2**31, -1, -2, -3, -5, -8, -17, -64),
    "rows": (1, 2, 3, 16, 100),
    "batch": (1, 2, 3),
    "sequences": (2, 3, 1, 4, 5, 3),
    "buckets": (32, 4, 8, 16, 64),
    "max_distance": (128, 40, 64, 256, 1024),
    "page_size": (3, 1, 2, 4, 8, 16, 24, 3, 16, 128),
}
"""The sizes of everyday cases. The first is the simplest."""

PAIRED = (
    "rope",
    "apply_rotary",
    "rotate_half",
    "inv_freq",
    "rope_angles",
    "rope_tables",
    "rotary_frequencies",
    "rotary_embedding",
)  # operations on pairs of dimensions
_OF_SEQUENCES = ("total_q", "total_k", "boundaries", "num_pages", "max_pages")  # they follow from lengths
_BESIDE = {
    "n_k": "n_q",
    "value_dim": "head_dim",
    "context_dim": "model_dim",
    "out_dim": "model_dim",
}
"""Pairs of sizes: the first is chosen after the second, and often equals it. Beside model_dim are the
columns of its first weights.
"""
# How much larger than the first the second size of a pair may be, if no domain has a supported pair.
_FAR = 1024
_SEVERAL = 3  # sizes: a family with fewer ones is about these sizes
_OTHERS = 2  # sizes that replace those of a family, if the implementation supports none of them
_TOKENS = {"seq_len": (2, 3, 1, 4, 5, 8, 9, 2, 3, 4, 5, 17, 33, 64, 65), "head_dim": (1, 2, 3, 4, 8, 16, 5, 24, 32)}
_MOST = 9000  # entries of one problem: long ones are narrow
_TABLE = 2**22  # numbers of a learned table
_LARGE = 2**12  # a batch has one element if an element has more scores or entries


class UnsupportedError(ValueError):
    """Raised when an implementation supports no test input of the requested kind. The message is a
    sentence that says why.
    """


class Sizes:
    """The sizes and leading (batch) axes that test inputs of an operation can have, in a domain
    (input family) and for an implementation.

    Raises UnsupportedError if the implementation supports none of them, or no mask of the domain.
    """

    def __init__(self, operation: Operation, domain: Domain, implementation: Implementation) -> None:
        self.operation, self.domain, self.implementation = operation, domain, implementation
        self.ranks = [rank for rank in implementation.ranks(operation) if rank >= domain.rank]
        if not self.ranks:
            supported_axes = implementation.batch_ranks if implementation.support.batches else "no"
            raise UnsupportedError(
                f"{implementation.name} takes {supported_axes} leading axes, but the domain needs more."
            )
        of_caches = partial(implementation.lacks_of_caches, operation.name)
        lacks = of_caches if operation.is_played else implementation.lacks
        mask_kind = domain.masks_are or (
            "" if domain.mask in drawn_masks.OPTIONAL else "dead" if domain.mask is drawn_masks.dead else "any"
        )
        gradients_flow = implementation.resolved_conventions.dead_rows_flow
        reason = implementation.support.without(operation, mask_kind, gradients_flow) or lacks(*domain.features)
        if (
            "scale" in operation.options
            and "scale" in implementation.features
            and not drawn_features.scales(implementation)
        ):
            reason = f"{implementation.name} supports none of the drawn scales. Declare a list of scales to draw from."
        if reason := reason or drawn_rotations.some(operation, implementation, domain):
            raise UnsupportedError(reason)
        self._supported: dict[Any, Sequence[int]] = {}
        self._fixed = [] if implementation.support.shapes is None else self._some(implementation.support.shapes.most)

    def chosen(self, choose: Choices) -> tuple[dict[str, int], tuple[int, ...]]:
        """Return the sizes by name, and the sizes of the leading (batch) axes."""
        return self._fixed_sizes(choose) if self._fixed else self._any_sizes(choose)

    def _any_sizes(self, choose: Choices) -> tuple[dict[str, int], tuple[int, ...]]:
        """Return sizes by name and the sizes of the leading axes, chosen among all that are
        supported.
        """
        sizes = self._sizes(choose)
        return sizes, self._lead(sizes, choose)

    def _fixed_sizes(self, choose: Choices) -> tuple[dict[str, int], tuple[int, ...]]:
        """Return sizes by name and the sizes of the leading axes, chosen among a few fixed ones.

        A position is not part of a shape, so it is chosen freely. For a table it is fixed, because
        the number of rows depends on it.
        """
        sizes, lead = choose.among(self._fixed)
        position = {"start_pos": self._start(sizes, choose)} if "start_pos" in sizes and "rows" not in sizes else {}
        return sizes | position, lead

    def _some(self, most: int) -> list[tuple[dict[str, int], tuple[int, ...]]]:
        """Return a few sizes and leading axes, the same for every seed. They are a quarter of the
        supported number of shapes, because masks and laws need other shapes.

        If the domain (input family) allows some sizes of everyday test inputs, these are taken, so
        that domains share shapes.
        """
        if self.domain.name == "everyday":
            sizes = [self._any_sizes(Choices(seed)) for seed in range(4 * most)]
            return [shape for place, shape in enumerate(sizes) if shape not in sizes[:place]][: max(1, most // 4)]
        everyday = Sizes(self.operation, DOMAINS[self.operation.name]["everyday"], self.implementation)._fixed
        return [shape for shape in everyday if self._has(*shape)] or [self._any_sizes(Choices(0))]

    def _has(self, sizes: dict[str, int], lead: tuple[int, ...]) -> bool:
        """Return whether this domain (input family) allows some sizes and leading axes."""
        domain_sizes = self.domain.sizes
        batch_fits = all(length in domain_sizes["batch"] for length in lead) if "batch" in domain_sizes else True
        return (
            len(lead) >= self.domain.rank
            and batch_fits
            and all(sizes[name] in domain_sizes[name] for name in domain_sizes if name in sizes and name != "batch")
        )

    def _lead(self, sizes: dict[str, int], choose: Choices) -> tuple[int, ...]:
        """Return the sizes of the leading (batch) axes: mostly as few axes as possible, and of size
        1 if a problem is large.
        """
        if BATCH not in {axis for axes in self.operation.axes.values() for axis in axes}:
            return ()
        rank = choose.among([self.ranks[0], *self.ranks])
        problem_size = prod(sizes[name] for name in ("n_q", "n_k") if name in sizes) * sizes.get("seq_len", 1)
        options = self._options(
            "batch", self.domain.sizes.get("batch", SIZES["batch"] if problem_size <= _LARGE else (1,))
        )
        return tuple(choose.among(options) for _ in range(rank))

    def _sizes(self, choose: Choices) -> dict[str, int]:
        """Return sizes by name. Each size is chosen so that it is supported together with the sizes
        chosen before.
        """
        sizes: dict[str, int] = {}
        for name in self._names():
            if name == "start_pos":
                sizes[name] = self._start(sizes, choose)
            else:
                if name == "model_dim":
                    sizes = self.operation.with_widths(sizes)
                beside = {**_BESIDE, "model_dim": next(iter(self.operation.widths), "")}
                relative = "kv_heads" if self._is_tied(name, "kv_heads") else beside.get(name)
                sizes[name] = self._among(
                    name, sizes, choose, (relative, sizes[relative]) if relative in sizes else None
                )
        return sizes

    def _names(self) -> Iterable[str]:
        """Return the names of the sizes in the order in which they are chosen. A size may depend on
        earlier ones.
        """
        operation = self.operation
        axis_names = dict.fromkeys(
            axis
            for parameter in operation.parameters
            for named in operation.axes.get(parameter, (parameter,))
            for axis in operation.widths.get(named, (named,))
            if axis not in (BATCH, "pairs", *_OF_SEQUENCES)
            and not operation.is_setting(axis)
            and not operation.is_length(axis)
        )
        priorities = {"start_pos": 1, "rows": 2, "num_heads": 1, **dict.fromkeys(_CHANNELS, 3)}
        priorities |= {width: 2 for _, width in operation.widths.values()}
        return sorted(axis_names, key=lambda name: priorities.get(name, 0))

    def _among(self, name: str, sizes: dict[str, int], choose: Choices, beside: tuple[str, int] | None = None) -> int:
        """Return one of the supported sizes. It often equals `beside`, another size that was chosen
        before.
        """
        options = self._offered(name, sizes)
        if beside is not None and choose.happens(0.25):  # equal sizes expose other mistakes
            is_drawn = beside[1] in self.domain.sizes.get(name, beside[1:])
            options = (beside[1],) if is_drawn and self._is_supported(name, beside[1], beside) else options
        if beside is not None and self._is_tied(name, beside[0]):
            options = (
                [size for size in options if self._is_supported(name, size, beside)]
                or self._partners(name, sizes, beside)
                or options
            )
        for partner in (other for other, first in _BESIDE.items() if first == name and other in self._names()):
            if self._is_tied(partner, name):
                options = [size for size in options if self._partners(partner, sizes, (name, size))] or options
        supported = self._options(name, options, beside)
        return min(supported, key=abs) if choose.simplest else choose.among(supported)

    def _is_tied(self, name: str, other: str) -> bool:
        """Return whether the implementation restricts the difference of two sizes."""
        return f"{name}_minus_{other}" in self.implementation.restricted

    def _partners(self, name: str, sizes: dict[str, int], beside: tuple[str, int]) -> Sequence[int]:
        """Return the sizes that are supported together with another size: those of the input
        family, else the nearest supported one. Families whose laws rely on their own sizes get no
        nearest one.
        """
        question = "partners", name, beside
        if question not in self._supported:
            size, fixed = beside[1], self.domain.name in QUIRKS and name in self.domain.sizes
            offered = [size for size in self._offered(name, sizes) if self._is_supported(name, size, beside)]
            nearest = (
                ()
                if offered or fixed
                else sorted(range(min(1, size), size + _FAR), key=lambda candidate: abs(candidate - size))
            )
            supported = (size for size in nearest if self._is_supported(name, size, beside))
            self._supported[question] = offered or [*islice(supported, 1)]
        return self._supported[question]

    def _offered(self, name: str, sizes: dict[str, int]) -> Sequence[int]:
        """Return the sizes to choose from: those of the domain (input family), the list that the
        adapter declares, or everyday ones.

        A declared list of widths replaces the domain's widths, unless the domain is about odd
        widths or width 0.
        """
        listed = self._listed(name, sizes)
        domain_sizes = self.domain.sizes.get(name, ())
        if (
            listed and name in ("head_dim", "value_dim") and any(size and size % 2 == 0 for size in domain_sizes)
        ):  # the domain is not about odd widths or width 0
            domain_sizes = ()
        options = domain_sizes or listed or self._default(name)
        if self.domain is ODDITIES:
            options = (*options, *listed)
        if name == "num_heads" and "kv_heads" in sizes and not self.implementation.support.listed(name):
            options = [sizes["kv_heads"] * group for group in self.domain.sizes.get("group", SIZES["group"])]
        if name == "value_dim" and "latent" in self.operation.parameters:
            most = sizes["head_dim"]
            options = [*(size for size in options if size <= most), *{most - most // 3, most}]
        if name == "rows":  # a table has at least the rows that are read
            fewest_rows = max(1, sizes.get("start_pos", 0) + sizes.get("seq_len", 0))
            options = (
                [fewest_rows + size for size in (0, 1, 3, 16, 100)]
                if "seq_len" in sizes
                else (*SHORT, 100, 127, 128, 129, 257, 300)
            )
        if name == "seq_len" and (width := sizes.get("head_dim", sizes.get("embed_dim"))):
            options = [size for size in options if size * width <= _MOST] or options[:1]
        return options

    def _listed(self, name: str, sizes: dict[str, int]) -> Sequence[int]:
        """Return the sizes of a declared list that everyday test inputs may have: even widths for
        pairs, and whole groups of heads.
        """
        listed, default = self.implementation.support.listed(name), self._default(name)
        if name == "kv_heads" and (listed_heads := self.implementation.support.listed("num_heads")):
            return [size for size in listed or default if any(num_heads % size == 0 for num_heads in listed_heads)]
        kv_heads = sizes.get("kv_heads", 1)
        return [
            size
            for size in listed
            if size > 0 and not (default is EVEN and size % 2) and not (name == "num_heads" and size % kv_heads)
        ]

    def _default(self, name: str) -> Sequence[int]:
        operation = self.operation
        if operation.widths:
            return _TOKENS.get(name) or SIZES[name]
        paired = (name == "head_dim" and operation.forward in PAIRED) or (
            name == "embed_dim" and operation.name.startswith("sinus")
        )
        return EVEN if paired else SIZES[name]

    def _options(self, name: str, options: Sequence[int], beside: tuple[str, int] | None = None) -> Sequence[int]:
        """Return those of the sizes that the implementation supports; if it supports none of them,
        the smallest other ones. Families that are about their own sizes get no other ones. Raises
        UnsupportedError if there is no supported size.
        """
        difference = f"{name}_minus_{beside[0]}" if beside else ""
        question = name, tuple(options), beside if difference in self.implementation.restricted else None
        if question not in self._supported:
            supported = [size for size in options if self._is_supported(name, size, beside)]
            is_about_sizes = self.domain.name in QUIRKS or len({size for size in options if size > 0}) < _SEVERAL
            others = range(1, 0 if supported or is_about_sizes else _FAR + 1)
            smallest = islice((size for size in others if self._is_supported(name, size, beside)), _OTHERS)
            self._supported[question] = supported or [*smallest]
        if not self._supported[question]:
            raise UnsupportedError(
                f"{self.implementation.name} supports no {name} among {list(dict.fromkeys(options))}."
            )
        return self._supported[question]

    def _is_supported(self, name: str, value: int, beside: tuple[str, int] | None) -> bool:
        implementation = self.implementation
        undefined = (
            self.domain is not ODDITIES
            and name == "embed_dim"
            and self.operation.name.startswith("sinus")
            and implementation.resolved_conventions.sinusoid_layout == "tensor2tensor"
            and (value % 2 or value == 2)
        )
        differs = beside is not None and not implementation.allows(**{f"{name}_minus_{beside[0]}": value - beside[1]})
        return not undefined and not differs and implementation.allows(**{name: value})

    def _start(self, sizes: dict[str, int], choose: Choices) -> int:
        """Return a supported position: small, next to a power of two, or any. If it is not
        supported, return 0. For a table the position is small, because the table has as many rows.
        """
        options: Sequence[int] | None = (
            self.domain.sizes.get("start_pos") or self.implementation.support.listed("start_pos") or None
        )
        if options is not None and "embed_dim" in sizes:
            options = [start for start in options if start * sizes["embed_dim"] <= _TABLE]
        if options is None and "rows" in {axis for axes in self.operation.axes.values() for axis in axes}:
            options = (*range(7), 60, 126, 127, 128, 129, 200, 255, 256, 257)
        if options is not None:
            return choose.among(self._options("start_pos", options))
        position = choose.among([choose.integer(0, 16), choose.among(EDGES), choose.integer(0, 2**20)])
        return position if self.implementation.allows(start_pos=position) else 0
