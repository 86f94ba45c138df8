"""What a provisioning job is told, as its arguments: text that every shell leaves as it is.

Pegasus hands arguments on through files, scripts and other programs, some of which split them at
spaces. So each is one word, ``--name=value``, with everything but plain characters as ``%XX``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote, unquote

from network_provisioner.base.errors import InputError

NAMESPACE = "adon"
PROVISION, RELEASE = "provision", "release"
_PLAIN = "/.:_-@+"


@dataclass(frozen=True, slots=True)
class PathNeed:
    """Bytes that wide levels move from one site to another; None if unknown."""

    src: str
    dst: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProvisioningStep:
    """Wide levels, for the two jobs around them.

    ``level``   the first of them, by which the jobs are known
    ``slots``, ``cores``, ``memory_mb``, ``bytes``, ``paths``  as ``needs_of`` has them
    ``lease_s``  how long pool and paths are asked for
    ``hooks``   the hooks' configuration file, "" to ask no broker
    ``pool``    the adon.yml that says how the pool grows, "" to leave it as it is
    """

    level: int
    slots: int
    cores: int = 1
    memory_mb: int = 0
    bytes: int = 0
    lease_s: int = 3600
    paths: tuple[PathNeed, ...] = ()
    hooks: str = ""
    pool: str = ""

    @property
    def before(self) -> str:
        """The id of the job that provisions."""
        return f"before_level_{self.level}"

    @property
    def after(self) -> str:
        """The id of the job that releases."""
        return f"after_level_{self.level}"


def dag_name(verb: str, job: str) -> str:
    """The name of a job of ours in the DAG: Pegasus puts the transformation's before the id."""
    return f"{verb}_{job}"


def to_arguments(verb: str, step: ProvisioningStep) -> list[str]:
    """``verb`` is PROVISION or RELEASE."""
    arguments = [verb]
    for field in fields(ProvisioningStep):
        value = getattr(step, field.name)
        if field.name == "paths":
            arguments += [f"--path={_path(need)}" for need in value]
        elif value != field.default:
            arguments.append(f"--{field.name}={_coded(str(value))}")
    return arguments


def from_arguments(words: Sequence[str]) -> tuple[str, ProvisioningStep]:
    """Verb and step out of a job's arguments. Raises InputError."""
    verb = words[0] if words else ""
    if verb not in (PROVISION, RELEASE):
        raise InputError(f"found {verb!r}, expected {PROVISION} or {RELEASE}")
    kinds = {f.name: str(f.type) for f in fields(ProvisioningStep) if f.name != "paths"}
    given: dict[str, Any] = {}
    paths: list[PathNeed] = []
    for word in words[1:]:
        name, _, value = word.removeprefix("--").partition("=")
        if name == "path":
            paths.append(_need(value))
        elif name not in kinds:
            raise InputError(f"found argument {word!r}, expected --{', --'.join(kinds)} or --path")
        elif kinds[name] != "int":
            given[name] = unquote(value)
        elif value.isdecimal() and len(value) < 20:
            given[name] = int(value)
        else:
            raise InputError(f"--{name}: found {value!r}, expected a whole number")
    missing = {"level", "slots"} - set(given)
    if missing:
        raise InputError(f"found no --{min(missing)}, expected it")
    return verb, ProvisioningStep(**given, paths=tuple(paths))


def _coded(text: str) -> str:
    return quote(text, safe=_PLAIN).replace("~", "%7E")  # a shell's word for home


def _path(need: PathNeed) -> str:
    size = "-" if need.size_bytes is None else str(need.size_bytes)
    return f"{_coded(need.src)},{_coded(need.dst)},{size}"


def _need(text: str) -> PathNeed:
    parts = text.split(",")
    if len(parts) != 3 or not (parts[2].isdecimal() or parts[2] == "-"):
        raise InputError(f"--path: found {text!r}, expected SOURCE,DESTINATION,BYTES")
    src, dst, size = parts
    return PathNeed(unquote(src), unquote(dst), None if size == "-" else int(size))
