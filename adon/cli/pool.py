"""Make room in the pool for a while, and see which machines it has.

What is asked for goes by a name, so that asking twice is asking once, and lasts no longer than its
lease. How the pool grows stands in adon.yml, section 'expansion'.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli import pool_explain, pool_run
from adon.cli.options import above_0
from adon.cli.output import duration, print_json, table
from adon.cli.parsing import CommandParser, Nouns, add_command, add_json, add_noun, whole
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.base.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from adon.config.sections import Config
    from condor_plugins.pool.cloud.protocol import Server
    from condor_plugins.pool.leases import Lease
    from monitors.archive.measurement import Measurement


_BROKER_S = 5.0
_DECISIONS = 100  # the newest, which are looked through for why a machine drains

_ENLARGE = """Have room in the pool for so many jobs at once.

It is recorded, and 'adon pool run' sees to it: slots that the pool has already are counted; what is
missing is added, as far as the limits of adon.yml go. Asked again under the same name, the new
number and time count.
"""
_ENLARGE_MORE = """
Examples:
  adon pool enlarge --for night --slots 40 --lease 8h
  adon pool enlarge --for night --slots 60 --cores 2 --memory-mb 4096
"""
_SHRINK = """Let go what was asked for under a name. Jobs that run may end.
"""
_SHRINK_MORE = """
Example:
  adon pool shrink --for night
"""
_SHOW = """Show the machines that were started for the pool, and who asked for room for how long."""
_SHOW_MORE = """
Example:
  adon pool show --json
"""
_WAITING = """List the jobs that wait in vain: no slot fits them, or they are on hold, and why.

Asks the pool that CONDOR_CONFIG names, without it HTCondor's usual one. A job that fits a busy slot
only has to wait, and is not listed.
"""
_WAITING_MORE = """
Examples:
  adon pool waiting
  adon pool waiting --dag 4711 --patience '5 min'
