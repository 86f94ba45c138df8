"""Routes whose answers are signed, refusals too, for the agent that asks (docs/agents.md)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from monitors.agents.messages import NONCE, SIGNATURE, signature
from network_provisioner.access import May, Principal
from network_provisioner.api.problems import answer_to, answer_to_invalid
from network_provisioner.errors import AdonError

_NONCE = re.compile(r"[0-9A-Fa-f]{16,64}\Z")

HashOf = Callable[[str], str]


def is_nonce(text: str | None) -> bool:
    """Whether it is one that an answer is signed with."""
    return text is not None and _NONCE.match(text) is not None


def is_itself(caller: Principal, name: str) -> bool:
    """Whether the caller is the agent of that name, as far as anybody is known."""
    # Without any keys the caller has no name, and everybody may do everything.
    return caller.may(May.ACT) and caller.name in ("", name)


def signing(hash_of: HashOf) -> type[APIRoute]:
    """A kind of route with ``{name}`` in its path. ``hash_of`` gives the SHA-256 of an agent's
    token, "" where there is none. Nothing is signed for anybody else than that agent."""

    def sign(request: Request, answer: Response) -> Response:
        name, nonce = request.path_params["name"], request.headers.get(NONCE)
        if nonce is not None and is_nonce(nonce) and is_itself(request.state.principal, name):
            key = hash_of(name)
            if key:
                answer.headers[SIGNATURE] = signature(key, nonce, bytes(answer.body))
        return answer

    class Signed(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
            """Called by FastAPI."""
            handle = super().get_route_handler()

            async def handled(request: Request) -> Response:
                try:
                    answer = await handle(request)
                except AdonError as error:
                    answer = answer_to(error)
                except RequestValidationError as error:
                    answer = answer_to_invalid(error)
                return sign(request, answer)

            return handled

    return Signed
