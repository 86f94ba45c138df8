"""All workflows and the latest status of each (the thesis's Figures 13 and 14), and the attempts
and transfers of one as they are shown, from measurements.

Measurements may have been recorded by anybody who may, so nothing is believed of their details but
what is of the right kind.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from monitors.archive.archive import Archive
from monitors.base.measurement import Measurement
from monitors.workflows.analysis import hold_of, number, split_subject, text, whole
from monitors.workflows.logs.status import FIELDS, NOT_STARTED, Status, WorkflowState, stuck, total
from network_provisioner.access import Principal, Role

R = TypeVar("R")
_DONE = WorkflowState.DONE
PLANNED, STUCK = "planned", "stuck"
STATES = (PLANNED, *(str(state) for state in WorkflowState), STUCK)
_METRICS = ("workflow", "status", "held")
_PAGE = 5000
_MOST_OWNERS = 50_000  # workflows whose users are remembered
_AGAIN_S = 1.0  # before a user that was not known is looked up again
MaySee = Callable[[Measurement], bool]
_OF_DETAILS: dict[str, Callable[[Measurement, str], object]] = {
    "str": text,
    "str | None": lambda measurement, name: text(measurement, name) or None,
    "int": lambda measurement, name: whole(measurement, name) or 0,
    "int | None": whole,
    "float | None": number,
}


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that is on hold ``since`` then (Unix seconds), with HTCondor's reason and codes."""

    job: str
    site: str
    since: float
    reason: str
    code: int
    subcode: int


@dataclass(frozen=True, slots=True)
class Overview:
    """One workflow. ``state`` is a :class:`WorkflowState` or ``planned``, ``stuck`` why it does not
    go on, ``held`` its jobs that are on hold, ``totals`` of it with all workflows inside it.
    Instants in Unix seconds."""

    id: str
    name: str = ""
    user: str = ""
    submit_dir: str = ""
    host: str = ""
    root: str = ""
    parent: str = ""
    planned_at: float | None = None
    status: Status | None = None
    source: str = ""
    stuck: str = ""
    held: Sequence[HeldJob] = ()
    totals: Status = NOT_STARTED
    children: Sequence[str] = field(default_factory=tuple)

    @property
    def state(self) -> str:
        """How it stands."""
        return PLANNED if self.status is None else str(self.status.state)

    @property
    def at(self) -> float:
        """When something of it was last heard of."""
        return self.status.at if self.status is not None else self.planned_at or 0.0

    def is_in(self, state: str) -> bool:
        """Whether it is in one of :data:`STATES`."""
        return bool(self.stuck) if state == STUCK else self.state == state

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        status = self.status or NOT_STARTED
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "submit_dir": self.submit_dir,
            "host": self.host,
            "root": self.root,
            "parent": self.parent,
            "planned_at": self.planned_at,
            "state": self.state,
            "stuck": self.stuck,
            "held": [asdict(job) for job in self.held],
            "reason": status.reason,
            "at": self.at,
            "percent_done": status.percent_done,
            "status": counts(status),
            "totals": {
                "done": self.totals.done,
                "fail": self.totals.fail,
                "total": self.totals.total,
                "percent_done": self.totals.percent_done,
            },
        }


def counts(status: Status) -> dict[str, float]:
    """The eight fields of Figure 16 with how many jobs there are, and how many never can run."""
    return {**status.fields(), "total": status.total, "futile": status.futile}


def overviews(
    workflows: Iterable[Measurement],
    statuses: Mapping[str, Measurement],
    held: Mapping[str, Measurement],
    now: float,
    stuck_after_s: float,
) -> dict[str, Overview]:
    """All workflows by id, newest first: those that were described, and those of which only a
    status is known. ``statuses`` and ``held`` have the newest of each."""
    described = {m.subject: m for m in workflows}
    known = {key: status_of(m) for key, m in statuses.items()}
    children: dict[str, list[str]] = {}
    for key, m in described.items():
        if parent := text(m, "parent"):
            children.setdefault(parent, []).append(key)
    listed = []
    for key in dict.fromkeys((*described, *known)):
        facts, status = described.get(key), known.get(key)
        holding = held.get(key)
        number, since = (int(holding.value), holding.at) if holding is not None else (0, 0.0)
        listed.append(
            Overview(
                id=key,
                name=text(facts, "name") or key,
                user=text(facts, "user"),
                submit_dir=text(facts, "submit_dir"),
                host=text(facts, "host"),
                root=text(facts, "root") or text(statuses.get(key), "root") or key,
                parent=text(facts, "parent"),
                planned_at=None if facts is None else facts.at,
                status=status,
                source=statuses[key].source if key in statuses else "",
                stuck=stuck(status, now, stuck_after_s, number, since) if status else "",
                held=held_jobs(holding) if holding and status and status.state is not _DONE else (),
                totals=_totals(key, children, known),
                children=tuple(sorted(children.get(key, ()))),
            )
        )
    return {overview.id: overview for overview in sorted(listed, key=lambda o: (-o.at, o.id))}


