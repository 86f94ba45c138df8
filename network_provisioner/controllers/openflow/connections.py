"""The switches that are connected to us: requests, their answers, and the errors in between."""

from __future__ import annotations

import logging
import math
import select
import socket
import struct
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from network_provisioner.base.controller import ControllerError
from network_provisioner.base.errors import InputError
from network_provisioner.base.fields import format_dpid
from network_provisioner.controllers.backend import SwitchBackend, SwitchChange
from network_provisioner.controllers.openflow import wire

LOG = logging.getLogger(__name__)
Message = tuple[Any, str]
"""A message, and what it is when a switch refuses it."""

# A switch that vanished without a word is noticed after about 11 s.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
_HANDSHAKE_S = 10.0
# What a connected switch takes at most to answer a barrier when another one claims its id.
_ALIVE_S = 2.0
# A switch whose connection broke tries again sooner than this.
_RIVAL_S = 3.0
# A switch from which nothing has come for so long, though it was asked again and again, is silent:
# nothing new is begun there, nobody waits for an answer, and changes go on. A packet that is lost
# on a path of 300 ms costs less than that, and so does an ordinary batch of rules.
SILENT_AFTER_S = 1.5
_ECHO_S = 0.25
_LATE_S = 1.0  # who looks again only after so long is on a busy machine
_TLS = b"\x16\x03"  # a handshake of SSL 3.0 or later
_ROLE_XID = 1  # in the handshake, where no other request is under way
_MOST_STRANGERS = 100  # that are remembered
_TURNED_AWAY_S = 60.0  # who was turned away and does not come within this has given up
_FORGOTTEN_S = 300.0  # who does not come within this is news again
# Kernel-side send timeout (struct timeval): nobody waits forever on a switch that does not read.
_SEND_TIMEOUT = struct.pack("ll", 10, 0)


class ChannelLostError(Exception):
    """The connection ended, or no answer came in time."""


class NonsenseError(ChannelLostError):
    """What came is no OpenFlow."""


class Ticket:
    """A batch of messages with one final answer; refusals of any of them are collected.
    ``labels`` say what each message is. ``is_question``: it changes nothing, so nobody need know
    how it ends."""

    def __init__(self, xids: list[int], labels: list[str], is_question: bool = False) -> None:
        self._done = threading.Event()
        self._lost = ""
        self.xids = xids
        self.labels = labels
        self.is_question = is_question
        self.replies: list[Any] = []
        self.errors: list[tuple[int, Any]] = []

    def is_done(self, within_s: float = 0.0) -> bool:
        """Whether the answer is complete, or will never come."""
        return self._done.wait(within_s)

    def wait(self, timeout_s: float) -> None:
        """Until the answer is complete. Raises ChannelLostError."""
        if not self._done.wait(timeout_s):
            raise ChannelLostError(f"no answer within {timeout_s:g} s")
        if self._lost:
            raise ChannelLostError(self._lost)

    def finish(self, lost: str = "") -> None:
        """The answer is complete, or will never come."""
        self._lost = lost
        self._done.set()


