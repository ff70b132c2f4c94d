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
    """The collector of pytest's items for one option `--attnspec ADAPTER`."""

    def __init__(self, *, checks: Any, **options: Any) -> None:
        super().__init__(**options)
        self.checks = checks

    def collect(self) -> Iterator["_Item"]:
        for check in self.checks:
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
    sentence = (
        "check the laws on the implementations of an adapter, as `attnspec verify` does, with the settings of "
        "[tool.attnspec] in pyproject.toml; may be repeated"
    )
    group.addoption("--attnspec", action="append", default=[], metavar="ADAPTER", help=sentence)


@pytest.hookimpl(tryfirst=True)  # before items are deselected, by -k and the like
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the items of `--attnspec` after the items of test files. The table [tool.attnspec] of
    pyproject.toml holds for them, as for `attnspec verify`.
    """
    targets = config.getoption("--attnspec")
    if not targets:
        return
    try:
        found = import_module("attnspec.properties.conformance").checks_of_adapters(targets)
    except ValueError as error:
        raise pytest.UsageError(f"--attnspec {' '.join(targets)}: {error}") from None
    for target, checks in found.items():
        if not checks:
            raise pytest.UsageError(f"--attnspec {target}: no law applies to it.")
        collector = _Target.from_parent(session, name=target, nodeid=f"attnspec::{target}", checks=checks)
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
