from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from adon.config.adon_yml import changes_text, load_config, parse_config, used_files
from adon.config.sections import split_address
from network_provisioner.base.errors import InputError

GOOD = {"topology": {"nodes": [], "links": []}, "broker": {"listen": "127.0.0.1:9000"}}


def test_defaults_are_loopback_and_simulated() -> None:
    config = parse_config({"topology": GOOD["topology"]}, "adon.yml")
    assert config.controller.driver == "simulated"
    assert config.broker.listen.startswith("127.0.0.1:")


def test_a_section_with_nothing_in_it_is_as_if_it_were_not_there() -> None:
    data = {"topology": {"nodes": [], "links": []}}
    empty = dict.fromkeys(("broker", "limits", "security", "templates", "controller", "pool"))
    assert parse_config({**data, **empty}, "adon.yml") == parse_config(data, "adon.yml")


@pytest.mark.parametrize("listen", ["0.0.0.0:8470", "[::]:8470", "192.0.2.1:8470"])
def test_clients_ask_the_host_of_a_certificate(listen: str) -> None:
    tls = {"tls": {"certificate": "broker.pem", "key": "broker.key"}}
    broker = {"listen": listen, "address": "broker.example.org:8470"}
    config = parse_config({**GOOD, "broker": broker, "security": tls}, "adon.yml")
    named = listen.startswith("192.")
    assert config.broker_url == f"https://{listen if named else broker['address']}"
    config = parse_config({**GOOD, "broker": {"listen": listen}}, "adon.yml")
    own = listen if named else f"{socket.getfqdn()}:8470"
    assert config.broker_url == config.broker_address == f"http://{own}"


