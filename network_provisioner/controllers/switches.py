"""Asking and telling several connected switches at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from network_provisioner.controllers import wire, wireread
from network_provisioner.controllers.aids import Aid, aid_text
from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.connections import Connections
from network_provisioner.controllers.rules import (
    Changes,
    SeenRule,
    is_stamp,
    rule_text,
)

LOG = logging.getLogger(__name__)


def _messages(changes: Changes, now: float) -> list[tuple[Any, str]]:
    """What a switch is sent, with words for each: what rules need first, and last."""
    return [
        *((wire.add_rule(rule, now), rule_text(rule)) for rule in changes.add if is_stamp(rule)),
        *((wire.add_aid(aid, there=False), aid_text(aid)) for aid in changes.add_aids),
        *((wire.add_aid(aid, there=True), aid_text(aid)) for aid in changes.change_aids),
        *(
            (wire.add_rule(rule, now), rule_text(rule))
            for rule in changes.add
            if not is_stamp(rule)
        ),
        *((wire.delete_rule(rule), rule_text(rule)) for rule in changes.delete),
        *((wire.delete_aid(aid), aid_text(aid)) for aid in changes.delete_aids),
    ]


class SwitchBoard(Connections):
    """A :class:`~network_provisioner.controllers.board.Board` that the switches connect to.

    ``on_removed`` is called with a datapath id when its switch reports that a rule ended by itself,
    in the channel's thread, and must return at once; the rest is for :class:`Connections`.
    """

    def __init__(
        self,
        address: tuple[str, int],
        names: Mapping[int, str],
        on_up: Callable[[int], None],
        on_removed: Callable[[int], None],
        reply_timeout_s: float = 5.0,
    ) -> None:
        super().__init__(address, names, self._forget_and_tell, reply_timeout_s)
        self._tell = on_up
        self._on_removed = on_removed
        # Whether each switch has meters, as far as it was asked since it connected.
        self._meters: dict[int, bool] = {}
        self._listeners: list[Callable[[int, Any], None]] = []

    def _forget_and_tell(self, dpid: int) -> None:
        with self._lock:
            self._meters.pop(dpid, None)
        self._tell(dpid)

    @property
    def native(self) -> SwitchBoard:
        """See Board."""
        return self

    def send(self, changes: Mapping[int, Changes], now: float) -> None:
        """See Board."""
        batches = {dpid: _messages(change, now) for dpid, change in changes.items()}
        tickets = {
            dpid: self._submit(dpid, [message for message, _ in batch])
            for dpid, batch in batches.items()
        }
        problems: list[str] = []
        for dpid, ticket in tickets.items():
            for position, error in self._wait(dpid, ticket, problems):
                batch = batches[dpid]
                what = batch[position][1] if position < len(batch) else "a barrier"
                problems.append(f"{self.label(dpid)} refused {what}: {wire.error_text(error)}")
        if problems:
            raise ControllerError("; ".join(problems))

    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> None:
        """See Board."""
        problems: list[str] = []
        ticket = self._submit(dpid, [wire.delete_by_cookie(cookie, mask)])
        for _, error in self._wait(dpid, ticket, problems):
            problems.append(f"{self.label(dpid)} refused to delete: {wire.error_text(error)}")
        if problems:
            raise ControllerError("; ".join(problems))

    def read_rules(
        self, dpids: set[int], cookie: int, mask: int, now: float
    ) -> tuple[dict[int, list[SeenRule]], dict[int, set[int]]]:
        """See Board."""
        parts = self._ask({d: [wire.flows_request(cookie, mask)] for d in dpids})
        seen: dict[int, list[SeenRule]] = {dpid: [] for dpid in dpids}
        odd: dict[int, set[int]] = {dpid: set() for dpid in dpids}
        for dpid, replies in parts.items():
            for entry in (entry for reply in replies for entry in reply.body):
                rule = wireread.read_rule(dpid, entry, now)
                if entry.cookie & mask != cookie & mask:
                    continue  # it answers what was not asked
                if rule is None:
                    odd[dpid].add(entry.cookie)
                else:
                    seen[dpid].append(rule)
        return seen, odd

    def read_bytes(self, wanted: Mapping[int, Sequence[int]], now: float) -> list[SeenRule]:
        """See Board."""
        parts = self._ask(
            {
                dpid: [wire.flows_request(cookie, 2**64 - 1) for cookie in cookies]
                for dpid, cookies in wanted.items()
                if cookies
            }
        )
        found = (
            wireread.read_rule(dpid, entry, now)
            for dpid, replies in parts.items()
            for reply in replies
            for entry in reply.body
        )
        return [rule for rule in found if rule is not None]

    def read_aids(self, dpids: set[int]) -> dict[int, list[Aid]]:
        """See Board."""
        parts = self._ask({dpid: [wire.groups_request()] for dpid in dpids})
        metered = {dpid for dpid in dpids if self.can_meter(dpid)}
        meters = self._ask({dpid: [wire.meters_request()] for dpid in metered})
        found: dict[int, list[Aid]] = {}
        for dpid in dpids:
            aids: list[Aid | None] = [
                wireread.read_group(dpid, entry) for reply in parts[dpid] for entry in reply.body
            ]
            aids += [
                wireread.read_meter(dpid, entry)
                for reply in meters.get(dpid, ())
                for entry in reply.body
            ]
            found[dpid] = [aid for aid in aids if aid is not None]
        return found

    def can_meter(self, dpid: int) -> bool:
        """See Board. A switch that knows no meters refuses the question."""
        with self._lock:
            known = self._meters.get(dpid)
        if known is None:
            problems: list[str] = []
            ticket = self._submit(dpid, [], wire.meter_features_request())
            refused = self._wait(dpid, ticket, problems)
            if problems:
                raise ControllerError("; ".join(problems))
            known = not refused and any(
                wire.can_meter(entry) for reply in ticket.replies for entry in reply.body
            )
            with self._lock:
                self._meters[dpid] = known
        return known

    def sent_bytes(self, dpids: set[int]) -> dict[int, dict[int, int]]:
        """See Board."""
        parts = self._ask({dpid: [wire.ports_request()] for dpid in dpids})
        return {
            dpid: {port.port_no: port.tx_bytes for reply in replies for port in reply.body}
            for dpid, replies in parts.items()
        }

    def describe_ports(self, dpids: set[int]) -> dict[int, list[Any]]:
        """The descriptions of the ports that are on the outside. Raises ControllerError."""
        parts = self._ask({dpid: [wire.port_descriptions_request()] for dpid in dpids})
        return {
            dpid: [p for reply in replies for p in reply.body if p.port_no <= wire.OFP.OFPP_MAX]
            for dpid, replies in parts.items()
        }

    def emit(self, messages: Mapping[int, Sequence[Any]], what: str) -> None:
        """Send messages as they are; returns when all switches have taken them, and raises
        ControllerError, which names ``what`` was sent, where one does not."""
        tickets = {dpid: self._submit(dpid, list(batch)) for dpid, batch in messages.items()}
        problems: list[str] = []
        for dpid, ticket in tickets.items():
            for _, error in self._wait(dpid, ticket, problems):
                problems.append(f"{self.label(dpid)} refused {what}: {wire.error_text(error)}")
        if problems:
            raise ControllerError("; ".join(problems))

    @contextmanager
    def listening(self, heard: Callable[[int, Any], None]) -> Iterator[None]:
        """Meanwhile, frames that switches send to the controller are given to ``heard``, with the
        datapath id, in the channel's thread."""
        with self._lock:
            self._listeners.append(heard)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(heard)

    def _ask(self, questions: Mapping[int, Sequence[Any]]) -> dict[int, list[Any]]:
        """The answers of several switches, each asked several things at once."""
        tickets = {
            # Answers may come in any order: a barrier is the last one.
            dpid: self._submit(dpid, list(asked)) if asked[1:] else self._submit(dpid, [], asked[0])
            for dpid, asked in questions.items()
        }
        problems: list[str] = []
        for dpid, ticket in tickets.items():
            for _, error in self._wait(dpid, ticket, problems):
                problems.append(f"{self.label(dpid)} refused a request: {wire.error_text(error)}")
        if problems:
            raise ControllerError("; ".join(problems))
        return {
            dpid: [reply for reply in ticket.replies if hasattr(reply, "body")]
            for dpid, ticket in tickets.items()
        }

    def _hear(self, dpid: int, message: Any) -> None:
        if isinstance(message, wire.PARSER.OFPFlowRemoved):
            if message.reason == wire.OFP.OFPRR_HARD_TIMEOUT:
                self._on_removed(dpid)
        elif isinstance(message, wire.PARSER.OFPPacketIn):
            with self._lock:
                listeners = list(self._listeners)
            for heard in listeners:
                heard(dpid, message)
        elif isinstance(message, wire.PARSER.OFPErrorMsg):
            LOG.warning("%s: %s", self.label(dpid), wire.error_text(message))
