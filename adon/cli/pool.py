"""Lease slots, and run and explain the expander, which grows and shrinks the pool.

A lease has a name and an end; a second lease of the same name replaces the first. Section
'expansion' of adon.yml configures how the pool grows.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from adon.cli import pool_run
from adon.cli.archive import is_there, open_archive, when
from adon.cli.live import watch
from adon.cli.options import above_0
from adon.cli.output import (
    Column,
    duration,
    note,
    print_fields,
    print_records,
    table,
)
from adon.cli.parsing import Noun, add_output, config, limit, option, whole
from adon.cli.terminal import wrapped
from network_provisioner.base.errors import AdonError, BrokerError, printable
from network_provisioner.base.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from adon.config.sections import Config, ExpansionConfig
    from condor_plugins.pool.leases import Lease
    from monitors.base.measurement import Measurement

NOUN = Noun("pool", __doc__)
_BROKER_S = 5.0
_UNANSWERED = frozenset({"unreachable", "bad_answer", "archive_unavailable"})
_DECISIONS = 100  # the newest, which are looked through for why a machine drains
_MOST = 10**9
_CONFIG = pool_run.CONFIG
_NAME = option("name", "name of the lease", "NAME")


@NOUN.verb(
    "enlarge",
    _NAME,
    option("--slots", "number of jobs that run at once", "N", whole(0, _MOST), required=True),
    option("--cores", "cores of each slot", "N", whole(1, _MOST), default=1),
    option("--memory-mb", "memory of each slot (default: any)", "MB", whole(0, _MOST), default=0),
    option("--bytes", "bytes that the jobs read in total", "N", whole(0, 10**18), default=0),
    option("--lease", "duration, such as 90min (default: from adon.yml)", "TIME"),
    _CONFIG,
    add_output,
)
def _enlarge(args: argparse.Namespace) -> int:
    """Lease slots of the pool for a number of jobs at once.

    The lease is recorded, and 'adon pool run' adds the missing slots within the limits of adon.yml.
    A second lease of the same name replaces the first.

    Examples:
      adon pool enlarge night --slots 40 --lease 8h
      adon pool enlarge night --slots 60 --cores 2 --memory-mb 4096
    """
    from condor_plugins.pool.leases import Lease

    config, section = _loaded(args)
    lease_s = above_0(parse_duration, args.lease, "--lease") or section.lease
    until = time.time() + lease_s
    lease = Lease(args.name, args.slots, until, args.cores, args.memory_mb, args.bytes)
    return _record(args, config, section, lease, f"leased for {duration(lease_s)}")


@NOUN.verb("shrink", _NAME, _CONFIG, add_output)
def _shrink(args: argparse.Namespace) -> int:
    """End a lease. Running jobs may finish.

    Example:
      adon pool shrink night
    """
    from condor_plugins.pool.leases import Lease

    config, section = _loaded(args)
    return _record(args, config, section, Lease(args.name, 0, time.time()), "ended")


def _loaded(args: argparse.Namespace) -> tuple[Config, ExpansionConfig]:
    from adon.config.adon_yml import load_config
    from adon.config.expansion import section_of

    config = load_config(args.config)
    return config, section_of(config, args.config)


def _record(
    args: argparse.Namespace, config: Config, section: ExpansionConfig, lease: Lease, what: str
) -> int:
    from adon.config.expansion import adon_is_at_work
    from condor_plugins.pool.leases import measurement_of

    try:
        where = record(config, measurement_of(lease, time.time()))
    except AdonError as error:
        note(f"not recorded: {error}")
        return 1
    slots = f"{lease.slots} {'slot' if lease.slots == 1 else 'slots'} " if lease.slots else ""
    text = f"{lease.name}: {slots}{what}, recorded in {where}"
    if adon_is_at_work(section.directory) is False:
        text += "\nno 'adon pool run' is at work on this machine"
    return print_fields(args, {"lease": lease.as_dict(), "recorded": where}, lambda: text)


def record(config: Config, measurement: Measurement) -> str:
    """By the broker, or where none answers into its archive; where that is. Raises AdonError."""
    from adon.config.adon_yml import broker_of
    from monitors.archive.archive import Archive

    try:
        body = {"measurements": [asdict(measurement)]}
        broker_of(config, _BROKER_S).call("POST", "/v1/measurements", body)
    except BrokerError as error:
        if error.code != "unreachable":
            raise
    else:
        return f"the archive of {config.broker_url}"
    with Archive(config.broker.archive) as archive:
        archive.record(measurement)
        return archive.shown


@NOUN.verb("show", _CONFIG, add_output, watch)
def _show(args: argparse.Namespace) -> int:
    """Show the machines that ADON started for the pool, and the leases of slots.

    --csv and --columns print the machines only.

    Example:
      adon pool show --json
    """
    from adon.config.expansion import cloud_of
    from condor_plugins.pool.leases import METRIC, leases_of
    from monitors.archive.archive import Archive

    config, section = _loaded(args)
    machines = cloud_of(config, args.config).machines()
    now = time.time()
    with Archive(config.broker.archive, read_only=True) as archive:
        leases = [lease.as_dict() for lease in leases_of(archive.latest(METRIC).values(), now)]
        decided = archive.query("pool_decision", section.pool, newest=True, limit=_DECISIONS)
    notes = _notes(decided)
    rows = [{**asdict(m), "state": m.state.value, "note": notes.get(m.name, "")} for m in machines]
    columns = (
        Column("name", "machine"),
        Column("flavour"),
        Column("state"),
        Column("since", "since", lambda at: f"{duration(max(0, round(now - at)))} ago"),
        Column("error", "why", lambda error, note: error or note, ("note",)),
    )
    lease_columns = (
        Column("name", "for"),
        Column("slots", "slots>"),
        Column("cores", "cores>"),
        Column("until", "lease>", lambda until: duration(round(until - now))),
    )

    def text(shown: str) -> str:
        first = shown if rows else "no machines were started for the pool"
        return "\n".join((first, table(lease_columns, leases))) if leases else first

    document = {"machines": rows, "leases": leases}
    return print_records(args, columns, rows, document=document, text=text)


def _notes(decided: Iterable[Measurement]) -> dict[str, str]:
    """Why machines drain, by name, from the newest decisions first; of those that are taken back,
    nothing."""
    from adon.dashboard.decisions import mapping_in, names_in

    notes: dict[str, str] = {}
    for measurement in decided:
        why = mapping_in(measurement, "why")
        for name in names_in(measurement, "keep"):
            notes.setdefault(name, "")
        for name in names_in(measurement, "drain"):
            notes.setdefault(name, f"drains: {why.get(name, '')}")
    return notes


@NOUN.verb(
    "waiting",
    option("--dag", "only this workflow, by its DAGMan's cluster id", "CLUSTER", whole(0, _MOST)),
    option("--patience", "ignore jobs that became idle more recently", "TIME", default="20 s"),
    add_output,
    watch,
)
def _waiting(args: argparse.Namespace) -> int:
    """List jobs that no slot fits, and held jobs, with the reasons.

    Asks the pool of CONDOR_CONFIG, or HTCondor's default. A job that fits a busy slot is not
    listed.

    Examples:
      adon pool waiting
      adon pool waiting --dag 4711 --patience '5 min'
    """
    from condor_plugins.waiting import read

    jobs = read(args.dag, parse_duration(args.patience, "--patience"))
    now = time.time()
    columns = (
        Column("job"),
        Column("since", "for", lambda since: duration(max(0.0, now - since))),
        Column("why"),
    )
    return print_records(
        args,
        columns,
        [asdict(job) for job in jobs],
        none="no job is held, and a slot fits each waiting one",
    )


NOUN.verb("run", *pool_run.OPTIONS)(pool_run.run)


@NOUN.verb(
    "explain",
    config("adon.yml that names broker and archive"),
    limit(1000, 10),
    add_output,
)
def _explain(args: argparse.Namespace) -> int:
    """Explain why machines were started or removed, or were not; the newest decision comes last.

    Asks the broker; if it does not answer, reads its archive.

    Examples:
      adon pool explain --config /etc/adon.yml
      adon pool explain --limit 1 --json
    """
    from adon.config.adon_yml import load_config

    decisions = _decisions(load_config(args.config), args.limit)
    none = (
        "no decisions yet: 'adon pool run' makes them, and 'adon install condor --expander' "
        "starts it"
    )
    return print_fields(
        args,
        decisions,
        lambda: "\n\n".join(map(_lines, decisions)) or none,
        {"decisions": decisions},
    )


def _decisions(config: Config, last: int) -> list[dict[str, Any]]:
    """As ``GET /v1/decisions`` has them, the newest last."""
    from adon.config.adon_yml import broker_of

    try:
        decisions: list[dict[str, Any]] = broker_of(config, _BROKER_S).read(
            lambda answer: list(answer["decisions"]), "GET", f"/v1/decisions?kind=pool&limit={last}"
        )
    except BrokerError as error:
        if error.code not in _UNANSWERED:
            raise
        decisions = _archived(config.broker.archive, last)
    return list(reversed(decisions))


def _archived(where: str, last: int) -> list[dict[str, Any]]:
    from adon.dashboard.decisions import of_pool_decision
    from monitors.archive.archive import Selection

    if not is_there(where):
        return []  # nothing is recorded
    with open_archive(where) as archive:
        page = archive.page(Selection(("pool_decision",)), newest=True, limit=last)
    return [asdict(of_pool_decision(measurement)) for _, measurement in page]


def _lines(decision: dict[str, Any]) -> str:
    """One decision, with a line for each reason."""
    details = decision["details"]
    lines = [
        f"{when(decision['at'])}  {decision['subject']}: {decision['outcome']}",
        f"  jobs: {details['demand'] or 'none'}; machines: {details['machines'] or 'none'}",
    ]
    for row in decision["choices"]:
        done = f" {row['done']}" if row["done"] else ""
        lines.append(f"  {row['what']}{done}: {row['why'] or 'no reason was recorded'}")
    for flavour, at in details["matched"].items():
        lines.append(f"  {flavour}: HTCondor last had a job for one at {when(at)}")
    return "\n".join(wrapped(printable(line)) for line in lines)
