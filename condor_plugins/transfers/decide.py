"""What the watcher has to do: pure functions of what is so now.

It compares what the broker holds for runs with what those runs still need, so that it makes no
difference what was missed, done twice, or done by a watcher that was killed meanwhile. It also asks
for paths for output, and tells why input went without one and what transfers came to.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from condor_plugins.jobs import request_builder
from condor_plugins.jobs.jobad import CLUSTERS, JobAd, no_transfer, number, text
from condor_plugins.jobs.request_builder import (
    Direction,
    Run,
    is_url,
    parsed,
    queue_number,
    shadow_number,
)
from condor_plugins.jobs.sites import site_of_match
from condor_plugins.transfers.run_state import RunState, RunStates
from condor_plugins.urls.sources import paths_of, url_request
from condor_plugins.urls.transfer_history import Ad, UsualRates, plugins_s, slow, url_transfers
from monitors.jobs.executions import Phase
from network_provisioner.base.model import ON_SWITCHES, Transit, TransitRequest
from network_provisioner.base.units import goodput
from network_provisioner.client.hookconfig import HookConfig

# The event right after the end of a transfer says whether it succeeded, and how much was sent.
_SETTLES_S = 1.0
_OPENS_S = 5.0  # from its event until all its connections are open
_UNSETTLED = (Phase.SENT, Phase.MOVED)
_WITH_OUTPUT = ("success", "evicted")  # ends of a run before which output may be sent
_RENEW_BELOW_S, RENEWED_S = 60.0, 180.0
_HOLDING = (2, 6, 7)  # JobStatus of a job that has a slot: running, sending output, suspended
_BLOCKED = 9  # the same, of one that waits for common files
_LAST, _KINDS = 7, 1000  # runs remembered of each kind of job, and kinds of jobs
# Output that takes less is sent before a watcher of its event can request a path.
_QUICK_S = 1.0
_LEAD_S = 5.0  # between two looks, and for the path to be there
RECENT_S = 3600.0  # what happened earlier is of no interest any more
_TOO_LATE = "best effort: output had been sent before a path could be asked for"
_SILENT = "best effort: the hook before the transfer did not answer"


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """What the schedd says of a job. ``executing_since`` is in Unix seconds, 0 if it never
    began; ``sending`` is None if it does not say."""

    status: int
    starts: int
    executing_since: float = 0.0
    sending: bool | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Give a transit back, with what moved; ``note`` says why that was slow."""

    id: str
    bytes_moved: int
    seconds: float
    outcome: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Renew:
    """Let a lease last longer."""

    id: str
    lease_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """What there is to go by. ``queue`` has the jobs of live transits that are in the schedd's
    queue; it is None if it did not answer. ``now`` is in Unix seconds."""

    runs: RunStates
    queue: Mapping[str, QueuedJob] | None
    now: float


def of_schedd(transits: Iterable[Transit], schedd: str) -> list[Transit]:
    """Those of runs of one schedd's jobs: others have a watcher of their own."""
    return [
        t
        for t in transits
        if (run := parsed(t.id)) and (queue_number(run[0].job) or [""])[0] == schedd
    ]


def actions_for(live: Sequence[Transit], known: Observation) -> list[Release | Renew]:
    """What to do with the live transits of our schedd: each is kept, renewed or released."""
    actions: list[Release | Renew] = []
    for transit in live:
        whose = parsed(transit.id)
        if whose is None:
            continue
        run, way = whose
        state = known.runs.get(run)
        over = _over(transit, run, way, state, known)
        if over:
            actions.append(_release(transit, way, state, over))
        elif _runs_out(transit, known.now) and _is_sure(run, state, known):
            actions.append(Renew(transit.id, RENEWED_S))
    return actions


def settling(runs: RunStates, now: float) -> bool:
    """Whether something must be looked at again at once, although nothing happens."""
    return any(c.phase in _UNSETTLED and abs(now - c.at) <= 2 * _SETTLES_S for c in runs)


