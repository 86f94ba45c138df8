"""``/v1/decisions``, ``/v1/topology/layout`` and ``…/past``: what the dashboard shows and
nobody else has; ``/dashboard/``: the pages, and ``…/login``: with whom one may log in.

The pages say nothing about anybody, so anybody may have them; what they show they ask for with the
token that the user gives.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from adon.dashboard import decisions
from adon.dashboard.decisions import ShownDecision
from adon.dashboard.past import held_since
from monitors.archive.archive import Archive, Selection
from monitors.base.measurement import Measurement
from monitors.rules import Rules
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.listing import Only, newest_transits
from network_provisioner.api.redaction import Redaction
from network_provisioner.api.shapes import Answer, Body, Instant, Text
from network_provisioner.base.errors import BrokerError
from network_provisioner.base.model import Transit
from network_provisioner.broker import Broker
from network_provisioner.topology.graph import Topology

if TYPE_CHECKING:
    from network_provisioner.api.login import BrowserLogins

_MOST_LISTED = 1000
_LOOKS = 8  # pages of the archive that are looked at for what the caller may see
Kind = Literal["transit", "placement", "expansion", "pool"]

ROOT = "/dashboard/"
LOGIN = ROOT + "login"
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
_MEASURED: dict[str, tuple[str, Callable[[Measurement], ShownDecision]]] = {
    "placement": ("placement", decisions.of_placement),
    "expansion": ("expansion", decisions.of_expansion),
    "pool": ("pool_decision", decisions.of_pool_decision),
}


class DecisionAnswer(Answer):
    """One decision, whatever was decided. ``choices`` are what there was to choose from."""

    kind: Kind
    id: str
    at: float
    subject: str
    outcome: str
    why: str
    workflow: str
    job: str
    choices: list[dict[str, Any]]
    details: dict[str, Any]


class DecisionsAnswer(Answer):
    """The newest first."""

    decisions: list[DecisionAnswer]


class PlaceAnswer(Answer):
    """Where to draw a node: 0 to 1 from left to right, and from top to bottom by the same scale."""

    name: str
    x: float
    y: float


class HeldPathAnswer(Answer):
    """A path, and the bandwidth that was reserved on it."""

    path: list[str]
    bps: float


class HeldAnswer(Answer):
    """What a transit held, from Unix second ``from`` to ``until`` (0: it still does). What others
    hold has no names."""

    id: str
    src: str
    dst: str
    user: str
    workflow: str
    job: str
    begun: float = Field(alias="from")
    until: float
    parts: list[HeldPathAnswer]


class PastAnswer(Answer):
    """``since``: the Unix second from which on everything is known."""

    since: float
    held: list[HeldAnswer]


class LayoutAnswer(Answer):
    """Where to draw the nodes of the network; ``height`` is that of the drawing by its width."""

    height: float
    nodes: list[PlaceAnswer]


def router(
    broker: Broker,
    archive: Archive,
    rules: Rules,
    topology: Topology,
    clock: Callable[[], float] = time.time,
) -> APIRouter:
    """The routes. ``clock`` gives Unix seconds."""
    routes = APIRouter(tags=["dashboard"])
    redaction = Redaction(broker)

    @routes.get("/v1/decisions", response_model=DecisionsAnswer)
    def get_decisions(
        caller: Caller,
        kind: Annotated[Kind | None, Query(description="default: all kinds")] = None,
        workflow: Annotated[Text | None, Query(description="those of one workflow")] = None,
        since: Annotated[
            Instant | None, Query(description="decided at this Unix second or later")
        ] = None,
        until: Annotated[Instant | None, Query(description="decided by this Unix second")] = None,
        text: Annotated[
            Text | None, Query(description="part of what was decided, about what, or why")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 100,
    ) -> Response:
        """What was decided, newest first, each with its reason and what there was to choose from:
        paths of transits, sites of jobs, leases of slots, machines of the pool. A researcher sees
        its own paths and sites. For the next page, pass ``at`` of the last as ``until``: those of
        the same instant come again."""
        caller.need(May.READ)
        listed: list[ShownDecision] = []
        words = text.lower() if text else ""
        if kind in (None, "transit"):
            only = Only(since=since, users=caller.users, text=words or None, until=until)
            shown = partial(redaction.transits, caller)
            every = partial(broker.list, None, workflow)
            taken = shown(newest_transits(every, limit, only, shown))
            listed += map(decisions.of_transit, taken)
            listed += (
                change
                for transit in taken
                for change in decisions.of_changes(transit)
                if until is None or change.at <= until
            )
        for name, (metric, made) in _MEASURED.items():
            if kind in (None, name) and caller.may(May.SEE):
                wanted = Selection((metric,), workflow=workflow, since=since, until=until)
                measured = map(made, _seen(archive, wanted, rules, caller))
                listed += islice(
                    (decision for decision in measured if words in decision.search_text), limit
                )
        page = [asdict(decision) for decision in decisions.newest_decisions(listed, limit)]
        return answers.answer({"decisions": page})

    @routes.get("/v1/topology/past", response_model=PastAnswer)
    def get_past(
        caller: Caller,
        since: Annotated[Instant, Query(description="Unix seconds")],
    ) -> Response:
        """Who held which paths until now. A researcher is told whose its own are alone."""
        caller.need(May.READ)

        def listed(limit: int) -> list[Transit]:
            return broker.list(None, None, limit)

        return answers.answer(held_since(listed, since, clock(), caller.users))

    @cache
    def layout() -> dict[str, Any]:
        # NumPy takes a while to load, and only a browser asks for this.
        from adon.dashboard.layout import layout_of  # noqa: PLC0415

        given = {
            node.name: (node.x, node.y)
            for node in topology.nodes.values()
            if node.x is not None and node.y is not None
        }
        links = [(link.a, link.b) for link in topology.links]
        return layout_of(list(topology.nodes), links, given)

    @routes.get("/v1/topology/layout", response_model=LayoutAnswer)
    def get_layout(caller: Caller) -> Response:
        """Where to draw the nodes of the network: where the topology says, else neighbours near
        each other, always the same."""
        caller.need(May.READ)
        return answers.answer(layout())

    return routes


def _seen(
    archive: Archive, wanted: Selection, rules: Rules, caller: Principal
) -> Iterator[Measurement]:
    """What the caller may see, the newest first, of the newest that there are."""
    cursor = None
    for _ in range(_LOOKS):
        looked = archive.page(wanted, cursor, newest=True, limit=_MOST_LISTED)
        yield from (measurement for _, measurement in looked if rules.may_see(caller, measurement))
        if len(looked) < _MOST_LISTED:
            return
        cursor = looked[-1][0]


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent; ``tag`` changes with its content."""

    content: bytes
    kind: str
    tag: str


