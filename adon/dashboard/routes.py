"""``/v1/decisions`` and ``/v1/topology/layout``: what the dashboard shows and nobody else has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from adon.dashboard import decisions
from adon.dashboard.decisions import ShownDecision
from monitors.archive.archive import Archive, Selection
from monitors.base.measurement import Measurement
from monitors.rules import Rules
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.discreet import Discretion
from network_provisioner.api.listing import Only, newest
from network_provisioner.api.shapes import MOST, Answer, Text
from network_provisioner.broker import Broker
from network_provisioner.topology.graph import Topology

_MOST_LISTED = 1000
_LOOKS = 8  # pages of the archive that are looked at for what the caller may see
Kind = Literal["transit", "placement", "expansion", "pool"]


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


class LayoutAnswer(Answer):
    """Where to draw the nodes of the network; ``height`` is that of the drawing by its width."""

    height: float
    nodes: list[PlaceAnswer]


def router(broker: Broker, archive: Archive, rules: Rules, topology: Topology) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["dashboard"])
    discretion = Discretion(broker)

    @routes.get("/v1/decisions", response_model=DecisionsAnswer)
    def get_decisions(
        caller: Caller,
        kind: Annotated[Kind | None, Query(description="default: all kinds")] = None,
        workflow: Annotated[Text | None, Query(description="those of one workflow")] = None,
        since: Annotated[
            float | None, Query(ge=0, le=MOST, description="decided at this Unix second or later")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 100,
    ) -> Response:
        """What was decided, newest first, each with its reason and what there was to choose from:
        paths of transits, sites of jobs, leases of slots, machines of the pool. A researcher sees
        its own paths and sites."""
        caller.need(May.READ)
        found: list[ShownDecision] = []
        if kind in (None, "transit"):
            only = Only(since=since, users=caller.users)
            taken = newest(broker.list, None, workflow, limit, only)
            taken = discretion.transits(caller, taken)
            found += map(decisions.of_transit, taken)
            found += (change for one in taken for change in decisions.of_changes(one))
        for name, (metric, made) in _MEASURED.items():
            if kind in (None, name) and caller.may(May.SEE):
                wanted = Selection((metric,), workflow=workflow, since=since)
                found += map(made, islice(_seen(archive, wanted, rules, caller), limit))
        shown = [asdict(decision) for decision in decisions.newest(found, limit)]
        return answers.answer({"decisions": shown})

    @cache
    def layout() -> dict[str, Any]:
        # NumPy takes a while to load, and only a browser asks for this.
        from adon.dashboard.layout import layout_of  # noqa: PLC0415

        return layout_of(list(topology.nodes), [(link.a, link.b) for link in topology.links])

    @routes.get("/v1/topology/layout", response_model=LayoutAnswer)
    def get_layout(caller: Caller) -> Response:
        """Where to draw the nodes of the network: neighbours near each other, always the same."""
        caller.need(May.READ)
        return answers.answer(layout())

    return routes


_MEASURED: dict[str, tuple[str, Callable[[Measurement], ShownDecision]]] = {
    "placement": ("placement", decisions.of_placement),
    "expansion": ("expansion", decisions.of_expansion),
    "pool": ("pool_decision", decisions.of_pool_decision),
}


def _seen(
    archive: Archive, wanted: Selection, rules: Rules, caller: Principal
) -> Iterator[Measurement]:
    """What the caller may see, the newest first, of the newest that there are."""
    cursor = None
    for _ in range(_LOOKS):
        looked = archive.page(wanted, cursor, newest=True, limit=_MOST_LISTED)
        yield from (found for _, found in looked if rules.may_see(caller, found))
        if len(looked) < _MOST_LISTED:
            return
        cursor = looked[-1][0]
