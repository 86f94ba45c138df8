"""The detailed analysis of a workflow (the thesis's Figure 15) from its measurements: what
pegasus-statistics and pegasus-analyzer tell, while it runs as well as afterwards.

Everything here is a function of measurements; when they were read, and from where, changes nothing.
The broker answers these dataclasses as they are.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from monitors.base.measurement import Measurement
from monitors.workflows.facts.transfers import transfers_of
from network_provisioner.base.units import goodput

READ = ("job", "task", "job_transfer")
"""The metrics that an analysis is made of."""

DONE, _REMOVED = "done", "removed"
COMPUTE, _SERVICE = "compute", "service"
_OWN = (COMPUTE, "other")  # of a DAG that Pegasus did not plan nobody says what jobs are for
_LITE_FAILED = 71
_LITE_EXIT = re.compile(
    r"^PegasusLite: exitcode 71, tool originally exited with exitcode (\d+)", re.M
)
_LARGEST = 1e18  # seconds or bytes that anything can have had
_NUMBER = (int, float)  # quicker than int | float, which is made anew each time


@dataclass(frozen=True, slots=True)
class Spread:
    """Of several times, in seconds; all 0 where there are none."""

    count: int = 0
    total_s: float = 0.0
    min_s: float = 0.0
    mean_s: float = 0.0
    median_s: float = 0.0
    max_s: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float], **more: Any) -> Self:
        """What is to be said of ``values``, and ``more`` of what they are of."""
        if not values:
            return cls(**more)
        total, least, most = sum(values), min(values), max(values)
        return cls(
            count=len(values),
            total_s=total,
            min_s=least,
            mean_s=min(max(total / len(values), least), most),  # rounding may leave them
            median_s=statistics.median(values),
            max_s=most,
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtimes(Spread):
    """Of one transformation at one site: how long attempts that ended well ran; ``failed`` did
    not. ``cpu_s`` is None where no record tells."""

    transformation: str
    site: str
    kind: str
    failed: int
    cpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimes(Spread):
    """How long compute jobs waited for a worker at one site, each attempt."""

    site: str


@dataclass(frozen=True, slots=True)
class UsedPath:
    """A path that transfers took, and how many."""

    path: Sequence[str]
    count: int


@dataclass(frozen=True, slots=True)
class TransferTotals:
    """What one tool moved from one site to another. ``bytes`` counts those whose size is known and
    ``unsized`` the others, ``best_effort`` those that had no path; ``goodput_bps`` is what they got
    together; rates are None where nothing was timed."""

    src: str
    dst: str
    tool: str
    count: int
    failed: int
    retries: int
    files: int
    bytes: int
    unsized: int
    seconds: float
    goodput_bps: float | None
    median_bps: float | None
    best_effort: int
    paths: Sequence[UsedPath]


@dataclass(frozen=True, slots=True)
class Hold:
    """That a job was put on hold ``since`` then (Unix seconds), for how many ``seconds``, with
    HTCondor's reason and codes."""

    since: float
    seconds: float
    reason: str
    code: int
    subcode: int


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task that failed in a clustered job, with its id in the abstract workflow."""

    task: str
    transformation: str
    exitcode: int | None


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job with an attempt that did not end well, the last such; ``retried`` where a later one
    did. ``stderr`` is the end of what it said, ``reason`` why DAGMan never submitted it, why it was
    removed, or that it was not the program that failed; it was on ``hold`` then where that is not
    None. Its ``output``, or where that was ``not_found``. Of a clustered job, ``failed_tasks`` are
    the first that failed."""

    workflow: str
    job: str
    task: str
    transformation: str
    site: str
    host: str | None
    outcome: str
    exitcode: int | None
    attempts: int
    retried: bool
    at: float
    reason: str
    stderr: str
    output: str
    not_found: str = ""
    hold: Hold | None = None
    failed_tasks: Sequence[FailedTask] = ()


