"""``adon monitor run``; the other verbs are in :mod:`adon.cli.monitor_show`."""

from __future__ import annotations

import argparse
import json
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adon.cli.monitor_show import NOUN, SOURCE
from adon.cli.options import credentials, moment_of
from adon.cli.output import note
from adon.cli.parsing import flag, log_as, logging_options, option
from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_duration

if TYPE_CHECKING:
    from monitors.workflows.follower import Follower
    from monitors.workflows.logs.status import Status
    from monitors.workflows.planned.submit_dir import SubmitDir
    from monitors.workflows.sink import Requests, Sink

_LOOKED = (
    " in the hooks' registry, in Pegasus's database or in HTCondor's queue;"
    " a DIR names one, --keep waits for those to come"
)
_BAR = 10  # letters of a bar: with a name and some counts a line fits into 80
_NOTICES_S = 30.0  # for the last ones to be sent before the command ends


@NOUN.verb(
    "run",
    option("dirs", "submit directory or DAG file", "DIR", Path, nargs="*"),
    flag("--mine", "all your workflows"),
    flag("--all-users", "workflows of all users, as far as you may read them"),
    *SOURCE,
    option(
        "--since", "with --mine and --all-users: ignore workflows that ended earlier; a time, or "
        "how long ago", "TIME", default="30 d",
    ),
    option(
        "--notify", "send notices about workflows that finish, fail or are stuck, as configured in "
        "'monitoring.notices' of this adon.yml (a broker does this without the option)", "FILE",
        Path,
    ),
    option(
        "--give-up-after", "stop waiting for workflows whose logs have not grown for this long, "
        "such as 2 d (default: never)", "TIME",
    ),
    flag("--keep", "keep running when all have ended"),
    flag("--json", "print one JSON object per change, one per line"),
    logging_options,
)  # fmt: skip
def _run(args: argparse.Namespace) -> int:
    """Follow workflows until all are done, failed or removed.

    Prints a line at every change, including those of sub-workflows, and records status, jobs,
    transfers, run times and queue waits for later placements. Following a workflow twice records
    nothing twice.

    --mine and --all-users find workflows in the hooks' registry, in Pegasus's database and in
    HTCondor's queue, including those that start later. If a workflow's files are inconsistent, ADON
    asks pegasus-status; if DAGMan has been silent for long, it asks HTCondor.

    Examples:
      adon monitor run submit/me/pegasus/soykb/run0001
      adon monitor run run0001 run0002 --archive .adon/archive.sqlite
      adon monitor run --mine --keep --broker https://broker.example:8470 --token-file ~/.adon-token

    Exit codes: 0 all are done; 1 one failed or was removed; 2 a directory or archive is unusable.
    """
    from monitors.jobs.condor import Schedd
    from monitors.workflows.discovery import Discovery, of_all, of_user
    from monitors.workflows.follower import Follower
    from monitors.workflows.inquiries import Fallback, Inquiries, inquiry_into
    from monitors.workflows.planned.foreign_files import is_file
    from monitors.workflows.planned.submit_dir import submit_dir_of
    from monitors.workflows.workflow_tree import ended_well

    if not (args.dirs or args.mine or args.all_users):
        raise InputError("found no DIR, expected submit directories, --mine or --all-users")
    since = _since(args.since)
    give_up_s = math.inf
    if args.give_up_after is not None:
        give_up_s = parse_duration(args.give_up_after, "--give-up-after")
    log_as(args)
    sources = of_all(since) if args.all_users else of_user(since) if args.mine else []
    for submit_dir in args.dirs:
        submit_dir_of(submit_dir)  # refused before an archive is made
    with (
        _sink(args) as sink,
        _notifying(args, sink),
        _requests(args, sink) as requests,
        _stopped_by_signal() as stop,
    ):

        def show(submit_dir: SubmitDir, status: Status) -> None:
            shown = _as_json if args.json else _as_text
            print(shown(follower, submit_dir, status), flush=True)

        follower = Follower(
            args.dirs,
            sink,
            on_status=show,
            discovery=Discovery(sources) if sources else None,
            inquiries=Inquiries(Fallback(), inquiry_into(Schedd())),
            requests=requests,
            keep=args.keep,
            give_up_s=give_up_s,
        )
        for member in follower.workflows:
            if not is_file(member.dir.dagman_out):
                waits = "DAGMan has not begun: waiting for pegasus-run or condor_submit_dag"
                note(f"{member.dir.path}: {waits}")
        follower.run(stop)
    if not follower.tree.roots:
        note(f"no workflows found{_LOOKED if sources else ''}")
    return 0 if ended_well(follower.tree.roots) else 1


