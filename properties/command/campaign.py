"""Defines the subcommand `attnspec campaign`, which runs campaigns and shows their results."""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

from properties.command.outputs import folder_of_page, printing
from properties.command.parsing import (
    ARITHMETIC,
    CONVENTION,
    EXCLUDE,
    LAWS,
    ONLY,
    TIMEOUT,
    Options,
    add_options,
    memory,
    natural,
    positive,
    whole,
    workers,
)

__all__ = ["add_to"]

_AGAIN = 3  # how many times a chunk is given out again after something from outside ended its process

_ARGUMENTS: Options = {
    "targets": (
        "the adapter, as for `attnspec verify`; or: status FILE; or: report FILE --html DIR",
        {"nargs": "*", "metavar": "ADAPTER"},
    ),
    "--hours": (
        "after N hours, finish the chunks that run, and stop",
        {"type": positive, "default": inf, "metavar": "N"},
    ),
    "--cases": ("stop when the finished chunks have tested N inputs or more", {"type": natural, "metavar": "N"}),
    "--seeds": (
        "range of seeds: 0:100 means 0 to 99, and 0: means no end (default: 0:)",
        {"default": "0:", "metavar": "A:B"},
    ),
    "--max-examples": ("number of test inputs in each chunk (default: 100)", {"type": natural, "metavar": "N"}),
    "--climb": (
        "after each chunk, search N steps for the input with the largest error ÷ error limit; 0 for no search "
        "(default: 25)",
        {"type": whole, "default": 25, "metavar": "N"},
    ),
    "--database": (
        "SQLite file of the results, from which the campaign resumes (default: campaign.db)",
        {"type": Path, "default": Path("campaign.db"), "metavar": "FILE"},
    ),
    "--examples": (
        "where to store failing inputs, which the next campaign tries first: a Hypothesis folder, or redis://… "
        "(default: .hypothesis/examples)",
        {"default": ".hypothesis/examples", "metavar": "PLACE"},
    ),
    "--engine": (
        "what runs the workers: processes of this machine, or Ray (default: local)",
        {"choices": ("local", "ray"), "default": "local"},
    ),
    "--address": (
        "address of a Ray cluster, such as auto; without it, Ray starts here",
        {"default": "", "metavar": "ADDRESS"},
    ),
    "--jobs": (
        "number of workers (default: %(default)s)",
        {"type": workers, "default": min(4, os.cpu_count() or 1), "metavar": "N"},
    ),
    "--gpus": (
        "number of NVIDIA devices for each worker, or a fraction of a device (default: 0)",
        {"type": positive, "default": 0.0, "metavar": "N"},
    ),
    "--memory": (
        "memory limit of a worker, libraries included, such as 4G; exceeding it counts as a violation",
        {"type": memory, "default": inf, "metavar": "SIZE"},
    ),
    "--timeout": TIMEOUT,
    "--arithmetic": ARITHMETIC,
    "--convention": CONVENTION,
    "--laws": LAWS,
    "--exclude": EXCLUDE,
    "--only": ONLY,
    "--html": ("with report: write the page to DIR/index.html", {"metavar": "DIR"}),
}


def add_to(commands: Any) -> None:
    """Add the subcommand to the parser."""
    campaign = commands.add_parser(
        "campaign",
        help="verify for hours with many workers; stop and resume at any time",
        description="Verify seed after seed, and keep the results in a database. A campaign that was stopped resumes "
        "from its database. A chunk of the work is one seed on one operation of one implementation. "
        "`attnspec campaign status FILE` shows the results, and `attnspec campaign report FILE "
        "--html DIR` makes a page of them, also during the campaign. "
        "Exit status: 0 every law passes · 1 a law fails · 2 the campaign cannot run · "
        "129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM.",
    )
    add_options(campaign, _ARGUMENTS)
    campaign.set_defaults(
        run=_campaign,
        seed=None,
        shapes=[],
        long=False,
        quick=False,
        time_limit=None,
        fail_fast=False,
        cost=None,
        interpret=None,
    )


def _campaign(options: argparse.Namespace) -> int:
    if options.targets[:1] in (["status"], ["report"]):
        return _show(options)
    if options.html is not None:
        raise ValueError("--html belongs to `attnspec campaign report FILE --html DIR`.")
    return _run(options)


