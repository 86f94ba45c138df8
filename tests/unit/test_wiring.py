"""From adon.yml to a broker with its controller, limits and books."""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_world import CONFIG
from made_transit import made_transit
from network_world import TEMPLATES, star

from adon.config.adon_yml import parse_config
from adon.config.sections import Config
from adon.service.monitoring import archive_part
from adon.service.wiring import (
    Learning,
    limits_of,
    make_broker,
    make_controller,
    measured_best_effort,
    measured_paths,
    measured_space,
)
from monitors.alerts.anomalies.service import AnomalyService
from monitors.alerts.anomalies.settings import watch_from_dict
from monitors.archive.archive import Archive, Measurement
from monitors.archive.estimate_sources import UserArchive
from monitors.archive.knowledge import gamma_a
from monitors.archive.outbox import Outbox
from monitors.archive.retention.horizons import Retention, retention_from_dict
from monitors.archive.transfers import transfer_facts
from network_provisioner.base.errors import InputError, MissingError
from network_provisioner.base.model import Transit, TransitRequest, TransitState
from network_provisioner.controllers.opendaylight.driver import OpenDaylightController
from network_provisioner.controllers.openflow.driver import OpenFlowController
from network_provisioner.controllers.simulated import SimulatedController
from network_provisioner.selection.limits import BrokerLimits, Quota
from network_provisioner.selection.transit import Metric
from network_provisioner.topology.data import topology_from_dict

RELOADED_TWICE = """
import os, signal, socket, sys, threading
from pathlib import Path
from types import SimpleNamespace
from adon.service import serve
ended = threading.Event()
serve.read_settings = lambda file: (SimpleNamespace(controller=None, topology=None),)
serve.make_controller = serve.topology_from_dict = serve.changes_text = lambda *_: ""
if serve._KEPT_SOCKET not in os.environ:
    serve._restart("", socket.create_server(("127.0.0.1", 0)))
os.kill(os.getpid(), signal.SIGHUP)  # while it is starting
serve._reloading(Path("adon.yml"), None, ended.set)
sys.exit(not ended.wait(60))
"""


def config(folder: Path, **sections: Any) -> Config:
    data = copy.deepcopy(CONFIG) | {
        "broker": {"state": str(folder / "s.sqlite"), "archive": str(folder / "a.sqlite")},
        "controller": {},
    }
    data["topology"]["links"].append(
        {"a": "r1", "b": "s2", "layer": "l3", "capacity": "20 Mb/s", "ports": {"s2": 11}}
    )
    data["topology"]["nodes"][-1]["macs"]["s2"] = "02:00:00:00:0b:02"
    data["templates"] = {}
    return parse_config(data | sections, "adon.yml")


def controller(folder: Path, **section: Any) -> object:
    given = config(folder, controller=section)
    return make_controller(given.controller, topology_from_dict(given.topology))


def test_drivers_by_name(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("admin\n")
    assert isinstance(controller(tmp_path), SimulatedController)
    assert isinstance(controller(tmp_path, driver="openflow", exec=["env"]), OpenFlowController)
    odl = {"driver": "opendaylight", "url": "http://127.0.0.1:8181", "user": "admin"}
    made = controller(tmp_path, **odl, exec=["env"], password_file=str(password))
    assert isinstance(made, OpenDaylightController)
    name = "network_provisioner.controllers.simulated:SimulatedController"
    assert isinstance(controller(tmp_path, driver=name), SimulatedController)


def test_a_driver_is_told_what_the_section_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = "network_provisioner.controllers.openflow.driver.OpenFlowController"
    monkeypatch.setattr(made, lambda *_, **given: given)
    section = {"exec": ["env"], "bandwidth": "none", "watch": False}
    told: Any = controller(tmp_path, driver="openflow", **section)
    assert (told["bandwidth"], told["watch"]) == ("none", False)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"driver": "openflow", "exec": ["no-such-program"]}, "no-such-program: found no such"),
        ({"driver": "opendaylight", "url": "http://x"}, "found no password_file"),
        (
            {"driver": "opendaylight", "url": "http://x", "password_file": "/nowhere"},
            "/nowhere: cannot be read",
        ),
    ],
)
def test_drivers_that_cannot_be(tmp_path: Path, section: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, MissingError)) as caught:
        controller(tmp_path, **section)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_limits_are_those_given_and_the_usual_others(tmp_path: Path) -> None:
    assert limits_of(config(tmp_path).limits) == BrokerLimits()
    given = {"reservable": 0.5, "max_lease": "2 h", "unsized_lease": 60, "aging": "30 s"}
    made = limits_of(config(tmp_path, limits={**given, "max_paths": 3}).limits)
    assert made == BrokerLimits(
        reservable=0.5, max_lease_s=7200.0, unsized_lease_s=60.0, max_paths=3, aging_s=30.0
    )


