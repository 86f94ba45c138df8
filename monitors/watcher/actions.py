"""What the watcher does at a broker for a workflow: give back, tell, request again, sweep."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from monitors.watcher.connections import Connection, flows
from monitors.watcher.decision_file import DecisionFile, Pair
from monitors.watcher.pending import AWAY, Later
from monitors.workflows.planned import job_files
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import (
    ENDED,
    LIVE,
    SEEN,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import UNASKED, RequestOutcome, ids_of, lease_of

log = logging.getLogger(__name__)

# A request of a hook that was killed may reach the broker after our first try to give it back.
_STRAGGLER_S = 2.0
_PROGRESS_S = 5.0  # between two looks at what a transfer has moved
_LOOK_S = 0.5  # and at its connections
_HELD_STATES = tuple(sorted({*LIVE, TransitState.QUEUED}))
# Leases have ended long before; where the submit directory is gone, too, nobody asks any more.
_KEPT_S, _KEPT_GONE_S = 86400.0, 600.0

Record = Callable[[str, dict[str, Any]], None]
"""Takes an event and its values for the journal of the submit directory."""
ConnectionsOf = Callable[[str, str], set[Connection]]
"""What the processes of a workflow's job have open now on this machine."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A workflow that is watched: its uuid, where it was planned to, and the configuration of its
    hooks."""

    workflow: str
    submit_dir: Path
    config: HookConfig


@dataclass(frozen=True, slots=True)
class TransferResult:
    """What a transfer moved in bytes and seconds, and what it used of what ``release`` takes."""

    n_bytes: int = 0
    seconds: float = 0.0
    used: dict[str, int] = field(default_factory=dict)


class JobFiles(Protocol):
    """What a job's own files say."""

    def measure(self, watched: Watched, decision: DecisionFile, pair: Pair, /) -> TransferResult:
        """What the transfer of a pair moved, as its POST would tell it."""
        ...

    def requests_of(self, watched: Watched, decision: DecisionFile, /) -> list[TransitRequest]:
        """What the job's PRE asks for. Raises InputError."""
        ...


@dataclass(slots=True)
class _Action:
    """At the broker of one workflow; see :class:`~monitors.watcher.pending.PendingAction`."""

    watched: Watched
    record: Record

    @property
    def owner(self) -> str:
        """The workflow."""
        return self.watched.workflow

    @property
    def config(self) -> HookConfig:
        """Of its hooks."""
        return self.watched.config

    @property
    def kept_s(self) -> float:
        """Shorter where the submit directory is gone."""
        return _KEPT_S if self.watched.submit_dir.is_dir() else _KEPT_GONE_S


@dataclass(slots=True)
class _OfDecision(_Action):
    decision: DecisionFile

    def note(self, event: str, transit_id: str, **values: Any) -> None:
        """Record what was done to a transit."""
        head = {"job": self.decision.job, "retry": self.decision.retry, "id": transit_id}
        self.record(event, {**head, **values})


@dataclass(slots=True)
class GiveBack(_OfDecision):
    """Release what one pair of a decision got. ``why`` is recorded where the broker never heard of
    it: the transfer then goes, or would have gone, as best effort."""

    pair: Pair
    outcome: str
    files: JobFiles
    why: str = ""
    _unknown: bool = False

    @property
    def key(self) -> str:
        """Of this run of PRE: another may get the same id."""
        return f"give back {self.pair.id} of {self.decision.at}"

    def do(self, broker: BrokerClient, /) -> None:
        """See PendingAction."""
        current = DecisionFile.read(self.decision.file)
        same = current.same_run(self.decision)
        if current.given_back if same else self.pair.id in current.ids:
            return  # POST was there in the meantime, or a later PRE has it
        unsure = same and self.pair.state in ("", UNASKED)
        known = False
        # A hook that was killed did not write down under which number it got its path.
        for name in ids_of(self.pair.id) if unsure else (self.pair.id,):
            if name != self.pair.id and name in current.ids:
                continue
            transit = _known(broker, name)
            if transit is None:
                break
            known = True
            self._release(broker, transit)
        if known or not unsure:
            return
        if not self._unknown:
            self._unknown = True
            raise Later(_STRAGGLER_S)
        if self.why and not self.pair.told:
            broker.ask([best_effort_request(self.watched, self.decision, self.pair, self.why)])
            self.note("told", self.pair.id, reason=self.why)

    def _release(self, broker: BrokerClient, transit: Transit) -> None:
        ended = transit.state in ENDED
        if ended and (transit.usage.bytes or transit.usage.seconds):
            broker.release(transit.id)  # no more, but raises while that is not written down
            return
        moved = self.files.measure(self.watched, self.decision, self.pair)
        if ended and not moved.seconds:
            return  # its lease ended, and there is nothing to tell
        name = transit.id
        transit = broker.release(name, moved.n_bytes, moved.seconds, self.outcome, **moved.used)
        self.note("given_back", name, outcome=self.outcome, state=str(transit.state))


@dataclass(slots=True)
class ReportProgress(_OfDecision):
    """Say once what the transfer of a pair has moved: where it met no rule on the switches, its
    room is for others. ``running`` says whether the job still runs."""

    pair: Pair
    files: JobFiles
    running: Callable[[], bool]

    @property
    def key(self) -> str:
        """Of this transit."""
        return f"progress of {self.pair.id}"

    def do(self, broker: BrokerClient, /) -> None:
        """See PendingAction."""
        if not self.running():
            return
        moved = self.files.measure(self.watched, self.decision, self.pair)
        if not moved.n_bytes:
            raise Later(_PROGRESS_S)
        transit = broker.report_progress(self.pair.id, moved.n_bytes)
        if transit.request.ports_at == SEEN and not transit.request.flows:
            # Nobody can see its connections.
            with suppress(BrokerError):  # the packets go another way
                broker.report_flows(self.pair.id, ())
        if transit.state is TransitState.INSTALLED:  # its packets may be counted late
            raise Later(_PROGRESS_S)
        if transit.state is TransitState.BEST_EFFORT:
            self.note("given_back", self.pair.id, reason=transit.reason)


