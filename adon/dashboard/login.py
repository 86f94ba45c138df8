"""``/dashboard/login``: with whom one may log in, and the token that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import APIRouter, Response
from pydantic import Field

from network_provisioner.api import answers
from network_provisioner.api.shapes import Body, Text
from network_provisioner.base.errors import BrokerError

if TYPE_CHECKING:
    from network_provisioner.api.login import BrowserLogins

PATH = "/dashboard/login"


class LoginBody(Body):
    """What the provider sent the page back with, and what the page kept meanwhile."""

    issuer: Text
    code: str = Field(max_length=4000)
    verifier: str = Field(min_length=43, max_length=128)
    redirect_uri: Text


def login_router(logins: Callable[[], BrowserLogins | None]) -> APIRouter:
    """The routes, for callers without a token. ``logins`` are those of adon.yml as it is now."""
    routes = APIRouter(include_in_schema=False)

    @routes.get(PATH)
    def get_logins() -> Response:
        """Where a login begins, for each issuer."""
        known = logins()
        return answers.answer(known.offers() if known else [])

    @routes.post(PATH)
    def post_login(body: LoginBody) -> Response:
        """The token for a code."""
        known = logins()
        if known is None:
            raise BrokerError("found no security.issuers with a client", "unauthorized")
        answer = answers.answer({"token": known.token(**body.model_dump())})
        answer.headers["Cache-Control"] = "no-store"
        return answer

    return routes
