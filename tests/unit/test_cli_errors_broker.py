"""Bad configurations, and brokers that are none. One line that says what was found and what was expected, exit 2, nothing half-made."""

# ruff: noqa: E501  (messages in one piece can be searched for)

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_world import CONFIG, adon, changed, refusal
from test_client import server

from adon.cli import doctor
from adon.config.adon_yml import load_config
from examples.testbed.ports import free_port


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("topology: [\n", "adon.yml, line 2: did not find expected node content, expected YAML"),
        ("topology:\n\tlinks: []\n", "adon.yml, line 2: found a tab, expected spaces"),
        ("# later\n", "adon.yml: found nothing in it, expected YAML: 'adon init' makes one, --config names another"),
        ("- a\n", "adon.yml is ['a'], expected a mapping"),
        ("broker: {}\n", "adon.yml has no 'topology', expected it"),
        ("a: 1\na: 2\n", "adon.yml, line 2: key 'a' is given twice, expected YAML"),
        (changed(CONFIG, "brokr", to={}), "adon.yml has the unknown key 'brokr', did you mean 'broker'?"),
        (changed(CONFIG, "controller", "driver", to="onos"),
         "adon.yml: controller.driver: found 'onos', expected simulated, openflow, opendaylight or package.module:Class"),
        (changed(CONFIG, "broker", "listen", to="8470"),
         "adon.yml: broker.listen: found '8470', expected HOST:PORT such as 127.0.0.1:8470"),
        (changed(CONFIG, "topology", "links", 0, "b", to="s9"),
         "adon.yml: topology: link mu-s9: ports names 's1', expected 'mu' or 's9'"),
        (changed(CONFIG, "topology", "links", 3, "a", to="s9"),
         "adon.yml: topology: link s9-r1: ports names 's1', expected 's9' or 'r1'"),
        (changed(CONFIG, "topology", "links", 2, "capacity", to="200 MB/s"),
         "adon.yml: topology: link s1-s2: capacity: found '200 MB/s', expected bits per second such as"
         " '200 Mb/s'"),
        (changed(CONFIG, "topology", "nodes", 0, "mac", to=720575940379279360),
         "adon.yml: topology: node 'mu': mac: found 720575940379279360, expected a MAC address in quotes"
         " such as '02:00:00:00:00:01'"),
        (changed(CONFIG, "topology", "nodes", 0, "address", to="10.10.0.300"),
         "adon.yml: topology: node 'mu': address: found '10.10.0.300', expected an IP address such as"
         " 10.0.0.1, of a host"),
        (changed(CONFIG, "topology", "nodes", 2, "dpid", to="one"),
         "adon.yml: topology: node 's1': dpid: found 'one', expected a datapath id such as"
         " '00005e0a53bd7f10' or '0x5e0a53bd7f10'"),
        (changed(CONFIG, "templates", "mine", "qspec", "min_throuput", to=1),
         "adon.yml: template 'mine': qspec has the unknown key 'min_throuput', did you mean"
         " 'min_throughput'?"),
    ],
)  # fmt: skip
def test_configurations(tmp_path: Path, content: Any, said: str) -> None:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    Path("adon.yml").write_text(text)
    assert refusal("broker") == said
    assert [p.name for p in tmp_path.iterdir()] == ["adon.yml"]


