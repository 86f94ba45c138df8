"""User data of machines: what cloud-init is told, and no more than may be read by jobs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import yaml

from condor_plugins.pool.cloud.workerconfig import (
    CONFIG,
    TOKEN,
    ExecuteNode,
    boot_token,
    execute_node,
    user_data,
)

NODE = ExecuteNode("10.0.0.1:9618", "mu", 600.0, {"UID_DOMAIN": "x"}, ("apt-get install condor",))


def test_a_machine_is_told_its_pool_its_name_and_when_to_leave() -> None:
    text = user_data(NODE, "w1", "secret")
    assert text.startswith("#cloud-config\n")
    config = yaml.safe_load(text)
    files = {file["path"]: file for file in config["write_files"]}
    assert files[TOKEN] == {"path": TOKEN, "permissions": "0600", "content": "secret\n"}
    lines = files[CONFIG]["content"].splitlines()
    assert {
        "CONDOR_HOST = 10.0.0.1",
        "COLLECTOR_HOST = 10.0.0.1:9618",
        'AdonWorker = "w1"',
        'PegasusSite = "mu"',
        "STARTD_ATTRS = $(STARTD_ATTRS) PegasusSite AdonSite AdonWorker CloudInstanceId",
        "MAXJOBRETIREMENTTIME = 86400",
        "STARTD_NOCLAIM_SHUTDOWN = 600",
        "UID_DOMAIN = x",
    } <= set(lines)
    assert "secret" not in files[CONFIG]["content"]
    commands = [command[-1] for command in config["runcmd"]]
    assert commands[0] == "apt-get install condor"
    assert commands[-1] == "condor"


def test_a_token_may_advertise_and_ends() -> None:
    commands: list[list[str]] = []

    def run(words: Sequence[str]) -> str:
        commands.append(list(words))
        return "token\n"

    assert boot_token(run, 600, "worker@pool") == "token"
    boot_token(run, 600)
    rights = ["-authz", "ADVERTISE_STARTD", "-authz", "ADVERTISE_MASTER", "-authz", "READ"]
    assert commands == [
        ["condor_token_create", "-identity", "worker@pool", *rights, "-lifetime", "600"],
        ["condor_token_fetch", *rights, "-lifetime", "600"],
    ]


@pytest.mark.parametrize(
    ("collector", "host"),
    [
        ("cm:9618", "cm"),
        ("cm.example.org", "cm.example.org"),
        ("[2001:db8::1]:9618", "[2001:db8::1]"),
    ],
)
def test_the_host_of_a_collector(collector: str, host: str) -> None:
    assert execute_node(collector, "w1", "", 60.0)["CONDOR_HOST"] == host
