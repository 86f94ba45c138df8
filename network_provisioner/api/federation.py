"""Federated login (thesis, section 3.1): whom a token of a trusted issuer names.

A token is a JWT, of OpenID Connect or SciTokens, signed with a key that the issuer publishes:

    ISSUER/.well-known/openid-configuration (or oauth-authorization-server) ─► jwks_uri ─► keys

Needs PyJWT with cryptography (extra ``federation``).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import jwt
import requests
from cryptography.exceptions import UnsupportedAlgorithm

from network_provisioner.access import Principal, Role
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.issuers import Issuer

log = logging.getLogger(__name__)

KEPT_S = 3600.0  # then an issuer's keys are read again: it may have withdrawn one
AGAIN_S = 30.0  # an unknown key, or an issuer that does not answer, is not asked for more often
_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20
_LEEWAY_S = 30.0  # clocks differ
_LONGEST_NAME = 200
# With a public key only: with a shared one the issuer's key would be anybody's to sign with.
_ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip

_ANY_WLCG, _ANY_SCITOKEN = "https://wlcg.cern.ch/jwt/v1/any", "ANY"  # for every service

Fetch = Callable[[str], Any]
"""The JSON document at a URL. Raises OSError, ValueError."""


class Issuers:
    """Called with a token it gives whom that names: :data:`~network_provisioner.access.Federation`.
    Threads may share it."""

    def __init__(
        self,
        issuers: Sequence[Issuer],
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` gives seconds that never go back. Raises InputError for two issuers that one
        could take for each other."""
        self.issuers = list(issuers)
        self._issuers = {
            issuer.issuer: (issuer, _Keys(issuer.issuer, fetch or fetched, clock))
            for issuer in issuers
        }
        if min(len(self._issuers), len({_suffix(issuer) for issuer in issuers})) < len(issuers):
            raise InputError("found an issuer or a suffix twice in security.issuers")

    def __call__(self, token: str) -> Principal | None:
        try:
            head = jwt.get_unverified_header(token)
            said = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        entry = self._issuers.get(said["iss"]) if isinstance(said.get("iss"), str) else None
        if entry is None:
            raise BrokerError(
                f"the token is of issuer {str(said.get('iss'))!r:.200}, expected one of "
                "security.issuers",
                "unauthorized",
            )
        issuer, keys = entry
        try:
            fitting = keys.fitting(head.get("kid", ""), str(head.get("alg")))
            audience = [*issuer.audience, _ANY_WLCG, *filter(None, [issuer.client])]
            if str(said.get("ver")).startswith(("scitoken:", "scitokens:")):
                audience.append(_ANY_SCITOKEN)
            claims = _verified(token, issuer, audience, fitting)
        except jwt.ExpiredSignatureError:
            words = f"the token of {issuer.issuer} has expired"
            raise BrokerError(words, "token_expired") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise BrokerError(f"the token of {issuer.issuer}: {error}", "unauthorized") from None
        return _principal(issuer, claims)


def _verified(
    token: str, issuer: Issuer, audience: list[str], keys: Iterable[jwt.PyJWK]
) -> Mapping[str, Any]:
    """The claims, by the first key that made the signature. Raises PyJWTError, TypeError,
    ValueError, and what reading the keys raises."""
    failure: jwt.PyJWTError = jwt.InvalidKeyError("no key fits")
    for key in keys:
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=_ALGORITHMS,
                audience=audience,
                issuer=issuer.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", issuer.name]},
            )
        except jwt.InvalidSignatureError as error:
            failure = error
        else:
            return claims
    raise failure


def _suffix(issuer: Issuer) -> str:
    return f"@{urlsplit(issuer.issuer).hostname}" if issuer.suffix is None else issuer.suffix


def _principal(issuer: Issuer, claims: Mapping[str, Any]) -> Principal:
    """Raises BrokerError ``unauthorized`` for who has no name, or no role here."""
    subject = claims[issuer.name]
    if not (
        isinstance(subject, str)
        and subject
        and subject.isprintable()
        and len(subject) <= _LONGEST_NAME
    ):
        raise BrokerError(
            f"the token of {issuer.issuer} has no name in {issuer.name!r}", "unauthorized"
        )
    if issuer.name == "email" and claims.get("email_verified", True) not in (True, "true"):
        raise BrokerError(
            f"{issuer.issuer} has not verified that {subject!r} is its holder's", "unauthorized"
        )
    name = f"{subject}{_suffix(issuer)}"
    held = {
        entitlement for claim in issuer.claims for entitlement in _held(claim, _at(claims, claim))
    }
    for entitled in issuer.roles:
        if entitled.holds & held:
            own = frozenset({name}) if entitled.role is Role.RESEARCHER else None
            return Principal(name, entitled.role, own, entitled.projects)
    raise BrokerError(
        f"{name!r} holds none of the entitlements that have a role here", "unauthorized"
    )