def test_configurations_that_cannot_be_read(tmp_path: Path) -> None:
    assert (
        refusal("broker")
        == "adon.yml: found no such file: 'adon init' makes one, --config names another"
    )
    assert refusal("broker", "--config", tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    assert refusal("broker", "--config", "/dev/zero") == (
        "/dev/zero: found more than 1 MB, expected a short YAML file"
    )


def test_a_state_file_that_is_none(tmp_path: Path) -> None:
    config = changed(CONFIG, "broker", to={"listen": f"127.0.0.1:{free_port()}", "state": "."})
    Path("adon.yml").write_text(yaml.safe_dump(config))
    assert refusal("broker") == f"state file {tmp_path}: found a directory, expected a file"
    config["broker"]["state"] = "adon.yml"
    Path("adon.yml").write_text(yaml.safe_dump(config))
    assert refusal("broker") == (
        f"state file {tmp_path}/adon.yml: file is not a database;"
        " the file is damaged or another program's, see docs/state.md"
    )


def test_no_tc_is_said_before_switches_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = changed(CONFIG, "controller", to={"driver": "openflow", "listen": "127.0.0.1:1"})
    config["broker"]["listen"] = f"127.0.0.1:{free_port()}"
    Path("adon.yml").write_text(yaml.safe_dump(config))
    assert refusal("broker") == (
        "tc: found no such program, expected it for the rates of the links that name devices; it is "
        "in the Debian package iproute2"
    )


ASKING = [
    ("transit", "list"),
    ("transit", "request", "mu", "tacc"),
    ("transit", "release", "x"),
    ("transit", "explain", "x"),
    ("topology", "show"),
]


def test_a_host_that_nobody_knows_is_to_be_named_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    said = refusal("transit", "list", "--broker", "http://nowhere.invalid")
    assert said.endswith(": name another by --broker or ADON_BROKER")


@pytest.mark.parametrize("words", ASKING)
def test_no_broker(words: tuple[str, ...]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert refusal(*words, "--broker", url) == (
        f"the broker at {url} cannot be reached: [Errno 111] Connection refused: start one with"
        " 'adon broker', or name another by --broker or ADON_BROKER"
    )
    assert refusal(*words, "--broker", "ftp://x") == (
        "broker URL 'ftp://x', expected one like 'http://127.0.0.1:8470'"
    )


def test_what_a_broker_says_is_one_printable_line() -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(
            b'HTTP/1.0 404 No\r\n\r\n{"error": {"code": "c", "message": "a\\nb\\u001b[31m"}}'
        )

    with server(answer) as url:
        assert refusal("transit", "list", "--broker", url) == "a b\\x1b[31m"


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"3", b"[{}]", b'"x"', b"null"])
@pytest.mark.parametrize(
    "words",
    [
        *ASKING,
        ("measure", "schedule"),
        ("monitor", "list", "--broker"),
        ("monitor", "status", "x", "--broker"),
        ("monitor", "anomalies", "--broker"),
        ("monitor", "disks", "--broker"),
        ("pool", "explain"),
        ("policy", "list"),
        ("relay", "list"),
        ("template", "try", "x"),
        ("top", "--once"),
        ("transfer", "advise", "mu", "tacc"),
    ],
)
def test_what_no_broker_answers_is_one_line(
    words: tuple[str, ...], answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is empty is an empty list to every command that lists."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + answer)

    with server(serve) as url:
        broker = {**CONFIG["broker"], "listen": url.removeprefix("http://")}
        Path("adon.yml").write_text(yaml.safe_dump({**CONFIG, "broker": broker}))
        monkeypatch.setenv("ADON_BROKER", url)
        ran = adon(*words)
        if words == ("pool", "explain"):  # the archive stands in for it
            assert (ran.code, ran.err) == (0, "")
        elif ran.code == 2:
            assert ran.out == "" and ran.err.count("\n") == 1
            assert "is it a" in ran.err or answer in (b"[]", b"{}")
        else:
            assert answer in (b"[]", b"{}") and ran.code == 0
        config = load_config(Path("adon.yml"))
        assert all(isinstance(result, doctor.CheckResult) for result in doctor._running(config))


def test_an_address_that_a_relay_cannot_ask() -> None:
    words = ("relay", "run", "--node", "r", "--address", "192.0.2.7", "--broker")
    assert refusal(*words, "http://[x") == (
        "--broker: found 'http://[x': Invalid IPv6 URL, expected a URL"
    )
    assert "expected https: others would read its secrets" in refusal(*words, "http://192.0.2.9")
