"""The caller, as the gate found it, for routes that ask for one."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from network_provisioner.access import May, Principal
from network_provisioner.base.errors import BrokerError


async def _caller(request: Request) -> Principal:  # async: no thread for looking into a dictionary
    return cast("Principal", request.state.principal)


def need_own(caller: Principal, name: str) -> None:
    """Raises BrokerError ``forbidden`` where the caller is not the agent of this name."""
    caller.need(May.ACT)
    if caller.name not in ("", name):  # without any keys the caller has no name
        raise BrokerError(
            f"{caller.name!r} asks as agent {name!r:.80}, expected its own name", "forbidden"
        )


def withdrawn(request: Request) -> bool:
    """Whether the caller is no longer who it was, as its token was withdrawn or has ended. It may
    take seconds, where an issuer is asked."""
    try:
        return bool(request.state.recognise() != request.state.principal)
    except BrokerError:
        return True


Caller = Annotated[Principal, Depends(_caller)]
"""A parameter of this type is who asks."""
