"""``/v1/estimates``, ``/v1/measurements/rollups`` and ``/v1/measurements/export``: what the archive
says on the whole."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from monitors.api.archive import Instant, Name, Names
from monitors.api.streams import AnswerLimit, Stream
from monitors.archive import knowledge
from monitors.archive.archive import Archive, Estimate, Measurement, Selection
from monitors.archive.estimate_sources import UserArchive
from monitors.archive.export import check_format, csv_parts, write_parquet
from monitors.archive.retention.horizons import DAY_S, HOUR_S
from monitors.archive.retention.rollups import as_dict, roll_ups
from monitors.rules import Rules
from network_provisioner.access import May, Principal
from network_provisioner.api import answers
from network_provisioner.api.callers import Caller
from network_provisioner.api.shapes import MOST, Answer, Body
from network_provisioner.base.errors import BrokerError, InputError

MOST_BUCKETS = 2000
MOST_EXPORTS = 4  # a large one takes a thread for minutes, and Parquet room on the disk
_WIDTHS = {"hour": HOUR_S, "day": DAY_S}
_USUAL_S = {"hour": 7 * DAY_S, "day": 90 * DAY_S}
_PIECE = 1 << 16
Metric = Annotated[str, Query(max_length=200)]
Subject = Annotated[str, Query(max_length=1000)]
Site = Annotated[str, Query(max_length=200)]


class EstimateAnswer(Answer):
    """What is known of a subject: ``spread`` is comparable to a standard deviation, ``count`` how
    many measurements it rests on, ``at`` when the newest was made and ``age_s`` how long ago that
    was, ``metric`` what was measured."""

    metric: str
    subject: str
    value: float
    spread: float
    unit: str
    count: int
    at: float
    age_s: float
    source: str


class EstimatesBody(Body):
    """What is to be decided on: sites, with all paths between them, and transformations."""

    sites: Annotated[list[str], Field(max_length=1000)] = Field(examples=[["mu", "tacc"]])
    transformations: Annotated[list[str], Field(max_length=10_000)] = Field(
        default_factory=list, examples=[["soykb::bwa_mem:1.0"]]
    )


class KnownAnswer(EstimateAnswer):
    """An estimate of what a decision reads; ``note`` says where something else was measured."""

    note: str


class EstimatesAnswer(Answer):
    """All that is known and may be seen."""

    estimates: list[KnownAnswer]


class RollUpAnswer(Answer):
    """What an hour or a day had, from ``start`` on, ``width_s`` long; ``quantiles`` within 1 %."""

    metric: str
    subject: str
    unit: str
    start: float
    width_s: int
    count: int
    min: float
    mean: float
    median: float
    max: float
    quantiles: dict[str, float]


class RollUpsAnswer(Answer):
    """Oldest first."""

    rollups: list[RollUpAnswer]


def router(archive: Archive, rules: Rules, clock: Callable[[], float]) -> APIRouter:
    """The routes. ``clock`` gives Unix seconds. Every one raises BrokerError for what it refuses,
    ArchiveError where the archive cannot be read just now."""
    routes = APIRouter(tags=["measurements"])
    need = partial(_need_see, rules)

    def answered(metric: str, subject: str, estimate: Estimate | None, now: float) -> Response:
        if estimate is None:
            raise BrokerError(f"nothing is known of {metric} of {subject}", "unknown_measurement")
        return answers.answer(estimate.as_dict(now))

    @routes.get("/v1/estimates", response_model=EstimateAnswer)
    def estimate(
        caller: Caller,
        metric: Metric,
        subject: Subject,
        now: Instant = None,
        max_age_s: Annotated[float | None, Query(gt=0, le=MOST)] = None,
    ) -> Response:
        """What is known of one metric of one subject at ``now`` (default: now): nothing that was
        measured later is used, nor what is older than ``max_age_s``."""
        need(caller, metric, subject)
        at = clock() if now is None else now
        return answered(metric, subject, archive.estimate(metric, subject, at, max_age_s), at)

    @routes.get("/v1/estimates/gamma_a", response_model=EstimateAnswer)
    def gamma_a(caller: Caller, src: Site, dst: Site, now: Instant = None) -> Response:
        """Γ_a: what a transfer between two sites gets, of transfers or, where none went for a day,
        of newer probes; ``metric`` says which."""
        metric, subject = "throughput", f"{src}>{dst}"
        need(caller, metric, subject)
        at = clock() if now is None else now
        known = knowledge.gamma_a(_source_for(archive, caller), src, dst, at)
        return answered(metric, subject, known, at)

    @routes.get("/v1/estimates/gamma_c", response_model=EstimateAnswer)
    def gamma_c(
        caller: Caller, transformation: Subject, site: Site, now: Instant = None
    ) -> Response:
        """Γ_c: how fast a transformation runs at a site, byte/s, or, where sizes were not known,
        the seconds a job of it takes; ``metric`` says which."""
        metric, subject = "compute_rate", f"{transformation}@{site}"
        need(caller, metric, subject)
        at = clock() if now is None else now
        return answered(metric, subject, knowledge.gamma_c(archive, transformation, site, at), at)

    @routes.get("/v1/estimates/t_q", response_model=EstimateAnswer)
    def queue_wait(caller: Caller, site: Site, now: Instant = None) -> Response:
        """T_q: how long a job waits at a site."""
        need(caller, "queue_wait", site)
        at = clock() if now is None else now
        return answered("queue_wait", site, knowledge.queue_wait(archive, site, at), at)

    @routes.post("/v1/estimates", response_model=EstimatesAnswer)
    def estimates(body: EstimatesBody, caller: Caller) -> Response:
        """All that site selection reads of these sites, the paths between them and these
        transformations, as far as the caller may see it: what
        :mod:`monitors.archive.estimate_sources` asks once for a whole workflow."""
        caller.need(May.SEE)
        now, may_see = clock(), partial(rules.may_see_series, caller)
        sites, transformations = frozenset(body.sites), frozenset(body.transformations)
        source = _source_for(archive, caller)
        known = knowledge.known_estimates(source, sites, transformations, now, may_see)
        return answers.answer(
            {
                "estimates": [
                    {
                        **estimate.as_dict(now),
                        "metric": metric,
                        "subject": subject,
                        "note": estimate.note,
                    }
                    for (metric, subject), estimate in known.items()
                ]
            }
        )

    _add_history(routes, archive, rules, clock)
    return routes


def _need_see(rules: Rules, caller: Principal, metric: str, subject: str) -> None:
    caller.need(May.SEE)
    if not rules.may_see_series(caller, metric, subject):
        raise BrokerError(
            f"{caller.name!r} may not see {metric} of {subject}: monitoring.access does not allow"
            " it",
            "forbidden",
        )


def _add_history(
    routes: APIRouter, archive: Archive, rules: Rules, clock: Callable[[], float]
) -> None:
    room = AnswerLimit(MOST_EXPORTS, "exports")

    @routes.get("/v1/measurements/rollups", response_model=RollUpsAnswer)
    def list_rollups(
        caller: Caller,
        metric: Metric,
        subject: Subject,
        by: Literal["hour", "day"] = "hour",
        since: Instant = None,
        until: Instant = None,
    ) -> Response:
        """What each hour or day had, oldest first (default: the last 7 days, or 90); those without
        measurements are left out."""
        _need_see(rules, caller, metric, subject)
        last = clock() if until is None else until
        first = max(0.0, last - _USUAL_S[by]) if since is None else since
        if last - first > MOST_BUCKETS * _WIDTHS[by]:
            raise InputError(
                f"since: found {(last - first) / _WIDTHS[by]:.0f} {by}s before until, expected "
                f"{MOST_BUCKETS} at most"
            )
        rollups = roll_ups(archive.engine, metric, subject, _WIDTHS[by], first, last)
        return answers.answer({"rollups": [as_dict(rollup) for rollup in rollups]})

    @routes.get(
        "/v1/measurements/export",
        response_class=StreamingResponse,
        responses={
            200: {
                "content": {
                    "text/csv": {"schema": {"type": "string"}},
                    "application/vnd.apache.parquet": {"schema": {"type": "string"}},
                }
            }
        },
    )
    def export(
        caller: Caller,
        format: Literal["csv", "parquet"] = "csv",
        metric: Names = [],  # noqa: B006  # pydantic copies it
        subject: Name = None,
        workflow: Name = None,
        source: Name = None,
        since: Instant = None,
        until: Instant = None,
    ) -> StreamingResponse:
        """All measurements that are all of this, as far as the caller may see them, by metric and
        time, as a file; only so many at once."""
        caller.need(May.SEE)
        check_format(format)
        selection = Selection(tuple(metric), subject, workflow, source, since, until)
        measurements = (
            measurement
            for measurement in archive.each(selection)
            if rules.may_see(caller, measurement)
        )
        parts: Iterator[str] | Iterator[bytes] = csv_parts(measurements)
        kind = "text/csv; charset=utf-8"
        if format == "parquet":
            parts, kind = _parquet(measurements), "application/vnd.apache.parquet"
        headers = {"Content-Disposition": f'attachment; filename="measurements.{format}"'}
        return Stream(room, parts, media_type=kind, headers=headers)


def _source_for(archive: Archive, caller: Principal) -> knowledge.Source:
    return archive if caller.users is None else UserArchive(archive, caller.users)


def _parquet(measurements: Iterator[Measurement]) -> Iterator[bytes]:
    """Its end says where all parts are, so there is nothing to send before it is whole."""
    with tempfile.TemporaryFile() as file:
        write_parquet(measurements, file)
        file.seek(0)
        while piece := file.read(_PIECE):
            yield piece
