"""What the pool grows by: leases, machines of this machine and of a program, the section."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from network_world import star
from waiting import until

from adon.cli import pool_run
from adon.config.adon_yml import parse_config
from adon.config.expansion import LOCK, adon_is_at_work, cloud_of, limits_of
from condor_plugins.pool.cloud.command import CommandCloud
from condor_plugins.pool.cloud.protocol import CloudError, Refusal, Server
from condor_plugins.pool.cloud.startd import Process, StartdCloud
from condor_plugins.pool.cloud.workerconfig import StartdSettings, worker_config
from condor_plugins.pool.expander import cycle
from condor_plugins.pool.leases import Lease, leases_of, measurement_of
from condor_plugins.pool.run_times import RunTimes
from condor_plugins.pool.scaling import Flavour, Limits, MachineState
from monitors.base.measurement import Measurement
from monitors.recording import own
from network_provisioner.access import Principal, Role
from network_provisioner.base.errors import BrokerError, InputError, MissingError

RUNNING, ENDED = MachineState.RUNNING, MachineState.ENDED
SMALL = Flavour("small", 2, 512, 0.1, 20.0, 10.0)

# -- leases --------------------------------------------------------------------------------------


def test_the_newest_lease_of_each_name_counts_until_it_ends() -> None:
    night = Lease("night", 8, 99.0, 2, 512, 10**9)
    measurements = [
        measurement_of(replace(night, slots=4), 1.0),
        measurement_of(night, 2.0),
        measurement_of(Lease("over", 3, 50.0), 2.0),
        measurement_of(Lease("gone", 3, 99.0), 2.0),
        measurement_of(Lease("gone", 0, 3.0), 3.0),
    ]
    (newest,) = leases_of(reversed(measurements), 60.0)
    assert newest.reason == "8 jobs of 2 cores are to run at once, which read 1 GB"
    assert replace(newest, reason="") == night
    assert [lease.name for lease in leases_of(measurements, 2.5)] == ["night", "over"]


def test_a_provisioning_jobs_lease_is_its_workflows_own_to_record() -> None:
    ada = Principal("ada", Role.RESEARCHER, users=frozenset({"ada"}))
    measurement = measurement_of(Lease("uuid:level3", 4, 99.0), 1.0)
    known = Measurement("w", "workflow", "uuid", 1.0, "1", 1.0, "", "uuid", {"user": "ada"})
    assert own(ada, [measurement], lambda _id: known) == [measurement]
    with pytest.raises(BrokerError, match="expected a lease"):
        own(ada, [measurement_of(Lease("night", 4, 99.0), 1.0)], lambda _id: known)


@pytest.mark.parametrize(
    "details", [{}, {"until": None}, {"until": "inf"}, {"until": 9e9, "cores": 0}]
)
def test_what_is_no_lease_is_left_out(details: dict[str, Any]) -> None:
    assert leases_of([Measurement("x", "expansion", "a", 4.0, "1", 1.0, "", "", details)], 2) == []


@pytest.mark.parametrize("name", ["", "a b", 'a"', "a\n", "-a", "a" * 201])
def test_a_lease_has_a_plain_name(name: str) -> None:
    with pytest.raises(InputError, match="expected letters, digits"):
        Lease(name, 1, 0.0)


# -- machines of this machine --------------------------------------------------------------------

STAYS = "#!/bin/sh\nsleep 60\n"
"""What a shell starts in the background does not hear of SIGQUIT."""


def startd_cloud(folder: Path, now: list[float], master: str = STAYS) -> StartdCloud:
    (folder / "sbin").mkdir()
    (folder / "sbin/condor_master").write_text(master)
    (folder / "sbin/condor_master").chmod(0o755)
    (folder / "token").write_text("secret\n")
    settings = StartdSettings(folder / "w", "cm:9618", [SMALL], folder, folder / "token")
    cloud = StartdCloud(settings, lambda: now[0])
    cloud.check()
    return cloud


def states(cloud: StartdCloud) -> list[tuple[str, MachineState]]:
    return [(machine.name, machine.state) for machine in cloud.machines()]


def until_gone(cloud: StartdCloud, name: str) -> None:
    """What it started may end a moment later than itself."""

    def gone() -> bool:
        cloud.delete(name)
        return not states(cloud)

    until(gone, "it to be gone")


def test_a_machine_is_started_once_told_to_go_and_killed_where_it_stays(tmp_path: Path) -> None:
    now = [100.0]
    cloud = startd_cloud(tmp_path, now)
    cloud.start("small", "a")
    cloud.start("small", "a")
    assert cloud.machines() == [Server("a", "small", RUNNING, 100.0)]
    assert (tmp_path / "w/tokens.d/pool").stat().st_mode & 0o777 == 0o600
    process = Process.of(tmp_path / "w/a/process")
    assert process is not None
    cloud.delete("a")
    assert states(cloud) == [("a", ENDED)]
    now[0] += 5.0
    cloud.delete("a")
    assert Process.of(Path(f"/proc/{process.pid}/stat"))
    now[0] += 60.0
    cloud.delete("a")
    until(lambda: not Process.of(Path(f"/proc/{process.pid}/stat")), "it to be killed")
    until_gone(cloud, "a")
    assert (tmp_path / "w/last-ended/log/master.out").exists()
    cloud.delete("a")


def test_who_is_killed_before_the_process_leaves_a_machine_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = startd_cloud(tmp_path, [100.0])
    monkeypatch.setattr(cloud, "_run", lambda _home: os.kill(os.getpid(), signal.SIGKILL))
    if (child := os.fork()) == 0:
        cloud.start("small", "a")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert states(cloud) == [("a", ENDED)]
    cloud.start("small", "a")
    assert states(cloud) == [("a", ENDED)]
    cloud.delete("a")
    assert states(cloud) == []


def test_one_that_ended_at_once_says_why_and_another_of_its_id_is_not_it(tmp_path: Path) -> None:
    cloud = startd_cloud(tmp_path, [100.0], "#!/bin/sh\necho no such collector\nexit 1\n")
    cloud.start("small", "a")
    until(lambda: states(cloud) == [("a", ENDED)], "it to end")
    until(lambda: cloud.machines()[0].error == "no such collector", "its word")
    stat = Path(f"/proc/{os.getpid()}/stat").read_text()
    (tmp_path / "w/a/process").write_text(stat)
    assert states(cloud) == [("a", RUNNING)]
    head, _, fields = stat.rpartition(") ")
    others = " ".join([*fields.split()[:19], "1", *fields.split()[20:]])
    (tmp_path / "w/a/process").write_text(f"{head}) {others}")
    assert states(cloud) == [("a", ENDED)]


def test_machines_that_cannot_be_told_are_not_taken_for_gone(tmp_path: Path) -> None:
    cloud = startd_cloud(tmp_path, [100.0])
    (tmp_path / "w/a/machine.json").mkdir(parents=True)
    with pytest.raises(CloudError, match=r"list: .*Is a directory"):
        cloud.machines()


def test_an_execute_node_is_all_one_slot_and_leaves_when_idle(tmp_path: Path) -> None:
    settings = StartdSettings(tmp_path, "cm:9618", site="mu", idle_s=90, config={"UID_DOMAIN": "x"})
    text = worker_config(settings, SMALL, "adon-1")
    node_settings = dict(line.split(" = ", 1) for line in text.splitlines())
    assert (node_settings["STARTD_NOCLAIM_SHUTDOWN"], node_settings["UPDATE_INTERVAL"]) == (
        "90",
        "30",
    )
    assert (node_settings["SLOT_TYPE_1"], node_settings["SLOT_TYPE_1_PARTITIONABLE"]) == (
        "100%",
        "True",
    )
    assert (node_settings["NUM_CPUS"], node_settings["MEMORY"]) == ("2", "512")
    assert (node_settings["AdonWorker"], node_settings["PegasusSite"]) == ('"adon-1"', '"mu"')
    assert (node_settings["COLLECTOR_HOST"], node_settings["UID_DOMAIN"]) == ("cm:9618", "x")
    assert int(node_settings["MAXJOBRETIREMENTTIME"]) > 3600


def test_what_is_not_good_is_one_line(tmp_path: Path) -> None:
    good = StartdSettings(tmp_path / "w", "cm:9618", [SMALL], tmp_path, tmp_path / "token")
    with pytest.raises(InputError, match="sbin/condor_master: not found"):
        StartdCloud(good).check()
    startd_cloud(tmp_path, [0.0])
    with pytest.raises(InputError, match="none: No such file or directory, expected a token"):
        StartdCloud(replace(good, token_file=tmp_path / "none")).check()
    with pytest.raises(InputError, match=r"token: File exists, expected a folder to write to"):
        StartdCloud(replace(good, directory=tmp_path / "token")).check()
    with pytest.raises(InputError, match="found 'large', expected one of the configuration"):
        StartdCloud(good).start("large", "a")


# -- a program of the admin's --------------------------------------------------------------------

PROGRAM = """
import json, sys
request = json.load(sys.stdin)
with open(sys.argv[1], "a") as log:
    log.write(json.dumps(request) + "\\n")
{then}
"""


def program(folder: Path, then: str = "") -> tuple[CommandCloud, Path]:
    script, log = folder / "grow.py", folder / "log"
    script.write_text(PROGRAM.format(then=then))
    return CommandCloud([sys.executable, "-I", "-S", str(script), str(log)]), log


def test_a_program_of_the_admins_is_asked_and_answers(tmp_path: Path) -> None:
    row = {"name": "vm-1", "flavour": "small", "state": "booting", "since": 9}
    answer = {
        "flavours": [{"name": "small", "cores": 4, "memory_mb": 512}],
        "machines": [
            {**row, "until": 3600},
            {**row, "name": "vm-2", "state": "error", "error": "no host"},
        ],
    }
    then = f"print(json.dumps({{k: v for k, v in {answer!r}.items() if k == request['action']}}))"
    cloud, log = program(tmp_path, then)
    cloud.check()
    assert cloud.flavours() == [Flavour("small", 4, 512)]
    first, second = cloud.machines()
    assert first == Server("vm-1", "small", MachineState.BOOTING, 9.0, until=3600.0)
    outcome = second.state, second.error, second.until
    assert outcome == (MachineState.ERROR, "no host", math.inf)
    cloud.start("small", "a")
    cloud.delete("a")
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    assert requests[-2:] == [
        {"action": "start", "flavour": "small", "name": "a"}, {"action": "delete", "name": "a"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("then", "said", "why"),
    [
        ("sys.exit('no answer')", "start: exit code 1: no answer", Refusal.BUSY),
        ("sys.exit(3)", "exit code 3: no output", Refusal.BUSY),
        ('print(\'{"refused": "quota", "error": "16 of 16"}\')', "start: 16 of 16", Refusal.QUOTA),
        ("print('done')", "answer to start: not valid JSON", Refusal.REFUSED),
        ("print('[]')", r"found \[\], expected a mapping", Refusal.REFUSED),
        ("print('{\"machines\": [1]}')", "found 1, expected a mapping", Refusal.REFUSED),
        ('print(\'{"refused": "never"}\')', "found 'never', expected one of", Refusal.REFUSED),
    ],
)
def test_a_program_that_refuses_says_why(
    tmp_path: Path, then: str, said: str, why: Refusal
) -> None:
    cloud, _ = program(tmp_path, then)
    with pytest.raises(CloudError, match=said) as caught:
        cloud.start("small", "a")
    assert caught.value.why is why


def test_a_program_that_is_not_there_or_never_ends(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        CommandCloud([str(tmp_path / "none")]).check()
    with pytest.raises(CloudError, match=r"no answer within 0\.1 s"):
        CommandCloud(["sleep", "60"], 0.1).check()
    with pytest.raises(InputError, match="found no flavours, expected one at least"):
        program(tmp_path)[0].check()


# -- the section ---------------------------------------------------------------------------------

OPENSTACK = {"cloud": "c", "image": "i", "network": "n"}


def section(**expansion: Any) -> Any:
    data = {
        "topology": star("local", "mu"),
        "pool": {"collector": "cm:9618"},
        "expansion": expansion,
    }
    return parse_config(data, "adon.yml")


def test_the_section_names_flavours_and_limits() -> None:
    flavours = {"a": {"cores": 4, "price": 0.5, "boot": "3 s"}, "b": {"cores": 1, "memory_mb": 9}}
    config = section(flavours=flavours, cores=64, worth=2)
    cloud_flavours = cloud_of(config, Path("adon.yml")).flavours()
    assert cloud_flavours == [
        Flavour("a", 4, 4096, 0.5, 3.0, 10.0),
        Flavour("b", 1, 9, 0.0, 20.0, 10.0),
    ]
    assert limits_of(config.expansion) == Limits(cores=64, machines=16, worth=2.0)


def test_an_expander_looks_and_estimates_as_the_section_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle, "Expander", lambda *given: given)
    expansion = {"driver": "command", "command": ["false"], "jobs_take": "7 min", "every": "9 s"}
    data = {
        "topology": star("local", "mu"),
        "broker": {"archive": str(tmp_path / "archive.sqlite")},
        "pool": {"collector": "cm:9618"},
        "expansion": {**expansion, "directory": str(tmp_path / "workers")},
    }
    config = parse_config(data, "adon.yml")
    with pool_run._opened(config, Path("adon.yml"), print) as (given, every_s):
        (run_times,) = (value for value in given if isinstance(value, RunTimes))
        assert (run_times.of_job({}), every_s) == (420.0, 9.0)


def test_machines_of_this_machine_are_as_the_section_says(monkeypatch: pytest.MonkeyPatch) -> None:
    made = "condor_plugins.pool.cloud.startd.StartdCloud"
    monkeypatch.setattr(made, lambda settings: settings)
    given = {"site": "mu", "idle": "7 min", "config": {"A": "1"}, "environment": {"B": "2"}}
    config = section(flavours={"a": {"cores": 1}}, directory="/w", release="/r", **given)
    settings: Any = cloud_of(config, Path("adon.yml"))
    assert settings == StartdSettings(
        Path("/w"), "cm:9618", [Flavour("a", 1, 1024, 0.0, 20.0, 10.0)], Path("/r"), None, "mu",
        420.0, {"A": "1"}, {"B": "2"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"driver": "cloud"}, "driver: found 'cloud', expected one of 'openstack', 'startd'"),
        ({}, "driver 'startd': found no flavours, expected one at least"),
        ({"flavours": {"a": {}}}, "flavour 'a': found no cores, expected how many it has"),
        ({"money_per_day": 0}, "money_per_day: found 0, expected more than 0"),
        ({"machines": 0}, "machines: found 0, expected 1 or more"),
        ({"pool": "a b"}, "pool: found 'a b', expected letters, digits and any of _.-"),
        ({"driver": "command"}, "found no command, expected a program to call"),
        ({"driver": "openstack", "flavours": {"a": {}}}, "found no openstack, expected its"),
        (
            {"driver": "openstack", "openstack": OPENSTACK, "flavours": {"a": {"cores": 1}}},
            "flavour 'a': found cores or memory_mb, expected none: the cloud has them",
        ),
        ({"idel": "1 h"}, "expansion has the unknown key 'idel', did you mean 'idle'?"),
    ],
)
def test_a_section_that_cannot_be_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        section(**given)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_openstack_needs_its_client_and_a_tool_for_tokens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = section(driver="openstack", openstack=OPENSTACK, flavours={"a": {"price": 1}})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="condor_token_fetch: not found on PATH"):
        cloud_of(config, Path("adon.yml"))
    (tmp_path / "condor_token_fetch").touch(0o755)
    cloud_of(config, Path("adon.yml"))
    monkeypatch.setitem(sys.modules, "condor_plugins.pool.cloud.openstack", None)
    with pytest.raises(MissingError, match=r"pip install 'adon-wms\[openstack\]'"):
        cloud_of(config, Path("adon.yml"))


def test_machines_of_an_openstack_live_as_long_as_the_section_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "condor_token_fetch").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    made = "condor_plugins.pool.cloud.openstack.OpenStackCloud"
    monkeypatch.setattr(made, lambda settings, _: settings)
    openstack = {**OPENSTACK, "life": "2 h"}
    config = section(driver="openstack", openstack=openstack, flavours={"a": {"price": 1}})
    settings: Any = cloud_of(config, Path("adon.yml"))
    assert settings.life_s == 7200.0


def test_who_is_at_work_holds_the_lock(tmp_path: Path) -> None:
    import fcntl  # noqa: PLC0415

    assert adon_is_at_work(str(tmp_path)) is None
    with (tmp_path / LOCK).open("w") as file:
        assert adon_is_at_work(str(tmp_path)) is False
        fcntl.flock(file, fcntl.LOCK_EX)
        assert adon_is_at_work(str(tmp_path)) is True


def test_machines_that_have_ended_are_deleted_side_by_side(tmp_path: Path) -> None:
    cloud = StartdCloud(StartdSettings(tmp_path, "127.0.0.1:9618"))
    names = [f"m{number}" for number in range(8)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "machine.json").write_text(json.dumps({"flavour": "small", "since": 0}))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(cloud.delete, names))
    assert cloud.machines() == []
    assert (tmp_path / "last-ended/machine.json").exists()
