"""The driver on real services of an OpenStack, and its machines in a real pool."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import openstack
import psutil
import pytest

from condor_plugins.pool.cloud.openstack import OpenStackCloud
from condor_plugins.pool.cloud.protocol import CloudError, Refusal
from condor_plugins.pool.scaling import Flavour, MachineState
from examples.testbed.pool import Pool
from network_provisioner.base.errors import InputError
from tests.cloud.rig import (
    NOTHING,
    SETTINGS,
    advertised,
    driver,
    machine,
    until,
    until_gone,
    until_state,
    worker_cloud,
)
from tests.cloud.services import ADMIN, CLOUD, IMAGE, NETWORK

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.filterwarnings("ignore:.*removal", "ignore:.*removed in a future"),
]


def test_a_machine_is_started_once_found_again_and_deleted(world: Any, admin: Any) -> None:
    cloud = driver(group="workers", security_groups=["default"])
    cloud.check()
    assert list(cloud.flavours()) == [
        Flavour("small", 1, 512, 0.1), Flavour("large", 4, 4096, 0.4)
    ]  # fmt: skip
    before = time.time()
    cloud.start("small", "w1")
    assert [(m.name, m.flavour) for m in driver().machines()] == [("w1", "small")]
    assert machine(cloud, "w1").since == pytest.approx(before, abs=120)  # type: ignore[union-attr]
    driver(group="workers").start("small", "w1")
    cloud.start("large", "w2")
    machines = [until_state(cloud, name, MachineState.RUNNING) for name in ("w1", "w2")]
    assert all(m.address.startswith("10.81.0.") for m in machines)
    assert len(cloud.machines()) == 2
    # Two that need not share a host do not.
    assert len({s.compute_host for s in admin.compute.servers(all_projects=True)}) == 2
    cloud.delete("w1")
    until(lambda: machine(cloud, "w1") is None, "w1 to be gone")
    assert machine(cloud, "w2") is not None
    cloud.delete("w1")


def test_a_worker_keeps_away_from_the_head_node(world: Any, admin: Any) -> None:
    tenant, cloud = world.cloud.connect(CLOUD), driver(group="apart")
    group = tenant.compute.create_server_group(name="apart", policy="soft-anti-affinity")
    head = tenant.compute.create_server(
        name="head",
        image_id=tenant.image.find_image(IMAGE).id,
        flavor_id=tenant.compute.find_flavor("small").id,
        networks=[{"uuid": tenant.network.find_network(NETWORK).id}],
        scheduler_hints={"group": group.id},
    )
    tenant.compute.wait_for_server(head, interval=0.2)
    cloud.start("small", "w1")
    until_state(cloud, "w1", MachineState.RUNNING)
    assert [m.name for m in cloud.machines()] == ["w1"]
    assert len({s.compute_host for s in admin.compute.servers(all_projects=True)}) == 2
    tenant.compute.delete_server(head)
    tenant.compute.wait_for_delete(head, interval=0.2)


def test_only_what_is_ours_is_listed_and_deleted(world: Any) -> None:
    ours, others = driver(), driver(pool="p2")
    ours.start("small", "w1")
    others.start("small", "w1")
    ours.delete("w1")
    until(lambda: not ours.machines(), "ours to be gone")
    assert [m.name for m in others.machines()] == ["w1"]


@pytest.mark.parametrize("pin", ["2.1", "2.25", "2.51"])
def test_a_compute_api_that_is_pinned_loses_nothing_of_others(world: Any, pin: str) -> None:
    """Below 2.26 Nova ignores the filter by tag."""
    tenant = world.cloud.connect(CLOUD)

    def connect() -> Any:
        return openstack.connect(cloud=CLOUD, compute_api_version=pin)

    theirs = tenant.compute.create_server(
        name="payroll-db",
        image_id=tenant.image.find_image(IMAGE).id,
        flavor_id=tenant.compute.find_flavor("small").id,
        networks=[{"uuid": tenant.network.find_network(NETWORK).id}],
    )
    tenant.compute.wait_for_server(theirs, interval=0.2)
    assert "payroll-db" in [s.name for s in connect().compute.servers(tags="adon:p1")] or (
        pin == "2.51"
    )
    cloud = OpenStackCloud(SETTINGS, lambda _flavour, _name: NOTHING, connect)
    cloud.check()
    cloud.start("small", "w1")
    assert [m.name for m in cloud.machines()] == ["w1"]
    cloud.delete("payroll-db")
    until_gone(cloud)
    assert [s.name for s in tenant.compute.servers()] == ["payroll-db"]
    tenant.compute.delete_server(theirs)
    tenant.compute.wait_for_delete(theirs, interval=0.2)


def test_a_port_with_quality_of_service_goes_with_its_machine(world: Any, admin: Any) -> None:
    tenant = world.cloud.connect(CLOUD)
    project = tenant.current_project_id
    policy = admin.network.create_qos_policy(name="10mbps", project_id=project)
    admin.network.create_qos_bandwidth_limit_rule(policy, max_kbps=10_000)
    cloud = driver(qos_policy="10mbps", security_groups=["default"])
    cloud.check()
    cloud.start("small", "w1")
    until_state(cloud, "w1", MachineState.RUNNING)
    (port,) = tenant.network.ports(name="w1")
    assert (port.qos_policy_id, port.device_owner) == (policy.id, "compute:nova")
    until_gone(cloud)
    assert not list(tenant.network.ports(name="w1"))
    # Killed between a port and its server: the port is found, used, or deleted.
    cloud._card("w2")
    assert [(m.name, m.state) for m in driver(qos_policy="10mbps").machines()] == [
        ("w2", MachineState.ENDED)
    ]
    cloud.start("small", "w2")
    assert len(list(tenant.network.ports(name="w2"))) == 1
    cloud._card("w3")
    driver(qos_policy="10mbps").delete("w3")
    assert [m.name for m in cloud.machines()] == ["w2"]


def test_a_quota_that_is_used_up_is_told_apart(world: Any, admin: Any) -> None:
    cloud = driver(group="full")
    project = world.cloud.connect(CLOUD).current_project_id
    admin.set_compute_quotas(project, instances=2, server_group_members=1)
    try:
        cloud.start("small", "w1")
        # The group takes no second one, and is only a wish.
        cloud.start("small", "w2")
        with pytest.raises(CloudError, match="Quota exceeded for instances") as refused:
            cloud.start("small", "w3")
        assert refused.value.why is Refusal.QUOTA
    finally:
        admin.delete_compute_quotas(project)
    assert len(cloud.machines()) == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"prices": {"small": 1.0, "tiny": 1.0}}, "found no flavour 'tiny'"),
        ({"prices": {}}, "found no flavours"),
        ({"image": "none"}, "found no image 'none'"),
        ({"network": "none"}, "found no network 'none'"),
        ({"key": "none"}, "found no key 'none'"),
        ({"qos_policy": "none"}, "found no qos policy 'none'"),
        ({"security_groups": ["none"]}, "found no security group 'none'"),
        ({"group": "together"}, "found policy 'affinity' of server group 'together'"),
        ({"group": "twice"}, "found more than one server group 'twice'"),
        ({"cloud": "none"}, "Cloud none was not found"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(world: Any, more: dict[str, Any], said: str) -> None:
    compute = world.cloud.connect(CLOUD).compute
    for name in ("together", "twice", "twice") if "group" in more else ():
        compute.create_server_group(name=name, policy="affinity")
    with pytest.raises(InputError, match=said) as wrong:
        driver(**more).check()
    for group in compute.server_groups():
        compute.delete_server_group(group)
    assert "\n" not in str(wrong.value)


def test_credentials_that_do_not_work_are_said_in_one_line(world: Any) -> None:
    bad = OpenStackCloud(
        SETTINGS,
        lambda *_: NOTHING,
        lambda: openstack.connect(cloud=CLOUD, auth={"password": "wrong"}),
    )
    with pytest.raises(InputError, match=r"401") as wrong:
        bad.check()
    assert "\n" not in str(wrong.value)
    nowhere = {"auth_url": "http://127.0.0.1:1/v3"}
    away = OpenStackCloud(
        SETTINGS, lambda *_: NOTHING, lambda: openstack.connect(cloud=CLOUD, auth=nowhere)
    )
    with pytest.raises(CloudError) as absent:
        away.check()
    assert absent.value.why is Refusal.BUSY


def test_a_token_that_ends_is_renewed_and_a_credential_that_is_revoked_is_told(
    world: Any,
) -> None:
    tenant = world.cloud.connect(CLOUD)
    user = tenant.current_user_id
    made = tenant.identity.create_application_credential(user, "adon")
    client = openstack.connect(
        cloud="", auth_type="v3applicationcredential", region_name="RegionOne",
        auth={"auth_url": tenant.config.auth["auth_url"], "application_credential_id": made.id,
              "application_credential_secret": made.secret},
    )  # fmt: skip
    cloud = OpenStackCloud(SETTINGS, lambda *_: NOTHING, lambda: client)
    cloud.check()
    token = client.auth_token
    tenant.identity.delete("/auth/tokens", headers={"X-Subject-Token": token})
    client.session.auth.invalidate()
    assert cloud.machines() == []
    assert client.auth_token != token
    tenant.identity.delete_application_credential(user, made)
    client.session.auth.invalidate()
    with pytest.raises(CloudError) as refused:
        cloud.machines()
    assert refused.value.why is Refusal.CREDENTIALS


def test_a_request_that_gets_no_answer_may_be_made_again(world: Any) -> None:
    def stuck(_flavour: Flavour, _name: str) -> str:
        world.cloud.send("nova", signal.SIGSTOP)
        return NOTHING

    cloud = OpenStackCloud(replace(SETTINGS, timeout_s=3.0), stuck)
    cloud.check()
    try:
        with pytest.raises(CloudError, match="timed out") as refused:
            cloud.start("small", "w1")
        assert refused.value.why is Refusal.BUSY
    finally:
        world.cloud.send("nova", signal.SIGCONT)
    # Nova had it in its queue.
    until(lambda: machine(driver(), "w1"), "w1")
    driver().start("small", "w1")
    until_state(driver(), "w1", MachineState.RUNNING)
    assert len(driver().machines()) == 1


@pytest.mark.parametrize(
    ("flavour", "reason"), [("huge", "No valid host was found"), ("broken", "Exhausted all hosts")]
)
def test_a_machine_that_ends_in_error_says_why(world: Any, flavour: str, reason: str) -> None:
    tenant = world.cloud.connect(CLOUD)
    cloud = driver(prices={flavour: 1.0})
    world.cloud.connect(ADMIN).set_compute_quotas(tenant.current_project_id, cores=1000, ram=10**7)
    cloud.start(flavour, "w1")
    server = until_state(cloud, "w1", MachineState.ERROR)
    assert reason in server.error
    assert server.flavour == flavour


def test_a_machine_that_hangs_in_build_is_told_and_deleted(world: Any) -> None:
    cloud = driver(prices={"hanging": 1.0})
    cloud.start("hanging", "w1")
    tenant = world.cloud.connect(CLOUD)
    until(lambda: next(iter(tenant.compute.servers())).task_state == "spawning", "it to hang")
    server = machine(driver(), "w1")
    assert server is not None and server.state is MachineState.BOOTING
    cloud.delete("w1")
    until(lambda: not cloud.machines(), "w1 to be gone")


def test_a_machine_becomes_a_worker_runs_a_job_and_leaves(
    world: Any, pool: Pool, tmp_path: Path
) -> None:
    cloud = worker_cloud(pool)
    cloud.start("small", "w1")
    until_state(cloud, "w1", MachineState.RUNNING)
    advert = until(lambda: advertised(pool, "w1"), "the worker")
    (server,) = world.cloud.connect(CLOUD).compute.servers()
    assert advert[:2] == [server.id, "cloud"]
    tmp_path.chmod(0o755)
    (tmp_path / "j.sub").write_text(
        "executable = /bin/hostname\noutput = out\nlog = log\nrequest_memory = 64\nqueue\n"
    )
    pool.run(["condor_submit", "j.sub"], cwd=tmp_path)
    pool.run(["condor_wait", "log"], cwd=tmp_path, timeout_s=300)
    assert (tmp_path / "out").read_text() == "w1\n"
    pool.run(["condor_drain", "-graceful", "-exit-on-completion", "slot1@w1"])
    until(lambda: not advertised(pool, "w1"), "the worker to leave")
    assert cloud.machines()[0].state is MachineState.RUNNING  # what is left of it is to be deleted


def test_user_data_may_be_followed_twice_and_a_machine_that_dies_has_ended(
    world: Any, pool: Pool
) -> None:
    cloud = worker_cloud(pool)
    cloud.start("small", "w2")
    until_state(cloud, "w2", MachineState.RUNNING)
    first = until(lambda: advertised(pool, "w2"), "the worker")
    tenant = world.cloud.connect(CLOUD)
    tenant.compute.stop_server(first[0])
    until_state(cloud, "w2", MachineState.ENDED, MachineState.RUNNING)
    tenant.compute.start_server(first[0])
    until_state(cloud, "w2", MachineState.RUNNING, MachineState.ENDED)
    until(lambda: advertised(pool, "w2")[2:] > first[2:], "the worker to come back")
    for process in psutil.process_iter(["cmdline"]):
        if "tests.cloud.machine" in process.info["cmdline"]:
            process.kill()
    until_state(cloud, "w2", MachineState.ENDED, MachineState.RUNNING)
