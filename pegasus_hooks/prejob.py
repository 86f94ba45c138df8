"""Before a transfer job: ask the broker for a path for every pair of sites in its list.

    transfer list ─► site pairs and sizes ─► one request each ─► decision file, journal

Whatever happens the transfer runs: without a path it runs as best effort, and the reason is
recorded. The id of a request is ``<wf_uuid>:<job>:<retry>:<src>-<dst>``, so that a hook that runs
twice asks once; where that transit has already ended (a rescue DAG counts retries from 0 again) a
number is added. Before anything is asked the ids are on disk, so that whoever comes next can give
back what a killed hook got.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from network_provisioner.errors import BrokerError
from network_provisioner.model import ON_SWITCHES, Transit, TransitRequest, TransitState
from pegasus_hooks import submitdir, transferlist
from pegasus_hooks.hookconfig import HookConfig
from pegasus_hooks.identity import identity_of
from pegasus_hooks.patience import Broker, Budget

DECISION_ENDING = ".adon.json"
MULTIPART_ENDING = ".multipart"
UNASKED = "unasked"  # state of a pair whose broker never answered
_WAITING = frozenset({TransitState.QUEUED, TransitState.HELD})
_OVER = frozenset({TransitState.RELEASED, TransitState.EXPIRED})
_MAX_ROUNDS = 20  # rescue DAGs of one workflow; beyond it the job goes best effort
_FIRST_POLL_S, _LAST_POLL_S = 0.25, 2.0
# Nobody renews while a transfer runs, so a lease lasts twice what the granted rate needs, plus
# pegasus-transfer's own start.
_LEASE_FACTOR, _LEASE_EXTRA_S = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class JobPlace:
    """One transfer job of one workflow, what Pegasus noted of the workflow (braindump.yml), and
    when the hook began (Unix seconds)."""

    submit_dir: Path
    job: str
    retry: int
    workflow: str
    at: float
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairDecision:
    """What became of the request for one pair. Rates in bits per second."""

    id: str
    src: str
    dst: str
    files: int
    size_bytes: int | None
    state: str
    granted_bps: float = 0.0
    layer: str = ""
    path: tuple[str, ...] = ()
    reason: str = ""
    waited_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """As it stands in the decision file and the journal."""
        out: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        out["path"] = list(self.path)
        return out


@dataclass(slots=True)
class Effects:
    """The world of a hook: the broker, two clocks and sleep."""

    broker: Broker
    budget: Budget
    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    warnings: list[str] = field(default_factory=list)


def place_of(submit_dir: Path, job: str, retry: int, now: float) -> tuple[JobPlace, Path, Path]:
    """The job, its transfer list and its decision file. Raises InputError for no submit directory
    of Pegasus, or a job that the DAG does not know."""
    dump = submitdir.braindump(submit_dir)
    dag = submitdir.dag_file(submit_dir, dump)
    listing = submitdir.job_file(submit_dir, dag, job, ".in")
    place = JobPlace(submit_dir, job, retry, dump.get("wf_uuid", ""), now, dump)
    return place, listing, listing.with_name(job + DECISION_ENDING)


def requests_of(
    place: JobPlace, listing: Path, config: HookConfig
) -> list[tuple[TransitRequest, int]]:
    """One request, and its number of files, per site pair. Raises InputError for a bad list."""
    pairs = transferlist.site_pairs(transferlist.read(listing))
    undeclared = any(t.size_bytes is None for pair in pairs for t in pair.transfers)
    known = submitdir.known_sizes(place.submit_dir) if undeclared else {}
    submit_file = listing.with_name(place.job + ".sub")
    whose = asdict(identity_of(place.facts, submit_file, config.project)) if pairs else {}
    return [
        (
            TransitRequest(
                id=f"{place.workflow}:{place.job}:{place.retry}:{pair.src}-{pair.dst}",
                src=pair.src,
                dst=pair.dst,
                size_bytes=pair.size_bytes(known),
                template=config.template,
                workflow=place.workflow,
                job=place.job,
                retry=place.retry,
                **whose,
            ),
            len(pair.transfers),
        )
        for pair in pairs
    ]


def run(submit_dir: Path, job: str, retry: int, config: HookConfig, effects: Effects) -> None:
    """Ask for everything the job needs, and record what came of it. Raises InputError where the
    submit directory or the list cannot be read; the broker's failures are recorded, not raised."""
    place, listing, decision_file = place_of(submit_dir, job, retry, effects.now())
    if not listing.exists():
        return
    asks = requests_of(place, listing, config)
    before = _ids_to_give_back(decision_file)
    if not asks and not before:
        return
    # pegasus-transfer leaves its records there, and does not make it.
    listing.with_name(job + MULTIPART_ENDING).mkdir(exist_ok=True)
    undecided = [_decision(request, files, UNASKED) for request, files in asks]
    _write(decision_file, place, undecided, effects, before)
    # First, since it may hold the very room that is asked for now.
    others = {i for i in before if not any(_is_round(i, request) for request, _ in asks)}
    left = _give_back(others, effects)
    decisions = [
        _ask(request, files, before, config.patience_s, effects) for request, files in asks
    ]
    left |= _give_back(before - others - {d.id for d in decisions}, effects)
    _write(decision_file, place, decisions, effects, left)
    head = {"at": place.at, "hook": "pre", "job": job, "retry": retry}
    lines = [{**head, "event": "decision", **d.as_json()} for d in decisions]
    lines += [{**head, "event": "warning", "reason": reason} for reason in effects.warnings]
    submitdir.append_lines(submit_dir / submitdir.HOOK_JOURNAL, lines)


