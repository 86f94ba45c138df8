"""Who asks, and what they may: tokens, certificates, roles.

A key in ``adon.yml`` gives a name a role and, unless its holder shows a client certificate of that
name, a secret token. Tokens are kept as SHA-256 alone. They are long and random, so a plain hash
tells nothing of them; it is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from network_provisioner.base.errors import BrokerError, InputError

_TOKEN_BYTES = 32


class Role(StrEnum):
    """What somebody is to the network (docs/security.md has the table)."""

    RESEARCHER = "researcher"
    ENGINEER = "engineer"
    OPERATOR = "operator"
    MEASUREMENT = "measurement"
    AGENT = "agent"


class May(StrEnum):
    """What there is to be allowed. A researcher's transits are those of its own user names."""

    REQUEST = "request and renew transits"
    RELEASE = "release transits"
    READ = "read transits, the network, policies and templates"
    MEASURE = "read counters and metrics"
    SAVE_TEMPLATES = "save templates"
    MANAGE = "manage policies, templates and drains"
    SEE = "see measurements, workflows and anomalies"
    START = "start measurements and say what is measured"
    RECORD = "record measurements"
    ACT = "take an agent's part"


_GRANTS = {
    Role.ENGINEER: frozenset(May),
    Role.RESEARCHER: frozenset(
        {May.REQUEST, May.RELEASE, May.READ, May.SAVE_TEMPLATES, May.SEE, May.RECORD}
    ),
    Role.OPERATOR: frozenset({May.RELEASE, May.READ, May.MEASURE, May.SEE}),
    Role.MEASUREMENT: frozenset({May.READ, May.MEASURE, May.SEE, May.START}),
    Role.AGENT: frozenset({May.RECORD, May.ACT}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever was recognised. ``users`` and ``projects`` are the names it may ask in, None: any."""

    name: str
    role: Role
    users: frozenset[str] | None = None
    projects: frozenset[str] | None = None

    def may(self, what: May) -> bool:
        """Whether the role allows it."""
        return what in _GRANTS[self.role]

    def need(self, what: May) -> None:
        """Raises BrokerError ``forbidden`` where the role does not allow it."""
        if not self.may(what):
            able = ", ".join(role for role in Role if what in _GRANTS[role])
            raise BrokerError(
                f"{self.name!r} has role {self.role}, expected {able} to {what}", "forbidden"
            )

    def owns(self, user: str) -> bool:
        """Whether a transit of this user is its business."""
        return self.users is None or user in self.users

    def acting(self, user: str, project: str) -> tuple[str, str]:
        """User and project of a request, completed with its own.

        Raises BrokerError ``forbidden`` for names that are not its own: policies go by them.
        """
        user = user or self.name
        if not self.owns(user):
            raise BrokerError(
                f"{self.name!r} asks as user {user!r}, expected {_among(self.users)}", "forbidden"
            )
        if self.projects is None:
            return user, project
        if not project and len(self.projects) == 1:
            (project,) = self.projects
        if project and project not in self.projects:
            raise BrokerError(
                f"{self.name!r} asks for project {project!r}, expected {_among(self.projects)}",
                "forbidden",
            )
        return user, project


ANYBODY = Principal("", Role.ENGINEER)
"""Who asks a broker that knows no keys; it listens on loopback alone."""


def _among(names: frozenset[str] | None) -> str:
    return " or ".join(repr(name) for name in sorted(names or ())) or "none"


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of ``security.tokens``. ``sha256``: hexadecimal, "" where only a certificate of this
    name counts. ``expires``: Unix seconds, None for never."""

    principal: Principal
    sha256: str = ""
    expires: float | None = None


Federation = Callable[[str], Principal | None]
"""Whom the token of a trusted issuer names, None for what is no such token. Raises BrokerError
``unauthorized``, ``token_expired``. It may ask the issuer for its keys, and take seconds."""


class Keyring:
    """All keys. Without any, and without a federation, everybody may do everything: but not once
    there were some, whatever becomes of them."""

    def __init__(
        self,
        keys: Sequence[Key],
        clock: Callable[[], float],
        federation: Federation | None = None,
    ) -> None:
        """``clock`` gives Unix seconds. Raises InputError for a name or a token given twice."""
        self._clock = clock
        self._closed = False
        self._keys: tuple[Key, ...] = ()
        self.replace(keys, federation)

    def replace(self, keys: Sequence[Key], federation: Federation | None) -> None:
        """From now on these. Raises InputError as the constructor, with nothing changed."""
        names = [key.principal.name for key in keys]
        hashes = [key.sha256 for key in keys if key.sha256]
        if len(set(names)) < len(names) or len(set(hashes)) < len(hashes):
            raise InputError("found a name or a token twice, expected each once")
        self._keys, self._federation = tuple(keys), federation
        self._closed = self._closed or bool(keys) or federation is not None

    def __len__(self) -> int:
        return len(self._keys)

    def __bool__(self) -> bool:
        return self._closed

    @property
    def federated(self) -> bool:
        """Whether recognising a token may take seconds."""
        return self._federation is not None

    @property
    def federation(self) -> Federation | None:
        """Who else says who somebody is, as it is now."""
        return self._federation

    def principals(self) -> list[Principal]:
        """Everybody who has a key, in the order they were given."""
        return [key.principal for key in self._keys]

    def recognise(self, token: str | None, certificate: str | None) -> Principal:
        """Whose request it is: the token's holder, else whom the verified certificate names.

        Raises BrokerError ``unauthorized``, ``token_expired``.
        """
        if not self:
            return ANYBODY
        if token is not None:
            key = self._of_token(token)
            if key is None and self._federation is not None:
                principal = self._federation(token)
                if principal is not None:
                    return principal
            return self._valid(key, "the bearer token is not known here")
        if certificate:  # a key may have no name, and then no certificate stands for it
            named = next((k for k in self._keys if k.principal.name == certificate), None)
            return self._valid(named, f"the certificate of {certificate!r} is nobody's key here")
        raise BrokerError(
            "the request has no token, expected 'Authorization: Bearer TOKEN'", "unauthorized"
        )

    def _of_token(self, token: str) -> Key | None:
        shown = hash_of(token)
        principal = None
        for key in self._keys:  # all of them: the time taken tells nobody which it was
            if hmac.compare_digest(shown, key.sha256 or "-"):
                principal = key
        return principal

    def _valid(self, key: Key | None, otherwise: str) -> Principal:
        if key is None:
            raise BrokerError(otherwise, "unauthorized")
        if key.expires is not None and self._clock() >= key.expires:
            raise BrokerError(f"the token of {key.principal.name!r} has expired", "token_expired")
        return key.principal


def hash_of(token: str) -> str:
    """The SHA-256 of a token, hexadecimal, as ``adon.yml`` keeps it."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def new_token() -> str:
    """A token that nobody can guess."""
    return f"adon_{secrets.token_urlsafe(_TOKEN_BYTES)}"
