"""``/v1/transits``: paths with bandwidth, asked for, renewed and given back."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from network_provisioner.access import May, Principal
from network_provisioner.api import answers, shapes
from network_provisioner.api.callers import Caller
from network_provisioner.api.gate import audit
from network_provisioner.api.listing import Only, newest_transits
from network_provisioner.api.metrics import Metrics
from network_provisioner.api.redaction import Redaction, own_transit
from network_provisioner.api.shapes import (
    AskAnswer,
    AskBody,
    ChangeBody,
    FlowsBody,
    Instant,
    ProgressBody,
    ReleaseBody,
    RenewBody,
    ShiftBody,
    Text,
    TransitBody,
    flows_of,
)
from network_provisioner.api.workers import Workers
from network_provisioner.base.errors import BrokerError, InputError
from network_provisioner.base.model import (
    RequestAnswer,
    Service,
    Transit,
    TransitRequest,
    TransitState,
)
from network_provisioner.broker import Broker

_MOST_LISTED = 100_000


def router(broker: Broker, workers: Workers, metrics: Metrics) -> APIRouter:
    """The routes. Every one raises BrokerError for what it refuses."""
    routes = APIRouter(tags=["transits"])
    redaction = Redaction(broker)
    respond = partial(_told, redaction, workers)
    own = partial(_own, broker, workers)

    @routes.post(
        "/v1/transits",
        status_code=201,
        response_model=shapes.Transit,
        responses={200: {"model": shapes.Transit}},
    )
    async def request_transit(body: TransitBody, caller: Caller) -> Response:
        """Ask for a path. 201 for a new transit, 200 for one that the same id got before."""
        caller.need(May.REQUEST)
        transit_request = body.request(*caller.acting(body.user, body.project))
        transit, new = await workers.change(metrics.timed, broker.submit, transit_request)
        return await respond(caller, transit, 201 if new else 200)

    @routes.post("/v1/transits/ask", response_model=AskAnswer)
    async def ask(body: AskBody, caller: Caller) -> Response:
        """Ask for several paths at once, each answered for itself. An id whose transit has ended
        is asked for anew, under the first of ``ID.2``, ``ID.3``, … that has not; what was reserved
        in advance is begun."""
        caller.need(May.REQUEST)
        checked = [_asked(item, caller) for item in body.requests]
        good = [item for item in checked if isinstance(item, TransitRequest)]
        answered = iter(await workers.change(metrics.timed_batch, broker.ask, good))
        each = [item if isinstance(item, RequestAnswer) else next(answered) for item in checked]
        return answers.request_answers(await workers.read(redaction.answers, caller, each))

    @routes.get("/v1/transits", response_model=list[shapes.Transit])
    async def list_transits(
        caller: Caller,
        state: TransitState | None = None,
        workflow: Text | None = None,
        user: Text | None = None,
        project: Text | None = None,
        since: Annotated[
            Instant | None, Query(description="asked for at this Unix second or later")
        ] = None,
        site: Annotated[Text | None, Query(description="from or to this site")] = None,
        failed: Annotated[
            bool | None,
            Query(description="those that failed, expired or had no success; false: the others"),
        ] = None,
        text: Annotated[
            Text | None,
            Query(description="part of id, user, project, workflow, job, outcome or reason"),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 10_000,
        before: Annotated[
            Text, Query(description="only those asked for before the transit with this id")
        ] = "",
        ended: Annotated[bool, Query(description="also those that have ended")] = True,
    ) -> Response:
        """The newest transits that are all of this, oldest first; a researcher's own. For the
        page before it, pass the id of the first as ``before``; a page of fewer than ``limit`` is
        the last."""
        caller.need(May.READ)
        only = Only(
            user, project, since, caller.users, site, text.lower() if text else None, failed
        )
        if before:
            await own(caller, May.READ, before)

        def listed() -> list[Transit]:
            every = partial(broker.list, state, workflow, ended=ended)
            shown = partial(redaction.transits, caller)
            return shown(newest_transits(every, limit, only, shown, before))

        return answers.transits(await workers.read(listed))

    # ":path" because an id may contain a slash.
    @routes.post("/v1/transits/{transit_id:path}/release", response_model=shapes.Transit)
    async def release_transit(
        transit_id: str, caller: Caller, body: ReleaseBody | None = None
    ) -> Response:
        """Give a path back. Idempotent."""
        user = (await own(caller, May.RELEASE, transit_id, "release")).request.user
        report = (body or ReleaseBody()).model_dump()
        n_bytes = report.pop("bytes")
        # What an engineer says of others' transfers is what their files say.
        vouched = caller.may(May.MANAGE) and caller.name in ("", user)
        return await respond(
            caller,
            await workers.change(broker.release, transit_id, n_bytes, vouched=vouched, **report),
        )

    @routes.post("/v1/transits/{transit_id:path}/renew", response_model=shapes.Transit)
    async def renew_transit(transit_id: str, body: RenewBody, caller: Caller) -> Response:
        """Make a lease last longer."""
        await own(caller, May.REQUEST, transit_id)
        return await respond(caller, await workers.change(broker.renew, transit_id, body.lease_s))

    @routes.post("/v1/transits/{transit_id:path}/shift", response_model=shapes.Transit)
    async def shift_transit(transit_id: str, body: ShiftBody, caller: Caller) -> Response:
        """Move what was reserved in advance to other times, all or nothing."""
        await own(caller, May.REQUEST, transit_id)
        return await respond(
            caller,
            await workers.change(broker.shift, transit_id, body.start, body.end, body.size_bytes),
        )

    @routes.put("/v1/transits/{transit_id:path}/flows", response_model=shapes.Transit)
    @routes.post("/v1/transits/{transit_id:path}/flows", response_model=shapes.Transit)
    async def report_flows(transit_id: str, body: FlowsBody, caller: Caller) -> Response:
        """Say which packets a transit carries, once the application knows its ports."""
        await own(caller, May.REQUEST, transit_id)
        return await respond(
            caller, await workers.change(broker.report_flows, transit_id, flows_of(body.flows))
        )

    @routes.post("/v1/transits/{transit_id:path}/progress", response_model=shapes.Transit)
    async def report_progress(transit_id: str, body: ProgressBody, caller: Caller) -> Response:
        """Say what a transfer has moved until now."""
        await own(caller, May.REQUEST, transit_id)
        return await respond(
            caller, await workers.change(broker.report_progress, transit_id, body.bytes)
        )

    @routes.patch("/v1/transits/{transit_id:path}", response_model=shapes.Transit)
    async def change_transit(transit_id: str, body: ChangeBody, caller: Caller) -> Response:
        """Raise or lower minimum and ceiling, all or nothing, without a gap."""
        await own(caller, May.REQUEST, transit_id, "change")
        rates = body.min_bps, body.max_bps
        return await respond(caller, await workers.change(broker.change, transit_id, *rates))

    @routes.get("/v1/transits/{transit_id:path}", response_model=shapes.Transit)
    async def get_transit(transit_id: str, caller: Caller) -> Response:
        """One transit, with the candidates and scores behind its path."""
        return await respond(caller, await own(caller, May.READ, transit_id))

    return routes


async def _own(
    broker: Broker,
    workers: Workers,
    caller: Principal,
    may: May,
    transit_id: str,
    audited: str = "",
) -> Transit:
    """The transit. What is to be ``audited`` is logged where it is done to another user's."""
    caller.need(may)
    transit = await own_transit(broker, workers, caller, transit_id)
    user = transit.request.user
    if audited and caller.name not in ("", user):
        audit.info("%s %s of %s by %s (%s)", audited, transit_id, user, caller.name, caller.role)
    return transit


async def _told(
    redaction: Redaction, workers: Workers, caller: Principal, transit: Transit, status: int = 200
) -> Response:
    if caller.users is not None:
        (transit,) = await workers.read(redaction.transits, caller, [transit])
    return answers.transit(transit, status)


def _asked(body: TransitBody, caller: Principal) -> TransitRequest | RequestAnswer:
    """A request as the broker takes it, or why it is none."""
    try:
        return body.request(*caller.acting(body.user, body.project))
    except BrokerError as error:
        return RequestAnswer(None, Service(), error)
    except InputError as error:
        return RequestAnswer(None, Service(), BrokerError(str(error), "bad_request"))
