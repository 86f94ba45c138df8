"""A real COBalD whose pool is as large as ADON says, on a real HTCondor pool without machines."""

from __future__ import annotations

import sys
from pathlib import Path

import cobald_site
import pytest
import yaml
from startd_world import TALKATIVE, at_work, happened, none_left, submit_fan, write_config
from waiting import until

from examples.testbed.pool import Pool

pytest.importorskip("cobald")
pytestmark = pytest.mark.component

ADON = """\
  - !AdonController
    archive: {folder}/runs.sqlite
    collector: {collector}
    cores: 2
    memory_mb: 512
    boot: 3
    jobs_take: 3
    mark: AdonWorker
    interval: 1
"""


def test_drones_come_for_a_dag_and_go_after_it(pool: Pool, tmp_path: Path) -> None:
    for name, seconds in (("a", 2), ("b", 5), ("z", 1)):
        lines = f"executable = /bin/sleep\narguments = {seconds}\nlog = dag.log\n"
        (tmp_path / f"{name}.sub").write_text(f"{lines}request_memory = 64\nqueue 1\n")
    config = write_config(tmp_path, pool, config=TALKATIVE)
    site = yaml.safe_dump([{"__type__": "cobald_site.ProcessSite", "config": str(config)}])
    pipeline = ADON.format(folder=tmp_path, collector=pool.collector)
    site = "".join(f"  {line}\n" for line in site.splitlines())
    (tmp_path / "cobald.yml").write_text(f"pipeline:\n{pipeline}{site}")
    path = str(Path(cobald_site.__file__).parent)
    start = f"import sys; sys.path.insert(0, {path!r}); from cobald.daemon.core.main import cli_run"
    command = [sys.executable, "-c", f"{start}; cli_run()", str(tmp_path / "cobald.yml")]
    log, said = tmp_path / "dag.log", tmp_path / "daemon.log"
    with at_work(pool, command, tmp_path) as daemon:
        submit_fan(pool, tmp_path, 6)
        until(lambda: happened(log, "005") == 8 or daemon.poll() is not None, "all jobs to end")
        assert daemon.poll() is None, said.read_text()
        until(lambda: none_left(pool, config), "the drones to be gone")
        assert daemon.poll() is None
    assert happened(log, "004") == 0  # nobody was evicted
    text = said.read_text()
    assert "demand 0.0 -> 2.0 cores" in text  # the DAG's first job
    assert "-> 0.0 cores" in text
