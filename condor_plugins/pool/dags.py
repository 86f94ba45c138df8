"""What the DAGs in the queue will ask of the pool.

    DAGMan's jobs and their jobs in the queue ─► DAGs with their state ─► forecast()
    their submit directories and nodes.log    ─┘

The schedd reports what is queued, runs or is held; the DAG's log, read after the queue, what is
done and what failed. A sub-workflow is the DAG of a DAGMan of its own.

Only what DAGMan will run is counted on. A job that it could have submitted ten minutes ago, and has
not (its PRE script failed or waits, a limit of DAGMan's own holds it back), is not, until it is in
the queue.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path

import classad2
import htcondor2  # noqa: F401  # only with it do ads find in the other what has no TARGET. before it

from condor_plugins.jobs.sites import Ad
from condor_plugins.pool import run_times
from condor_plugins.pool.queue import (
    HELD,
    IDLE,
    REMOVED,
    RUNNING,
    SCHEDD,
    SCHEDULER,
    VANILLA,
    amount,
    number,
)
from condor_plugins.pool.run_times import RunTimes
from monitors.jobs.jobs import Attempt, Jobs, Outcome
from monitors.jobs.logs import JobEvents
from monitors.workflows.planned.dag import Node, PlannedDag, read_dag
from monitors.workflows.planned.dag_file import text_of
from monitors.workflows.planned.forecast import (
    LAG_S,
    DagState,
    RunningJob,
    estimated_run_s,
    expected_ends,
)
from monitors.workflows.planned.submit_dir import JobKind, SubmitDir, dag_of, running
from network_provisioner.base.errors import InputError

JOB_ATTRIBUTES = (
    "ClusterId", "JobUniverse", "JobStatus", "Iwd", "Arguments", "DAGManJobId", "DAGNodeName",
    "QDate", "JobCurrentStartDate", "EnteredCurrentStatus", *run_times.JOB_ATTRIBUTES,
)  # fmt: skip
"""What is read of every job in the queue, besides ``ScheddName``."""

PRIOR = 3.0  # jobs that count as much as what was estimated of a transformation beforehand
OVERDUE_S = 600.0  # after which a job that could have been submitted is not counted on
_LOG_S = 60.0  # for so long a job that only the log names counts as queued
_AGAIN_S = 300.0  # how soon a directory that could not be read is tried again
_SUBMIT_HOST_S = 10.0  # of a job on the submit host, until some have ended
# Universes whose jobs take a slot of the pool; it is the first where a submit file names none.
_ON_WORKERS = ("vanilla", "container", "docker", "java", "vm", "parallel", "mpi")
# Attributes in which jobs alike differ: the only ones that a request goes without.
_OF_ONE = frozenset({"my.pegasus_wf_dag_job_id", "my.pegasus_wf_dax_job_id"})
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", re.IGNORECASE)
_REQUESTS = {"cpus": "Cpus", "memory": "Memory", "disk": "Disk", "gpus": "GPUs"}
_SLOT_MB = 128  # a slot has as much at least (MODIFY_REQUEST_EXPR_REQUESTMEMORY)
_DISK_KB = 1024  # a slot's WithinResourceLimits asks for a number
_RESCUES = ".rescue[0-9][0-9][0-9]"
_DONE = re.compile(r"^[ \t]*DONE[ \t]+(\S+)[ \t]*$", re.I | re.M)

_Dagman = tuple[str, int]  # its schedd and cluster


@dataclass(frozen=True, slots=True)
class FollowedDag:
    """A DAG whose DAGMan is ``cluster`` in the queue of ``schedd``. ``workflow`` is its UUID, ""
    where it has none; ``user`` as in ads. Of a job with several procs the state has one."""

    schedd: str
    cluster: int
    user: str
    workflow: str
    state: DagState
    requests: Mapping[str, classad2.ClassAd] = field(repr=False)

    def request(self, name: str) -> classad2.ClassAd:
        """What the job of this name, one that takes a worker, asks for: the ad that its submit file
        describes, without its ids. One ad serves all jobs alike; it must not be changed."""
        return self.requests[name]


class FollowedDags:
    """Follows the DAGs of all DAGMans in the queue."""

    def __init__(self, run_times: RunTimes) -> None:
        self._run_times = run_times
        self._followed: dict[_Dagman, _Dag] = {}
        self._failed: dict[_Dagman, tuple[float, str]] = {}  # since when, and what was told
        self._warnings: list[str] = []

    def observe(self, jobs: Sequence[Ad], now: float) -> list[FollowedDag]:
        """The state of the DAGs at the Unix second ``now``. ``jobs`` is the whole queue as it was
        just before, with :data:`JOB_ATTRIBUTES` and ``ScheddName``. A DAG that cannot be read is
        left out, with a warning."""
        dagmans: dict[_Dagman, Ad] = {}
        queue: dict[_Dagman, dict[str, Ad]] = {}
        for ad in jobs:
            schedd = str(ad.get(SCHEDD, ""))
            if ad.get("JobUniverse") == SCHEDULER and ad.get("JobStatus") in (IDLE, RUNNING):
                dagmans[schedd, int(ad["ClusterId"])] = ad
            above, node = int(number(ad, "DAGManJobId")), ad.get("DAGNodeName")
            if above and isinstance(node, str):
                queue.setdefault((schedd, above), {})[node] = ad
        self._followed = {key: dag for key, dag in self._followed.items() if key in dagmans}
        self._failed = {key: failure for key, failure in self._failed.items() if key in dagmans}
        followed_dags: dict[_Dagman, FollowedDag] = {}
        # What a DAG submitted has a higher number than its own DAGMan.
        for key in sorted(dagmans, key=lambda key: key[1], reverse=True):
            if (dag := self._dag(key, dagmans[key], now)) is not None:
                inside = {
                    node: _left_s(followed_dags[sub].state, now)
                    for node, ad in queue.get(key, {}).items()
                    if (sub := (key[0], int(ad["ClusterId"]))) in followed_dags
                }
                state = dag.state(queue.get(key, {}), inside, now)
                user, workflow = str(dagmans[key].get("User", "")), dag.workflow
                followed_dags[key] = FollowedDag(*key, user, workflow, state, dag.requests)
        return list(followed_dags.values())[::-1]

    def take_warnings(self) -> list[str]:
        """What went wrong since it was last called, one line each; what continues is reported
        once."""
        taken, self._warnings = self._warnings, []
        return taken

    def _dag(self, key: _Dagman, ad: Ad, now: float) -> _Dag | None:
        """None if it is no DAGMan, or its files cannot be read."""
        name = dag_of(str(ad.get("Arguments", "")))
        since, reason = self._failed.get(key, (-math.inf, ""))
        if not name or now - since < _AGAIN_S:
            return None
        try:
            if key not in self._followed:
                place = running(Path(str(ad.get("Iwd", ""))), name)
                self._followed[key] = _Dag(place, ad, self._run_times)
            self._followed[key].read(ad)
        except (InputError, OSError, ValueError, RuntimeError) as error:
            self._followed.pop(key, None)
            self._failed[key] = (now, str(error))
            if str(error) != reason:
                self._warnings.append(f"DAG {key[1]} of {key[0]} is not followed: {error}")
            return None
        self._failed.pop(key, None)
        return self._followed[key]


class _Dag:
    """One DAG as its files say. Raises InputError, or as they do, where they cannot be read."""

    def __init__(self, place: SubmitDir, ad: Ad, run_times: RunTimes) -> None:
        self._run_times = run_times
        self.workflow = place.braindump.get("wf_uuid", "")
        self.requests: dict[str, classad2.ClassAd] = {}
        self._kinds: dict[str, str] = {}  # jobs of one kind run equally long
        self._cores: dict[str, int] = {}
        self.dag = self._planned(place, str(ad.get("User", "")))
        with place.as_owner():
            names = (place.dag.name, f"{place.dag.name}_multi")  # of several DAGs
            rescues = [
                rescue
                for name in names
                for rescue in sorted(place.dag.parent.glob(f"{escape(name)}{_RESCUES}"))
            ]
            rescue = text_of(rescues[-1]) if rescues else ""
        self._done_before |= set(_DONE.findall(rescue))
        # What the workflow's own log has beside it is of earlier DAGMans.
        self._owned, self._events = place.as_owner, JobEvents(place.nodes_log, None)
        self._attempts = Jobs()
        self._began = math.floor(number(ad, "QDate"))
        self._up = 0.0
        self._done: set[str] = set()
        self._ended: dict[str, tuple[int, float]] = {}
        self._learn()

    def _planned(self, place: SubmitDir, user: str) -> PlannedDag:
        planned, known = read_dag(place, moves=False), place.nodes
        self._done_before = {name for name, node in known.items() if node.is_done}
        self._aside = {name for name, node in known.items() if node.is_final or node.is_service}
        self._unless = {name: node.unless_exit for name, node in known.items()}
        nodes, alike = {}, dict[object, classad2.ClassAd]()
        for name, node in planned.nodes.items():
            macros = place.expressions(name)
            universe = macros.get("universe", _ON_WORKERS[0]).lower()
            takes = bool(macros) and not known[name].is_noop and universe in _ON_WORKERS
            if takes:
                macros["executable"] = str(_program(known[name].folder, macros))
                ad = _request({k: v for k, v in macros.items() if _asked(k)}, user, alike)
                self.requests[name] = ad
                if (cores := max(1, amount(ad, "RequestCpus", 1))) > 1:
                    self._cores[name] = cores
            tasks = sorted(Counter(task.transformation for task in node.tasks).items())
            inside = " ".join(f"{count} {what}" for what, count in tasks)
            program = (
                inside or node.transformation or macros.get("executable", "") or str(node.kind)
            )
            self._kinds[name] = f"{program}@{node.site if takes else ''}"
            nodes[name] = replace(node, kind=_kind(node, takes))
        place.forget()
        return replace(planned, nodes=nodes)

    def read(self, ad: Ad) -> None:
        """What is new in its log. ``ad`` is its DAGMan's."""
        self._up = number(ad, "JobCurrentStartDate") or self._began
        with self._owned():
            # What was before is of another DAGMan: the rescue DAG has what is left of it.
            new = [event for event in self._events.read() if event.at >= self._began]
        for event in new:
            self._attempts.feed(event)
        if new:
            self._learn()

    def _learn(self) -> None:
        self._done, self._ended = set(self._done_before), {}
        for attempt in self._attempts.all:
            if attempt.outcome is not Outcome.DONE:
                self._done.discard(attempt.job.name)
                continue
            self._done.add(attempt.job.name)
            if attempt.start and attempt.job.name in self._kinds:
                count, seconds = self._ended.get(kind := self._kinds[attempt.job.name], (0, 0.0))
                self._ended[kind] = count + 1, seconds + attempt.end - attempt.start

    def state(self, queue: Mapping[str, Ad], inside: Mapping[str, float], now: float) -> DagState:
        """Its state. ``inside``: in how many seconds sub-workflows that run will end."""
        queued: dict[str, float] = {}
        since: dict[str, float] = {}
        never: set[str] = set()
        done = self._done
        for name, node in self.dag.nodes.items():
            tries = self._attempts.of_job(name)
            last = tries[-1] if tries else None
            ad = queue.get(name)
            if ad is not None and not (last and last.end and last.cluster == ad["ClusterId"]):
                status = ad.get("JobStatus")
                if status == IDLE:
                    queued[name] = number(ad, "QDate")
                elif status in (HELD, REMOVED):
                    never.add(name)
                else:  # it moves files, waits for those in common, or computes
                    began = number(ad, "JobCurrentStartDate")
                    since[name] = began or number(ad, "EnteredCurrentStatus")
            elif name in done:
                continue
            elif last and last.outcome is Outcome.QUEUED and now - last.submit < _LOG_S:
                queued[name] = last.submit
            elif last and last.outcome is Outcome.RUNNING and now - last.start < _LOG_S:
                since[name] = last.start
            elif self._is_over(node, tries) or self._is_overdue(node, last, now):
                never.add(name)
        run_s = self._run_s(since, now)
        ends = expected_ends(
            {n: RunningJob(self._kinds[n], run_s[n], at) for n, at in since.items()}, now
        )
        ends |= {name: now + left_s for name, left_s in inside.items() if name in ends}
        return DagState(self.dag, run_s, queued, ends, frozenset(done), never, self._cores)

    def _is_over(self, node: Node, tries: Sequence[Attempt]) -> bool:
        """Whether DAGMan will not run a job again that is not in the queue, or that is unknown."""
        if node.name in self._aside:
            return True
        if not tries:
            return False
        last = tries[-1]
        if last.outcome is Outcome.FAILED and last.returned == self._unless[node.name]:
            return True
        if not last.end:  # it has left the queue, and the log does not say how
            return True
        return sum(attempt.outcome is not Outcome.DONE for attempt in tries) > node.retries

    def _is_overdue(self, node: Node, last: Attempt | None, now: float) -> bool:
        """Whether DAGMan could have submitted it long ago."""
        if not all(parent in self._done for parent in node.parents):
            return False
        ends = [
            self._attempts.of_job(parent)[-1].end for parent in node.parents if self._ran(parent)
        ]
        ready = max([self._up, last.end if last else 0.0, *ends])
        return now - ready > OVERDUE_S

    def _ran(self, name: str) -> bool:
        return bool(self._attempts.of_job(name))

    def _run_s(self, since: Mapping[str, float], now: float) -> dict[str, float]:
        ran_s: dict[str, list[float]] = {}
        for name, at in since.items():
            ran_s.setdefault(self._kinds[name], []).append(max(0.0, now - at))
        takes: dict[str, float] = {}
        for name, kind in self._kinds.items():
            if kind not in takes:
                short = self.dag.nodes[name].kind not in (JobKind.COMPUTE, JobKind.SUBWORKFLOW)
                asks = self.requests.get(name, {})
                tasks = [task.transformation for task in self.dag.nodes[name].tasks]
                prior_s = _SUBMIT_HOST_S if short else self._run_times.of_job(asks, tasks)
                ended = self._ended.get(kind, (0, 0.0))
                takes[kind] = estimated_run_s(prior_s, PRIOR, *ended, ran_s.get(kind, ()))
        return {name: takes[kind] for name, kind in self._kinds.items()}


