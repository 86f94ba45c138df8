"""Before a job: ask the broker for a path for every pair of sites that its files cross.

    what it moves ─► site pairs and sizes ─► one question ─► submit file tuned, decision, journal

Whatever happens the transfer runs: without a path it runs as best effort, and the reason is
recorded. The id of a request is ``<wf_uuid>:<job>:<retry>:<src>-<dst>``, so that a hook that runs
twice asks once; where that transit has already ended (a rescue DAG counts retries from 0 again) the
broker adds a number. Before anything is asked the ids are on disk, so that a process that comes
next can release what a killed hook got; where they cannot be, nothing is asked for that would
have to be released.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

from monitors.watcher.decision_file import WHOSE, Pair
from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import PlannedFiles
from monitors.workflows.planned.moves import Moves, moves_of
from monitors.workflows.planned.transferlist import SitePair, SiteUrl, is_local
from network_provisioner.base.model import SEEN, TransitRequest
from network_provisioner.base.urls import host_of
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import (
    Effects,
    Patience,
    RequestOutcome,
    RequestOutcomes,
    ask,
    give_back,
    may_be,
    tell,
)
from pegasus_hooks.prepost import decision as decisions
from pegasus_hooks.prepost import sizes, tuning
from pegasus_hooks.prepost.decision import PathDecision
from pegasus_hooks.prepost.keepsizes import keep_sizes_of_parents

_PROJECT = re.compile(
    r"^[ \t]*(?:(?:\+|MY\.)ProjectName|accounting_group)[ \t]*=[ \t]*(.*?)[ \t]*$", re.I | re.M
)
_LONGEST = 200  # characters of a name that is passed on
MULTIPART_ENDING = ".multipart"
# Outside PegasusLite nobody tells pegasus-transfer where to leave its records. $Fpn is HTCondor's:
# the path of the job's output without its ending.
_RECORDS = f"$Fpn(output){MULTIPART_ENDING}"
DEFER_STATUS = 4  # of a PRE that is to be run again later: ``SCRIPT DEFER 4 30 PRE <job> …``
_LATER = "its outputs leave when its program has ended: no path is kept that long"
Register = Callable[[Path, str], None]
"""Notes, for the watcher, that the workflow (by its uuid) in a submit directory runs."""


@dataclass(frozen=True, slots=True)
class TransferIdentity:
    """Empty if unknown."""

    user: str = ""
    project: str = ""
    experiment: str = ""
    application: str = ""


def identity_of(dump: Mapping[str, str], submit_text: str, project: str | None) -> TransferIdentity:
    """The identity of a job, by the braindump and the text of its submit file; ``project`` holds
    where that names none."""
    app = dump.get("app", "")
    label = dump.get("dax_label", "")
    return TransferIdentity(
        user=_name(dump.get("user", "")),
        project=_name(_project(submit_text) or project or ""),
        experiment=_name(app if app not in ("", "none", "null") else label),
        application=_name(label),
    )


def _project(submit_text: str) -> str:
    projects = [value.strip("\"'") for value in _PROJECT.findall(submit_text)]
    return projects[-1] if projects else ""  # as condor_submit: the last one counts


def _name(text: str) -> str:
    """What the broker takes as a name: printable, and no longer than a name should be."""
    return "".join(c for c in text if c.isprintable())[:_LONGEST]


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One request of a job, its number of files, their median size (0 if it is unknown), where
    sizes are from, and which end's machine moves them itself."""

    request: TransitRequest
    files: int
    file_bytes: int = 0
    size_source: str = ""
    client: str = ""

    def decision(self, answer: RequestOutcome | None = None) -> Pair:
        """What is on record of it, before and after it was answered."""
        r = self.request
        pair = Pair(
            r.id, r.src, r.dst, size_bytes=r.size_bytes, size_source=self.size_source,
            files=self.files, client=self.client,
        )  # fmt: skip
        return pair.answered(answer) if answer else pair


