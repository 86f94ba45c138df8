"""Tasks that a real pegasus-mpi-cluster ran, in a job that a real Pegasus put together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pegasus_world import User, copy_pegasus, make_pegasus_case
from planner_world import Case
from test_pegasus_hooks_real import ended

from adon.machine.packages import ensure
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from monitors.archive.archive import Archive, Measurement
from monitors.workflows.analysis import FailedTask, analyse
from monitors.workflows.follower import Follower

PROGRAMS = {name: shutil.which(name) for name in ("mpiexec", "pegasus-mpi-cluster")}
pytestmark = [
    pytest.mark.component,
    pytest.mark.long,
    pytest.mark.pegasus,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(None in PROGRAMS.values(), reason=f"needs {' and '.join(PROGRAMS)} on PATH"),
]

# Open MPI refuses root, more processes than cores, and a machine without ssh; MPICH none of them.
OPEN_MPI = [
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm=isolated",
    "export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    condor = ensure("condor", progress=lambda _line: None)
    home = copy_pegasus(tmp_path_factory.mktemp("opt") / "pegasus")
    with Pool(tmp_path_factory.mktemp("pool"), condor, {"mu": SiteSpec(workers=1)}) as pool:
        yield User(pool, home)


def clustered_case(root: Path, home: Path) -> Case:
    """The small workflow as one job, whose tasks MPI runs, two at a time."""
    case = make_pegasus_case(root, home)
    starter = root / "bin/pmc"
    run = f"{PROGRAMS['mpiexec']} -n 3 {PROGRAMS['pegasus-mpi-cluster']}"
    # HTCondor puts the list of tasks into the job's scratch directory and starts it in the site's.
    lines = ["#!/bin/sh", *OPEN_MPI, f'exec {run} "$_CONDOR_SCRATCH_DIR/$1"', ""]
    starter.write_text("\n".join(lines))
    starter.chmod(0o755)

    def label(document: Any) -> None:
        for job in document["jobs"]:
            job["profiles"] = {"pegasus": {"label": "all"}}

    entry = {"name": "mu", "pfn": str(starter), "type": "installed"}
    program = {"namespace": "pegasus", "name": "mpiexec", "sites": [entry]}
    case.change("workflow", label)
    case.change("transformations", lambda document: document["transformations"].append(program))
    with (root / "pegasus.properties").open("a") as stream:
        stream.write("pegasus.clusterer.job.aggregator = MPIExec\n")
        stream.write("dagman.retry = 0\n")
    return case


def followed(user: User, case: Case) -> tuple[int, dict[str, list[Measurement]]]:
    """How a workflow ended, and what was measured of it, by metric."""
    command = ["pegasus-plan", "--json", "--sites", "mu", "--output-sites", "local"]
    command += ["--cluster", "label", "--dir", "submit", "workflow.yml"]
    submit = Path(json.loads(user.types(command, case.root))["submit_dir"])
    user.types(["pegasus-run", str(submit)], case.root)
    code = ended(submit)
    with Archive(":memory:") as archive:
        Follower(submit, archive).run()
        return code, {metric: archive.query(metric) for metric in ("job", "task", "runtime")}


def test_each_task_is_a_run_of_its_own_transformation(user: User, tmp_path: Path) -> None:
    code, measurements = followed(user, clustered_case(tmp_path, user.home))
    assert code == 0
    learned = {m.subject: m for m in measurements["runtime"] if m.subject.startswith("t::")}
    names = {"ID1": "split", "ID2": "shout", "ID3": "count", "ID4": "join"}
    assert {m.details["task"]: m.subject for m in learned.values()} == {
        task: f"t::{name}:1.0@mu" for task, name in names.items()
    }
    assert all(m.value > 0 and m.details["cpu_s"] > 0 for m in learned.values())
    rows = {
        row.transformation: row.count
        for row in analyse(measurements["job"] + measurements["task"]).runtimes
    }
    assert {f"t::{name}:1.0": 1 for name in names.values()}.items() <= rows.items()
    assert "pegasus::mpiexec" not in rows


def test_the_task_that_failed_is_named(user: User, tmp_path: Path) -> None:
    case = clustered_case(tmp_path, user.home)
    (case.root / "bin/shout").write_text('#!/bin/sh\necho "no voice" >&2\nexit 3\n')
    code, measurements = followed(user, case)
    assert code == 1
    (failed,) = analyse(measurements["job"] + measurements["task"]).failures
    assert failed.failed_tasks == [FailedTask("ID2", "t::shout:1.0", 3)]
    assert failed.stderr == "no voice"
    learned = {m.details["task"] for m in measurements["runtime"] if m.subject.startswith("t::")}
    assert learned == {"ID1", "ID3"}
