"""What a template would have chosen for transfers of the past: their paths as they were compared
then, judged anew. Pure.

What was free and what was measured is written down with each decision. Whether a path had failed
or was closed then is not, but a path that was left out although its template allows it was one of
those, and stays left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import PathScore, Transit, TransitRequest
from network_provisioner.selection.terms import below, settle
from network_provisioner.selection.transit import Metric, PathMetrics, choose
from network_provisioner.templates.template import METRICS, Template
from network_provisioner.topology.graph import Path, Topology


@dataclass(frozen=True, slots=True)
class Choice:
    """A path, "" for none, with its score Q and the rates that were asked for on it (b/s)."""

    path: tuple[str, ...]
    q: float | None
    min_bps: float
    max_bps: float


NO_CHOICE = Choice((), None, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a transfer got, what it would have got, and ``why``. ``differs``: another path, none, or
    one where it had none. ``requested_at`` is in Unix seconds."""

    id: str
    src: str
    dst: str
    template: str
    requested_at: float
    goodput_bps: float
    then: Choice
    now: Choice
    differs: bool
    why: str


def can_be_tried(transit: Transit, users: Collection[str] | None, template: str | None) -> bool:
    """Whether paths were compared for it, it is of one of ``users``, and had this template."""
    return (
        bool(transit.grant.candidates)
        and (users is None or transit.request.user in users)
        and template in (None, transit.request.template)
    )


def template_trial(
    transit: Transit, before: Template | None, template: Template, net: Topology
) -> Trial:
    """What ``template`` would have chosen for a transit that :func:`can_be_tried`; ``before`` is
    the one it had, None where that is forgotten."""
    request = transit.request
    scores = transit.grant.candidates
    held = next((c["q"] for c in scores if c["path"] == transit.grant.path), None)
    then = Choice(tuple(transit.grant.path), held, request.min_bps, request.max_bps)
    now, why = _chosen(transit, before, template, net)
    return Trial(
        request.id, request.src, request.dst, request.template, request.requested_at,
        transit.usage.goodput_bps, then, now, then.path != now.path, why,
    )  # fmt: skip


def _chosen(
    transit: Transit, before: Template | None, template: Template, net: Topology
) -> tuple[Choice, str]:
    size = transit.request.size_bytes
    if size is not None and (words := below(template, size)):
        return NO_CHOICE, words
    paths: list[tuple[Path, PathScore]] = []
    for score in transit.grant.candidates:
        try:
            paths.append((net.path(score["path"]), score))
        except InputError:
            continue  # of links that are no more
    if not paths:
        return NO_CHOICE, "none of its paths is in the topology any more"
    most_bps = max(path.capacity_bps for path, _ in paths)
    try:
        terms = settle(_requested(transit, before, most_bps), template, most_bps)
    except BrokerError as error:
        return NO_CHOICE, str(error)
    rates = terms.min_bps, terms.max_bps
    known = [(path, _metrics(path, score, transit, before)) for path, score in paths]
    choice = choose(known, template, *rates)
    if choice.chosen is None:
        return Choice((), None, *rates), choice.reason
    return Choice(choice.chosen.path.nodes, round(choice.chosen.q, 6), *rates), choice.reason


def _requested(transit: Transit, before: Template | None, most_bps: float) -> TransitRequest:
    """What its user asked for: rates that are those of its template were not."""
    original = transit.request
    request = TransitRequest(original.id, original.src, original.dst, priority=original.priority)
    try:
        usual = settle(request, before, most_bps) if before else None
    except BrokerError:
        usual = None
    own_min = usual is None or original.min_bps != usual.min_bps
    own_max = not original.uncapped and (usual is None or original.max_bps != usual.max_bps)
    return replace(
        request,
        min_bps=original.min_bps if own_min else None,
        max_bps=original.max_bps if own_max else None,
    )


def _metrics(
    path: Path, score: PathScore, transit: Transit, before: Template | None
) -> PathMetrics:
    """What was known of a path when it was compared."""
    measured: dict[str, Any] = {}
    for name in METRICS:
        part = score["scores"].get(name)
        if part is None or part["value"] is None or part["source"] == "reservations":
            continue
        measured[name] = Metric(part["value"], part["source"], part["age_s"] or 0.0)
    known = PathMetrics(
        score["free_bps"],
        share_bps=None if "throughput" in measured else score["expected_bps"],
        not_guaranteed=score.get("not_guaranteed", ""),
        **measured,
    )
    if not score["rejected"]:
        return known
    if before is None:
        return replace(known, blocked=score["rejected"])
    request = transit.request
    again = choose([(path, known)], before, request.min_bps, request.max_bps)
    return known if again.chosen is None else replace(known, blocked=score["rejected"])
