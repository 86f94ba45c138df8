"""An iRODS zone: a real end point of the protocol (4.3) for the real client.

    python -m examples.testbed.irods_zone VAULT ADDRESS PORT     serves until it ends

Tests have one in their own process.

Its catalogue is in memory and its data objects are files of one folder. Every connection has a
thread. What can go wrong in a zone is set on it: ``rate_bps``, ``latency_s``,
``trickle_s`` for each byte of long answers, ``faults``,
``parallel``, ``denied``, or falsified in its catalogue (``zone.objects[path][0].size = 7``).
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import itertools
import json
import os
import re
import secrets
import signal
import socket
import socketserver
import ssl
import struct
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

CALLS = {110000: "login", 702: "query", 602: "open", 20000: "open_info", 674: "seek", 675: "read"}
CALLS |= {676: "write", 673: "close", 20004: "close_replica", 629: "checksum"}
CALLS |= {681: "create_collection"}
UNMATCHED_API, NO_API_PRIV = -12000, -13000
BAD_DESCRIPTOR, NO_SUCH_OBJECT, REPLICA_INACCESSIBLE = -345000, -358000, -168000
LOCKED_OBJECT, HIERARCHY_ERROR = -406000, -1803000
NO_ROWS, NO_SUCH_COLLECTION, IS_COLLECTION = -808000, -814000, -833000
INVALID_ARGUMENT, NO_PERMISSION = -816000, -818000
WRONG_PASSWORD, NO_SUCH_USER, PAM_FAILED = -826000, -827000, -993000
GOOD, STALE, BEING_WRITTEN = "1", "0", "2"
WRITING, CREATE, TRUNCATE = 3, 64, 512
CREATED = "01790000000"
Row = dict[int, object]
_LONG = 100_000  # bytes of an answer with data


class RodsError(Exception):
    """A call that is answered with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


@dataclass
class Fault:
    """What happens to the next ``times`` calls of this name, once it moved ``after`` bytes.

    ``action`` is "drop" (the connection), "hang" (until the zone ends) or an error code.
    """

    call: str
    action: str | int
    after: int = 0
    times: int = 1


@dataclass
class Replica:
    """A data object's bytes on one resource, as the catalogue knows them."""

    number: int
    resource: str
    path: Path
    owner: str
    size: int = 0
    checksum: str = ""
    status: str = GOOD
    token: str = ""
    writers: int = 0


@dataclass
class OpenObject:
    """What a connection holds open."""

    replica: Replica
    fd: int
    logical: str
    writing: bool
    keywords: Mapping[str, str]
    position: int = 0


