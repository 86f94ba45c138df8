"""Anomalies: what was noticed, and what measurements are judged by."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from adon.cli.parsing import Nouns, add_command, add_json

if TYPE_CHECKING:
    from monitors.alerts.anomalies.model import Anomaly, SeriesLimits
    from monitors.archive.archive import Archive

_ANOMALIES = """Show changes of level, dips and outages that were noticed in an archive.

With --explain it shows instead what each series is judged by now: what it expects, how noisy it is,
how far its daily and weekly cycle goes, and which values would be an anomaly.
"""
_MORE = """
Examples:
  adon monitor anomalies --archive .adon/archive.sqlite
  adon monitor anomalies --metric rtt --subject 'mu>tacc' --since 2026-11-01
  adon monitor anomalies --metric rtt --explain --config adon.yml

Exit codes: 0 done; 2 the archive or the configuration cannot be read.
"""

_UNWATCHED = "nothing that is watched was measured"


def add_anomalies(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon monitor anomalies``."""
    command = add_command(verbs, "anomalies", _ANOMALIES, _run, _MORE)
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
    from adon.cli.archive_keep import opened
    from adon.cli.monitor_source import there
    from adon.cli.output import print_json
    from adon.cli.times import moment_of

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
    from pathlib import Path

    from adon.config.adon_yml import load_config

    if config is None:
        return {}
    monitoring = load_config(Path(config)).monitoring
    return monitoring.anomalies if monitoring is not None else {}


def _limits_json(metric: str, subject: str, source: str, limits: SeriesLimits) -> dict[str, Any]:
    from dataclasses import asdict

    return {"metric": metric, "subject": subject, "source": source, **asdict(limits)}


def _limits_text(metric: str, subject: str, source: str, limits: SeriesLimits) -> str:
    from monitors.alerts.anomalies.words import explained

    return "\n".join(
        [f"{metric} of {subject} (from {source})", *(f"  {s}" for s in explained(metric, limits))]
    )
