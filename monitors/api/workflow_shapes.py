"""Workflows as they are answered. Times are seconds, instants Unix seconds, sizes bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitors.workflows.analysis import Analysis
from monitors.workflows.overview import HeldJob
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
    does not go on, "" where it does; ``held`` are its jobs on hold; ``reason`` is why it failed
    where no job did, or how it is known to have ended where its DAGMan did not say so."""

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
    held: list[HeldJob]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisAnswer(Analysis):
    """Statistics and failures of a workflow, or of several."""

    workflow: str
    state: str
    workflows: Sequence[str]


class RefreshAnswer(Answer):
    """Whether a workflow was measured at once, and where it stands; ``request`` is the number under
    which it was asked."""

    refreshed: bool
    request: int
    workflow: WorkflowAnswer


class RefreshRequestAnswer(Answer):
    """A request to measure a workflow at once."""

    request: int
    workflow: str
    at: float
