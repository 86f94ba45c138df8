"""Who is told of what, and how: section ``monitoring.notices`` of adon.yml.

notices:
- on: [failed, stuck]            # default: all but removed
  users: [ada]                   # names or patterns with *; default: all
  workflows: ["soykb*"]          # names, patterns or UUIDs; default: all
  webhook: https://chat.example.edu/hooks/adon
  headers_file: hook.headers     # lines "Name: value", for tokens
- command: [mail, -s, ADON, ada@example.edu]
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from reprlib import repr as shown
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from network_provisioner.base.errors import InputError
from network_provisioner.base.schema import Schema, checked, matching, read

FINISHED, FAILED, REMOVED, STUCK, ANOMALY = "finished", "failed", "removed", "stuck", "anomaly"
LINK = "link"
KINDS = (FINISHED, FAILED, STUCK, ANOMALY, LINK, REMOVED)
_USUAL = frozenset({FINISHED, FAILED, STUCK, ANOMALY, LINK})
_HEADER = re.compile(r"([A-Za-z0-9-]{1,100}):[ \t]*([!-~][ -~]{0,4000})")
_Word = Annotated[str, matching(r"(?s)[^\0]+", "a text")]
# An empty list would mean anybody, and who wrote it meant nobody.
_Words = Annotated[tuple[_Word, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Target:
    """Who is notified, and how. ``users`` and ``workflows`` are patterns with ``*``, empty for all.
    Either ``webhook`` is a URL, with its headers in ``headers_file``, or ``command`` is a program
    with its arguments, which gets the text as standard input."""

    on: frozenset[str] = _USUAL
    users: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    webhook: str = ""
    headers_file: str = ""
    command: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Tells this channel from others, in whatever order they stand in the file."""
        channel = json.dumps([self.webhook, list(self.command)])
        return hashlib.sha256(channel.encode()).hexdigest()[:12]

    @property
    def shown(self) -> str:
        """What it is for people, without what may be secret in a URL."""
        if self.command:
            return self.command[0]
        parts = urlsplit(self.webhook)
        return f"{parts.scheme}://{parts.hostname}"


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. ``key`` identifies it among those of its ``kind``: each key is sent once. ``at``
    is the time of the event (Unix seconds)."""

    kind: str
    key: str
    text: str
    at: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """Its first line."""
        return self.text.partition("\n")[0][:200]


def wants(target: Target, notice: Notice) -> bool:
    """Whether ``target`` gets the notice. Anomalies and links belong to no user and no workflow:
    targets with ``users`` or ``workflows`` do not get them."""
    if notice.kind not in target.on:
        return False
    if notice.kind in (ANOMALY, LINK):
        return not target.users and not target.workflows
    names = [str(notice.details.get(key, "")) for key in ("name", "workflow")]
    return (not target.users or _among(str(notice.details.get("user", "")), target.users)) and (
        not target.workflows or any(_among(name, target.workflows) for name in names)
    )


def notice_id(target: Target, notice: Notice) -> str:
    """The id of the archive's record that ``target`` gets ``notice``."""
    return f"notice:{target.id}:{notice.kind}:{notice.key}"


def _among(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def targets_from_list(data: Sequence[object], folder: Path) -> list[Target]:
    """All targets; ``headers_file`` is relative to ``folder``. Raises InputError."""
    targets = check_targets(data, folder)
    for target in targets:
        headers_of(target)
    return targets


def check_targets(data: Sequence[object], folder: Path = Path()) -> list[Target]:
    """The same without looking into any file. Raises InputError."""
    return [_target(f"monitoring.notices.{n}", item, folder) for n, item in enumerate(data)]


def headers_of(target: Target) -> dict[str, str]:
    """What goes along with a web hook, read anew each time: tokens change. Raises InputError."""
    if not target.headers_file:
        return {}
    try:
        text = Path(target.headers_file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InputError(f"{target.headers_file}: cannot be read: {why}") from error
    headers = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _HEADER.fullmatch(line.rstrip())
        if match is None:  # the line may be a secret: it is not shown
            raise InputError(f"{target.headers_file}:{number}: expected 'Name: value'")
        headers[match[1]] = match[2]
    return headers


def _url(value: object, what: str) -> str:
    text = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not text.isascii() or any(c <= " " for c in text):
        raise InputError(f"{what}: found {shown(value)}, expected http:// or https://…")
    return text


class _Target(Schema):
    on: (
        Annotated[
            frozenset[Literal["finished", "failed", "stuck", "anomaly", "link", "removed"]],
            Field(min_length=1),
        ]
        | None
    ) = None
    users: _Words | None = None
    workflows: _Words | None = None
    webhook: Annotated[str, checked(_url)] | None = None
    headers_file: _Word | None = None
    command: _Words | None = None


def _target(where: str, item: object, folder: Path) -> Target:
    doc = read(_Target, item, where)
    if (doc.webhook is None) == (doc.command is None):
        raise InputError(f"{where}: expected one of webhook and command")
    if doc.headers_file and not doc.webhook:
        raise InputError(f"{where}: found headers_file, which is for a webhook")
    return Target(
        on=doc.on or _USUAL,
        users=doc.users or (),
        workflows=doc.workflows or (),
        webhook=doc.webhook or "",
        headers_file=str(folder / doc.headers_file) if doc.headers_file else "",
        command=doc.command or (),
    )
