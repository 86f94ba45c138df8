"""A program of the admin's as a cloud: it gets a request as JSON on standard input, and answers so.

    {"action": "flavours"}
        {"flavours": [{"name", "cores", "memory_mb", "price", "boot_s", "boot_spread_s"}]}
    {"action": "machines"}
        {"machines": [{"name", "flavour", "state", "since", "address", "error", "until"}]}
    {"action": "start", "flavour": "…", "name": "…"}
    {"action": "delete", "name": "…"}

and exits with 0. To the last two it needs to say nothing; what it cannot do, it refuses with
``{"refused": "quota|busy|conflict|credentials|refused", "retry_after_s": 60, "error": "…"}``
(:class:`condor_plugins.pool.cloud.protocol.Refusal`), or exits with another code and a line on
standard error, which counts as busy. ``price``, boot times, ``address``, ``error`` and ``until``,
when a machine ends by itself, may be left out. Machines take the name that is given to them into
the pool, as AdonWorker in the ads of their slots.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from condor_plugins.pool.cloud.protocol import CloudError, Refusal, Server
from condor_plugins.pool.scaling import Flavour, MachineState
from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import Name, Number, Schema, Whole, read_json

_Amount = Annotated[Number, Field(ge=0)]


class _Flavour(Schema):
    name: Name
    cores: Annotated[Whole, Field(ge=1)]
    memory_mb: Annotated[Whole, Field(ge=1)]
    price: _Amount = 0.0
    boot_s: _Amount = 0.0
    boot_spread_s: _Amount = 0.0


class _Machine(Schema):
    name: Name
    flavour: str
    state: Literal["booting", "running", "ended", "error"]
    since: Number
    address: str = ""
    error: str = ""
    until: Number | None = None


class _Answer(Schema):
    flavours: list[_Flavour] | None = None
    machines: list[_Machine] | None = None
    refused: Refusal | None = None
    retry_after_s: _Amount = 0.0
    error: str = ""


class CommandCloud:
    """See :class:`condor_plugins.pool.cloud.protocol.Cloud`. Calls ``command`` with a request on
    its standard input, for at most ``timeout_s`` each."""

    def __init__(self, command: Sequence[str], timeout_s: float = 60.0) -> None:
        self._command = list(command)
        self._timeout_s = timeout_s

    def check(self) -> None:
        """The same: whether it tells flavours and machines."""
        try:
            self.flavours()
            self.machines()
        except CloudError as error:
            if error.why in (Refusal.CREDENTIALS, Refusal.REFUSED):
                raise InputError(str(error)) from error
            raise

    def flavours(self) -> Sequence[Flavour]:
        """The same."""
        offered = self._call("flavours").flavours
        if not offered:
            raise self._error("found no flavours, expected one at least", Refusal.REFUSED)
        return [Flavour(**row.model_dump(exclude_unset=True)) for row in offered]

    def machines(self) -> Sequence[Server]:
        """The same."""
        listed = self._call("machines").machines
        if listed is None:
            raise self._error("found no machines, expected a list", Refusal.REFUSED)
        return [
            Server(**row.model_dump(exclude_none=True) | {"state": MachineState(row.state)})
            for row in listed
        ]

    def start(self, flavour: str, name: str) -> None:
        """The same."""
        self._call("start", flavour=flavour, name=name)

    def delete(self, name: str) -> None:
        """The same."""
        self._call("delete", name=name)

    def _call(self, action: str, **more: Any) -> _Answer:
        try:
            done = subprocess.run(
                self._command,
                input=json.dumps({"action": action, **more}) + "\n",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except OSError as error:
            raise self._error(f"{error.strerror}, expected a program", Refusal.REFUSED) from error
        except subprocess.TimeoutExpired as error:
            raise self._error(f"{action}: no answer within {self._timeout_s:g} s") from error
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            reason = lines[-1] if lines else "no output"
            raise self._error(f"{action}: exit code {done.returncode}: {reason}")
        try:
            answer = read_json(_Answer, done.stdout.strip() or "{}", f"answer to {action}")
        except InputError as error:
            raise self._error(str(error), Refusal.REFUSED) from None
        if answer.refused:
            reason = " ".join(answer.error.split()) or answer.refused.value
            raise self._error(f"{action}: {reason}", answer.refused, answer.retry_after_s)
        return answer

    def _error(
        self, what: str, why: Refusal = Refusal.BUSY, retry_after_s: float = 0.0
    ) -> CloudError:
        return CloudError(f"{self._command[0]}: {what}", why, retry_after_s)