@dataclass
class Zone:
    """``with Zone(folder) as zone``: serves on 127.0.0.1:``zone.port`` until it ends.

    ``pam`` are the passwords of those who log in with pam_password, ``tls`` the files of the
    server's certificate and key: without them it speaks plain text.
    """

    folder: Path
    name: str = "tempZone"
    users: dict[str, str] = field(default_factory=lambda: {"rods": "secret"})
    pam: dict[str, str] = field(default_factory=dict)
    tls: tuple[str, str] | None = None
    resources: dict[str, str] = field(default_factory=lambda: {"demoResc": "localhost"})
    version: str = "4.3.4"
    host: str = "127.0.0.1"
    port: int = 0
    rate_bps: float = 0.0
    latency_s: float = 0.0
    trickle_s: float = 0.0
    parallel: bool = True
    denied: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    streams: Counter[int] = field(default_factory=Counter)
    objects: dict[str, list[Replica]] = field(default_factory=dict)
    collections: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self.tickets: dict[str, list[str]] = {}
        self.connections: set[socket.socket] = set()
        self._ids = itertools.count(10001)
        self._object_ids: dict[str, int] = {}
        self.context = None
        if self.tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*self.tls)
        for user in (*self.users, *self.pam):
            self.make_collection(f"/{self.name}/home/{user}")

    def __enter__(self) -> Zone:
        zone = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                Connection(zone, self.request).run()

        class Server(socketserver.ThreadingTCPServer):
            request_queue_size = 128

        self.server = Server((self.host, self.port), Handler)
        self.port = int(self.server.server_address[1])
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        self.server.shutdown()
        self._thread.join()
        for connection in list(self.connections):
            _shut(connection)
        self.server.server_close()

    def home(self, user: str = "rods") -> str:
        return f"/{self.name}/home/{user}"

    def put(self, path: str, data: bytes, checksum: bool = True, resource: str = "") -> Replica:
        """A data object that is there; or one more replica of it."""
        with self.lock:
            replica = self.new_replica(path, resource, "rods")
            replica.path.write_bytes(data)
            replica.size, replica.status = len(data), GOOD
            replica.checksum = sha2(data) if checksum else ""
            return replica

    def data(self, path: str) -> bytes:
        """The bytes of a data object's good replica."""
        return next(r for r in self.objects[path] if r.status == GOOD).path.read_bytes()

    def make_collection(self, path: str) -> None:
        for parent in (*reversed(PurePosixPath(path).parents), PurePosixPath(path)):
            if str(parent) not in self.collections:
                self.collections[str(parent)] = next(self._ids)

    def new_replica(self, path: str, resource: str, owner: str) -> Replica:
        """A replica without data yet. Raises RodsError."""
        resource = resource or next(iter(self.resources))
        if resource not in self.resources:
            raise RodsError(HIERARCHY_ERROR)
        if path in self.collections:
            raise RodsError(IS_COLLECTION)
        if _parent(path) not in self.collections:
            raise RodsError(NO_SUCH_COLLECTION)
        replicas = self.objects.setdefault(path, [])
        number = self._object_ids.setdefault(path, next(self._ids))
        at = self.folder / f"{number}.{len(replicas)}"
        at.touch()
        replicas.append(Replica(len(replicas), resource, at, owner, status=STALE))
        return replicas[-1]

    def rows(self, tables: set[int], path: str = "") -> Iterator[Row]:
        """What GenQuery joins: replicas (of one path), collections, resources or the zone."""
        resources: dict[str, Row] = {
            name: {301: n, 302: name, 303: self.name, 306: host, 311: CREATED, 312: CREATED}
            for n, (name, host) in enumerate(self.resources.items())
        }
        if 4 in tables:
            for object_path in [path] if path else self.objects:
                for replica in self.objects.get(object_path, []):
                    yield self._object_row(object_path, replica) | resources[replica.resource]
        elif 5 in tables:
            yield from map(self._collection_row, self.collections)
        elif 3 in tables:
            yield from resources.values()
        elif 1 in tables:
            yield {101: 1, 102: self.name, 103: "local"}

    def _object_row(self, path: str, replica: Replica) -> Row:
        name, resource, parent = PurePosixPath(path).name, replica.resource, _parent(path)
        row = {401: self._object_ids[path], 402: self.collections[parent], 403: name}
        row |= {404: replica.number, 406: "generic", 407: replica.size, 409: resource}
        row |= {410: replica.path, 411: replica.owner, 412: self.name, 413: replica.status}
        row |= {415: replica.checksum, 417: 0, 419: CREATED, 420: CREATED, 422: resource}
        return row | {423: list(self.resources).index(resource)} | self._collection_row(parent)

    def _collection_row(self, path: str) -> Row:
        row: Row = {500: self.collections[path], 501: path, 502: _parent(path), 503: "rods"}
        return row | {504: self.name, 505: 0, 508: CREATED, 509: CREATED}


