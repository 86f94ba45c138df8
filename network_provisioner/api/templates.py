"""``/v1/templates``: what applications need, saved, learned, found again and tried on the past."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field, JsonValue

from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.listing import last
from network_provisioner.api.redaction import Redaction, own_transit
from network_provisioner.api.shapes import Answer, Body, Text
from network_provisioner.api.workers import Workers
from network_provisioner.base.schema import INTEGRAL
from network_provisioner.broker import Broker
from network_provisioner.selection.trial import can_be_tried, template_trial
from network_provisioner.templates.data import (
    template_from_dict,
    template_to_dict,
    wanted_from_dict,
)
from network_provisioner.templates.entry import TemplateEntry, unknown
from network_provisioner.templates.lookup import template_of
from network_provisioner.templates.registry import TemplateRegistry

Version = Annotated[int, Field(ge=1, le=2**31 - 1), INTEGRAL]
Quantity = Annotated[str, Field(max_length=100)] | float | int
MOST_TRIED = 100
Save = Callable[..., tuple[TemplateEntry, Sequence[str]]]


class TemplateBody(Body):
    """The figures of a template as in adon.yml (docs/templates.md); quantities carry units, or are
    bits per second, seconds and bytes."""

    version: JsonValue = Field(default=None, description="ignored: the store counts")
    applications: list[Text] | None = None
    qspec: dict[str, JsonValue] = Field(examples=[{"min_throughput": "25 Mb/s"}])
    rspec: dict[str, JsonValue] | None = Field(
        default=None,
        description="default: all that the path has",
        examples=[{"max_throughput": "150 Mb/s"}],
    )
    priority: Annotated[int, INTEGRAL] | None = None
    weights: dict[str, float] | None = None
    tables: dict[str, list[list[Quantity]]] | None = None
    patience: Quantity | None = None
    break_even: Quantity | None = Field(
        default=None, description="computed from what circuits take to set up where it is not given"
    )
    when_queued: Text | None = Field(default=None, description="wait, defer or best_effort")
    small: Text | None = Field(default=None, description="best_effort or share")
    triggers: dict[str, dict[str, Quantity | None]] | None = Field(
        default=None, examples=[{"loss": {"limit": 0.02, "for": "10 s", "action": "move"}}]
    )
    better_path: Text | None = Field(default=None, description="stay or move")
    io_aware: bool | None = None
    relay: Text | None = Field(default=None, description="never, auto or always")
    relay_tls: bool | None = None
    max_age: Quantity | None = None
    paths: Annotated[int, INTEGRAL] | None = None
    tuning: dict[str, Quantity] | None = None
    peak: Quantity | None = None


class FromBody(Body):
    """The transit whose success is to be saved."""

    transit: Text


class RestoreBody(Body):
    """The version that shall stand again."""

    version: Version


class MatchBody(Body):
    """What is asked for."""

    application: Text = ""
    min_throughput: Quantity | None = None
    max_throughput: Quantity | None = None
    max_delay: Quantity | None = None
    max_jitter: Quantity | None = None
    max_loss: float | None = None


class TemplateAnswer(Answer):
    """A version of a template. ``reached``: scores by bandwidth (bit/s) that transfers taught;
    ``lowered`` says what the site's policy lowered."""

    name: str
    version: int
    origin: str
    by: str
    at: float
    template: dict[str, Any]
    source: dict[str, Any]
    learned: dict[str, Any]
    reached: list[list[float]]
    lowered: list[str]


class VersionAnswer(Answer):
    """A version that is kept; ``entry`` is null for one that deleted the template."""

    version: int
    at: float
    entry: TemplateAnswer | None


class ChoiceAnswer(Answer):
    """A path, empty for none, its score, and the rates that were asked for on it (bit/s)."""

    path: list[str]
    q: float | None
    min_bps: float
    max_bps: float


class TrialAnswer(Answer):
    """What a transfer got, what it would have got, and why."""

    id: str
    src: str
    dst: str
    template: str
    requested_at: float
    goodput_bps: float
    then: ChoiceAnswer
    now: ChoiceAnswer
    differs: bool
    why: str


class MatchAnswer(Answer):
    """``how`` is name, pattern, nearest or empty; ``passed_over`` says why others do not fit."""

    entry: TemplateAnswer | None
    how: str
    reason: str
    passed_over: dict[str, str]


