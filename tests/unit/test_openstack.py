"""The driver of OpenStack against answers that real services give too seldom."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import requests
import yaml
from keystoneauth1 import session, token_endpoint
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from openstack.test.fakes import generate_fake_resource
from requests.adapters import BaseAdapter

from condor_plugins.pool.cloud.openstack import OpenStackCloud, OpenStackSettings, _machine
from condor_plugins.pool.cloud.protocol import CloudError, Refusal
from condor_plugins.pool.cloud.protocol import Server as CloudServer
from condor_plugins.pool.cloud.workerconfig import (
    CONFIG,
    TOKEN,
    ExecuteNode,
    boot_token,
    execute_node,
    user_data,
)
from condor_plugins.pool.scaling import MachineState
from network_provisioner.base.errors import InputError
from tests.cloud.assembly import explain

pytestmark = pytest.mark.filterwarnings("ignore:.*removal", "ignore:.*removed in a future")
SETTINGS = OpenStackSettings("c", "p", {"small": 1.0}, "i", "n")
VERSION = {
    "id": "v2.1", "status": "CURRENT", "version": "2.100", "min_version": "2.1",
    "links": [{"rel": "self", "href": "http://nova/v2.1"}],
}  # fmt: skip
FOUND = {
    "/v2.1/flavors/small": {"flavor": {"id": "f", "name": "small", "vcpus": 1, "ram": 512}},
    "/v2.1/images/i": {"id": "i", "name": "i"},
    "/v2.1/v2.0/networks/n": {"network": {"id": "n", "name": "n"}},
    "/v2.1/servers/detail": {"servers": []},
    "/v2.1": {"version": VERSION},
    "/": {"versions": [VERSION]},
}
Answer = tuple[int, dict[str, str], str] | Exception


class Scripted(BaseAdapter):
    """Answers what is listed, and by ``answer`` what changes something."""

    def __init__(self, answer: Answer, on: str, documents: Mapping[str, Any]) -> None:
        super().__init__()
        self.answer, self.on, self.found = answer, on, documents
        self.versions: set[str | None] = set()  # of which lists of servers were asked
        self.asked: list[tuple[str, str, Any]] = []

    def send(self, request: Any, *_: object, **__: object) -> requests.Response:  # type: ignore[override]
        path = request.path_url.partition("?")[0].rstrip("/") or "/"
        body = json.loads(request.body) if request.body else None
        self.asked.append((request.method, path, body))
        if path == "/v2.1/servers/detail":
            self.versions.add(request.headers.get("OpenStack-API-Version"))
        answer: Answer = (404, {}, "{}")
        if f"{request.method} {path}" == self.on:
            answer = self.answer
        elif path in self.found:
            answer = (200, {"Content-Type": "application/json"}, json.dumps(self.found[path]))
        if isinstance(answer, Exception):
            raise answer
        response = requests.Response()
        response.status_code, response.request, response.url = answer[0], request, request.url
        response.headers.update(answer[1])
        response._content = answer[2].encode()
        return response

    def close(self) -> None:
        """Nothing to close."""


def cloud_of(
    answer: Answer,
    on: str,
    settings: OpenStackSettings = SETTINGS,
    documents: Mapping[str, Any] = FOUND,
    **pinned: Any,
) -> tuple[OpenStackCloud, Scripted]:
    script = Scripted(answer, on, documents)
    http = requests.Session()
    http.mount("http://", script)

    def connect() -> Connection:
        auth = token_endpoint.Token("http://nova/v2.1", "t")
        return Connection(session=session.Session(auth=auth, session=http), **pinned)

    return OpenStackCloud(settings, lambda _flavour, _name: "#cloud-config\n{}\n", connect), script


def said(message: str) -> str:
    return json.dumps({"error": {"message": message}})


def neutron(message: str) -> str:
    return json.dumps({"NeutronError": {"type": "OverQuota", "message": message, "detail": ""}})


JSON = {"Content-Type": "application/json"}
CREATE = "POST /v2.1/servers"


@pytest.mark.parametrize(
    ("answer", "why", "after"),
    [
        ((403, JSON, said("Quota exceeded for cores")), Refusal.QUOTA, 0),
        ((403, JSON, said("Policy doesn't allow it")), Refusal.REFUSED, 0),
        ((400, JSON, said("Invalid key_name")), Refusal.REFUSED, 0),
        ((401, JSON, said("The request you have made requires authentication")),
         Refusal.CREDENTIALS, 0),
        ((409, JSON, said("Port is in use")), Refusal.CONFLICT, 0),
        ((409, JSON, neutron("Quota exceeded for resources: ['port'].")), Refusal.QUOTA, 0),
        ((409, JSON, neutron("No more IP addresses available on network n.")), Refusal.QUOTA, 0),
        ((413, {**JSON, "Retry-After": "7"}, said("Over limit")), Refusal.BUSY, 7),
        ((429, {**JSON, "Retry-After": "30"}, said("Too many requests")), Refusal.BUSY, 30),
        ((503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, ""), Refusal.BUSY, 0),
        ((500, {"Content-Type": "text/html"}, "<h1>Internal</h1>"), Refusal.BUSY, 0),
        ((504, {}, ""), Refusal.BUSY, 0),
        (requests.exceptions.ReadTimeout("slow"), Refusal.BUSY, 0),
        (requests.exceptions.ConnectionError("reset"), Refusal.BUSY, 0),
    ],
)  # fmt: skip
def test_what_went_wrong_is_told_apart_and_nothing_is_asked_twice(
    answer: Answer, why: Refusal, after: float
) -> None:
    cloud, script = cloud_of(answer, CREATE)
    with pytest.raises(CloudError) as refused:
        cloud.start("small", "w1")
    assert (refused.value.why, refused.value.retry_after_s) == (why, after)
    assert str(refused.value).startswith("cloud c: start w1: ")
    assert "\n" not in str(refused.value)
    # Who got no answer may have got a machine.
    assert sum(method == "POST" for method, *_ in script.asked) == 1


def test_a_machine_is_asked_for_with_all_by_which_it_is_found() -> None:
    cloud, script = cloud_of((202, JSON, json.dumps({"server": {"id": "s"}})), CREATE)
    cloud.start("small", "w1")
    (server_request,) = [body["server"] for method, _, body in script.asked if method == "POST"]
    assert (server_request["name"], server_request["flavorRef"], server_request["imageRef"]) == (
        "w1",
        "f",
        "i",
    )
    assert server_request["tags"] == ["adon:p"]
    assert server_request["metadata"] == {"adon_flavour": "small", "adon_collector": ""}
    assert server_request["networks"] == [{"uuid": "n"}]


def row(name: str, *tags: str, **metadata: str) -> dict[str, Any]:
    fields = {"status": "ACTIVE", "created": "2026-11-23T09:00:00Z", "addresses": {}}
    return {"id": f"id-{name}", "name": name, "tags": list(tags), "metadata": metadata, **fields}


FOREIGN = [
    row("payroll-db"),
    row("ci-runner", "team:web"),
    row("p-0123abcd"),  # named alike
    row("p-1", "adon:q"),
    row("p-2", "adon:p2"),
    row("p-3", "ADON:P"),
    row("p-4", "my adon:p"),
    row("p-5", adon_flavour="small", adon_collector="cm:9618"),  # adopted: its tag was taken off
    row("p-6", "adon:p", adon_flavour="small", adon_collector="other:9618"),
    {k: v for k, v in row("p-7").items() if k != "tags"},  # as below 2.26
]
"""Servers of a project that are not of the pool ``p`` of the collector ``cm:9618``."""


def ports(*rows: tuple[str, str]) -> dict[str, Any]:
    keys = ("name", "description")
    return {"ports": [{"id": f"port-{r[0]}", **dict(zip(keys, r, strict=True))} for r in rows]}


@pytest.mark.parametrize(
    "pinned",
    [{}, *({"compute_default_microversion": f"2.{n}"} for n in (1, 15, 25, 51, 96)),
     {"compute_api_version": "2.1"}, {"compute_api_version": "2"}],
    ids=str,
)  # fmt: skip
def test_a_cloud_that_ignores_every_filter_loses_nothing_of_others(pinned: dict[str, str]) -> None:
    own = [row("w1", "adon:p", "x"), row("w2", "adon:p", adon_collector="cm:9618")]
    described = [
        ("w9", "adon:p cm:9618"), ("w8", "adon:p"), ("db-port", ""), ("q", "adon:p other:9618"),
    ]  # fmt: skip
    documents = FOUND | {
        "/v2.1/servers/detail": {"servers": [*FOREIGN, *own]},
        "/v2.1/v2.0/ports": ports(*described),
    }
    settings = replace(SETTINGS, collector="cm:9618", qos_policy="qos")
    cloud, script = cloud_of((404, {}, "{}"), "", settings, documents, **pinned)
    machines = [machine.name for machine in cloud.machines()]
    assert machines == ["w1", "w2", "w9", "w8"]
    assert script.versions == {"compute 2.52"}
    for name in [*(foreign["name"] for foreign in FOREIGN), "db-port", "q", *machines]:
        cloud.delete(name)
    deleted = [path for method, path, _ in script.asked if method == "DELETE"]
    assert deleted == [
        "/v2.1/servers/id-w1", "/v2.1/servers/id-w2", "/v2.1/v2.0/ports/port-w9",
        "/v2.1/v2.0/ports/port-w8",
    ]  # fmt: skip


def test_a_port_of_somebody_else_is_not_plugged_in() -> None:
    documents = FOUND | {
        "/v2.1/v2.0/ports": ports(("w1", ""), ("w2", "adon:p cm:9618"), ("w1", "adon:p other:1")),
        "/v2.1/v2.0/qos/policies/qos": {"policy": {"id": "qos", "name": "qos"}},
    }
    settings = replace(SETTINGS, collector="cm:9618", qos_policy="qos")
    port = json.dumps({"port": {"id": "new"}})
    cloud, script = cloud_of((201, JSON, port), "POST /v2.1/v2.0/ports", settings, documents)
    with pytest.raises(CloudError):
        cloud.start("small", "w1")
    bodies = {path: body for method, path, body in script.asked if method == "POST"}
    assert bodies["/v2.1/v2.0/ports"]["port"]["description"] == "adon:p cm:9618"
    assert bodies["/v2.1/servers"]["server"]["networks"] == [{"port": "new"}]


@pytest.mark.parametrize("latest", ["2.1", "2.25", "2.51"])
def test_a_compute_api_without_tags_is_told_at_the_start(latest: str) -> None:
    version = {**VERSION, "version": latest}
    documents = FOUND | {"/v2.1": {"version": version}, "/": {"versions": [version]}}
    cloud, script = cloud_of((404, {}, "{}"), "", documents=documents)
    with pytest.raises(InputError, match=rf"cloud c: found compute API {latest}, expected 2\.52"):
        cloud.check()
    with pytest.raises(CloudError, match=r"expected 2\.52"):
        cloud.machines()
    assert {method for method, *_ in script.asked} == {"GET"}


@pytest.mark.parametrize("method", ["machines", "check"])
def test_a_cloud_that_is_away_at_the_start_is_no_wrong_configuration(method: str) -> None:
    on = {"machines": "GET /v2.1/servers/detail", "check": "GET /v2.1/flavors/small"}[method]
    cloud, _ = cloud_of((503, {}, ""), on)
    with pytest.raises(CloudError) as refused:
        getattr(cloud, method)()
    assert refused.value.why is Refusal.BUSY


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a,b", "x" * 51])
def test_a_pool_has_a_name_that_can_be_a_tag(name: str) -> None:
    with pytest.raises(InputError, match="pool: found"):
        OpenStackSettings("c", name, {}, "i", "n")


def server(change: Callable[[dict[str, Any]], None] = lambda _: None, **more: Any) -> Any:
    row = {
        "name": "w1", "status": "ACTIVE", "task_state": None, "fault": None,
        "metadata": {"adon_flavour": "small"}, "created_at": "2026-11-23T09:00:00Z",
        "launched_at": "2026-11-23T09:00:10.250000", "updated_at": "2026-11-23T09:01:00Z",
        "addresses": {"n": [{"addr": "10.0.0.5", "version": 4}]}, **more,
    }  # fmt: skip
    change(row)
    return generate_fake_resource(Server, **row)


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({"status": "BUILD", "launched_at": None, "addresses": {}}, MachineState.BOOTING),
        ({}, MachineState.RUNNING),
        ({"status": "REBOOT"}, MachineState.RUNNING),
        ({"status": "UNKNOWN"}, MachineState.RUNNING),
        ({"task_state": "deleting"}, MachineState.ENDED),
        ({"status": "SHUTOFF"}, MachineState.ENDED),
        ({"status": "ERROR", "fault": {"message": "No valid host", "code": 500}},
         MachineState.ERROR),
    ],
)  # fmt: skip
def test_a_server_is_a_machine(more: dict[str, Any], state: MachineState) -> None:
    machine = _machine(server(**more), 60.0)
    assert machine == CloudServer(
        "w1", "small", state, pytest.approx(1_795_424_400),
        "" if state is MachineState.BOOTING else "10.0.0.5",
        "No valid host" if state is MachineState.ERROR else "", pytest.approx(1_795_424_460),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("WARNING: Retrying: NewConnectionError(...)\nERROR: no", "no network: Python packages"),
        ("ERROR: Could not find a version of x (from versions: none)", "no network: "),
        ("ERROR: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: HTTP error 403 at https://u:p@host/x", "pip: HTTP error 403 at the package index"),
        ("", "pip ended with exit code 1"),
    ],
)
def test_why_the_services_could_not_be_installed_is_one_line(log: str, line: str) -> None:
    assert explain(log, 1).startswith(line)


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
