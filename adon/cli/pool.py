"""Make the pool larger for a while, and smaller again.

What is asked for goes by a name, so that asking twice is asking once, and lasts no longer than its
lease. How the pool grows stands in adon.yml, section 'expansion'.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from adon.cli import pool_explain
from adon.cli.options import above_0
from adon.cli.output import duration, print_json, table
from adon.cli.parsing import CommandParser, Nouns, add_command, add_json, add_noun, whole
from network_provisioner.base.errors import AdonError
from network_provisioner.base.units import format_size, parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adon.config.sections import Config
    from condor_plugins.pool.demand import Expanded, Expansion, SlotDemand, Worker
    from monitors.archive.measurement import Measurement


_BROKER_S = 5.0

_ENLARGE = """Have room in the pool for so many jobs at once.

Slots that it has already are counted; what is missing is added, as far as the limits of adon.yml
go. Asked again under the same name, it is made to fit the new number, and lasts longer.
"""
_ENLARGE_MORE = """
Examples:
  adon pool enlarge --for night --slots 40 --lease 8h
  adon pool enlarge --for night --slots 60 --cores 2 --memory-mb 4096
"""
_SHRINK = """Let go what was asked for under a name. Jobs that run may end; no new ones begin there.
"""
_SHRINK_MORE = """
Example:
  adon pool shrink --for night
"""
_SHOW = """Show the workers that joined the pool for a while, for whom and for how long."""
_SHOW_MORE = """
Example:
  adon pool show --json
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
        help="memory of each (default: as adon.yml has it)",
    )  # fmt: skip
    enlarge.add_argument(
        "--bytes", type=whole(0, 10**18), default=0, metavar="N",
        help="what the jobs read in all, for drivers that choose machines by it",
    )  # fmt: skip
    enlarge.add_argument(
        "--lease", metavar="TIME", help="how long, such as 90min (default: as adon.yml has it)"
    )
    _add_name(_command(verbs, "shrink", _SHRINK, _shrink, _SHRINK_MORE))
    _command(verbs, "show", _SHOW, _show, _SHOW_MORE)
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
        "--for", dest="demand", required=True, metavar="NAME", help="whose slots they are"
    )


def _opened(args: argparse.Namespace) -> tuple[Config, Expansion]:
    from adon.config.adon_yml import load_config
    from adon.expansion import expansion_of

    config = load_config(args.config)
    return config, expansion_of(config, args.config)


def _enlarge(args: argparse.Namespace) -> int:
    from condor_plugins.pool.demand import SlotDemand

    config, expansion = _opened(args)
    lease_s = _lease(args.lease, config)
    demand = SlotDemand(
        args.demand,
        args.slots,
        time.time() + lease_s,
        args.cores,
        args.memory_mb,
        args.bytes,
    )
    grown = expansion.enlarge(demand)
    record(config, enlarged(demand, grown, time.time()))
    if args.json:
        print_json({"workers": [w.as_dict() for w in grown.workers], "note": grown.note})
        return 0
    slots = sum(worker.slots for worker in grown.workers)
    print(
        f"{args.demand}: {slots} slots in {_workers(len(grown.workers))} joined the pool or are on "
        f"their way, for {duration(lease_s)}"
    )
    if grown.note:
        print(grown.note)
    return 0


def _lease(text: str | None, config: Config) -> float:
    if text is not None and text.isdecimal():
        text += " s"
    given = above_0(parse_duration, text, "--lease")
    assert config.expansion is not None
    return config.expansion.lease if given is None else given


def _shrink(args: argparse.Namespace) -> int:
    config, expansion = _opened(args)
    count = expansion.shrink(args.demand)
    if count:
        record(config, shrunk(args.demand, count, time.time()))
    if args.json:
        print_json({"workers": count})
    else:
        print(f"{args.demand}: {_workers(count)} leave when their jobs have ended")
    return 0


def _show(args: argparse.Namespace) -> int:
    _, expansion = _opened(args)
    found = expansion.workers()
    if args.json:
        print_json({"workers": [worker.as_dict() for worker in found]})
    else:
        print(_table(found) if found else "no workers joined the pool")
    return 0


def _workers(count: int) -> str:
    return f"{count} worker" if count == 1 else f"{count} workers"


def _table(workers: Sequence[Worker]) -> str:
    now = time.time()
    rows = [
        (
            w.name,
            w.state,
            str(w.slots),
            duration(round(w.until - now)) if w.until > now else "over",
            w.demand,
        )
        for w in workers
    ]
    return table(("worker", "state", "slots>", "lease>", "for"), rows)


def enlarged(demand: SlotDemand, grown: Expanded, now: float) -> Measurement:
    """A demand and what came of it: the value is the slots that were asked for."""
    from monitors.archive.measurement import Measurement

    jobs = f"{demand.slots} jobs" if demand.slots != 1 else "1 job"
    cores = f" of {demand.cores} cores" if demand.cores > 1 else ""
    size = f", which read {format_size(demand.bytes)}" if demand.bytes else ""
    verb = "are" if demand.slots != 1 else "is"
    reason = demand.reason or f"{jobs}{cores} {verb} to run at once{size}"
    details = {
        "granted": sum(worker.slots for worker in grown.workers),
        "workers": len(grown.workers),
        "until": demand.until,
        "cores": demand.cores,
        "memory_mb": demand.memory_mb,
        "bytes": demand.bytes,
        "reason": reason,
        "note": grown.note,
    }
    key = f"expansion:{demand.id}:{now!r}"
    return Measurement(
        key, "expansion", demand.id, float(demand.slots), "1", now, "adon pool", "", details
    )


def shrunk(name: str, workers: int, now: float) -> Measurement:
    """A demand that is over."""
    from monitors.archive.measurement import Measurement

    details = {"workers": workers, "reason": "it was let go: its workers leave as jobs end"}
    key = f"expansion:{name}:{now!r}"
    return Measurement(key, "expansion", name, 0.0, "1", now, "adon pool", "", details)


def record(config: Config, found: Measurement) -> None:
    """By the broker, or where none answers into its archive, if there is one. The pool has changed
    already, so what cannot be recorded is told and is no failure."""
    from monitors.archive.archive import Archive
    from monitors.workflows.sink import BrokerSink
    from network_provisioner.client.credentials import from_environment

    where = config.broker.archive
    with contextlib.suppress(AdonError):
        token, tls = from_environment(os.environ)
        sink = BrokerSink(config.broker_url, config.broker.token or token, tls, _BROKER_S)
        sink.record_many([found])
        return
    if "://" not in where and not Path(where).exists():
        return  # no broker works in this folder, and a new file would be found by nobody
    try:
        with Archive(where) as archive:
            archive.record(found)
    except AdonError as error:
        print(f"adon: not recorded: {error}", file=sys.stderr)
