"""What the runs of an access point hold: it releases what they need no longer, and asks for the
path of their output.

A hook asks for the path of a run's input and ends. Everything after that is done here: a process
that is killed, and whenever, a run's paths are released within seconds of the end of what they
were for. What the broker holds is asked of the broker, so a watcher that was killed continues where
it stopped.

The TCP connections of shadows: by their ports the switches know whose packets are whose.

A shadow serves one run, and its name is among the words it was started with. All shadows of an
access point may be reached at one port (``USE_SHARED_PORT``), so both ends count.
"""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from condor_plugins.jobs.request_builder import Run, parsed
from condor_plugins.transfers.decide import (
    Observation,
    OutputHistory,
    QueuedJob,
    Release,
    Renew,
    actions_for,
    due_requests,
    fetching,
    has_begun,
    input_releases,
    of_schedd,
    reports,
    settling,
    slots_without_site,
    transferring,
)
from condor_plugins.transfers.run_state import RunEvent, RunStates
from condor_plugins.urls.transfer_history import Ad, UsualRates
from monitors.watcher.connections import Ends, Tables, flows, processes
from monitors.watcher.pending import AWAY, Later, PendingActions
from network_provisioner.base.errors import AdonError, BrokerError
from network_provisioner.base.model import LIVE, Transit, TransitRequest, TransitState
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookconfig import HookConfig

log = logging.getLogger(__name__)

SWEEP_S = 3.0  # between two looks while no event comes
PORTS_S = 0.5  # the same while a transfer runs whose ports are unknown
# How long a run is remembered once it is over: a little for those whose last event comes late, and
# longer while the broker must be told of it.
_KEPT_S, _KEPT_UNTOLD_S = 60.0, 900.0
_KEPT_MARKS_S = 2 * _KEPT_UNTOLD_S
_MOST_AT_ONCE = 200  # requests in one call
_MOST_LOOKS = 20  # in the schedd's history for one run

_SHADOW = b"condor_shadow\n"
_JOB = re.compile(r"(\d+)\.(-?\d+)")
Number = tuple[int, int]
"""Cluster and process; the latter is below 0 if common files are sent."""


def open_ports(jobs: Collection[Number]) -> Mapping[Number, tuple[Ends, ...]]:
    """The connections of these jobs' shadows on this machine, as far as we may look at them."""
    ends: dict[Number, tuple[Ends, ...]] = {}
    tables = Tables()
    for process in processes():
        with suppress(OSError):  # it has ended
            # Others' names are anything: the kernel cuts them after 15 bytes, within a letter, too.
            if (process / "comm").read_bytes() != _SHADOW:
                continue
            arguments = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
            job = next(((int(m[1]), int(m[2])) for m in map(_JOB.fullmatch, arguments) if m), None)
            if job is not None and job in jobs:
                ends[job] = tuple(
                    sorted(connection.ends for connection in tables.connections(process))
                )
    return ends


class Events(Protocol):
    """HTCondor's event log."""

    def files(self) -> Collection[Path]:
        """Its state."""
        ...

    def read(self) -> Iterable[RunEvent]:
        """What is new in it. Raises InputError if it cannot be read."""
        ...


class JobQueue(Protocol):
    """The access point's own. Raises AdonError if it cannot be asked."""

    def name(self) -> str:
        """Its name, as it begins the GlobalJobId of its jobs."""
        ...

    def jobs(self, names: Iterable[str]) -> Mapping[str, QueuedJob]:
        """Those of these jobs (GlobalJobIds with - for #) that are in its queue."""
        ...

    def input_history(self, runs: Collection[Run]) -> Mapping[Run, Ad]:
        """What its history reports about the input of those of these runs that it knows."""
        ...

    def disk_waits(self, machine: str, since: float) -> bool:
        """Whether a machine of the pool has stood still for its disk since a Unix second."""
        ...


