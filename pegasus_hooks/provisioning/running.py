"""What the two provisioning jobs do when they run: pool and paths, asked for and released.

    provision   decision file ─► broker: all paths at once ─► decision file ─► the pool
    release     decision file ─► broker: each path back    ─► the pool

Neither waits for anything, and neither fails: what goes wrong is a warning in the journal of the
submit directory. The decision file is the releasing job's, for it is with that one's end that the
paths are no longer needed: so the watcher and POST, which know nothing of provisioning, leave them
alone so long, and release them whatever that job's result.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitors.watcher.decision_file import Pair
from monitors.workflows.planned import job_files
from monitors.workflows.planned.job_files import DECISION_ENDING, PlannedFiles
from network_provisioner.base.errors import AdonError, BrokerError, InputError
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.hookconfig import HookConfig
from network_provisioner.client.path_requests import Effects, RequestOutcome, give_back
from network_provisioner.client.patience import Budget
from pegasus_hooks.prepost import have_watched
from pegasus_hooks.prepost.decision import PathDecision, to_give_back
from pegasus_hooks.prepost.prejob import identity_of
from pegasus_hooks.provisioning.step import PROVISION, RELEASE, PathNeed, ProvisioningStep, dag_name

if TYPE_CHECKING:
    from network_provisioner.base.model import RequestAnswer
    from network_provisioner.client.broker import BrokerClient

_POOL_S = 60.0  # on a busy machine
# Runs ``adon pool`` with these words; what it says. Raises AdonError.
PoolCommand = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class RunningWorkflow:
    """The workflow that a provisioning job is part of, and when the job began (Unix seconds)."""

    submit_dir: Path
    workflow: str
    facts: Mapping[str, str]
    at: float

    def file(self, job: str, ending: str) -> Path:
        """A file of one of its jobs. Raises InputError if the DAG does not know the job."""
        return PlannedFiles(self.submit_dir, job).file(ending)

    def demand(self, step: ProvisioningStep) -> str:
        """The name of the levels' demand for slots."""
        return f"{self.workflow}:level{step.level}"


def place_of(environ: Mapping[str, str], now: float) -> RunningWorkflow:
    """Where the job runs, by the environment that Pegasus and HTCondor give it: Pegasus names the
    submit directory to jobs of its PegasusLite; of others HTCondor's job ad knows the log in it.
    Raises InputError."""
    named = environ.get("_PEGASUS_WF_SUBMIT_DIR", "")
    if not named:
        named = _folder_of_log(environ.get("_CONDOR_JOB_AD", ""))
    facts = job_files.braindump(Path(named))
    return RunningWorkflow(Path(named), facts.get("wf_uuid", ""), facts, now)


def _folder_of_log(ad: str) -> str:
    try:
        lines = Path(ad).read_text(encoding="utf-8", errors="replace").splitlines() if ad else []
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() == "UserLog":
            return str(Path(value.strip().strip('"')).parent)
    raise InputError(
        "found neither _PEGASUS_WF_SUBMIT_DIR nor a job ad with UserLog, expected to be run by "
        "Pegasus on HTCondor"
    )


