"""The daemon on real services of an OpenStack, whose machines join a real pool."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import killed_expander
import psutil
import pytest
import yaml
from faults_door import Door, hangs_up, passes, says_500
from network_world import star
from startd_world import adon, at_work, happened, recorded, submit_fan

from examples.testbed.pool import Pool
from tests.cloud import settings
from tests.cloud.machine import unplug
from tests.cloud.rig import SETTINGS, WORKER
from tests.cloud.services import CLOUD, IMAGE, NETWORK, clouds
from tests.waiting import until

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.filterwarnings("ignore:.*removal", "ignore:.*removed in a future"),
]

FOR_EVER_S = 100_000  # a job that ends when it is removed
BOOT = {"boot": "8 s", "boot_spread": "4 s"}
SUBMIT = "executable = sleep\nlog = {name}.log\nrequest_memory = 64\n"


def configured(
    folder: Path, pool: Pool, openstack: dict[str, Any] | None = None, **more: Any
) -> Path:
    folder.chmod(0o755)  # for the jobs
    # A program of its own: how long those of other tests ran says nothing.
    (folder / "sleep").symlink_to("/bin/sleep")
    expansion = {
        "driver": "openstack",
        "pool": SETTINGS.pool,
        "flavours": {"small": {"price": 0.1, **BOOT}, "large": {"price": 0.4, **BOOT}},
        "every": "1 s",
        "jobs_take": "20 s",
        "site": "cloud",
        "config": {"UPDATE_INTERVAL": "5"},
        "openstack": {
            "cloud": CLOUD, "image": IMAGE, "network": NETWORK, "identity": WORKER,
            **(openstack or {}),
        },
    }  # fmt: skip
    data = {
        "topology": star("local", "cloud"),
        "pool": {"collector": pool.collector},
        "expansion": expansion | more,
    }
    path = folder / "adon.yml"
    path.write_text(yaml.safe_dump(data))
    return path


def submit(
    pool: Pool, folder: Path, name: str, seconds: int, count: int = 1, more: str = ""
) -> Path:
    """Its log."""
    text = f"{SUBMIT.format(name=name)}arguments = {seconds}\n{more}\nqueue {count}\n"
    (folder / f"{name}.sub").write_text(text)
    pool.run(["condor_submit", "-terse", f"{name}.sub"], cwd=folder)
    return folder / f"{name}.log"


def explained(pool: Pool, config: Path) -> str:
    return " ".join(pool.run(adon(config, "explain", "--limit", "1000")).split())


def servers(world: Any) -> list[Any]:
    return list(world.cloud.connect(CLOUD).compute.servers())


def nothing_left(pool: Pool, world: Any) -> bool:
    """Neither servers nor ports nor slots."""
    ports = world.cloud.connect(CLOUD).network.ports()
    slots = pool.run(["condor_status", "-constraint", "AdonWorker isnt undefined", "-af", "Name"])
    return not servers(world) and not list(ports) and not slots


def test_from_nothing_to_nothing(world: Any, pool: Pool, admin: Any, tmp_path: Path) -> None:
    tenant = world.cloud.connect(CLOUD)
    admin.network.create_qos_policy(name="mbps", project_id=tenant.current_project_id)
    config = configured(tmp_path, pool, {"group": "away", "qos_policy": "mbps"})
    with at_work(pool, adon(config, "run"), tmp_path) as daemon:
        log = submit(pool, tmp_path, "j", 3, count=6)
        (port,) = until(lambda: [p for p in tenant.network.ports() if p.device_id], "a port")[:1]
        assert port.qos_policy_id == tenant.network.find_qos_policy("mbps").id
        group = tenant.compute.find_server_group("away")
        assert tenant.compute.get_server_group(group).member_ids
        until(lambda: happened(log, "005") == 6, "the jobs to end")
        until(lambda: nothing_left(pool, world), "the machines to be gone")
        assert daemon.poll() is None
    assert happened(log, "004") == 0
    lived = recorded(tmp_path, "machine")
    assert lived
    assert {m.details["why"] for m in lived} == {"it is drained"}
    assert len(lived) == len(recorded(tmp_path, "boot"))
    assert "would wait for more than" in explained(pool, config)


def test_a_wide_level_between_two_narrow_ones(world: Any, pool: Pool, tmp_path: Path) -> None:
    config = configured(tmp_path, pool, flavours={"large": {"price": 0.4, **BOOT}})
    for name, seconds in (("a", 2), ("b", 6), ("z", FOR_EVER_S)):
        text = f"{SUBMIT.format(name='dag')}arguments = {seconds}\nqueue\n"
        (tmp_path / f"{name}.sub").write_text(text)
    with at_work(pool, adon(config, "run"), tmp_path):
        submit_fan(pool, tmp_path, 12)
        log = tmp_path / "dag.log"
        until(lambda: happened(log, "005") == 13, "the wide level to end")
        until(lambda: len(servers(world)) == 1, "the pool to shrink")
        assert happened(log, "005") == 13
        pool.run(["condor_rm", "-all"])
        until(lambda: nothing_left(pool, world), "the machines to be gone")
    assert happened(log, "004") == 0
    assert len(recorded(tmp_path, "machine")) >= 3


def test_flavours_that_do_not_come_up(world: Any, pool: Pool, tmp_path: Path) -> None:
    hangs = {"boot": "2 s", "boot_spread": "1 s"}
    flavours = {
        "broken": {"price": 0.01},
        "hanging": {"price": 0.02, **hangs},
        "small": BOOT | {"price": 0.1},
    }
    config = configured(tmp_path, pool, flavours=flavours)
    with at_work(pool, adon(config, "run"), tmp_path):
        fits = submit(pool, tmp_path, "fits", 1)
        submit(pool, tmp_path, "large", 1, more="request_memory = 600")
        until(lambda: happened(fits, "005"), "the job to end")
        until(lambda: nothing_left(pool, world), "the machines to be gone")
        pool.run(["condor_rm", "-all"])
    explanation = explained(pool, config)
    assert (
        "the hypervisor has no bootable device" in explanation
        or "Exhausted all hosts" in explanation
    )
    assert "2 s is usual" in explanation
    assert "a job of 1 cores and 600 MB: no flavour that may be started now takes it" in explanation
    lived = {m.subject: m.details["why"] for m in recorded(tmp_path, "machine")}
    assert list(lived) == ["broken", "hanging", "small"]
    assert [m.subject for m in recorded(tmp_path, "boot")] == ["small"]


def test_what_a_quota_leaves_no_room_for_waits_for_it(
    world: Any, pool: Pool, admin: Any, tmp_path: Path
) -> None:
    config = configured(tmp_path, pool)
    project = world.cloud.connect(CLOUD).current_project_id
    admin.set_compute_quotas(project, instances=1)
    try:
        with at_work(pool, adon(config, "run"), tmp_path):
            small = submit(pool, tmp_path, "small", FOR_EVER_S)
            until(lambda: happened(small, "001"), "the job to run")
            large = submit(pool, tmp_path, "large", 1, more="request_memory = 600")
            until(lambda: "1 large not started" in explained(pool, config), "the refusal")
            assert "Quota exceeded for instances" in explained(pool, config)
            pool.run(["condor_rm", "-constraint", f'Args == "{FOR_EVER_S}"'])
            until(lambda: happened(large, "005"), "the other job to end")
            until(lambda: nothing_left(pool, world), "the machines to be gone")
    finally:
        admin.delete_compute_quotas(project)


def loses_answers(connection: socket.socket, door: Door) -> None:
    """What is asked for is done, and nobody hears of it."""
    (hangs_up if connection.recv(4, socket.MSG_PEEK) == b"POST" else passes)(connection, door)


def test_a_cloud_that_is_away_for_a_while(
    world: Any, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path, pool)
    door = Door(settings.PORTS["nova"])
    by_door = clouds()
    by_door[CLOUD]["compute_endpoint_override"] = f"{door.url}/v2.1"
    (tmp_path / "clouds.yaml").write_text(yaml.safe_dump({"clouds": by_door}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    door.how = loses_answers

    def said(line: str) -> int:
        return (tmp_path / "daemon.log").read_text().count(line)

    try:
        with at_work(pool, adon(config, "run"), tmp_path) as daemon:
            log = submit(pool, tmp_path, "j", FOR_EVER_S)
            until(lambda: happened(log, "001"), "the job to run")
            door.how = says_500
            until(lambda: said("nothing is done: cloud tenant: list servers"), "a complaint")
            door.how = passes
            until(lambda: said(" goes on"), "it to go on")
            assert len(servers(world)) == 1
            pool.run(["condor_rm", "-all"])
            until(lambda: nothing_left(pool, world), "the machine to be gone")
            assert daemon.poll() is None
    finally:
        door.close()
    assert said("1 small not started: cloud tenant: start") == 1
    assert len(recorded(tmp_path, "machine")) == 1
    assert happened(log, "001") == 1


def test_machines_that_die_are_replaced(world: Any, pool: Pool, tmp_path: Path) -> None:
    config = configured(tmp_path, pool)
    with at_work(pool, adon(config, "run"), tmp_path):
        log = submit(pool, tmp_path, "j", FOR_EVER_S, 2, "job_lease_duration = 20")
        until(lambda: happened(log, "001") == 2, "the jobs to run")
        by_hand, dies = servers(world)
        tenant = world.cloud.connect(CLOUD)
        (port,) = tenant.network.ports(device_id=dies.id)
        unplug(f"m{port.id[:11]}")
        for process in psutil.process_iter(["cmdline"]):
            if any(dies.id in word for word in process.info["cmdline"] or ()):
                process.kill()
        tenant.compute.delete_server(by_hand)
        until(lambda: happened(log, "001") == 4, "the jobs to run elsewhere")
        pool.run(["condor_rm", "-all"])
        until(lambda: nothing_left(pool, world), "the machines to be gone")
    lived = [m.details["why"] for m in recorded(tmp_path, "machine")]
    assert len(lived) - lived.count("it is drained") == 2
    assert "it is drained" in lived


def test_killed_at_each_step_it_leaves_no_orphan_no_double_and_no_lost_job(
    world: Any, pool: Pool, admin: Any, tmp_path: Path
) -> None:
    project = world.cloud.connect(CLOUD).current_project_id
    admin.network.create_qos_policy(name="killed", project_id=project)
    steps = tmp_path / "steps"
    steps.mkdir()
    # It drains while its jobs run, and they end when the daemon is back: of a machine that is
    # drained meanwhile nobody would know until it is taken for dead.
    config = configured(
        tmp_path, pool, {"qos_policy": "killed"}, jobs_take="1 s",
        flavours={"large": {"price": 0.4, **BOOT}},
    )  # fmt: skip
    driver = "condor_plugins.pool.cloud.openstack:OpenStackCloud"
    program = [sys.executable, "-I", killed_expander.__file__, str(steps), driver]
    again = f'while [ ! -e {tmp_path}/over ]; do "$@" & p=$!; wait $p; done'
    again = f"trap 'kill $p; wait $p' TERM; {again}"  # none goes on after the test
    log = submit(pool, tmp_path, "j", FOR_EVER_S, 2)
    with at_work(pool, ["sh", "-c", again, "sh", *program, *adon(config, "run")[4:]], tmp_path):
        until((steps / "after-drain").exists, "its machine to drain")
        deaths, daemon_log = len(list(steps.iterdir())), tmp_path / "daemon.log"
        until(lambda: daemon_log.read_text().count("at work") > deaths, "the daemon to be back")
        assert happened(log, "004") == 0
        pool.run(["condor_rm", "-all"])
        until(lambda: nothing_left(pool, world), "the machines to be gone")
        until(lambda: len(list(steps.iterdir())) == 12, "it to have been killed twelve times")
        (tmp_path / "over").touch()
    assert happened(log, "001") == 2
    whys = [m.details["why"] for m in recorded(tmp_path, "machine")]
    assert whys == ["it is drained"]
    assert len(recorded(tmp_path, "boot")) == 1


@pytest.mark.parametrize(
    ("flavour", "cloud", "said"),
    [
        ("tiny", CLOUD, "cloud tenant: found no flavour 'tiny', expected one"),
        ("small", "wrong", "401"),
    ],
)
def test_what_cannot_work_ends_at_once(
    world: Any, pool: Pool, tmp_path: Path, flavour: str, cloud: str, said: str
) -> None:
    config = configured(tmp_path, pool, {"cloud": cloud}, flavours={flavour: {"price": 0.1}})
    wrong = clouds()[CLOUD]
    wrong["auth"]["password"] = "wrong"
    (tmp_path / "clouds.yaml").write_text(yaml.safe_dump({"clouds": clouds() | {"wrong": wrong}}))
    env = pool.env() | {"OS_CLIENT_CONFIG_FILE": str(tmp_path / "clouds.yaml")}
    done = subprocess.run(
        pool.command(adon(config, "run")), env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
