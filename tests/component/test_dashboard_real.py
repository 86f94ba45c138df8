"""The dashboard while a real DAGMan runs a workflow on a real pool: the broker follows it, samples
the pool, and a browser sees both without anything being loaded again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from browser import Browser, browsing
from http_load import broker_process

from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec

pytestmark = [pytest.mark.component, pytest.mark.long]
POOL = {"mu": SiteSpec(workers=3)}  # of the fixture `pool`
ROOT = Path(__file__).resolve().parents[2]
SUB = """\
executable = /bin/sh
arguments = "-c 'sleep 1; {does}'"
transfer_executable = false
should_transfer_files = NO
requirements = PegasusSite == "mu"
output = {folder}/{name}.out
error = {folder}/{name}.err
log = {folder}/wf-0.log
request_memory = 32
request_disk = 100
+pegasus_site = "mu"
+pegasus_wf_xformation = "test::{name}:1.0"
+pegasus_job_class = 1
queue
"""
# The first one runs until somebody has seen it run.
JOBS = {
    "left": "until [ -e {folder}/seen ]; do sleep 0.2; done",
    "right": "true",
    "broken": "echo no such genome >&2; exit 4",
}


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    folder = tmp_path / "browser"
    folder.mkdir()
    with browsing(folder) as opened:
        yield opened


def planned(folder: Path) -> Path:
    """Three jobs, one of which fails, and one that waits for all."""
    folder.mkdir()
    for name, does in {**JOBS, "join": "true"}.items():
        text = SUB.format(folder=folder, name=name, does=does.format(folder=folder))
        (folder / f"{name}.sub").write_text(text)
    (folder / "wf-0.dag").write_text(
        "".join(f"JOB {name} {name}.sub\n" for name in (*JOBS, "join"))
        + f"PARENT {' '.join(JOBS)} CHILD join\n"
    )
    (folder / "braindump.yml").write_text(
        json.dumps({"wf_uuid": "a-real-one", "dag": "wf-0.dag", "condor_log": "wf-0.log"})
    )
    return folder


def test_a_real_workflow_and_its_pool(
    pool: Pool, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in pool.env({}).items():
        monkeypatch.setenv(name, value)
    folder = planned(tmp_path / "run")
    (tmp_path / "broker").mkdir()
    example = yaml.safe_load((ROOT / "examples" / "adon.yml").read_text(encoding="utf-8"))
    config = {
        "topology": example["topology"],
        "controller": {"driver": "simulated"},
        "pool": {},
        "monitoring": {"workflows": [str(folder)]},
    }
    with broker_process(tmp_path / "broker", config) as url, browser.tab() as page:
        page.look()
        page.go(f"{url}/dashboard/#/workflows")
        page.wait("document.getElementById('line').dataset.state === 'live'")
        said = pool.run(["condor_submit_dag", "-update_submit", "wf-0.dag"], cwd=folder)
        assert re.search(r"cluster \d+", said)
        row = "document.querySelector('[data-key=a-real-one]')"
        page.wait(f"{row}?.querySelector('[data-s=running]')")
        (folder / "seen").touch()
        page.wait(f"{row}?.querySelector('[data-s=failed]')")
        page.click("[data-key=a-real-one] a")
        page.wait("document.body.innerText.includes('no such genome')")
        page.wait("document.body.innerText.includes('exit code 4')")
        page.wait("document.body.innerText.includes('How long jobs waited')")
        page.click("[data-act=measure]")
        page.wait("document.body.innerText.includes('measured just now')")
        page.go(f"{url}/dashboard/#/pool")
        slots = "document.querySelector('tr[data-key=mu] td[data-label=slots]')?.textContent"
        page.wait(f"{slots} === '3'")
        assert page.problems == []
