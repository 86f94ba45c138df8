"""Everything at once, by chance: what must hold whatever happens, and in whatever order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from faults_door import WAYS, Door, passes
from faults_flow import HASTY, Flow
from faults_world import (
    Service,
    Switches,
    end_watchers,
    nothing_held,
    some,
    until,
    without_reason,
)

from examples.testbed.pool import Pool
from network_provisioner.base.model import ENDED

pytestmark = [pytest.mark.component, pytest.mark.long, pytest.mark.timeout(1800)]

JOBS = 16
KILLS = ("hook", "hook", "hook", "dagman", "broker", "switches")


@pytest.fixture
def service(tmp_path: Path, switches: Switches) -> Iterator[Service]:
    """A broker for these switches."""
    with Service(tmp_path / "broker", controller=switches.controller()) as up:
        yield up


@contextmanager
def chaos(rng: Random, service: Service, door: Door, folder: Path) -> Iterator[None]:
    """The door opens and closes, the clock is set, watchers are killed; until the block ends."""
    over = threading.Event()

    def happen() -> None:
        while not over.wait(rng.uniform(0.1, 1.5)):
            what = rng.random()
            if what < 0.5:
                door.how = rng.choice([passes, *WAYS.values()])
            elif what < 0.8:
                service.set_clock(rng.choice([0, 3600, -3600, 90, -7]))
            elif sum(line["hook"].startswith("pre ") for line in service.told("ended")) < JOBS // 2:
                end_watchers(folder)  # a PRE wakes another: of those that come some have not begun

    thread = threading.Thread(target=happen)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("seed", some(range(12), 2))
def test_chaos(pool: Pool, service: Service, door: Door, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    faults = {
        f"{rng.choice(['pre', 'post'])} stage_in_local_tacc_0_{n} 0": {
            "step": rng.randint(1, 30), "kill": rng.choice(KILLS),
        }
        for n in range(JOBS) if rng.random() < 0.6
    }  # fmt: skip
    flow = Flow(
        tmp_path / "run", service, JOBS, url=door.url, seconds=1.5, max_hooks=4, config=HASTY
    )
    with chaos(rng, service, door, tmp_path):
        ended = flow.write(faults).run(pool)
    door.how = passes
    service.set_clock(0)
    service.wait()
    assert ended == "success"
    after_s = nothing_held(service)
    print(
        f"seed {seed}: {len(service.told('struck'))} kills, {after_s:.1f} s until nothing is held"
    )
    # Who got no path has said so, or its watcher has.
    until(lambda: {t.request.job for t in flow.transits()} == set(flow.jobs), said=service.says)
    assert {t.state for t in flow.transits()} <= ENDED
    assert without_reason(flow.transits()) == []