def router(registry: TemplateRegistry, broker: Broker, workers: Workers) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["templates"])

    def shown(caller: Principal, entry: TemplateEntry) -> dict[str, Any]:
        return _view(caller, entry, registry.taught(entry.template.name, caller.name))

    async def saved(caller: Principal, save: Save, *what: object) -> Response:
        def answer() -> dict[str, Any]:
            entry, lowered = save(*what, caller)
            return {**shown(caller, entry), "lowered": list(lowered)}

        return answers.answer(await workers.change(answer))

    @routes.get("/v1/templates", response_model=list[TemplateAnswer])
    async def list_templates(caller: Caller) -> Response:
        """All templates in their newest version."""
        caller.need(May.READ)

        def listed() -> list[dict[str, Any]]:
            return [
                shown(caller, entry) for name in registry.names() if (entry := registry.entry(name))
            ]

        return answers.answer(await workers.read(listed))

    @routes.post("/v1/templates/match", response_model=MatchAnswer)
    async def match_template(body: MatchBody, caller: Caller) -> Response:
        """The template for an application and what it asks for, and why."""
        caller.need(May.READ)
        wanted = wanted_from_dict(body.model_dump(exclude={"application"}))

        def matched() -> dict[str, Any]:
            match = registry.explain(body.application, wanted, caller.name or None)
            entry = registry.entry(match.template.name) if match.template else None
            return {
                "entry": shown(caller, entry) if entry else None,
                "how": match.how,
                "reason": match.reason,
                "passed_over": dict(match.passed_over),
            }

        return answers.answer(await workers.read(matched))

    @routes.get("/v1/templates/{name}", response_model=TemplateAnswer)
    async def get_template(
        name: str, caller: Caller, version: Annotated[Version | None, Query()] = None
    ) -> Response:
        """A template, the newest version or an older one."""
        caller.need(May.READ)

        def known() -> dict[str, Any]:
            if entry := registry.entry(name, version):
                return shown(caller, entry)
            raise unknown(name, registry.names(), version)

        return answers.answer(await workers.read(known))

    @routes.get("/v1/templates/{name}/history", response_model=list[VersionAnswer])
    async def get_history(name: str, caller: Caller) -> Response:
        """Every version that is kept, oldest first."""
        caller.need(May.READ)

        def kept() -> list[dict[str, Any]]:
            if not (versions := registry.history(name)):
                raise unknown(name, registry.names())
            return [
                {
                    "version": doc.version,
                    "at": doc.at,
                    "entry": _view(caller, entry, {}) if entry else None,
                }
                for doc, entry in versions
            ]

        return answers.answer(await workers.read(kept))

    @routes.put("/v1/templates/{name}", response_model=TemplateAnswer)
    async def save_template(name: str, body: TemplateBody, caller: Caller) -> Response:
        """Save a new version. The same figures as those that stand there make none."""
        caller.need(May.SAVE_TEMPLATES)
        given = body.model_dump(exclude_none=True, exclude={"version"})
        return await saved(caller, registry.save, name, given)

    @routes.post("/v1/templates/{name}/from", response_model=TemplateAnswer)
    async def save_from_transit(name: str, body: FromBody, caller: Caller) -> Response:
        """Save what worked for a transfer: its rates, its tuning, its goodput as the peak."""
        caller.need(May.SAVE_TEMPLATES)
        transit = await own_transit(broker, workers, caller, body.transit)
        return await saved(caller, registry.save_from, name, transit)

    @routes.post("/v1/templates/{name}/restore", response_model=TemplateAnswer)
    async def restore_template(name: str, body: RestoreBody, caller: Caller) -> Response:
        """Save an old version anew."""
        caller.need(May.SAVE_TEMPLATES)
        return await saved(caller, registry.restore, name, body.version)

    @routes.post("/v1/templates/{name}/reset", response_model=TemplateAnswer)
    async def reset_template(name: str, caller: Caller) -> Response:
        """Forget what transfers taught: the peak and its tuning; a researcher's own alone."""
        caller.need(May.SAVE_TEMPLATES)
        return answers.answer(shown(caller, await workers.change(registry.reset, name, caller)))

    @routes.delete("/v1/templates/{name}", response_model=TemplateAnswer | None)
    async def delete_template(name: str, caller: Caller) -> Response:
        """Forget what was saved under a name; the answer is the configured template that stands
        there again, or null."""
        caller.need(May.SAVE_TEMPLATES)
        left = await workers.change(registry.delete, name, caller)
        return answers.answer(left and shown(caller, left))

    return routes


def trial_router(registry: TemplateRegistry, broker: Broker, workers: Workers) -> APIRouter:
    """The route of ``try``."""
    routes = APIRouter(tags=["templates"])
    redaction = Redaction(broker)

    @routes.post("/v1/templates/{name}/try", response_model=list[TrialAnswer])
    async def try_template(
        name: str,
        caller: Caller,
        body: TemplateBody | None = None,
        limit: Annotated[int, Query(ge=1, le=MOST_TRIED)] = 10,
        of: Annotated[Text | None, Query(description="those that had this template alone")] = None,
    ) -> Response:
        """What a template, as it is or with other figures, would have chosen for the caller's last
        transfers, newest first: their paths as they were compared then, judged anew. Nothing is
        saved or reserved."""
        caller.need(May.READ)
        template = registry.get(name)
        if body is not None:
            given = body.model_dump(exclude_none=True, exclude={"version"})
            template = template_from_dict(name, given)
        if template is None:
            raise unknown(name, registry.names(), None)

        def trials() -> list[dict[str, Any]]:
            matching = partial(can_be_tried, users=caller.users, template=of)
            transits = redaction.transits(
                caller, last(partial(broker.list, None, None), limit, matching)
            )
            known = [(transit, template_of(transit, registry)) for transit in transits]
            return [asdict(template_trial(*pair, template, broker.topology)) for pair in known]

        return answers.answer(await workers.read(trials))

    return routes


def _view(caller: Principal, entry: TemplateEntry, learned: Mapping[str, Any]) -> dict[str, Any]:
    """A researcher is told the ids of its own transits alone."""
    source, learned = dict(entry.source), dict(learned)
    if caller.users is not None:
        if entry.by != caller.name:
            source.pop("transit", None)
        if learned == entry.learned:  # what all are taught
            learned.pop("transit", None)
    return {
        "name": entry.template.name,
        "version": entry.template.version,
        "origin": entry.origin,
        "by": entry.by,
        "at": entry.at,
        "template": template_to_dict(entry.template) | {"peak": learned.get("peak", 0.0)},
        "source": source,
        "learned": learned,
        "reached": [list(point) for point in entry.template.reached],
        "lowered": list(entry.capped),
    }
