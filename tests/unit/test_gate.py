"""Whom a broker on a desk answers: what a page in a browser can make it do."""

from __future__ import annotations

import pytest
from api_rig import application, bearer, error, keyring
from broker_rig import Rig
from fastapi.testclient import TestClient

from adon.config.adon_yml import parse_config
from adon.config.sections import Config
from adon.config.security import own_host
from network_provisioner.api import create_app
from network_provisioner.base.errors import InputError

HERE = "http://127.0.0.1:8470"


def config(**broker: object) -> Config:
    network: dict[str, list[object]] = {"nodes": [], "links": []}
    return parse_config({"topology": network, "broker": broker}, "adon.yml")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8470", 200), ("localhost:9000", 200), ("LOCALHOST.", 200), ("[::1]:8470", 200),
        ("adon.lab", 200), ("evil.example:8470", 403), ("127.0.0.1.evil.example", 403), ("", 403),
    ],
)  # fmt: skip
def test_without_tokens_only_own_names_are_answered_to(rig: Rig, host: str, status: int) -> None:
    own = own_host(config(names=["ADON.lab"]))
    for ring, expected in ((None, status), (keyring(rig), 200)):
        app = create_app(rig.broker, ring, own_host=own)
        with TestClient(app, raise_server_exceptions=False) as web:
            headers = {"Host": host} | (bearer("engineer") if ring else {})
            assert web.get("/v1/health", headers=headers).status_code == expected


@pytest.mark.parametrize("name", ["adon.lab:8470", "http://adon.lab", "adon.lab.", "fd00::7", ""])
def test_what_no_request_names_is_no_name(name: str) -> None:
    with pytest.raises(InputError, match=r"^adon.yml: broker.names.1: found '.*', expected a host"):
        config(names=["[fd00::7]", name])


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:9"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    ],
)  # fmt: skip
def test_no_page_of_another_site_is_answered_with_or_without_body(
    rig: Rig, said: dict[str, str]
) -> None:
    rig.ask("t", "mu", "tacc")
    with TestClient(application(rig), HERE) as web:
        for answer in (
            web.post("/v1/transits/t/release", headers=said),
            web.post("/v1/transits/t/release", json={}, headers=said),
            web.get("/v1/health", headers=said),
        ):
            assert error(answer)[:2] == (403, "forbidden")
        own = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
        assert web.post("/v1/transits/t/release", headers=own).json()["state"] == "released"
    with TestClient(application(rig, keyring(rig)), HERE) as web:  # a token says who asks
        assert web.get("/v1/health", headers=said | bearer("engineer")).status_code == 200


def test_without_other_brokers_nobody_is_believed_a_name(rig: Rig) -> None:
    with TestClient(application(rig, keyring(rig)), HERE) as web:
        for secret in ({}, {"x-adon-leader-secret": ""}):
            answer = web.get("/v1/health", headers={"x-adon-client": "engineer-1"} | secret)
            assert error(answer)[:2] == (401, "unauthorized")