def _left_s(state: DagState, now: float) -> float:
    """In how many seconds a DAG ends, with cores enough."""
    ends: dict[str, float] = {}
    for name, node in state.dag.nodes.items():
        if name in state.running:
            ends[name] = state.running[name] - now
        elif name not in state.done and name not in state.never:
            ready_s = max((ends.get(parent, 0.0) for parent in node.parents), default=0.0)
            ends[name] = ready_s + LAG_S + state.run_s[name]
    return max(ends.values(), default=0.0)


def _kind(node: Node, takes_worker: bool) -> JobKind:
    """What a job is to the forecast: only what takes a worker computes."""
    if takes_worker:
        return JobKind.COMPUTE
    return JobKind.OTHER if node.takes_worker else node.kind


# -- what a submit file asks for -----------------------------------------------------------------


def _asked(key: str) -> bool:
    named = key in ("requirements", "executable") or key.startswith("request_")
    return named or (key.startswith("my.") and key not in _OF_ONE)


def _program(folder: Path, words: Mapping[str, str]) -> Path:
    return folder / words.get("initialdir", "") / words.get("executable", "").strip('"')


def _request(
    words: Mapping[str, str], user: str, alike: dict[object, classad2.ClassAd]
) -> classad2.ClassAd:
    """The ad of a job; of jobs with the same words the same one."""
    key = tuple(sorted(words.items()))
    if key not in alike:
        alike[key] = _ad(words, user)
    return alike[key]


