"""After a job: give every path back, with what the transfer moved.

A transfer job's decision file names its transits; the records of ``pegasus-transfer`` tell bytes
and seconds of each pair. Releasing twice is harmless, so this may run again; what cannot be given
back because the broker is away is recorded, and its lease ends it. After a compute job the sizes of
the files it wrote go into the journal of sizes, where the next hook finds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from monitors import kickstart
from network_provisioner.errors import BrokerError
from network_provisioner.model import Transit, TransitState
from network_provisioner.units import goodput
from pegasus_hooks import submitdir, transferlist, transferlog
from pegasus_hooks.hookconfig import HookConfig
from pegasus_hooks.prejob import (
    MULTIPART_ENDING,
    UNASKED,
    Effects,
    JobPlace,
    place_of,
    requests_of,
)
from pegasus_hooks.transferlist import SitePair
from pegasus_hooks.transferlog import Attempt, PairResult

RECORD_PREFIX = "adon-job-record:"
_FILE_CLOCK_S = 2.0  # coarse file times must not hide a record written right after PRE
_TAIL_BYTES = 1 << 20

Keep = Callable[[Transit], None]


def run(
    submit_dir: Path,
    job: str,
    retry: int,
    exit_code: int,
    config: HookConfig,
    effects: Effects,
    keep: Keep | None = None,
) -> None:
    """Give back and record. ``keep`` takes results that no broker took. Raises InputError where
    the submit directory cannot be read; the broker's failures are recorded, not raised."""
    place, listing, decision_file = place_of(submit_dir, job, retry, effects.now())
    output = listing.with_suffix(".out")
    if not listing.exists():
        return
    entries = transferlist.read(listing)
    pairs = {(p.src, p.dst): p for p in transferlist.site_pairs(entries)}
    decision = submitdir.read_json(decision_file)
    asked = _asked(decision, place, listing, config)
    known = submitdir.known_sizes(submit_dir)
    attempts = _attempts(listing.with_name(job + MULTIPART_ENDING), output, decision)
    outcome = "success" if exit_code == 0 else f"exit {exit_code}"
    head = {"at": place.at, "hook": "post", "job": job, "retry": retry}
    lines: list[dict[str, Any]] = []
    for ask in asked:
        pair = pairs.get((ask["src"], ask["dst"]))
        result = _result(pair, attempts, known)
        transit, given_back = _release(ask, result, outcome, effects)
        line = {**_line(ask, result, outcome, transit), "given_back": given_back}
        lines.append({**head, "event": "transfer", **line})
        if transit is None and keep is not None:
            keep(_as_transit(ask, result, place))
    if decision and decision.get("retry") == retry:
        decision["given_back"] = all(line["given_back"] for line in lines)
        submitdir.write_json(decision_file, decision)
    lines += [{**head, "event": "warning", "reason": reason} for reason in effects.warnings]
    submitdir.append_lines(submit_dir / submitdir.HOOK_JOURNAL, lines)


def last_record(output: Path) -> dict[str, Any]:
    """The record that the planner's wrapper printed last into a job's output; empty for none."""
    text = _tail(output)
    for line in reversed(text.splitlines()):
        if line.startswith(RECORD_PREFIX):
            try:
                record = json.loads(line[len(RECORD_PREFIX) :])
            except ValueError:  # torn by a kill
                continue
            return record if isinstance(record, dict) else {}
    return {}


def _kickstarts_outputs(output: Path) -> dict[str, int]:
    """The same from what a real Pegasus's kickstart wrote, of all programs of a clustered job."""
    return {
        lfn: size
        for one in kickstart.invocations(_tail(output))
        for lfn, size in one.outputs.items()
    }


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def keep_sizes(submit_dir: Path, job: str) -> None:
    """Put the sizes of what a compute job wrote into the journal. Raises InputError as above."""
    dag = submitdir.dag_file(submit_dir, submitdir.braindump(submit_dir))
    output = submitdir.job_file(submit_dir, dag, job, ".out")
    outputs = last_record(output).get("outputs")
    if outputs is None:
        outputs = _kickstarts_outputs(output)
    if isinstance(outputs, dict):
        lines = [{"lfn": lfn, "bytes": size} for lfn, size in sorted(outputs.items())]
        submitdir.append_lines(submit_dir / submitdir.SIZE_JOURNAL, lines)


