"""An OpenFlow 1.3 switch with a flow table and no packets, over a real TCP connection.

Written from the specification with ``struct``, so that it shares no code with what it tests.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY = 0, 1, 2, 3, 5, 6
FLOW_REMOVED, FLOW_MOD, GROUP_MOD, MULTIPART_REQUEST, MULTIPART_REPLY = 11, 14, 15, 18, 19
BARRIER_REQUEST, BARRIER_REPLY, METER_MOD = 20, 21, 29
ROLE_REQUEST, ROLE_REPLY = 24, 25
PACKET_IN, PORT_STATUS, PACKET_OUT, PORT_DESC = 10, 12, 13, 13
ADD, DELETE, DELETE_STRICT = 0, 3, 4
FLOW_STATS, PORT_STATS, GROUP_DESC, METER_CONFIG, METER_FEATURES = 1, 4, 7, 10, 11
TABLE_STATS, TABLE_FEATURES = 3, 12
SEND_FLOW_REM = 1
PUNTING = 0xAD1D  # the cookies of rules that send probes to the controller begin so
HARD_TIMEOUT, DELETED = 1, 2
_FROM = "127.0.0.2"


@dataclass
class Entry:
    """One row of the table; ``rest`` is the match and the instructions as they came."""

    priority: int
    cookie: int
    hard_timeout: int
    flags: int
    match: bytes
    rest: bytes
    since: float
    bytes: int = 0


class FakeSwitch:
    """Connects to a controller again and again until it is closed."""

    def __init__(
        self,
        port: int,
        dpid: int,
        ports: list[int],
        clock: Callable[[], float] = time.time,
        has_meters: bool = False,
        table: dict[tuple[int, bytes], Entry] | None = None,
        auxiliary_id: int = 0,
    ) -> None:
        self._clock = clock
        self.auxiliary_id = auxiliary_id
        self.names: dict[int, str] = {}  # of ports
        self._address = ("127.0.0.1", port)
        self.dpid = dpid
        self._ports = ports
        self.lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._open = True
        self.table = {} if table is None else table
        # Groups and meters, as they came behind their command.
        self.groups: dict[int, bytes] = {}
        self.meters: dict[int, bytes] = {}
        self.rounds = False  # whether meters have other rates and bursts than they were sent
        # Meters are something that a switch may not have.
        self.has_meters = has_meters
        # What becomes of its answers on the way, but for greetings.
        self.mangle: Callable[[bytes], bytes] = lambda answer: answer
        # Called with the message's type before anything but a greeting is done.
        self.on_message: Callable[[int], None] = lambda kind: None
        self.unknown: set[int] = set()  # what is not known to multipart requests
        self.mods = 0
        self.listed = 0  # rules in answers
        self.refuse_adds = False
        self.size = 0  # of the table, where it says that; 0: it does not
        self.evicts = False  # whether the oldest rules make room for others
        self.down: set[int] = set()
        self.config: dict[int, int] = {}  # of ports, as in OFPPC_*
        self.speeds: dict[int, tuple[int, int, int, int]] = {}  # features, most, kb/s, most kb/s
        self.wires: dict[int, tuple[FakeSwitch, int]] = {}  # where a port's frames come out
        self.carried: dict[int, tuple[int, int]] = {}  # bytes received and sent by a port
        self.lost_frames = 0  # that the controller has it send, the next ones
        self.silent = False
        self.term = 0  # of the last master, its generation id
        self.connections = 0
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up for good."""
        self._open = False
        self.hang_up()
        self._thread.join(10)

    def hang_up(self) -> None:
        """Hang up; it connects again."""
        with self.lock:
            if self._sock is not None:
                # It may have hung up by itself meanwhile.
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)

    def restart(self) -> None:
        """Lose all rules and connect again."""
        with self.lock:
            self.table.clear()
            self.groups.clear()
            self.meters.clear()
        self.hang_up()

    def set_port(self, number: int, up: bool) -> None:
        """A port goes down or up, and the controller is told (reason: modified)."""
        (self.down.discard if up else self.down.add)(number)
        self.say(_message(PORT_STATUS, 0, struct.pack("!B7x", 2) + self._port(number)))

    def _port(self, number: int) -> bytes:
        down, config = int(number in self.down), self.config.get(number, 0)
        features, most, kbps, most_kbps = self.speeds.get(number, (0, 0, 0, 0))
        name = self.names.get(number, "eth").encode()
        return struct.pack(
            "!I4x6s2x16s8I",
            number, b"", name, config, down, features, 0, most, 0, kbps, most_kbps,
        )  # fmt: skip

    def _forward(self, data: bytes, xid: int) -> bytes:
        """Have a frame come out where a wire leads to, for the controller if a rule says so."""
        (length,) = struct.unpack_from("!H", data, 16)
        (port,) = struct.unpack_from("!I", data, 28)
        if self.lost_frames:
            self.lost_frames -= 1
        elif port in self.wires:
            other, number = self.wires[port]
            punts = any(e.cookie >> 48 == PUNTING for e in list(other.table.values()))
            match = struct.pack("!HHII4x", 1, 12, 0x80000004, number)
            frame = data[24 + length :]
            head = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 0)
            if punts:
                other.say(_message(PACKET_IN, 0, head + match + b"\0\0" + frame))
        # OFPET_BAD_ACTION, OFPBAC_BAD_OUT_PORT
        refusal = _message(ERROR, xid, struct.pack("!HH", 2, 4) + data[:64])
        return b"" if port in self._ports else refusal

    def put(self, entry: Entry) -> None:
        """Have a rule that nobody sent."""
        with self.lock:
            self.table[entry.priority, entry.match] = entry

    def say(self, data: bytes) -> None:
        """Send anything."""
        with self.lock:
            if self._sock is not None:
                self._sock.sendall(data)

    def _live(self) -> None:
        while self._open:
            try:
                # From another address: while nobody listens at a port that the kernel also gives
                # to who connects, a socket may be given it and connect to itself.
                with socket.create_connection(self._address, 5, (_FROM, 0)) as sock:
                    sock.settimeout(0.05)
                    with self.lock:
                        self._sock = sock
                        self.connections += 1
                    self._talk(sock)
            except OSError:
                time.sleep(0.01)
            finally:
                with self.lock:
                    self._sock = None

    def _talk(self, sock: socket.socket) -> None:
        data = b""
        while self._open:
            try:
                more = sock.recv(65536)
                if not more:
                    return
                data += more
            except TimeoutError:
                self._expire(sock)
                continue
            while len(data) >= 8 and len(data) >= (length := struct.unpack_from("!H", data, 2)[0]):
                self._expire(sock)
                answer = self._answer(data[:length])
                if data[1] not in (HELLO, FEATURES_REQUEST):
                    answer = self.mangle(answer)
                if answer and not self.silent:
                    with self.lock:
                        sock.sendall(answer)
                data = data[length:]

    def _answer(self, data: bytes) -> bytes:
        _, kind, _, xid = struct.unpack_from("!BBHI", data)
        if kind in (HELLO, ECHO_REQUEST):
            return _message(HELLO if kind == HELLO else ECHO_REPLY, xid)
        if kind == FEATURES_REQUEST:
            features = struct.pack("!QIBBxxII", self.dpid, 0, 1, self.auxiliary_id, 0, 0)
            return _message(FEATURES_REPLY, xid, features)
        self.on_message(kind)
        answer = b""
        if kind == BARRIER_REQUEST:
            return _message(BARRIER_REPLY, xid)
        if kind == PACKET_OUT:
            answer = self._forward(data, xid)
        elif kind == ROLE_REQUEST:
            answer = self._lead(data, xid)
        with self.lock:
            if kind in (GROUP_MOD, METER_MOD):
                return self._entry_mod(kind, data, xid)
            if kind == FLOW_MOD:
                return self._flow_mod(data, xid)
            return self._multipart(data, xid) if kind == MULTIPART_REQUEST else answer

    def _lead(self, data: bytes, xid: int) -> bytes:
        """Obey a master, unless one of a later term was here."""
        (term,) = struct.unpack_from("!Q", data, 16)
        if term < self.term:  # OFPET_ROLE_REQUEST_FAILED, OFPRRFC_STALE
            return _message(ERROR, xid, struct.pack("!HH", 11, 0) + data[:64])
        self.term = term
        return _message(ROLE_REPLY, xid, data[8:24])

    def _flow_mod(self, data: bytes, xid: int) -> bytes:
        cookie, mask, _, command, _, hard, priority = struct.unpack_from("!QQBBHHH", data, 8)
        (flags,) = struct.unpack_from("!H", data, 44)
        (match_length,) = struct.unpack_from("!H", data, 50)
        match, rest = data[48 : 48 + match_length], data[48:]
        key = (priority, match)
        answer = b""
        self.mods += 1
        if command == ADD:
            full = bool(self.size) and key not in self.table and len(self.table) >= self.size
            if full and self.evicts:
                oldest = min(self.table, key=lambda k: self.table[k].since)
                answer = self._removed(self.table.pop(oldest), DELETED)
            elif full or self.refuse_adds:
                # OFPET_FLOW_MOD_FAILED, OFPFMFC_TABLE_FULL, then 64 bytes of the request.
                return _message(ERROR, xid, struct.pack("!HH", 5, 1) + data[:64])
            before = self.table.get(key)
            self.table[key] = Entry(
                priority, cookie, hard, flags, match, rest, self._clock(),
                before.bytes if before else 0,
            )  # fmt: skip
            return answer
        elif command in (DELETE, DELETE_STRICT):
            gone = [
                k
                for k, e in self.table.items()
                if e.cookie & mask == cookie & mask and (command == DELETE or k == key)
            ]
            return b"".join(self._removed(self.table.pop(k), DELETED) for k in gone)
        return b""

    def change(self, how: Callable[[Entry], Entry]) -> None:
        """Somebody else changes all rules at once; the controller is not told."""
        with self.lock:
            for key, entry in self.table.items():
                self.table[key] = how(entry)

    def lose(self, quietly: bool = False, cookies: Callable[[int], bool] = bool) -> None:
        """Somebody else deletes rules; ``quietly``: the controller is not told."""
        with self.lock:
            gone = [k for k, e in self.table.items() if cookies(e.cookie)]
            messages = b"".join(self._removed(self.table.pop(k), DELETED) for k in gone)
            if messages and not quietly and self._sock is not None:
                self._sock.sendall(messages)

    def _removed(self, entry: Entry, reason: int) -> bytes:
        """The controller's notice of a removed rule, where it asked for that."""
        if not entry.flags & SEND_FLOW_REM:
            return b""
        body = struct.pack(
            "!QHBBIIHHQQ", entry.cookie, entry.priority, reason, 0,
            entry.hard_timeout, 0, 0, entry.hard_timeout, 0, entry.bytes,
        )  # fmt: skip
        padded = entry.match.ljust(-(-len(entry.match) // 8) * 8, b"\0")
        return _message(FLOW_REMOVED, 0, body + padded)

    def _entry_mod(self, kind: int, data: bytes, xid: int) -> bytes:
        """ADD, MODIFY and DELETE have the same numbers for both."""
        command, middle, number = struct.unpack_from("!HHI", data, 8)
        there = self.groups if kind == GROUP_MOD else self.meters
        self.mods += 1
        if command == 2:
            there.pop(number, None)
        elif (command == 1) != (number in there):
            # OFPET_GROUP_MOD_FAILED or OFPET_METER_MOD_FAILED: it exists, or does not.
            return _message(ERROR, xid, struct.pack("!HH", 6 if kind == GROUP_MOD else 12, 1))
        else:
            length = len(data) - 8
            there[number] = struct.pack("!HHI", length, middle, number) + data[16:]
            if self.rounds and kind == METER_MOD:  # to whole 64 kb/s, and to bursts that it has
                head, (rate, _) = there[number][:12], struct.unpack_from("!II", data, 20)
                there[number] = head + struct.pack("!II4x", -(-rate // 64) * 64, 64)
        return b""

    def _multipart(self, data: bytes, xid: int) -> bytes:
        (kind,) = struct.unpack_from("!H", data, 8)
        if kind in self.unknown:
            # OFPET_BAD_REQUEST, OFPBRC_BAD_MULTIPART
            return _message(ERROR, xid, struct.pack("!HH", 1, 2) + data[:64])
        if kind == PORT_STATS:
            body = [
                struct.pack("!I4x12QII", n, 0, 0, rx, tx, *([0] * 8), 1, 0)
                for n in self._ports
                for rx, tx in [self.carried.get(n, (0, 1000 + n))]
            ]
        elif kind == PORT_DESC:
            body = [self._port(n) for n in self._ports]
        elif kind == METER_FEATURES:
            if not self.has_meters:
                # OFPET_BAD_REQUEST, OFPBRC_BAD_MULTIPART
                return _message(ERROR, xid, struct.pack("!HH", 1, 2) + data[:64])
            body = [struct.pack("!IIIBBxx", 100, 1 << 1, 1 | 4, 1, 0)]
        elif kind in (TABLE_STATS, TABLE_FEATURES):
            if not self.size:
                return _message(ERROR, xid, struct.pack("!HH", 1, 2) + data[:64])
            counts = struct.pack("!B3xIQQ", 0, len(self.table), 0, 0)
            head = struct.pack("!HB5x32sQQII", 68, 0, b"table", 0, 0, 0, self.size)
            # A property: instructions, none.
            body = [counts if kind == TABLE_STATS else head + struct.pack("!HH", 0, 4)]
        elif kind in (GROUP_DESC, METER_CONFIG):
            body = list((self.groups if kind == GROUP_DESC else self.meters).values())
        else:
            cookie, mask = struct.unpack_from("!QQ", data, 32)
            body = [self._stats(e) for e in self.table.values() if e.cookie & mask == cookie & mask]
            self.listed += len(body)
        # Every entry in a part of its own: long answers come in parts.
        parts = [
            _message(MULTIPART_REPLY, xid, struct.pack("!HH4x", kind, 1) + entry) for entry in body
        ]
        return b"".join([*parts, _message(MULTIPART_REPLY, xid, struct.pack("!HH4x", kind, 0))])

    def _stats(self, entry: Entry) -> bytes:
        age = self._clock() - entry.since
        head = struct.pack(
            "!HBxIIHHHH4xQQQ", 48 + len(entry.rest), 0, int(age), int(age % 1 * 1e9),
            entry.priority, 0, entry.hard_timeout, entry.flags, entry.cookie, 0, entry.bytes,
        )  # fmt: skip
        return head + entry.rest

    def _expire(self, sock: socket.socket) -> None:
        now = self._clock()
        with self.lock:
            ended = [
                (key, entry)
                for key, entry in self.table.items()
                if entry.hard_timeout and now - entry.since >= entry.hard_timeout
            ]
            for key, entry in ended:
                del self.table[key]
                if not self.silent:
                    sock.sendall(self._removed(entry, HARD_TIMEOUT))


def _message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body
