"""Where a provisioning job runs, and how it reaches the pool's side of ADON."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitors.workflows.planned import job_files
from network_provisioner.base.errors import AdonError, InputError
from pegasus_hooks.provisioning.step import Step

_POOL_S = 60.0  # a driver may have to ask a cloud


@dataclass(frozen=True, slots=True)
class Place:
    """The workflow that a provisioning job is part of, and when the job began (Unix seconds)."""

    submit_dir: Path
    workflow: str
    facts: Mapping[str, str]
    at: float

    def file(self, job: str, ending: str) -> Path:
        """A file of one of its jobs. Raises InputError where the DAG does not know the job."""
        dag = job_files.dag_file(self.submit_dir, self.facts)
        return job_files.job_file(self.submit_dir, dag, job, ending)

    def demand(self, step: Step) -> str:
        """The name of a stretch's demand for slots."""
        return f"{self.workflow}:level{step.level}"


# Runs ``adon pool`` with these words; what it says. Raises AdonError.
PoolCommand = Callable[[Sequence[str]], str]


def place_of(environ: Mapping[str, str], now: float) -> Place:
    """Where the job runs, by the environment that Pegasus and HTCondor give it: Pegasus names the
    submit directory to jobs of its PegasusLite; of others HTCondor's job ad knows the log in it.
    Raises InputError."""
    named = environ.get("_PEGASUS_WF_SUBMIT_DIR", "")
    if not named:
        named = _folder_of_log(environ.get("_CONDOR_JOB_AD", ""))
    facts = job_files.braindump(Path(named))
    return Place(Path(named), facts.get("wf_uuid", ""), facts, now)


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


def pool_command(timeout_s: float = _POOL_S) -> PoolCommand:
    """``adon pool`` as a process of the same Python: this layer knows nothing of the pool's."""

    def run(words: Sequence[str]) -> str:
        command = [sys.executable, "-I", "-m", "adon", "pool", *words]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=timeout_s,
                check=False, env=dict(os.environ), stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AdonError(f"adon pool: {error}") from None
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise AdonError(said[-1] if said else f"adon pool: exit code {done.returncode}")
        return " ".join(done.stdout.split())

    return run
