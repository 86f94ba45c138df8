"""After a job: release every path, with what the transfer moved.

The job's decision file names its transits; the records of ``pegasus-transfer``
(:mod:`monitors.workflows.logs.transferlog`) tell bytes and seconds of each pair. Releasing twice is
harmless, so this may run again; what cannot be released because the broker is away is recorded,
and the watcher or its lease ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from monitors.watcher.decision_file import Pair
from monitors.workflows.logs import transferlog
from monitors.workflows.logs.transferlog import TransferAttempt, seconds_of
from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.moves import Moves
from monitors.workflows.planned.transferlist import SitePair, is_relay
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit
from network_provisioner.base.units import goodput
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import UNASKED, Effects, give_back, ids_of
from pegasus_hooks.prepost import sizes, tuning
from pegasus_hooks.prepost.decision import to_give_back
from pegasus_hooks.prepost.prejob import MULTIPART_ENDING, HookedJob, job_requests, moves_at

_FILE_CLOCK_S = 2.0  # coarse file times must not hide a record written right after PRE


@dataclass(frozen=True, slots=True)
class PairResult:
    """The result of one site pair. ``n_bytes`` is None if a size is unknown."""

    n_bytes: int | None
    seconds: float
    files: int
    failed_attempts: int


_NOTHING = PairResult(None, 0.0, 0, 0)


def located_attempts(attempts: Iterable[TransferAttempt], moves: Moves) -> list[TransferAttempt]:
    """The attempts with the sites that their ends really are at: the tool writes the labels of its
    list, and calls the machine that it relays over ``local`` wherever that is."""
    listed = {url for pair in moves.pairs for transfer in pair.transfers for url in transfer.urls}

    def site(label: str, url: str) -> str:
        return moves.site if is_relay(label, url, listed) else moves.site_of(label, url)

    return [replace(a, src=site(a.src, a.src_url), dst=site(a.dst, a.dst_url)) for a in attempts]


def pair_result(
    pair: SitePair, attempts: Iterable[TransferAttempt], known: Mapping[str, int]
) -> PairResult:
    """Bytes and seconds of what ``pair`` moved.

    Bytes are those of the record, else the declared size, else ``known`` (by lfn). Files that one
    call of a tool moved share start and duration and count their time once; calls that ran side by
    side count no more than the span from first start to last end.
    """
    # pegasus-transfer writes site labels with "_" for "-".
    ends = (pair.src.replace("-", "_"), pair.dst.replace("-", "_"))
    mine = [a for a in attempts if (a.src.replace("-", "_"), a.dst.replace("-", "_")) == ends]
    done = [a for a in mine if a.success]
    declared = {t.lfn: t.size_bytes for t in pair.transfers}
    total: int | None = 0
    for lfn, n_bytes in {a.lfn: a.n_bytes for a in done}.items():
        size = n_bytes if n_bytes is not None else declared.get(lfn)
        size = size if size is not None else known.get(lfn)
        total = None if total is None or size is None else total + size
    return PairResult(total if done else None, seconds_of(done), len(done), len(mine) - len(done))


def run(
    files: PlannedFiles,
    retry: int,
    exit_code: int,
    config: HookConfig,
    effects: Effects,
) -> None:
    """Give back and record. Raises InputError if the submit directory cannot be read; the
    broker's failures are recorded, not raised: the watcher tells it later."""
    place, decision_file = HookedJob(files, retry, effects.now()), files.decision
    moves = moves_at(files)
    if moves is None:
        return
    decision = job_files.read_json(decision_file)
    pairs = _requested(decision, place, moves, config)
    measured = measure(place, moves, decision)
    outcome = "success" if exit_code == 0 else f"exit {exit_code}"
    head = {"at": place.at, "hook": "post", "job": files.job, "retry": retry}
    lines: list[dict[str, Any]] = []
    for pair in pairs:
        result, used = measured.get((pair.src, pair.dst), (_NOTHING, {}))
        transit, given_back = _release(pair, result, outcome, used, effects)
        line = {**_line(pair, result, outcome, transit), **used, "given_back": given_back}
        lines.append({**head, "event": "transfer", **line})
    if decision and decision.get("retry") == retry:
        ids = {pair.id for pair in pairs}
        left = {i: u for i, u in to_give_back(decision).items() if i not in ids}
        decision["left_over"] = sorted(give_back(left, effects))
        done = all(line["given_back"] for line in lines)
        decision["given_back"] = done and not decision["left_over"]
        job_files.write_json(decision_file, decision)
    lines += [{**head, "event": "warning", "reason": reason} for reason in effects.warnings]
    job_files.append_lines(files.submit_dir / job_files.HOOK_JOURNAL, lines)