def _show(options: argparse.Namespace) -> int:
    """Show the contents of a campaign's database, and return the exit status of its verdict."""
    word, *files = options.targets
    if len(files) != 1 or (word == "report") != (options.html is not None):
        raise ValueError("Type `attnspec campaign status FILE` or `attnspec campaign report FILE --html DIR`.")
    folder = folder_of_page(options.html, "--html") if word == "report" else None
    from rich.console import Console

    from properties.campaign.report import found_in, print_status, write_page

    found = found_in(Path(files[0]))
    if folder is not None:
        print(write_page(found, folder))
        return 0
    print_status(Console(), found)
    return 1 if found.violations else 0


def _run(options: argparse.Namespace) -> int:
    """Run a campaign until its end or a signal, and return the exit status."""
    from rich.console import Console

    from properties.campaign.campaign import Campaign
    from properties.campaign.engines import ENGINES
    from properties.campaign.examples import at
    from properties.campaign.identity import identity
    from properties.campaign.report import found_in, print_status
    from properties.campaign.store import Store
    from properties.command.configuration import configure
    from properties.processes.signals import Signals, StoppedError

    if options.memory < inf and not Path("/proc/self/status").exists():
        raise ValueError("--memory needs Linux, where /proc says how much memory a process uses.")
    configure(options)
    order, examples = _order(options), at(options.examples)
    with Signals() as signals:
        engine = ENGINES[options.engine](order, options.jobs, options.gpus, options.address)
        try:
            entries = engine.entries(signals)
            rows = _rows(options, entries)
            known, planned = _planned(options, entries, rows, examples)
            with Store(options.database, identity(order, options.climb, entries)) as store:
                there = (chunk for chunk in store.begins_with(known) if (chunk.implementation, chunk.operation) in rows)
                chunks = chain(there, planned)
                _follow(options, entries, Campaign(engine, store, chunks, examples, signals))
        except StoppedError as stopped:
            return stopped.status
        finally:
            engine.close()
    found = found_in(options.database)
    with printing(found.verdict):
        print_status(Console(), found)
    return 1 if found.violations else 0


def _order(options: argparse.Namespace) -> Any:
    """Return the order of a campaign: the settings that say what is verified, and how."""
    from properties.command.verifying import order_of
    from properties.verifier.comparison import Known

    # The number of threads does not follow the number of workers, because sums depend on it.
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return replace(order_of(options, Known.of(None)), memory=options.memory, again=_AGAIN, environment=threads)


def _follow(options: argparse.Namespace, entries: Any, campaign: Any) -> None:
    """Run a campaign, show its progress, and record how it ended.

    Raises StoppedError if a signal has come, and AdapterError if workers can no longer start.
    """
    from rich.console import Console

    from properties.campaign.progress import Shown
    from properties.processes.adapters import AdapterError
    from properties.processes.signals import StoppedError
    from properties.views.html.environment import environment

    store, seconds = campaign.store, options.hours * 3600
    store.begin(options.engine, options.jobs, environment())
    with Shown(Console(stderr=True), seconds, options.cases or inf, store.counts()) as shown:
        for entry in (entry for entry in entries if entry.unavailable):
            shown.say(f"{entry.name} is left out. {entry.unavailable}")
        campaign.end, campaign.said, campaign.done = time.monotonic() + seconds, shown.say, shown.done
        try:
            campaign.run()
        except (StoppedError, AdapterError) as stopped:
            store.end(str(stopped))
            raise
        store.end("to its end")


def _rows(options: argparse.Namespace, entries: Any) -> list[tuple[str, str]]:
    """Return pairs: an implementation that can run here, and one of its operations.

    Raises ValueError if no implementation can run.
    """
    rows = [(entry.name, operation) for entry in entries if not entry.unavailable for operation in entry.groups]
    if not rows:
        raise ValueError(f"No implementation of {' and '.join(options.targets)} can run here.")
    return rows


def _planned(options: argparse.Namespace, entries: Any, rows: Any, examples: Any) -> tuple[list[Any], Iterator[Any]]:
    """Return the chunks (pieces of work) with known violations and worst inputs, and the chunks
    that the options ask for.
    """
    from properties.campaign.bench import agreement_of
    from properties.campaign.campaign import until_cases
    from properties.campaign.chunks import parsed_seeds, plan
    from properties.contract.operations import OPERATIONS

    by_name = {entry.name: entry for entry in entries}
    climbs = [
        row
        for row in rows
        if options.climb and agreement_of(by_name[row[0]], row[1]) and not OPERATIONS[row[1]].is_exact
    ]
    planned = plan(rows, parsed_seeds(options.seeds), options.max_examples, climbs, options.climb)
    planned = planned if options.cases is None else until_cases(planned, options.cases)
    return examples.of(rows, climbs, options.climb), planned