class AccessPoint:
    """A :class:`~monitors.watcher.watcher.PathSource`: the runs of one access point's jobs.

    What they hold is settled again and again: that is the one action that is always pending.
    ``now`` gives Unix seconds, ``ports_of`` the connections of jobs' shadows.
    """

    key = "HTCondor's transfers"
    owner = ""
    kept_s = math.inf

    def __init__(
        self,
        config: HookConfig,
        schedd: JobQueue,
        events: Events,
        now: Callable[[], float] = time.time,
        ports_of: Callable[[Collection[Number]], Mapping[Number, tuple[Ends, ...]]] = open_ports,
    ) -> None:
        self.config, self._schedd, self._events, self._now = config, schedd, events, now
        self._ports_of, self._ports = ports_of, dict[str, tuple[Ends, ...]]()
        self._runs, self._outputs = RunStates(), OutputHistory()
        self._learned: set[str] = set()  # runs whose output was taken into account
        self._sent: dict[str, float] = {}  # what was asked or told, and when
        self._since = now()
        self._rates, self._looks = UsualRates(), Counter[Run]()
        self._logged: dict[str, str] = {}

    def logs(self) -> Collection[Path]:
        """See PathSource."""
        return self._events.files()

    def observe(self, pending: PendingActions, /) -> None:
        """See PathSource. Raises nothing for what HTCondor does."""
        pending.add(self)
        if self._hear() or settling(self._runs, self._now()):
            pending.hurry(self.key)

    def settle(self, pending: PendingActions, /) -> bool:
        """See PathSource: there is always an access point."""
        away = pending.is_away(self.config)
        self._runs.forget(self._now(), _KEPT_UNTOLD_S if away else _KEPT_S)
        return True

    def do(self, broker: BrokerClient, /) -> None:
        """See PendingAction. Raises Later, always."""
        now = self._now()
        for host in slots_without_site(self._runs):
            self._log_once(
                host, AdonError("names no site, expected AdonSite or PegasusSite in STARTD_ATTRS")
            )
        live, queue = self._live(broker)
        self._hear()  # of what the queue shows by now the events know more
        for action in actions_for(live, Observation(self._runs, queue, now)):
            self._carry_out(action, broker)
        unsent = [
            (mark, request)
            for mark, request in due_requests(
                self._runs, self._outputs, self.config, now, self._since
            )
            if mark not in self._sent
        ]
        for first in range(0, len(unsent), _MOST_AT_ONCE):
            self._ask(unsent[first : first + _MOST_AT_ONCE], broker)
        for report in reports(self._runs, self.config, now):
            if (mark := f"report {report.id}") not in self._sent:
                self._carry_out(report, broker)
                self._sent[mark] = now
        self._tell_fetched(broker, now)
        self._sent = {m: at for m, at in self._sent.items() if abs(now - at) <= _KEPT_MARKS_S}
        raise Later(SWEEP_S if self._tell_ports(live, broker) else PORTS_S)

    def _tell_fetched(self, broker: BrokerClient, now: float) -> None:
        """What was fetched by URL is in the schedd's history as the job begins to run."""
        recent = {state.run: state for state in fetching(self._runs, now)}
        self._looks = Counter({run: n for run, n in self._looks.items() if run in recent})
        runs = [run for run in recent if self._looks[run] < _MOST_LOOKS]
        if not runs:
            return
        try:
            transfers = self._schedd.input_history(runs)
            self._looks.update(runs)
            for run, ad in transfers.items():
                paths = input_releases(
                    recent[run], ad, self.config, self._rates, self._schedd.disk_waits
                )
                for report in paths:
                    self._carry_out(report, broker)
                self._looks[run] = _MOST_LOOKS
        except AdonError as error:
            if isinstance(error, BrokerError):
                raise
            self._log_once("schedd's history", error)

    def _hear(self) -> bool:
        """Take into account what happened; whether anything did."""
        happened = self._read()
        self._runs.feed(happened)
        self._learn()
        return bool(happened)

    def _read(self) -> list[RunEvent]:
        try:
            happened = list(self._events.read())
        except AdonError as error:
            self._log_once("events", error)
            return []
        self._logged.pop("events", None)
        return happened

    def _learn(self) -> None:
        names = set()
        for state in self._runs:
            name = state.run.transit("out")
            names.add(name)
            if state.sent_bytes is not None and name not in self._learned:
                self._outputs.learn(state)
                self._learned.add(name)
        self._learned &= names

    def _live(self, broker: BrokerClient) -> tuple[list[Transit], Mapping[str, QueuedJob] | None]:
        """What the broker holds for runs of this access point, and the state of their jobs."""
        states = (TransitState.QUEUED, *sorted(LIVE))
        transits = {t.id: t for state in states for t in broker.list(state=state)}
        if not any(parsed(name) for name in transits):
            return [], {}
        try:
            mine = of_schedd(transits.values(), self._schedd.name())
            runs = [whose[0] for t in mine if (whose := parsed(t.id))]
            queue = self._schedd.jobs({run.job for run in runs}) if runs else {}
            self._logged.pop("schedd", None)
        except AdonError as error:
            self._log_once("schedd", error)
            known = {state.run for state in self._runs}
            whose_runs = ((t, parsed(t.id)) for t in transits.values())
            return [t for t, whose in whose_runs if whose and whose[0] in known], None
        return mine, queue

    def _carry_out(self, action: Release | Renew, broker: BrokerClient) -> None:
        try:
            if isinstance(action, Renew):
                broker.renew(action.id, action.lease_s)
                return
            note = {"note": action.note} if action.note else {}
            broker.release(action.id, action.bytes_moved, action.seconds, action.outcome, **note)
            log.info("%s: released: %s", action.id, action.note or action.outcome)
            if action.bytes_moved:
                self._sent[f"report {action.id}"] = self._now()
        except BrokerError as error:
            if error.code in AWAY:
                raise
            if error.code != "unknown_transit":  # the report was not requested
                self._log_once(action.id, error)  # one that is refused does not block others

    def _ask(self, unsent: Sequence[tuple[str, TransitRequest]], broker: BrokerClient) -> None:
        answers = broker.ask([request for _, request in unsent])
        for (mark, request), answer in zip(unsent, answers, strict=True):
            self._sent[mark] = self._now()
            if answer.transit is not None:
                got = answer.transit
                log.info("%s: %s%s", got.id, got.state, f": {got.reason}" if got.reason else "")
            else:
                log.warning("%s: best effort: %s", request.id, answer.error)

    def _tell_ports(self, live: Sequence[Transit], broker: BrokerClient) -> bool:
        """Say which packets are whose of the transfers that run; whether there is no more to see
        soon."""
        moving = transferring(live, self._runs)
        self._ports = {name: ends for name, ends in self._ports.items() if name in moving}
        ports = self._ports_of({number for number, _ in moving.values()}) if moving else {}
        for name, (number, direction) in moving.items():
            ends = ports.get(number, ())
            if ends in ((), self._ports.get(name)):
                continue
            try:
                broker.report_flows(name, flows(ends, direction == "in"))
                self._ports[name] = ends
            except BrokerError as error:
                if error.code in AWAY:
                    raise
                self._log_once(name, error)  # its two hosts are the finest then
        return self._ports.keys() >= moving.keys() or not has_begun(self._runs, self._now())

    def _log_once(self, what: str, error: AdonError) -> None:
        """Say it once, not at every look."""
        if self._logged.get(what) != str(error):
            self._logged[what] = str(error)
            log.warning("%s: %s", what, error)