class Connection:
    """One client's connection, served in its thread until it is left."""

    def __init__(self, zone: Zone, sock: socket.socket) -> None:
        self.zone, self.sock = zone, sock
        self.user = ""
        self.challenge = b""
        self.open: dict[int, OpenObject] = {}
        self.pages: dict[int, list[tuple[str, ...]]] = {}

    def run(self) -> None:
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._known()
            self._start_up()
            while True:
                kind, message, data, call = self._receive()
                if kind == "RODS_DISCONNECT":
                    if isinstance(self.sock, ssl.SSLSocket):
                        self.sock.unwrap()
                    return
                self._answer(call, message, data)
        except (EOFError, OSError, ElementTree.ParseError):
            pass
        finally:
            for handle in self.open.values():
                self._release(handle, lost=True)
            self.zone.connections.discard(self.sock)
            _shut(self.sock)
            self.sock.close()

    def _known(self) -> None:
        """Who ends the zone ends this connection, too."""
        self.zone.connections.add(self.sock)
        if self.zone.closing.is_set():
            raise EOFError

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            got = self.sock.recv_into(view)
            if not got:
                raise EOFError
            view = view[got:]
        return bytes(data)

    def _receive(self) -> tuple[str, ElementTree.Element, bytes, int]:
        header = ElementTree.fromstring(self._exactly(struct.unpack(">i", self._exactly(4))[0]))
        numbers = [int(header.findtext(t) or 0) for t in ("msgLen", "errorLen", "bsLen", "intInfo")]
        message, _, data = (self._exactly(length) for length in numbers[:3])
        root = ElementTree.fromstring(message) if message else ElementTree.Element("none")
        return header.findtext("type") or "", root, data, numbers[3]

    def _send(
        self, message: str = "", data: bytes = b"", info: int = 0, kind: str = "RODS_API_REPLY"
    ) -> None:
        body = message.encode()
        lengths = {"msgLen": len(body), "errorLen": 0, "bsLen": len(data), "intInfo": info}
        header = _xml("MsgHeader_PI", type=kind, **lengths).encode()
        self._all(struct.pack(">i", len(header)) + header + body + data)

    def _start_up(self) -> None:
        _, message, _, _ = self._receive()
        use_tls = False
        if "request_server_negotiation" in (message.findtext("option") or ""):
            policy = "CS_NEG_REQUIRE" if self.zone.tls else "CS_NEG_REFUSE"
            self._send(_xml("CS_NEG_PI", status=1, result=policy), kind="RODS_CS_NEG_T")
            use_tls = "CS_NEG_USE_SSL" in (self._receive()[1].findtext("result") or "")
        if self.zone.context and not use_tls:
            raise EOFError
        version = {"status": 0, "relVersion": f"rods{self.zone.version}", "apiVersion": "d"}
        version |= {"reconnPort": 0, "reconnAddr": "", "cookie": 400}
        self._send(_xml("Version_PI", **version), kind="RODS_VERSION")
        if self.zone.context:
            self.zone.connections.discard(self.sock)
            self.sock = self.zone.context.wrap_socket(self.sock, server_side=True)
            self._known()
            self._exactly(struct.unpack(">i", self._exactly(4))[0])
            secret = ElementTree.fromstring(self._exactly(struct.unpack(">i", self._exactly(4))[0]))
            self._exactly(int(secret.findtext("msgLen") or 0))

    def _answer(self, number: int, message: ElementTree.Element, data: bytes) -> None:
        call = CALLS.get(number, "")
        with self.zone.lock:
            self.zone.calls[call or str(number)] += 1
        self.zone.closing.wait(self.zone.latency_s)
        try:
            self._suffer(call)
            if not call:
                raise RodsError(UNMATCHED_API)
            if not self.user and call != "login":
                raise RodsError(NO_API_PRIV)
            getattr(self, f"_{call}")(message, data)
        except RodsError as exc:
            self._send(info=exc.code)

    def _suffer(self, call: str) -> None:
        with self.zone.lock:
            moved = self.zone.moved[call]
            faults = (
                f for f in self.zone.faults if f.call == call and moved >= f.after and f.times
            )
            if not (fault := next(faults, None)):
                return
            fault.times -= 1
        if fault.action == "hang":
            self.zone.closing.wait()
        if isinstance(fault.action, int):
            raise RodsError(fault.action)
        raise EOFError

    def _moved(self, call: str, count: int) -> None:
        with self.zone.lock:
            self.zone.moved[call] += count
            self.zone.streams[id(self)] += count
        if self.zone.rate_bps:
            self.zone.closing.wait(count * 8 / self.zone.rate_bps)

    def _send_json(self, value: Mapping[str, Any]) -> None:
        data = json.dumps(value).encode()
        self._send(_xml("BinBytesBuf_PI", buflen=len(data), buf=base64.b64encode(data).decode()))

    def _login(self, message: ElementTree.Element, _: bytes) -> None:
        request = _json_of(message)
        user, step = request["user_name"], request["next_operation"]
        if request["scheme"] == "pam_password":
            if self.zone.pam.get(user) != request["a_pw"]:
                raise RodsError(PAM_FAILED)
            ticket = secrets.token_hex(16)
            self.zone.tickets.setdefault(user, []).append(ticket)
            self._send_json({**request, "request_result": ticket})
        elif step == "auth_agent_auth_request":
            self.challenge = base64.b64encode(secrets.token_bytes(48))
            self._send_json({**request, "request_result": self.challenge.decode()})
        else:
            passwords = [
                *self.zone.tickets.get(user, []),
                *filter(None, [self.zone.users.get(user)]),
            ]
            if user not in self.zone.users and user not in self.zone.pam:
                raise RodsError(NO_SUCH_USER)
            if base64.b64decode(request["digest"]) not in map(self._digest, passwords):
                raise RodsError(WRONG_PASSWORD)
            self.user = user
            self._send_json(request)

    def _digest(self, password: str) -> bytes:
        padded = struct.pack("50s", password.encode())
        return hashlib.md5(self.challenge + padded).digest().replace(b"\0", b"\1")

    def _query(self, message: ElementTree.Element, _: bytes) -> None:
        count, page = (int(message.findtext(t) or 0) for t in ("maxRows", "continueInx"))
        columns = [int(e.text or 0) for e in message.findall("InxIvalPair_PI/inx")]
        if page:
            if not (remaining := self.pages.pop(page, [])):
                raise RodsError(INVALID_ARGUMENT)
        else:
            tests = message.findall("InxValPair_PI/svalue")
            condition_columns = [int(e.text or 0) for e in message.findall("InxValPair_PI/inx")]
            conditions = [
                (n, test.text or "") for n, test in zip(condition_columns, tests, strict=True)
            ]
            equal = {n: test[3:-1] for n, test in conditions if test.startswith("= '")}
            path = f"{equal[501]}/{equal[403]}" if {501, 403} <= {*equal} else ""
            with self.zone.lock:
                rows = {
                    tuple(str(row.get(column, "")) for column in columns)
                    for row in self.zone.rows(
                        {number // 100 for number in (*columns, *condition_columns)}, path
                    )
                    if all(_holds(str(row.get(column, "")), test) for column, test in conditions)
                }
            if not (remaining := sorted(rows)):
                raise RodsError(NO_ROWS)
        now, later = remaining[:count], remaining[count:] if count else []
        if later:
            self.pages[page + 1] = later
        values = "".join(
            f"<SqlResult_PI><attriInx>{column}</attriInx><reslen>1024</reslen>"
            + "".join(f"<value>{escape(row[index])}</value>" for row in now)
            + "</SqlResult_PI>"
            for index, column in enumerate(columns)
        )
        self._send(
            f"<GenQueryOut_PI><rowCnt>{len(now)}</rowCnt><attriCnt>{len(columns)}</attriCnt>"
            f"<continueInx>{page + 1 if later else 0}</continueInx>"
            f"<totalRowCount>0</totalRowCount>{values}</GenQueryOut_PI>"
        )

    def _open(self, message: ElementTree.Element, _: bytes) -> None:
        path, flags = message.findtext("objPath") or "", int(message.findtext("openFlags") or 0)
        keywords, writing = _keywords(message), bool(flags & WRITING)
        with self.zone.lock:
            if path in self.zone.denied:
                raise RodsError(NO_PERMISSION)
            replicas = self.zone.objects.get(path, [])
            if not replicas and not flags & CREATE:
                raise RodsError(NO_SUCH_OBJECT)
            wanted = keywords.get("resc_hier") or keywords.get("destRescName", "")
            if not replicas:
                replicas = [self.zone.new_replica(path, wanted, self.user)]
            replica = self._chosen(replicas, wanted, keywords.get("replicaToken"), writing)
            how = (os.O_RDWR if writing else os.O_RDONLY) | (os.O_TRUNC if flags & TRUNCATE else 0)
            handle = OpenObject(replica, os.open(replica.path, how), path, writing, keywords)
            if writing:
                replica.token = replica.token or secrets.token_hex(16)
                replica.status = BEING_WRITTEN
                replica.writers += 1
        number = next(n for n in itertools.count(3) if n not in self.open)
        self.open[number] = handle
        self._send(info=number)

    def _chosen(
        self, replicas: list[Replica], wanted: str, token: str | None, writing: bool
    ) -> Replica:
        here = [r for r in replicas if r.resource == wanted] or replicas
        if writing:
            for replica in replicas:
                if replica.status == BEING_WRITTEN:
                    if token != replica.token or not self.zone.parallel:
                        raise RodsError(LOCKED_OBJECT)
                    return replica
            return here[0]
        if not (good := [r for r in here if r.status == GOOD]):
            raise RodsError(REPLICA_INACCESSIBLE)
        return good[0]

    def _opened(self, message: ElementTree.Element) -> OpenObject:
        number = message.findtext("l1descInx") or _json_of(message).get("fd", 0)
        if int(number) not in self.open:
            raise RodsError(BAD_DESCRIPTOR)
        return self.open[int(number)]

    def _open_info(self, message: ElementTree.Element, _: bytes) -> None:
        if not self.zone.parallel:
            raise RodsError(UNMATCHED_API)
        replica = self._opened(message).replica
        about = {"resource_hierarchy": replica.resource, "replica_number": replica.number}
        self._send_json({"replica_token": replica.token, "data_object_info": about})

    def _seek(self, message: ElementTree.Element, _: bytes) -> None:
        handle = self._opened(message)
        offset, whence = (int(message.findtext(t) or 0) for t in ("offset", "whence"))
        handle.position = offset + (0, handle.position, os.fstat(handle.fd).st_size)[whence]
        self._send(_xml("fileLseekOut_PI", offset=handle.position))

    def _read(self, message: ElementTree.Element, _: bytes) -> None:
        handle = self._opened(message)
        data = os.pread(handle.fd, int(message.findtext("len") or 0), handle.position)
        handle.position += len(data)
        self._moved("read", len(data))
        self._send(data=data, info=len(data))

    def _all(self, data: bytes) -> None:
        """Send them; byte by byte where the zone trickles, until it ends."""
        pause_s = self.zone.trickle_s if len(data) > _LONG else 0.0
        while pause_s and data and not self.zone.closing.wait(pause_s):
            self.sock.sendall(data[:1])
            data = data[1:]
        self.sock.sendall(data)

    def _write(self, message: ElementTree.Element, data: bytes) -> None:
        handle = self._opened(message)
        handle.position += os.pwrite(handle.fd, data, handle.position)
        self._moved("write", len(data))
        self._send(info=len(data))

    def _close(self, message: ElementTree.Element, _: bytes) -> None:
        handle = self._opened(message)
        del self.open[int(message.findtext("l1descInx") or 0)]
        self._release(handle)
        if handle.writing:
            with self.zone.lock:
                replica = handle.replica
                replica.size, replica.status, replica.token = replica.path.stat().st_size, GOOD, ""
                replica.checksum = ""
                if {"regChksum", "verifyChksum"} & {*handle.keywords, *_keywords(message)}:
                    replica.checksum = sha2(replica.path.read_bytes())
                for other in self.zone.objects[handle.logical]:
                    other.status = GOOD if other is replica else STALE
        self._send()

    def _close_replica(self, message: ElementTree.Element, _: bytes) -> None:
        self._release(self._opened(message))
        del self.open[_json_of(message)["fd"]]
        self._send()

    def _release(self, handle: OpenObject, lost: bool = False) -> None:
        os.close(handle.fd)
        if handle.writing:
            with self.zone.lock:
                handle.replica.writers -= 1
                if lost and not handle.replica.writers:
                    handle.replica.status, handle.replica.token = STALE, ""

    def _checksum(self, message: ElementTree.Element, _: bytes) -> None:
        with self.zone.lock:
            replicas = self.zone.objects.get(message.findtext("objPath") or "", [])
            if not (good := [r for r in replicas if r.status == GOOD]):
                raise RodsError(REPLICA_INACCESSIBLE if replicas else NO_SUCH_OBJECT)
            if not good[0].checksum or "forceChksum" in _keywords(message):
                good[0].checksum = sha2(good[0].path.read_bytes())
            self._send(_xml("STR_PI", myStr=good[0].checksum))

    def _create_collection(self, message: ElementTree.Element, _: bytes) -> None:
        with self.zone.lock:
            self.zone.make_collection(message.findtext("collName") or "")
        self._send()


def sha2(data: bytes) -> str:
    """A checksum as iRODS registers it."""
    return "sha2:" + base64.b64encode(hashlib.sha256(data).digest()).decode()


def _holds(value: str, test: str) -> bool:
    match = re.match(r"\s*(=|<>|<=|>=|<|>|not like|like|in)\s*(.*)", test, re.DOTALL)
    assert match, f"no condition of GenQuery: {test}"
    values = re.findall(r"'([^']*)'", match[2])
    if match[1] in ("like", "not like"):
        pattern = values[0].replace("%", "*").replace("_", "?")
        return fnmatch.fnmatchcase(value, pattern) == (match[1] == "like")
    if match[1] in ("=", "in", "<>"):
        return (value in values) == (match[1] != "<>")
    left, right = float(value), float(values[0])
    return {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}[
        match[1]
    ]


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _xml(tag: str, **fields: object) -> str:
    inner = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in fields.items())
    return f"<{tag}>{inner}</{tag}>"


def _keywords(message: ElementTree.Element) -> dict[str, str]:
    names = (e.text or "" for e in message.findall("KeyValPair_PI/keyWord"))
    values = (e.text or "" for e in message.findall("KeyValPair_PI/svalue"))
    return dict(zip(names, values, strict=True))


def _json_of(message: ElementTree.Element) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(
        base64.b64decode(message.findtext("buf") or "").rstrip(b"\0")
    )
    return value


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    with Zone(Path(sys.argv[1]), host=sys.argv[2], port=int(sys.argv[3])):
        signal.pause()
