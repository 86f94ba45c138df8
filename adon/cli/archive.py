"""The archive of measurements: look into it, export it, keep it small."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli.options import moment_of
from adon.cli.output import duration, print_json, table
from adon.cli.parsing import (
    CommandParser,
    Nouns,
    add_command,
    add_json,
    add_noun,
    names,
    whole,
)
from network_provisioner.base.errors import InputError, printable
from network_provisioner.stores.database_url import check_state, is_database_url

if TYPE_CHECKING:
    from monitors.archive.archive import Archive, Estimate, Selection


_SHOW = """Show what an archive holds: for each metric how many measurements and of what.

'whole since' is the moment before which retention has left roll-ups only.
"""
_QUERY = """List measurements, newest first."""
_QUERY_MORE = """
TIME is an instant (2026-11-01, 2026-11-01T12:00, Unix seconds) or how long ago ('2 h', '7 d').

Examples:
  adon archive query throughput --subject 'mu>tacc' --since '7 d'
  adon archive query job --workflow 5b0e2c1e-8f0a-4b52-9f5e-0d8b5a6f1c11 --json
"""
_ESTIMATE = """Say what the archive knows of something now: value, spread, age, source.

WHAT is a metric, or gamma_a (of 'mu>tacc': what a transfer gets, from transfers or newer probes),
gamma_c (of 'soykb::bwa_mem:1.0@mu': how fast it runs there) or t_q (of 'mu': how long jobs wait).
"""
_ESTIMATE_MORE = """
Examples:
  adon archive estimate gamma_a 'mu>tacc'
  adon archive estimate rtt 'mu>tacc' --now 2026-11-01

Exit codes: 0 it is known; 1 it is not; 2 bad input.
"""
_ROLLUPS = """Show what each hour or day had: number, least, median, mean and largest value."""
_EXPORT = """Write measurements to a file, or as CSV to standard output, for other programs.

The format follows from the file's name: .csv or .parquet (needs pyarrow: 'pip install
adon-wms[parquet]').
"""
_EXPORT_MORE = """
Examples:
  adon archive export -o all.parquet
  adon archive export throughput,rtt --since '30 d' > paths.csv
"""


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon archive show|query|estimate|rollups|export|retain|copy``."""
    verbs = add_noun(nouns, "archive", __doc__)
    show = add_command(verbs, "show", _SHOW, _show)
    _add_place(show)
    add_json(show)
    query = add_command(verbs, "query", _QUERY, _query, _QUERY_MORE)
    query.add_argument("metrics", type=names, metavar="METRIC,...", help="of these, as throughput")
    _add_selection(query)
    query.add_argument("--limit", type=whole(1, 10**9), default=100, metavar="N",
                       help="at most so many (default: %(default)s)")  # fmt: skip
    add_json(query, "print one JSON object per line and measurement")
    estimate = add_command(verbs, "estimate", _ESTIMATE, _estimate, _ESTIMATE_MORE)
    estimate.add_argument("what", metavar="WHAT", help="a metric, gamma_a, gamma_c or t_q")
    estimate.add_argument("subject", metavar="SUBJECT", help="of what, as 'mu>tacc'")
    estimate.add_argument("--now", metavar="TIME", help="as it was known then")
    _add_place(estimate)
    add_json(estimate)
    rollups = add_command(verbs, "rollups", _ROLLUPS, _rollups)
    rollups.add_argument("metric", metavar="METRIC", help="of this one, as throughput")
    rollups.add_argument("subject", metavar="SUBJECT", help="of what, as 'mu>tacc'")
    rollups.add_argument("--by", choices=("hour", "day"), default="day", help="(default: day)")
    rollups.add_argument("--since", metavar="TIME", help="from then on")
    rollups.add_argument("--until", metavar="TIME", help="up to then")
    _add_place(rollups)
    add_json(rollups)
    export = add_command(verbs, "export", _EXPORT, _export, _EXPORT_MORE)
    export.add_argument("metrics", nargs="?", type=names, default=[], metavar="METRIC,...",
                        help="of these alone (default: of all)")  # fmt: skip
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="(default: print CSV)")
    _add_selection(export)
    add_keep(verbs)