"""
_MOST = 10**9


def add(nouns: Nouns[argparse.ArgumentParser]) -> None:
    """Add ``adon pool``."""
    verbs = add_noun(nouns, "pool", __doc__)
    enlarge = _command(verbs, "enlarge", _ENLARGE, _enlarge, _ENLARGE_MORE)
    _add_name(enlarge)
    enlarge.add_argument(
        "--slots", type=whole(0, _MOST), required=True, metavar="N",
        help="how many jobs shall run at once",
    )  # fmt: skip
    enlarge.add_argument(
        "--cores", type=whole(1, _MOST), default=1, metavar="N",
        help="cores of each (default: %(default)s)",
    )  # fmt: skip
    enlarge.add_argument(
        "--memory-mb", type=whole(0, _MOST), default=0, metavar="MB",
        help="memory of each (default: any)",
    )  # fmt: skip
    enlarge.add_argument(
        "--bytes", type=whole(0, 10**18), default=0, metavar="N",
        help="what the jobs read in all",
    )  # fmt: skip
    enlarge.add_argument(
        "--lease", metavar="TIME", help="how long, such as 90min (default: as adon.yml has it)"
    )
    _add_name(_command(verbs, "shrink", _SHRINK, _shrink, _SHRINK_MORE))
    _command(verbs, "show", _SHOW, _show, _SHOW_MORE)
    waiting = add_command(verbs, "waiting", _WAITING, _waiting, _WAITING_MORE)
    waiting.add_argument(
        "--dag", type=whole(0, _MOST), metavar="CLUSTER",
        help="of one workflow only, by the cluster id of its DAGMan",
    )  # fmt: skip
    waiting.add_argument(
        "--patience", default="20 s", metavar="TIME",
        help="how long a job is idle before it is looked at (default: %(default)s)",
    )  # fmt: skip
    add_json(waiting)
    pool_run.add(verbs)
    pool_explain.add(verbs)


def _command(verbs: Nouns[argparse.ArgumentParser], name: str, *more: object) -> CommandParser:
    parser = add_command(verbs, name, *more)  # type: ignore[arg-type]
    parser.add_argument(
        "--config", type=Path, default=Path("adon.yml"), metavar="FILE",
        help="adon.yml with section 'expansion' (default: ./%(default)s)",
    )  # fmt: skip
    add_json(parser)
    return parser


def _add_name(parser: CommandParser) -> None:
    parser.add_argument(
        "--for", dest="name", required=True, metavar="NAME", help="whose slots they are"
    )


def _enlarge(args: argparse.Namespace) -> int:
    from condor_plugins.pool.leases import Lease

    config = _loaded(args)
    lease_s = _lease_s(args.lease, config)
    until = time.time() + lease_s
    lease = Lease(args.name, args.slots, until, args.cores, args.memory_mb, args.bytes)
    return _record(args, config, lease, f"leased for {duration(lease_s)}")


def _shrink(args: argparse.Namespace) -> int:
    from condor_plugins.pool.leases import Lease

    return _record(args, _loaded(args), Lease(args.name, 0, time.time()), "let go")


def _loaded(args: argparse.Namespace) -> Config:
    from adon.config.adon_yml import load_config
    from adon.expansion import section_of

    config = load_config(args.config)
    section_of(config, args.config)
    return config


def _lease_s(text: str | None, config: Config) -> float:
    if text is not None and text.isdecimal():
        text += " s"
    given = above_0(parse_duration, text, "--lease")
    assert config.expansion is not None
    return config.expansion.lease if given is None else given


def _record(args: argparse.Namespace, config: Config, lease: Lease, what: str) -> int:
    from adon.expansion import adon_is_at_work
    from condor_plugins.pool.leases import measurement_of

    assert config.expansion is not None
    try:
        where = record(config, measurement_of(lease, time.time()))
    except AdonError as error:
        print(f"adon: not recorded: {error}", file=sys.stderr)
        return 1
    if args.json:
        print_json({"lease": lease.as_dict(), "recorded": where})
        return 0
    slots = f"{lease.slots} {'slot' if lease.slots == 1 else 'slots'} " if lease.slots else ""
    print(f"{lease.name}: {slots}{what}, recorded in {where}")
    if adon_is_at_work(config.expansion.directory) is False:
        print("no 'adon pool run' is at work on this machine")
    return 0


def record(config: Config, found: Measurement) -> str:
    """By the broker, or where none answers into its archive; where that is. Raises AdonError."""
    from monitors.archive.archive import Archive
    from network_provisioner.client.broker import BrokerClient
    from network_provisioner.client.credentials import from_environment

    token, tls = from_environment(os.environ)
    broker = BrokerClient(config.broker_url, _BROKER_S, config.broker.token or token, tls)
    try:
        broker.call("POST", "/v1/measurements", {"measurements": [asdict(found)]})
    except BrokerError as error:
        if error.code != "unreachable":
            raise
    else:
        return f"the archive of {config.broker_url}"
    with Archive(config.broker.archive) as archive:
        archive.record(found)
        return archive.shown


def _show(args: argparse.Namespace) -> int:
    from adon.expansion import cloud_of, section_of
    from condor_plugins.pool.leases import METRIC, leases_of
    from monitors.archive.archive import Archive

    config = _loaded(args)
    machines = cloud_of(config, args.config).machines()
    with Archive(config.broker.archive, read_only=True) as archive:
        leases = leases_of(archive.latest(METRIC).values(), time.time())
        pool = section_of(config, args.config).pool
        decided = archive.query("pool_decision", pool, newest=True, limit=_DECISIONS)
    notes = _notes(decided)
    if args.json:
        rows = [
            {**asdict(m), "state": m.state.value, "note": notes.get(m.name, "")} for m in machines
        ]
        print_json({"machines": rows, "leases": [lease.as_dict() for lease in leases]})
        return 0
    print(_machines(machines, notes) if machines else "no machines were started for the pool")
    if leases:
        print(_leases(leases))
    return 0


def _notes(decided: Iterable[Measurement]) -> dict[str, str]:
    """Why machines drain, by name, from the newest decisions first; of those that are taken back,
    nothing."""
    notes: dict[str, str] = {}
    for found in decided:
        told, why = found.details, found.details.get("why")
        for name in told.get("keep", ()):
            notes.setdefault(name, "")
        for name in told.get("drain", ()):
            notes.setdefault(name, f"drains: {why.get(name, '') if isinstance(why, dict) else ''}")
    return notes


def _waiting(args: argparse.Namespace) -> int:
    from condor_plugins.waiting import read

    jobs = read(args.dag, parse_duration(args.patience, "--patience"))
    if args.json:
        print_json([asdict(job) for job in jobs])
        return 0
    now = time.time()
    rows = [(job.job, duration(max(0.0, now - job.since)), job.why) for job in jobs]
    print(table(("job", "for", "why"), rows) if rows else "no job waits in vain")
    return 0


def _machines(machines: Sequence[Server], notes: Mapping[str, str]) -> str:
    now = time.time()
    rows = [
        (
            m.name, m.flavour, m.state.value, f"{duration(max(0, round(now - m.since)))} ago",
            m.error or notes.get(m.name, ""),
        )
        for m in machines
    ]  # fmt: skip
    return table(("machine", "flavour", "state", "since", "why"), rows)


def _leases(leases: Sequence[Lease]) -> str:
    now = time.time()
    rows = [
        (lease.name, str(lease.slots), str(lease.cores), duration(round(lease.until - now)))
        for lease in leases
    ]
    return table(("for", "slots>", "cores>", "lease>"), rows)
