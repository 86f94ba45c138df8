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
        "machine", "disk_rate",
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
    taken = [_by(who, found) if found.metric == "workflow" else found for found in sent]
    described = {found.workflow: found for found in reversed(taken) if found.metric == "workflow"}
    checked: dict[str, bool] = {}
    for found in taken:
        if found.metric in OWN:
            raise _forbidden(who, found, "the broker's own to record")
        if found.metric in OF_NETWORK and not (
            who.role is Role.AGENT and _is_end(who.name, found.subject)
        ):
            raise _forbidden(who, found, "all decide by it, expected an agent at one of its ends")
        if not _is_own_id(found):
            raise _forbidden(who, found, "its id is another's, expected METRIC:…:WORKFLOW:…")
        if found.metric == "expansion" and not found.subject.startswith(f"{found.workflow}:"):
            raise _forbidden(who, found, f"expected a lease '{found.workflow or 'UUID'}:…'")
        if found.metric in OF_WORKFLOWS and found.subject != found.workflow:
            raise _forbidden(who, found, f"expected its workflow, {found.workflow!r:.80}")
        if not found.workflow:
            if who.role is not Role.AGENT or not _is_end(who.name, found.subject):
                raise _forbidden(who, found, _EXPECTED[who.role is Role.AGENT])
            if not found.id.startswith(_mine(who, found)):  # what comes of a run has the run's id
                why = f"its id may be a run's, expected {_mine(who, found)}…"
                raise _forbidden(who, found, why)
            continue
        if found.workflow not in checked:
            checked[found.workflow] = _is_own(who, found.workflow, described, known)
        if not checked[found.workflow]:
            raise _forbidden(who, found, _EXPECTED[who.role is Role.AGENT])
    return taken


def of_agent(who: Principal, sent: Sequence[Measurement]) -> list[Measurement]:
    """What ``who`` sends of what another program measured: an agent's with ids of its own, which
    still follow from the other program's."""
    if who.role is not Role.AGENT:
        return list(sent)
    return [replace(found, id=f"{_mine(who, found)}{found.id}") for found in sent]


def _mine(who: Principal, found: Measurement) -> str:
    return f"{found.metric}:agent:{who.name}:"


def _is_own(
    who: Principal, workflow: str, described: Mapping[str, Measurement], known: Known
) -> bool:
    # What stands in the archive was first, and counts.
    found = known(workflow_id(workflow)) or described.get(workflow)
    if found is None:
        return False
    if who.role is Role.AGENT:
        return found.details.get("by") == who.name
    return who.owns(str(found.details.get("user", "")))


def _is_own_id(found: Measurement) -> bool:
    """Whether nobody else would take this id for something else."""
    if found.metric == "workflow":
        return found.id == workflow_id(found.workflow)
    kind = found.id.partition(":")[0]
    if kind in UNITS and kind != found.metric:
        return False
    return not found.workflow or f":{found.workflow}:" in f"{found.id}:"


def _by(who: Principal, found: Measurement) -> Measurement:
    return replace(found, details={**found.details, "by": who.name})


def _is_end(name: str, subject: str) -> bool:
    """Whether a subject ``src>dst`` or ``host`` has this agent in it: a whole site's, or one
    host's."""
    return any(end == name or end.startswith(f"{name}/") for end in subject.split(">"))


def _forbidden(who: Principal, found: Measurement, why: str) -> BrokerError:
    return BrokerError(
        f"{who.name!r} (role {who.role}) may not record {found.id!r:.200}"
        f" of {found.subject!r:.200}: {why}",
        "forbidden",
    )
