"""``POST /v1/templates/NAME/try``: what a template would have chosen for transfers of the past."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from network_provisioner.access import May
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.listing import last
from network_provisioner.api.redaction import Redaction
from network_provisioner.api.shapes import Answer, Text
from network_provisioner.api.templates import TemplateBody
from network_provisioner.api.workers import Workers
from network_provisioner.broker import Broker
from network_provisioner.selection.trial import can_be_tried, template_trial
from network_provisioner.templates.data import template_from_dict
from network_provisioner.templates.entry import unknown
from network_provisioner.templates.lookup import template_of
from network_provisioner.templates.registry import TemplateRegistry

MOST_TRIED = 100


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


def router(book: TemplateRegistry, broker: Broker, workers: Workers) -> APIRouter:
    """The route."""
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
        template = book.get(name)
        if body is not None:
            given = body.model_dump(exclude_none=True, exclude={"version"})
            template = template_from_dict(name, given)
        if template is None:
            raise unknown(name, book.names(), None)

        def trials() -> list[dict[str, Any]]:
            matching = partial(can_be_tried, users=caller.users, template=of)
            transits = redaction.transits(caller, last(broker.list, limit, matching))
            known = [(transit, template_of(transit, book)) for transit in transits]
            return [asdict(template_trial(*pair, template, broker.topology)) for pair in known]

        return answers.answer(await workers.read(trials))

    return routes
