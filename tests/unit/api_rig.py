"""The REST service around a rig's broker, in this process or behind a real socket."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker_rig import Rig
from fastapi import FastAPI
from network_world import TEMPLATES

from network_provisioner.access import Key, Keyring, Principal, Role, hash_of
from network_provisioner.api import STATUS, create_app
from network_provisioner.api.app import Registries
from network_provisioner.api.connection import server
from network_provisioner.policies.registry import PolicyRegistry
from network_provisioner.templates.data import templates_from_dict
from network_provisioner.templates.registry import TemplateRegistry
from network_provisioner.templates.sitepolicy import TemplatePolicy

# Far above any timeout used in tests: who waits this long has not kept its own.
FOR_EVER_S = 60.0
ASK = {"id": "w:job:0:mu-tacc", "src": "mu", "dst": "tacc"}


def books(rig: Rig, policy: TemplatePolicy | None = None) -> Registries:
    """Registries in the rig's store. The rig's broker does not follow these policies."""
    return Registries(
        PolicyRegistry(rig.topology, rig.store, rig.clock),
        TemplateRegistry(templates_from_dict(TEMPLATES), rig.store, policy, rig.clock),
        rig.store,
    )


def application(rig: Rig, keyring: Keyring | None = None, sweeps: bool = False) -> FastAPI:
    """Everything the service has. Unless it ``sweeps``, time passes where the test lets it, and no
    sweep comes between two steps on a slow machine."""
    app = create_app(rig.broker, keyring, books(rig))
    if not sweeps:
        rig.broker.sweep = lambda: None  # type: ignore[method-assign]
    return app


def keyring(rig: Rig, *extra: Key) -> Keyring:
    """One key for each role; its token is ``token_of(role)``, its name ``<role>-1``."""
    keys = []
    for role in Role:
        name = f"{role}-1"
        own = frozenset({name}) if role is Role.RESEARCHER else None
        keys.append(Key(Principal(name, role, own), hash_of(token_of(role))))
    return Keyring([*keys, *extra], rig.clock)


def token_of(role: str) -> str:
    return f"secret-of-{role}"


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(role)}"}


def error(response: Any) -> tuple[int, str, str]:
    """Status, code and message of an answer in the one shape that errors have."""
    body = response.json()
    assert list(body) == ["error"] and sorted(body["error"]) == ["code", "message"]
    assert STATUS[body["error"]["code"]] == response.status_code
    assert body["error"]["message"].isprintable()
    return response.status_code, body["error"]["code"], body["error"]["message"]


@contextmanager
def serving(app: FastAPI, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The application on a port of loopback, which is given."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    web = server(app, tls)
    thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        # Nobody's time to wait for an answer runs while the server is still coming up.
        while not web.started and thread.is_alive():
            time.sleep(0.005)
        yield listening.getsockname()[1]
    finally:
        web.should_exit = True
        thread.join(FOR_EVER_S)
        listening.close()
        assert not thread.is_alive()


def raw(port: int, *sent: bytes, until: bytes | None = None) -> bytes:
    """What the service answers on one connection to bytes as they are, until it closes it or
    ``until`` has come."""
    with socket.create_connection(("127.0.0.1", port), FOR_EVER_S) as sock:
        for piece in sent:
            sock.sendall(piece)
        got = b""
        while until is None or until not in got:
            more = sock.recv(65536)
            if not more:
                break
            got += more
    return got
