"""What OpenDaylight is asked to change on switches, several requests at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from network_provisioner.controllers import odl_flows
from network_provisioner.controllers.aids import Aid, SelectGroup
from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.odl_ask import flow_path, node_path
from network_provisioner.controllers.restconf import Refusal, Restconf
from network_provisioner.controllers.rules import (
    ROUTE_OWNER,
    FlowRule,
    is_stamp,
)

LOG = logging.getLogger(__name__)
# An operation ends with the next barrier, so what counts is how many wait for the same one.
_AT_ONCE = 16
_BARRIER_AFTER_S = 0.05


@dataclass(frozen=True, slots=True)
class Step:
    """One request that concerns one switch. ``label`` and ``what`` are for messages."""

    dpid: int
    label: str
    what: str
    run: Callable[[], None]


def run_wave(steps: Sequence[Step], barrier: Callable[[int], None]) -> None:
    """Run all steps; returns when every switch has confirmed.

    ``barrier`` is called with a switch that is being waited for, again and again. Raises
    ControllerError that names what was refused, when all others are through.
    """
    if not steps:
        return
    problems: list[str] = []
    with ThreadPoolExecutor(min(_AT_ONCE, len(steps)), "adon-odl") as pool:
        running = {pool.submit(step.run): step for step in steps}
        waiting = set(running)
        while waiting:
            done, waiting = wait(waiting, timeout=_BARRIER_AFTER_S)
            for future in done:
                error = future.exception()
                if isinstance(error, Refusal):
                    step = running[future]
                    problems.append(f"{step.label} refused {step.what}: {error.reason}")
                elif isinstance(error, ControllerError):
                    problems.append(str(error))
                elif error is not None:
                    raise error
            for dpid in {running[future].dpid for future in waiting if future.running()}:
                barrier(dpid)
    if problems:
        raise ControllerError("; ".join(dict.fromkeys(problems)))


def name_of(rule: FlowRule) -> str:
    """A rule as messages name it."""
    return "the stamp" if is_stamp(rule) else f"the rule {rule.src} > {rule.dst}"


class OdlSteps:
    """Makes steps. ``label`` names a switch in messages."""

    def __init__(self, rest: Restconf, label: Callable[[int], str]) -> None:
        self._rest = rest
        self._label = label

    def add(self, rule: FlowRule, now: float) -> Step:
        """Adds a rule, or overwrites the one with the same match."""
        flow = odl_flows.flow_of(rule, now)
        what = name_of(rule)
        if rule.owner != ROUTE_OWNER:
            return self.add_flow(rule.dpid, what, flow)
        name = odl_flows.flow_id(rule)
        body = {"flow-node-inventory:flow": [{"id": name, "flow-name": name, **flow}]}
        path = flow_path(rule.dpid, name)
        return self._step(rule.dpid, what, lambda: self._rest.put(path, body))

    def add_flow(self, dpid: int, what: str, flow: dict[str, Any]) -> Step:
        """Hands a flow to a switch."""
        return self._call(dpid, what, "sal-flow:add-flow", flow)

    def delete(self, rule: FlowRule) -> Step:
        """Deletes exactly this rule; done where it is not there."""
        what = f"to forget {name_of(rule)}"
        called = self._call(rule.dpid, what, "sal-flow:remove-flow", odl_flows.exactly(rule))
        if rule.owner != ROUTE_OWNER:
            return called
        path = flow_path(rule.dpid, odl_flows.flow_id(rule))

        def run() -> None:
            # What is not configured (any more) may still be on the switch.
            if not self._rest.delete(path):
                called.run()

        return self._step(rule.dpid, what, run)

    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> Step:
        """Deletes every rule on the switch whose cookie agrees under the mask."""
        arguments = {"table_id": odl_flows.ALL_TABLES, "cookie": cookie & mask, "cookie_mask": mask}
        return self._call(dpid, "to forget our rules", "sal-flow:remove-flow", arguments)

    def forget(self, dpid: int, flow_id: str) -> Step:
        """Takes a flow out of the configuration."""

        def run() -> None:
            self._rest.delete(flow_path(dpid, flow_id))

        return self._step(dpid, f"to forget {flow_id}", run)

    def add_group(self, aid: Aid, *, there: bool) -> Step:
        """Adds a select group; changes it where it is ``there`` already."""
        if not isinstance(aid, SelectGroup):
            raise ControllerError(f"{self._label(aid.dpid)} cannot have a meter by OpenDaylight")
        group = odl_flows.group_of(aid)
        if not there:
            return self._call(aid.dpid, "a group", "sal-group:add-group", group)
        both = {"original-group": group, "updated-group": group}
        return self._call(aid.dpid, "a group", "sal-group:update-group", both)

    def delete_group(self, aid: Aid) -> Step:
        """Deletes a group, and with it the rules that refer to it."""
        named = {"group-id": aid.number, "group-type": "group-select"}
        return self._call(aid.dpid, "to forget a group", "sal-group:remove-group", named)

    def barrier(self, dpid: int) -> None:
        """OpenDaylight sends one twice a second; this one is sooner, and only a kindness."""
        try:
            self._rest.call("flow-capable-transaction:send-barrier", {"node": node_path(dpid)})
        except ControllerError as error:
            LOG.debug("no barrier: %s", error)

    def _call(self, dpid: int, what: str, operation: str, arguments: dict[str, Any]) -> Step:
        whole = {"node": node_path(dpid), **arguments}

        def run() -> None:
            self._rest.call(operation, whole)

        return self._step(dpid, what, run)

    def _step(self, dpid: int, what: str, run: Callable[[], None]) -> Step:
        return Step(dpid, self._label(dpid), what, run)
