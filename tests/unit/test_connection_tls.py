"""TLS on real sockets: who is trusted, and which certificates stand for which keys."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from api_rig import FOR_EVER_S, application, keyring, serving, token_of
from authority import Authority
from broker_rig import Rig

from network_provisioner.access import Key, Keyring, Principal, Role, hash_of
from network_provisioner.api.connection import common_name, server_context
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import TransitRequest
from network_provisioner.client.broker import BrokerClient
from network_provisioner.client.http1 import Tls


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def mutual(authority: Authority) -> ssl.SSLContext:
    return server_context(*authority.issue("broker", hosts=["127.0.0.1"]), authority.file)


def test_tls_with_a_token(rig: Rig, authority: Authority, tmp_path: Path) -> None:
    tls = server_context(*authority.issue("broker", hosts=["127.0.0.1"]), None)
    with serving(application(rig, keyring(rig)), tls) as port:
        url, token = f"https://127.0.0.1:{port}", token_of("engineer")
        client = BrokerClient(url, FOR_EVER_S, token, Tls(authority.file))
        assert client.request(TransitRequest("a", "mu", "tacc")).state == "installed"
        assert client.release("a").state == "released"
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        for ca in (None, other.file):
            with pytest.raises(BrokerError, match="its certificate is not trusted: "):
                BrokerClient(url, FOR_EVER_S, token, Tls(ca)).health()
        with pytest.raises(BrokerError, match=r"Hostname mismatch|not valid for"):
            BrokerClient(
                url.replace("127.0.0.1", "localhost"), FOR_EVER_S, token, Tls(authority.file)
            ).health()
        with pytest.raises(BrokerError) as caught:  # no TLS on a port that speaks it
            BrokerClient(url.replace("https", "http"), FOR_EVER_S, token).health()
        assert caught.value.code == "unreachable"
        assert str(caught.value).endswith("with an address that begins with https://")
    with (
        serving(application(rig, keyring(rig))) as port,
        pytest.raises(BrokerError, match="found no TLS there, expected an address"),
    ):
        BrokerClient(f"https://127.0.0.1:{port}", FOR_EVER_S).health()


def test_certificates_stand_for_the_keys_of_their_names(
    rig: Rig, authority: Authority, tmp_path: Path
) -> None:
    keys = [
        Key(Principal("ada", Role.RESEARCHER, frozenset({"ada"}))),
        Key(Principal("noc", Role.OPERATOR)),
        Key(Principal("hub", Role.ENGINEER), hash_of("h" * 20)),
    ]
    with serving(application(rig, Keyring(keys, rig.clock)), mutual(authority)) as port:

        def by(*names: str, token: str | None = None) -> BrokerClient:
            tls = Tls(authority.file, *authority.issue(*names))
            return BrokerClient(f"https://127.0.0.1:{port}", FOR_EVER_S, token, tls)

        made = by("ada").request(TransitRequest("a", "mu", "tacc"))
        assert made.request.user == "ada"
        assert by("noc").release("a").state == "released"
        for client, code in (
            (by("noc"), "forbidden"),
            (by("mallory"), "unauthorized"),
            (by("ada", "noc"), "unauthorized"),  # two names are none
            (by("hub", token="wrong"), "unauthorized"),
        ):
            with pytest.raises(BrokerError) as caught:
                client.request(TransitRequest("b", "mu", "tacc"))
            assert caught.value.code == code
        # A token goes before the certificate it came with.
        assert (
            by("noc", token="h" * 20).request(TransitRequest("c", "mu", "tacc")).request.user
            == "hub"
        )
        url = f"https://127.0.0.1:{port}"
        (tmp_path / "other").mkdir()
        other = Authority(tmp_path / "other", "other")
        for tls in (
            Tls(authority.file),
            Tls(authority.file, *other.issue("ada")),
            Tls(authority.file, *authority.issue("ada", valid=False)),
        ):
            with pytest.raises(BrokerError) as caught:
                BrokerClient(url, FOR_EVER_S, None, tls).health()
            assert caught.value.code == "unreachable"


@pytest.mark.parametrize("content", [None, b"", b"no pem", b"-----BEGIN CERTIFICATE-----\n"])
def test_pem_files_that_are_none(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "bad.pem"
    if content is not None:
        file.write_bytes(content)
    for tls in (Tls(str(file)), Tls(None, str(file), str(file))):
        with pytest.raises(InputError) as caught:
            BrokerClient("https://127.0.0.1:1", 1.0, None, tls).health()
        assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_a_silent_tls_server_keeps_the_clients_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(BrokerError, match=r"no answer within 0\.2 s|timed out"):
            BrokerClient(f"https://127.0.0.1:{port}", 0.2).health()


def test_a_tls_server_that_dribbles_its_handshake_keeps_the_clients_timeout() -> None:
    done = threading.Event()

    def dribble(listening: socket.socket) -> None:
        sock, _ = listening.accept()
        with sock:
            sock.recv(65536)
            try:
                sock.sendall(b"\x16\x03\x03\x40\x00")  # a handshake record of 16 KiB to come
                while not done.wait(0.02):
                    sock.sendall(b"\x02")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=dribble, args=(listening,))
        thread.start()
        try:
            with pytest.raises(BrokerError) as caught:
                BrokerClient(f"https://127.0.0.1:{listening.getsockname()[1]}", 0.2).health()
        finally:
            done.set()
            thread.join(FOR_EVER_S)
    assert caught.value.code == "unreachable"


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("commonName", "ada"),),)}, "ada"),
        ({"subject": ((("organizationName", "x"), ("commonName", "ada")),)}, "ada"),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, None),
    ],
)
def test_one_common_name_or_none(certificate: object, name: str | None) -> None:
    assert common_name(certificate) == name
