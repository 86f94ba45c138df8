"""The switches that are connected to us: listening, greeting, sending to several at once."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from network_provisioner.controllers import wire
from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.channel import Channel, ChannelLostError, Ticket
from network_provisioner.controllers.rules import Changes, SeenRule
from network_provisioner.errors import InputError

LOG = logging.getLogger(__name__)


def parse_listen(listen: str) -> tuple[str, int]:
    """``HOST:PORT`` taken apart. Raises InputError."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise InputError(
            f"OpenFlow controller: found {listen!r}, expected HOST:PORT such as 127.0.0.1:6653"
        )
    return host.strip("[]"), int(port)


class SwitchBoard:
    """Accepts OpenFlow connections and keeps one channel for each known switch.

    ``names`` gives the datapath ids that are expected, with the switches' names. ``on_up`` is
    called with a datapath id when its switch has connected, ``on_removed`` when it reports that a
    rule ended by itself; both run in the channel's thread and must return at once.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        on_up: Callable[[int], None],
        on_removed: Callable[[int], None],
        reply_timeout_s: float = 5.0,
    ) -> None:
        self._names = dict(names)
        self._on_up = on_up
        self._on_removed = on_removed
        self._reply_timeout_s = reply_timeout_s
        self._lock = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._greeting: set[Channel] = set()
        self._listener: socket.socket | None = None
        self._threads: set[threading.Thread] = set()

    def open(self, host: str, port: int) -> None:
        """Listen. Raises ControllerError where the address cannot be had."""
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(address[:2], family=family)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ControllerError(
                f"cannot listen for switches on {host}:{port}: {reason}; expected a free port of "
                "this machine (is another broker running?)"
            ) from error
        self._listener = listener
        self._spawn(self._accept, listener)

    @property
    def port(self) -> int:
        """The port that is listened on. Raises ControllerError where nothing is."""
        if self._listener is None:
            raise ControllerError("the OpenFlow controller is not started")
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Hang up on every switch, stop listening, and wait for the threads to end."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Wakes the thread that waits in accept; close alone would not.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            channels = [*self._channels.values(), *self._greeting]
            threads = list(self._threads)
        for channel in channels:
            channel.close("the controller was stopped")
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(self._reply_timeout_s)

    def label(self, dpid: int) -> str:
        """A switch as messages name it."""
        return f"switch {self._names.get(dpid, '?')} (dpid {dpid})"

    def is_named(self, dpid: int, name: str) -> bool:
        """Whether the switch with this datapath id has that name."""
        return self._names.get(dpid) == name

    def connected(self) -> set[int]:
        """The datapath ids of the switches that are connected now."""
        with self._lock:
            return set(self._channels)

    def send(self, changes: Mapping[int, Changes], now: float) -> None:
        """Change rules on several switches at once; returns when all have confirmed.

        Raises ControllerError naming the switch that refused, did not answer or is not connected;
        the others may have changed by then.
        """
        tickets = {
            dpid: self._submit(
                dpid,
                [
                    *(wire.add_rule(rule, now) for rule in change.add),
                    *(wire.delete_rule(rule) for rule in change.delete),
                ],
            )
            for dpid, change in changes.items()
        }
        problems: list[str] = []
        for dpid, ticket in tickets.items():
            rules = [*changes[dpid].add, *changes[dpid].delete]
            for position, error in self._wait(dpid, ticket, problems):
                rule = rules[position] if position < len(rules) else None
                what = f"the rule {rule.src} > {rule.dst}" if rule else "a barrier"
                problems.append(f"{self.label(dpid)} refused {what}: {wire.error_text(error)}")
        if problems:
            raise ControllerError("; ".join(problems))

    def delete_by_cookie(self, dpid: int, cookie: int, mask: int) -> None:
        """Delete every rule under a cookie mask. Raises ControllerError."""
        problems: list[str] = []
        ticket = self._submit(dpid, [wire.delete_by_cookie(cookie, mask)])
        for _, error in self._wait(dpid, ticket, problems):
            problems.append(f"{self.label(dpid)} refused to delete: {wire.error_text(error)}")
        if problems:
            raise ControllerError("; ".join(problems))

    def read_rules(
        self, dpids: set[int], cookie: int, mask: int, now: float
    ) -> tuple[dict[int, list[SeenRule]], dict[int, set[int]]]:
        """The rules under a cookie mask on several switches, and the cookies of odd ones.

        Odd is a rule under our cookie that we would not make. Raises ControllerError.
        """
        parts = self._ask({d: wire.flows_request(cookie, mask) for d in dpids})
        seen: dict[int, list[SeenRule]] = {dpid: [] for dpid in dpids}
        odd: dict[int, set[int]] = {dpid: set() for dpid in dpids}
        for dpid, replies in parts.items():
            for entry in (entry for reply in replies for entry in reply.body):
                rule = wire.read_rule(dpid, entry, now)
                if rule is None:
                    odd[dpid].add(entry.cookie)
                else:
                    seen[dpid].append(rule)
        return seen, odd

    def sent_bytes(self, dpids: set[int]) -> dict[int, dict[int, int]]:
        """Bytes sent out of every port of several switches. Raises ControllerError."""
        parts = self._ask({dpid: wire.ports_request() for dpid in dpids})
        return {
            dpid: {port.port_no: port.tx_bytes for reply in replies for port in reply.body}
            for dpid, replies in parts.items()
        }

    def _ask(self, requests: Mapping[int, Any]) -> dict[int, list[Any]]:
        tickets = {dpid: self._submit(dpid, [], request) for dpid, request in requests.items()}
        problems: list[str] = []
        for dpid, ticket in tickets.items():
            for _, error in self._wait(dpid, ticket, problems):
                problems.append(f"{self.label(dpid)} refused a request: {wire.error_text(error)}")
        if problems:
            raise ControllerError("; ".join(problems))
        return {dpid: ticket.replies for dpid, ticket in tickets.items()}

    def _submit(self, dpid: int, messages: list[Any], last: Any = None) -> Ticket:
        with self._lock:
            channel = self._channels.get(dpid)
        if channel is None:
            ticket = Ticket([])
            ticket.finish("it is not connected")
            return ticket
        return channel.submit(messages, last=last)

    def _wait(self, dpid: int, ticket: Ticket, problems: list[str]) -> list[tuple[int, Any]]:
        """The refusals of a batch; a lost switch is added to ``problems``."""
        try:
            ticket.wait(self._reply_timeout_s)
        except ChannelLostError as error:
            problems.append(f"{self.label(dpid)}: {error}")
            with self._lock:
                channel = self._channels.get(dpid)
            if channel is not None:
                # It reconnects and is then brought to the state that is wanted.
                channel.close(str(error))
        return ticket.errors

    def _spawn(self, target: Callable[..., None], argument: object) -> None:
        def run() -> None:
            try:
                target(argument)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        # Daemons, so that a broker that is told to exit does.
        thread = threading.Thread(target=run, name="adon-openflow", daemon=True)
        # Under the lock: close waits for those in the set, and cannot for one that has not begun.
        with self._lock:
            thread.start()
            self._threads.add(thread)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        channel = Channel(sock)
        with self._lock:
            self._greeting.add(channel)
        try:
            channel.handshake()
        except ChannelLostError as error:
            LOG.warning("an OpenFlow connection was dropped: %s", error)
            channel.close(str(error))
            return
        finally:
            with self._lock:
                self._greeting.discard(channel)
        dpid = channel.dpid
        if dpid not in self._names:
            LOG.warning(
                "a switch with dpid %d connected, expected one of %s", dpid, sorted(self._names)
            )
            channel.close()
            return
        with self._lock:
            if self._listener is None:
                channel.close()
                return
            before = self._channels.get(dpid)
            self._channels[dpid] = channel
        if before is not None:
            before.close("the switch connected again")
        LOG.info("%s connected", self.label(dpid))
        self._on_up(dpid)
        channel.serve(partial(self._heard, dpid))
        with self._lock:
            if self._channels.get(dpid) is channel:
                del self._channels[dpid]
        LOG.info("%s disconnected", self.label(dpid))

    def _heard(self, dpid: int, message: Any) -> None:
        if isinstance(message, wire.PARSER.OFPFlowRemoved):
            if message.reason == wire.OFP.OFPRR_HARD_TIMEOUT:
                self._on_removed(dpid)
        elif isinstance(message, wire.PARSER.OFPErrorMsg):
            LOG.warning("%s: %s", self.label(dpid), wire.error_text(message))
