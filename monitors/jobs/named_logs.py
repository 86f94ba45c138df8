"""The event logs that the jobs' own submit files name, for where DAGMan's own is not there.

    log = align.log          one for each job, one for all (diamond.log), or one for each
    log = align.$(Cluster)   submission

HTCondor before 7.9 kept no other. Those logs outlive a run, and jobs of others may be in them: here
they tell of jobs that are in this DAG, submitted since its DAGMan first started.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from glob import glob
from pathlib import Path

from monitors.jobs.executions import Execution, LastExecutions
from monitors.workflows.logs.dagman_events import DagmanEventTail
from monitors.workflows.logs.events import JOB_KINDS, EventTail, JobEvent, Kind
from monitors.workflows.logs.stamps import LogTimes
from monitors.workflows.planned.submit_dir import SubmitDir
from network_provisioner.base.errors import InputError

KINDS = JOB_KINDS | {Kind.FILE_TRANSFER}


class NamedLogs:
    """The events of a workflow without a log of its own: as the logs of its jobs tell them, and of
    jobs that are in none, as DAGMan does."""

    def __init__(self, plan: SubmitDir, times: LogTimes | None, dagman: DagmanEventTail) -> None:
        self._plan, self._times, self._dagman = plan, times, dagman
        self._patterns: list[str] | None = None
        self._tails: dict[str, EventTail] = {}
        self._executions = LastExecutions()
        self._names: dict[int, str] = {}  # nodes by cluster, as DAGMan says
        self._submitted: dict[tuple[int, int], float] = {}  # when, of jobs that the logs tell of
        self._scripts: set[tuple[int, int]] = set()  # whose POST script's end is in the logs
        self._dagmans: set[tuple[int, int]] = set()  # jobs that DAGMan alone tells of
        self._said: list[JobEvent] = []  # by DAGMan, not told yet
        self._logged: list[JobEvent] = []  # in the logs, not told yet
        self.is_lost = False
        """Whether of any job there is nothing but DAGMan's words."""

    def read(self) -> list[JobEvent]:
        """Those that are new. Raises InputError where a file is there and cannot be read: then all
        that was read waits until it can be."""
        # DAGMan has read in the logs what it tells of: what is in them is there now.
        for event in self._dagman.read():
            self._said.append(event)
            if event.node:
                self._names[event.cluster] = event.node
        if self._dagman.began:
            self._read_logs(self._nodes())
        said, logged, self._said, self._logged = self._said, self._logged, [], []
        rest = [event for event in said if not self._is_logged(event)]
        alone = [event for event in rest if event.kind is not Kind.POST_SCRIPT_TERMINATED]
        self._dagmans |= {(event.cluster, event.proc) for event in alone}
        self.is_lost |= bool(alone)
        return sorted([*logged, *rest], key=lambda event: event.at)

    @property
    def is_read(self) -> bool:
        """Whether any log was read."""
        return any(tail.begun for tail in self._tails.values())

    def execution(self, cluster: int, proc: int) -> Execution | None:
        """The last execution of a process, once, where a log tells of it."""
        return self._executions.take(cluster, proc)

    def _is_logged(self, event: JobEvent) -> bool:
        jobs = self._scripts if event.kind is Kind.POST_SCRIPT_TERMINATED else self._submitted
        return (event.cluster, event.proc) in jobs

    def _nodes(self) -> Collection[str]:
        """Those of the DAG, and what DAGMan calls them."""
        nodes = set(self._names.values())
        with suppress(InputError):
            nodes.update(self._plan.nodes)
        return nodes

    def _read_logs(self, nodes: Collection[str]) -> None:
        began = math.floor(self._dagman.began)
        for tail in self._tails_now():
            for event in tail.read():
                job = (event.cluster, event.proc)
                name = event.node
                if event.kind is Kind.SUBMIT:
                    self._submitted.pop(job, None)
                    name = name or self._names.get(event.cluster, "")
                    if name in nodes and event.at >= began and job not in self._dagmans:
                        self._submitted[job] = event.at
                if event.at < self._submitted.get(job, math.inf):
                    continue
                self._executions.feed(event)
                if event.kind is Kind.POST_SCRIPT_TERMINATED:
                    self._scripts.add(job)
                if event.kind in JOB_KINDS:
                    self._logged.append(replace(event, node=name))

    def _tails_now(self) -> list[EventTail]:
        if self._patterns is None:
            self._patterns = self._plan.job_logs()
        for pattern in self._patterns:
            for path in glob(pattern) if "*" in pattern else [pattern]:  # noqa: PTH207
                if path not in self._tails:
                    self._tails[path] = EventTail(Path(path), KINDS, self._times)
        return list(self._tails.values())