@dataclass(slots=True)
class ReportFlows(_OfDecision):
    """Say which packets are those of a pair, by the connections that the job has open now. One that
    is gone at the next look is not worth a change of the switches: while there are such alone, all
    packets between the two hosts are meant."""

    pair: Pair
    open_now: ConnectionsOf
    running: Callable[[], bool]
    _before: set[Connection] = field(default_factory=set)
    _told: set[Connection] | None = None

    @property
    def key(self) -> str:
        """Of this transit."""
        return f"flows of {self.pair.id}"

    def do(self, broker: BrokerClient, /) -> None:
        """See PendingAction."""
        if not self.running():
            return
        reports = {
            connection
            for connection in self.open_now(self.watched.workflow, self.decision.job)
            if not self.pair.far or connection.far == self.pair.far
        }
        last = reports & self._before
        if reports and self._before and last != self._told:
            try:
                named = flows((connection.ends for connection in last), self.pair.client == "src")
                broker.report_flows(self.pair.id, named)
            except BrokerError as error:
                if error.code in AWAY:
                    raise
                log.info("%s: %s", self.pair.id, error)  # others have these packets
            self._told = last
        self._before = reports
        raise Later(_LOOK_S)


@dataclass(slots=True)
class Tell(_OfDecision):
    """Let the broker know of a transfer that runs without a path, and why: its hook could not."""

    pair: Pair

    @property
    def key(self) -> str:
        """Of this transit."""
        return f"tell of {self.pair.id}"

    def do(self, broker: BrokerClient, /) -> None:
        """See PendingAction."""
        if _known(broker, self.pair.id) is not None:
            return  # only the answer was lost: its state says what it became
        request = best_effort_request(self.watched, self.decision, self.pair, self.pair.reason)
        refused = [answer.error for answer in broker.ask([request]) if answer.error is not None]
        event = "untold" if refused else "told"
        self.note(event, self.pair.id, reason=str(refused[0]) if refused else self.pair.reason)


@dataclass(slots=True)
class RequestAgain(_OfDecision):
    """Request the paths of a job that runs again after it was held or evicted.

    ``wanted`` says whether it still does; ``got`` takes the decision with its new ids.
    """

    files: JobFiles
    wanted: Callable[[], bool]
    got: Callable[[DecisionFile], None]

    @property
    def key(self) -> str:
        """Of this decision."""
        return f"request again for {self.decision.file} {self.decision.ids}"

    def do(self, broker: BrokerClient, /) -> None:
        """See PendingAction."""
        if not self.wanted():
            return
        requests = self.files.requests_of(self.watched, self.decision)
        answers = broker.ask(requests)
        before = {(pair.src, pair.dst): pair for pair in self.decision.pairs}
        pairs = []
        for request, answer in zip(requests, answers, strict=True):
            new = Pair(request.id, request.src, request.dst, size_bytes=request.size_bytes)
            pair = before.get((request.src, request.dst), new)
            outcome = RequestOutcome(request.id, UNASKED, str(answer.error))
            if (got := answer.transit) is not None:
                outcome = RequestOutcome(got.id, str(got.state), got.reason, True, got)
            pairs.append(pair.answered(outcome))
            self.note("asked_again", outcome.id, state=outcome.state, reason=outcome.reason)
        decision = replace(self.decision, pairs=tuple(pairs))
        self.got(decision)
        for answer in answers:
            if answer.transit is not None and (lease_s := lease_of(answer.transit)):
                with suppress(BrokerError):  # it has one, if not a long one
                    broker.renew(answer.transit.id, lease_s)
        _write_down(decision)


@dataclass(slots=True)
class Sweep(_Action):
    """Release whatever a workflow still holds when it has ended; ``wanted`` says whether it still
    has."""

    outcome: str
    wanted: Callable[[], bool]

    @property
    def key(self) -> str:
        """Of the workflow."""
        return f"sweep {self.watched.workflow}"

    def do(self, broker: BrokerClient, /) -> None:
        """See PendingAction."""
        for state in _HELD_STATES:
            for transit in broker.list(state=str(state), workflow=self.watched.workflow):
                if not self.wanted():
                    return
                broker.release(transit.id, outcome=self.outcome)
                words = {"job": transit.request.job, "id": transit.id, "outcome": self.outcome}
                self.record("given_back", words)


def best_effort_request(
    watched: Watched, decision: DecisionFile, pair: Pair, why: str
) -> TransitRequest:
    """The request that only records why there is no path."""
    return TransitRequest(
        id=pair.id,
        src=pair.src,
        dst=pair.dst,
        size_bytes=pair.size_bytes,
        template=watched.config.template,
        workflow=watched.workflow,
        job=decision.job,
        retry=decision.retry,
        best_effort=why,
        **decision.whose,
    )


def _known(broker: BrokerClient, transit_id: str) -> Transit | None:
    try:
        return broker.get(transit_id)
    except BrokerError as error:
        if error.code == "unknown_transit":
            return None
        raise


def _write_down(decision: DecisionFile) -> None:
    """Put the new ids where POST finds them; a PRE that wrote in the meantime is not disturbed."""
    data = job_files.read_json(decision.file)
    if decision.same_run(DecisionFile.of(decision.file, data)):
        data["pairs"] = [pair.as_json() for pair in decision.pairs]
        with suppress(OSError):  # disk full: the watcher itself remembers
            job_files.write_json(decision.file, data)
