"""What every section of adon.yml is made of."""

from __future__ import annotations

from reprlib import repr as shown
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from network_provisioner.base.errors import InputError
from network_provisioner.base.units import parse_duration


class Section(BaseModel):
    """A mapping whose keys are all known, and which nobody changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _seconds(value: object) -> float:
    try:
        seconds = parse_duration(value, "")
    except InputError as error:
        raise ValueError(str(error).removeprefix(": ")) from None
    if seconds <= 0:
        raise ValueError(f"found {shown(value)}, expected more than 0 s")
    return seconds


Duration = Annotated[float, BeforeValidator(_seconds)]
"""Seconds, written with a unit: ``15 min``."""