def _since(text: str) -> Any:
    """The earliest end that is of interest, in Unix seconds, whenever it is asked for."""
    moment_of(text, "--since", time.time())  # refused now, where it is no time
    return lambda: moment_of(text, "--since", time.time())


@contextmanager
def _sink(args: argparse.Namespace) -> Iterator[Sink]:
    """Where measurements go. Raises AdonError."""
    from monitors.archive.archive import Archive
    from monitors.workflows.sink import BrokerSink

    if args.broker is None:
        with Archive(args.archive) as archive:
            yield archive
        return
    yield BrokerSink(args.broker, *credentials(args.token_file))


@contextmanager
def _requests(args: argparse.Namespace, sink: Sink) -> Iterator[Requests]:
    """Where others ask to have a workflow measured at once: where the measurements go."""
    from monitors.archive.archive import Archive
    from monitors.workflows.sink import BrokerRequests

    if isinstance(sink, Archive):
        yield sink
        return
    requests = BrokerRequests(args.broker, *credentials(args.token_file))
    requests.start()
    try:
        yield requests
    finally:
        requests.stop()


@contextmanager
def _notifying(args: argparse.Namespace, sink: Sink) -> Iterator[None]:
    """People are told meanwhile, where that is wanted. Raises InputError."""
    from adon.config.adon_yml import load_config
    from adon.service.monitoring import watching
    from monitors.archive.archive import Archive

    if args.notify is None:
        yield
        return
    settings = load_config(args.notify).monitoring
    if settings is None or not settings.notices:
        raise InputError(
            f"{args.notify}: found no monitoring.notices, expected at least one notice"
        )
    if not isinstance(sink, Archive):
        raise InputError("--notify: found with --broker, which sends notices itself")
    tells, finds = watching(settings, sink, time.time, args.notify.absolute().parent)
    tells.start()
    try:
        finds.start()
        try:
            yield
        finally:
            finds.stop()
        tells.settle(_NOTICES_S)
    finally:
        tells.stop()


@contextmanager
def _stopped_by_signal() -> Iterator[threading.Event]:
    """Set by SIGTERM, so that what was written until then is recorded."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _name(follower: Follower, submit_dir: SubmitDir) -> str:
    """``outer/inner`` of a workflow that is inside another."""
    member = follower.tree.of(submit_dir.workflow)
    names = [submit_dir.name]
    while member is not None and member.above is not None:
        member = member.above
        names.append(member.dir.name)
    return "/".join(reversed(names))


def _as_text(follower: Follower, submit_dir: SubmitDir, status: Status) -> str:
    from monitors.workflows.logs.status import status_text

    return status_text(status, _name(follower, submit_dir), _BAR)


def _as_json(follower: Follower, submit_dir: SubmitDir, status: Status) -> str:
    data: dict[str, Any] = {
        "dir": str(submit_dir.path),
        "workflow": submit_dir.name,
        "id": submit_dir.workflow,
        **status.fields(),
        "state": str(status.state),
        "at": status.at,
    }
    member = follower.tree.of(submit_dir.workflow)
    if member is not None:
        data |= {"root": member.root, "parent": member.parent}
        data["total"] = follower.tree.total_of(member).fields()
    return json.dumps(data)