@dataclass(frozen=True, slots=True)
class Analysis:
    """Of one workflow, or several together. Instants in Unix seconds, None before the first.

    ``makespan_s`` is from the first submission to the last end, ``cumulative_s`` the time that the
    workflow's own jobs ran whose attempts ended well, ``lost_s`` that of those which did not, by
    their own records, ``lost_slot_s`` how long these had a slot, with all that went on around them.
    Of a clustered job, its tasks count in its stead wherever run times do.
    """

    first_at: float | None = None
    last_at: float | None = None
    makespan_s: float = 0.0
    cumulative_s: float = 0.0
    lost_s: float = 0.0
    lost_slot_s: float = 0.0
    attempts: int = 0
    retries: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    runtimes: Sequence[Runtimes] = ()
    waits: Sequence[WaitTimes] = ()
    transfers: Sequence[TransferTotals] = ()
    failures: Sequence[FailedJob] = ()


def analyse(measurements: Iterable[Measurement]) -> Analysis:
    """The analysis of all measurements of :data:`READ` among these, whatever their order."""
    jobs: list[_Run] = []
    tasks: list[_Run] = []
    transfers: list[Measurement] = []
    clustered = set()
    for m in measurements:
        if not 0 <= m.value < _LARGEST:
            continue
        if m.metric == "job":
            jobs.append(_Run.of(m))
        elif m.metric == "task":
            tasks.append(_Run.of(m))
            clustered.add(text(m, "of"))
        else:
            transfers.append(m)
    for facts in (jobs, tasks, transfers):
        facts.sort(key=lambda fact: (fact.at, fact.id))
    moved = _transfers(transfers)
    if not jobs:
        return Analysis(transfers=moved)
    first = min(job.submitted_at or job.at for job in jobs)
    last = max(job.at for job in jobs)
    own = [job for job in jobs if job.kind in _OWN]
    # What ran: jobs, and in place of clustered jobs their tasks.
    runs = [job for job in jobs if job.id not in clustered] + tasks
    own_runs = [run for run in runs if run.kind in _OWN]
    return Analysis(
        first_at=first,
        last_at=last,
        makespan_s=max(0.0, last - first),
        cumulative_s=sum(run.value for run in own_runs if run.done),
        lost_s=sum(run.value for run in own_runs if not run.done),
        lost_slot_s=sum(_slot_s(job.bad) for job in own if job.bad),
        attempts=len(jobs),
        retries=len({(job.workflow, job.job, job.submission) for job in jobs})
        - len({(job.workflow, job.job) for job in jobs}),
        outcomes=dict(sorted(Counter(job.outcome for job in jobs).items())),
        runtimes=_runtimes(runs),
        waits=_waits(own),
        transfers=moved,
        failures=_failures(jobs),
    )


@dataclass(slots=True)
class _Run:
    """What is read of a ``job`` or ``task``: its details would fill the memory. ``bad`` is all of
    one that did not end well."""

    id: str
    at: float
    workflow: str
    value: float
    name: str
    site: str
    job: str
    kind: str
    outcome: str
    submission: object
    submitted_at: float | None
    started: bool
    timed: bool
    queued_s: float
    cpu_s: float | None
    done: bool
    bad: Measurement | None

    @classmethod
    def of(cls, m: Measurement) -> Self:
        """Of a measurement."""
        name, site = split_subject(m.subject)
        outcome, started = text(m, "outcome"), m.details.get("started_at") is not None
        # Whether anything tells how long it ran: the event of its start, or a record.
        timed = started or m.metric != "job" or bool(number(m, "tasks"))
        return cls(
            m.id, m.at, m.workflow, m.value, name, site, text(m, "job"), text(m, "kind"), outcome,
            submission(m), number(m, "submitted_at"), started, timed, number(m, "queued_s") or 0.0,
            number(m, "cpu_s"), outcome == DONE, m if _failed(m) else None,
        )  # fmt: skip


