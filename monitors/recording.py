"""Who may record what: a measurement is believed, so nobody records for others.

    role                 may record
    engineer             anything
    researcher           what belongs to workflows of the users that it acts for, but nothing of the
                         network itself
    agent                what it is an end of, and what belongs to workflows that it follows

A workflow belongs to the user that its ``workflow`` measurement names, the first one of its id: who
recorded it stands in its details as ``by``. Since an id is taken once, ids are nobody's to take
from others either: what belongs to a workflow has ``:UUID:`` in its id, or ends in ``:UUID``, an
id that begins with the name of a metric is of that metric, and what belongs to no workflow is an
agent's ``METRIC:agent:NAME:…``: what comes of the broker's own runs has their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from monitors.base.measurement import OF_NETWORK, OF_WORKFLOWS, UNITS, Measurement
from network_provisioner.access import May, Principal, Role
from network_provisioner.base.errors import BrokerError

# Of the broker itself, whatever they are about: nobody else says them. The last three are what the
# pool's expander did and goes by, which has an engineer's token.
OWN = frozenset(
    {
        "anomaly", "notice", "pool_slots", "pool_busy", "pool_demand", "pool_decision", "boot",
        "machine", "disk_rate", "plan",
    }
)  # fmt: skip

Known = Callable[[str], Measurement | None]
_EXPECTED = {
    True: "expected what it is an end of, or a workflow that it described first",
    False: "expected a workflow whose user it acts for, described by a measurement 'workflow'",
}


def workflow_id(workflow: str) -> str:
    """The id of the measurement that says whose a workflow is."""
    return f"workflow:{workflow}"


def own(who: Principal, sent: Sequence[Measurement], known: Known) -> list[Measurement]:
    """What ``who`` sent, as it is to be recorded. ``known`` gives the measurement of an id.

    Raises BrokerError ``forbidden`` for the first one that it may not record.
    """
    who.need(May.RECORD)
    if who.role is Role.ENGINEER and who.users is None:
        return list(sent)
    taken = [
        _by(who, measurement) if measurement.metric == "workflow" else measurement
        for measurement in sent
    ]
    described = {
        measurement.workflow: measurement
        for measurement in reversed(taken)
        if measurement.metric == "workflow"
    }
    checked: dict[str, bool] = {}
    for measurement in taken:
        if measurement.metric in OWN:
            raise _forbidden(who, measurement, "the broker's own to record")
        if measurement.metric in OF_NETWORK and not (
            who.role is Role.AGENT and _is_end(who.name, measurement.subject)
        ):
            raise _forbidden(
                who, measurement, "all decide by it, expected an agent at one of its ends"
            )
        if not _is_own_id(measurement):
            raise _forbidden(who, measurement, "its id is another's, expected METRIC:…:WORKFLOW:…")
        if measurement.metric == "expansion" and not measurement.subject.startswith(
            f"{measurement.workflow}:"
        ):
            raise _forbidden(
                who, measurement, f"expected a lease '{measurement.workflow or 'UUID'}:…'"
            )
        if measurement.metric in OF_WORKFLOWS and measurement.subject != measurement.workflow:
            raise _forbidden(
                who, measurement, f"expected its workflow, {measurement.workflow!r:.80}"
            )
        if not measurement.workflow:
            if who.role is not Role.AGENT or not _is_end(who.name, measurement.subject):
                raise _forbidden(who, measurement, _EXPECTED[who.role is Role.AGENT])
            if not measurement.id.startswith(
                _mine(who, measurement)
            ):  # what comes of a run has the run's id
                why = f"its id may be a run's, expected {_mine(who, measurement)}…"
                raise _forbidden(who, measurement, why)
            continue
        if measurement.workflow not in checked:
            checked[measurement.workflow] = _is_own(who, measurement.workflow, described, known)
        if not checked[measurement.workflow]:
            raise _forbidden(who, measurement, _EXPECTED[who.role is Role.AGENT])
    return taken


def of_agent(who: Principal, sent: Sequence[Measurement]) -> list[Measurement]:
    """What ``who`` sends of what another program measured: an agent's with ids of its own, which
    still follow from the other program's."""
    if who.role is not Role.AGENT:
        return list(sent)
    return [
        replace(measurement, id=f"{_mine(who, measurement)}{measurement.id}")
        for measurement in sent
    ]


def _mine(who: Principal, measurement: Measurement) -> str:
    return f"{measurement.metric}:agent:{who.name}:"


def _is_own(
    who: Principal, workflow: str, described: Mapping[str, Measurement], known: Known
) -> bool:
    # What stands in the archive was first, and counts.
    workflow_fact = known(workflow_id(workflow)) or described.get(workflow)
    if workflow_fact is None:
        return False
    if who.role is Role.AGENT:
        return workflow_fact.details.get("by") == who.name
    return who.owns(str(workflow_fact.details.get("user", "")))


def _is_own_id(measurement: Measurement) -> bool:
    """Whether nobody else would take this id for something else."""
    if measurement.metric == "workflow":
        return measurement.id == workflow_id(measurement.workflow)
    kind = measurement.id.partition(":")[0]
    if kind in UNITS and kind != measurement.metric:
        return False
    return not measurement.workflow or f":{measurement.workflow}:" in f"{measurement.id}:"


def _by(who: Principal, measurement: Measurement) -> Measurement:
    return replace(measurement, details={**measurement.details, "by": who.name})


def _is_end(name: str, subject: str) -> bool:
    """Whether a subject ``src>dst`` or ``host`` has this agent in it: a whole site's, or one
    host's."""
    return any(end == name or end.startswith(f"{name}/") for end in subject.split(">"))


def _forbidden(who: Principal, measurement: Measurement, why: str) -> BrokerError:
    return BrokerError(
        f"{who.name!r} (role {who.role}) may not record {measurement.id!r:.200}"
        f" of {measurement.subject!r:.200}: {why}",
        "forbidden",
    )