def transferring(
    live: Iterable[Transit], runs: RunStates
) -> dict[str, tuple[tuple[int, int], Direction]]:
    """The transits whose transfers run now: cluster and process of the job, and which way."""
    moving = {}
    for transit in live:
        run, way = parsed(transit.id) or (None, None)
        if run is None or way is None or transit.state not in ON_SWITCHES or is_url(transit.id):
            continue
        state, number = runs.get(run), shadow_number(run.job)
        if state is None or number is None:
            continue
        phase, span = (Phase.INPUT, state.input) if way == "in" else (Phase.OUTPUT, state.output)
        if state.phase is phase and span.start:  # before, its connection is not open
            moving[transit.id] = number, way
    return moving


def has_begun(runs: RunStates, now: float) -> bool:
    """Whether a transfer began lately: its connections may be about to be opened."""
    return any(
        state.phase in (Phase.INPUT, Phase.OUTPUT) and abs(now - state.at) <= _OPENS_S
        for state in runs
    )


def _over(
    transit: Transit, run: Run, way: Direction, state: RunState | None, known: Observation
) -> str:
    """Why a transit is needed no more, empty if it is."""
    if state is not None:
        done = _in_over(state) if way == "in" else _out_over(state)
        if done:
            return done if _settled(state, known.now) else ""
    if known.queue is None:
        return ""
    return _over_by_queue(transit, run, way, state, known.queue.get(run.queued_job))


def _over_by_queue(
    transit: Transit, run: Run, way: Direction, state: RunState | None, job: QueuedJob | None
) -> str:
    """The same, of a run whose events say nothing or were missed."""
    if job is None:
        return "gone"
    if run.common:
        if job.status == _BLOCKED:
            return ""
        return "success" if job.status in _HOLDING else "broken off"
    if not _has_slot(job, run):
        return "broken off"
    if way == "in":
        return "success" if job.executing_since > transit.request.requested_at else ""
    return "success" if state is None and job.sending is False else ""


def _settled(state: RunState, now: float) -> bool:
    # Either way: a clock that was set back is no reason to wait.
    return state.phase not in _UNSETTLED or abs(now - state.at) >= _SETTLES_S


def _in_over(state: RunState) -> str:
    if state.phase <= Phase.INPUT:
        return ""
    if state.phase is Phase.OVER and not state.ran:
        return state.how
    return "success" if state.ran or state.phase is Phase.SENT else "broken off"


def _out_over(state: RunState) -> str:
    if state.phase is Phase.OUTPUT or _may_send(state):
        return ""
    if state.phase is Phase.OVER:
        arrived = state.output.end and state.how in _WITH_OUTPUT
        return "success" if arrived else state.how
    return "success" if state.phase is Phase.MOVED else "broken off"


def _may_send(state: RunState) -> bool:
    """Whether its output may be asked for before it is sent."""
    return state.phase is Phase.RUNNING and not state.breaks


def _has_slot(job: QueuedJob, run: Run) -> bool:
    return job.status in _HOLDING and job.starts == run.starts


def _release(transit: Transit, way: Direction, state: RunState | None, outcome: str) -> Release:
    if state is None or outcome != "success" or (way == "in" and _has_parts(state)):
        return Release(transit.id, 0, 0.0, outcome)
    span = state.input if way == "in" else state.output
    moved_bytes = transit.request.size_bytes if way == "in" else state.sent_bytes
    # A rate needs both figures: seconds without bytes would look like a transfer of nothing.
    return Release(transit.id, moved_bytes or 0, span.seconds if moved_bytes else 0.0, outcome)


def _runs_out(transit: Transit, now: float) -> bool:
    return transit.state in ON_SWITCHES and transit.grant.lease_until - now < _RENEW_BELOW_S