def test_quotas_are_read_by_user_and_by_project(tmp_path: Path) -> None:
    given = {"user": {"*": {"live": 9, "rate": "1 Gb/s"}, "ada": {"advance": 3}}}
    made = limits_of(config(tmp_path, limits={"quotas": given}).limits)
    assert made.quotas == {"user": {"*": Quota(9, 1e9), "ada": Quota(advance=3)}}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"quotas": {"user": {"ada": {"live": -1}}}}, "limits.quotas.user.ada.live: found -1"),
        (
            {"quotas": {"users": {}}},
            "limits.quotas.users: found 'users', expected one of 'user' or 'project'",
        ),
        ({"driver": "openflw"}, "did you mean 'openflow'?"),
        ({"bandwidth": "magic"}, "controller.bandwidth: found 'magic', expected one of 'auto'"),
        ({"reservable": 0}, "limits.reservable"),
        ({"reservable": 1.1}, "limits.reservable"),
        ({"max_lease": "0 s"}, "limits.max_lease: found '0 s', expected more than 0"),
        ({"max_path": 2}, "limits has the unknown key 'max_path', did you mean 'max_paths'?"),
    ],
)
def test_sections_that_cannot_be(tmp_path: Path, section: dict[str, Any], words: str) -> None:
    name = "controller" if {"driver", "bandwidth"} & section.keys() else "limits"
    with pytest.raises(InputError) as caught:
        config(tmp_path, **{name: section})
    assert words in str(caught.value)


def test_a_broker_with_its_books(tmp_path: Path) -> None:
    given = config(tmp_path, template_policy={"max_priority": 1}, templates=TEMPLATES)
    with Archive(tmp_path / "a.sqlite") as archive:
        broker, books = make_broker(given, Outbox(archive))
        broker.start()
        try:
            policy = {"name": "p", "type": "user", "strategy": "10-3", "specs": ["ada", "*"]}
            made, _ = books.policies.post(policy)
            broker.sweep()
            size = 10**9
            broker.request(TransitRequest("a", "mu", "tacc", size, template="soykb", user="ada"))
            broker.sweep()
            # One book: what is started over REST is what the broker follows.
            assert broker.get("a").grant.queue == made["queues"][0]
            assert books.templates.policy.max_priority == 1
            ended = broker.release("a", size, 80.0, "success")
            learned = books.templates.get("soykb")
            assert learned is not None and learned.peak_bps == ended.usage.goodput_bps
            assert (
                archive.estimate("throughput", "mu>tacc", ended.grant.released_at + 1) is not None
            )
            assert [t.request.user for t in books.store.each()] == ["ada"]
        finally:
            broker.stop()


def test_a_store_is_let_go_where_the_rest_cannot_be_made(tmp_path: Path) -> None:
    given = config(tmp_path)
    with Archive(tmp_path / "a.sqlite") as archive:
        for _ in range(2):  # the second would be refused the file
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("network_provisioner.broker.Broker.__init__", _refuse)
                with pytest.raises(InputError, match="no such broker"):
                    make_broker(given, Outbox(archive))


def test_the_broker_asks_the_archive_for_all_that_it_decides_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("network_provisioner.broker.Broker", lambda *_, **given: given)
    with Archive(tmp_path / "a.sqlite") as archive:
        made: Any = make_broker(config(tmp_path), Outbox(archive))
        given, books = made
        books.store.close()
        asked = ("best_effort_of", "disk_rate_of", "figures_of", "space_of")
        assert all(callable(given.get(name)) for name in asked)


