"""Open vSwitch is killed under workflows on a real pool, whose broker drives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults_flow import HASTY, Flow
from faults_world import GIVEN_BACK_S, Service, nothing_held, until
from ovs_rig import OvsRig, network_up, run_inside, vswitchd

from adon.machine import box, packages
from examples.soykb.scenario import LAYOUT
from examples.testbed.layout import CONTROLLER
from examples.testbed.pool import Pool
from network_provisioner.base.model import ENDED

# Outside, one test is all of them.
pytestmark = [pytest.mark.component, pytest.mark.long, pytest.mark.root, pytest.mark.timeout(1800)]

if not box.inside():

    def test_open_vswitch_is_killed(tmp_path: Path) -> None:
        packages.ensure("condor", progress=print)
        run_inside(Path(__file__).resolve(), tmp_path)

else:

    @pytest.fixture(scope="module")
    def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OvsRig]:
        with network_up(tmp_path_factory.mktemp("network")) as network:
            yield OvsRig(network)

    @pytest.fixture
    def service(rig: OvsRig, tmp_path: Path) -> Iterator[Service]:
        folder = tmp_path / "broker"
        folder.mkdir()
        with Service(folder, controller=CONTROLLER, topology=LAYOUT.topology()) as up:
            yield up

    def test_while_transfers_hold_paths(
        pool: Pool, service: Service, rig: OvsRig, tmp_path: Path
    ) -> None:
        flow = Flow(tmp_path / "run", service, 3, waits=True).write().submit(pool)
        # All have asked; one for which the switches were too slow has no path.
        until(lambda: {t.request.job for t in flow.transits()} == set(flow.jobs))
        until(lambda: len(service.held()) > 0 and len(rig.flows("s1")) > 0)
        rig.restart_switches()
        flow.let_go()
        assert flow.wait().state == "success"
        nothing_held(service)
        until(lambda: service.client.health()["status"] == "ok")
        until(lambda: rig.flows("s1") == [] and rig.flows("s2") == [])
        assert {t.request.job for t in flow.transits()} == set(flow.jobs)

    def test_and_stays_away(pool: Pool, service: Service, rig: OvsRig, tmp_path: Path) -> None:
        pid = vswitchd()
        os.kill(pid, signal.SIGSTOP)  # as good as dead: nothing answers
        try:
            flow = Flow(tmp_path / "run", service, 2, config=HASTY).write()
            assert flow.run(pool) == "success"
        finally:
            os.kill(pid, signal.SIGCONT)
        # The broker takes what hooks asked for that have long gone on, and it is given back.
        until(
            lambda: (
                {t.request.job for t in flow.transits()} == set(flow.jobs)
                and {t.state for t in flow.transits()} <= ENDED
            ),
            GIVEN_BACK_S,
            service.says,
        )
        assert all(t.reason for t in flow.transits())