def _asked(
    decision: Mapping[str, Any], place: JobPlace, listing: Path, config: HookConfig
) -> list[dict[str, Any]]:
    """What PRE asked for; where it left nothing (killed, disk full) what it would have asked."""
    pairs = decision.get("pairs")
    if decision.get("retry") == place.retry and isinstance(pairs, list):
        found = [p for p in pairs if isinstance(p, dict) and {"id", "src", "dst"} <= p.keys()]
        if found:
            return found
    requests = requests_of(place, listing, config)
    return [{"id": r.id, "src": r.src, "dst": r.dst, "state": UNASKED} for r, _ in requests]


def _attempts(multipart: Path, output: Path, decision: Mapping[str, Any]) -> list[Attempt]:
    since = decision.get("at", 0.0)
    since = since - _FILE_CLOCK_S if isinstance(since, int | float) else 0.0
    try:
        if found := transferlog.read_dir(multipart, since):
            return found
        # PegasusLite puts the same records into the job's output.
        return transferlog.parse(output.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def _result(pair: SitePair | None, attempts: list[Attempt], known: Mapping[str, int]) -> PairResult:
    if pair is None:
        return PairResult(None, 0.0, 0, 0)
    return transferlog.pair_result(pair, attempts, known)


def _release(
    ask: Mapping[str, Any], result: PairResult, outcome: str, effects: Effects
) -> tuple[Transit | None, bool]:
    """The broker's last word on a transit, and whether nothing is left to give back."""
    # Nobody knows the bytes: 0, and the broker looks at its switches' counters.
    n_bytes = result.n_bytes or 0
    try:
        transit = effects.budget.call(
            lambda: effects.broker.release(ask["id"], n_bytes, result.seconds, outcome)
        )
    except BrokerError as error:
        # A request that never reached the broker is not there to be given back.
        nothing = error.code == "unknown_transit" and ask.get("state") == UNASKED
        if not nothing:
            effects.warnings.append(f"{ask['id']}: left to its lease: {error}")
        return None, nothing
    return transit, True


def _as_transit(ask: Mapping[str, Any], result: PairResult, place: JobPlace) -> Transit:
    """What the broker would know if it could be told."""
    return Transit(
        id=ask["id"],
        src=ask["src"],
        dst=ask["dst"],
        state=TransitState.RELEASED,
        workflow=place.workflow,
        job=place.job,
        retry=place.retry,
        path=list(ask.get("path", [])),
        layer=ask.get("layer", ""),
        granted_bps=ask.get("granted_bps", 0.0),
        released_at=place.at,
        bytes=result.n_bytes or 0,
        seconds=result.seconds,
    )


def _line(
    ask: Mapping[str, Any], result: PairResult, outcome: str, transit: Transit | None
) -> dict[str, Any]:
    n_bytes = result.n_bytes
    source = "transfer"
    if n_bytes is None and transit is not None and transit.switch_bytes:
        n_bytes, source = transit.switch_bytes, "switch"
    return {
        "id": ask["id"],
        "src": ask["src"],
        "dst": ask["dst"],
        "files": result.files,
        "failed_attempts": result.failed_attempts,
        "bytes": n_bytes,
        "bytes_source": source if n_bytes is not None else "unknown",
        "seconds": result.seconds,
        "goodput_bps": goodput(n_bytes or 0, result.seconds),
        "outcome": outcome,
        "state": str(transit.state) if transit is not None else ask.get("state", UNASKED),
        "path": list(transit.path) if transit is not None else ask.get("path", []),
    }
