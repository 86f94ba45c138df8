"""Show, export, copy and shrink the archive of measurements."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.options import moment_of
from adon.cli.output import Column, duration, print_fields, print_json, print_records
from adon.cli.parsing import (
    ARCHIVE,
    DRY_RUN,
    SINCE,
    UNTIL,
    Noun,
    add_output,
    config,
    limit,
    names,
    option,
)
from network_provisioner.base.database_url import check_state, is_database_url
from network_provisioner.base.errors import InputError, printable
from network_provisioner.base.instants import local_time

if TYPE_CHECKING:
    from monitors.archive.archive import Archive, Estimate, Selection

NOUN = Noun("archive", __doc__)
_SUBJECT = option("subject", "path, site or host, such as 'mu>tacc'", "SUBJECT")
_NOTHING = "nothing was measured"
_DEMOS = Path(".adon", "archive.sqlite")  # where 'make demo' leaves its archive
_six = "{:.6g}".format
_SELECTION = (
    option("--subject", "only this path, site or host, such as 'mu>tacc'", "SUBJECT"),
    option("--workflow", "only this workflow, by its UUID", "WORKFLOW"),
    option("--source", "only measurements of this source", "NAME"),
    SINCE,
    UNTIL,
    ARCHIVE,
)


def _moment(text: str | None, option: str) -> float | None:
    """An instant, or how long ago. Raises InputError."""
    return moment_of(text, option, time.time())


def _selection(args: argparse.Namespace) -> Selection:
    from monitors.archive.archive import Selection

    since, until = _moment(args.since, "--since"), _moment(args.until, "--until")
    return Selection(tuple(args.metrics), args.subject, args.workflow, args.source, since, until)


def when(at: float) -> str:
    """A time for people; ``-`` for none."""
    return local_time(at) if math.isfinite(at) else "-"


@NOUN.verb("show", ARCHIVE, add_output)
def _show(args: argparse.Namespace) -> int:
    """Show what an archive contains: metrics, with their numbers of measurements and subjects.

    Before 'whole since', only roll-ups remain.
    """
    from monitors.archive.export import contents

    with open_archive(args.archive) as archive:
        rows = [content.as_dict() for content in contents(archive)]
    columns = (
        Column("metric", "METRIC"),
        Column("subjects", "SUBJECTS>"),
        Column("count", "COUNT>"),
        Column("oldest", "OLDEST", when),
        Column("newest", "NEWEST", when),
        Column("rollups", "ROLL-UPS>"),
        Column("whole_since", "WHOLE SINCE", when),
    )
    return print_records(args, columns, rows, document={"metrics": rows}, none=_NOTHING)


@NOUN.verb(
    "query",
    option("metrics", "metrics, such as throughput", "METRIC,...", names),
    *_SELECTION,
    limit(10**9, 100),
    add_output,
)
def _query(args: argparse.Namespace) -> int:
    """List measurements, newest first. --json prints one object per line.

    TIME is a time (2026-11-01, 2026-11-01T12:00, Unix seconds) or how long ago ('2 h', '7 d').

    Examples:
      adon archive query throughput --subject 'mu>tacc' --since '7 d'
      adon archive query job --workflow 5b0e2c1e-8f0a-4b52-9f5e-0d8b5a6f1c11 --json
    """
    with open_archive(args.archive) as archive:
        page = archive.page(_selection(args), newest=True, limit=args.limit)
        rows = [measurement.as_dict() for _, measurement in page]
    if args.json and not args.columns:
        for measurement in rows:
            print_json(measurement, indent=None)
        return 0
    columns = (
        Column("at", "AT", when),
        Column("metric", "METRIC"),
        Column("subject", "SUBJECT"),
        Column("value", "VALUE>", _six),
        Column("unit", "UNIT"),
        Column("source", "SOURCE"),
    )
    return print_records(args, columns, rows, none=_NOTHING)


@NOUN.verb(
    "estimate",
    option("what", "metric, gamma_a, gamma_c or t_q", "WHAT"),
    _SUBJECT,
    option("--at", "estimate as of this time (default: now)", "TIME"),
    ARCHIVE,
    add_output,
)
def _estimate(args: argparse.Namespace) -> int:
    """Estimate a value from the archive, with spread, age and source.

    WHAT is a metric, or gamma_a (of 'mu>tacc': rate of a transfer, from transfers or newer probes),
    gamma_c (of 'soykb::bwa_mem:1.0@mu': speed of a program at a site) or t_q (of 'mu': wait of
    jobs).

    Examples:
      adon archive estimate gamma_a 'mu>tacc'
      adon archive estimate rtt 'mu>tacc' --at 2026-11-01

    Exit codes: 0 there is an estimate; 1 there is none; 2 bad input.
    """
    moment = _moment(args.at, "--at")
    now = time.time() if moment is None else moment  # 0 is a moment, too
    with open_archive(args.archive) as archive:
        estimate = _known(archive, args.what, args.subject, now)
    if estimate is None:
        print(printable(f"no estimate of {args.what} for {args.subject}"))
        return 1
    text = (
        f"{estimate.value:.6g} {estimate.unit} ± {estimate.spread:.3g}, from {estimate.count} of "
        f"{estimate.metric} of {estimate.subject}, the newest {duration(estimate.age_s(now))} old, "
        f"by {estimate.source}"
    )
    return print_fields(args, estimate.as_dict(now), lambda: text)


def _known(archive: Archive, what: str, subject: str, now: float) -> Estimate | None:
    from monitors.archive import knowledge

    if what == "gamma_a":
        src, pair, dst = subject.partition(">")
        if not pair:
            raise InputError(f"SUBJECT: found {subject!r}, expected two sites as 'mu>tacc'")
        return knowledge.gamma_a(archive, src, dst, now)
    if what == "gamma_c":
        transformation, at, site = subject.rpartition("@")
        if not at:
            raise InputError(f"SUBJECT: found {subject!r}, expected 'ns::name:version@site'")
        return knowledge.gamma_c(archive, transformation, site, now)
    if what == "t_q":
        return knowledge.queue_wait(archive, subject, now)
    return archive.estimate(what, subject, now)


@NOUN.verb(
    "rollups",
    option("metric", "metric, such as throughput", "METRIC"),
    _SUBJECT,
    option("--resolution", "length of a roll-up", choices=("hour", "day"), default="day"),
    SINCE,
    UNTIL,
    ARCHIVE,
    add_output,
)
def _rollups(args: argparse.Namespace) -> int:
    """Show roll-ups of hours or days: number, minimum, median, mean and maximum."""
    from monitors.archive.retention.horizons import DAY_S, HOUR_S
    from monitors.archive.retention.rollups import as_dict, roll_ups

    width = HOUR_S if args.resolution == "hour" else DAY_S
    until = _moment(args.until, "--until")
    until = time.time() if until is None else until
    since = _moment(args.since, "--since") or 0.0
    with open_archive(args.archive) as archive:
        rolled = roll_ups(archive.engine, args.metric, args.subject, width, since, until)
        rows = [as_dict(rollup) for rollup in rolled]
    columns = (
        Column("start", "FROM", when),
        Column("count", "COUNT>"),
        *(Column(name, f"{name.upper()}>", _six) for name in ("min", "median", "mean", "max")),
        Column("unit", "UNIT"),
    )
    return print_records(args, columns, rows, document={"rollups": rows}, none=_NOTHING)


@NOUN.verb(
    "export",
    option(
        "metrics", "only these metrics (default: all)", "METRIC,...", names, nargs="?", default=[],
    ),
    option("-o/--output", "output file (default: CSV on standard output)", "FILE", Path),
    *_SELECTION,
)  # fmt: skip
def _export(args: argparse.Namespace) -> int:
    """Export measurements to a file, or as CSV to standard output.

    The file's name selects the format: .csv, or .parquet (needs pyarrow: 'pip install
    adon-wms[parquet]').

    Examples:
      adon archive export -o all.parquet
      adon archive export throughput,rtt --since '30 d' > paths.csv
    """
    from monitors.archive.export import format_of, to_file, write_csv

    kind = "csv" if args.output is None else format_of(args.output.name)
    selection = _selection(args)
    with open_archive(args.archive) as archive:
        measurements = archive.each(selection)
        if args.output is None:
            write_csv(measurements, sys.stdout.buffer)
            return 0
        count = to_file(measurements, args.output, kind)
    print(f"{args.output}: {count} measurements")
    return 0


def is_there(place: str) -> bool:
    """Whether an archive is a file that is there, or a database."""
    return is_database_url(place) or Path(place).exists()


def open_archive(place: str, *, writes: bool = False) -> Archive:
    """An archive that is there, for reading. Raises InputError, which says what makes one,
    ArchiveError."""
    from monitors.archive.archive import Archive

    check_state(place)
    if not is_there(place):
        demos = f"; the demo's is --archive {_DEMOS}" if _DEMOS.exists() else ""
        raise InputError(
            f"{place}: found no such file, expected an archive of measurements:"
            f" 'adon monitor run' makes one{demos}"
        )
    return Archive(place, read_only=not writes)


@NOUN.verb("retain", config("adon.yml with monitoring.retention"), DRY_RUN, add_output)
def _retain(args: argparse.Namespace) -> int:
    """Apply monitoring.retention of adon.yml now: roll up and remove older measurements.

    A broker does this every hour; use the command for archives without one.

    Examples:
      adon archive retain --config adon.yml --dry-run
    """
    from adon.config.adon_yml import load_config
    from monitors.archive.archive import Archive
    from monitors.archive.retaining import due, retain
    from monitors.archive.retention.horizons import Retention, retention_from_dict

    config = load_config(args.config)
    settings = config.monitoring
    retention = retention_from_dict(settings.retention if settings is not None else {})
    where = config.broker.archive
    open_archive(where).close()
    if retention == Retention():
        text = f"{args.config} has no monitoring.retention: everything is kept"
        return print_fields(args, [], lambda: text)
    with Archive(where) as archive:
        if args.dry_run:
            counts = due(archive, retention, time.time())
            lines = [f"{metric}: {count} measurements" for metric, count in counts.items()]
            lines.append(f"in all {sum(counts.values())} would be removed; nothing was changed")
            records = [{"metric": metric, "count": count} for metric, count in counts.items()]
            return print_fields(args, records, lambda: "\n".join(lines))
        done = retain(archive, retention, time.time())
    text = f"removed {done.removed} measurements, made {done.made} roll-ups"
    return print_fields(args, {"removed": done.removed, "rollups": done.made}, lambda: text)


@NOUN.verb(
    "copy",
    option("source", "file or postgresql:// URL", "FROM"),
    option("target", "the same; empty, or created if missing", "TO"),
    add_output,
)
def _copy(args: argparse.Namespace) -> int:
    """Copy an archive to another one, which must be empty.

    Stop all writers first, because what they record meanwhile may be missing in the copy. The
    source does not change.

    Examples:
      adon archive copy adon-archive.sqlite postgresql://adon@db.example.org/adon
    """
    from monitors.archive.archive import Archive
    from monitors.archive.export import copy_archive

    check_state(args.target)
    with open_archive(args.source) as source, Archive(args.target) as target:
        count = copy_archive(source, target)
    return print_fields(args, {"measurements": count}, lambda: f"copied {count} measurements")
