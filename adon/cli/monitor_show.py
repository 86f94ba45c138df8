"""Workflows as they were measured: all of them, the latest status of one, its detailed analysis
(the thesis's Figures 13, 14 and 15)."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.archive import opened
from adon.cli.options import moment_of
from adon.cli.output import print_json
from adon.cli.parsing import (
    DEFAULT_BROKER,
    CommandParser,
    Nouns,
    add_command,
    add_json,
    whole,
)
from network_provisioner.stores.database_url import place

if TYPE_CHECKING:
    from adon.cli.monitor_source import WorkflowSource
    from monitors.alerts.anomalies.model import Anomaly, SeriesLimits
    from monitors.archive.archive import Archive


_LIST = """List workflows, the one that changed last first.

Workflows inside others are left out, and counted with those that they are inside of.
"""
_LIST_MORE = """
Examples:
  adon monitor list --user ada
  adon monitor list --state stuck --broker https://broker.example:8470

Exit codes: 0 done; 2 the archive or the broker cannot be asked.
"""
_STATUS = """Show where a workflow stands, with those inside it and all together.

The columns are those of pegasus-status.
"""
_SHOW = """Analyse a workflow: run times, waits, transfers, retries and failures.

Of itself with all workflows inside it, while it runs as well as afterwards. Each job that failed is
shown with the end of what it wrote to its standard error.
"""
_MORE = """
WORKFLOW is an id, the beginning of one, a submit directory, or a name that one workflow alone has.

Examples:
  adon monitor {verb} 5b0e2c1e
  adon monitor {verb} soykb --broker
  adon monitor {verb} submit/me/pegasus/soykb/run0001 --archive .adon/archive.sqlite

Exit codes: 0 done; 2 there is no such workflow, or the archive or the broker cannot be asked.
"""
_MOST = 10_000  # that a broker lists
_STATES = ("planned", "running", "done", "failed", "removed", "stuck")


def add_shows(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon monitor list``, ``status`` and ``show``."""
    listing = add_command(verbs, "list", _LIST, _list, _LIST_MORE)
    listing.add_argument("--user", metavar="NAME", help="of this user alone")
    listing.add_argument("--state", choices=_STATES, help="that are so")
    listing.add_argument(
        "--since", metavar="TIME",
        help="that changed since: ISO 8601, Unix seconds, or how long ago, as '2 h'",
    )  # fmt: skip
    listing.add_argument("--inside", action="store_true", help="also those inside others")
    listing.add_argument(
        "--limit", type=whole(1, _MOST), default=1000, metavar="N",
        help="at most so many (default: %(default)s)",
    )  # fmt: skip
    status = add_command(verbs, "status", _STATUS, _status, _MORE.format(verb="status"))
    show = add_command(verbs, "show", _SHOW, _show, _MORE.format(verb="show"))
    for command in (status, show):
        command.add_argument(
            "workflow", metavar="WORKFLOW", help="its UUID, name, or submit directory"
        )
        command.add_argument(
            "--now", action="store_true", help="have it measured first, by whoever follows it"
        )
    status.add_argument(
        "--history", type=whole(0, 10_000), default=0, metavar="N", help="also its last N changes"
    )
    show.add_argument("--alone", action="store_true", help="without those inside it")
    for command in (listing, status, show):
        add_source(command)
        add_json(command)


def add_source(parser: CommandParser) -> None:
    """Add what says whether an archive or a broker is asked."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--archive", type=place, default="adon-archive.sqlite", metavar="FILE_OR_URL",
        help="where measurements are (default: ./%(default)s)",
    )  # fmt: skip
    where.add_argument(
        "--broker", nargs="?", const=DEFAULT_BROKER, metavar="URL",
        help="ask this broker instead (without an address %(const)s)",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help="what the broker knows you by (default: ADON_TOKEN_FILE)",
    )  # fmt: skip


def _list(args: argparse.Namespace) -> int:
    from adon.cli.monitor_source import source_of
    from adon.cli.monitor_text import list_text

    # One more than is shown says whether there are more.
    asked = {"user": args.user, "state": args.state, "limit": min(args.limit + 1, _MOST)}
    asked |= {"since": _since(args.since), "roots": not args.inside}
    with source_of(args) as source:
        found = source.workflows(**asked)
    more, found = len(found) > args.limit, found[: args.limit]
    if args.json:
        print_json(found)
    elif not found and not any((args.user, args.state, args.since)):
        print("no workflows yet: 'adon monitor run' follows them")
    else:
        print(list_text(found, time.time()))
    if more:
        print(f"adon: there are more than {args.limit}: see --limit", file=sys.stderr)
    return 0


def _status(args: argparse.Namespace) -> int:
    from adon.cli.monitor_source import find, source_of
    from adon.cli.monitor_text import status_text

    with source_of(args, writes=args.now) as source:
        key = find(source, args.workflow)
        if args.now:
            _refresh(source, key)
        found = source.workflow(key, args.history)
        inner = [source.workflow(child, 0) for child in found["children"]]
    if args.json:
        print_json(found)
    else:
        print(status_text(found, inner, time.time()))
    return 0


def _show(args: argparse.Namespace) -> int:
    from adon.cli.monitor_source import find, source_of
    from adon.cli.monitor_text import analysis_text

    with source_of(args, writes=args.now) as source:
        key = find(source, args.workflow)
        if args.now:
            _refresh(source, key)
        workflow = source.workflow(key, 0)
        found = source.analysis(key, not args.alone)
        inner = []
        if len(found["workflows"]) > 1:
            ids = {*found["workflows"]} - {key}
            inner = [row for row in source.workflows(limit=_MOST) if row["id"] in ids]
    if args.json:
        held = [one for row in (workflow, *inner) for one in row.get("held", ())]
        print_json(found | {"held": held, "reason": workflow.get("reason", "")})
    else:
        print(analysis_text(workflow, found, inner, time.time()))
    return 0


def _refresh(source: WorkflowSource, key: str) -> None:
    if not source.refresh(key):
        print("adon: nobody who follows it answered: this is what is known", file=sys.stderr)


def _since(text: str | None) -> float:
    """Unix seconds, 0 where nothing was said. Raises InputError."""
    return moment_of(text, "--since", time.time()) or 0.0


_ANOMALIES = """Show changes of level, dips and outages that were noticed in an archive.

