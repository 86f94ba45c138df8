"""The caller, as the gate found it, for routes that ask for one."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from network_provisioner.access import Principal


async def _caller(request: Request) -> Principal:  # async: no thread for looking into a dictionary
    return cast("Principal", request.state.principal)


Caller = Annotated[Principal, Depends(_caller)]
"""A parameter of this type is who asks."""