def held_jobs(holding: Measurement) -> list[HeldJob]:
    """What a ``held`` measurement says of each job, as far as it says something."""
    details = holding.details.get("held")
    jobs = []
    for row in details if isinstance(details, list) else ():
        if isinstance(row, Mapping) and (hold := hold_of(row, holding.at)) is not None:
            job, site = (str(row.get(name) or "") for name in ("job", "site"))
            jobs.append(HeldJob(job, site, hold.since, hold.reason, hold.code, hold.subcode))
    return jobs


def _totals(
    key: str, children: Mapping[str, Sequence[str]], known: Mapping[str, Status | None]
) -> Status:
    if key not in children:  # most have none inside, and there may be thousands
        return known.get(key) or NOT_STARTED
    return total([status for workflow in inside(key, children) if (status := known.get(workflow))])


def inside(key: str, children: Mapping[str, Sequence[str]]) -> list[str]:
    """A workflow and all below it, itself first, each once whatever anybody recorded."""
    members = {key: None}
    waiting = [key]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in members:
                members[child] = None
                waiting.append(child)
    return list(members)


def status_of(measurement: Measurement) -> Status | None:
    """What a ``status`` measurement says; None for one that says none: others may record too."""
    details = measurement.details
    try:
        numbers = {name: details[name] for name in (*FIELDS, "total")}
        if all(isinstance(n, int | float) and 0 <= n < 1e15 for n in numbers.values()):
            return Status.from_measurement(measurement)
    except (KeyError, ValueError, TypeError):
        pass
    return None


class KnownWorkflows:
    """Of one archive; threads may share it. ``clock`` gives Unix seconds."""

    def __init__(self, archive: Archive, clock: Callable[[], float], stuck_after_s: float) -> None:
        self._archive = archive
        self._clock = clock
        self._stuck_after_s = stuck_after_s
        self._lock = threading.Lock()
        self._seq: int | None = None
        self._newest: dict[str, dict[str, Measurement]] = {metric: {} for metric in _METRICS}

    def all(self, may_see: MaySee, since: float = -math.inf) -> dict[str, Overview]:
        """Workflows by id as they stand now, the one that changed last first, as far as their
        descriptions (or, without one, their statuses) ``may_see``. Of those that nothing was heard
        of ``since`` a time (Unix seconds), nor of any around or inside them, none: there may be
        very many. Raises ArchiveError."""
        with self._lock:
            self._read_on()
            workflows, statuses, held = (dict(self._newest[metric]) for metric in _METRICS)
        hidden = {key for key, measurement in workflows.items() if not may_see(measurement)}
        hidden |= {k for k, m in statuses.items() if k not in workflows and not may_see(m)}
        if since > -math.inf:
            whole = {
                key: _root(measurement) for key, measurement in {**statuses, **workflows}.items()
            }
            known = (*workflows.values(), *statuses.values())
            heard = {whole[measurement.subject] for measurement in known if measurement.at >= since}
            hidden |= {key for key, root in whole.items() if root not in heard}
        return overviews(
            [measurement for key, measurement in workflows.items() if key not in hidden],
            _without(hidden, statuses),
            _without(hidden, held),
            self._clock(),
            self._stuck_after_s,
        )

    def facts(self, workflow: str) -> Measurement | None:
        """The description of a workflow. Raises ArchiveError."""
        return self._archive.get(f"workflow:{workflow}")

    def inside(self, workflow: str, known: Mapping[str, Overview]) -> list[str]:
        """A workflow and all below it among ``known``, itself first."""
        return inside(workflow, {key: overview.children for key, overview in known.items()})

    def changes(self, workflow: str, most: int) -> list[dict[str, Any]]:
        """The latest changes of a workflow's status, oldest first. Raises ArchiveError."""
        if not most:
            return []
        newest = self._archive.query("status", workflow, newest=True, limit=most)
        return [
            {
                "at": measurement.at,
                "state": str(status.state),
                "source": measurement.source,
                **counts(status),
            }
            for measurement in reversed(newest)
            if (status := status_of(measurement)) is not None
        ]

    def may_answer(self, who: Principal, workflow: str) -> bool:
        """Whether ``who`` may record what a workflow is measured to be: an agent what it described,
        others what is their users'. Raises ArchiveError."""
        facts = self.facts(workflow)
        if who.role is not Role.AGENT and who.users is None:
            return True
        if facts is None:
            return False
        if who.role is Role.AGENT:
            return facts.details.get("by") == who.name
        return who.owns(str(facts.details.get("user", "")))

    def _read_on(self) -> None:
        if self._seq is None:
            # Whatever is recorded after this is read, perhaps twice, by the next look.
            self._seq = self._archive.latest_seq()
            for metric in _METRICS:
                self._newest[metric] = self._archive.latest(metric)
            return
        while True:
            measurements, reached = self._archive.read_on(self._seq, _METRICS, _PAGE)
            for _, measurement in measurements:
                newest = self._newest[measurement.metric]
                before = newest.get(measurement.subject)
                if before is None or measurement.at >= before.at:
                    newest[measurement.subject] = measurement
            self._seq = reached
            if len(measurements) < _PAGE:
                return