def measure(
    place: HookedJob, moves: Moves, decision: Mapping[str, Any]
) -> dict[tuple[str, str], tuple[PairResult, dict[str, int]]]:
    """By (source, destination) what the job moved, and what it used as ``release`` takes it.

    Raises InputError if the submit directory cannot be read.
    """
    known, estimates = sizes.sizes_for(moves.pairs, place.files, moves.site)
    # Estimates are good enough to ask by, but nothing that was measured.
    known = {lfn: size for lfn, size in known.items() if lfn not in estimates}
    attempts = _attempts(place.files, decision, moves)
    tuned = decision.get("tuned") if decision.get("retry") == place.retry else None
    return {
        (pair.src, pair.dst): (
            pair_result(pair, attempts, known),
            tuning.used_tuning(pair, tuned if isinstance(tuned, dict) else {}),
        )
        for pair in moves.pairs
    }


def _requested(
    decision: Mapping[str, Any],
    place: HookedJob,
    moves: Moves,
    config: HookConfig,
) -> list[Pair]:
    """What PRE requested; where it left nothing (killed, disk full) what it would have."""
    pairs = decision.get("pairs")
    if decision.get("retry") == place.retry and isinstance(pairs, list):
        complete = [pair for pair in map(Pair.of, pairs) if pair and pair.src and pair.dst]
        if complete:
            return complete
    requests = [job_request.request for job_request in job_requests(place, moves, config)]
    return [Pair(request.id, request.src, request.dst) for request in requests]


def _attempts(
    files: PlannedFiles, decision: Mapping[str, Any], moves: Moves
) -> list[TransferAttempt]:
    since = decision.get("at", 0.0)
    since = since - _FILE_CLOCK_S if isinstance(since, int | float) else 0.0
    try:
        transfer_attempts = transferlog.read_dir(files.file(MULTIPART_ENDING), since)
        if not transfer_attempts:
            # PegasusLite puts the same records into the job's output.
            output = files.file(".out")
            transfer_attempts = transferlog.parse(
                output.read_text(encoding="utf-8", errors="replace")
            )
    except OSError:
        return []
    return located_attempts(transfer_attempts, moves)


def _release(
    pair: Pair,
    result: PairResult,
    outcome: str,
    used: Mapping[str, int],
    effects: Effects,
) -> tuple[Transit | None, bool]:
    """The broker's last word on a transit, and whether nothing is left to release."""
    # Nobody knows the bytes: 0, and the broker looks at its switches' counters.
    n_bytes = result.n_bytes or 0
    unanswered = pair.state == UNASKED
    transit = None
    try:
        for transit_id in ids_of(pair.id) if unanswered else [pair.id]:
            transit = effects.budget.call(
                partial(
                    effects.broker.release, transit_id, n_bytes, result.seconds, outcome,
                    retries=result.failed_attempts, files=result.files, **used,
                )
            )  # fmt: skip
    except BrokerError as error:
        if error.code == "unknown_transit" and not pair.granted_bps:
            return transit, True  # what was never granted is not there to be released
        effects.warnings.append(f"{pair.id}: ends with its lease: {error}")
        return None, False
    return transit, True


def _line(pair: Pair, result: PairResult, outcome: str, transit: Transit | None) -> dict[str, Any]:
    n_bytes = result.n_bytes
    source = "transfer"
    if n_bytes is None and transit is not None and transit.usage.switch_bytes:
        n_bytes, source = transit.usage.switch_bytes, "switch"
    return {
        "id": pair.id,
        "src": pair.src,
        "dst": pair.dst,
        "files": result.files,
        "failed_attempts": result.failed_attempts,
        "bytes": n_bytes,
        "bytes_source": source if n_bytes is not None else "unknown",
        "seconds": result.seconds,
        "goodput_bps": goodput(n_bytes or 0, result.seconds),
        "outcome": outcome,
        "state": str(transit.state) if transit is not None else pair.state,
        "path": list(transit.grant.path) if transit is not None else list(pair.path),
    }