def _add_place(parser: CommandParser) -> None:
    parser.add_argument(
        "--archive", default="adon-archive.sqlite", metavar="FILE_OR_URL",
        help="where measurements are (default: ./%(default)s)",
    )  # fmt: skip


def _add_selection(parser: CommandParser) -> None:
    parser.add_argument("--subject", help="of this path, site or host alone, as 'mu>tacc'")
    parser.add_argument("--workflow", metavar="UUID", help="of this workflow alone")
    parser.add_argument("--source", help="measured by this one alone")
    parser.add_argument("--since", metavar="TIME", help="measured then or later")
    parser.add_argument("--until", metavar="TIME", help="measured then or earlier")
    _add_place(parser)


def _moment(text: str | None, option: str) -> float | None:
    """An instant, or how long ago. Raises InputError."""
    return moment_of(text, option, time.time())


def _selection(args: argparse.Namespace) -> Selection:
    from monitors.archive.archive import Selection

    since, until = _moment(args.since, "--since"), _moment(args.until, "--until")
    return Selection(tuple(args.metrics), args.subject, args.workflow, args.source, since, until)


def utc(at: float) -> str:
    from network_provisioner.base.instants import iso

    if not math.isfinite(at):
        return "-"
    return iso(at).replace("T", " ").removesuffix("Z")


def _show(args: argparse.Namespace) -> int:
    from monitors.archive.contents import contents

    with opened(args.archive) as archive:
        found = contents(archive)
    if args.json:
        print_json({"metrics": [one.as_dict() for one in found]})
        return 0
    rows = [
        (
            one.metric, str(one.subjects), str(one.count), utc(one.oldest), utc(one.newest),
            str(one.rollups), utc(one.whole_since),
        )
        for one in found
    ]  # fmt: skip
    head = ("METRIC", "SUBJECTS>", "COUNT>", "OLDEST", "NEWEST", "ROLL-UPS>", "WHOLE SINCE")
    print(table(head, rows) if rows else "nothing was measured")
    return 0


def _query(args: argparse.Namespace) -> int:
    from monitors.archive.export import as_dict

    with opened(args.archive) as archive:
        found = [one for _, one in archive.page(_selection(args), newest=True, limit=args.limit)]
    if args.json:
        for one in found:
            print_json(as_dict(one), indent=None)
        return 0
    rows = [
        (utc(one.at), one.metric, one.subject, f"{one.value:.6g}", one.unit, one.source)
        for one in found
    ]
    head = ("AT (UTC)", "METRIC", "SUBJECT", "VALUE>", "UNIT", "SOURCE")
    print(table(head, rows) if rows else "nothing was measured")
    return 0


def _estimate(args: argparse.Namespace) -> int:
    asked = _moment(args.now, "--now")
    now = time.time() if asked is None else asked  # 0 is a moment, too
    with opened(args.archive) as archive:
        metric, subject, found = _known(archive, args.what, args.subject, now)
    if found is None:
        print(printable(f"nothing is known of {args.what} of {args.subject}"))
        return 1
    if args.json:
        from monitors.api.archive_shapes import shown_estimate

        print_json(shown_estimate(metric, subject, found, now))
        return 0
    print(
        f"{found.value:.6g} {found.unit} ± {found.spread:.3g}, from {found.count} of {metric} of "
        f"{subject}, the newest {duration(found.age_s(now))} old, by {found.source}"
    )
    return 0


def _known(
    archive: Archive, what: str, subject: str, now: float
) -> tuple[str, str, Estimate | None]:
    from monitors.archive import knowledge

    found: knowledge.Known | None
    if what == "gamma_a":
        src, pair, dst = subject.partition(">")
        if not pair:
            raise InputError(f"SUBJECT: found {subject!r}, expected two sites as 'mu>tacc'")
        found = knowledge.gamma_a(archive, src, dst, now)
    elif what == "gamma_c":
        transformation, at, site = subject.rpartition("@")
        if not at:
            raise InputError(f"SUBJECT: found {subject!r}, expected 'ns::name:version@site'")
        found = knowledge.gamma_c(archive, transformation, site, now)
    elif what == "t_q":
        found = knowledge.queue_wait(archive, subject, now)
    else:
        return what, subject, archive.estimate(what, subject, now)
    return (what, subject, None) if found is None else (found.metric, found.subject, found)