@pytest.mark.parametrize(
    "address",
    [
        "", "host", "host:", "host:0", "host:70000", ":80", "h:x", "[]:80", "[host]:80", "a b:80",
        "http://host:80", "host:٣٣",
    ],
)  # fmt: skip
def test_bad_addresses(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        split_address(address, "x")


@pytest.mark.parametrize(
    ("address", "example"),
    [
        ("::1:18802", "[::1]:18802"),
        ("::1", "[::1]:8470"),
        ("[::1]", "[::1]:8470"),
        ("[::1:18802]", "[::1]:18802"),
        ("::", "[::]:8470"),
        ("2001:db8::7:8470", "[2001:db8::7]:8470"),
        ("fe80::1%eth0:8470", "[fe80::1%eth0]:8470"),
        ("::1]:8471", "[::1]:8471"),
        ("::8471", "[::]:8471"),
        ("::1:http", "[::1]:8470"),
        ("[::1]:70000", "[::1]:8470"),
    ],
)
def test_an_ipv6_address_goes_in_brackets(address: str, example: str) -> None:
    with pytest.raises(InputError, match=f"such as {re.escape(example)}, with the IPv6 address in"):
        split_address(address, "x")
    host, port = split_address(example, "x")
    assert example == f"{host}:{port}"


FILES: dict[str, Any] = {
    "topology": GOOD["topology"],
    "controller": {"password_file": "password", "ca": "certificates/ca.pem"},
    "broker": {"state": "state.sqlite", "archive": "/var/archive.sqlite"},
    "security": {
        "tokens": [{"name": "ada", "role": "researcher", "token_file": "ada.token"}],
        "tls": {"certificate": "b.pem", "key": "b.key", "clients": "c.pem"},
    },
    "expansion": {
        "token_file": "pool.token",
        "release": "condor",
        "flavours": {"small": {"cores": 1}},
    },
}


def test_every_relative_path_counts_from_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc").mkdir()
    config = parse_config(FILES, "etc/adon.yml")
    tls, pool = config.security.tls, config.expansion
    assert tls is not None and pool is not None
    paths = [
        config.controller.password_file, config.controller.ca, config.broker.state,
        config.security.tokens[0].token_file, tls.certificate, tls.key, tls.clients,
        pool.token_file, pool.release, pool.directory,
    ]  # fmt: skip
    names = "password certificates/ca.pem state.sqlite ada.token b.pem b.key c.pem pool.token"
    expected = [*names.split(), "condor", "adon-workers"]
    assert paths == [str(tmp_path / "etc" / name) for name in expected]
    assert config.broker.archive == "/var/archive.sqlite"
    bare = parse_config({"topology": GOOD["topology"]}, "etc/adon.yml").broker
    assert bare.state == str(tmp_path / "etc" / "adon-broker.sqlite")
    monkeypatch.setenv("HOME", "/home/ada")
    home = parse_config({**GOOD, "broker": {"state": "~/state/b.sqlite"}}, "etc/adon.yml").broker
    assert home.state == "/home/ada/state/b.sqlite"
    for place in (":memory:", "postgresql://adon@db.example.org/adon", "host=db dbname=adon"):
        archive_config = parse_config({**GOOD, "broker": {"archive": place}}, "etc/adon.yml")
        assert archive_config.broker.archive == place


def test_a_file_that_lies_where_the_broker_was_started_is_not_silently_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "etc"
    folder.mkdir()
    file = folder / "adon.yml"
    file.write_text("{topology: {nodes: [], links: []}, broker: {archive: data/a.sqlite}}")
    config = load_config(Path("etc/adon.yml"))
    state, used = folder / "adon-broker.sqlite", folder / "data" / "a.sqlite"
    assert used_files(config, file) == [f"state {state}", f"archive {used}"]
    for old in (tmp_path / "data" / "a.sqlite", tmp_path / "a.sqlite"):
        old.parent.mkdir(exist_ok=True)
        old.touch()
        (_, _, warning) = used_files(config, file)
        assert warning == (
            f"warning: {old} is not used, {used} is: relative paths count from the folder of "
            "adon.yml. To keep the former, stop the broker and move it there, or name it in "
            "broker.archive"
        )
        old.unlink()
    used.parent.mkdir()
    used.touch(0o600)
    (tmp_path / "a.sqlite").symlink_to(used)
    assert len(used_files(config, file)) == 2
    file.write_text(
        "topology: {nodes: [], links: []}\nbroker: {archive: 'postgresql://u:pw@h/etc'}"
    )
    assert used_files(load_config(file), file)[1:] == ["archive postgresql://u@h/etc"]


def test_what_the_example_leaves_out_can_be_put_in() -> None:
    lines = (
        (Path(__file__).parents[2] / "examples/adon.yml").read_text(encoding="utf-8").splitlines()
    )
    begin = lines.index("# expansion:")
    end = next(n for n, line in enumerate(lines[begin:], begin) if not line.startswith("# "))
    data = yaml.safe_load("\n".join(line.removeprefix("# ") for line in lines[begin:end]))
    expansion = parse_config({**GOOD, **data}, "adon.yml").expansion
    assert expansion is not None and expansion.driver == "openstack"


def test_what_changed_is_named_without_its_values() -> None:
    tokens = [{"name": "ada", "role": "researcher", "token": "tops3cret" * 8}]
    nodes = [{"name": "s1", "kind": "switch"}, {"name": "mu", "kind": "site"}]
    links = [{"a": "mu", "b": "s1", "capacity": "1 Gb/s"}]
    data: dict[str, Any] = {
        "topology": {"nodes": nodes, "links": links},
        "security": {"tokens": tokens},
    }
    before = parse_config(data, "adon.yml")
    assert changes_text(before, parse_config(data, "adon.yml")) == "no key changed"
    new = {"name": "s2", "kind": "switch"}
    data["topology"] = {"nodes": [*nodes, new], "links": [{**links[0], "capacity": "2 Gb/s"}]}
    data["security"] = {"tokens": [{**tokens[0], "token": "other" * 8}]}
    data |= {"limits": {"max_lease": "1 h"}, "pool": {"collector": "cm:1"}}
    assert changes_text(before, parse_config(data, "adon.yml")) == (
        "changed: topology.nodes.s2, topology.links.mu-s1.capacity, security.tokens.ada.token, "
        "limits.max_lease, pool"
    )
    reordered = parse_config(data | {"topology": {"nodes": nodes[::-1], "links": links}}, "x")
    assert changes_text(before, reordered).startswith("changed: topology.nodes, security")