@dataclass(frozen=True, slots=True)
class HookedJob:
    """One run of a job, its files, and when the hook began (Unix seconds)."""

    files: PlannedFiles
    retry: int
    at: float

    @property
    def job(self) -> str:
        """Its name."""
        return self.files.job

    @property
    def workflow(self) -> str:
        """The workflow's UUID. Raises InputError."""
        return self.files.workflow


def moves_at(files: PlannedFiles) -> Moves | None:
    """What the job moves; None if it moves nothing. Raises InputError for a bad list."""
    transformation, site = (
        job_files.attribute(files.submit_text, name)
        for name in ("pegasus_wf_xformation", "pegasus_site")
    )
    return moves_of(files.file(".in"), files.job, transformation, site, files.cache)


def requests_of(place: HookedJob, config: HookConfig) -> list[TransitRequest]:
    """One request for each site pair whose files move when the job begins. Raises InputError for no
    submit directory of Pegasus, a job that the DAG does not know, or a bad list."""
    moves = moves_at(place.files)
    requests = job_requests(place, moves, config) if moves else []
    return [job_request.request for job_request in requests if not job_request.request.best_effort]


def job_requests(place: HookedJob, moves: Moves, config: HookConfig) -> list[JobRequest]:
    """What to ask for: a path for what moves when the job begins. What moves later is only told."""
    pairs, files = moves.pairs, place.files
    known, estimates = sizes.sizes_for(pairs, files, moves.site)
    dump = files.braindump
    whose = asdict(identity_of(dump, files.submit_text, config.project)) if pairs else {}

    def request_of(pair: SitePair, later: bool) -> JobRequest:
        src_host, dst_host = hosts_of(pair)
        request = TransitRequest(
            id=f"{place.workflow}:{place.job}:{place.retry}:{pair.src}-{pair.dst}",
            src=pair.src,
            dst=pair.dst,
            size_bytes=pair.size_bytes(known),
            template=config.template,
            workflow=place.workflow,
            job=place.job,
            retry=place.retry,
            best_effort=_LATER if later else "",
            ports_at=""
            if later or moves.lite
            else tuning.ports_at(pair, files.submit_text, bool(config.watch)),
            src_host=src_host,
            dst_host=dst_host,
            **whose,
        )
        size_source = sizes.source_of(pair, known, estimates)
        client = tuning.client_at(pair) if request.ports_at == SEEN else ""
        file_bytes = sizes.median(pair.sizes(known) or [0])
        return JobRequest(request, len(pair.transfers), file_bytes, size_source, client)

    return [*(request_of(p, False) for p in moves.now), *(request_of(p, True) for p in moves.later)]


def hosts_of(pair: SitePair) -> tuple[str, str]:
    """The two hosts between which all of a pair's files move; "" if their URLs do not name the
    same for each."""
    ends = {(_host(t.source, pair.src), _host(t.destination, pair.dst)) for t in pair.transfers}
    src, dst = ends.pop() if len(ends) == 1 else ("", "")
    return (src, dst) if src and dst else ("", "")


def _host(url: SiteUrl, site: str) -> str:
    """What a URL names of a site; this machine where bytes are relayed or come from a file."""
    if url.site != site or is_local(url.url):
        return gethostname()
    return host_of(url.url)