def _rollups(args: argparse.Namespace) -> int:
    from monitors.archive.retention.horizons import DAY_S, HOUR_S, QUANTILES
    from monitors.archive.retention.rollups import as_dict, roll_ups

    width = HOUR_S if args.by == "hour" else DAY_S
    until = _moment(args.until, "--until")
    until = time.time() if until is None else until
    since = _moment(args.since, "--since") or 0.0
    with opened(args.archive) as archive:
        found = roll_ups(archive.engine, args.metric, args.subject, width, since, until)
    if args.json:
        print_json({"rollups": [as_dict(one, QUANTILES) for one in found]})
        return 0
    rows = [
        (
            utc(one.start), str(one.number), f"{one.low:.6g}", f"{one.quantile(0.5):.6g}",
            f"{one.mean:.6g}", f"{one.high:.6g}", one.unit,
        )
        for one in found
    ]  # fmt: skip
    head = ("FROM (UTC)", "COUNT>", "MIN>", "MEDIAN>", "MEAN>", "MAX>", "UNIT")
    print(table(head, rows) if rows else "nothing was measured")
    return 0


def _export(args: argparse.Namespace) -> int:
    from monitors.archive.export import format_of, to_file, write_csv

    kind = "csv" if args.output is None else format_of(args.output.name)
    selection = _selection(args)
    with opened(args.archive) as archive:
        found = archive.each(selection)
        if args.output is None:
            write_csv(found, sys.stdout.buffer)
            return 0
        count = to_file(found, args.output, kind)
    print(f"{args.output}: {count} measurements")
    return 0


_RETAIN = """Roll up and take away what is older than adon.yml says (monitoring.retention), at once.

The broker does it every hour by itself; this is for archives without one.
"""
_RETAIN_MORE = """
Examples:
  adon archive retain --config adon.yml --dry-run
"""
_COPY = """Copy everything from one archive to another, which must be empty.

Places are files or postgresql:// URLs. Stop who writes first: what they record meanwhile might not
be copied. The first place stays as it is.
"""
_COPY_MORE = """
Examples:
  adon archive copy adon-archive.sqlite postgresql://adon@db.example.org/adon
"""


def add_keep(verbs: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon archive retain|copy``."""
    retain = add_command(verbs, "retain", _RETAIN, _retain, _RETAIN_MORE)
    retain.add_argument("--config", type=Path, required=True, metavar="FILE", help="adon.yml")
    retain.add_argument("--dry-run", action="store_true", help="only say how many would go")
    copy = add_command(verbs, "copy", _COPY, _copy, _COPY_MORE)
    copy.add_argument("source", metavar="FROM", help="a file or a postgresql:// URL")
    copy.add_argument("target", metavar="TO", help="the same, empty; made where it is not there")


def opened(place: str) -> Archive:
    """An archive that is there, for reading. Raises InputError, ArchiveError."""
    from monitors.archive.archive import Archive

    check_state(place)
    if not is_database_url(place) and not Path(place).exists():
        raise InputError(f"{place}: found no such file, expected an archive of measurements")
    return Archive(place, read_only=True)


def _retain(args: argparse.Namespace) -> int:
    from adon.config.adon_yml import load_config
    from monitors.archive.archive import Archive
    from monitors.archive.retention.horizons import Retention, retention_from_dict
    from monitors.archive.retention.service import due, retain

    config = load_config(args.config)
    settings = config.monitoring
    retention = retention_from_dict(settings.retention if settings is not None else {})
    where = config.broker.archive
    opened(where).close()
    if retention == Retention():
        print(f"{args.config} has no monitoring.retention: everything is kept")
        return 0
    with Archive(where) as archive:
        if args.dry_run:
            counts = due(archive, retention, time.time())
            for metric, count in counts.items():
                print(f"{metric}: {count} measurements")
            print(f"in all {sum(counts.values())} would go; nothing was done")
            return 0
        done = retain(archive, retention, time.time())
    print(f"took {done.removed} measurements away, made {done.made} roll-ups")
    return 0


def _copy(args: argparse.Namespace) -> int:
    from monitors.archive.archive import Archive
    from monitors.archive.contents import copy_archive

    check_state(args.target)
    with opened(args.source) as source, Archive(args.target) as target:
        count = copy_archive(source, target)
    print(f"copied {count} measurements")
    return 0