class Owners:
    """Whose workflows are, as the archive has it. Called with the UUID of one it gives its user,
    None while nothing says who that is.

    A workflow never changes its user, so what is known is remembered. Threads may share it;
    ``clock`` gives seconds that never go back. Raises the archive's errors.
    """

    def __init__(self, archive: Archive, clock: Callable[[], float] = time.monotonic) -> None:
        self._archive, self._clock = archive, clock
        self._lock = threading.Lock()
        # The user, and when that was looked up.
        self._known: OrderedDict[str, tuple[str | None, float]] = OrderedDict()

    def __call__(self, workflow: str) -> str | None:
        """Its user."""
        with self._lock:
            user, asked_at = self._known.get(workflow, (None, -math.inf))
            if user is not None or self._clock() - asked_at < _AGAIN_S:
                self._known.move_to_end(workflow)
                return user
        facts = self._archive.query("workflow", workflow)
        users = (m.details.get("user") for m in facts if m.workflow == workflow)
        user = next((str(user) for user in users if user), None)
        with self._lock:
            self._known[workflow] = user, self._clock()
            self._known.move_to_end(workflow)
            while len(self._known) > _MOST_OWNERS:
                self._known.popitem(last=False)
        return user


def _root(measurement: Measurement) -> str:
    root = measurement.details.get("root")
    return root if isinstance(root, str) and root else measurement.subject


def _without(hidden: set[str], measurements: Mapping[str, Measurement]) -> dict[str, Measurement]:
    return {key: measurement for key, measurement in measurements.items() if key not in hidden}


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """Why a job was put where it is; ``seconds`` is what was expected of it there in all."""

    site: str
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """One attempt of one job that has ended; None is what nobody told."""

    workflow: str
    job: str
    task: str
    kind: str
    transformation: str
    site: str
    host: str | None
    attempt: int
    retry: int
    outcome: str
    reason: str
    exitcode: int | None
    submitted_at: float | None
    started_at: float | None
    ended_at: float
    seconds: float
    queued_s: float | None
    cpu_s: float | None
    bytes_in: int | None
    bytes_out: int | None
    stderr: str
    output: str
    placement: PlacementRow | None


@dataclass(frozen=True, slots=True)
class TransferRow:
    """What one attempt of one job moved from one site to another. ``path`` is None where nobody
    asked for one, and empty where it went as best effort."""

    workflow: str
    job: str
    attempt: int
    src: str
    dst: str
    ended_at: float
    bytes: int | None
    seconds: float | None
    goodput_bps: float | None
    files: int | None
    retries: int
    outcome: str
    path: Sequence[str] | None
    transit: str
    tool: str
    direction: str


def _row(row: type[R], measurement: Measurement, **known: object) -> R:
    """What is not ``known`` stands in the details under its name."""
    values = {
        field.name: _OF_DETAILS[str(field.type)](measurement, field.name)
        for field in fields(row)  # type: ignore[arg-type]
        if field.name not in known
    }
    make: Callable[..., R] = row
    return make(**known, **values)


def placed_as(job: Measurement) -> list[str]:
    """The names under which a job may have been placed: its own, its task's, or those of the tasks
    in it."""
    inside = job.details.get("task_ids")
    names = [text(job, "job"), text(job, "task"), *(inside if isinstance(inside, list) else ())]
    return [name for name in names if isinstance(name, str) and name]


def job_row(job: Measurement, placements: Mapping[str, Measurement]) -> JobRow:
    """``placements`` are by job, or by task of the abstract workflow."""
    transformation, site = split_subject(job.subject)
    placed = next((placements[name] for name in placed_as(job) if name in placements), None)
    placement = placed and PlacementRow(placed.subject, placed.value, text(placed, "reason"))
    return _row(
        JobRow,
        job,
        workflow=job.workflow,
        transformation=transformation,
        site=site,
        ended_at=job.at,
        seconds=job.value,
        placement=placement,
    )


def transfer_row(moved: Measurement) -> TransferRow:
    """From a ``job_transfer`` measurement."""
    src, _, dst = moved.subject.partition(">")
    path = moved.details.get("path")
    return _row(
        TransferRow,
        moved,
        workflow=moved.workflow,
        src=src,
        dst=dst,
        ended_at=moved.at,
        bytes=None if moved.details.get("bytes") is None else int(moved.value),
        path=[str(node) for node in path] if isinstance(path, list) else None,
    )
