"""Who else is trusted to say who somebody is (``security.issuers``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from network_provisioner.access import Role
from network_provisioner.base.schema import STRICT


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
    ``claims``    where entitlements, groups and scopes stand
    ``client``    the id that the dashboard has at the issuer, as a public client; None where nobody
                  logs in with a browser. ID tokens for it are taken too
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
    )  # fmt: skip
    client: str | None = None
    scope: str = "openid profile email"