def submission(job: Measurement) -> object:
    """Tells a submission of a job from its others; the processes of one are together."""
    return job.details.get("cluster") or job.id


def hold_of(details: object, until: float) -> Hold | None:
    """What a measurement says of a hold that lasted ``until`` then (Unix seconds)."""
    if not isinstance(details, Mapping) or not isinstance(
        since := details.get("since"), int | float
    ):
        return None
    reason, codes = details.get("reason"), (details.get("code"), details.get("subcode"))
    code, subcode = (hold_code if isinstance(hold_code, int) else 0 for hold_code in codes)
    shown = reason if isinstance(reason, str) else ""
    return Hold(since, max(0.0, until - since), shown, code, subcode)


def _slot_s(job: Measurement) -> float:
    slot_s, started = number(job, "slot_s"), number(job, "started_at")
    if slot_s is not None:
        return max(0.0, slot_s)
    return job.value if started is None else max(0.0, job.at - started)


def split_subject(subject: str) -> tuple[str, str]:
    """Transformation and site of a ``job`` measurement."""
    name, _, site = subject.rpartition("@")
    return name, site


def _runtimes(runs: Sequence[_Run]) -> list[Runtimes]:
    rows = []
    for (name, site, kind), group in _grouped(runs, lambda run: (run.name, run.site, run.kind)):
        known = [run.cpu_s for run in group if run.cpu_s is not None]
        rows.append(
            Runtimes.of(
                [run.value for run in group if run.done and run.timed],
                transformation=name,
                site=site,
                kind=kind,
                failed=sum(run.bad is not None for run in group),
                cpu_s=sum(known) if known else None,
            )
        )
    # The workflow's own work first, and of it what takes longest.
    return sorted(rows, key=lambda r: (r.kind != COMPUTE, -r.total_s, r.transformation,
                                       r.site, r.kind))  # fmt: skip


def _waits(own: Sequence[_Run]) -> list[WaitTimes]:
    started = [job for job in own if job.started]
    return [
        WaitTimes.of([job.queued_s for job in group], site=site)
        for (site,), group in _grouped(started, lambda job: (job.site,))
    ]


def _transfers(measurements: Sequence[Measurement]) -> list[TransferTotals]:
    groups: dict[tuple[str, str, str], list[Measurement]] = defaultdict(list)
    for src, dst, m in transfers_of(measurements):
        groups[src, dst, text(m, "tool")].append(m)
    return [_transfer_row(*ends, group) for ends, group in sorted(groups.items())]


def _transfer_row(src: str, dst: str, tool: str, group: Sequence[Measurement]) -> TransferTotals:
    timed = [
        (m.value, seconds)
        for m in group
        if m.details.get("bytes") is not None and (seconds := number(m, "seconds") or 0.0) > 0
    ]
    rates = [goodput(int(n_bytes), seconds) for n_bytes, seconds in timed if n_bytes > 0]
    seconds = sum(duration for _, duration in timed)
    paths = Counter(
        tuple(str(node) for node in path)
        for m in group
        if isinstance(path := m.details.get("path"), list) and path
    )
    return TransferTotals(
        src=src,
        dst=dst,
        tool=tool,
        count=len(group),
        failed=sum(1 for m in group if not _done(m)),
        retries=sum(int(number(m, "retries") or 0) for m in group),
        files=sum(int(number(m, "files") or 0) for m in group),
        bytes=sum(int(m.value) for m in group if m.details.get("bytes") is not None),
        unsized=sum(1 for m in group if m.details.get("bytes") is None),
        seconds=sum(number(m, "seconds") or 0.0 for m in group),
        goodput_bps=goodput(int(sum(n for n, _ in timed)), seconds) if rates else None,
        median_bps=statistics.median(rates) if rates else None,
        best_effort=sum(1 for m in group if m.details.get("path") == []),
        paths=[
            UsedPath(list(path), number_of)
            for path, number_of in sorted(paths.items(), key=lambda item: (-item[1], item[0]))
        ],
    )


