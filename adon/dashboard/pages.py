"""``/dashboard/``: the pages themselves. They say nothing about anybody, so anybody may have them;
what they show they ask for with the token that the user gives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import RedirectResponse

from network_provisioner.base.errors import BrokerError

ROOT = "/dashboard/"
PATHS = (ROOT.rstrip("/"),)
"""What begins so needs no token."""

# What a page may load and do: files and answers of this very broker, no inline script or style,
# nobody's frame, no form that goes anywhere. Scripts never write HTML: the browser sees to it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for each time, sent only where it is another
}
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent; ``tag`` changes with its content."""

    content: bytes
    kind: str
    tag: str


def read_files() -> dict[str, StaticFile]:
    """All files of the dashboard, by name."""
    found = {}
    for entry in files("adon.dashboard").iterdir():
        kind = _KINDS.get(entry.name[entry.name.rfind(".") :])
        if kind and entry.is_file():
            content = entry.read_bytes()
            found[entry.name] = StaticFile(
                content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            )
    return found


def router() -> APIRouter:
    """The pages. They are for people, so the description of the service leaves them out."""
    routes = APIRouter(include_in_schema=False)
    known = read_files()

    @routes.get("/")
    @routes.get(ROOT.rstrip("/"))
    async def root() -> Response:
        """To the dashboard."""
        return RedirectResponse(ROOT, 307)

    @routes.get(ROOT)
    async def index(if_none_match: Annotated[str, Header()] = "") -> Response:
        """The one page."""
        return _answer(known["index.html"], if_none_match)

    @routes.get(ROOT + "{name}")
    async def file(name: str, if_none_match: Annotated[str, Header()] = "") -> Response:
        """What the page is made of."""
        if name not in known:
            raise BrokerError(f"{ROOT}{name[:80]} is no file of the dashboard", "not_found")
        return _answer(known[name], if_none_match)

    return routes


def _answer(found: StaticFile, held: str) -> Response:
    headers = {**_HEADERS, "ETag": found.tag}
    if found.tag in (tag.strip().removeprefix("W/") for tag in held.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.kind)
