"""Policies on real switches: two projects between the same two hosts, told apart by their ports.

The broker is the service itself, asked over HTTP. The network's names belong to a box, and a
process is in one or it is not; so there is one test outside, which runs this same file inside.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from dataplane_world import NARROW, TEMPLATES, Load, Network, Reading, Transfers, classes
from waiting import until

from adon.machine import box, packages
from examples.testbed.layout import CONTROLLER
from network_provisioner.base.errors import BrokerError
from network_provisioner.client.broker import BrokerClient

HERE = Path(__file__).resolve()

pytestmark = [pytest.mark.component, pytest.mark.root]

URL = "127.0.0.1:8470"
BOTH = ("cms", "ligo")
POLICY: Mapping[str, Any] = {
    "name": "cms first",
    "type": "project",
    "strategy": "7-3",
    "action": "start",
    "specs": ["cms", "ligo"],
    "time": [None, None],
}
MBPS = 1e6

if not box.inside():

    @pytest.mark.parametrize("which", ["not long", pytest.param("long", marks=pytest.mark.long)])
    def test_policies_on_open_vswitch(tmp_path: Path, which: str) -> None:
        reason = box.can_box()
        if reason is not None:
            pytest.skip(reason)
        # Downloads need the host's network, so before the box is made.
        packages.ensure("openvswitch", progress=print)
        words = [*box.command(), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        words += ["-m", which]
        words += [f"--basetemp={tmp_path / 'inside'}", str(HERE)]
        done = subprocess.run(
            words, cwd=HERE.parents[2], capture_output=True, text=True, check=False
        )
        print(done.stdout, done.stderr)
        assert done.returncode == 0, done.stdout[-8000:]

else:

    class Rig:
        """The network, the service, and load of both projects."""

        def __init__(self, folder: Path, undo: ExitStack) -> None:
            programs = packages.ensure("openvswitch", progress=print) / "wrap"
            undo.enter_context(Network(NARROW, programs, folder))
            state = {name: str(folder / f"{name}.sqlite") for name in ("state", "archive")}
            config = folder / "adon.yml"
            config.write_text(
                json.dumps(
                    {
                        "topology": NARROW.topology(),
                        "controller": CONTROLLER,
                        "broker": {"listen": URL, **state},
                        "templates": TEMPLATES,
                    }
                ),
                encoding="utf-8",
            )
            words = [sys.executable, "-m", "adon.service.serve", "--config", str(config)]
            log = undo.enter_context((folder / "service.log").open("w"))
            service_process = subprocess.Popen(words, stdout=log, stderr=log, cwd=HERE.parents[2])
            undo.callback(service_process.wait)
            undo.callback(service_process.terminate)
            self.broker = BrokerClient(f"http://{URL}", timeout_s=300.0)
            until(self.answers, "the service")
            self.load = Load(4)
            undo.callback(self.load.stop)
            self.transfers = Transfers(self.broker, self.load)

        def answers(self) -> bool:
            try:
                return self.broker.health()["status"] == "ok"
            except BrokerError:
                return False

        def reaches(self, what: str, check: Callable[[float, float], bool]) -> None:
            """Wait for two seconds in which both goodputs (cms, ligo; Mb/s) are as they should be:
            TCP takes its time, and more of it on a busy machine."""
            seen: list[tuple[float, float]] = []
            window: list[Reading] = [self.load.read()]

            def look() -> bool:
                if time.monotonic() - window[0].at < 2:
                    return False
                now = self.load.read()
                rates = now.since(window[0])
                window[0] = now
                seen.append((rates["cms"] / MBPS, rates["ligo"] / MBPS))
                return check(*seen[-1])

            try:
                until(look, what)
            finally:
                print(what, [f"{a:.0f}+{b:.0f}" for a, b in seen])

        def adon(self, *words: str) -> str:
            """What the command line says."""
            start = "import sys; from adon.cli.main import main; sys.exit(main())"
            argv = [sys.executable, "-c", start, *words, "--broker", f"http://{URL}"]
            done = subprocess.run(
                argv, capture_output=True, text=True, cwd=HERE.parents[2], check=True
            )
            return done.stdout

    @pytest.fixture(scope="module")
    def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
        with ExitStack() as undo:
            yield Rig(tmp_path_factory.mktemp("policies"), undo)

    def test_a_policy_is_on_the_switches_until_it_is_deleted(rig: Rig) -> None:
        rig.transfers.send(BOTH)
        before = classes()
        made = rig.broker.put_policy(POLICY)
        assert not _same_tree(classes(), before)
        live = [t for t in rig.broker.list() if t.state in ("installed", "active")]
        assert sorted(t.grant.queue for t in live) == sorted(made["queues"])
        rig.broker.delete_policy(made["id"])
        until(lambda: _same_tree(classes(), before), "the classes of before")
        rig.transfers.send(())

    @pytest.mark.long
    def test_strategies_are_switched_while_traffic_runs(rig: Rig) -> None:
        rig.transfers.send(BOTH)
        before = classes()
        rig.reaches("without a policy, evenly or so", lambda a, b: a + b > 75 and a < 65)
        made = rig.broker.put_policy(POLICY)
        assert made["state"] == "running"
        rig.reaches("7-3", lambda a, b: 60 < a < 70 and 25 < b < 30)
        # In the order of Figure 8: the second is switched off, then on.
        rig.broker.put_policy({**POLICY, "strategy": "10-3"})
        rig.reaches("10-3, both", lambda a, b: 60 < a < 75 and 22 < b < 30)
        rig.transfers.send(("cms",))
        rig.reaches("10-3, the first alone", lambda a, b: a > 85 and b < 1)
        rig.transfers.send(("ligo",))
        rig.reaches("10-3, the second alone", lambda a, b: a < 1 and 25 < b < 30)
        rig.broker.put_policy({"name": "cms first", "action": "modify", "strategy": "computed"})
        rig.reaches("computed, the second alone", lambda a, b: a < 1 and b > 85)
        rig.transfers.send(BOTH)
        # At least its guarantee: half of its part.
        rig.reaches("computed, both", lambda a, b: a + b > 85 and a > 34 and b > 14)
        live = [t for t in rig.broker.list() if t.state in ("installed", "active")]
        assert sorted(t.grant.queue for t in live) == sorted(made["queues"])
        rig.broker.delete_policy(made["id"])
        until(lambda: _same_tree(classes(), before), "the classes of before")
        assert rig.broker.policies() == []
        rig.transfers.send(())

    @pytest.mark.long
    def test_the_accounts_say_what_was_moved(rig: Rig) -> None:
        before = _by_name(rig.adon("policy", "usage", "--by", "project", "--csv"))
        rig.transfers.send(("ligo",))
        _, begun = rig.transfers.live["ligo"]
        until(lambda: _moved(rig, begun) > 20e6, "20 MB")
        rig.transfers.send(())
        after = _by_name(rig.adon("policy", "usage", "--by", "project", "--csv"))
        assert after["cms"] == before["cms"]
        more = int(after["ligo"]["bytes"]) - int(before["ligo"]["bytes"])
        # What was on its way when the last was counted is not in the report.
        assert 20e6 < more <= _moved(rig, begun)
        assert int(after["ligo"]["transits"]) == int(before["ligo"]["transits"]) + 1
        assert float(after["ligo"]["byte_seconds"]) > float(before["ligo"]["byte_seconds"])

    def _moved(rig: Rig, begun: Reading) -> int:
        return rig.load.read().bytes["ligo"] - begun.bytes["ligo"]

    def _by_name(text: str) -> dict[str, dict[str, str]]:
        return {row["name"]: row for row in csv.DictReader(io.StringIO(text))}

    def _same_tree(now: list[str], before: list[str]) -> bool:
        """The same classes; what the two transits are given of the link may have moved on."""
        return [line.split(" rate")[0] for line in now] == [
            line.split(" rate")[0] for line in before
        ]