def _is_sure(run: Run, state: RunState | None, known: Observation) -> bool:
    """Whether the run is known to be on: without that, its lease is what ends it."""
    job = None if known.queue is None else known.queue.get(run.queued_job)
    if job is not None:
        return job.status == _BLOCKED if run.common else _has_slot(job, run)
    return state is not None and state.phase in (Phase.INPUT, Phase.OUTPUT)


class OutputHistory:
    """What runs sent back, by what they ran: the transformation where Pegasus names it, else the
    program, for each owner."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], deque[_Sent]] = OrderedDict()

    def learn(self, state: RunState) -> None:
        """Remember what a run sent, where HTCondor says so."""
        if state.sent_bytes is None:
            return
        kind = _kind(state.ad)
        ran_s = max(0.0, state.output.start - state.began) if state.began else 0.0
        seen = self._seen.setdefault(kind, deque(maxlen=_LAST))
        seen.append(_Sent(state.sent_bytes, state.output.seconds, ran_s))
        self._seen.move_to_end(kind)
        if len(self._seen) > _KINDS:
            self._seen.popitem(last=False)

    def expected(self, ad: JobAd) -> int | None:
        """The median of what its like sent; else what its sandbox holds beyond its input, the most
        it can send; None if neither is known."""
        if seen := self._seen.get(_kind(ad)):
            return int(median(output.n_bytes for output in seen))
        used, got = number(ad, "DiskUsage"), number(ad, "AdonInBytes")
        return None if used is None else max(0, int(used * 1024 - (got or 0)))

    def soon(self, ad: JobAd, ran_s: float) -> int | None:
        """What a job will send that has run for ``ran_s`` seconds, where that will be too quick to
        be asked for as it is sent and may begin any moment; else None."""
        seen = self._seen.get(_kind(ad), ())
        if not seen or median(output.seconds for output in seen) >= _QUICK_S:
            return None
        return (
            self.expected(ad) if ran_s >= min(output.ran_s for output in seen) - _LEAD_S else None
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a run sent, how long that took, and how long it had run before."""

    n_bytes: int
    seconds: float
    ran_s: float


def _kind(ad: JobAd) -> tuple[str, str]:
    program = text(ad, "pegasus_wf_xformation", "Cmd")
    if program in CLUSTERS:  # merge_t-run-1_0_PID1_ID1
        program = text(ad, "DAGNodeName").partition("_PID")[0]
    return text(ad, "Owner"), program


def due_requests(
    runs: RunStates, outputs: OutputHistory, config: HookConfig, now: float, since: float
) -> Iterator[tuple[str, TransitRequest]]:
    """Every request with a mark by which one that was made is known again. ``since`` is when
    somebody began to make them, in Unix seconds: what output went before that is not known."""
    for state in runs:
        if now - state.at > RECENT_S:
            continue
        reason = _untold(state)
        for path in paths_of(state.ad) if reason else ():
            request = url_request(state.ad, state.run, path, config)
            yield request.id, replace(request, best_effort=reason)
        if not _crosses(state, config):
            continue
        mark = f"{state.run.transit('out')}@{state.breaks}"
        if state.phase is Phase.OUTPUT and state.output.start:
            yield mark, _request(state, "out", outputs.expected(state.ad), config)
        elif (sent := _arrived(state)) and state.output.start >= since:
            request = _request(state, "out", sent, config)
            yield mark, replace(request, best_effort=_TOO_LATE)
        elif soon := _may_send(state) and outputs.soon(state.ad, now - state.began):
            yield mark, _request(state, "out", soon, config)
        if reason and state.ad.get("AdonInState") != "none":
            size = number(state.ad, "AdonInBytes")
            request = _request(state, "in", None if size is None else int(size), config)
            yield request.id, replace(request, best_effort=reason)


