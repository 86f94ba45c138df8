"""Who else is trusted to say who somebody is (``security.issuers``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from network_provisioner.access import Role
from network_provisioner.base.private import read_secret
from network_provisioner.base.schema import STRICT, File


@dataclass(frozen=True, slots=True)
class Entitled:
    """What those are who hold any of these entitlements, group names or scopes of an issuer.
    ``projects``: those that they may ask for, None: any."""

    __pydantic_config__ = STRICT

    holds: Annotated[frozenset[str], Field(min_length=1)]
    role: Role
    projects: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who else says who somebody is: by OpenID Connect or SciTokens (JWT).

    ``issuer``    its URL, as ``iss`` in its tokens has it; its keys are found from there
    ``audience``  what ``aud`` must name, one of them: this broker. Tokens for every service (WLCG's
                  ``…/jwt/v1/any``, ``ANY`` of SciTokens) are taken too
    ``roles``     the first that fits; who has none of these is nobody
    ``name``      the claim that has the name
    ``suffix``    what is put behind that name, so that no two issuers' names are the same; None for
                  ``@`` and the issuer's host. With ``""`` the names are those of local users
    ``claims``    where entitlements, groups and scopes stand; ``a.b`` is ``b`` in the object ``a``
    ``client``    the id that the dashboard has at the issuer; None where nobody logs in with a
                  browser. ID tokens for it are taken too
    ``client_secret_file``  a file with its secret, where it is a confidential client
    ``scope``     what the dashboard asks for then
    """

    __pydantic_config__ = STRICT

    issuer: Annotated[str, Field(pattern=r"^https://\S+$|^http://(127\.0\.0\.1|localhost)[:/]\S*$")]
    audience: Annotated[tuple[str, ...], Field(min_length=1)]
    roles: Annotated[tuple[Entitled, ...], Field(min_length=1)]
    name: str = "sub"
    suffix: str | None = None
    claims: tuple[str, ...] = (
        "scope", "scp", "groups", "roles", "entitlements", "eduperson_entitlement", "wlcg.groups",
        "realm_access.roles", "isMemberOf",
    )  # fmt: skip
    client: str | None = None
    client_secret_file: File | None = None
    scope: str = "openid profile email"

    def __post_init__(self) -> None:
        if self.client_secret_file and not self.client:
            raise ValueError(
                "client_secret_file without client, expected the id that it belongs to"
            )

    def client_secret(self) -> str:
        """The secret in the file; "" for a public client. Raises InputError."""
        if not self.client_secret_file:
            return ""
        return read_secret(Path(self.client_secret_file), "a client secret")
