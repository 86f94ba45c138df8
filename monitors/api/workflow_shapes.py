"""Workflows as they are answered. Times are seconds, instants Unix seconds, sizes bytes."""

from __future__ import annotations

from network_provisioner.api.shapes import Answer


class CountsAnswer(Answer):
    """The eight fields of the thesis's Figure 16, how many jobs there are, and how many of them can
    never run because one before them failed."""

    unready: int
    ready: int
    pre: int
    in_queue: int
    post: int
    done: int
    fail: int
    percent_done: float
    total: int
    futile: int


class TotalsAnswer(Answer):
    """Jobs of a workflow and of all workflows inside it."""

    done: int
    fail: int
    total: int
    percent_done: float


class WorkflowAnswer(Answer):
    """A workflow: who it is and where it stands. ``at`` is when that was; ``stuck`` says why it
    does not go on, "" where it does; ``reason`` how it is known to have ended where its DAGMan did
    not say so."""

    id: str
    name: str
    user: str
    submit_dir: str
    host: str
    root: str
    parent: str
    planned_at: float | None
    state: str
    stuck: str
    reason: str
    at: float
    percent_done: float
    status: CountsAnswer
    totals: TotalsAnswer


class ChangeAnswer(CountsAnswer):
    """One change of a workflow's status."""

    at: float
    state: str
    source: str


class WorkflowDetailsAnswer(WorkflowAnswer):
    """The same with the workflows inside it, who said the last, and its latest changes, oldest
    first."""

    source: str
    children: list[str]
    history: list[ChangeAnswer]


class RuntimesAnswer(Answer):
    """Attempts of one transformation at one site: times of those that ended well."""

    transformation: str
    site: str
    kind: str
    count: int
    failed: int
    total_s: float
    min_s: float
    mean_s: float
    median_s: float
    max_s: float
    cpu_s: float | None


class WaitsAnswer(Answer):
    """From submission to execution at one site, compute jobs alone."""

    site: str
    count: int
    min_s: float
    mean_s: float
    median_s: float
    max_s: float


class PathAnswer(Answer):
    """A path that transfers took, and how many."""

    path: list[str]
    count: int


class TransfersAnswer(Answer):
    """What one tool moved from one site to another; ``unsized`` counts transfers whose bytes nobody
    knows, ``best_effort`` those that had no path."""

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
    paths: list[PathAnswer]


class FailureAnswer(Answer):
    """A job that failed, with its last bad attempt: ``stderr`` is the end of what it said,
    ``reason`` why DAGMan never submitted it."""

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


class AnalysisAnswer(Answer):
    """Statistics and failures of a workflow."""

    workflow: str
    state: str
    workflows: list[str]
    first_at: float | None
    last_at: float | None
    makespan_s: float
    cumulative_s: float
    lost_s: float
    attempts: int
    retries: int
    outcomes: dict[str, int]
    runtimes: list[RuntimesAnswer]
    waits: list[WaitsAnswer]
    transfers: list[TransfersAnswer]
    failures: list[FailureAnswer]


class PlacementAnswer(Answer):
    """Why a job was put at a site; ``seconds`` is what was expected of it there."""

    site: str
    seconds: float
    reason: str


class JobAnswer(Answer):
    """An attempt of a job that has ended; null is what nobody told."""

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
    placement: PlacementAnswer | None


class JobTransferAnswer(Answer):
    """What an attempt of a job moved from one site to another. ``path`` is null where nobody asked
    for one, and empty where it went as best effort."""

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
    path: list[str] | None
    transit: str
    tool: str
    direction: str


class RefreshAnswer(Answer):
    """Whether a workflow was measured at once, and where it stands; ``request`` is the number under
    which it was asked."""

    refreshed: bool
    request: int
    workflow: WorkflowAnswer


class AskedAnswer(Answer):
    """A request to measure a workflow at once."""

    request: int
    workflow: str
    at: float