With --explain it shows instead what each series is judged by now: what it expects, how noisy it is,
how far its daily and weekly cycle goes, and which values would be an anomaly.
"""
_anomalies_MORE = """
Examples:
  adon monitor anomalies --archive .adon/archive.sqlite
  adon monitor anomalies --metric rtt --subject 'mu>tacc' --since 2026-11-01
  adon monitor anomalies --metric rtt --explain --config adon.yml

Exit codes: 0 done; 2 the archive or the configuration cannot be read.
"""

_UNWATCHED = "nothing that is watched was measured"


def add_anomalies(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon monitor anomalies``."""
    command = add_command(verbs, "anomalies", _ANOMALIES, _run, _anomalies_MORE)
    command.add_argument(
        "--archive", default="adon-archive.sqlite", metavar="FILE_OR_URL",
        help="where measurements are (default: ./%(default)s)",
    )  # fmt: skip
    command.add_argument("--metric", help="of this metric alone")
    command.add_argument("--subject", help="of this path or host alone, as 'mu>tacc'")
    command.add_argument("--since", metavar="TIME", help="that began or ended then or later")
    command.add_argument("--explain", action="store_true", help="show limits, not anomalies")
    command.add_argument("--config", metavar="FILE", help="adon.yml, for how sensitive it is")
    add_json(command)


def _run(args: argparse.Namespace) -> int:
    from adon.cli.monitor_source import there

    now = time.time()
    since = moment_of(args.since, "--since", now)
    there(args.archive)
    with opened(args.archive) as archive:
        if args.explain:
            explained = _explained(archive, args, now)
            if args.json:
                print_json({"series": [_limits_json(*one) for one in explained]})
            else:
                shown = "\n\n".join(_limits_text(*one) for one in explained)
                print(shown or _lacking(archive, args.metric) or _UNWATCHED)
            return 0
        found = _found(archive, args, since)
        lacking = "" if found else _lacking(archive, args.metric)
    if args.json:
        from dataclasses import asdict

        print_json({"anomalies": [asdict(one) for one in found]})
    else:
        print("\n".join(_line(one) for one in found) or _none(lacking))
    return 0


def _none(why: str) -> str:
    return f"no anomalies: {why}" if why else "no anomalies"


def _lacking(archive: Archive, metric: str | None) -> str:
    """What was not measured that would have to be, "" where something was: then nothing is
    unusual."""
    from monitors.alerts.anomalies.settings import WATCHED
    from network_provisioner.base.suggestions import did_you_mean

    known = archive.metrics()
    if metric is None:
        return "" if {*known} & {*WATCHED} else _UNWATCHED
    if metric in known:
        return ""
    return f"no {metric} was measured{did_you_mean(metric, known)}"


def _found(archive: Archive, args: argparse.Namespace, since: float | None) -> list[Anomaly]:
    from monitors.alerts.anomalies.records import METRIC, together

    found = together(archive.query(METRIC, subject=args.subject, since=since))
    return [one for one in found if args.metric in (None, one.metric)]


def _line(one: Anomaly) -> str:
    from monitors.alerts.anomalies.words import told

    return f"{one.kind:7s} {told(one)}"


def _explained(
    archive: Archive, args: argparse.Namespace, now: float
) -> list[tuple[str, str, str, SeriesLimits]]:
    """Metric, subject, source and limits of each series that is watched."""
    from monitors.alerts.anomalies.service import MEMORY_S
    from monitors.alerts.anomalies.settings import WATCHED, watch_from_dict
    from monitors.alerts.anomalies.watcher import SeriesDetectors
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


def _section(config: str | None) -> dict[str, Any]:
    from adon.config.adon_yml import load_config

    if config is None:
        return {}
    monitoring = load_config(Path(config)).monitoring
    return monitoring.anomalies if monitoring is not None else {}


def _limits_json(metric: str, subject: str, source: str, limits: SeriesLimits) -> dict[str, Any]:
    return {"metric": metric, "subject": subject, "source": source, **asdict(limits)}


def _limits_text(metric: str, subject: str, source: str, limits: SeriesLimits) -> str:
    from monitors.alerts.anomalies.words import explained

    return "\n".join(
        [f"{metric} of {subject} (from {source})", *(f"  {s}" for s in explained(metric, limits))]
    )
