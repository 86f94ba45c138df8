"""Several requests answered together: each for itself, none in another's way.

unknown id ─► a new transit          live or queued ─► as it is
ended ─► its next round              reserved in advance ─► begun
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from network_provisioner import advance
from network_provisioner.engine import Engine
from network_provisioner.errors import BrokerError
from network_provisioner.model import Service, Transit, TransitRequest, TransitState
from network_provisioner.rounds import latest
from network_provisioner.store import StoreError
from network_provisioner.template import Template, Tuning
from network_provisioner.terms import (
    Templates,
    Tuned,
    check,
    fingerprint,
    template_for,
    template_of,
    unwanted,
)

MOST = 256  # requests at once: a job moves files between far fewer pairs of sites


@dataclass(frozen=True, slots=True)
class Answer:
    """A transit or why there is none, and how its template wants it served. ``new``: it was made
    for this request."""

    transit: Transit | None
    service: Service
    error: BrokerError | None = None
    new: bool = False

    def copy(self) -> Answer:
        """With a transit that does not change any more."""
        return self if self.transit is None else replace(self, transit=self.transit.copy())


def ask(engine: Engine, requests: Sequence[TransitRequest], now: float) -> list[Answer]:
    """Answer every request, in order, within one turn of ``engine``; the switches are not told yet.

    The transits are those of the engine: copy them once they are installed. Nothing is raised for
    what one of them lacks.
    """
    return [_answer(engine, request, now) for request in requests]


def check_same(transit: Transit, request: TransitRequest) -> None:
    """Raises BrokerError ``conflict`` for a request on other terms than those of its id before."""
    agreed = transit.asked in ("", fingerprint(request))  # "": from before fingerprints were kept
    if agreed and _whose(transit) == _whose(request):
        return
    raise BrokerError(
        f"id {request.id!r} is taken by a transit from {transit.src!r} to {transit.dst!r} that was "
        "asked for on other terms, expected an id of its own for each request",
        "conflict",
    )


def _answer(engine: Engine, request: TransitRequest, now: float) -> Answer:
    transit, new, error = None, False, None
    try:
        check(request)
        transit, new = _transit(engine, request, now)
    except BrokerError as refusal:
        error = refusal
    except StoreError as problem:
        error = BrokerError(str(problem), "store_unavailable")
    return Answer(transit, _service(engine.templates, request, transit), error, new)


def _transit(engine: Engine, request: TransitRequest, now: float) -> tuple[Transit, bool]:
    last: list[Transit] = []

    def find(name: str) -> Transit | None:
        found = engine.life.find(name)
        if found is not None:
            last[:] = [found]
        return found

    name, known = latest(request.id, find)
    if known is None:
        if last and _told(last[0], request):
            return last[0], False
        asked = replace(request, id=name)
        check(asked)  # a round makes an id longer
        return engine.dispatch.create(asked, now), True
    if request.best_effort:
        if _whose(known) != _whose(request):
            check_same(known, request)
        return known, False
    if advance.is_claim(known, request):
        return advance.claim(engine, known, replace(request, id=name), now), False
    check_same(known, request)
    if request.size_bytes is not None and request.size_bytes != known.size_bytes:
        known.size_bytes = request.size_bytes
        engine.keeper.save([known])
    return known, False


def _told(transit: Transit, request: TransitRequest) -> bool:
    """Whether this was recorded before: who says why it goes without a path may say so twice."""
    return (
        bool(request.best_effort)
        and transit.state is TransitState.BEST_EFFORT
        and transit.asked == fingerprint(request)
        and transit.reason.startswith(unwanted(request))
    )


def _whose(one: Transit | TransitRequest) -> tuple[str, str, str]:
    return one.src, one.dst, one.user


def _service(templates: Templates, request: TransitRequest, transit: Transit | None) -> Service:
    try:
        template = None if transit is None else template_of(transit, templates)
        template = template or template_for(request, templates)
    except BrokerError:
        return Service()
    taught = templates.tuning_of(template.name) if isinstance(templates, Tuned) else None
    return service_of(template, taught)


def service_of(template: Template, taught: Tuning | None = None) -> Service:
    """How a template wants its transfers served. Tuned as it says; where it says nothing of its
    own, as the best transfer was that it ``taught``; else not at all."""
    usual = Tuning()

    def figure(name: str) -> int:
        own, plain = getattr(template.tuning, name), getattr(usual, name)
        learned = plain if taught is None else getattr(taught, name)
        value = own if own != plain else learned
        return 0 if value == plain else int(value)

    return Service(
        template=template.name,
        version=template.version,
        patience_s=template.patience_s,
        when_queued=template.when_queued,
        streams=figure("streams"),
        buffer_bytes=figure("buffer_bytes"),
        threads=figure("threads"),
    )
