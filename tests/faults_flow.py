"""Workflows of transfers on a real pool, to whose hooks things happen.

Every workflow is a submit directory in Pegasus's shape that a real DAGMan runs; its hooks are
started by :mod:`hook_fault`, which kills what it is told to at a step of the hook.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults_world import PATIENT_S, SIZE, Service, replace, some
from hooks_world import POST, PRE, ROOT, move

from examples.testbed import dagman
from examples.testbed.pool import Pool
from monitors.workflows.planned import job_files, transferlist
from network_provisioner.base.model import Transit

FAULT = ROOT / "tests" / "hook_fault.py"
SUB = """\
executable = /bin/sh
arguments = {script} {source} {target}
universe = local
output = {folder}/{name}.out
error = {folder}/{name}.err
log = {log}
+pegasus_site = "local"
+pegasus_wf_xformation = "pegasus::transfer"
+pegasus_job_class = 2
+pegasus_wf_dag_job_id = "{name}"
queue
"""


# As long as a hook waits for a broker where nothing else is said.
HASTY = {"timeout_s": 2.0}


@dataclass
class Flow:
    """A workflow of ``count`` transfers from mu to tacc, none of which waits for another."""

    folder: Path
    service: Service
    count: int
    url: str = ""
    retries: int = 2
    max_hooks: int = 20
    config: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.2  # that a transfer takes
    waits: bool = False  # whether a transfer takes until it is let go
    first: int = 0  # the number of its first job
    cluster: int = 0

    @property
    def uuid(self) -> str:
        """The workflow's."""
        return f"flow-{self.folder.name}"

    @property
    def dag(self) -> Path:
        """The file."""
        return self.folder / "flow-0.dag"

    def job(self, number: int) -> str:
        """The name of a transfer job."""
        return f"stage_in_local_tacc_0_{number}"

    @property
    def jobs(self) -> list[str]:
        """All jobs' names."""
        return [self.job(number) for number in range(self.first, self.first + self.count)]

    def write(self, plan: Mapping[str, Mapping[str, Any]] | None = None) -> Flow:
        """The submit directory, and what is to happen to its hooks."""
        (self.folder / "00/00").mkdir(parents=True)
        source, target = self.folder / "mu", self.folder / "tacc"
        source.mkdir(), target.mkdir()
        script = self.folder / "move.sh"
        until = f'while [ ! -e "{self.folder}/go" ] && [ ! -e "$1.go" ]; do sleep 0.1; done\n'
        script.write_text(f'{until * self.waits}sleep {self.seconds}\nexec cp "$1" "$2"\n')
        self.configure()
        if plan is not None:
            self.service.plan(plan)
        (self.folder / "braindump.yml").write_text(
            f'user: "u"\ngrid_dn: null\nwf_uuid: "{self.uuid}"\nroot_wf_uuid: "{self.uuid}"\n'
            f'dag: "flow-0.dag"\ncondor_log: "flow-0.log"\nsubmit_dir: "{self.folder}"\n'
        )
        settings = self.folder / "dagman.config"
        settings.write_text(
            "".join(f"DAGMAN_MAX_{s}_SCRIPTS = {self.max_hooks}\n" for s in ("PRE", "POST"))
        )
        lines = [f"CONFIG {settings}"]
        for job in self.jobs:
            file = source / f"{job}.dat"
            file.write_bytes(b"x" * 1000)
            entry = move(file.name, "mu", "tacc", SIZE, str(source), str(target))
            (self.folder / "00/00" / f"{job}.in").write_text(transferlist.dumps([entry]))
            text = SUB.format(
                script=script, source=file, target=target / file.name, name=job,
                folder=self.folder / "00/00", log=self.folder / "flow-0.log",
            )  # fmt: skip
            (self.folder / "00/00" / f"{job}.sub").write_text(text)
            lines.append(f"JOB {job} 00/00/{job}.sub")
            lines.append(f"RETRY {job} {self.retries}")
            python = f"{sys.executable} -I -S {FAULT} {self.service.folder}"
            given = f"--config {self.folder / 'hooks.json'} $JOB $RETRY"
            lines.append(f"SCRIPT PRE {job} {python} {PRE} {given} $MAX_RETRIES")
            lines.append(f"SCRIPT POST {job} {python} {POST} {given} $RETURN")
        self.dag.write_text("\n".join(lines) + "\n")
        return self

    def configure(self, **changed: Any) -> None:
        """How hooks work that begin from now on: they wait for as long as a busy machine may need
        to answer, unless they are told otherwise (:data:`HASTY`)."""
        hooks = {
            "broker": self.url or self.service.url,
            "timeout_s": PATIENT_S,
            "patience_s": 2.0,
            "template": "steady",
            "watch": str(self.service.folder / "watch"),
            **self.config,
            **changed,
        }
        replace(self.folder / "hooks.json", json.dumps(hooks))

    def let_go(self, *jobs: str) -> None:
        """Have the transfers of these jobs end, or all, where they wait for it."""
        for job in jobs:
            (self.folder / "mu" / f"{job}.dat.go").touch()
        if not jobs:
            (self.folder / "go").touch()

    def submit(self, pool: Pool) -> Flow:
        """Hand it to DAGMan."""
        self.cluster = dagman.submit_dag(self.dag, pool.run)
        return self

    def wait(self) -> dagman.DagEnd:
        """For its end."""
        return dagman.wait(self.dag, self.cluster, PATIENT_S)

    def run(self, pool: Pool) -> str:
        """To its end: "success" or what else became of it, with DAGMan's last words."""
        end = self.submit(pool).wait()
        return end.state if end.state == "success" else f"{end}: {self.dagman_out()[-3000:]}"

    def dagman_out(self) -> str:
        """What DAGMan wrote."""
        path = Path(f"{self.dag}.dagman.out")
        return path.read_text() if path.exists() else ""

    def dagman_pid(self) -> int:
        """Of DAGMan's own process."""
        return int(re.findall(r"PID = (\d+)", self.dagman_out())[-1])

    def journal(self) -> list[dict[str, Any]]:
        """What the hooks wrote."""
        return job_files.read_lines(self.folder / job_files.HOOK_JOURNAL)

    def transits(self) -> list[Transit]:
        """Its transits, as the broker knows them."""
        return [t for t in self.service.transits().values() if t.id.startswith(self.uuid)]