def pool_command(words: Sequence[str]) -> str:
    """``adon pool`` as a process of the same Python: this layer knows nothing of the pool's."""
    command = [sys.executable, "-I", "-m", "adon", "pool", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_POOL_S,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdonError(f"adon pool: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise AdonError(lines[-1] if lines else f"adon pool: exit code {done.returncode}")
    return " ".join(done.stdout.split())


@dataclass(slots=True)
class BrokerSession:
    """A broker, all calls of which together may take ``timeout_s`` of the hooks' configuration."""

    config: HookConfig
    broker: BrokerClient
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.config.timeout_s)


@dataclass(slots=True)
class JobContext:
    """Where the job runs, its effects, and what went wrong. ``network`` is None if no broker is
    to be asked."""

    place: RunningWorkflow
    pool: PoolCommand
    network: BrokerSession | None = None
    warnings: list[str] = field(default_factory=list)


def provision(step: ProvisioningStep, context: JobContext) -> None:
    """Ask for paths and slots. Nothing is raised for what the broker or the pool refuses."""
    _paths(step, context, _ask)
    if step.pool:
        _pool(step, context, dag_name(PROVISION, step.before), _enlarge(step, context.place))
    _warn(context, dag_name(PROVISION, step.before))


def release(step: ProvisioningStep, context: JobContext) -> None:
    """Give everything back, also where the other job left no word of it."""
    _paths(step, context, _give_back)
    if step.pool:
        arguments = ["shrink", "--config", step.pool, context.place.demand(step)]
        _pool(step, context, dag_name(RELEASE, step.after), arguments)
    _warn(context, dag_name(RELEASE, step.after))


def _paths(
    step: ProvisioningStep,
    context: JobContext,
    act: Callable[[ProvisioningStep, JobContext, BrokerSession], None],
) -> None:
    if context.network is None or not step.paths:
        return
    try:
        act(step, context, context.network)
    except (AdonError, OSError) as error:
        context.warnings.append(f"paths: {error}")


def _ask(step: ProvisioningStep, context: JobContext, network: BrokerSession) -> None:
    place, job, config = context.place, dag_name(PROVISION, step.before), network.config
    text = job_files.submit_text(place.file(job, ".sub"))
    whose = asdict(identity_of(place.facts, text, config.project))
    requests = [_request(step, place, need, job, config, whose) for need in step.paths]
    decision = PathDecision(
        dag_name(RELEASE, step.after),
        0,
        place.workflow,
        place.at,
        place.at,
        [Pair(r.id, r.src, r.dst, size_bytes=r.size_bytes) for r in requests],
        warnings=context.warnings,
    )
    file = place.file(decision.job, DECISION_ENDING)
    # Before anything is asked, so that a process that comes next can release what we got.
    decision.write(file)
    if config.watch:
        try:
            have_watched(config.watch, Path(step.hooks), place.submit_dir, place.workflow)
        except OSError as error:
            context.warnings.append(f"{config.watch}: no watcher releases the paths: {error}")
    try:
        answers = network.budget.call(partial(network.broker.ask, requests))
    except BrokerError as error:
        context.warnings.append(f"paths: best effort: {error}")
        decision.pairs = [replace(pair, reason=str(error)) for pair in decision.pairs]
    else:
        decision.pairs = [*map(_answered, decision.pairs, answers)]
    decision.write(file)
    _tell(place, job, [{"event": "decision", **pair.as_json()} for pair in decision.pairs])


def _request(
    step: ProvisioningStep,
    place: RunningWorkflow,
    need: PathNeed,
    job: str,
    config: HookConfig,
    whose: Mapping[str, Any],
) -> TransitRequest:
    return TransitRequest(
        id=_id(step, place, need),
        src=need.src,
        dst=need.dst,
        size_bytes=need.size_bytes,
        template=config.template,
        lease_s=float(step.lease_s),
        workflow=place.workflow,
        job=job,
        **whose,
    )


def _id(step: ProvisioningStep, place: RunningWorkflow, need: PathNeed) -> str:
    return f"{place.workflow}:{PROVISION}:{step.level}:{need.src}-{need.dst}"


def _answered(pair: Pair, answer: RequestAnswer) -> Pair:
    transit = answer.transit
    if transit is None:
        return replace(pair, state="best_effort", reason=str(answer.error))
    return pair.answered(
        RequestOutcome(transit.id, str(transit.state), transit.reason, True, transit)
    )


def _give_back(step: ProvisioningStep, context: JobContext, network: BrokerSession) -> None:
    file = context.place.file(dag_name(RELEASE, step.after), DECISION_ENDING)
    data = job_files.read_json(file)
    ids = to_give_back(data) if data else {_id(step, context.place, n): True for n in step.paths}
    effects = Effects(network.broker, network.budget, warnings=context.warnings)
    left = give_back(ids, effects, outcome="provisioned")
    if data and not left:
        job_files.write_json(file, {**data, "given_back": True})


def _enlarge(step: ProvisioningStep, place: RunningWorkflow) -> list[str]:
    figures = {
        "slots": step.slots,
        "cores": step.cores,
        "memory-mb": step.memory_mb,
        "bytes": step.bytes,
        "lease": step.lease_s,
    }
    arguments = ["enlarge", "--config", step.pool, place.demand(step)]
    return [*arguments, *(w for name, value in figures.items() for w in (f"--{name}", str(value)))]


def _pool(step: ProvisioningStep, context: JobContext, job: str, words: Sequence[str]) -> None:
    try:
        reason = context.pool(words)
    except AdonError as error:
        context.warnings.append(f"pool: {error}")
    else:
        _tell(context.place, job, [{"event": "pool", "slots": step.slots, "said": reason}])


def _warn(context: JobContext, job: str) -> None:
    _tell(context.place, job, [{"event": "warning", "reason": r} for r in context.warnings])


def _tell(place: RunningWorkflow, job: str, records: Sequence[Mapping[str, Any]]) -> None:
    """To the journal; where that cannot be written, standard error says it, too."""
    head = {"at": place.at, "hook": "provision", "job": job}
    lines = [{**head, **record} for record in records]
    with contextlib.suppress(OSError):
        job_files.append_lines(place.submit_dir / job_files.HOOK_JOURNAL, lines)