def reports(runs: RunStates, config: HookConfig, now: float) -> Iterator[Release]:
    """What transfers came to that arrived, of those, too, that went without a path: what best
    effort reaches is what paths are weighed against. A report says nothing new of a transit that
    was released with one."""
    for state in runs:
        if now - state.at > RECENT_S or not _crosses(state, config):
            continue
        answer, size = state.ad.get("AdonInState"), number(state.ad, "AdonInBytes")
        if (
            state.ran
            and answer != "none"
            and size
            and state.input.seconds
            and not _has_parts(state)
        ):
            yield _input_report(state, state.input.seconds)
        if sent := _arrived(state):
            yield Release(state.run.transit("out"), sent, state.output.seconds, "success")


def _input_report(state: RunState, seconds: float) -> Release:
    name = text(state.ad, "AdonInId")
    if parsed(name) != (state.run, "in"):  # not said, or another job's
        name = state.run.transit("in")
    return Release(name, int(number(state.ad, "AdonInBytes") or 0), seconds, "success")


def _has_parts(state: RunState) -> bool:
    """Whether its input came partly or all by URL: what each part took HTCondor's history reports,
    a little later. Of common files it tells nothing: all of them can but be one part."""
    paths = paths_of(state.ad)
    own = state.ad.get("AdonInState") != "none"
    return bool(paths) and not (state.run.common and len(paths) + own == 1)


def fetching(runs: RunStates, now: float) -> Iterator[RunState]:
    """Runs that have fetched what URLs name."""
    for state in runs:
        recent = now - state.at <= RECENT_S and not state.run.common
        if state.ran and recent and paths_of(state.ad):
            yield state


def input_releases(
    state: RunState,
    history: Ad,
    config: HookConfig,
    rates: UsualRates,
    disk_waits: Callable[[str, float], bool],
) -> Iterator[Release]:
    """What the input of a run came to, by HTCondor's history of it. ``disk_waits`` says whether a
    machine has stood still for its disk since a time in Unix seconds."""
    paths, took_s = paths_of(state.ad), state.input.seconds
    came = url_transfers(history, {**config.sources, **{path.host: path.site for path in paths}})
    machine = text(state.ad, "RemoteHost").rpartition("@")[2]
    for path in paths:
        transfer = came.get(path.site)
        if transfer is None or not transfer.n_bytes:
            continue
        pair = path.site, site_of_match(state.ad)
        waits = partial(disk_waits, machine, transfer.start)
        note = slow(transfer, took_s, path.granted_bps, rates.usual(*pair), waits)
        rates.learn(*pair, goodput(transfer.n_bytes, transfer.seconds(took_s)))
        yield Release(path.id, transfer.n_bytes, transfer.seconds(took_s), "success", note)
    own_s = took_s - plugins_s(history)
    if state.ad.get("AdonInState") != "none" and own_s >= _SETTLES_S:
        yield _input_report(state, own_s)


def _arrived(state: RunState) -> int:
    """Bytes of output that arrived, 0 if none did or nobody knows how long it took."""
    known = state.how == "success" and state.output.seconds
    return state.sent_bytes or 0 if known else 0


def slots_without_site(runs: RunStates) -> Iterator[str]:
    """Slots without a site that files were sent to: nothing can be asked for them."""
    for state in runs:
        if state.input.start and not no_transfer(state.ad) and not site_of_match(state.ad):
            yield text(state.ad, "RemoteHost").rpartition("@")[2] or "a slot"


def _request(
    state: RunState, way: Direction, size: int | None, config: HookConfig
) -> TransitRequest:
    return request_builder.request(state.ad, state.run, way, size, config)


def _crosses(state: RunState, config: HookConfig) -> bool:
    return not no_transfer(state.ad) and not request_builder.missing_site_reason(
        state.ad, config.site or ""
    )


def _untold(state: RunState) -> str:
    """Why input goes without a path where the broker does not know it, empty elsewhere."""
    if not state.input.start:
        return ""
    if "AdonInState" not in state.ad:
        return _SILENT  # killed, or it could not be started
    if state.ad.get("AdonInTold") is not False:
        return ""
    return text(state.ad, "AdonInReason") or _SILENT
