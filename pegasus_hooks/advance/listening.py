"""Keeps what is reserved for a running workflow in step with it, while the watcher watches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from monitors.archive.estimate_sources import ask
from monitors.jobs.jobs import DagmanState, Jobs
from monitors.watcher.actions import Watched
from monitors.workflows.planned.dag import PlannedDag, read_dag
from monitors.workflows.planned.job_files import PlannedFiles
from network_provisioner.base.database_url import place
from network_provisioner.base.errors import AdonError
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.hookclient import client_of
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.topology.graph import Topology
from pegasus_hooks.advance.booking import (
    CorrectionRules,
    Corrections,
    WorkflowReservations,
)
from pegasus_hooks.advance.job_estimates import EstimateReader, JobEstimates
from pegasus_hooks.advance.predict import Pair, Prediction, predict
from pegasus_hooks.advance.progress import NOT_BEGUN, JobPhase, JobProgress, progress_of
from pegasus_hooks.prepost import prejob
from pegasus_hooks.prepost.keepsizes import keep_sizes, planned_here
from pegasus_hooks.prepost.prejob import HookedJob
from site_selector.estimates.world import MeasurementSource

log = logging.getLogger(__name__)

EVERY_S = 5.0  # a prediction without news
REST = 20.0  # times what a look took there is until the next
REST_AT_MOST_S = 10.0  # a busy machine stops a look for seconds, and the run continues meanwhile
AT_MOST_S = 2.0  # of the watcher's time for one look
AWAY_S = 5.0  # until a broker that was away is asked again
ESTIMATES_LAST_S = 10.0  # until what is assumed is asked for anew
LOOK_S = 30.0  # until the broker is asked what it holds
FIRST_LAG_S = 2.0  # what DAGMan takes between two jobs, until that is known
LAGS = 20  # that are remembered
_BEGUN = frozenset({JobPhase.ASKED, JobPhase.SUBMITTED, JobPhase.RUNNING})


@dataclass(slots=True)
class AdvanceReservations:
    """One workflow's reservations in advance.

    ``estimates_at`` gives what is assumed at a Unix second; ``clock`` seconds that never go back.
    """

    dag: PlannedDag
    booking: WorkflowReservations
    estimates_at: Callable[[float], JobEstimates]
    rules: CorrectionRules = field(default_factory=CorrectionRules)
    clock: Callable[[], float] = time.monotonic
    prediction: Prediction = field(default_factory=lambda: Prediction(()))
    _stands: dict[str, JobProgress] = field(default_factory=dict)
    _runs: bool = False
    _started: float = 0.0  # the DAGMan that runs (Unix seconds)
    _news: bool = True
    _next: float = 0.0
    _last: float = -EVERY_S
    _looked: float = -LOOK_S
    _estimates_made: tuple[float, JobEstimates] | None = None
    _lags: list[float] = field(default_factory=list)
    _trouble: str = ""

    # -- what the watcher reports ------------------------------------------------------------------

    def on(self, jobs: Jobs, name: str, /) -> None:
        """Take note of what happened; see WorkflowListener."""
        self._news = True
        if not name:
            self._dag_changed(jobs)
            return
        if name not in self.dag.nodes:
            return
        was = self._stands.get(name, NOT_BEGUN)
        now = self._stands[name] = self._progress(jobs, name)
        if was == NOT_BEGUN and now.phase in (JobPhase.ASKED, JobPhase.SUBMITTED):
            self._learn_lag(name, now.since)
        if now.phase in _BEGUN:
            self.booking.leave(name)
        if now.phase is JobPhase.DONE is not was.phase:
            self._keep_sizes(name)

    def _keep_sizes(self, name: str) -> None:
        files = PlannedFiles(self.dag.submit_dir, name)
        with suppress(AdonError, OSError):  # PRE tries again
            if planned_here(files):
                keep_sizes(files)

    def _dag_changed(self, jobs: Jobs) -> None:
        dag = jobs.dag
        self._runs = dag is not None and dag.state is DagmanState.STARTED
        if dag is not None and self._runs:
            self._started = dag.at
        self._stands = {
            job.name: self._progress(jobs, job.name) for job in jobs if job.name in self.dag.nodes
        }

    def _progress(self, jobs: Jobs, name: str) -> JobProgress:
        retries = self.dag.nodes[name].retries
        return progress_of(jobs.get(name), retries, jobs.began, self._started)

    def tick(self, now: float, /) -> None:
        """Predict and correct, where there is news or some time has passed. What the broker does
        not answer is tried again."""
        begun = self.clock()
        if begun < self._next or not (self._news or begun - self._last >= EVERY_S):
            return
        try:
            all_done = self.observe(now, lambda: self.clock() - begun < AT_MOST_S)
        except (AdonError, OSError) as error:
            if str(error) != self._trouble:  # once, and not with every try
                log.warning("%s: no advance reservations now: %s", self.dag.workflow, error)
            self._trouble = str(error)
            self._next = self.clock() + AWAY_S
            return
        self._trouble = ""
        took = self.clock() - begun
        self._last, self._news = begun, not all_done
        self._next = begun + took + min(REST * took, REST_AT_MOST_S)

    # -- what it does ----------------------------------------------------------------------------

    def observe(self, now: float, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Bring what is reserved up to date at Unix second ``now``; whether there was time for all.
        Raises BrokerError."""
        if self.clock() - self._looked >= LOOK_S:
            self.booking.observe()
            self._looked = self.clock()
        if self._runs:
            begun = {name for name, stand in self._stands.items() if stand.phase in _BEGUN}
            # What is tried again asks by other ids, which nobody knows before it does.
            tried = {name for name, stand in self._stands.items() if stand.failures}
            windows = [w for w in self._predicted(now).windows if w.job not in tried]
            done = self.booking.fit(windows, begun, now, self.rules, go_on)
        else:
            over = list(self.booking.held.values())
            done = self.booking.carry_out(Corrections(back=over), now, go_on)
        if done:
            log.info(
                "%s: %d reserved in advance, %d moved, %d released",
                self.dag.workflow, done.requested, done.moved, done.released,
            )  # fmt: skip
        return go_on()

    def _predicted(self, now: float) -> Prediction:
        lag = median(self._lags) if self._lags else FIRST_LAG_S
        self.prediction = predict(self.dag, self._estimates(now), self._stands, now, lag)
        return self.prediction

    def _estimates(self, now: float) -> JobEstimates:
        at = self.clock()
        if self._estimates_made is None or at - self._estimates_made[0] >= ESTIMATES_LAST_S:
            self._estimates_made = at, self.estimates_at(now)
        return self._estimates_made[1]

    def _learn_lag(self, job: str, at: float) -> None:
        """What passed between the end of the last parent and the beginning of a job ``at`` a time
        (Unix seconds), where one DAGMan saw both."""
        parents = self.dag.nodes[job].parents
        ends = [self._stands.get(parent, NOT_BEGUN) for parent in parents]
        if self._runs and ends and all(stand.phase is JobPhase.DONE for stand in ends):
            last = max(stand.since for stand in ends)
            if self._started <= last <= at:
                self._lags = [*self._lags[1 - LAGS :], at - last]