class Channel:
    """A connected switch, from the handshake to the end of the connection.

    ``serve`` runs in a thread of its own and reads everything the switch says; other threads
    ``submit`` messages and wait for their tickets.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._stream = sock.makefile("rb")
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._tickets: dict[int, Ticket] = {}
        self._xid = 0
        self._closed = False
        self.dpid = 0
        self.auxiliary_id = 0
        self.term = 0  # that we lead in, as the switch knows
        self._passed_over: set[int] = set()  # types of messages that cannot be read
        self._heard = True
        self.silent_s = 0.0  # for how long nothing has come
        self.peer = _peer(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet."""
        return not self._closed

    def handshake(self, term: int) -> None:
        """Exchange hellos and learn the datapath id, and lead in a term but 0. Raises
        ChannelLostError."""
        self._sock.settimeout(_HANDSHAKE_S)
        try:
            self._send([wire.hello()])
            hello = self._read()
            if wire.header(hello)[1] != wire.HELLO:
                raise ChannelLostError("the first message is no OpenFlow hello")
            if wrong := wire.other_versions(hello):
                raise ChannelLostError(
                    f"it speaks OpenFlow {wrong}, expected 1.3 (Open vSwitch: ovs-vsctl set bridge "
                    "NAME protocols=OpenFlow13)"
                )
            self._send([wire.features_request()])
            while not self.dpid:
                data = self._read()
                version, _, _, _ = wire.header(data)
                if version != wire.VERSION:
                    raise ChannelLostError(f"OpenFlow version {version:#x}, expected 0x4 (1.3)")
                message = self._decode(data)
                self.dpid = getattr(message, "datapath_id", 0)
                self.auxiliary_id = getattr(message, "auxiliary_id", 0)
            if term:
                self._send([wire.lead_request(term)], [_ROLE_XID])
                while not self.term:
                    message = self._decode(self._read())
                    if getattr(message, "xid", 0) == _ROLE_XID:
                        _check_leads(message)
                        self.term = term
        except OSError as error:
            raise ChannelLostError(f"handshake: {error}") from error
        self._sock.settimeout(None)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)

    def lead(self, term: int, timeout_s: float) -> None:
        """Lead this switch in a term; where one of a later term does, hang up."""
        ticket = self.submit([], last=wire.lead_request(term))
        try:
            ticket.wait(timeout_s)
            for _, error in ticket.errors:
                _check_leads(error)
        except ChannelLostError as error:
            self.close(str(error))
        else:
            self.term = term

    def serve(self, on_message: Callable[[Any], object]) -> str:
        """Read until the connection ends; what answers no ticket goes to ``on_message``. Returns
        what was wrong with the last message, "" for nothing."""
        reason = wrong = ""
        try:
            while True:
                data = self._read()
                message = self._decode(data)
                self._heard = True
                if message is None:
                    self._pass_over(data[1])
                elif isinstance(message, wire.PARSER.OFPEchoRequest):
                    self._send([wire.echo_reply(message)], [message.xid])
                elif not self._answer(message):
                    try:
                        on_message(message)
                    except Exception as error:  # what it lacks, nobody knows beforehand
                        kind = f"{type(message).__name__} ({type(error).__name__}: {error})"
                        raise NonsenseError(f"a message that makes no sense: {kind}") from error
        except (ChannelLostError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            wrong = reason if isinstance(error, NonsenseError) else ""
        finally:
            self.close(reason or "the connection was closed")
        return wrong

    def submit(self, messages: Iterable[Message], *, last: Any = None) -> Ticket:
        """Send messages and ``last`` (a barrier where not given), whose answer ends the ticket.

        The ticket's ``errors`` name refused messages by their position. Raises nothing: a lost
        connection ends the ticket.
        """
        labelled = [*messages, (last, "a request") if last else (wire.barrier(), "a barrier")]
        batch, labels = [message for message, _ in labelled], [label for _, label in labelled]
        is_question = all(map(wire.is_question, batch[:-1] or batch))
        with self._lock:
            ticket = Ticket([self._next_xid() for _ in batch], labels, is_question)
            if self._closed:
                ticket.finish("the connection was closed")
                return ticket
            self._tickets.update((xid, ticket) for xid in ticket.xids)
        try:
            self._send(batch, ticket.xids)
        except OSError as error:
            self.close(f"sending: {error}")
        return ticket

    def ask_for_life(self, after_s: float) -> None:
        """Take in whether anything has come in these seconds, and ask for an answer. Waits for
        nobody: what cannot be sent now would not be answered either."""
        self.silent_s = 0.0 if self._heard else self.silent_s + after_s
        self._heard = False
        if self._write_lock.acquire(blocking=False):
            try:
                ready = select.poll()
                ready.register(self._sock, select.POLLOUT)
                if ready.poll(0):
                    self._sock.sendall(wire.encode(wire.echo_request(), 0))
            except (OSError, ValueError):  # it was closed: whoever reads tells
                LOG.debug("switch %s closed its connection", format_dpid(self.dpid))
            finally:
                self._write_lock.release()

    def answers(self, within_s: float) -> bool:
        """Whether the switch at the other end is still there."""
        ticket = self.submit([])
        for _ in range(2):  # where we were stopped in the first, its answer lies unread
            with suppress(ChannelLostError):
                ticket.wait(within_s / 2)
                return True
        return False

    def close(self, reason: str = "the connection was closed") -> None:
        """End the connection and every ticket that waits on it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._end(lambda ticket: True, reason)
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            LOG.debug("switch %s had closed its connection already", format_dpid(self.dpid))
        self._sock.close()

    def drop_questions(self) -> None:
        """Wait for no answer any more; for the end of changes all the same."""
        self._end(lambda ticket: ticket.is_question, "it does not answer")

    def drop(self, dropped: Ticket) -> None:
        """Wait for a ticket no more."""
        self._end(lambda ticket: ticket is dropped, "it does not answer")

    def _end(self, which: Callable[[Ticket], bool], reason: str) -> None:
        with self._lock:
            ending = {ticket for ticket in self._tickets.values() if which(ticket)}
            self._tickets = {x: t for x, t in self._tickets.items() if t not in ending}
        for ticket in ending:
            ticket.finish(reason)

    def _pass_over(self, kind: int) -> None:
        if kind not in self._passed_over:
            self._passed_over.add(kind)
            LOG.warning(
                "switch %s sent a message of type %d that cannot be read: such are passed over",
                format_dpid(self.dpid), kind,
            )  # fmt: skip

    @staticmethod
    def _decode(data: bytes) -> Any:
        try:
            return wire.decode(data)
        except Exception as error:
            # The library's decoders raise whatever a wrong length or number leads them to.
            kind = type(error).__name__
            raise NonsenseError(
                f"a message of type {data[1]} and {len(data)} bytes that is none ({kind})"
            ) from error

    def _answer(self, message: Any) -> bool:
        with self._lock:
            ticket = self._tickets.get(message.xid)
            if ticket is None:
                return False
            if isinstance(message, wire.PARSER.OFPErrorMsg):
                ticket.errors.append((ticket.xids.index(message.xid), message))
            else:
                ticket.replies.append(message)
            is_last = message.xid == ticket.xids[-1] and not wire.more_follows(message)
            if is_last:
                for xid in ticket.xids:
                    del self._tickets[xid]
        if is_last:
            ticket.finish()
        return True

    def _next_xid(self) -> int:
        # 0 is what switches use for messages of their own.
        self._xid = self._xid % 0x7FFF_FFFF + 1
        return self._xid

    def _send(self, messages: list[Any], xids: list[int] | None = None) -> None:
        numbers = xids or [0] * len(messages)
        data = b"".join(wire.encode(m, x) for m, x in zip(messages, numbers, strict=True))
        with self._write_lock:
            self._sock.sendall(data)

    def _read(self) -> bytes:
        head = self._take(wire.HEADER_BYTES)
        if head.startswith(_TLS):
            raise ChannelLostError(
                "it speaks TLS, expected tcp (ovs-vsctl set-controller NAME tcp:…)"
            )
        length = wire.header(head)[2]
        if length < wire.HEADER_BYTES:
            raise ChannelLostError(f"a message of {length} bytes, expected 8 or more")
        return head + self._take(length - wire.HEADER_BYTES)

    def _take(self, n_bytes: int) -> bytes:
        data = self._stream.read(n_bytes)
        if len(data) < n_bytes:
            raise ChannelLostError("the switch closed the connection")
        return data


def _check_leads(answer: Any) -> None:
    """Raises ChannelLostError where a broker of a later term leads. A switch that knows no roles
    obeys everybody."""
    if isinstance(answer, wire.PARSER.OFPErrorMsg) and wire.is_of_earlier_term(answer):
        raise ChannelLostError("another broker leads it, in a later term")


def _peer(sock: socket.socket) -> str:
    """The address at the other end, "?" where there is none."""
    try:
        address = sock.getpeername()
    except OSError:
        return "?"
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "?"


def parse_listen(listen: str) -> tuple[str, int]:
    """``HOST:PORT`` taken apart. Raises InputError."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise InputError(
            f"OpenFlow controller: found {listen!r}, expected HOST:PORT such as 127.0.0.1:6653"
        )
    return host.strip("[]"), int(port)