def test_measurements_are_kept_as_long_as_the_section_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitors.archive.retaining.RetentionService", lambda *given: given)
    kept = {"default": {"raw": "50 h"}}
    with Archive(":memory:") as archive:
        around: Any = SimpleNamespace(
            archive=archive, clock=time.time, settings=SimpleNamespace(retention=kept), store=None,
            broker=SimpleNamespace(other_problems=[]), rules=None, outbox=None,
        )  # fmt: skip
        services: Any = archive_part(around).services
    assert services[1][1] == retention_from_dict(kept) != Retention()


def _refuse(*_: object, **__: object) -> None:
    raise InputError("no such broker")


def test_templates_learn_also_where_the_archive_fails() -> None:
    class Full:
        def record(self, transit: Transit) -> None:
            raise OSError("disk full")

    class Book:
        learned: list[str] = []  # noqa: RUF012

        def learn(self, transit: Transit) -> None:
            self.learned.append(transit.id)

    book: Any = Book()
    with pytest.raises(OSError, match="disk full"):
        Learning(Full(), book).record(made_transit("a", "x", "y", TransitState.RELEASED))
    assert book.learned == ["a"]


def test_best_effort_and_paths_are_looked_up_apart() -> None:
    moved = {"bytes": 10**9, "seconds": 80.0, "released_at": 100.0, "requested_at": 10.0}
    with Archive(":memory:") as archive:
        for transit in (
            made_transit("a", "mu", "tacc", TransitState.BEST_EFFORT, **moved),
            made_transit(
                "b", "mu", "tacc", TransitState.RELEASED, path=["mu", "s1", "tacc"], layer="lan",
                **{**moved, "seconds": 40.0},
            ),
        ):  # fmt: skip
            archive.record_many(transfer_facts(transit))
        best_effort = measured_best_effort(archive, lambda: 110.0)
        assert best_effort("mu", "tacc", "ada") == (1e8, 10.0)
        assert best_effort("tacc", "mu", "ada") is None
        topology = topology_from_dict(star("mu", "tacc"))
        path = topology.path(["mu", "s1", "tacc"])
        now = [110.0]
        measured = measured_paths(archive, topology, lambda: now[0])
        assert measured(path, "ada") == {"throughput": Metric(2e8, "measured", 10.0)}
        archive.record_many([Measurement("r", "rtt", "mu>tacc", 3.0, "s", 109.0, "agent")])
        assert measured(path, "ada").keys() == {"throughput"}  # it was asked a moment ago
        now[0] = 116.0
        assert measured(path, "ada")["delay"] == Metric(3.0, "measured", 7.0)


@pytest.mark.parametrize("age_s", [2 * 86_400.0, 3600.0, -3000.0])
def test_what_was_measured_at_another_time_decides_nothing(age_s: float) -> None:
    """Too long ago, or by a clock that is ahead."""
    topology = topology_from_dict(star("mu", "tacc"))
    path, now = topology.path(["mu", "s1", "tacc"]), 1e9
    with Archive(":memory:") as archive:
        archive.record_many(
            [
                Measurement("r", "rtt", "mu>tacc", 3.0, "s", now - age_s, "agent"),
                Measurement("l", "loss", "mu>tacc", 1.0, "1", now - age_s, "agent"),
                Measurement("f", "free_space", "tacc", 0.0, "byte", now - age_s, "agent"),
            ]
        )
        assert measured_paths(archive, topology, lambda: now)(path, "ada") == {}
        assert measured_space(archive, lambda: now)("tacc") is None


def test_the_free_space_of_a_site_is_the_least_of_its_hosts_now() -> None:
    with Archive(":memory:") as archive:
        archive.record_many(
            Measurement(f"{host}{n}", "free_space", host, free, "byte", 1e9 - 60 * n, "agent")
            for host, free_by_age in (("tacc", (5e9, 1.0)), ("tacc/b", (4e9, 9e9)), ("mu", (0.0,)))
            for n, free in enumerate(free_by_age)
        )
        assert measured_space(archive, lambda: 1e9 + 10)("tacc") == (4e9, 10.0)


