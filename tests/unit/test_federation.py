"""Federated login: whom the tokens of OpenID Connect and SciTokens issuers name."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from api_rig import error
from broker_rig import Clock, Rig, code_of
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from fastapi.testclient import TestClient

from adon.config.adon_yml import parse_config
from adon.config.security import check_exposure, keyring_of
from network_provisioner.access import Key, Keyring, Principal, Role, hash_of
from network_provisioner.api import create_app, federation
from network_provisioner.api.federation import Issuers
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.issuers import Entitled, Issuer

URL, AUDIENCE = "https://login.example.org/realm", "https://broker.example.org"
EC, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
ROLES = (
    Entitled(frozenset({"urn:geant:example.org:group:noc"}), Role.OPERATOR),
    Entitled(frozenset({"adon.request", "users"}), Role.RESEARCHER, frozenset({"soykb"})),
)
TRUSTED = Issuer(
    URL, (AUDIENCE,), ROLES, suffix="@example.org", claims=("scope", "groups", "entitlements")
)


def published(key: Any, **more: str) -> dict[str, Any]:
    kind = jwt.algorithms.ECAlgorithm if key is not RSA else jwt.algorithms.RSAAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), **more}


class Web:
    """What the issuer publishes, and how often that was read."""

    def __init__(self) -> None:
        self.keys = [published(EC, kid="e"), published(RSA, kid="r"), {"kid": "x", "kty": "new"}]
        self.about: dict[str, Any] = {"issuer": URL, "jwks_uri": f"{URL}/keys"}
        self.asked: list[str] = []
        self.away = False
        self.well_known = "openid-configuration"

    def __call__(self, url: str) -> Any:
        self.asked.append(url)
        known = {
            f"{URL}/.well-known/{self.well_known}": self.about,
            f"{URL}/keys": {"keys": self.keys},
        }
        if self.away or url not in known:
            raise OSError("nobody there")
        return known[url]


def token(key: Any = EC, kid: str | None = "e", algorithm: str = "ES256", **claims: Any) -> str:
    now = time.time()
    given = {"iss": URL, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 1e8,
             "scope": "openid adon.request"} | claims  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    return jwt.encode(given, key, algorithm, None if kid is None else {"kid": kid})


def issuers(web: Web | None = None, clock: Clock | None = None) -> Issuers:
    return Issuers([TRUSTED], web or Web(), clock or Clock())


def test_a_token_names_its_holder_and_its_entitlements_give_the_role() -> None:
    ada = Principal("ada@example.org", Role.RESEARCHER, frozenset({"ada@example.org"}),
                    frozenset({"soykb"}))  # fmt: skip
    known = issuers()
    assert known(token()) == ada
    assert known(token(RSA, "r", "RS512", scope=None, groups=["users"])) == ada
    noc = {"entitlements": ["urn:geant:example.org:group:noc"]}  # the first that fits
    assert known(token(**noc)) == Principal("ada@example.org", Role.OPERATOR)
    assert known(token(aud=["https://else.example.org", AUDIENCE], ver="scitoken:2.0")) == ada
    web = Web()
    web.well_known = "oauth-authorization-server"  # SciTokens
    assert issuers(web)(token()) == ada
    assert known("adon_no-jwt") is None and known("a.b.c") is None


def test_claims_are_found_where_issuers_put_them() -> None:
    usual = Issuer(URL, (AUDIENCE,), ROLES)
    for claims in (
        {"realm_access": {"roles": ["offline_access", "users"]}},  # Keycloak
        {"isMemberOf": ["users"]},  # CILogon
        {"wlcg.groups": ["users"], "wlcg": "1.0"},
    ):
        known = Issuers([usual], Web(), Clock())(token(**{"scope": "openid", **claims}))
        assert known is not None and known.role is Role.RESEARCHER
    client = Issuer(URL, (AUDIENCE,), ROLES, claims=("resource_access.adon.roles",))
    held = {"resource_access": {"adon": {"roles": ["users"]}}}
    assert Issuers([client], Web(), Clock())(token(**held)) is not None
    for other in ({"resource_access": ["users"]}, {"resource_access": {"adon": "users"}}, {}):
        assert code_of(Issuers([client], Web(), Clock()), token(**other)) == "unauthorized"


def test_tokens_for_every_service_are_for_this_one_too() -> None:
    for claims in (
        {"aud": "https://wlcg.cern.ch/jwt/v1/any", "wlcg.ver": "1.0"},
        {"aud": ["https://else.example.org", "https://wlcg.cern.ch/jwt/v1/any"]},
        {"aud": "ANY", "ver": "scitoken:2.0"},
    ):
        assert issuers()(token(**claims)).name == "ada@example.org"


def test_a_key_id_is_a_hint() -> None:
    web, clock = Web(), Clock(1000.0)
    known = issuers(web, clock)
    assert known(token(kid=None)).name == "ada@example.org"  # one key of three fits
    assert known(token(RSA, None, "PS256")).name == "ada@example.org"
    assert code_of(known, token(OTHER, None)) == "unauthorized"
    # The issuer's new key has no name: tokens that name one, or none, fit it.
    web.keys = [published(OTHER), published(RSA, kid="r")]
    clock.now += federation.AGAIN_S + 1
    assert known(token(OTHER, None)).name == known(token(OTHER, "x")).name == "ada@example.org"
    assert code_of(known, token(EC, None)) == code_of(known, token(EC, "e")) == "unauthorized"
    assert code_of(known, token(RSA, "else", "RS256")) == "unauthorized"  # it has another name
    # Of several that fit it is the one that made the signature.
    web.keys = [published(EC, kid="e"), published(OTHER, kid="o")]
    known = issuers(web, clock)
    assert known(token(OTHER, None)).name == known(token(EC, None)).name == "ada@example.org"
    # Keys of two kinds may share an id (RFC 7517, section 4.5).
    web.keys = [published(RSA, kid="k"), published(EC, kid="k")]
    known = issuers(web, clock)
    assert known(token(EC, "k")).name == known(token(RSA, "k", "RS256")).name == "ada@example.org"


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (token(iss="https://evil.example.org"), "unauthorized"),
        (token(iss=None), "unauthorized"),
        (token(aud="https://another.example.org"), "unauthorized"),
        (token(aud=None), "unauthorized"),
        (token(aud="ANY"), "unauthorized"),
        (token(exp=1.0), "token_expired"),
        (token(exp=None), "unauthorized"),
        (token(nbf=time.time() + 9e6), "unauthorized"),
        (token(OTHER), "unauthorized"),
        (token(kid="unknown"), "unauthorized"),
        (token(RSA, "e", "RS256"), "unauthorized"),
        (token("k" * 64, "e", "HS256"), "unauthorized"),
        (token(None, "e", "none"), "unauthorized"),
        (token(scope="openid"), "unauthorized"),
        (token(scope=["adon.request.not"]), "unauthorized"),
        (token(sub=None), "unauthorized"),
        (token(sub=""), "unauthorized"),
        (token(sub="a" * 500), "unauthorized"),
        (token(exp=float("inf")), "unauthorized"),
        (token(sub="a\nb"), "unauthorized"),
        (token(scope=None, groups="former users"), "unauthorized"),  # one group, not two
    ],
)
def test_what_is_not_signed_for_us_names_nobody(bad: str, code: str) -> None:
    with pytest.raises(BrokerError) as caught:
        issuers()(bad)
    assert caught.value.code == code and bad not in str(caught.value)


def test_keys_are_read_once_and_again_for_a_new_one_or_after_an_hour() -> None:
    web, clock = Web(), Clock(1000.0)
    known = issuers(web, clock)
    for _ in range(3):
        known(token())
        assert code_of(known, token(OTHER, "new")) == "unauthorized"
    assert len(web.asked) == 2  # and an unknown key does not have them read again at once
    web.keys = [published(OTHER, kid="new")]
    clock.now += federation.AGAIN_S + 1
    assert known(token(OTHER, "new")).name == "ada@example.org"
    assert code_of(known, token()) == "unauthorized"  # its key was withdrawn
    web.away = True
    clock.now += federation.KEPT_S + 1
    known(token(OTHER, "new"))  # an issuer that is away for an hour locks nobody out
    clock.now += federation.KEPT_S
    assert code_of(known, token(OTHER, "new")) == "unauthorized"


@pytest.mark.parametrize(
    "wrong", [{"issuer": "https://else"}, {"jwks_uri": "http://login.example.org/k"}, {"issuer": 1}]
)
def test_keys_of_somebody_else_are_not_taken(wrong: dict[str, Any]) -> None:
    web = Web()
    web.about |= wrong
    assert code_of(issuers(web), token()) == "unauthorized"


def test_an_odd_key_takes_no_other_with_it() -> None:
    web = Web()
    web.keys += [{"kid": "odd", "kty": "RSA", "n": "*", "e": "é"}, None]  # type: ignore[list-item]
    assert issuers(web)(token()).name == "ada@example.org"


def test_who_asks_for_an_unknown_key_keeps_nobody_waiting() -> None:
    web, clock, begun, go_on = Web(), Clock(1000.0), threading.Event(), threading.Event()
    known = Issuers([TRUSTED], web, clock)
    known(token())
    clock.now += federation.AGAIN_S + 1
    read = web.__call__

    def slow(url: str) -> Any:
        begun.set()
        go_on.wait(600.0)
        return read(url)

    known._issuers[URL][1]._fetch = slow  # an issuer that takes its time
    asks = threading.Thread(target=code_of, args=(known, token(OTHER, "new")))
    asks.start()
    assert begun.wait(600.0)
    honest = threading.Thread(target=known, args=(token(),))
    honest.start()
    honest.join(300.0)
    waits = honest.is_alive()
    go_on.set()
    for thread in (asks, honest):
        thread.join(60.0)
    assert not waits


def test_it_stands_beside_keys_and_goes_over_http(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "state.sqlite")
    key = Key(Principal("bob", Role.OPERATOR), hash_of("b.b.b" * 5))
    ring = Keyring([key], rig.clock, issuers())
    assert ring.recognise("b.b.b" * 5, None).name == "bob"
    assert code_of(ring.recognise, "wrong", None) == "unauthorized"
    with TestClient(create_app(rig.broker, ring)) as web:

        def with_token(text: str) -> Any:
            headers = {"Authorization": f"Bearer {text}"}
            body = {"id": "t", "src": "mu", "dst": "tacc", "project": "soykb"}
            return web.post("/v1/transits", json=body, headers=headers)

        assert with_token(token()).json()["user"] == "ada@example.org"
        assert error(with_token(token(exp=1.0)))[:2] == (401, "token_expired")


class Served(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/drops":
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b" ")
                    time.sleep(0.02)
            return
        bodies = {"/keys": b'{"keys": []}', "/long": b" " * (1 << 20) + b"{}", "/odd": b"<html>"}
        self.send_response(200 if self.path in bodies else 302)
        self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(bodies.get(self.path, b"{}"))

    def log_message(self, *_: Any) -> None:
        pass


def test_documents_are_fetched_whole_from_where_they_are_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert federation.fetched(f"{url}/keys") == {"keys": []}
        for wrong in ("/long", "/odd", "/moved"):
            with pytest.raises(ValueError):
                federation.fetched(url + wrong)
        monkeypatch.setattr(federation, "_TIMEOUT_S", 0.3)
        with pytest.raises((ValueError, OSError)):  # before its first word, on a busy machine
            federation.fetched(f"{url}/drops")
        server.shutdown()
    with pytest.raises(OSError):
        federation.fetched(f"{url}/keys")


def configured(**entry: Any) -> Any:
    given = {"issuer": URL, "audience": [AUDIENCE],
             "roles": [{"holds": ["users"], "role": "researcher"}], **entry}  # fmt: skip
    network: dict[str, list[object]] = {"nodes": [], "links": []}
    return parse_config({"topology": network, "security": {"issuers": [given]}}, "adon.yml")


def test_from_adon_yml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "fetched", Web())
    config = configured()
    ring = keyring_of(config)
    check_exposure(config, ring)
    principal = ring.recognise(token(groups=["users"]), None)
    assert (principal.name, principal.role, principal.projects) == (
        "ada@login.example.org", Role.RESEARCHER, None,
    )  # fmt: skip
    assert code_of(ring.recognise, None, None) == "unauthorized"  # it is closed to all others
    plain = keyring_of(configured(suffix="", name="email"))
    claims: dict[str, Any] = {"groups": ["users"], "email": "e@x"}
    for verified in (None, True, "true"):
        principal = plain.recognise(token(**claims, email_verified=verified), None)
        assert principal.name == "e@x"
    assert code_of(plain.recognise, token(**claims, email_verified=False), None) == "unauthorized"


def test_names_of_two_issuers_are_never_the_same() -> None:
    role = {"holds": ["users"], "role": "researcher"}
    realms = [
        {"issuer": f"https://login.example.org/{realm}", "audience": [AUDIENCE], "roles": [role]}
        for realm in "ab"
    ]
    network: dict[str, list[object]] = {"nodes": [], "links": []}
    read = {"topology": network, "security": {"issuers": realms}}
    with pytest.raises(InputError, match="a suffix twice"):
        keyring_of(parse_config(read, "adon.yml"))
    keyring_of(
        parse_config(
            read
            | {
                "security": {
                    "issuers": [{**realm, "suffix": f"@{n}"} for n, realm in enumerate(realms)]
                }
            },
            "adon.yml",
        )
    )
    twice = {"issuers": [realms[0], {**realms[0], "suffix": "@b"}]}
    with pytest.raises(InputError, match="an issuer or"):
        keyring_of(parse_config(read | {"security": twice}, "adon.yml"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"issuer": "http://login.example.org"}, "issuers.0.issuer"),
        ({"audience": []}, "issuers.0.audience"),
        ({"roles": [{"holds": ["x"], "role": "king"}]}, "role: found 'king'"),
        ({"audiences": ["x"]}, "did you mean 'audience'"),
    ],
)
def test_bad_issuers_are_one_line(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        configured(**entry)
    assert words in str(caught.value) and "\n" not in str(caught.value)