def _ad(words: Mapping[str, str], user: str) -> classad2.ClassAd:
    ad = classad2.ClassAd()
    ad["MyType"], ad["JobUniverse"], ad["JobStatus"] = "Job", VANILLA, IDLE
    ad["User"], ad["Owner"], ad["Cmd"] = user, user.partition("@")[0], words["executable"]
    ad["RequestCpus"], ad["RequestMemory"], ad["RequestDisk"] = 1, _SLOT_MB, _DISK_KB
    clauses = []
    for key, value in words.items():
        if key.startswith("my."):
            _set(ad, key[3:], value)
        elif key.startswith("request_"):
            resource = _REQUESTS.get(key[8:], key[8:])
            _set(ad, f"Request{resource}", _amount(resource, value))
            clauses.append(f"TARGET.{resource} >= Request{resource}")
        elif key == "requirements":
            clauses.append(f"({value})")
    _set(ad, "Requirements", " && ".join(clauses) or "true")
    return ad


def _set(ad: classad2.ClassAd, name: str, value: str) -> None:
    """A word that is no expression (a macro of DAGMan's in it) says nothing."""
    try:
        ad[name] = classad2.ExprTree(value)
    except classad2.ClassAdException:
        return


def _amount(resource: str, value: str) -> str:
    """Memory in MB and disk in KB, as ads have them; anything else as it is."""
    unit = {"Memory": 2**20, "Disk": 2**10}.get(resource)
    match = _AMOUNT.fullmatch(value)
    if unit is None or match is None or not match[2]:
        return value
    return str(math.ceil(float(match[1]) * _UNITS[match[2].lower()] / unit))