def run(
    files: PlannedFiles,
    retry: int,
    config: HookConfig,
    effects: Effects,
    register: Register | None = None,
) -> int:
    """Ask for everything the job needs, and record what came of it; the exit code, 0 or
    DEFER_STATUS.

    Raises InputError if the submit directory or a list cannot be read, OSError if the journal
    cannot be written; the broker's failures are recorded, not raised.
    """
    place, job, decision_file = HookedJob(files, retry, effects.now()), files.job, files.decision
    moves = moves_at(files)
    if moves:
        with suppress(OSError):  # said below, where it matters
            keep_sizes_of_parents(files)
    requests = job_requests(place, moves, config) if moves else []
    data = job_files.read_json(decision_file)
    before = decisions.to_give_back(data)
    if not requests and not before:
        return 0
    if register is not None:
        _register(register, place, effects)
    decision = PathDecision(
        job, retry, place.workflow, place.at, decisions.since(data, retry, place.at),
        [request.decision() for request in requests], left_over=before, warnings=effects.warnings,
        whose={key: getattr(request.request, key) for request in requests[:1] for key in WHOSE},
    )  # fmt: skip
    try:
        if moves and not moves.lite:
            # pegasus-transfer leaves its records there, and does not make it.
            files.file(MULTIPART_ENDING).mkdir(exist_ok=True)
        decision.write(decision_file)
    except OSError as error:
        give_back(before, effects)
        _without_a_record(requests, error, effects)
        return 0
    # First, since it may hold the very room that is asked for now.
    ids = [request.request.id for request in requests]
    others = {i: u for i, u in before.items() if not any(may_be(i, a) for a in ids)}
    decision.left_over = give_back(others, effects)
    waited_s = max(0.0, place.at - decision.since)
    may_defer = partial(files.defers, DEFER_STATUS)
    answers = RequestOutcomes([])
    if requests:
        patience = Patience(config.patience_s, waited_s, may_defer)
        answers = ask([request.request for request in requests], patience, effects)
    decision.pairs = [o.decision(a) for o, a in zip(requests, answers.answers, strict=True)]
    decision.deferred = answers.deferred
    got = {pair.id for pair in decision.pairs}
    rest = {i: u for i, u in before.items() if i not in others and i not in got}
    decision.left_over = {**decision.left_over, **give_back(rest, effects, but=got)}
    if answers.services:
        decision.service = asdict(answers.services[0])
    if moves and not answers.deferred:
        decision.tuned = _tune(files.file(".sub"), moves, requests, answers, effects)
    decision.write(decision_file)
    _journal(place, decision)
    return DEFER_STATUS if answers.deferred else 0


def _register(register: Register, place: HookedJob, effects: Effects) -> None:
    try:
        register(place.files.submit_dir, place.workflow)
    except (OSError, RuntimeError) as error:  # leases end what no watcher releases
        effects.warnings.append(f"no watcher knows of this workflow: {error}")


def _without_a_record(requests: list[JobRequest], error: OSError, effects: Effects) -> None:
    """Nothing is requested, because nothing could release it; the broker knows why."""
    reason = f"best effort: the submit directory cannot be written: {error.strerror}"
    effects.warnings.append(reason)
    if requests:
        tell((replace(request.request, best_effort=reason) for request in requests), effects)
    raise error


def _tune(
    submit_file: Path,
    moves: Moves,
    requests: list[JobRequest],
    answers: RequestOutcomes,
    effects: Effects,
) -> dict[str, int]:
    # All pairs of one job were given the same, or none.
    ports = next(
        (a.transit.grant.ports for a in answers.answers if a.transit and a.transit.grant.ports), []
    )
    want = tuning.wanted_tuning(answers.services)
    at_once = [
        tuning.files_at_once(request.file_bytes, request.files, answer.transit.grant.granted_bps)
        for request, answer in zip(requests, answers.answers, strict=True)
        if answer.transit
    ]
    try:
        return tuning.tune(submit_file, moves.pairs, want, _RECORDS, ports, max(at_once, default=0))
    except OSError as error:
        effects.warnings.append(f"the transfer is not tuned: {error}")
        return {}


def _journal(place: HookedJob, decision: PathDecision) -> None:
    head = {"at": place.at, "hook": "pre", "job": place.job, "retry": place.retry}
    event = "deferred" if decision.deferred else "decision"
    lines: list[dict[str, Any]] = [
        {**head, "event": event, **pair.as_json()} for pair in decision.pairs
    ]
    if decision.tuned:
        lines.append({**head, "event": "tuned", **decision.tuned})
    lines += [{**head, "event": "warning", "reason": reason} for reason in decision.warnings]
    job_files.append_lines(place.files.submit_dir / job_files.HOOK_JOURNAL, lines)