def _failures(jobs: Sequence[_Run]) -> list[FailedJob]:
    """The last bad attempt of each job that had one; those that failed for good first."""
    rows = []
    bad_ones = {(job.workflow, job.job) for job in jobs if job.bad}
    those = (job for job in jobs if (job.workflow, job.job) in bad_ones)
    for (workflow, job), group in _grouped(those, lambda job: (job.workflow, job.job)):
        bad = [attempt.bad for attempt in group if attempt.bad]
        last = _first_cause([m for m in bad if submission(m) == submission(bad[-1])])
        name, site = split_subject(last.subject)
        never = last.details.get("submitted_at") == last.at and not last.details.get("starts")
        stderr, reason = text(last, "stderr"), text(last, "reason")
        code = whole(last, "exitcode")
        if never and not reason:
            stderr, reason = "", stderr
        rows.append(
            FailedJob(
                workflow=workflow,
                job=job,
                task=text(last, "task"),
                transformation=name,
                site=site,
                host=text(last, "host") or None,
                outcome=text(last, "outcome"),
                exitcode=code,
                attempts=len({attempt.submission for attempt in group}),
                retried=group[-1].done and group[-1].submission != submission(last),
                at=last.at,
                reason=reason or _of_pegasus_lite(code, stderr),
                hold=hold_of(last.details.get("hold"), last.at),
                stderr=stderr,
                output=text(last, "output"),
                not_found=text(last, "not_found"),
                failed_tasks=_failed_tasks(last),
            )
        )
    return sorted(rows, key=lambda row: (row.retried, row.at, row.job))


def _first_cause(processes: Sequence[Measurement]) -> Measurement:
    """Of a submission's processes the one that failed: then DAGMan removes the others."""
    failed = (m for m in processes if text(m, "outcome") != _REMOVED)
    return next(failed, processes[-1])


def _of_pegasus_lite(code: int | None, stderr: str) -> str:
    """Why a job failed whose program did not: since Pegasus 5.1.3 its PegasusLite says so by an
    exit code of its own. "" for any other."""
    match = _LITE_EXIT.search(stderr) if code == _LITE_FAILED else None
    if match is None:
        return ""
    return (
        f"exit code {code}: PegasusLite failed before or after the program,"
        f" where a command had exit code {match[1]}"
    )


def _failed_tasks(job: Measurement) -> list[FailedTask]:
    known = job.details.get("failed_tasks")
    rows = [row for row in known if isinstance(row, dict)] if isinstance(known, list) else []
    tasks = [replace(job, details=row) for row in rows]
    return [
        FailedTask(text(task, "task"), text(task, "transformation"), whole(task, "exitcode"))
        for task in tasks
    ]


def _grouped(
    runs: Iterable[_Run], key: Callable[[_Run], tuple[str, ...]]
) -> list[tuple[tuple[str, ...], list[_Run]]]:
    groups: dict[tuple[str, ...], list[_Run]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return sorted(groups.items())


def _done(measurement: Measurement) -> bool:
    return text(measurement, "outcome") == DONE


def _failed(job: Measurement) -> bool:
    """Whether an attempt did not end well: a service runs until DAGMan removes it."""
    is_service = text(job, "kind") == _SERVICE
    return not (_done(job) or (is_service and text(job, "outcome") == _REMOVED))


def text(measurement: Measurement | None, key: str) -> str:
    """A text of the details, "" where there is none: anybody may have recorded it."""
    value = None if measurement is None else measurement.details.get(key)
    return value if isinstance(value, str) else ""


def number(measurement: Measurement, key: str) -> float | None:
    """A number of the details."""
    value = measurement.details.get(key)
    if not isinstance(value, _NUMBER) or isinstance(value, bool) or not abs(value) < _LARGEST:
        return None
    return float(value)


def whole(measurement: Measurement, key: str) -> int | None:
    """A number of the details, without its fraction."""
    value = number(measurement, key)
    return None if value is None else int(value)
