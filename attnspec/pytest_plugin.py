"""The plugin for pytest: adds the option `--attnspec ADAPTER`, and a summary of the checked laws.

If attnspec is installed, pytest loads this module in every project. For this reason it imports
spec, oracles and properties only with `--attnspec`, or after a check has run.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

_PROPERTY = "attnspec"


class _Target(pytest.Collector):
    """The collector of pytest's items for one option `--attnspec ADAPTER`. The table [tool.attnspec]
    holds as for `attnspec verify`, except that pytest decides the targets and the seed.
    """

    def collect(self) -> Iterator["_Item"]:
        adapters, conformance, configuration, deviations, laws = (
            import_module(f"attnspec.properties.{name}")
            for name in ("processes.adapters", "conformance", "command.configuration", "processes.deviations", "laws")
        )
        try:
            options = configuration.of_project()
            reading = [options.get("arithmetic"), (), options.get("conventions")]
            loaded = adapters.load([self.name], *reading, shapes=options.get("shapes", ()))
            wanted = [law for text in options["laws"] for law in laws.find(text)] if "laws" in options else None
            checks = [
                conformance.Check(
                    check.law,
                    check.implementation,
                    options.get("max-examples"),
                    target=adapter.target,
                    pick=adapter.pick,
                    beside=adapter.beside,
                )
                for adapter in deviations.with_deviations(loaded, options.get("known-deviations", {}))
                for check in conformance.checks([adapter.implementation])
                if wanted is None or check.law in wanted
            ]
        except ValueError as error:
            raise pytest.UsageError(f"--attnspec {self.name}: {error}") from None
        if not checks:
            raise pytest.UsageError(f"--attnspec {self.name}: no law applies to it.")
        for check in checks:
            yield _Item.from_parent(self, name=check.id, check=check)


class _Item(pytest.Item):
    """The pytest item for one law on one implementation, without a test file."""

    def __init__(self, *, check: Any, **options: Any) -> None:
        super().__init__(**options)
        self.check = check

    def runtest(self) -> None:
        self.check()

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--attnspec`."""
    group = parser.getgroup("attnspec", "conformance to the laws of attention and positional encodings")
    sentence = "check the laws on the implementations of an adapter, as `attnspec verify` does; may be repeated"
    group.addoption("--attnspec", action="append", default=[], metavar="ADAPTER", help=sentence)


@pytest.hookimpl(tryfirst=True)  # before items are deselected, by -k and the like
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the items of `--attnspec` after the items of test files."""
    for target in config.getoption("--attnspec"):
        collector = _Target.from_parent(session, name=target, nodeid=f"attnspec::{target}")
        items.extend(collector.collect())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    """Attach the outcome of a law to the item's report. pytest-xdist sends this report between
    processes.
    """
    check = (
        item.check if isinstance(item, _Item) else getattr(getattr(item, "callspec", None), "params", {}).get("check")
    )
    outcome = getattr(check, "attnspec_outcome", None)
    if call.when == "call" and isinstance(outcome, tuple):
        item.user_properties.append((_PROPERTY, list(outcome)))
    yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many checks of each implementation pass, fail, and so on, if any was run."""
    counts_by_name: dict[str, dict[str, int]] = {}
    examples: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    implementation, status, number, _ = value
                    counts = counts_by_name.setdefault(implementation, {})
                    counts[status] = counts.get(status, 0) + 1
                    examples[implementation] = examples.get(implementation, 0) + number
    if counts_by_name:
        counted = import_module("attnspec.properties.verifier.report").counted
        status_counts = import_module("attnspec.properties.views.statuses").status_counts
        terminalreporter.section("attnspec")
        for implementation, counts in sorted(counts_by_name.items()):
            inputs = counted(examples[implementation], "test input")
            terminalreporter.write_line(f"{implementation}: {status_counts(counts, always=('held',))}, on {inputs}")