class Connections(SwitchBackend):
    """Accepts OpenFlow connections at ``address`` and keeps one channel for each known switch."""

    is_fenced = True

    def __init__(
        self,
        address: tuple[str, int],
        names: Mapping[int, str],
        reply_timeout_s: float,
        silent_after_s: float,
    ) -> None:
        super().__init__(names)
        self._address = address
        self._reply_timeout_s = reply_timeout_s
        self._silent_after_s = silent_after_s
        self._silent: set[int] = set()
        self._mute: set[int] = set()  # those that answered too late, and nothing since
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._channels: dict[int, Channel] = {}
        self._greeting: set[Channel] = set()
        # Of others with the id of a connected switch, those that came first: connected, but not
        # used; and where the last of them was, and the monotonic second at which it went.
        self._rivals: dict[int, Channel] = {}
        self._rivals_gone: dict[int, tuple[str, float]] = {}
        self._auxiliary: set[int] = set()  # switches with connections that are not used
        # Who was hung up on, and why; and the monotonic second of the last time.
        self._turned_away: dict[tuple[str, str], float] = {}
        self._listener: socket.socket | None = None
        self._term = 0  # that we lead in, where several brokers have the switches
        self._stands_by = False
        self._threads: set[threading.Thread] = set()

    def stand_by(self) -> None:
        """Raises ControllerError."""
        self._stands_by = True
        self._listen()

    def lead(self, term: int) -> None:
        self._term = term

    def open(self) -> None:
        """Listen. Raises ControllerError where the address cannot be had."""
        self._stands_by = False
        if self._listener is None:
            self._listen()
            return
        with self._lock:
            channels = list(self._channels.values())
        for channel in channels:
            self._spawn(self._take_over, channel)  # none waits for another

    def _take_over(self, channel: Channel) -> None:
        channel.lead(self._term, self._reply_timeout_s)
        if channel.is_open:
            self._use(channel)

    def _listen(self) -> None:
        host, port = self._address
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # "::" is all addresses, as in broker.listen.
            both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
            listener = socket.create_server(address[:2], family=family, dualstack_ipv6=both)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]
            raise ControllerError(
                f"cannot listen for switches on {host}:{port}: {reason}; expected a free port of "
                "this machine (is another broker running?)"
            ) from error
        self._listener = listener
        self._closing.clear()
        self._spawn(self._accept, listener)
        self._spawn(self._notice_silence, self._closing)

    @property
    def port(self) -> int:
        """The port that is listened on. Raises ControllerError where nothing is."""
        if self._listener is None:
            raise ControllerError("the OpenFlow controller is not started")
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Hang up on every switch, stop listening, and wait for the threads to end."""
        self._closing.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            # Wakes the thread that waits in accept; close alone would not.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            channels = [*self._channels.values(), *self._greeting, *self._rivals.values()]
            threads = list(self._threads)
        for channel in channels:
            channel.close("the controller was stopped")
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(self._reply_timeout_s)

    def expectation(self) -> str:
        return (
            f"to {self._address[0]}:{self.port}, expected the switches' controller to be set to "
            "that address"
        )

    def connected(self) -> set[int]:
        """The datapath ids of the switches that are connected now, and not silent."""
        with self._lock:
            there = {dpid for dpid, channel in self._channels.items() if channel.is_open}
            return there - self._silent - self._mute

    def trouble(self, dpid: int) -> str:
        with self._lock:
            there, silent = dpid in self._channels, dpid in self._silent | self._mute
        if there and silent:
            return "does not answer"
        rival = self._rival(dpid) if there else ""
        return rival and f"has the datapath id of another switch, at {rival}, which is not used"

    def turned_away(self) -> str:
        since = time.monotonic() - _TURNED_AWAY_S
        with self._lock:
            lately = [
                f"{host} {why}" for (host, why), at in self._turned_away.items() if at > since
            ]
        # The first by name: what is said is to stay the same while they come again and again.
        return min(lately, default="")

    def _rival(self, dpid: int) -> str:
        """Where another switch with this one's datapath id is connected from, or was a moment
        ago; "" for none."""
        with self._lock:
            if dpid in self._rivals:
                return _host(self._rivals[dpid])
            host, gone_at = self._rivals_gone.get(dpid, ("", -math.inf))
        return host if time.monotonic() - gone_at < _RIVAL_S else ""

    def _notice_silence(self, closing: threading.Event) -> None:
        before = time.monotonic()
        while not closing.wait(_ECHO_S):
            now = time.monotonic()
            late, before = now - before > _LATE_S, now
            with self._lock:
                channels = list(self._channels.items())
            for dpid, channel in channels:
                # Who comes late is on a busy machine, where answers lie unread as well.
                channel.ask_for_life(0.0 if late else _ECHO_S)
                silent = channel.silent_s >= self._silent_after_s
                with self._lock:
                    was_silent = dpid in self._silent
                    (self._silent.add if silent else self._silent.discard)(dpid)
                if silent:
                    channel.drop_questions()
                if was_silent and not silent and dpid not in self._mute and not self._stands_by:
                    # What was changed meanwhile it does not have.
                    self._greet(dpid, SwitchChange.ANSWERS)

    @abstractmethod
    def _greet(self, dpid: int, change: SwitchChange = SwitchChange.CONNECTED) -> None:
        """A switch is there: it has connected, or answers again."""

    @abstractmethod
    def _hear(self, dpid: int, message: Any) -> None:
        """A switch says something that nobody asked for."""

    def _submit(self, dpid: int, messages: Sequence[Message], last: Any = None) -> Ticket:
        with self._lock:
            channel = self._channels.get(dpid)
        if channel is None:
            ticket = Ticket([], [])
            ticket.finish("it is not connected")
            return ticket
        return channel.submit(messages, last=last)

    def _wait(self, dpid: int, ticket: Ticket, problems: list[str]) -> list[tuple[int, Any]]:
        """The refusals of a batch; a switch that did not answer is added to ``problems``, and hung
        up on where it is not known to be silent."""
        try:
            ticket.wait(self._reply_timeout_s)
        except ChannelLostError as error:
            problems.append(f"{self.label(dpid)}: {error}")
            with self._lock:
                channel = self._channels.get(dpid)
            if channel is not None and not ticket.is_done():
                # It reconnects and, once it answers, is brought to the state that is wanted.
                with self._lock:
                    self._mute.add(dpid)
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
        reported = ""
        while True:
            try:
                sock, _ = listener.accept()
            except OSError as error:  # too many open files, a peer that went, or we close
                if self._closing.wait(_ECHO_S):
                    return
                if (problem := str(error.strerror)) != reported:
                    LOG.warning("a connection of a switch was not taken: %s", problem)
                reported = problem
            else:
                reported = ""
                self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        channel = Channel(sock)
        with self._lock:
            self._greeting.add(channel)
        try:
            channel.handshake(self._term)
        except ChannelLostError as error:
            if self._is_news(channel, f"was disconnected: {error}"):
                LOG.warning("an OpenFlow connection from %s was dropped: %s", channel.peer, error)
            channel.close(str(error))
            return
        finally:
            with self._lock:
                self._greeting.discard(channel)
        dpid = channel.dpid
        # Auxiliary connections are an option (OpenFlow 1.3, 6.3.7), which nothing here needs.
        if dpid not in self._names or channel.auxiliary_id:
            self._report_unused(channel)
            channel.close()
            return
        with self._lock:
            before = self._channels.get(dpid)
        if before is not None and before.answers(_ALIVE_S):
            if not self._rival(dpid):  # it will come again and again
                LOG.warning(
                    "%s is connected from %s, and so is another switch from %s: two switches have "
                    "the same datapath id, and the second is not used",
                    self.label(dpid), before.peer, channel.peer,
                )  # fmt: skip
            self._keep_rival(dpid, channel)
            return
        with self._lock:
            if self._listener is None or channel.term != self._term:  # it led since
                channel.close()
                return
            before = self._channels.get(dpid)
            self._channels[dpid] = channel
            self._silent.discard(dpid)
        if before is not None:
            before.close("the switch connected again")
        LOG.info("%s connected", self.label(dpid))
        self._use(channel)
        try:
            wrong = channel.serve(lambda message: self._stands_by or self._hear(dpid, message))
        finally:
            with self._lock:
                if self._channels.get(dpid) is channel:
                    del self._channels[dpid]
                rival = self._rivals.get(dpid)
            if rival is not None:
                rival.close("the switch with its datapath id has gone")  # it may come again
        if wrong:
            LOG.warning("%s was disconnected: it sent %s", self.label(dpid), wrong)
        LOG.info("%s disconnected", self.label(dpid))

    def _use(self, channel: Channel) -> None:
        """Use a switch from now on, unless we stand by; one that answered too late the last time,
        once it answers."""
        if self._stands_by:
            return
        if channel.dpid in self._mute:
            self._spawn(self._await_answer, channel)
        else:
            self._greet(channel.dpid)

    def _await_answer(self, channel: Channel) -> None:
        with suppress(ChannelLostError):
            while channel.dpid in self._mute:
                barrier = wire.barrier(), "a barrier"
                ticket = channel.submit([barrier], last=wire.port_descriptions_request())
                if ticket.is_done(self._reply_timeout_s):
                    ticket.wait(0.0)
                    with self._lock:
                        self._mute.discard(channel.dpid)
                    self._greet(channel.dpid)
                else:
                    channel.drop(ticket)

    def _is_news(self, channel: Channel, why: str) -> bool:
        """Whether nobody was turned away from there lately for that reason; now somebody is."""
        now, who = time.monotonic(), (_host(channel), why)
        with self._lock:
            lately = {key: at for key, at in self._turned_away.items() if now - at < _FORGOTTEN_S}
            self._turned_away = dict(list(lately.items())[-_MOST_STRANGERS:]) | {who: now}
        return who not in lately and len(lately) < _MOST_STRANGERS

    def _report_unused(self, channel: Channel) -> None:
        """Log a connection that is not used, once: it will come again and again."""
        dpid = channel.dpid
        if dpid not in self._names:
            number = format_dpid(dpid)
            if self._is_news(channel, f"has dpid {number}, which is none of the topology's"):
                ours = ", ".join(map(format_dpid, sorted(self._names)))
                LOG.warning(
                    "a switch with dpid %s connected from %s, expected one of %s",
                    number, channel.peer, ours,
                )  # fmt: skip
        elif dpid not in self._auxiliary:
            self._auxiliary.add(dpid)
            LOG.warning(
                "%s has an auxiliary connection from %s, which is not used",
                self.label(dpid), channel.peer,
            )  # fmt: skip

    def _keep_rival(self, dpid: int, channel: Channel) -> None:
        """Stay connected with a switch that is not used, to see when it goes: with one for each
        datapath id."""
        with self._lock:
            is_first = self._listener is not None and dpid not in self._rivals
            if is_first:
                self._rivals[dpid] = channel
        if not is_first:
            channel.close()
            return
        try:
            channel.serve(lambda _: None)
        finally:
            with self._lock:
                del self._rivals[dpid]
                self._rivals_gone[dpid] = _host(channel), time.monotonic()


def _host(channel: Channel) -> str:
    return channel.peer.rpartition(":")[0]