def test_what_was_looked_up_is_looked_up_again_soon_also_after_the_clock_went_back() -> None:
    topology, now = topology_from_dict(star("mu", "tacc")), [110.0]
    path = topology.path(["mu", "s1", "tacc"])
    with Archive(":memory:") as archive:
        space, measured = (
            measured_space(archive, lambda: now[0]),
            measured_paths(archive, topology, lambda: now[0]),
        )
        for at, free in ((110.0, 5.0), (5110.0, 1.0), (50.0, 2.0)):
            now[0] = at
            archive.record_many(
                [
                    Measurement(f"f{at}", "free_space", "tacc", free, "byte", at, "agent"),
                    Measurement(f"r{at}", "rtt", "mu>tacc", free, "s", at, "agent"),
                ]
            )
            assert space("tacc") == (free, 0.0)
            assert measured(path, "ada") == {"delay": Metric(free, "measured", 0.0)}


def test_what_is_measured_of_a_path_comes_with_its_anomaly() -> None:
    topology = topology_from_dict(star("mu", "tacc"))
    path, start, now = topology.path(["mu", "s1", "tacc"]), 1e9, [1e9]
    with Archive(":memory:") as archive:
        watch = watch_from_dict({"rtt": {"learn": "1 h"}})
        service = AnomalyService(archive, watch, lambda *_: None, lambda: now[0])
        service.catch_up()
        measured = measured_paths(archive, topology, lambda: now[0])

        def minutes(first: int, last: int, rtt_s: float) -> Metric:
            for n in range(first, last):
                now[0] = start + 60.0 * n
                seconds = rtt_s * (1 + 0.001 * (n % 3))
                archive.record(
                    Measurement(f"r{n}", "rtt", "mu>tacc", seconds, "s", now[0], "agent")
                )
                service.read_new()
            return measured(path, "ada")["delay"]

        assert minutes(0, 120, 0.04).worsening is None
        worse = minutes(120, 130, 0.2).worsening
        assert worse is not None and worse.before == pytest.approx(0.04, rel=0.01)
        assert worse.since == start + 120 * 60 < worse.noticed <= now[0]
        assert minutes(130, 170, 0.04).worsening is None


def test_what_others_claim_of_a_path_moves_nobody() -> None:
    """Nor does it hide what is believed, however often it is said."""
    with Archive(":memory:") as archive:
        for number, (user, gbps) in enumerate([("ada", 6.0)] + [("eve", 0.9)] * 200):
            archive.record_many(
                transfer_facts(
                    made_transit(
                        str(number), "mu", "tacc", TransitState.RELEASED, user=user, layer="lan",
                        path=["mu", "s1", "tacc"], bytes=10**9, seconds=8.0 / gbps,
                        released_at=100.0, vouched=False,
                    )
                )
            )  # fmt: skip
        topology = topology_from_dict(star("mu", "tacc"))
        path = topology.path(["mu", "s1", "tacc"])
        metrics_of = measured_paths(archive, topology, lambda: 110.0)
        rates = {
            user: metrics_of(path, user).get("throughput") for user in ("ada", "eve", "bob", "")
        }
        assert rates == {
            "ada": Metric(pytest.approx(6e9), "measured", 10.0),
            "eve": Metric(pytest.approx(9e8), "measured", 10.0),
            "bob": None, "": None,
        }  # fmt: skip
        believed = UserArchive(archive, {"ada"})
        gamma = gamma_a(believed, "mu", "tacc", 110.0)
        assert gamma is not None and gamma.value == pytest.approx(6e9)
        moved = believed.query("throughput", "mu>tacc", until=110.0, newest=True, limit=9)
        assert [measurement.source for measurement in moved] == ["transfer of ada"]
        everything = archive.estimate("throughput", "mu>tacc", 110.0)
        assert everything is not None and everything.value == pytest.approx(9e8)


def test_a_reload_during_a_reload_waits_for_the_new_process() -> None:
    command = [sys.executable, "-c", RELOADED_TWICE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
