"""Workflows as they were measured: all of them, the latest status of one, its detailed analysis
(the thesis's Figures 13, 14 and 15), anomalies, and what the disks of hosts did."""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.archive import is_there, open_archive
from adon.cli.live import watch
from adon.cli.options import moment_of
from adon.cli.output import (
    Column,
    for_programs,
    note,
    print_fields,
    print_records,
    rendered_pages,
)
from adon.cli.parsing import (
    ARCHIVE,
    SINCE,
    TOKEN_FILE,
    Noun,
    add_broker,
    add_output,
    broker_option,
    config,
    flag,
    limit,
    one_of,
    option,
    page_file,
    reads_answers,
    whole,
)
from adon.cli.terminal import bar, print_paged
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.units import format_rate

if TYPE_CHECKING:
    from adon.cli.monitor_source import WorkflowSource
    from monitors.alerts.anomalies.model import Anomaly, SeriesLimits
    from monitors.archive.archive import Archive
    from monitors.workflows.planned.submit_dir import SubmitDir
    from network_provisioner.base.model import Transit

NOUN = Noun("monitor", "Follow workflows, and show what was measured.")
_STATES = ("planned", "running", "done", "failed", "removed", "stuck")
# Where measurements go, or are.
SOURCE = (one_of(ARCHIVE, broker_option("the broker's archive instead")), TOKEN_FILE)
_READ = (*SOURCE, reads_answers)
_WORKFLOW = option("workflow", "UUID, name, or submit directory", "WORKFLOW")
_NOW = flag("--now", "first let the process that follows the workflow read its files")
_UNWATCHED = "no measurements of watched metrics"
_ANOMALIES = tuple(
    map(Column, ("kind", "metric", "subject", "since", "until", "before", "after", "change", "why"))
)
_DISKS = (
    Column("host"),
    Column("seconds", "seconds>"),
    *(
        Column(f"{key}.{part}", f"{heading}>", cell)
        for key, name, cell in (
            ("io_wait", "I/O wait", lambda share: f"{100 * share:.0f} %"),
            ("read_bps", "read", format_rate),
            ("write_bps", "write", format_rate),
        )
        for part, heading in (("mean", name), ("p95", "95 %"))
    ),
    Column("sources", "from"),
)