def read_files() -> dict[str, StaticFile]:
    """All files of the dashboard, by path."""
    static_files = {}
    for path, entry in web_files():
        content = entry.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        static_files[path] = StaticFile(content, _KINDS[path[path.rfind(".") :]], tag)
    return static_files


def web_files(
    folder: Traversable | None = None, below: str = ""
) -> Iterator[tuple[str, Traversable]]:
    """What the pages are made of, with its path."""
    for entry in (folder or files("adon.dashboard") / "web").iterdir():
        path = below + entry.name
        if entry.is_dir():
            yield from web_files(entry, f"{path}/")
        elif path[path.rfind(".") :] in _KINDS:
            yield path, entry


def pages_router() -> APIRouter:
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

    @routes.get(ROOT + "{name:path}")
    async def file(name: str, if_none_match: Annotated[str, Header()] = "") -> Response:
        """What the page is made of."""
        if name not in known:
            raise BrokerError(f"{ROOT}{name[:80]} is not a file of the dashboard", "not_found")
        return _answer(known[name], if_none_match)

    return routes


def _answer(static_file: StaticFile, held: str) -> Response:
    headers = {**_HEADERS, "ETag": static_file.tag}
    if static_file.tag in (tag.strip().removeprefix("W/") for tag in held.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(static_file.content, headers=headers, media_type=static_file.kind)


class LoginBody(Body):
    """What the provider sent the page back with, and what the page kept meanwhile."""

    issuer: Text
    code: str = Field(max_length=4000)
    verifier: str = Field(min_length=43, max_length=128)
    redirect_uri: Text


def login_router(logins: Callable[[], BrowserLogins | None]) -> APIRouter:
    """The routes, for callers without a token. ``logins`` are those of adon.yml as it is now."""
    routes = APIRouter(include_in_schema=False)

    @routes.get(LOGIN)
    def get_logins() -> Response:
        """Where a login begins, for each issuer."""
        known = logins()
        return answers.answer(known.offers() if known else [])

    @routes.post(LOGIN)
    def post_login(body: LoginBody) -> Response:
        """The token for a code."""
        known = logins()
        if known is None:
            raise BrokerError("found no security.issuers with a client", "unauthorized")
        answer = answers.answer({"token": known.token(**body.model_dump())})
        answer.headers["Cache-Control"] = "no-store"
        return answer

    return routes
