"""Login in the browser, with a provider that speaks HTTP."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_rig import code_of
from oidc_provider import CLIENT, Provider, provider

from network_provisioner.access import Principal, Role
from network_provisioner.api import login
from network_provisioner.api.federation import Issuers
from network_provisioner.api.login import BrowserLogins
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import read
from network_provisioner.issuers import Entitled, Issuer

VERIFIER, BACK = "v" * 43, "http://127.0.0.1:8470/dashboard/"


@pytest.fixture
def web() -> Iterator[Provider]:
    with provider() as made:
        yield made


def logins_of(web: Provider, secret_file: Path | None = None) -> BrowserLogins:
    roles = (Entitled(frozenset({"soykb-members"}), Role.RESEARCHER),)
    trusted = [
        Issuer(
            web.url,
            ("https://broker.example.org",),
            roles,
            suffix="",
            client=CLIENT,
            client_secret_file=secret_file and str(secret_file),
        ),
        Issuer("https://other.example.org", ("x",), roles),  # for commands alone
    ]
    return BrowserLogins(trusted, Issuers(trusted))


def code(web: Provider, verifier: str = VERIFIER) -> str:
    challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    given = {"client_id": CLIENT, "code_challenge_method": "S256", "state": "s"}
    back = web.led_back(given | {"code_challenge": challenge, "redirect_uri": BACK})
    return back.partition("code=")[2]


def test_a_code_becomes_a_token_that_names_its_holder(web: Provider) -> None:
    logins = logins_of(web)
    assert logins.offers() == [
        {
            "issuer": web.url, "client": CLIENT, "scope": "openid profile email",
            "page": f"{web.url}/login",
        }
    ]  # fmt: skip
    token = logins.token(web.url, code(web), VERIFIER, BACK)  # the access token is no JWT
    assert logins._federation(token) == Principal("ada", Role.RESEARCHER, frozenset({"ada"}))


def test_no_token_for_who_did_not_begin_or_has_no_role(web: Provider) -> None:
    logins = logins_of(web)
    once = code(web)
    assert code_of(logins.token, web.url, once, "w" * 43, BACK) == "unauthorized"
    assert code_of(logins.token, web.url, once, VERIFIER, BACK) == "unauthorized"  # it was spent
    for name in ("https://other.example.org", "https://nobody.example.org"):
        assert code_of(logins.token, name, "c", VERIFIER, BACK) == "unauthorized"
    web.groups = []
    assert code_of(logins.token, web.url, code(web), VERIFIER, BACK) == "unauthorized"


def test_an_issuer_that_says_odd_things_is_not_offered(
    web: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = web.answer("/.well-known/openid-configuration") or {}
    for change in ({"issuer": "https://else"}, {"token_endpoint": "file:///etc"}, {"issuer": 7}):
        odd, said = logins_of(web), about | change
        monkeypatch.setattr(login, "fetched", lambda _, said=said: said)
        assert odd.offers() == []
        assert code_of(odd.token, web.url, "c", VERIFIER, BACK) == "unauthorized"


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_confidential_client_has_a_secret(web: Provider, tmp_path: Path, method: str) -> None:
    file = tmp_path / "secret"
    web.secret, web.methods = "a secret: +/=%", [method]
    file.write_text("a secret: +/=%\n", encoding="utf-8")
    logins = logins_of(web, file)
    token = logins.token(web.url, code(web), VERIFIER, BACK)
    assert logins._federation(token) is not None
    for wrong in ("another", "", None):
        file.unlink() if wrong is None else file.write_text(wrong, encoding="utf-8")
        assert code_of(logins.token, web.url, code(web), VERIFIER, BACK) == "unauthorized"
    assert code_of(logins_of(web).token, web.url, code(web), VERIFIER, BACK) == "unauthorized"


def test_a_secret_is_of_a_client_and_stands_in_a_file(tmp_path: Path) -> None:
    body = {
        "issuer": "https://a.example", "audience": ["x"], "client_secret_file": "s",
        "roles": [{"holds": ["x"], "role": "operator"}],
    }  # fmt: skip
    with pytest.raises(InputError, match="expected the id that it belongs to"):
        read(Issuer, body, "issuer")
    known = read(Issuer, body | {"client": "c"}, "issuer")
    with pytest.raises(InputError, match="cannot be read"):
        known.client_secret()
