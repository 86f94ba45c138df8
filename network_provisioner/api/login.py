"""Login in the browser: the authorization-code flow of OpenID Connect with PKCE (RFC 7636).

    page ─► provider's login page ─► code ─► page ─► here ─► provider: code and verifier ─► token

The verifier proves that who brings the code is who began. The dashboard is a public client, or a
confidential one where the issuer insists: then the broker, which exchanges the code, has a secret
(``client_secret_file``) that no browser sees. The token that comes of it is checked as any other
(:mod:`~network_provisioner.api.federation`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlsplit

import requests

from network_provisioner.access import Federation
from network_provisioner.api.federation import fetched
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.issuers import Issuer

log = logging.getLogger(__name__)

_KEPT_S = 300.0  # what a provider says of itself; also that it does not answer
_TIMEOUT_S = 10.0
_BASIC, _POST = "client_secret_basic", "client_secret_post"
Login = tuple[str, str]
"""Name and password of HTTP's basic authentication."""


def posted(url: str, form: Mapping[str, str], login: Login | None) -> Any:
    """The JSON answer to a form. Raises OSError, ValueError."""
    return requests.post(
        url,
        data=form,
        auth=login,
        timeout=_TIMEOUT_S,
        allow_redirects=False,
        headers={"Accept": "application/json"},
    ).json()


class BrowserLogins:
    """The issuers that people may log in with in a browser: those with a ``client``."""

    def __init__(self, issuers: list[Issuer], federation: Federation) -> None:
        self._issuers = {issuer.issuer: issuer for issuer in issuers if issuer.client}
        self._federation = federation
        self._known: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def offers(self) -> list[dict[str, str]]:
        """Where a login begins, for each issuer that answers; JSON-ready."""
        offered = []
        for name, issuer in self._issuers.items():
            page = self._about(name).get("authorization_endpoint")
            if isinstance(page, str):
                about = {"issuer": name, "client": issuer.client or "", "scope": issuer.scope}
                offered.append({**about, "page": page})
        return offered

    def token(self, issuer: str, code: str, verifier: str, redirect_uri: str) -> str:
        """The token for a code. Raises BrokerError ``unauthorized`` with the provider's reason, or
        where the token names nobody who has a role here."""
        known = self._issuers.get(issuer)
        if known is None:
            raise BrokerError(
                f"found issuer {issuer!r:.200}, expected one that has a client", "unauthorized"
            )
        form = {
            "grant_type": "authorization_code", "code": code, "code_verifier": verifier,
            "client_id": known.client or "", "redirect_uri": redirect_uri,
        }  # fmt: skip
        try:
            about = self._about(issuer)
            secret, login = _secret_of(known, about)
            answer = posted(about["token_endpoint"], form | secret, login)
            held = [answer[kind] for kind in ("access_token", "id_token") if kind in answer]
            why = answer.get("error_description") or answer.get("error")
            why = why or "there is no token in it"
        except (OSError, ValueError, TypeError, KeyError, AttributeError, InputError) as error:
            log.warning("issuer %s gave no token: %.200r", issuer, error)
            raise BrokerError(
                f"{issuer} does not answer as expected; see the broker's log", "unauthorized"
            ) from None
        if not held:
            raise BrokerError(f"{issuer} gave no token: {why!s:.200}", "unauthorized")
        return self._accepted(held)

    def _accepted(self, tokens: list[str]) -> str:
        """The first that says who somebody is here. An access token may be no JWT, or for others
        alone; then the ID token counts."""
        for token in tokens[:-1]:
            try:
                if self._federation(token) is not None:
                    return token
            except BrokerError:
                continue
        if self._federation(tokens[-1]) is None:
            raise BrokerError("the issuer's token is not signed, expected a JWT", "unauthorized")
        return tokens[-1]

    def _about(self, issuer: str) -> Mapping[str, Any]:
        at, about = self._known.get(issuer, (float("-inf"), {}))
        if time.monotonic() - at > _KEPT_S:
            try:
                about = _read(issuer)
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                log.warning("issuer %s cannot be asked for a login: %.200r", issuer, error)
                about = {}
            self._known[issuer] = time.monotonic(), about
        return about


def _read(issuer: str) -> Mapping[str, Any]:
    """What a provider says of itself. Raises what :func:`fetched` does, and for what does not fit
    TypeError, KeyError and AttributeError."""
    about: Mapping[str, Any] = fetched(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    for place in (about["authorization_endpoint"], about["token_endpoint"]):
        if urlsplit(place).scheme != urlsplit(issuer).scheme:
            raise ValueError(f"found {place!r}")
    if about["issuer"] != issuer:
        raise ValueError(f"found the configuration of issuer {about['issuer']!r}")
    return about


def _secret_of(issuer: Issuer, about: Mapping[str, Any]) -> tuple[dict[str, str], Login | None]:
    """How a confidential client says who it is: in the form, or as HTTP has it, which every
    provider takes that does not say otherwise (RFC 6749, 2.3.1). Raises InputError."""
    secret, client = issuer.client_secret(), issuer.client or ""
    if not secret:
        return {}, None
    methods = about.get("token_endpoint_auth_methods_supported") or [_BASIC]
    if _BASIC not in methods and _POST in methods:
        return {"client_secret": secret}, None
    return {}, (quote_plus(client), quote_plus(secret))
