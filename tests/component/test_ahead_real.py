"""A DAG on a real pool, with real hooks, watcher and broker: what a job will need is reserved while
the jobs before it run, begun when it asks, and given back when it will not run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hooks_world import PATIENT_S, POST, PRE, make_submit_dir, move
from test_watcher_real import SUB, Flow, Service, until

from adon.machine import packages
from examples.testbed.pool import Pool
from examples.testbed.poolconfig import SiteSpec
from network_provisioner.model import Transit, TransitState
from pegasus_hooks import registry, submitdir

pytestmark = pytest.mark.component

FIRST, RUN, LAST = "stage_in_local_tacc_0_0", "run_ID1", "stage_out_local_mu_1_0"
# At the rate that is believed a transfer takes 320 s: longer than a busy machine takes for all.
SIZE = 40_000_000_000


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    condor = packages.ensure("condor", progress=print)
    with Pool(tmp_path_factory.mktemp("pool"), condor, {"mu": SiteSpec(workers=4)}) as up:
        yield up


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service(tmp_path)
    found.up()
    yield found
    found.down()


@pytest.fixture
def flow(pool: Pool, service: Service, tmp_path: Path) -> Iterator[Flow]:
    """in ─► run ─► out, each as long as it is told; submitted, with its first job running."""
    made = planned(pool, service, tmp_path / f"wf-{tmp_path.name}")
    made.submit()
    until(lambda: made.held() != [])
    yield made
    show(made)
    for job in (FIRST, RUN, LAST):
        let_go(made, job, 0)
    made.end()


def planned(pool: Pool, service: Service, folder: Path) -> Flow:
    lists = {FIRST: [move("f", "mu", "tacc", SIZE)], LAST: [move("g", "tacc", "mu", SIZE)]}
    make_submit_dir(folder, lists, [RUN])
    (folder / "braindump.yml").write_text(
        f"wf_uuid: {folder.name}\ndag: flow-0.dag\ncondor_log: flow-0.log\n"
    )
    watch, config = folder.parent / "watch", folder / "hooks.json"
    config.write_text(
        json.dumps(
            {"broker": service.url, "timeout_s": PATIENT_S, "watch": str(watch), "ahead": True}
        )
    )
    flow = Flow(pool, service, folder, watch)
    flow.hook("pre.sh", f"{PRE} --config {config}")
    flow.hook("post.sh", f"{POST} --config {config}")
    lines = []
    for job in (FIRST, RUN, LAST):
        script = folder / f"{job}.sh"
        script.write_text(
            f"#!/bin/sh\nwhile [ ! -e {job}.go ]; do sleep 0.2; done\nexit $(cat {job}.go)\n"
        )
        script.chmod(0o755)
        text = SUB.format(script=script, folder=folder, job=job)
        if job == RUN:
            text = text.replace("pegasus_job_class = 2", "pegasus_job_class = 1")
        (folder / f"00/00/{job}.sub").write_text(text)
        lines += [f"JOB {job} 00/00/{job}.sub", f"SCRIPT PRE {job} {folder}/pre.sh $JOB $RETRY 0",
                  f"SCRIPT POST {job} {folder}/post.sh $JOB $RETRY $RETURN"]  # fmt: skip
    lines += [f"PARENT {FIRST} CHILD {RUN}", f"PARENT {RUN} CHILD {LAST}"]
    (folder / "flow-0.dag").write_text("\n".join(lines) + "\n")
    return flow


def show(flow: Flow) -> None:
    """What a test that fails is understood by."""
    for transit in flow.service.held(flow.id):
        print(transit.id, transit.state, transit.requested_at, transit.start, transit.end)
    told = [flow.watch / registry.LOG, flow.folder / submitdir.HOOK_JOURNAL]
    for path in [*told, *sorted(flow.folder.glob("*.nodes.log"))]:
        print(path.name, path.read_text() if path.exists() else "is not there", sep="\n")


def let_go(flow: Flow, job: str, code: int) -> None:
    """Have a job end."""
    (flow.folder / f"{job}.go").write_text(str(code))


def of(flow: Flow, job: str) -> list[Transit]:
    return [t for t in flow.service.held(flow.id) if t.job == job]


def test_the_last_transfers_path_is_there_before_it_asks(flow: Flow) -> None:
    until(lambda: of(flow, LAST) != [])
    (before,) = of(flow, LAST)
    assert before.id == f"{flow.id}:{LAST}:0:tacc-mu"
    assert before.state is TransitState.HELD
    # The transfer before it takes so long at the rate that is believed, and more.
    assert before.end > before.start > before.requested_at + 60
    let_go(flow, FIRST, 0)
    until(lambda: of(flow, FIRST) == [])
    until(lambda: of(flow, LAST)[0].start < before.start)  # sooner than was believed
    let_go(flow, RUN, 0)
    until(lambda: of(flow, LAST)[0].end == 0)  # by its own hook
    (now,) = of(flow, LAST)
    assert (now.id, now.start, now.state) == (before.id, 0, TransitState.INSTALLED)
    let_go(flow, LAST, 0)
    flow.given_back()  # how soon, test_watcher_real knows
    assert flow.service.get(before.id).state is TransitState.RELEASED


def test_what_will_not_run_is_given_back(flow: Flow) -> None:
    until(lambda: of(flow, LAST) != [])
    (before,) = of(flow, LAST)
    let_go(flow, FIRST, 1)
    until(lambda: flow.job() == "")
    until(lambda: not flow.dagman())
    flow.given_back()
    assert flow.service.get(before.id).state is TransitState.RELEASED