@NOUN.verb(
    "list",
    option("--user", "only workflows of this user", "USER"),
    option(
        "--state", f"only workflows in this state: {', '.join(_STATES)}", "STATE", choices=_STATES
    ),
    SINCE,
    flag("--inside", "include sub-workflows"),
    limit(100_000, 1000),
    *_READ,
    add_output,
    watch,
)
def _list(args: argparse.Namespace) -> int:
    """List workflows, latest change first.

    Sub-workflows are not listed; their jobs count with the root workflow.

    Examples:
      adon monitor list --user ada
      adon monitor list --state stuck --broker https://broker.example:8470
      adon monitor list --csv --columns name,state,totals.done,totals.total

    Exit codes: 0 done; 2 archive or broker cannot be read.
    """
    from adon.cli import monitor_text as text
    from adon.cli.monitor_source import source_of

    left, below, now = args.limit, [], time.time()

    def pages(listed: Iterator[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
        nonlocal left
        for page in listed:
            below.extend(text.stuck(page[:left]))
            yield page[:left]
            left -= len(page)

    since = moment_of(args.since, "--since", now) or 0.0
    none = "no workflows"
    if not any((args.user, args.state, args.since)):
        none = "no workflows yet: 'adon monitor run' follows them"
    with source_of(args) as source:
        # One more than is shown says whether there are more.
        listed = pages(
            source.workflows(args.limit + 1, args.user, args.state, since, not args.inside)
        )
        first = next(listed, [])
        columns = text.list_columns(now) if for_programs(args) else text.fitted_columns(first, now)
        every = chain([first], listed)
        print_paged(rendered_pages(args, columns, every, none=none, below=lambda: below))
    if left < 0:
        note(f"there are more than {args.limit}: see --limit")
    return 0


@NOUN.verb(
    "status",
    _WORKFLOW,
    _NOW,
    option("--history", "also show its last N changes", "N", whole(0, 10_000), default=0),
    *_READ,
    add_output,
    watch,
)
def _status(args: argparse.Namespace) -> int:
    """Show the status of a workflow, of its sub-workflows, and the total.

    The columns are those of pegasus-status.

    WORKFLOW is an id, the beginning of one, a submit directory, or a unique name.

    Examples:
      adon monitor status 5b0e2c1e
      adon monitor status soykb --broker
      adon monitor status submit/me/pegasus/soykb/run0001 --archive .adon/archive.sqlite

    Exit codes: 0 done; 2 there is no such workflow, or archive or broker cannot be read.
    """
    from adon.cli import monitor_text as text
    from adon.cli.monitor_source import source_of

    with source_of(args, writes=args.now) as source:
        key = _key_of(source, args)
        overview = source.workflow(key, args.history)
        inner = [source.workflow(child, 0) for child in overview["children"]]
        waiting = [row for each in (key, *overview["children"]) for row in source.waiting(each)]
    rows = text.status_rows(overview, inner)
    shown = text.status_text(overview, inner, time.time(), waiting)
    return print_records(args, text.STATUS, rows, document=overview, text=lambda _: shown)


@NOUN.verb("show", _WORKFLOW, _NOW, flag("--alone", "without sub-workflows"), *_READ, add_output)
def _show(args: argparse.Namespace) -> int:
    """Analyse a workflow: run times, waits, transfers, retries and failures.

    Includes its sub-workflows, and also works while it runs. Failed jobs are shown with the end of
    their standard error.

    WORKFLOW is an id, the beginning of one, a submit directory, or a unique name.

    Examples:
      adon monitor show 5b0e2c1e
      adon monitor show soykb --broker
      adon monitor show submit/me/pegasus/soykb/run0001 --archive .adon/archive.sqlite

    Exit codes: 0 done; 2 there is no such workflow, or archive or broker cannot be read.
    """
    from adon.cli import monitor_text as text
    from adon.cli.monitor_source import source_of

    with source_of(args, writes=args.now) as source:
        key = _key_of(source, args)
        workflow = source.workflow(key, 0)
        analysis = source.analysis(key, not args.alone)
        inner = []
        if len(analysis["workflows"]) > 1:
            ids = {*analysis["workflows"]} - {key}
            inner = [row for page in source.workflows() for row in page if row["id"] in ids]
    held = [job for row in (workflow, *inner) for job in row.get("held", ())]
    print_fields(
        args,
        analysis | {"held": held, "reason": workflow.get("reason", "")},
        lambda: text.analysis_text(workflow, analysis, inner, time.time()),
    )
    return 0


@NOUN.verb(
    "report",
    _WORKFLOW,
    option(
        "-o/--output", "file for the page; the values go beside it as .json", "FILE", page_file,
        default=Path("report.html"),
    ),
    ARCHIVE,
    add_broker,
)  # fmt: skip
def _report(args: argparse.Namespace) -> int:
    """Write a report about a run: a self-contained page, and its values as JSON.

    It shows the workflow coloured by site, jobs, transfers and links over time, each transit with
    its path and rates, why each job ran where it did, and what failed. It works for running and
    failed workflows, and for those planned without ADON.

    Most of it comes from the submit directory. The broker adds reservations and links, the archive
    measurements of the paths; if one is missing, the report says so.

    WORKFLOW is a submit directory, or the id or name of a workflow whose directory is on this
    machine.

    Examples:
      adon monitor report submit/me/pegasus/soykb/run0001
      adon monitor report run0001 -o run0001.html --archive .adon/archive.sqlite
      adon monitor report soykb --broker https://broker.example:8470

    Exit codes: 0 done; 2 there is no such run on this machine, or the report cannot be written.
    """
    from adon.report.document import as_json, write_report
    from adon.report.page import render
    from adon.report.submit_report import facts_of_run, path_measurements

    submit_dir = _submit_dir(args)
    transits, links, missing = _of_broker(args, submit_dir.workflow)
    facts = facts_of_run(submit_dir, time.time(), transits, links, missing)
    # A broker that does not answer is in the report already; its archive need not be ours to read.
    with _measured(args) as source, suppress(BrokerError):
        facts.measured = path_measurements(facts, source.measurements)
    for sentence in missing:
        note(sentence)
    for path in write_report(args.output, render(facts), as_json(facts)):
        print(path)
    return 0


@contextmanager
def _measured(args: argparse.Namespace) -> Iterator[WorkflowSource]:
    """The archive where it is there, else the broker's."""
    from adon.cli.monitor_source import ArchiveSource, BrokerSource

    if not is_there(args.archive):
        yield BrokerSource(args.broker, args.token_file)
        return
    with open_archive(args.archive) as archive:
        yield ArchiveSource(archive)


def _submit_dir(args: argparse.Namespace) -> SubmitDir:
    """The run that is meant. Raises AdonError."""
    from adon.cli.monitor_source import find
    from monitors.workflows.planned.submit_dir import submit_dir_of

    if Path(args.workflow).exists():
        return submit_dir_of(args.workflow)
    with _measured(args) as source:
        workflow = source.workflow(find(source, args.workflow), 0)
    folder = Path(workflow["submit_dir"])
    if not folder.is_dir():
        raise InputError(
            f"workflow {args.workflow!r}: found no {folder} here, expected its submit directory"
            f" (it was planned on {workflow['host'] or 'an unknown host'})"
        )
    return submit_dir_of(folder)


def _of_broker(
    args: argparse.Namespace, workflow: str
) -> tuple[list[Transit], list[dict[str, Any]], list[str]]:
    """The transits of a workflow, the network's links, and what is missing as a sentence."""
    from adon.cli.options import client
    from network_provisioner.client.broker import bad_answer

    try:
        broker = client(args)
        with bad_answer(args.broker, "network"):
            return broker.list(workflow=workflow), broker.topology()["links"], []
    except BrokerError as error:
        return [], [], [f"without reservations and capacities of links: {error}"]


def _key_of(source: WorkflowSource, args: argparse.Namespace) -> str:
    """The workflow that was named, as of now where that is wanted. Raises InputError."""
    from adon.cli.monitor_source import find

    key = find(source, args.workflow)
    if args.now and not source.refresh(key):
        note("no follower answered: this is the last known status")
    return key


@NOUN.verb(
    "anomalies",
    *_READ,
    option("--metric", "only this metric", "METRIC"),
    option("--subject", "only this path or host, such as 'mu>tacc'", "SUBJECT"),
    SINCE,
    limit(100_000, 1000),
    flag("--explain", "show the current limits instead of anomalies; not as CSV"),
    config("adon.yml with the limits of detection (default: built-in limits)", None),
    add_output,
)
def _anomalies(args: argparse.Namespace) -> int:
    """List changes of level, dips and outages, the newest first.

    With --explain, show the current limits of each series instead: its expected value, its noise,
    the range of its daily and weekly cycle, and which values would be an anomaly.

    Examples:
      adon monitor anomalies --archive .adon/archive.sqlite
      adon monitor anomalies --broker --metric rtt --subject 'mu>tacc' --since 2026-11-01
      adon monitor anomalies --metric rtt --explain --config adon.yml

    Exit codes: 0 done; 2 archive, broker or configuration cannot be read.
    """
    from adon.cli.monitor_source import source_of
    from monitors.alerts.anomalies.model import explanation_lines

    now = time.time()
    if not args.explain:
        since = moment_of(args.since, "--since", now)
        with source_of(args) as source:
            return _list_anomalies(args, source, since)
    if args.csv or args.columns or args.broker is not None:
        raise InputError("--explain: found with --broker, --csv or --columns, expected without")
    with open_archive(args.archive) as archive:
        explained = _explained(archive, args, now)
        records = [
            {"metric": metric, "subject": subject, "source": source, **asdict(limits)}
            for metric, subject, source, limits in explained
        ]
        blocks = (
            [f"{metric} of {subject} (from {source})", *explanation_lines(metric, limits)]
            for metric, subject, source, limits in explained
        )
        shown = "\n\n".join("\n  ".join(block) for block in blocks)
        text = shown or _lacking(archive.metrics(), args.metric) or _UNWATCHED
        return print_fields(args, records, lambda: text, {"series": records})


def _list_anomalies(args: argparse.Namespace, source: WorkflowSource, since: float | None) -> int:
    from monitors.alerts.anomalies.model import METRIC, together

    known = together(source.measurements(METRIC, subject=args.subject, since=since))
    anomalies = [a for a in reversed(known) if args.metric in (None, a.metric)]
    why = "" if anomalies else _lacking(source.metrics(), args.metric)
    more, anomalies = len(anomalies) > args.limit, anomalies[: args.limit]
    records = [asdict(anomaly) for anomaly in anomalies]
    print_records(
        args,
        _ANOMALIES,
        records,
        document={"anomalies": records},
        none=f"no anomalies: {why}" if why else "no anomalies",
        text=lambda _: "\n".join(map(_line, anomalies)),
    )
    if more:
        note(f"there are more than {args.limit}: see --limit")
    return 0


def _lacking(known: Collection[str], metric: str | None) -> str:
    """What was not measured that would have to be, "" if something was: then nothing is
    unusual."""
    from monitors.alerts.anomalies.settings import WATCHED
    from network_provisioner.base.errors import did_you_mean

    if metric is None:
        return "" if {*known} & {*WATCHED} else _UNWATCHED
    if metric in known:
        return ""
    return f"no {metric} was measured{did_you_mean(metric, known)}"


def _line(anomaly: Anomaly) -> str:
    from monitors.alerts.anomalies.model import notice_text

    return f"{anomaly.kind:7s} {notice_text(anomaly)}"


def _explained(
    archive: Archive, args: argparse.Namespace, now: float
) -> list[tuple[str, str, str, SeriesLimits]]:
    """Metric, subject, source and limits of each series that is watched."""
    from monitors.alerts.anomalies.service import MEMORY_S, SeriesDetectors
    from monitors.alerts.anomalies.settings import WATCHED, watch_from_dict
    from monitors.archive.archive import Selection

    watch = watch_from_dict(_section(args.config))
    watcher = SeriesDetectors(watch)
    names = [args.metric] if args.metric else sorted({*archive.metrics(), *WATCHED})
    series = set()
    for metric in names:
        wanted = Selection((metric,), args.subject, since=now - MEMORY_S)
        for measurement in archive.each(wanted):
            watcher.add(measurement)
            series.add((measurement.metric, measurement.subject))
    return [
        (metric, subject, source, limits)
        for metric, subject in sorted(series)
        for source, limits in sorted(watcher.limits(metric, subject, now).items())
    ]


def _section(config: Path | None) -> dict[str, Any]:
    from adon.config.adon_yml import load_config

    if config is None:
        return {}
    monitoring = load_config(config).monitoring
    return monitoring.anomalies if monitoring is not None else {}


@NOUN.verb(
    "disks",
    option("--host", "only this host, by its agent's name", "NAME"),
    option("--since", "only from this time on: a time, or how long ago", "TIME", default="1 h"),
    option("--workflow", "only while this workflow ran: UUID, name, or directory", "WORKFLOW"),
    *_READ,
    add_output,
)
def _disks(args: argparse.Namespace) -> int:
    """Show how long hosts waited for their disks, and what the disks read and wrote.

    Agents with 'disks: true' report this every second. For one host, histograms show its processes'
    I/O wait and their write rates of 10 Mb/s or more.

    Examples:
      adon monitor disks --since '10 min' --broker
      adon monitor disks --host local --workflow montage --archive .adon/archive.sqlite

    Exit codes: 0 done; 2 archive or broker cannot be read, or there is no such workflow.
    """
    from adon.cli.monitor_source import source_of
    from monitors.measurements.probes.disks import hosts_disks

    since, until = moment_of(args.since, "--since", time.time()), None
    with source_of(args) as source:
        if args.workflow is not None:
            since, until = _span(source, args.workflow)
        hosts = hosts_disks(
            source.measurements("disk_io", subject=args.host, since=since, until=until)
        )

    def text(shown: str) -> str:
        return shown + (_histograms(*hosts) if args.host is not None else "")

    none = "no disks were reported: agents with 'disks: true' do it"
    return print_records(args, _DISKS, hosts, document={"hosts": hosts}, none=none, text=text)


def _span(source: WorkflowSource, wanted: str) -> tuple[float, float]:
    """From when to when a workflow ran, or was heard of last. Raises InputError."""
    from adon.cli.monitor_source import find

    changes = source.workflow(find(source, wanted), 10_000)["history"]
    if not changes:
        raise InputError(f"workflow {wanted!r}: found it planned, expected one that has begun")
    return changes[0]["at"], changes[-1]["at"]


def _histograms(host: dict[str, Any]) -> str:
    lines = ["\n", "I/O wait of processes, by their seconds"]
    lines += [f"{10 * i:10d} - {10 * i + 10} %  {bar(n)}" for i, n in enumerate(host["io_waits"])]
    lines += ["", "write rate of processes, by their seconds with 10 Mb/s or more"]
    for i, share in enumerate(host["writes"], 1):
        most = format_rate(host["most_write_bps"] * i / len(host["writes"]))
        lines.append(f"{'up to ' + most:>17}  {bar(share)}")
    return "\n".join(lines)