def steps_of(service: Service, flow: Flow) -> dict[str, list[str]]:
    """The steps of hooks, in order, as a run without faults has them: of the ``first`` PRE of a
    workflow, of another ``pre``, and of ``post``. ``flow`` has two jobs."""
    steps_by_script = {}
    first, other = flow.jobs
    for name, script, job, last in (
        ("first", PRE, first, "2"), ("post", POST, first, "0"),
        ("pre", PRE, other, "2"), ("post", POST, other, "0"),
    ):  # fmt: skip
        words = [sys.executable, "-I", "-S", str(FAULT), str(service.folder), str(script)]
        words += ["--config", str(flow.folder / "hooks.json"), job, "0", last]
        process = subprocess.run(
            words, cwd=flow.folder, capture_output=True, text=True, check=False
        )
        assert (process.returncode, process.stderr) == (0, "")
        steps_by_script[name] = service.told("ended")[-1]["names"]
    return steps_by_script


def plan(
    steps: dict[str, list[str]], few: int, kill: str, hooks: Sequence[str] = ("pre", "post")
) -> dict[str, dict[str, object]]:
    """What happens to which hook: a job for every step of each."""
    at = [(hook, n) for hook in hooks for n in some(range(1, len(steps[hook]) + 1), few)]
    return {
        f"{hook.replace('first', 'pre')} stage_in_local_tacc_0_{job} 0": {"step": n, "kill": kill}
        for job, (hook, n) in enumerate(at)
    }