def advance_reservations(
    submit_dir: Path,
    config: HookConfig,
    broker: BrokerClient,
    topology: Topology | None = None,
    rules: CorrectionRules | None = None,
    measured: MeasurementSource | None = None,
) -> AdvanceReservations:
    """What reserves for the workflow planned to ``submit_dir``. Without ``measured`` the broker is
    asked for it. Raises InputError."""
    dag = read_dag(submit_dir)
    booking = WorkflowReservations(dag.workflow, broker, partial(requests_of, submit_dir, config))
    reader = EstimateReader(dag, topology)
    estimates = partial(estimates_of, reader, config)
    if measured is not None:
        estimates = partial(reader, measured)
    return AdvanceReservations(dag, booking, estimates, rules or CorrectionRules())


def requests_of(submit_dir: Path, config: HookConfig, job: str) -> dict[Pair, TransitRequest]:
    """What the first PRE of ``job`` will ask for. Raises InputError."""
    requests = prejob.requests_of(HookedJob(PlannedFiles(submit_dir, job), 0, 0.0), config)
    return {(request.src, request.dst): request for request in requests}


def estimates_of(reader: EstimateReader, config: HookConfig, now: float) -> JobEstimates:
    """What is assumed at Unix second ``now``, with what the broker knows by then, or the archive
    where that does not answer. Raises InputError for a broker that cannot be."""
    archive = place(config.archive) if config.archive else None
    return reader(ask(client_of(config), archive, *reader.subjects(), now), now)


class StartingListener:
    """Listens from the start, while the submit directory of a large workflow is still being read:
    the watcher has others to look after meanwhile."""

    def __init__(self, make: Callable[[], AdvanceReservations], workflow: str) -> None:
        self._make = make
        self._workflow = workflow
        self._jobs: Jobs | None = None  # heard of before the listener was there
        self.listener: AdvanceReservations | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def on(self, jobs: Jobs, name: str, /) -> None:
        """Pass it on, or keep it until there is who listens."""
        ahead = self._ready()
        if ahead is not None:
            ahead.on(jobs, name)
        else:
            self._jobs = jobs

    def tick(self, now: float, /) -> None:
        """Pass it on."""
        ahead = self._ready()
        if ahead is not None:
            ahead.tick(now)

    def join(self) -> None:
        """Wait until everything is read."""
        self._reader.join()

    def _ready(self) -> AdvanceReservations | None:
        if self._reader.is_alive() or self.listener is None:
            return None
        if self._jobs is not None:
            self.listener.on(self._jobs, "")
            self._jobs = None
        return self.listener

    def _read(self) -> None:
        try:
            self.listener = self._make()
        except (AdonError, OSError) as error:
            log.warning("%s: no advance reservations: %s", self._workflow, error)


def listener_of(watched: Watched) -> StartingListener:
    """What the watcher reports about a workflow. Raises InputError for a broker that cannot be."""
    broker = client_of(watched.config)
    make = partial(advance_reservations, watched.submit_dir, watched.config, broker)
    return StartingListener(make, watched.workflow)
