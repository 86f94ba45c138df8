"""Section ``expansion`` of adon.yml."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from adon.config.parts import Duration, Section


class ExpansionConfig(Section):
    """How the pool grows for a demand, and shrinks (docs/provisioning-jobs.md).

    ``driver``      startd starts HTCondor's daemons on this machine; command calls a program of
                    the admin's
    ``most``        slots in all workers together
    ``lease``       how long a demand counts that names no time
    ``command``     the program of the driver command, and its first arguments
    ``timeout``     how long that program may take

    Of the driver startd, see :class:`condor_plugins.pool.workerconfig.StartdSettings`:
    ``directory``, ``release``, ``token_file``, ``site``, ``memory_mb``, ``idle``, ``config``,
    ``environment``, and ``per_worker``, the slots of one worker. Paths that are not absolute begin
    at the folder of this file.
    """

    driver: Literal["startd", "command"] = "startd"
    most: Annotated[int, Field(ge=0, le=100_000)] = 16
    lease: Duration = 3600.0
    command: list[str] = Field(default_factory=list)
    timeout: Duration = 60.0
    directory: str = "adon-workers"
    release: str = "/usr"
    token_file: str = ""
    site: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$")] = ""
    per_worker: Annotated[int, Field(ge=1, le=1024)] = 4
    memory_mb: Annotated[int, Field(ge=1)] = 1024
    idle: Duration = 600.0
    config: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.driver == "command" and not self.command:
            raise ValueError("driver 'command': found no command, expected a program to call")
        return self