def _at(claims: Mapping[str, Any], name: str) -> Any:
    """A claim: a dot is part of a name (WLCG), or leads into an object (Keycloak)."""
    outer, _, inner = name.partition(".")
    if name in claims or not inner:
        return claims.get(name)
    within = claims.get(outer)
    return _at(within, inner) if isinstance(within, Mapping) else None


def _held(claim: str, value: object) -> list[str]:
    """Scopes are words of one text; a group or an entitlement may have blanks in it."""
    if isinstance(value, str):
        return value.split() if claim in ("scope", "scp") else [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


class _Keys:
    """The keys of one issuer, read when they are first needed."""

    def __init__(self, issuer: str, fetch: Fetch, clock: Callable[[], float]) -> None:
        self._issuer, self._fetch, self._clock = issuer, fetch, clock
        self._lock = threading.Lock()
        self._keys: list[jwt.PyJWK] = []
        self._read_at = self._asked_at = float("-inf")

    def fitting(self, kid: str, algorithm: str) -> Iterator[jwt.PyJWK]:
        """The key of this id. Without an id on one side: all keys of the algorithm, those that are
        known first. Raises BrokerError ``unauthorized`` where there is none. Who has a key that is
        known waits for nobody."""
        keys = self._known(kid, algorithm, KEPT_S)
        yield from keys
        if kid and any(key.key_id == kid for key in keys):
            return
        usable = keys or self._known(kid, algorithm, 2 * KEPT_S)
        if self._lock.acquire(blocking=not usable):
            try:
                self._read_again()
            finally:
                self._lock.release()
        more = [key for key in self._known(kid, algorithm, 2 * KEPT_S) if key not in keys]
        if not (keys or more):
            which = f"{kid!r:.100} " if kid else ""
            raise BrokerError(
                f"issuer {self._issuer} has no key {which}of {algorithm!r:.20} just now",
                "unauthorized",
            )
        yield from more

    def _known(self, kid: str, algorithm: str, kept_s: float) -> list[jwt.PyJWK]:
        keys = self._keys if self._clock() - self._read_at <= kept_s else []
        usable = [key for key in keys if _fits(key, algorithm)]
        same = [key for key in usable if kid and key.key_id == kid]
        return same or [key for key in usable if not (kid and key.key_id)]

    def _read_again(self) -> None:
        now = self._clock()
        if now - self._asked_at > AGAIN_S:
            self._asked_at = now
            try:
                self._keys, self._read_at = self._read(), now
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                log.warning("the keys of issuer %s cannot be read: %.200r", self._issuer, error)

    def _read(self) -> list[jwt.PyJWK]:
        known = f"{self._issuer.rstrip('/')}/.well-known"
        try:
            configuration = self._fetch(f"{known}/openid-configuration")
        except (OSError, ValueError):  # of some SciTokens issuers
            configuration = self._fetch(f"{known}/oauth-authorization-server")
        if configuration["issuer"] != self._issuer:
            raise ValueError(f"found the configuration of issuer {configuration['issuer']!r}")
        if urlsplit(configuration["jwks_uri"]).scheme != urlsplit(self._issuer).scheme:
            raise ValueError(f"found keys at {configuration['jwks_uri']!r}")
        keys = []
        for key in self._fetch(configuration["jwks_uri"])["keys"]:
            # Not of a kind that we do not know.
            with suppress(jwt.PyJWTError, UnsupportedAlgorithm, ValueError, AttributeError):
                if key.get("use", "sig") == "sig":
                    keys.append(jwt.PyJWK(key))
        return keys


def _fits(key: jwt.PyJWK, algorithm: str) -> bool:
    if key.key_type == "RSA":
        return algorithm.startswith(("RS", "PS"))
    return key.algorithm_name == algorithm


def fetched(url: str) -> Any:
    """See :data:`Fetch`."""
    until, text = time.monotonic() + _TIMEOUT_S, bytearray()
    with requests.get(url, timeout=_TIMEOUT_S, allow_redirects=False, stream=True) as answer:
        if answer.status_code != 200:
            raise ValueError(f"{url}: found {answer.status_code}")
        for piece in answer.iter_content(1):  # as it comes: it may come slowly
            text += piece
            if len(text) > _MOST_BYTES or time.monotonic() > until:
                raise ValueError(f"{url}: found more than is meant, or it takes too long")
    return json.loads(text)
