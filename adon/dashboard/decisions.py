"""What was decided, newest first, each with its reason: pure functions of values.

Four kinds of decisions have one shape, so that one list can show them all:

    transit     which path a transfer got, and how much of it; the candidates with their scores
    placement   at which site a job runs; the alternatives with the terms of their T_t
    expansion   how many slots were asked for, for whom and until when: a lease
    pool        which machines were started, drained, undrained and deleted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

from monitors.base.measurement import Measurement, number_in
from monitors.workflows.analysis import number, text
from network_provisioner.base.model import Transit
from network_provisioner.base.units import format_rate
from network_provisioner.relay import decision
from network_provisioner.selection.knee import knee_text
from site_selector.mapping.reasons import seconds

KINDS = ("transit", "placement", "expansion", "pool")
_UNSAID = "no reason was recorded"
_SHOWN = ("alternatives", "reason", "job", "workflow_s", "workflow_range_s")
_OF_TRANSIT = (
    "state", "layer", "path", "requested_bps", "granted_bps", "max_bps", "priority", "template",
    "user", "project", "size_bytes", "goodput_bps", "start", "end", "installed_at", "released_at",
    "earliest", "blocking", "moves",
)  # fmt: skip
_LAST_YEAR = 1e11  # Unix seconds that every calendar has
_DONE = {"drain": "drained", "keep": "undrained", "give_up": "given up"}


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """One decision. ``at`` is in Unix seconds, ``subject`` what it is about, ``outcome`` what was
    decided and ``why`` the reason in a sentence. ``choices`` are what there was to choose from, as
    they were written down then; ``details`` are the other facts."""

    kind: str
    id: str
    at: float
    subject: str
    outcome: str
    why: str
    workflow: str = ""
    job: str = ""
    choices: list[Mapping[str, Any]] = field(default_factory=list)
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def search_text(self) -> str:
        """What a search looks at, in lower case."""
        about = self.details.get("transformation", "")
        known = (self.subject, self.outcome, self.why, self.job, self.id, self.workflow, about)
        return " ".join(map(str, known)).lower()


def newest_decisions(decisions: Iterable[ShownDecision], limit: int) -> list[ShownDecision]:
    """The newest ``limit``, the newest first; of the same instant in the order of their ids."""
    ordered = sorted(decisions, key=lambda d: (d.kind, d.id))
    return nlargest(limit, ordered, key=lambda d: d.at)


def of_transit(transit: Transit) -> ShownDecision:
    """How a request for a path was answered."""
    published, way = transit.as_dict(), " → ".join(transit.grant.path)
    rate = format_rate(transit.grant.granted_bps) if transit.grant.granted_bps else ""
    outcome = str(transit.state).replace("_", " ")
    if way:
        outcome += f" on {way}" + (f" with {rate}" if rate else "")
    return ShownDecision(
        kind="transit",
        id=transit.id,
        at=transit.request.requested_at,
        subject=f"{transit.request.src} → {transit.request.dst}",
        outcome=outcome,
        why=transit.reason or _waits_for(transit) or _UNSAID,
        workflow=transit.request.workflow,
        job=transit.request.job,
        choices=published["candidates"],
        details={name: published[name] for name in _OF_TRANSIT}
        | {
            "knee": knee_text(transit.io),
            "relay": decision.relay_text(transit.relay),
            "given_back_bps": transit.given_back_bps,
        },
    )


def of_changes(transit: Transit) -> list[ShownDecision]:
    """How its rates were changed while it ran."""
    return [
        ShownDecision(
            kind="transit",
            id=f"{transit.id} change {number}",
            at=change.at,
            subject=f"{transit.request.src} → {transit.request.dst}",
            outcome=f"{format_rate(change.min_bps)} to {format_rate(change.max_bps)}",
            why=f"{change.why or 'its owner'} changed "
            f"{format_rate(change.was_min_bps)} to {format_rate(change.was_max_bps)}",
            workflow=transit.request.workflow,
            job=transit.request.job,
            details=change.as_dict(),
        )
        for number, change in enumerate(transit.grant.changes, 1)
    ]


def _waits_for(transit: Transit) -> str:
    links = [str(name.get("link", "")) for name in transit.grant.blocking]
    return f"there is no room yet on {', '.join(links)}" if links else ""


def of_placement(measurement: Measurement) -> ShownDecision:
    """Why a job runs where it does (:mod:`monitors.workflows.facts.plan`): the subject is the
    site."""
    details = measurement.details
    listed, takes_s = details.get("alternatives"), number(measurement, "seconds")
    alternatives = listed if isinstance(listed, list) else []
    expected = "" if takes_s is None else f", expected to take {takes_s:.3g} s"
    return ShownDecision(
        kind="placement",
        id=measurement.id,
        at=measurement.at,
        subject=text(measurement, "job") or measurement.id,
        outcome=f"runs at {measurement.subject}{expected}",
        why=text(measurement, "reason") or _UNSAID,
        workflow=measurement.workflow,
        job=text(measurement, "job"),
        choices=[alternative for alternative in alternatives if isinstance(alternative, dict)],
        details={"site": measurement.subject, "workflow_takes": _forecast(measurement)}
        | {k: v for k, v in details.items() if k not in _SHOWN},
    )


def _forecast(measurement: Measurement) -> str | None:
    """How long the whole workflow was expected to take."""
    expected, span = number(measurement, "workflow_s"), measurement.details.get("workflow_range_s")
    if expected is None:
        return None
    ends = [number_in(end) for end in span] if isinstance(span, list) else []
    known = [seconds(end) for end in ends if end is not None]
    between = f", with 90 % probability {' to '.join(known)}" if len(known) == 2 else ""
    return seconds(expected) + between


def of_expansion(measurement: Measurement) -> ShownDecision:
    """What the pool was asked for (metric ``expansion``: the subject is the lease's name, the value
    its slots)."""
    return ShownDecision(
        kind="expansion",
        id=measurement.id,
        at=measurement.at,
        subject=measurement.subject,
        outcome=f"{measurement.value:g} slots requested" if measurement.value else "ended",
        why=text(measurement, "reason") or _UNSAID,
        workflow=measurement.workflow,
        details=dict(measurement.details),
    )


def of_pool_decision(measurement: Measurement) -> ShownDecision:
    """What was done to the pool (metric ``pool_decision``: the subject is the pool, the value its
    machines after it). ``choices`` have a row for each flavour, machine and limit that there was
    something to say of: ``what``, what was ``done`` and ``why``."""
    start, over, why = (mapping_in(measurement, key) for key in ("start", "delete", "why"))
    rows = [(name, f"{count} started", why.get(name, "")) for name, count in start.items()]
    outcome = [f"{count} {name} started" for name, count in start.items()]
    for key, done in _DONE.items():
        names = names_in(measurement, key)
        rows += [(name, done, why.get(name, "")) for name in names]
        outcome += [f"{len(names)} {done}"] if names else []
    rows += [(name, "deleted", reason) for name, reason in over.items()]
    outcome += [f"{len(over)} deleted"] if over else []
    details = {name for name, _, _ in rows}
    rows += [(name, "", reason) for name, reason in why.items() if name not in details]
    rows += [("refused", "", reason) for reason in names_in(measurement, "failed")]
    return ShownDecision(
        kind="pool",
        id=measurement.id,
        at=measurement.at,
        subject=measurement.subject,
        outcome=", ".join(outcome) or "nothing is done",
        why=text(measurement, "reason") or _UNSAID,
        choices=[{"what": name, "done": done, "why": str(reason)} for name, done, reason in rows],
        details={
            "demand": _counted(measurement, "demand"),
            "machines": _counted(measurement, "machines"),
            "matched": {
                name: at
                for name, at in mapping_in(measurement, "matched").items()
                if number_in(at, _LAST_YEAR) is not None
            },
        },
    )


def mapping_in(measurement: Measurement, key: str) -> Mapping[str, Any]:
    """What the details have by names, nothing where they have none: anybody may have recorded
    it."""
    details = measurement.details.get(key)
    return details if isinstance(details, dict) else {}


def names_in(measurement: Measurement, key: str) -> list[str]:
    """The texts of a list of the details."""
    details = measurement.details.get(key)
    return [name for name in details if isinstance(name, str)] if isinstance(details, list) else []


def _counted(measurement: Measurement, key: str) -> str:
    """``3 queued, 2 coming``."""
    return ", ".join(
        f"{count} {name}" for name, count in mapping_in(measurement, key).items() if count
    )