def _ask(
    request: TransitRequest, files: int, before: set[str], patience_s: float, effects: Effects
) -> PairDecision:
    started = effects.monotonic()
    current = request
    try:
        for current in _rounds(request):
            transit = effects.budget.call(partial(effects.broker.request, current))
            stale = current.id in before and transit.state is TransitState.BEST_EFFORT
            if transit.state not in _OVER and not stale:
                break
        transit = _wait(current, transit, started + patience_s, effects)
        transit = _lengthen(transit, effects)
    except BrokerError as error:
        reason = f"{request.src} to {request.dst}: best effort: {error}"
        effects.warnings.append(reason)
        # An answer that never came may still have been a path: POST gives back this id anyway.
        lost = _decision(current, files, UNASKED)
        return replace(lost, reason=reason, waited_s=effects.monotonic() - started)
    return PairDecision(
        id=transit.id,
        src=request.src,
        dst=request.dst,
        files=files,
        size_bytes=request.size_bytes,
        state=str(transit.state),
        granted_bps=transit.granted_bps,
        layer=transit.layer,
        path=tuple(transit.path),
        reason=transit.reason,
        waited_s=effects.monotonic() - started,
    )


def _rounds(request: TransitRequest) -> Iterator[TransitRequest]:
    yield request
    for number in range(2, _MAX_ROUNDS + 1):
        yield replace(request, id=f"{request.id}.{number}")


def _is_round(transit_id: str, request: TransitRequest) -> bool:
    """Whether an earlier run of the same hook may have asked for ``request`` under this id."""
    return transit_id == request.id or transit_id.startswith(f"{request.id}.")


def _wait(request: TransitRequest, transit: Transit, until: float, effects: Effects) -> Transit:
    """Follow a queued transit until it has a path or patience ends, then give it up."""
    pause = _FIRST_POLL_S
    while transit.state in _WAITING:
        left = until - effects.monotonic()
        if left <= 0:
            effects.budget.call(partial(effects.broker.release, request.id, outcome="gave_up"))
            reason = f"best effort: no path within the hook's patience ({transit.reason})"
            effects.warnings.append(f"{request.src} to {request.dst}: {reason}")
            return replace(transit, state=TransitState.BEST_EFFORT, reason=reason, granted_bps=0.0)
        effects.sleep(min(pause, left))
        pause = min(2 * pause, _LAST_POLL_S)
        transit = effects.budget.call(partial(effects.broker.request, request))
    return transit


def _lengthen(transit: Transit, effects: Effects) -> Transit:
    """A lease that outlasts the transfer at the granted rate, where the size is known."""
    if transit.state not in ON_SWITCHES or not transit.size_bytes:
        return transit
    if transit.granted_bps <= 0:
        return transit
    need_s = _LEASE_FACTOR * 8 * transit.size_bytes / transit.granted_bps + _LEASE_EXTRA_S
    if transit.lease_until - effects.now() >= need_s:
        return transit
    try:
        return effects.budget.call(partial(effects.broker.renew, transit.id, need_s))
    except BrokerError as error:
        effects.warnings.append(f"{transit.id}: the lease was not lengthened: {error}")
        return transit


def _give_back(ids: set[str], effects: Effects) -> set[str]:
    """Release what a former run of this hook left behind; returns what could not be released."""
    left = set()
    for transit_id in sorted(ids):
        try:
            effects.budget.call(partial(effects.broker.release, transit_id, outcome="abandoned"))
        except BrokerError as error:
            if error.code != "unknown_transit":
                left.add(transit_id)
                effects.warnings.append(f"{transit_id}: left to its lease: {error}")
    return left


def _decision(request: TransitRequest, files: int, state: str) -> PairDecision:
    return PairDecision(request.id, request.src, request.dst, files, request.size_bytes, state)


def _ids_to_give_back(decision_file: Path) -> set[str]:
    data = submitdir.read_json(decision_file)
    if data.get("given_back"):
        return set()
    ids = [pair.get("id") for pair in data.get("pairs", []) if isinstance(pair, dict)]
    return {i for i in [*ids, *data.get("left_over", [])] if isinstance(i, str)}


def _write(
    path: Path, place: JobPlace, decisions: list[PairDecision], effects: Effects, left: set[str]
) -> None:
    data = {
        "job": place.job,
        "retry": place.retry,
        "workflow": place.workflow,
        "at": place.at,
        "pairs": [d.as_json() for d in decisions],
        "warnings": effects.warnings,
        "left_over": sorted(left),
        "given_back": False,
    }
    submitdir.write_json(path, data)
