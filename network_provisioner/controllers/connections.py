"""The switches that are connected to us: listening, greeting, hanging up."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from network_provisioner.controllers.base import ControllerError
from network_provisioner.controllers.channel import Channel, ChannelLostError, Ticket
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


class Connections:
    """Accepts OpenFlow connections at ``address`` and keeps one channel for each known switch.

    ``names`` gives the datapath ids that are expected, with the switches' names. ``on_up`` is
    called with a datapath id when its switch has connected, in the channel's thread, and must
    return at once.
    """

    def __init__(
        self,
        address: tuple[str, int],
        names: Mapping[int, str],
        on_up: Callable[[int], None],
        reply_timeout_s: float,
    ) -> None:
        self._address = address
        self._names = dict(names)
        self._on_up = on_up
        self._reply_timeout_s = reply_timeout_s
        self._lock = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._greeting: set[Channel] = set()
        self._listener: socket.socket | None = None
        self._threads: set[threading.Thread] = set()

    def open(self) -> None:
        """Listen. Raises ControllerError where the address cannot be had."""
        host, port = self._address
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

    def expectation(self) -> str:
        """See Board."""
        return (
            f"to {self._address[0]}:{self.port}, expected the switches' controller to be set to "
            "that address"
        )

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

    def _hear(self, dpid: int, message: Any) -> None:
        """A switch says something that nobody asked for."""
        raise NotImplementedError

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
        channel.serve(partial(self._hear, dpid))
        with self._lock:
            if self._channels.get(dpid) is channel:
                del self._channels[dpid]
        LOG.info("%s disconnected", self.label(dpid))
